"""Tensors, operations, and variables of a graph under construction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from cfgraph.build import operators
from cfgraph.build.user_frame import misuse_error
from cfgraph.ir import dtypes
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape

if TYPE_CHECKING:
    from cfgraph.build.body import BodyBuilder
    from cfgraph.build.builder import Builder


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
        return operators.add(self.as_tensor(), other)

    def __radd__(self, other: Any) -> BuilderTensor:
        return operators.add(other, self.as_tensor())

    def __sub__(self, other: Any) -> BuilderTensor:
        return operators.binary_op("Sub", self.as_tensor(), other)

    def __rsub__(self, other: Any) -> BuilderTensor:
        return operators.binary_op("Sub", other, self.as_tensor())

    def __mul__(self, other: Any) -> BuilderTensor:
        return operators.binary_op("Mul", self.as_tensor(), other)

    def __rmul__(self, other: Any) -> BuilderTensor:
        return operators.binary_op("Mul", other, self.as_tensor())

    def __truediv__(self, other: Any) -> BuilderTensor:
        return operators.divide(self.as_tensor(), other)

    def __rtruediv__(self, other: Any) -> BuilderTensor:
        return operators.divide(other, self.as_tensor())

    def __floordiv__(self, other: Any) -> BuilderTensor:
        return operators.binary_op("FloorDiv", self.as_tensor(), other)

    def __rfloordiv__(self, other: Any) -> BuilderTensor:
        return operators.binary_op("FloorDiv", other, self.as_tensor())

    def __mod__(self, other: Any) -> BuilderTensor:
        return operators.binary_op("FloorMod", self.as_tensor(), other)

    def __rmod__(self, other: Any) -> BuilderTensor:
        return operators.binary_op("FloorMod", other, self.as_tensor())

    def __pow__(self, other: Any) -> BuilderTensor:
        return operators.binary_op("Pow", self.as_tensor(), other)

    def __rpow__(self, other: Any) -> BuilderTensor:
        return operators.binary_op("Pow", other, self.as_tensor())

    def __matmul__(self, other: Any) -> BuilderTensor:
        return operators.matmul(self.as_tensor(), other)

    def __rmatmul__(self, other: Any) -> BuilderTensor:
        return operators.matmul(other, self.as_tensor())

    def __and__(self, other: Any) -> BuilderTensor:
        return operators.logical_op("LogicalAnd", "BitwiseAnd", self.as_tensor(), other)

    def __rand__(self, other: Any) -> BuilderTensor:
        return operators.logical_op("LogicalAnd", "BitwiseAnd", other, self.as_tensor())

    def __or__(self, other: Any) -> BuilderTensor:
        return operators.logical_op("LogicalOr", "BitwiseOr", self.as_tensor(), other)

    def __ror__(self, other: Any) -> BuilderTensor:
        return operators.logical_op("LogicalOr", "BitwiseOr", other, self.as_tensor())

    def __xor__(self, other: Any) -> BuilderTensor:
        return operators.logical_op("NotEqual", "BitwiseXor", self.as_tensor(), other)

    def __rxor__(self, other: Any) -> BuilderTensor:
        return operators.logical_op("NotEqual", "BitwiseXor", other, self.as_tensor())

    def __lt__(self, other: Any) -> BuilderTensor:
        return operators.binary_op("Less", self.as_tensor(), other)

    def __le__(self, other: Any) -> BuilderTensor:
        return operators.binary_op("LessEqual", self.as_tensor(), other)

    def __gt__(self, other: Any) -> BuilderTensor:
        return operators.binary_op("Greater", self.as_tensor(), other)

    def __ge__(self, other: Any) -> BuilderTensor:
        return operators.binary_op("GreaterEqual", self.as_tensor(), other)

    def __eq__(self, other: object) -> BuilderTensor:  # type: ignore[override]
        return operators.binary_op("Equal", self.as_tensor(), other)

    def __ne__(self, other: object) -> BuilderTensor:  # type: ignore[override]
        return operators.binary_op("NotEqual", self.as_tensor(), other)

    __hash__ = object.__hash__

    def __neg__(self) -> BuilderTensor:
        return operators.unary_op("Neg", self.as_tensor())

    def __abs__(self) -> BuilderTensor:
        return operators.absolute(self.as_tensor())

    def __invert__(self) -> BuilderTensor:
        tensor = self.as_tensor()
        return operators.unary_op(
            "LogicalNot" if tensor.dtype is dtypes.bool_ else "Invert", tensor
        )

    def __getitem__(self, index: Any) -> BuilderTensor:
        return operators.slice_tensor(self.as_tensor(), index)

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

    `initializer` assigns its initial value; Builder.initializer runs those of all variables.
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
