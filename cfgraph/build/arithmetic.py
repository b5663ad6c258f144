"""What Python's operators on tensors add to the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cfgraph.ir import dtypes
from cfgraph.ir.dtypes import DType

if TYPE_CHECKING:
    from cfgraph.build.builder import Builder
    from cfgraph.build.tensor import Tensor

# integers are divided as floats; of these as the smaller ones
_SMALL: Final = (dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16)


def binary(op: str, x: Any, y: Any) -> Tensor:
    """An op of two inputs, of which one may be a Python value."""
    return _one(_builder(x, y), op, x, y)


def unary(op: str, x: Tensor) -> Tensor:
    """An op of one input."""
    return _one(x.body.builder, op, x)


def add(x: Any, y: Any) -> Tensor:
    """The sum; of strings, what stands one after the other."""
    return binary("Add" if _dtype(x, y) is dtypes.string else "AddV2", x, y)


def divide(x: Any, y: Any) -> Tensor:
    """The quotient as Python's `/` has it: of integers, a float."""
    dtype = _dtype(x, y)
    if not dtype.is_integer:
        return binary("RealDiv", x, y)
    builder, wanted = _builder(x, y), dtypes.float32 if dtype in _SMALL else dtypes.float64
    left, right = (
        _one(builder, "Cast", builder.tensor(item, dtype), DstT=wanted) for item in (x, y)
    )
    return binary("RealDiv", left, right)


def matmul(x: Any, y: Any) -> Tensor:
    """The product of matrices, or of stacks of them."""
    builder, dtype = _builder(x, y), _dtype(x, y)
    left, right = builder.tensor(x, dtype), builder.tensor(y, dtype)
    flat = left.shape.rank == 2 and right.shape.rank == 2
    return binary("MatMul" if flat else "BatchMatMulV2", left, right)


def logic(of_bools: str, of_integers: str, x: Any, y: Any) -> Tensor:
    """One op for bools, another for the bits of integers."""
    return binary(of_bools if _dtype(x, y) is dtypes.bool_ else of_integers, x, y)


def absolute(x: Tensor) -> Tensor:
    """The absolute value, of complex numbers too."""
    if not x.dtype.is_complex:
        return unary("Abs", x)
    real = dtypes.float32 if x.dtype is dtypes.complex64 else dtypes.float64
    return _one(x.body.builder, "ComplexAbs", x, Tout=real)


def _one(builder: Builder, op: str, *inputs: Any, **attrs: Any) -> Tensor:
    """A node of an op that has one output."""
    made: Tensor = builder.call(op, inputs, attrs)
    return made


def _tensor(x: Any, y: Any) -> Tensor:
    found: Tensor = (x if hasattr(x, "as_tensor") else y).as_tensor()
    return found


def _builder(x: Any, y: Any) -> Builder:
    return _tensor(x, y).body.builder


def _dtype(x: Any, y: Any) -> DType:
    return _tensor(x, y).dtype
