"""Boxes of a graph with its functions: a body is drawn where its only caller is.

Constants, variables, and their reads are folded into the nodes that read them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from cfgraph.analysis.resource_handles import is_variable
from cfgraph.analysis.verify.function_rules import functions_in_attrs
from cfgraph.console.picture.boxes import PictureBox, group_into_boxes, split_large_box
from cfgraph.console.selection import GraphView, NodeSelection
from cfgraph.ir.graph import Node
from cfgraph.ops.families.constants import Const, Identity
from cfgraph.ops.families.resource_variables import ReadVariableOp
from cfgraph.ops.opdef.op import is_a, is_cluster_call, lookup, role_of


class RestOfGraph(NamedTuple):
    """Nodes that most readers of a picture do not look for, such as those that save variables."""

    label: str = ""
    nodes: frozenset[Node] = frozenset()


WHOLE_GRAPH: Final = RestOfGraph()


def folded_operands(
    selection: NodeSelection, exposed: Collection[str], rest: Collection[Node] = ()
) -> dict[Node, Node]:
    """Return the operands to fold, each with the first node that is drawn and reads it.

    A node outside of `rest` is preferred. Operands of control flow are drawn, and so are the nodes
    that `exposed` names.
    """
    handles = {
        node
        for node, types in selection.view.arguments.items()
        if types.outputs and types.outputs[0] is not None and types.outputs[0].name == "resource"
    }
    operands: dict[Node, None] = {}
    for node in selection.view.frames.order:
        is_operand = (
            is_a(node, ReadVariableOp, Identity) and node.inputs[0].node in operands
            if node.inputs
            else is_a(node, Const) or is_variable(node) or node in handles
        )
        if is_operand and selection.view.title(node) not in exposed:
            operands[node] = None
    drawn = set(selection.nodes)
    readers: dict[Node, Node] = {}
    for node in reversed(operands):
        uses = [use.node for use in node.uses if use.slot >= 0 and use.node in drawn]
        shown = [use for use in uses if use not in operands]
        targets = [readers.get(use, use) for use in uses if use in readers or use not in operands]
        if node in drawn and targets and not any(role_of(use) for use in shown):
            readers[node] = next((use for use in targets if use not in rest), targets[0])
    return readers


class BodyBoxes:
    """Boxes of a graph and of function bodies; folded nodes have none.

    `inlined` are the callees of the calls that a picture may replace by the body.
    """

    def __init__(
        self,
        graph: NodeSelection,
        functions: Sequence[NodeSelection],
        device_of: Callable[[Node], str] | None,
        folded: Mapping[Node, Node],
        rest: RestOfGraph,
    ) -> None:
        self.folded = folded
        self.bodies = {body.view.name: body for body in functions}
        self.called: dict[Node, list[str]] = {}
        for selection in (graph, *functions):
            for node in selection.nodes:
                if names := self._called(node):
                    self.called[node] = names
        self.drawn: set[str] = set()
        self.inlined: dict[Node, GraphView] = {}
        main = [node for node in graph.nodes if node not in rest.nodes]
        self.calls = self._count_calls(main)
        self.top = group_into_boxes(
            PictureBox("graph", ""), self._unfolded(main), graph.view.frames, device_of
        )
        self.waiting = [self.top]
        self._open_calls()
        if len(main) < len(graph.nodes):
            others = [node for node in graph.nodes if node in rest.nodes]
            self.calls = self._count_calls(others)
            box = group_into_boxes(
                PictureBox("rest", rest.label), self._unfolded(others), graph.view.frames, device_of
            )
            self.top.members.append(box)
            self.waiting.append(box)
            self._open_calls()
        self._add_library()

    def _add_library(self) -> None:
        """Add a box of the functions that have several callers, or none."""
        library = PictureBox("library", "functions")
        for name in self.bodies:
            if name not in self.drawn:
                library.members.append(self._body(name))
                self._open_calls()
        if library.members:
            split_large_box(library)
            self.top.members.append(library)

    def _unfolded(self, nodes: Iterable[Node]) -> list[Node]:
        return [node for node in nodes if node not in self.folded]

    def _called(self, node: Node) -> list[str]:
        """Return the functions in the picture that a node calls."""
        names = [node.op] if node.op in self.bodies else []
        names += [
            func.name for _, func in functions_in_attrs(node.attrs) if func.name in self.bodies
        ]
        return list(dict.fromkeys(names))

    def _count_calls(self, nodes: Iterable[Node]) -> Counter[str]:
        """Count the calls of each function, by the nodes and by the functions that they need."""
        calls: Counter[str] = Counter()
        pending = list(nodes)
        while pending:
            for name in self.called.get(pending.pop(), ()):
                if name not in calls:
                    pending += self.bodies[name].nodes
                calls[name] += 1
        return calls

    def _body(self, name: str) -> PictureBox:
        """Create the box of a function body; its own calls are opened later."""
        self.drawn.add(name)
        body = self.bodies[name]
        box = group_into_boxes(
            PictureBox("function", name, f"{name}/"),
            self._unfolded(body.nodes),
            body.view.frames,
            None,
        )
        self.waiting.append(box)
        return box

    def _open_calls(self) -> None:
        """Put each only caller of a function into a box with the body."""
        while self.waiting:
            for box in list(self.waiting.pop().walk()):
                for index, member in enumerate(box.members):
                    if isinstance(member, PictureBox) or member not in self.called:
                        continue
                    own = [name for name in self.called[member] if self._is_only_here(name)]
                    if own:
                        box.members[index] = self._call(box, member, own)

    def _is_only_here(self, name: str) -> bool:
        return self.calls[name] == 1 and name not in self.drawn

    def _call(self, box: PictureBox, node: Node, names: list[str]) -> PictureBox:
        """Return a box of a node and the bodies that it calls; for a single body, that box."""
        bodies = [self._body(name) for name in names]
        label = node.name.removeprefix(box.prefix)
        op = lookup(node.op)
        is_cluster = op is not None and is_cluster_call(op)
        is_plain = node.op == names[0] or (
            op is not None and op.calls.kind == "call" and not op.calls.first_argument
        )
        if len(bodies) == 1 and (is_cluster or is_plain):
            body = bodies[0]
            body.kind, body.label = "cluster" if is_cluster else "call", label
            del self.called[node]
            body.members.insert(0, node)
            if is_plain and not node.controls:
                self.inlined[node] = self.bodies[names[0]].view
            return body
        return PictureBox("call", label, box.prefix, [node, *bodies])
