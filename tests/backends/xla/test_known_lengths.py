"""A loop of known length ends by its counter alone; a check that fails in it is still an error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.backends.xla.compile import FunctionTrace, TraceableFunction
from cfgraph.backends.xla.compile_program import trace_function
from cfgraph.backends.xla.jax_library import xla_context
from cfgraph.errors import CfgraphError
from cfgraph.ir.function_graph import FunctionInstances
from cfgraph.ir.graph import Graph

pytest.importorskip("jax", reason="needs the extra `xla`")

# the sum of the first LIMIT rows of x, which are read one by one
SUMS = """
function sums(x: float32, n: int32) -> (y: float32, last: int32) {
  zero = Const() {dtype=int32, value=int32[]:0}
  five = Const() {dtype=int32, value=int32[]:5}
  shape = Const() {dtype=int32, value=int32[0]:[]}
  none = Const() {dtype=float32, value=float32[]:0}
  limit = LIMIT
  rows = TensorListFromTensor(x, shape:output:0) {element_dtype=float32, shape_type=int32}
  loop = While(zero:output:0, limit:output:0, none:output:0, rows:output_handle:0) \
{T=(int32, int32, float32, variant), cond=@c, body=@b}
  return y = loop:output:2
  return last = loop:output:0
}
function c(i: int32, n: int32, y: float32, rows: variant) -> (going: bool) {
  less = Less(i, n) {T=int32}
  return going = less:z:0
}
function b(i: int32, n: int32, y: float32, rows: variant) \
-> (j: int32, m: int32, z: float32, same: variant) {
  one = Const() {dtype=int32, value=int32[]:1}
  shape = Const() {dtype=int32, value=int32[0]:[]}
  next = AddV2(i, one:output:0) {T=int32}
  row = TensorListGetItem(rows, i, shape:output:0) {element_dtype=float32}
  sum = AddV2(y, row:item:0) {T=float32}
  return j = next:z:0
  return m = n
  return z = sum:z:0
  return same = rows
}
"""
CALL = """
x = Placeholder() {dtype=float32, shape=[?]}
n = Placeholder() {dtype=int32, shape=[]}
y = sums(x, n)
"""
FIVE = "Identity(five:output:0) {T=int32}"
SIZE = "Size(x) {T=float32, out_type=int32}"
MANY = "Const() {dtype=int32, value=int32[]:2000000000}"
FED = "Identity(n) {T=int32}"


# the first LIMIT rows of x, which are gathered one by one and written to a list
ROWS = """
function sums(x: float32, n: int32) -> (y: float32, last: int32) {
  zero = Const() {dtype=int32, value=int32[]:0}
  five = Const() {dtype=int32, value=int32[]:5}
  shape = Const() {dtype=int32, value=int32[0]:[]}
  size = Size(x) {T=float32, out_type=int32}
  limit = LIMIT
  rows = TensorListReserve(shape:output:0, size:output:0) {element_dtype=float32, shape_type=int32}
  loop = While(zero:output:0, limit:output:0, x, rows:handle:0) \
{T=(int32, int32, float32, variant), cond=@c, body=@b}
  stack = TensorListStack(loop:output:3, shape:output:0) {element_dtype=float32, num_elements=-1}
  return y = stack:tensor:0
  return last = loop:output:0
}
function c(i: int32, n: int32, x: float32, rows: variant) -> (going: bool) {
  less = Less(i, n) {T=int32}
  return going = less:z:0
}
function b(i: int32, n: int32, x: float32, rows: variant) \
-> (j: int32, m: int32, y: float32, more: variant) {
  one = Const() {dtype=int32, value=int32[]:1}
  zero = Const() {dtype=int32, value=int32[]:0}
  next = AddV2(i, one:output:0) {T=int32}
  row = GatherV2(x, i, zero:output:0) {Tparams=float32, Tindices=int32, Taxis=int32}
  put = TensorListSetItem(rows, i, row:output:0) {element_dtype=float32}
  return j = next:z:0
  return m = n
  return y = x
  return more = put:output_handle:0
}
"""


def compiled_text(limit: str, count: int, text: str = SUMS) -> str:
    """The compiled form of the loop over this many rows."""
    library = cfgraph.loads(text.replace("LIMIT", limit).encode(), "graph").functions
    instances = FunctionInstances(dict(library))
    inputs: list[Any] = [np.zeros(count, np.float32), np.int32(0)]
    with xla_context():
        body = TraceableFunction(instances.get("sums", {}), 0, instances)
        trace = FunctionTrace(body, inputs)
        text = trace_function(trace.run, trace.layout.arguments(inputs)).compile().as_text()
    return str(text)


@pytest.mark.parametrize(
    ("limit", "is_known"), [(FIVE, True), (SIZE, True), (MANY, False), (FED, False)]
)
def test_xla_knows_the_length_of_a_loop_that_reads_a_list(limit: str, is_known: bool) -> None:
    assert ("known_trip_count" in compiled_text(limit, 9)) == is_known


@pytest.mark.parametrize("text", [SUMS, ROWS], ids=["list", "array"])
@pytest.mark.parametrize(
    ("limit", "count", "is_checked"),
    [(FIVE, 9, False), (SIZE, 9, False), (FIVE, 4, True), (MANY, 9, True), (FED, 9, True)],
)
def test_a_loop_that_cannot_read_beyond_its_rows_carries_no_condition(
    text: str, limit: str, count: int, *, is_checked: bool
) -> None:
    loops = [x for x in compiled_text(limit, count, text).split("\n") if " while(" in x]
    assert loops
    assert any("pred[]" in loop.partition(" while(")[0] for loop in loops) == is_checked


@pytest.mark.parametrize(
    ("text", "limit"),
    [(SUMS, FIVE), (SUMS, SIZE), (SUMS, MANY), (SUMS, FED), (ROWS, FIVE), (ROWS, FED)],
)
@pytest.mark.parametrize(("count", "n"), [(9, 4), (9, 0), (9, -3), (3, 4), (3, 3), (0, 1)])
def test_a_read_beyond_the_rows_is_the_error_of_tokens(
    text: str, limit: str, count: int, n: int
) -> None:
    graph = cfgraph.loads((CALL + text.replace("LIMIT", limit)).encode(), "graph")
    feeds = {"x:0": np.arange(1, count + 1, dtype=np.float32), "n:0": n}
    outcomes = outcomes_of(graph, ["y:0", "y:1"], feeds)
    assert outcomes[0] == outcomes[1]


def outcomes_of(graph: Graph, fetches: list[str], feeds: dict[str, Any], **options: Any) -> Any:
    """The values by tokens and by XLA, or the code, the message, and the node of the error."""
    outcomes: list[Any] = []
    for engine in ("tokens", "xla"):
        try:
            values = cfgraph.Session(graph, engine=engine).run(fetches, feeds, **options)
            outcomes.append([value.tolist() for value in values])
        except CfgraphError as error:
            outcomes.append([error.code, error.message, str(error.node).rpartition("/")[2]])
    return outcomes


@pytest.mark.parametrize(("start", "step", "end"), [(1, 2, 9), (0, 3, 8), (4, 1, 4), (5, 1, 2)])
def test_a_loop_starts_where_a_loop_of_known_length_has_ended(
    start: int, step: int, end: int
) -> None:
    b = cfgraph.Builder()
    x = b.placeholder("x", "float32", [12])

    def forward(i: Any, total: Any) -> Any:
        return b.AddV2(i, b.const(step)), b.AddV2(total, b.GatherV2(x, i, b.const(0)))

    def backward(i: Any, total: Any) -> Any:
        row = b.GatherV2(x, i, b.const(0))
        return b.Sub(i, b.const(1)), b.AddV2(b.Mul(total, b.const(2.0, "float32")), row)

    zero = b.const(0.0, "float32")
    last, total = b.while_loop(
        lambda i, total: b.Less(i, b.const(end)), forward, [b.const(start), zero]
    )
    first, twice = b.while_loop(
        lambda i, total: b.GreaterEqual(i, b.const(0)), backward, [last, total]
    )
    for name, value in {"last": last, "first": first, "total": total, "twice": twice}.items():
        b.Identity(value, name=name)
    fetches = [f"{name}:0" for name in ("last", "first", "total", "twice")]
    outcomes = outcomes_of(b.graph, fetches, {"x:0": np.arange(12, dtype=np.float32)})
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize(
    ("rows", "limit", "timeout"),
    [(9, 3, None), (9, 4, 60.0), (9, 5, None), (4, 3, 60.0), (4, 5, None), (4, 5, 60.0)],
)
def test_a_limit_and_a_check_end_a_loop_as_by_tokens(
    rows: int, limit: int, timeout: float | None
) -> None:
    graph = cfgraph.loads((CALL + ROWS.replace("LIMIT", FED)).encode(), "graph")
    feeds = {"x:0": np.arange(rows, dtype=np.float32), "n:0": 5}
    options = {"max_iterations": limit, "timeout": timeout}
    by_tokens, by_xla = outcomes_of(graph, ["y:0", "y:1"], feeds, **options)
    # the node of a limit is the loop, or one in it
    assert by_tokens[0] == by_xla[0]
