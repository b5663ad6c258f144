from __future__ import annotations

import pytest

import cfgraph
from cfgraph.errors import CfgraphError, InvalidInput, Unsupported, UsageError
from tests.passes.functional_graphs import calls, graph_of


def refused(text: str) -> CfgraphError:
    graph = graph_of(text)
    before = cfgraph.dumps(graph)
    with pytest.raises(CfgraphError) as caught:
        cfgraph.lower(graph)
    assert cfgraph.dumps(graph) == before
    return caught.value


def test_a_recursive_function_is_refused_with_the_chain() -> None:
    text = """
x = Placeholder() {dtype=int32, shape=[]}
fine = PartitionedCall(x) {Tout=(int32), f=@leaf}
call = PartitionedCall(x) {Tout=(int32), f=@first}
function leaf(x: int32) -> (y: int32) {
  return y = x
}
function first(x: int32) -> (y: int32) {
  call = second(x)
  return y = call:y:0
}
function second(x: int32) -> (y: int32) {
  if = If(x, x) {Tcond=int32, Tin=(int32), Tout=(int32), then_branch=@third, else_branch=@leaf}
  return y = if:output:0
}
function third(x: int32) -> (y: int32) {
  call = PartitionedCall(x) {Tin=(int32), Tout=(int32), f=@second}
  return y = call:output:0
}
"""
    error = refused(text)
    assert isinstance(error, Unsupported)
    assert error.message == "function 'second' calls itself: second → third → second"
    assert error.node == "call"


def test_a_function_that_holds_its_own_gradient_is_refused() -> None:
    text = """
x = Placeholder() {dtype=float32, shape=[]}
call = PartitionedCall(x) {Tout=(float32), f=@f}
function f(x: float32) -> (y: float32) {
  grad = SymbolicGradient(x, x) {Tin=(float32, float32), Tout=(float32), f=@f}
  return y = grad:output:0
}
"""
    error = refused(text)
    assert isinstance(error, Unsupported)
    assert error.node == "f"


def test_a_remote_call_to_a_computed_device_is_refused() -> None:
    text = """
where = Placeholder() {dtype=string, shape=[]}
x = Placeholder() {dtype=int32, shape=[]}
call = RemoteCall(where, x) {Tout=(int32), f=@f}
function f(x: int32) -> (y: int32) {
  return y = x
}
"""
    error = refused(text)
    assert isinstance(error, Unsupported)
    assert error.node == "call"


def test_a_partitioned_graph_is_refused() -> None:
    device = "/job:worker/replica:0/task:0/device:CPU:0"
    graph = graph_of(
        calls(1) + f'recv = _Recv() {{tensor_type=int32, tensor_name="t", send_device="{device}", '
        f'send_device_incarnation=1, recv_device="{device}"}}\n'
    )
    for node in graph:
        node.device = device
    error = refused(cfgraph.dumps(graph, "graph").decode())
    assert "partitioned" in error.message
    assert error.node == "recv"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("call = PartitionedCall(x) {Tout=(int32), f=@nobody}", "'nobody'"),
        ("call = PartitionedCall(x, x) {Tout=(int32), f=@outer}", "takes"),
        ("call = PartitionedCall(x) {Tout=(float32), f=@outer}", "returns"),
        (
            "call = StatelessWhile(x) {cond=@outer, body=@outer, parallel_iterations=0}",
            "at least 1",
        ),
    ],
)
def test_a_functional_node_that_does_not_fit_is_an_invalid_input(text: str, message: str) -> None:
    error = refused(calls(1) + text + "\n")
    assert isinstance(error, InvalidInput)
    assert message in error.message
    assert error.node == "call"


def test_a_function_to_lower_must_be_there() -> None:
    with pytest.raises(UsageError, match="no function 'inne'") as caught:
        cfgraph.lower(graph_of(calls(1)), functions=["inne"])
    assert caught.value.hint == "did you mean 'inner'?"
