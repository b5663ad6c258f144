"""What the Builder hands out: tensors with operators, and operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from cfgraph.build import arithmetic, indexing
from cfgraph.build.blame import misuse
from cfgraph.ir import dtypes
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import UNKNOWN, Shape

if TYPE_CHECKING:
    from cfgraph.build.body import Body


class Operation:
    """A node of the graph being written, for control edges and targets."""

    __slots__ = ("body", "node")

    def __init__(self, body: Body, node: Node) -> None:
        self.body = body
        self.node = node

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.name

    def __repr__(self) -> str:
        return f"<operation {self.name!r} ({self.node.op})>"


class Operators:
    """Python's operators, for whatever stands for a tensor; each adds the op that it means."""

    __slots__ = ()
    # NumPy leaves `array + tensor` to the tensor
    __array_ufunc__ = None

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.as_tensor().dtype

    def as_tensor(self) -> Tensor:
        """The tensor that is meant."""
        raise NotImplementedError

    def __add__(self, other: Any) -> Tensor:
        return arithmetic.add(self.as_tensor(), other)

    def __radd__(self, other: Any) -> Tensor:
        return arithmetic.add(other, self.as_tensor())

    def __sub__(self, other: Any) -> Tensor:
        return arithmetic.binary("Sub", self.as_tensor(), other)

    def __rsub__(self, other: Any) -> Tensor:
        return arithmetic.binary("Sub", other, self.as_tensor())

    def __mul__(self, other: Any) -> Tensor:
        return arithmetic.binary("Mul", self.as_tensor(), other)

    def __rmul__(self, other: Any) -> Tensor:
        return arithmetic.binary("Mul", other, self.as_tensor())

    def __truediv__(self, other: Any) -> Tensor:
        return arithmetic.divide(self.as_tensor(), other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return arithmetic.divide(other, self.as_tensor())

    def __floordiv__(self, other: Any) -> Tensor:
        return arithmetic.binary("FloorDiv", self.as_tensor(), other)

    def __rfloordiv__(self, other: Any) -> Tensor:
        return arithmetic.binary("FloorDiv", other, self.as_tensor())

    def __mod__(self, other: Any) -> Tensor:
        return arithmetic.binary("FloorMod", self.as_tensor(), other)

    def __rmod__(self, other: Any) -> Tensor:
        return arithmetic.binary("FloorMod", other, self.as_tensor())

    def __pow__(self, other: Any) -> Tensor:
        return arithmetic.binary("Pow", self.as_tensor(), other)

    def __rpow__(self, other: Any) -> Tensor:
        return arithmetic.binary("Pow", other, self.as_tensor())

    def __matmul__(self, other: Any) -> Tensor:
        return arithmetic.matmul(self.as_tensor(), other)

    def __rmatmul__(self, other: Any) -> Tensor:
        return arithmetic.matmul(other, self.as_tensor())

    def __and__(self, other: Any) -> Tensor:
        return arithmetic.logic("LogicalAnd", "BitwiseAnd", self.as_tensor(), other)

    def __rand__(self, other: Any) -> Tensor:
        return arithmetic.logic("LogicalAnd", "BitwiseAnd", other, self.as_tensor())

    def __or__(self, other: Any) -> Tensor:
        return arithmetic.logic("LogicalOr", "BitwiseOr", self.as_tensor(), other)

    def __ror__(self, other: Any) -> Tensor:
        return arithmetic.logic("LogicalOr", "BitwiseOr", other, self.as_tensor())

    def __xor__(self, other: Any) -> Tensor:
        return arithmetic.logic("NotEqual", "BitwiseXor", self.as_tensor(), other)

    def __rxor__(self, other: Any) -> Tensor:
        return arithmetic.logic("NotEqual", "BitwiseXor", other, self.as_tensor())

    def __lt__(self, other: Any) -> Tensor:
        return arithmetic.binary("Less", self.as_tensor(), other)

    def __le__(self, other: Any) -> Tensor:
        return arithmetic.binary("LessEqual", self.as_tensor(), other)

    def __gt__(self, other: Any) -> Tensor:
        return arithmetic.binary("Greater", self.as_tensor(), other)

    def __ge__(self, other: Any) -> Tensor:
        return arithmetic.binary("GreaterEqual", self.as_tensor(), other)

    def __eq__(self, other: object) -> Tensor:  # type: ignore[override]
        return arithmetic.binary("Equal", self.as_tensor(), other)

    def __ne__(self, other: object) -> Tensor:  # type: ignore[override]
        return arithmetic.binary("NotEqual", self.as_tensor(), other)

    __hash__ = object.__hash__

    def __neg__(self) -> Tensor:
        return arithmetic.unary("Neg", self.as_tensor())

    def __abs__(self) -> Tensor:
        return arithmetic.absolute(self.as_tensor())

    def __invert__(self) -> Tensor:
        tensor = self.as_tensor()
        return arithmetic.unary("LogicalNot" if tensor.dtype is dtypes.bool_ else "Invert", tensor)

    def __getitem__(self, index: Any) -> Tensor:
        return indexing.part(self.as_tensor(), index)

    def __bool__(self) -> NoReturn:
        message = f"{self!r} has no truth value while the graph is written"
        hint = "use cond and while_loop for `if` and `while`; & | ~ for `and`, `or` and `not`"
        raise misuse(message, hint=hint)

    def __iter__(self) -> NoReturn:
        message = f"{self!r} cannot be iterated while the graph is written"
        raise misuse(message, hint="use Unpack for its parts, while_loop for a loop over them")


class Tensor(Operators):
    """One output of a node of the graph being written, and the body that it was made in."""

    __slots__ = ("body", "output")

    def __init__(self, body: Body, output: Output) -> None:
        self.body = body
        self.output = output

    def as_tensor(self) -> Tensor:
        """Itself."""
        return self

    @property
    def name(self) -> str:
        """`node:port`."""
        return self.output.name

    @property
    def op(self) -> Operation:
        """The operation that makes it."""
        return Operation(self.body, self.output.node)

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.output.dtype or dtypes.invalid

    @property
    def shape(self) -> Shape:
        """What is known of its shape."""
        return self.body.shapes.get(self.output, UNKNOWN)

    def __repr__(self) -> str:
        return f"<tensor {self.name!r} {self.dtype}{self.shape}>"
