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


def compiled_text(limit: str, count: int) -> str:
    """The compiled form of the loop over a list of this many rows."""
    library = cfgraph.loads(SUMS.replace("LIMIT", limit).encode(), "graph").functions
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


@pytest.mark.parametrize("limit", [FIVE, SIZE, MANY, FED])
@pytest.mark.parametrize(("count", "n"), [(9, 4), (9, 0), (9, -3), (3, 4), (3, 3), (0, 1)])
def test_a_read_beyond_the_list_is_the_error_of_tokens(limit: str, count: int, n: int) -> None:
    graph = cfgraph.loads((CALL + SUMS.replace("LIMIT", limit)).encode(), "graph")
    feeds = {"x:0": np.arange(1, count + 1, dtype=np.float32), "n:0": n}
    outcomes = []
    for engine in ("tokens", "xla"):
        try:
            outcomes.append(cfgraph.Session(graph, engine=engine).run(["y:0", "y:1"], feeds))
        except CfgraphError as error:
            outcomes.append([error.message, str(error.node).rpartition("/")[2]])
    assert outcomes[0] == outcomes[1]
