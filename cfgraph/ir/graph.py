"""The graph: nodes, their edges, and the uses of every output. Only this file edits edges."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from cfgraph.errors import InvalidInput, UsageError
from cfgraph.ir import registry

if TYPE_CHECKING:
    from cfgraph.ir.dtypes import DType
    from cfgraph.ir.functions import Function


class Output(NamedTuple):
    """One output of a node; written `name:port`."""

    node: Node
    port: int = 0

    @property
    def name(self) -> str:
        """`node:port`, always with the port."""
        return f"{self.node.name}:{self.port}"

    @property
    def dtype(self) -> DType | None:
        """The element type; None if the op is not known."""
        return registry.output_dtype(self.node, self.port)

    def __repr__(self) -> str:
        return self.name


class Use(NamedTuple):
    """One place that reads a node: the reader, and its input slot (-1: a control edge)."""

    node: Node
    slot: int


CONTROL = -1


class Node:
    """One operation. Edges are changed through the Graph only; `attrs` by `Graph.set_attr`.

    `origin` is what a file held of this node beyond these fields; only serde reads it.
    """

    __slots__ = ("attrs", "controls", "device", "inputs", "name", "op", "origin", "uses")

    def __init__(self, name: str, op: str, attrs: dict[str, Any], device: str) -> None:
        self.name = name
        self.op = op
        self.inputs: tuple[Output, ...] = ()
        self.controls: tuple[Node, ...] = ()
        self.attrs = attrs
        self.device = device
        self.uses: dict[Use, None] = {}
        self.origin: Any = None

    def output(self, port: int = 0) -> Output:
        """One output of this node."""
        return Output(self, port)

    def attr(self, key: str) -> Any:
        """The value of an attribute, or its default. Raises InvalidInput where it has neither."""
        try:
            return self.attrs[key]
        except KeyError:
            return registry.default_attr(self, key)

    def readers(self, port: int) -> list[Use]:
        """The uses of one output, in the order in which they came to be."""
        return [
            use for use in self.uses if use.slot >= 0 and use.node.inputs[use.slot].port == port
        ]

    @property
    def control_readers(self) -> list[Node]:
        """The nodes that wait for this one by a control edge."""
        return [use.node for use in self.uses if use.slot == CONTROL]

    def __repr__(self) -> str:
        return f"<{self.op} {self.name!r}>"


class Graph:
    """Nodes by name, in order, with the library of functions and the versions of the file.

    `edits` counts changes, so that what was derived from a graph knows when it is stale.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.functions: dict[str, Function] = {}
        self.gradient_functions: dict[str, str] = {}
        self.versions: Versions = Versions()
        self.origin: Any = None
        self.edits = 0
        self._suffixes: dict[str, int] = {}

    # -- reading ---------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes.values())

    def __len__(self) -> int:
        return len(self.nodes)

    def __contains__(self, name: object) -> bool:
        return name in self.nodes

    def __getitem__(self, name: str) -> Node:
        node = self.nodes.get(name)
        if node is None:
            message = f"no node {name!r} in the graph"
            raise UsageError(message, hint=did_you_mean(name, self.nodes))
        return node

    def tensor(self, name: str) -> Output:
        """The output that `name` or `name:port` says.

        Raises UsageError where there is no such node or output.
        """
        base, port = split_tensor_name(name)
        if port is None:
            message = f"{name!r} names an operation, not a tensor"
            raise UsageError(message, hint=f"write {base!r} or {base + ':0'!r}")
        node = self[base]
        count = registry.output_count(node)
        if count is not None and port >= count:
            message = (
                f"{base!r} ({node.op}) has {count} output{'s' * (count != 1)}, no output {port}"
            )
            hint = f"run it as a target: ^{base}" if count == 0 else None
            raise UsageError(message, node=base, hint=hint)
        return Output(node, port)

    # -- writing ---------------------------------------------------------------------------------

    def add(
        self,
        op: str,
        *inputs: Output | Node,
        name: str | None = None,
        controls: Iterable[Node] = (),
        device: str = "",
        attrs: Mapping[str, Any] | None = None,
        **more_attrs: Any,
    ) -> Node:
        """Add a node; type and count attributes are inferred from its inputs.

        `name` is made unique. Raises InvalidInput where inputs or attributes do not fit the op.
        """
        ports = tuple(item if isinstance(item, Output) else Output(item, 0) for item in inputs)
        given = {**(attrs or {}), **more_attrs}
        name = self.unique_name(name or op)
        return self.create(
            name, op, ports, controls, registry.complete(name, op, ports, given), device
        )

    def create(
        self,
        name: str,
        op: str,
        inputs: Iterable[Output] = (),
        controls: Iterable[Node] = (),
        attrs: dict[str, Any] | None = None,
        device: str = "",
    ) -> Node:
        """Add a node exactly as given. Raises InvalidInput if the name is taken."""
        if name in self.nodes:
            message = f"the name {name!r} is given to two nodes"
            raise InvalidInput(message, node=name, code="CFG104")
        node = Node(name, op, {} if attrs is None else attrs, device)
        self.nodes[name] = node
        self.edits += 1
        self.connect(node, inputs, controls)
        return node

    def connect(self, node: Node, inputs: Iterable[Output], controls: Iterable[Node]) -> None:
        """Set all edges into a node at once."""
        self.set_inputs(node, inputs)
        self.set_controls(node, controls)

    def set_inputs(self, node: Node, inputs: Iterable[Output]) -> None:
        """Replace all data inputs of a node."""
        self.edits += 1
        for slot, old in enumerate(node.inputs):
            del old.node.uses[Use(node, slot)]
        node.inputs = tuple(inputs)
        for slot, new in enumerate(node.inputs):
            new.node.uses[Use(node, slot)] = None

    def set_input(self, node: Node, slot: int, source: Output) -> None:
        """Replace one data input."""
        self.edits += 1
        del node.inputs[slot].node.uses[Use(node, slot)]
        node.inputs = (*node.inputs[:slot], source, *node.inputs[slot + 1 :])
        source.node.uses[Use(node, slot)] = None

    def set_controls(self, node: Node, controls: Iterable[Node]) -> None:
        """Replace all control inputs; duplicates collapse."""
        self.edits += 1
        for old in node.controls:
            del old.uses[Use(node, CONTROL)]
        node.controls = tuple(dict.fromkeys(controls))
        for new in node.controls:
            new.uses[Use(node, CONTROL)] = None

    def add_control(self, node: Node, before: Node) -> None:
        """Make `node` wait for `before`."""
        if before not in node.controls:
            self.edits += 1
            node.controls = (*node.controls, before)
            before.uses[Use(node, CONTROL)] = None

    def remove_control(self, node: Node, before: Node) -> None:
        """Remove one control edge, if it is there."""
        if before in node.controls:
            self.set_controls(node, [item for item in node.controls if item is not before])

    def replace_uses(self, old: Output, new: Output) -> int:
        """Let every reader of `old` read `new`; returns how many did."""
        uses = old.node.readers(old.port)
        for use in uses:
            self.set_input(use.node, use.slot, new)
        return len(uses)

    def set_attr(self, node: Node, key: str, value: Any) -> None:
        """Set one attribute."""
        self.edits += 1
        node.attrs[key] = value

    def set_device(self, node: Node, device: str) -> None:
        """Set the requested device."""
        self.edits += 1
        node.device = device

    def rename(self, node: Node, name: str) -> None:
        """Give a node another name; it keeps its place in the order.

        Raises InvalidInput if the name is taken.
        """
        if name in self.nodes:
            message = f"the name {name!r} is given to two nodes"
            raise InvalidInput(message, node=name, code="CFG104")
        self.edits += 1
        renamed = {name if key == node.name else key: value for key, value in self.nodes.items()}
        self.nodes = renamed
        node.name = name

    def remove(self, *nodes: Node) -> None:
        """Remove nodes. Raises ValueError if a node that stays reads one of them."""
        going = set(nodes)
        for node in nodes:
            for use in node.uses:
                if use.node not in going:
                    message = f"{node.name!r} is still read by {use.node.name!r}"
                    raise ValueError(message)
        for node in nodes:
            self.connect(node, (), ())
            del self.nodes[node.name]

    def unique_name(self, base: str) -> str:
        """A name not yet taken: `base`, or `base_1`, `base_2`, …"""
        if base not in self.nodes:
            return base
        number = self._suffixes.get(base, 0) + 1
        while f"{base}_{number}" in self.nodes:
            number += 1
        self._suffixes[base] = number
        return f"{base}_{number}"


class Versions(NamedTuple):
    """Which producers wrote a graph and which consumers may read it."""

    producer: int = 0
    min_consumer: int = 0
    bad_consumers: tuple[int, ...] = ()


def split_tensor_name(name: str) -> tuple[str, int | None]:
    """`a` is output 0 of a, `a:1` output 1, `^a` the operation itself (None).

    Digits after the last colon win over a leading `^`, as in TensorFlow.
    """
    base, colon, digits = name.rpartition(":")
    if colon and base and digits.isascii() and digits.isdigit():
        return base, int(digits)
    if name.startswith("^"):
        return name[1:], None
    return name, 0


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """A hint with the closest known name, or None."""
    close = difflib.get_close_matches(name, list(known), 1)
    return f"did you mean {close[0]!r}?" if close else None
