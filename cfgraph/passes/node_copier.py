"""Copies of nodes in a graph, in frames and colocation groups of their own.

a ──▶ b      becomes      a ──▶ b,   copy of a ──▶ copy of b
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from cfgraph.ir.colocation import COLOCATION_ATTR, renamed_groups
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.node import make_pair
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import ENTER

_FRAME_ATTR: Final = "frame_name"


class NodeCopier:
    """Copies nodes into a graph, and lists the copies in `added`.

    Copies read `tensors` in place of others.
    """

    def __init__(self, graph: Graph, added: list[Node] | None = None) -> None:
        self.graph = graph
        self.added: list[Node] = [] if added is None else added
        self.copies: dict[Node, Node] = {}
        self.tensors: dict[Output, Output] = {}
        self._frames: dict[Any, bytes] = {}

    def copy(
        self,
        node: Node,
        name: str,
        attrs: Mapping[str, Any],
        device: str,
        inputs: Iterable[Output] = (),
        controls: Iterable[Node] = (),
    ) -> Node:
        """Copy a node under a name, made unique."""
        if ROLES[node.op] is ENTER:
            attrs = {**attrs, _FRAME_ATTR: self._frame_name(attrs.get(_FRAME_ATTR))}
        name = self.graph.unique_name(name)
        copy = self.graph.create(name, node.op, inputs, controls, attrs, device)
        copy.origin = node.origin
        self.copies[node] = copy
        self.added.append(copy)
        return copy

    def _frame_name(self, name: Any) -> bytes:
        if name not in self._frames:
            self._frames[name] = self.new_frame_name(name if isinstance(name, bytes) else b"")
        return self._frames[name]

    def new_frame_name(self, name: bytes) -> bytes:
        """The name of a frame in the copies."""
        return name

    def output(self, tensor: Output) -> Output:
        """The tensor that copies read in place of another."""
        known = self.tensors.get(tensor)
        if known is not None:
            return known
        copy: Output = make_pair(Output, (self.copies[tensor.node], tensor.port))
        return copy

    def rename_groups(self, node: Node, nodes: Mapping[str, Node]) -> None:
        """Name copies in the colocation groups of a copy; `nodes` are the originals by name."""
        copy = self.copies[node]
        if COLOCATION_ATTR in copy.attrs:
            groups = renamed_groups(
                copy.attrs[COLOCATION_ATTR], lambda name: self.copied_name(nodes.get(name))
            )
            copy.attrs = {**copy.attrs, COLOCATION_ATTR: groups}

    def copied_name(self, node: Node | None) -> str | None:
        """The name of the copy of a node, or None for a node that was not copied."""
        copy = None if node is None else self.copies.get(node)
        return None if copy is None else copy.name


class SourceCopier(NodeCopier):
    """Copies nodes on demand, each after all that its copy reads and waits for.

    `mapping` replaces tensors before their copy.
    """

    def __init__(self, graph: Graph, mapping: Callable[[Output], Output]) -> None:
        super().__init__(graph)
        self.mapping = mapping

    def value(self, tensor: Output) -> Output:
        """The copy of a tensor, after the copies of all nodes that it depends on."""
        tensor = self.mapping(tensor)
        if tensor not in self.tensors:
            self.copy_with_sources(tensor.node)
        return self.output(tensor)

    def copy_with_sources(self, node: Node) -> None:
        """Copy a node, after all nodes that it depends on."""
        stack = [node]
        while stack:
            current = stack[-1]
            if current in self.copies:
                stack.pop()
                continue
            inputs = [self.mapping(source) for source in current.inputs]
            controls = self.controls(current)
            missing = [x.node for x in inputs if not (x in self.tensors or x.node in self.copies)]
            missing += [control for control in controls if control not in self.copies]
            if missing:
                stack += missing
                continue
            stack.pop()
            waits = [self.copies[control] for control in controls]
            self.graph.connect(self.clone(current), map(self.output, inputs), waits)

    def controls(self, node: Node) -> Collection[Node]:
        """The nodes whose copies the copy of a node waits for."""
        return node.controls

    def clone(self, node: Node) -> Node:
        """The copy of a node, without edges at first."""
        return self.copy(node, node.name, node.attrs, node.device)
