from __future__ import annotations

import pytest

import cfgraph
from cfgraph.errors import InvalidInput, Unsupported
from cfgraph.ir import dtypes
from cfgraph.ir.attrs import Func
from cfgraph.ir.function_graph import FunctionInstances
from cfgraph.ir.graph import Graph
from cfgraph.ir.library import function_from_nodes
from cfgraph.ir.shapes import Shape


def body() -> Graph:
    text = """
x = Placeholder() {dtype=float32, shape=[]}
axis = Const() {dtype=int32, value=int32[]:0}
split = Split(axis, x) {num_split=2}
switch = Switch(split:1, p)
p = Placeholder() {dtype=bool, shape=[]}
print = PrintV2(s, ^split, ^x)
s = Const() {dtype=string, value=string[]:"hello"}
"""
    return cfgraph.loads(text.encode(), "graph")


def test_nodes_become_a_function_and_the_function_the_same_nodes() -> None:
    graph = body()
    function = function_from_nodes(
        "f",
        graph,
        {"x": graph.tensor("x"), "p": graph.tensor("p")},
        {"live": graph.tensor("switch:1"), "part": graph.tensor("split:0")},
        {"printed": graph["print"]},
    )
    made = function.definition
    assert [node.name for node in made.nodes] == ["axis", "split", "switch", "print", "s"]
    assert made.nodes[1].inputs == ("axis:output:0", "x")
    assert made.nodes[2].inputs == ("split:output:1", "p")
    assert made.nodes[3].inputs == ("s:output:0", "^split")
    assert made.returns == {"live": "switch:output_true:0", "part": "split:output:0"}
    assert made.control_returns == {"printed": "print"}
    assert made.stateful

    again = FunctionInstances({"f": function}).get("f", {})
    assert [item.name for item in again.returns] == ["switch:1", "split:0"]
    assert again.input_types == (dtypes.float32, dtypes.bool_)
    assert again.control_returns == (again.graph["print"],)


def test_part_of_a_graph_becomes_a_function() -> None:
    graph = body()
    inside = [graph["split"]]
    inputs = {"axis": graph.tensor("axis"), "x": graph.tensor("x")}
    made = function_from_nodes("f", inside, inputs, {"y": graph.tensor("split:1")}).definition
    assert [node.name for node in made.nodes] == ["split"]
    assert made.nodes[0].inputs == ("axis", "x")
    assert not made.stateful


def test_a_function_may_call_another() -> None:
    graph = Graph()
    x = graph.add("Placeholder", name="x", dtype=dtypes.int32, shape=Shape([]))
    inner = function_from_nodes("inner", [], {"x": x.output()}, {"y": x.output()})
    call = graph.add("inner", x)
    outer = function_from_nodes(
        "outer", graph, {"x": x.output()}, {"y": call.output()}, {}, {"inner": inner}
    )
    assert outer.definition.returns == {"y": "inner:y:0"}
    assert outer.definition.outputs[0].dtype is dtypes.int32


def test_a_tensor_from_outside_must_be_an_input() -> None:
    graph = body()
    with pytest.raises(InvalidInput, match="x:0 is neither in the body of function 'f'"):
        function_from_nodes("f", [graph["split"]], {"axis": graph.tensor("axis")}, {})


def test_the_outputs_of_an_unknown_op_have_no_names() -> None:
    graph = Graph()
    node = graph.add("NobodyKnows")
    with pytest.raises(Unsupported) as caught:
        function_from_nodes("f", graph, {}, {"y": node.output()})
    assert caught.value.node == "NobodyKnows"


def test_what_is_defined_can_be_written_read_and_called() -> None:
    graph = Graph()
    x = graph.add("Placeholder", name="x", dtype=dtypes.float32, shape=Shape([]))
    y = graph.add("Square", x, name="y")
    function = function_from_nodes("f", [y], {"a": x.output()}, {"b": y.output()})
    outer = Graph()
    outer.functions["f"] = function
    z = outer.add("Placeholder", name="z", dtype=dtypes.float32, shape=Shape([]))
    outer.add("PartitionedCall", z, name="call", Tout=(dtypes.float32,), f=Func("f"))
    again = cfgraph.loads(cfgraph.dumps(outer))
    cfgraph.lower(again)
    assert cfgraph.Session(again).run(["call:0"], {"z:0": 3}) == [9]
