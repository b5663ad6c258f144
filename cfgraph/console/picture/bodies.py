"""Boxes of a graph with its functions, and static shapes in these from their calls.

A body is drawn where its only caller is. Constants, variables, and their reads are folded into the
nodes that read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from cfgraph.analysis.resource_handles import is_variable
from cfgraph.analysis.verify.function_rules import functions_in_attrs
from cfgraph.console.picture.boxes import PictureBox, group_into_boxes, split_large_box
from cfgraph.console.views.selection import GraphView, NodeSelection
from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import Shape
from cfgraph.ops.families.constants import Const, Identity
from cfgraph.ops.families.resource_variables import ReadVariableOp, declared_shape
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


# shapes get from a call to the body, or back, in one round
_MAX_ROUNDS: Final = 8
_WHILE: Final = "while"
_NO_INPUT_SHAPES: Final = ("for", "gradient")  # their arguments are not the inputs of the node


def with_call_shapes(
    graph: NodeSelection, functions: Sequence[NodeSelection]
) -> tuple[NodeSelection, list[NodeSelection]]:
    """Return the same nodes with the shapes that calls give to arguments and results.

    An argument has the shape that all calls agree on.
    """
    selections = [graph, *functions]
    if functions and graph.view.is_analyzable:
        shapes = _CallShapes([selection.view for selection in selections])
        for _ in range(_MAX_ROUNDS):
            if not shapes.propagate():
                break
        selections = [
            NodeSelection(view, selection.nodes)
            for view, selection in zip(shapes.views, selections, strict=True)
        ]
    return selections[0], selections[1:]


class _Call(NamedTuple):
    """A call: its node, the first slot of the arguments, and the indices of the callees."""

    node: Node
    kind: str
    first: int
    callees: list[int]


class _CallShapes:
    """Feeds of the views of a graph and of its functions, which refer to each other by index."""

    def __init__(self, views: Sequence[GraphView]) -> None:
        self.views = list(views)
        self.numbers = {view.name: number for number, view in enumerate(views) if view.name}
        self.calls = [list(self._calls(view)) for view in views]

    def _calls(self, view: GraphView) -> Iterator[_Call]:
        """Yield the calls of a view whose callees are all known."""
        for node in view.graph:
            if node.op in self.numbers:
                yield _Call(node, "call", 0, [self.numbers[node.op]])
                continue
            op = lookup(node.op)
            if op is None or not op.calls.kind or op.calls.kind in _NO_INPUT_SHAPES:
                continue
            names = [func.name for _, func in functions_in_attrs(node.attrs)]
            if all(name in self.numbers for name in names):
                callees = [self.numbers[name] for name in names]
                yield _Call(node, op.calls.kind, op.calls.first_argument, callees)

    def propagate(self) -> bool:
        """Pass shapes from calls to bodies, and back, once; returns False if nothing is new."""
        feeds: list[dict[str, Shape]] = [{} for _ in self.views]
        handles = self._handle_shapes()
        for number, view in enumerate(self.views):
            for call in self.calls[number]:
                for callee in call.callees:
                    self._pass_arguments(view, call, callee, feeds[callee])
                if call.kind != _WHILE:
                    feeds[number].update(self._results(call))
            for node in view.graph if view.name else ():
                if is_a(node, ReadVariableOp) and (view.name, node.inputs[0].name) in handles:
                    feeds[number][f"{node.name}:0"] = handles[view.name, node.inputs[0].name]
        changed = [number for number, view in enumerate(self.views) if feeds[number] != view.feeds]
        for number in changed:
            self.views[number] = replace(self.views[number], feeds=feeds[number])
        return bool(changed)

    def _pass_arguments(
        self, view: GraphView, call: _Call, callee: int, feeds: dict[str, Shape]
    ) -> None:
        """Join the shapes of a call's inputs with those of other calls of the function."""
        inputs = call.node.inputs[call.first :]
        for slot, (argument, item) in enumerate(
            zip(self.views[callee].arguments, inputs, strict=False)
        ):
            shape = view.shapes[item]
            if call.kind == _WHILE:
                shape = shape.generalize(view.shapes[call.node.output(slot)])
            name = f"{argument.name}:0"
            feeds[name] = feeds[name].generalize(shape) if name in feeds else shape

    def _results(self, call: _Call) -> dict[str, Shape]:
        """Return the shapes of a call's outputs that all callees agree on."""
        shapes: dict[str, Shape] = {}
        for callee in call.callees:
            view = self.views[callee]
            for port, item in enumerate(view.results):
                name = f"{call.node.name}:{port}"
                shape = Shape() if item is None else view.shapes[item]
                shapes[name] = shapes[name].generalize(shape) if name in shapes else shape
        return shapes

    def _handle_shapes(self) -> dict[tuple[str, str], Shape]:
        """Return the shapes of the variables behind arguments, by function and tensor."""
        known: dict[tuple[str, str], Shape] = {}
        for _ in range(_MAX_ROUNDS):
            shapes: dict[tuple[str, str], Shape] = {}
            for view, calls in zip(self.views, self.calls, strict=True):
                for node, _, first, callees in calls:
                    for callee in callees:
                        target = self.views[callee]
                        for argument, item in zip(
                            target.arguments, node.inputs[first:], strict=False
                        ):
                            shape = known.get((view.name, item.name)) or declared_shape(item)
                            key = target.name, f"{argument.name}:0"
                            shapes[key] = shapes[key].generalize(shape) if key in shapes else shape
            if shapes == known:
                break
            known = shapes
        return known
