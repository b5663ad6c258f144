"""Nodes added by the Python operators and indexing of tensors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cfgraph.build.user_frame import misuse_error
from cfgraph.ir import dtypes
from cfgraph.ir.dtypes import DType

if TYPE_CHECKING:
    from cfgraph.build.builder import Builder
    from cfgraph.build.tensor import BuilderTensor


# integers are divided as floats, small ones as float32
_SMALL_INTEGERS: Final = (dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16)


def binary_op(op: str, x: Any, y: Any) -> BuilderTensor:
    """Add an op with two inputs, one of which may be a Python value."""
    return _single_output_op(_operand_builder(x, y), op, x, y)


def unary_op(op: str, x: BuilderTensor) -> BuilderTensor:
    """Add an op with one input."""
    return _single_output_op(x.body.builder, op, x)


def add(x: Any, y: Any) -> BuilderTensor:
    """The sum; for strings, the concatenation."""
    return binary_op("Add" if _operand_dtype(x, y) is dtypes.string else "AddV2", x, y)


def divide(x: Any, y: Any) -> BuilderTensor:
    """The quotient, as Python's `/`: a float for integers."""
    dtype = _operand_dtype(x, y)
    if not dtype.is_integer:
        return binary_op("RealDiv", x, y)
    builder, quotient = (
        _operand_builder(x, y),
        dtypes.float32 if dtype in _SMALL_INTEGERS else dtypes.float64,
    )
    dividend, divisor = (
        _single_output_op(builder, "Cast", builder.tensor(item, dtype), DstT=quotient)
        for item in (x, y)
    )
    return binary_op("RealDiv", dividend, divisor)


def matmul(x: Any, y: Any) -> BuilderTensor:
    """The product of matrices or batches of matrices."""
    builder, dtype = _operand_builder(x, y), _operand_dtype(x, y)
    a, b = builder.tensor(x, dtype), builder.tensor(y, dtype)
    flat = a.shape.rank == 2 and b.shape.rank == 2
    return binary_op("MatMul" if flat else "BatchMatMulV2", a, b)


def logical_op(of_bools: str, of_integers: str, x: Any, y: Any) -> BuilderTensor:
    """One op for booleans, another for the bits of integers."""
    return binary_op(of_bools if _operand_dtype(x, y) is dtypes.bool_ else of_integers, x, y)


def absolute(x: BuilderTensor) -> BuilderTensor:
    """The absolute value, also of complex numbers."""
    if not x.dtype.is_complex:
        return unary_op("Abs", x)
    real = dtypes.float32 if x.dtype is dtypes.complex64 else dtypes.float64
    return _single_output_op(x.body.builder, "ComplexAbs", x, Tout=real)


def _single_output_op(builder: Builder, op: str, *inputs: Any, **attrs: Any) -> BuilderTensor:
    """Add a node of an op with one output."""
    output: BuilderTensor = builder.call(op, inputs, attrs)
    return output


def _operand_tensor(x: Any, y: Any) -> BuilderTensor:
    tensor: BuilderTensor = (x if hasattr(x, "as_tensor") else y).as_tensor()
    return tensor


def _operand_builder(x: Any, y: Any) -> Builder:
    return _operand_tensor(x, y).body.builder


def _operand_dtype(x: Any, y: Any) -> DType:
    return _operand_tensor(x, y).dtype


@dataclass
class _SliceSpec:
    """Begin, end, and stride of each entry of an index, and the masks of StridedSlice."""

    begin: list[Any] = field(default_factory=list)
    end: list[Any] = field(default_factory=list)
    strides: list[Any] = field(default_factory=list)
    begin_mask: int = 0
    end_mask: int = 0
    ellipsis_mask: int = 0
    new_axis_mask: int = 0
    shrink_axis_mask: int = 0

    def add(self, begin: Any, end: Any, stride: Any = 1) -> None:
        """Append one entry."""
        self.begin.append(begin)
        self.end.append(end)
        self.strides.append(stride)


def slice_tensor(tensor: BuilderTensor, index: Any) -> BuilderTensor:
    """The slice of a tensor for an index of integers, slices, `...`, None, or scalar tensors."""
    masks = _SliceSpec()
    for position, entry in enumerate(index if isinstance(index, tuple) else (index,)):
        _add_index_entry(masks, 1 << position, entry)
    attrs = {key: bits for key, bits in vars(masks).items() if key.endswith("_mask") and bits}
    inputs = (tensor, masks.begin, masks.end, masks.strides)
    output: BuilderTensor = tensor.body.builder.call("StridedSlice", inputs, attrs)
    return output


def _add_index_entry(masks: _SliceSpec, bit: int, entry: Any) -> None:
    if entry is None or entry is Ellipsis:
        masks.new_axis_mask |= bit if entry is None else 0
        masks.ellipsis_mask |= bit if entry is Ellipsis else 0
        masks.add(0, 0)
    elif isinstance(entry, slice):
        masks.begin_mask |= bit if entry.start is None else 0
        masks.end_mask |= bit if entry.stop is None else 0
        begin, end = (0 if bound is None else bound for bound in (entry.start, entry.stop))
        masks.add(begin, end, 1 if entry.step is None else entry.step)
    elif hasattr(entry, "as_tensor") or _is_integer(entry):
        masks.shrink_axis_mask |= bit
        # the op ignores this end
        masks.add(entry, entry + 1 if _is_integer(entry) else entry)
    else:
        message = f"{entry!r} is not a valid tensor index"
        raise misuse_error(
            message, hint="use GatherV2 for a list of indices, Where and GatherV2 for a mask"
        )


def _is_integer(entry: Any) -> bool:
    return isinstance(entry, int | np.integer) and not isinstance(entry, bool)
