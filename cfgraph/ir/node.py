"""Nodes, their outputs with their names, and the uses of outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cfgraph.ir import registry
from cfgraph.ir.signature import MAX_COUNT
from cfgraph.rich_display import Displayed

if TYPE_CHECKING:
    from cfgraph.ir.dtypes import DType


class Output(NamedTuple):
    """One output of a node; written `name:port`."""

    node: Node
    port: int = 0

    @property
    def name(self) -> str:
        """`node:port`, including port 0."""
        return f"{self.node.name}:{self.port}"

    @property
    def dtype(self) -> DType | None:
        """The element type, or None if the op is unknown."""
        return registry.output_dtype(self.node.op, self.node.attrs, self.port)

    def __repr__(self) -> str:
        return self.name


_MAX_DIGITS: Final = 20  # longer than any port number


def split_tensor_name(name: str) -> tuple[str, int | None]:
    """`a` is output 0 of a, `a:1` output 1, `^a` the operation itself (None).

    Digits after the last colon win over a leading `^`, as in TensorFlow.
    """
    base, colon, digits = name.rpartition(":")
    port = port_number(digits) if colon and base else None
    if port is not None:
        return base, port
    if name.startswith("^"):
        return name[1:], None
    return name, 0


def node_name(name: str) -> str:
    """The node of `a`, `a:1` or `^a`."""
    return split_tensor_name(name.removeprefix("^"))[0]


def port_number(digits: str) -> int | None:
    """The number that a string of digits represents, or None for any other string."""
    is_number = digits.isascii() and digits.isdigit() and len(digits) < _MAX_DIGITS
    return int(digits) if is_number else None


class Use(NamedTuple):
    """One use of a node: the reader and its input slot (-1 for a control edge)."""

    node: Node
    slot: int


CONTROL = -1
# a tuple of few, which takes a quarter of the memory of a dictionary, or the keys of many
Uses = tuple[Use, ...] | dict[Use, None]
_FEW_USES: Final = 8

# the constructor of a NamedTuple takes four times as long
make_pair: Final[Any] = tuple.__new__


class Node(Displayed):
    """One operation. Edges are changed through the Graph only, attributes by `Graph.set_attr`.

    Nodes with equal attributes may share the dictionary, which is replaced, never modified.
    `origin` is the content of the file beyond these fields; only serde reads it. `uses` are in
    order of creation.
    """

    __slots__ = ("attrs", "controls", "device", "inputs", "name", "op", "origin", "uses")

    def __init__(self, name: str, op: str, attrs: Mapping[str, Any], device: str) -> None:
        self.name = name
        self.op = op
        self.inputs: tuple[Output, ...] = ()
        self.controls: tuple[Node, ...] = ()
        self.attrs = attrs
        self.device = device
        self.uses: Uses = ()
        self.origin: Any = None

    def add_use(self, use: Use) -> None:
        """Record a use that is not recorded yet."""
        uses = self.uses
        if isinstance(uses, dict):
            uses[use] = None
        else:
            uses += (use,)
            self.uses = uses if len(uses) <= _FEW_USES else dict.fromkeys(uses)

    def remove_use(self, use: Use) -> None:
        """Remove a use."""
        uses = self.uses
        if isinstance(uses, dict):
            del uses[use]
        else:
            self.uses = tuple([other for other in uses if other != use])

    def output(self, port: int = 0) -> Output:
        """One output of this node."""
        output: Output = make_pair(Output, (self, port))
        return output

    def attr(self, key: str) -> Any:
        """The value of an attribute, or its default. Raises InvalidInput if it has neither."""
        try:
            return self.attrs[key]
        except KeyError:
            return registry.default_attr(self.name, self.op, key)

    def readers(self, port: int) -> list[Use]:
        """The uses of one output, in order of creation."""
        return [
            use for use in self.uses if use.slot >= 0 and use.node.inputs[use.slot].port == port
        ]

    @property
    def input_types(self) -> list[DType] | None:
        """The types that its op expects of the inputs; None if it or an attribute is unknown."""
        return registry.input_types(self.op, self.attrs)

    @property
    def output_types(self) -> list[DType] | None:
        """The types of the outputs; None if the op or an attribute is unknown."""
        return registry.output_types(self.op, self.attrs)

    @property
    def output_count(self) -> int | None:
        """The number of outputs; None if the op or an attribute is unknown."""
        return registry.output_count(self.op, self.attrs)

    @property
    def outputs(self) -> list[Output]:
        """The outputs; none if their number is unknown."""
        return [make_pair(Output, (self, port)) for port in range(self.output_count or 0)]

    @property
    def assumed_output_count(self) -> int:
        """The number of outputs or, if the op is unknown, of those that are read."""
        count = self.output_count
        if count is None:
            read = [use.node.inputs[use.slot].port for use in self.uses if use.slot >= 0]
            return min(max(read, default=-1) + 1, MAX_COUNT)
        return count

    @property
    def predecessors(self) -> list[Node]:
        """The nodes of the inputs and the control inputs; one that is read twice is there twice."""
        return [*[tensor[0] for tensor in self.inputs], *self.controls]

    @property
    def control_readers(self) -> list[Node]:
        """The nodes with a control edge from this one."""
        return [use.node for use in self.uses if use.slot == CONTROL]

    def __repr__(self) -> str:
        return f"<{self.op} {self.name!r}>"
