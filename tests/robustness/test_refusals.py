"""Graphs that `lower` refuses: `check` reports an error, and the graph is unchanged."""

from __future__ import annotations

import random

import pytest

import cfgraph
from cfgraph.errors import CfgraphError, InvalidInput, RunTimeout, Unsupported
from cfgraph.proto import graph_pb2
from tests.robustness.seed_graphs import seed_graphs
from tests.robustness.structure_mutations import mutate_structure
from tests.sampled import sampled

MUTATIONS = 125
# what `check` does not report as an error, and why
EXCEPTIONS = {
    "CFG134": "a note: recursion is valid in TensorFlow, and other commands accept it",
    "CFG137": "the limit of nodes, which depends on the context",
    "CFG410": "the device of a RemoteCall may be computed at run time",
    # such a body is valid in a call, but not in a loop, whose NextIteration is a reference then;
    # declared types do not say it: a body may return what an inner call, once expanded, forwards
    "CFG301": "the body of a loop takes a reference and returns a value",
}


def refusal(data: bytes) -> tuple[bool, CfgraphError | None]:
    """True if check reports an error, and the error of lowering, which changes no graph."""
    try:
        graph = cfgraph.loads(data)
        before = cfgraph.dumps(graph)
    except CfgraphError:
        return True, None
    refused: CfgraphError | None = None
    with cfgraph.limited(timeout=5, max_memory=256 << 20, max_nodes=5000):
        try:
            has_errors = bool(cfgraph.check(graph).count("error"))
            cfgraph.lower(graph)
        except (InvalidInput, Unsupported) as error:
            refused = error
        except RunTimeout:
            return True, None
    assert refused is None or cfgraph.dumps(graph) == before, refused
    return has_errors, refused


def test_check_reports_what_lower_refuses_in_fixtures() -> None:
    refused = 0
    for seed in seed_graphs():
        has_errors, error = refusal(seed.data)
        assert has_errors or error is None or error.code in EXCEPTIONS, (seed.name, error)
        refused += error is not None
    assert refused > 20


@pytest.mark.parametrize("first", sampled(range(0, 500, MUTATIONS), 4))
def test_check_reports_what_lower_refuses_in_mutated_graphs(first: int) -> None:
    seeds = seed_graphs()
    functional = [seed for seed in seeds if seed.proto.library.function]
    refused = 0
    for number in range(first, first + MUTATIONS):
        rng = random.Random(number)
        graph = mutate_structure(rng, rng.choice(functional).proto, rng.choice(seeds).proto)
        has_errors, error = refusal(graph.SerializeToString())
        assert has_errors or error is None or error.code in EXCEPTIONS, (number, error)
        refused += error is not None
    assert refused > MUTATIONS // 10


FOR = """
limit = Const() {dtype=int32, value=int32[]: 3}
x = Placeholder() {dtype=float32, shape=[]}
loop = For(start, limit, limit, x) {T=(float32), body=@body}
function body(i: int32, x: float32) -> (y: float32) {
  y = Tanh(x) {T=float32}
  return y = y:y:0
}
"""


@pytest.mark.parametrize("start", ["Unknown()", "VariableV2() {dtype=int32, shape=[]}"])
def test_the_range_of_a_for_may_have_an_unknown_type_or_be_a_reference(start: str) -> None:
    graph = cfgraph.loads(f"start = {start}\n{FOR}".encode())
    assert not cfgraph.check(graph).count("error")
    assert cfgraph.lower(graph)


@pytest.mark.parametrize("content", [b"\x01", b"\x01ab", b"\xff\xff"])
def test_check_looks_at_the_lengths_of_strings(content: bytes) -> None:
    proto = graph_pb2.GraphDef()
    node = proto.node.add(name="text", op="Const")
    node.attr["dtype"].type = 7
    tensor = node.attr["value"].tensor
    tensor.dtype, tensor.tensor_content = 7, content
    [finding] = cfgraph.check(cfgraph.loads(proto.SerializeToString())).findings
    assert (finding.code, finding.level, finding.node) == ("CFG022", "error", "text")


SEVERAL_OUTPUTS = """
function f(x: float32) -> (y: float32, z: float32) {
  u = Unknown(x)
  return y = u:first:0
  return z = u:second:0
}
"""


def test_check_reports_several_outputs_of_an_unknown_op() -> None:
    text = "x = Placeholder() {dtype=float32, shape=[]}\ny = f(x)\n" + SEVERAL_OUTPUTS
    has_errors, refused = refusal(text.encode())
    assert has_errors
    assert refused is not None
    assert refused.code == "CFG135"
