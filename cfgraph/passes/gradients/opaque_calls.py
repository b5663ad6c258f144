"""Gradients that depend on an x only because a functional node is opaque.

TensorFlow differentiates a functional node as a whole: its gradient is another functional node,
which reads what the body's gradients read of the forward pass. A result of it depends on all of its
inputs, even where the lowered form shows that it does not:

    y = While(x, body: v * 2)   ──▶   dx = WhileGrad(dy, While's saved v)   ──▶   d(dx)/dx = 0

This model follows TensorFlow's graph: loops and calls become opaque calls, and their gradients too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cfgraph.analysis.gradient_paths import ActivityAnalysis, carries_gradient
from cfgraph.analysis.loops.regions import regions
from cfgraph.errors import CfgraphError
from cfgraph.ir.attrs import Func
from cfgraph.ir.function_graph import FunctionGraph, instantiate
from cfgraph.ir.functions import Function
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.library import calls_of, copy_graph
from cfgraph.ops.families.constants import Const
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradients
from cfgraph.ops.opdef.op import calls_functions, function_calls, is_a, lookup
from cfgraph.passes.gradients.context import GradientContext
from cfgraph.passes.gradients.function_gradients import CALL_OP, rewrite_as_calls
from cfgraph.passes.gradients.loop_gradient import reverse_loop
from cfgraph.passes.gradients.reverse import GradientRequest, differentiate
from cfgraph.passes.gradients.scope import GradientScope

# the functions that opaque nodes call in the model
_READING: Final = "reads_forward_values"
_NOT_READING: Final = "reads_no_forward_values"
# gradients of conditionals are those of their branches: what no branch depends on has none
_CONDITIONALS: Final = ("if", "case")


@dataclass(slots=True)
class OpaqueGradients:
    """Gradients of a graph whose functional nodes are opaque, order by order."""

    graph: Graph
    ys: Sequence[Output]
    xs: Sequence[Output]
    stops: Sequence[Output]

    @classmethod
    def from_graph(
        cls, graph: Graph, ys: Sequence[str], xs: Sequence[str], stops: Sequence[str]
    ) -> OpaqueGradients | None:
        """The model of a graph that is not lowered yet; None if it has no functional nodes."""
        if not calls_functions(graph):
            return None
        copy = copy_graph(graph)
        rewrite_as_calls(copy, copy.ops & copy.functions.keys())
        reading = _ReadingFunctions(copy.functions)
        for node in copy:
            kind = function_calls(node.op).kind
            if kind:
                reads = kind not in _CONDITIONALS and reading.is_called_by(node)
                _make_opaque(copy, node, _READING if reads else _NOT_READING)
        tensors = ([copy.tensor(name) for name in names] for names in (ys, xs, stops))
        return cls(copy, *tensors)

    def advance(self, grad_ys: Sequence[Any] | None) -> frozenset[str]:
        """Add the gradients of the next order; the names of the xs that have one.

        Of `grad_ys`, only the names of tensors count: constants depend on no x.
        """
        try:
            weights = [
                self.graph.tensor(weight) if isinstance(weight, str) else None
                for weight in grad_ys or [None] * len(self.ys)
            ]
            request = GradientRequest(
                self.ys, self.xs, weights, self.stops, ignore_custom=True, call_rules=_CALL_RULES
            )
            found = differentiate(self.graph, request, reverse_loop) if self.ys else []
        except CfgraphError:
            # the gradients of the graph itself report it, if they need it
            found = []
        self.ys = [dx for dx in found if dx is not None]
        pairs = zip(self.xs, found, strict=bool(found))
        return frozenset(x.name for x, dx in pairs if dx is not None)


def _make_opaque(graph: Graph, node: Node, function: str) -> None:
    inputs, outputs = node.input_types, node.output_types
    if inputs is not None and outputs is not None:
        attrs = {"Tin": tuple(inputs), "Tout": tuple(outputs), "f": Func(function)}
        graph.set_op(node, CALL_OP, attrs)


def _opaque_gradient(g: GradientBuilder, node: Node, *grads: Output | None) -> InputGradients:
    """One call for the gradients of all inputs, which reads the forward values or does not."""
    types = tuple(node.attr("Tin"))
    dys = [dy for dy in grads if dy is not None]
    forward = node.inputs if node.attr("f").name == _READING else ()
    tensors = [*forward, *dys]
    in_types = tuple(x.dtype for x in tensors)
    call = g.StatefulPartitionedCall(*tensors, Tin=in_types, Tout=types, f=node.attr("f")).node
    return [
        call.output(port) if dtype.is_differentiable else None for port, dtype in enumerate(types)
    ]


_CALL_RULES: Final = {_READING: _opaque_gradient, _NOT_READING: _opaque_gradient}


class _ReadingFunctions:
    """The functions whose gradients read numbers of the forward pass."""

    def __init__(self, library: Mapping[str, Function]) -> None:
        self.library = library
        self._known: dict[str, bool] = {}

    def is_called_by(self, node: Node) -> bool:
        """True if a node calls such a function."""
        return any(self._reads(name, attrs) for name, attrs in calls_of(node))

    def _reads(self, name: str, attrs: Mapping[str, Any]) -> bool:
        function = self.library.get(name)
        if function is None:
            return False
        if name not in self._known:
            self._known[name] = False  # unless the rest of a recursive function reads
            try:
                body = instantiate(function, attrs, self.library)
                self._known[name] = self._any_gradient_reads(body)
            except CfgraphError:
                return False
        return self._known[name]

    def _any_gradient_reads(self, body: FunctionGraph) -> bool:
        """True if the gradient of a node on a path from an argument to a result reads a number."""
        arguments = [node.output() for node in body.arguments]
        activity = ActivityAnalysis(body.returns, arguments)
        nodes = [node for node in body.graph if any(activity.are_active(node.inputs))]
        reader = _ForwardReader(body.graph)
        return any(
            self.is_called_by(node) if function_calls(node.op).kind else reader.reads(node)
            for node in nodes
        )


class _ForwardReader(GradientScope):
    """A scope that adds gradients to a graph, and notes whether they read its numbers."""

    def __init__(self, graph: Graph) -> None:
        frames = regions(graph).frames
        super().__init__(
            GradientContext(graph, frames, (), (), swap_memory=False, ignore_custom=True)
        )
        self._forward = set(graph)
        self._has_read = False

    def reads(self, node: Node) -> bool:
        """True if the gradient of a node by any of its inputs reads a number that is no constant.

        TensorFlow adds the gradients by all inputs, whether or not they are needed.
        """
        rule = getattr(lookup(node.op), "gradient", None)
        if rule is None:
            return False
        self._has_read = False
        try:
            for partial in rule(self, node, *self._upstream(node)):
                if callable(partial):
                    partial()
        except CfgraphError:
            pass
        return self._has_read

    def _upstream(self, node: Node) -> Iterator[Output | None]:
        for y in node.outputs:
            if carries_gradient(y):
                yield self.ctx.add("Placeholder", (), "dy", dtype=y.dtype).output()
            else:
                yield None

    def add(self, op: str, inputs: Iterable[Any], name: str, attrs: dict[str, Any]) -> Output:
        """Add a node, and note if it reads a number of the forward pass."""
        result = super().add(op, inputs, name, attrs)
        definition = lookup(op)
        if definition is not None and not definition.algebra.shape_only:
            self._has_read |= any(map(self._is_number, result.node.inputs))
        return result

    def _is_number(self, x: Output) -> bool:
        return x.node in self._forward and carries_gradient(x) and not is_a(x.node, Const)
