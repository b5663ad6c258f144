from __future__ import annotations

import pytest

import cfgraph
from cfgraph.errors import InvalidInput, Unsupported, UsageError


@pytest.fixture
def graph() -> cfgraph.Graph:
    b = cfgraph.Builder()
    x = b.placeholder("x", "float32", [])
    n = b.placeholder("n", "int32", [])

    @b.function
    def twice(x: object) -> object:
        return b.Mul(x, 2.0, name="product"), x

    y = twice(x)[0]
    _, total = b.while_loop(lambda i, t: i < n, lambda i, t: (i + 1, t + y), [0, 0.0])
    b.Identity(total, name="total")
    return b.graph


def total(graph: cfgraph.Graph) -> float:
    return float(cfgraph.Session(graph).run(["total"], {"x": 3.0, "n": 4})[0])


def test_an_edited_body_replaces_the_function(graph: cfgraph.Graph) -> None:
    assert total(graph) == 24
    with cfgraph.edit_function(graph, "twice") as body:
        assert [node.op for node in body if node.op in ("_Arg", "_Retval")] == [
            *("_Arg", "_Retval", "_Retval")
        ]
        product = body["product"]
        body.insert_after(product, "AddV2", product.inputs[0])
    assert total(graph) == 36
    assert cfgraph.check(graph).findings == ()
    again = cfgraph.loads(cfgraph.dumps(graph))
    assert total(again) == 36


def test_a_result_reads_another_tensor_like_any_node(graph: cfgraph.Graph) -> None:
    with cfgraph.edit_function(graph, "twice") as body:
        (argument,) = [node for node in body if node.op == "_Arg"]
        body.replace_uses(body["product"], argument)
        body.remove(body["product"])
    assert total(graph) == 12


def test_nodes_are_added_to_the_body_of_a_loop_by_a_builder(graph: cfgraph.Graph) -> None:
    loop = next(node for node in graph if node.op in ("While", "StatelessWhile"))
    with cfgraph.edit_function(graph, loop.attr("body").name) as body:
        b = cfgraph.Builder(body)
        results = [node for node in body if node.op == "_Retval"]
        (_, added) = (node for node in results if node.inputs[0].node.op == "AddV2")
        value = b.tensor(added.inputs[0])
        known = {*graph.functions}
        bounded = b.cond(value > 10.0, lambda: b.Minimum(value, 7.0), lambda: value)
        body.set_input(added, 0, bounded.output)
    assert total(graph) == 7
    assert len(graph.functions) == len(known) + 2
    assert cfgraph.check(graph).findings == ()


def test_an_error_in_the_block_changes_nothing(graph: cfgraph.Graph) -> None:
    function = graph.functions["twice"]
    with pytest.raises(UsageError), cfgraph.edit_function(graph, "twice") as body:
        body.remove_unread(body, lambda node: bool(graph["missing"]))
    assert graph.functions["twice"] is function


def test_arguments_and_results_must_stay(graph: cfgraph.Graph) -> None:
    function = graph.functions["twice"]
    message = "was removed, but callers of function 'twice' depend on it"
    with (
        pytest.raises(InvalidInput, match=message) as caught,
        cfgraph.edit_function(graph, "twice") as body,
    ):
        body.remove(next(node for node in body if node.op == "_Retval"))
    assert (caught.value.code, graph.functions["twice"]) == ("CFG131", function)


def test_what_is_no_function_is_refused(graph: cfgraph.Graph) -> None:
    with pytest.raises(UsageError, match="the library has no function 'twize'") as caught:
        cfgraph.edit_function(graph, "twize").__enter__()
    assert caught.value.hint == "did you mean 'twice'?"
    text = b"function Same(x: T) -> (y: T) {\n  attr T: type\n  return x\n}\n"
    generic = cfgraph.loads(text, "graph")
    with pytest.raises(Unsupported, match="depends on attributes of its calls"):
        cfgraph.edit_function(generic, "Same").__enter__()
