"""Static shapes in function bodies, from the calls of the functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from cfgraph.analysis.verify.function_rules import functions_in_attrs
from cfgraph.console.selection import GraphView, NodeSelection
from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import Shape
from cfgraph.ops.families.resource_variables import ReadVariableOp, declared_shape
from cfgraph.ops.opdef.op import is_a, lookup

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
