"""Seconds to lower many calls, and conditionals that are deep in each other."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

from benchmarks.measurement import Row, single_time
from cfgraph.ir import dtypes
from cfgraph.ir.attrs import Func
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.library import function_from_nodes
from cfgraph.ir.shapes import Shape

CALLS = 10_000
DEPTH = 200
TINY = 20


def measure(tf: ModuleType | None, *, tiny: bool) -> Iterator[Row]:
    """Lowering, with verification before and after."""
    count, depth = (TINY, TINY) if tiny else (CALLS, DEPTH)
    for times in (1, 2):
        yield _row(f"lower {times * count:,} calls", calls(times * count), times * count, "a call")
    yield _row(f"lower {depth} nested conditionals", nested(depth), depth, "a level")


def _row(work: str, graph: Graph, count: int, each: str) -> Row:
    from cfgraph.passes.lowering import lower

    return Row(work, single_time(lambda: lower(graph)) * 1e6 / count, f"µs {each}")


def _started() -> tuple[Graph, Output]:
    import cfgraph.ops  # noqa: F401 - fills the registry

    graph = Graph()
    node = graph.add("Placeholder", name="x", dtype=dtypes.float32, shape=Shape([]))
    return graph, node.output()


def calls(count: int) -> Graph:
    """A chain of calls of one function."""
    body, x = _started()
    square = body.add("Square", x)
    graph, last = _started()
    graph.functions["f"] = function_from_nodes("f", body, {"x": x}, {"y": square.output()})
    for _ in range(count):
        node = graph.add("PartitionedCall", last, Tout=(dtypes.float32,), f=Func("f"), name="call")
        last = node.output()
    return graph


def nested(depth: int) -> Graph:
    """A conditional in a branch of a conditional, and so on."""
    graph, outer = _started()
    for level in range(depth):
        body, x = _started()
        result = body.add("Square", x)
        if level:
            result = _conditional(body, result.output(), level - 1)
        outputs = {"y": result.output()}
        graph.functions[f"f{level}"] = function_from_nodes(f"f{level}", body, {"x": x}, outputs)
    _conditional(graph, outer, depth - 1)
    return graph


def _conditional(graph: Graph, x: Output, level: int) -> Node:
    branches = {"then_branch": Func(f"f{level}"), "else_branch": Func("f0")}
    return graph.add("StatelessIf", x, x, name="if", Tout=(dtypes.float32,), attrs=branches)
