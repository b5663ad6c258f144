"""Programs with conditionals and loops, their gradients, and the ops that these add."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import cfgraph
from cfgraph import Builder
from cfgraph.ir.graph import Graph
from cfgraph.passes.derivatives import DerivativeRequest, derivatives

Feeds = dict[str, Any]


class GradientProgram:
    """A Builder with inputs `x`, `y`, …, scalars unless a shape is set."""

    def __init__(self, **feeds: Any) -> None:
        self.b = Builder()
        self.feeds: Feeds = {}
        self.before: list[str] = []
        self.inputs: dict[str, Any] = {}
        for name, value in feeds.items():
            self.input(name, value, np.shape(value))

    def input(self, name: str, value: Any, shape: Any, dtype: str | None = None) -> Any:
        kind = type(np.ravel(value)[0].item()).__name__
        dtype = dtype or {"float": "float32", "int": "int32", "bool": "bool"}[kind]
        self.feeds[name] = value
        made = self.inputs[name] = self.b.placeholder(name, dtype, shape)
        return made

    def __getitem__(self, name: str) -> Any:
        return self.inputs[name]

    def graph(self) -> Graph:
        """The graph after a round trip through a file."""
        return cfgraph.loads(cfgraph.dumps(self.b.graph))

    def values(self, graph: Graph, names: Sequence[str | None], feeds: Feeds) -> list[Any]:
        session = cfgraph.Session(graph)
        for name in self.before:
            session.run(targets=[name])
        wanted = [name for name in names if name is not None]
        present = {k: v for k, v in {**self.feeds, **feeds}.items() if k in graph}
        results = dict(zip(wanted, session.run(wanted, present), strict=True)) if wanted else {}
        return [None if name is None else np.asarray(results[name]).tolist() for name in names]

    def gradients(
        self, y: Any, *xs: Any, order: int = 1, options: dict[str, Any] | None = None, **feeds: Any
    ) -> Any:
        """Gradients of a y (or the sum of several) with respect to xs; for a single x the value
        itself.
        """
        graph = self.graph()
        ys = [tensor.name for tensor in (y if isinstance(y, list | tuple) else [y])]
        names = [x if isinstance(x, str) else x.name for x in xs]
        results = derivatives(graph, DerivativeRequest(ys, names, order=order, **(options or {})))[
            -1
        ].names
        values = self.values(graph, results, feeds)
        return values[0] if len(values) == 1 else values

    def value(self, y: Any, **feeds: Any) -> Any:
        return self.values(self.graph(), [y.name], feeds)[0]


def squares(p: GradientProgram, v: Any, limit: float = 100.0, **options: Any) -> Any:
    """`while v < limit: v = v * v`"""
    return p.b.while_loop(lambda v: v < limit, p.b.Square, v, **options)


def times(p: GradientProgram, count: int, step: Callable[..., Any], *state: Any) -> Any:
    """Repeat a step `count` times; the final state without the counter."""

    def body(i: Any, *now: Any) -> Any:
        after = step(*now)
        return (i + 1, *(after if isinstance(after, tuple) else (after,)))

    results = p.b.while_loop(lambda i, *now: i < count, body, [0, *state])
    return results[1] if len(state) == 1 else results[1:]


def mapped(p: GradientProgram, function: Callable[[Any], Any], x: Any, count: int) -> Any:
    """Apply a function to each element of a vector, in a loop over a tensor list."""
    shape = p.b.const(np.zeros(0, np.int32))
    inputs = p.b.TensorListFromTensor(x, shape)
    outputs = p.b.TensorListReserve(shape, count, element_dtype="float32")

    def body(i: Any, made: Any) -> Any:
        tensor = p.b.TensorListGetItem(inputs, i, shape, element_dtype="float32")
        return i + 1, p.b.TensorListSetItem(made, i, function(tensor))

    _, made = p.b.while_loop(lambda i, made: i < count, body, [0, outputs])
    return p.b.TensorListStack(made, shape, element_dtype="float32", num_elements=count)


def ops_after(p: GradientProgram, y: Any, *xs: str) -> Counter[str]:
    """Op counts of a graph with the gradients of y."""
    graph = p.graph()
    cfgraph.gradients(graph, [y.name], list(xs))
    return Counter(node.op for node in graph)
