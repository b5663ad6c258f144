"""Tensors, operations, and variables of a graph under construction, with Python operators."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np

from cfgraph.build.user_frame import misuse_error
from cfgraph.ir import dtypes
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape

if TYPE_CHECKING:
    from cfgraph.build.body import BodyBuilder
    from cfgraph.build.builder import Builder


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
    """Add the logical op for boolean operands, or the bitwise op for integers."""
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


class Operation:
    """A node of a graph under construction, for control edges and targets."""

    __slots__ = ("body", "node")

    def __init__(self, body: BodyBuilder, node: Node) -> None:
        self.body = body
        self.node = node

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.name

    def __repr__(self) -> str:
        return f"<operation {self.name!r} ({self.node.op})>"


class TensorOperators:
    """Python operators of tensors and variables; each adds the corresponding op."""

    __slots__ = ()
    # makes NumPy defer `array + tensor` to the tensor
    __array_ufunc__ = None

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.as_tensor().dtype

    def as_tensor(self) -> BuilderTensor:
        """The tensor that the operators apply to."""
        raise NotImplementedError

    def __add__(self, other: Any) -> BuilderTensor:
        return add(self.as_tensor(), other)

    def __radd__(self, other: Any) -> BuilderTensor:
        return add(other, self.as_tensor())

    def __sub__(self, other: Any) -> BuilderTensor:
        return binary_op("Sub", self.as_tensor(), other)

    def __rsub__(self, other: Any) -> BuilderTensor:
        return binary_op("Sub", other, self.as_tensor())

    def __mul__(self, other: Any) -> BuilderTensor:
        return binary_op("Mul", self.as_tensor(), other)

    def __rmul__(self, other: Any) -> BuilderTensor:
        return binary_op("Mul", other, self.as_tensor())

    def __truediv__(self, other: Any) -> BuilderTensor:
        return divide(self.as_tensor(), other)

    def __rtruediv__(self, other: Any) -> BuilderTensor:
        return divide(other, self.as_tensor())

    def __floordiv__(self, other: Any) -> BuilderTensor:
        return binary_op("FloorDiv", self.as_tensor(), other)

    def __rfloordiv__(self, other: Any) -> BuilderTensor:
        return binary_op("FloorDiv", other, self.as_tensor())

    def __mod__(self, other: Any) -> BuilderTensor:
        return binary_op("FloorMod", self.as_tensor(), other)

    def __rmod__(self, other: Any) -> BuilderTensor:
        return binary_op("FloorMod", other, self.as_tensor())

    def __pow__(self, other: Any) -> BuilderTensor:
        return binary_op("Pow", self.as_tensor(), other)

    def __rpow__(self, other: Any) -> BuilderTensor:
        return binary_op("Pow", other, self.as_tensor())

    def __matmul__(self, other: Any) -> BuilderTensor:
        return matmul(self.as_tensor(), other)

    def __rmatmul__(self, other: Any) -> BuilderTensor:
        return matmul(other, self.as_tensor())

    def __and__(self, other: Any) -> BuilderTensor:
        return logical_op("LogicalAnd", "BitwiseAnd", self.as_tensor(), other)

    def __rand__(self, other: Any) -> BuilderTensor:
        return logical_op("LogicalAnd", "BitwiseAnd", other, self.as_tensor())

    def __or__(self, other: Any) -> BuilderTensor:
        return logical_op("LogicalOr", "BitwiseOr", self.as_tensor(), other)

    def __ror__(self, other: Any) -> BuilderTensor:
        return logical_op("LogicalOr", "BitwiseOr", other, self.as_tensor())

    def __xor__(self, other: Any) -> BuilderTensor:
        return logical_op("NotEqual", "BitwiseXor", self.as_tensor(), other)

    def __rxor__(self, other: Any) -> BuilderTensor:
        return logical_op("NotEqual", "BitwiseXor", other, self.as_tensor())

    def __lt__(self, other: Any) -> BuilderTensor:
        return binary_op("Less", self.as_tensor(), other)

    def __le__(self, other: Any) -> BuilderTensor:
        return binary_op("LessEqual", self.as_tensor(), other)

    def __gt__(self, other: Any) -> BuilderTensor:
        return binary_op("Greater", self.as_tensor(), other)

    def __ge__(self, other: Any) -> BuilderTensor:
        return binary_op("GreaterEqual", self.as_tensor(), other)

    def __eq__(self, other: object) -> BuilderTensor:  # type: ignore[override]
        return binary_op("Equal", self.as_tensor(), other)

    def __ne__(self, other: object) -> BuilderTensor:  # type: ignore[override]
        return binary_op("NotEqual", self.as_tensor(), other)

    __hash__ = object.__hash__

    def __neg__(self) -> BuilderTensor:
        return unary_op("Neg", self.as_tensor())

    def __abs__(self) -> BuilderTensor:
        return absolute(self.as_tensor())

    def __invert__(self) -> BuilderTensor:
        tensor = self.as_tensor()
        return unary_op("LogicalNot" if tensor.dtype is dtypes.bool_ else "Invert", tensor)

    def __getitem__(self, index: Any) -> BuilderTensor:
        return slice_tensor(self.as_tensor(), index)

    def __bool__(self) -> NoReturn:
        message = f"{self!r} has no truth value while the graph is being built"
        hint = "use cond and while_loop for `if` and `while`; & | ~ for `and`, `or` and `not`"
        raise misuse_error(message, hint=hint)

    def __iter__(self) -> NoReturn:
        message = f"{self!r} cannot be iterated while the graph is being built"
        raise misuse_error(
            message, hint="use Unpack for its elements, or while_loop to loop over them"
        )


class BuilderTensor(TensorOperators):
    """One output of a node under construction, and the body that owns it."""

    __slots__ = ("body", "output")

    def __init__(self, body: BodyBuilder, output: Output) -> None:
        self.body = body
        self.output = output

    def as_tensor(self) -> BuilderTensor:
        """The tensor itself."""
        return self

    @property
    def name(self) -> str:
        """`node:port`."""
        return self.output.name

    @property
    def op(self) -> Operation:
        """The operation that produces it."""
        return Operation(self.body, self.output.node)

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.output.dtype or dtypes.invalid

    @property
    def shape(self) -> Shape:
        """The shape as far as it is known."""
        return self.body.shapes.get(self.output, UNKNOWN_SHAPE)

    def __repr__(self) -> str:
        return f"<tensor {self.name!r} {self.dtype}{self.shape}>"


class BuilderVariable(TensorOperators):
    """A variable with a resource handle; it is read where a tensor is expected.

    `initializer` assigns its initial value; `Builder.initializer` runs the initializers of all
    variables.
    """

    __slots__ = ("builder", "dtype", "handle", "initializer", "shape")

    def __init__(self, builder: Builder, initial: Any, dtype: Any, shape: Any, name: str) -> None:
        self.builder = builder
        body = builder.body
        if body.parent is not None:
            message = f"the variable {name!r} is created in {body.label}"
            raise misuse_error(message, hint="create it outside, and read or assign it there")
        unique = body.name_for(name)
        first = builder.tensor(initial, dtype, name=f"{name}/initial_value")
        self.dtype: DType = first.dtype.base
        self.shape: Shape = first.shape if shape is None else shape
        attrs = {"dtype": self.dtype, "shape": self.shape, "shared_name": unique.encode()}
        self.handle: BuilderTensor = BuilderTensor(
            body, body.add("VarHandleOp", (), unique, attrs).output()
        )
        self.initializer: Operation = self._assign("AssignVariableOp", first, "Assign")

    @property
    def name(self) -> str:
        """The name of the node that creates its handle."""
        return self.handle.op.name

    def as_tensor(self) -> BuilderTensor:
        """The current value."""
        return self.read()

    def read(self, name: str | None = None) -> BuilderTensor:
        """Add a read of the current value."""
        attrs = {"dtype": self.dtype, "name": name or f"{self.name}/Read"}
        tensor: BuilderTensor = self.builder.call("ReadVariableOp", (self.handle,), attrs)
        tensor.body.shapes[tensor.output] = self.shape
        return tensor

    def assign(self, value: Any, name: str | None = None) -> Operation:
        """Add an assignment."""
        return self._assign("AssignVariableOp", value, "Assign", name)

    def assign_add(self, value: Any, name: str | None = None) -> Operation:
        """Add an in-place addition."""
        return self._assign("AssignAddVariableOp", value, "AssignAdd", name)

    def assign_sub(self, value: Any, name: str | None = None) -> Operation:
        """Add an in-place subtraction."""
        return self._assign("AssignSubVariableOp", value, "AssignSub", name)

    def _assign(self, op: str, value: Any, suffix: str, name: str | None = None) -> Operation:
        attrs = {"dtype": self.dtype, "name": name or f"{self.name}/{suffix}"}
        operation: Operation = self.builder.call(op, (self.handle, value), attrs)
        return operation

    def __repr__(self) -> str:
        return f"<variable {self.name!r} {self.dtype}{self.shape}>"
