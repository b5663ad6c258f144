from __future__ import annotations

import pytest

import cfgraph.ops  # noqa: F401 - fills the registry
from cfgraph.errors import InvalidInput
from cfgraph.ir.attrs import Func
from cfgraph.ir.files import FORMATS, dumps, loads
from cfgraph.ir.graph import Graph
from tests.ir.hostile import assert_accepted, assert_rejected, load_graph, time_limit
from tests.ir.wire import map_entry, node_def, wire_field, wire_message

# -- nesting ---------------------------------------------------------------------------------------


def nested(levels: int) -> bytes:
    value = wire_field(3, 1)
    for _ in range(levels):
        value = wire_field(10, wire_message((1, "f")) + wire_field(2, map_entry("a", value)))
    return wire_field(1, node_def("x", "A", (5, map_entry("a", value))))


def test_attributes_nested_too_deeply_are_refused() -> None:
    error = assert_rejected(nested(5000))
    assert "truncated or corrupt" in error.message


def test_types_nested_too_deeply_are_refused() -> None:
    kind = wire_field(1, 1000)
    for _ in range(5000):
        kind = wire_field(1, 3) + wire_field(2, kind)
    assert (
        "truncated or corrupt"
        in assert_rejected(wire_field(1, node_def("x", "A", (7, kind)))).message
    )


def test_variants_nested_too_deeply_are_refused() -> None:
    tensor = wire_field(1, 21)
    for _ in range(5000):
        tensor = wire_field(1, 21) + wire_field(15, wire_field(3, tensor))
    assert_rejected(
        wire_field(1, node_def("x", "Const", (5, map_entry("value", wire_field(8, tensor)))))
    )


@pytest.mark.parametrize("repeats", [33, 200, 50_000])
def test_text_nested_too_deeply_is_refused(repeats: int) -> None:
    text = "x = A() {a=" + "@f{a=" * repeats + "1" + "}" * repeats + "}"
    assert "levels of nesting" in assert_rejected(text.encode()).message


def test_protobuf_text_nested_too_deeply_is_refused() -> None:
    text = 'node { attr { key: "a" value { ' + 'func { attr { key: "a" value { ' * 3000
    assert "nested too deeply" in assert_rejected(text.encode()).message


def test_a_graph_nested_too_deeply_to_be_read_again_is_not_written() -> None:
    for levels, listed in ((33, False), (25, True), (20_000, False)):
        value: object = 1
        for _ in range(levels):
            value = Func("f", {"a": (value,) if listed and isinstance(value, Func) else value})
        graph = Graph()
        graph.create("x", "A", attrs={"a": value})
        for kind in FORMATS:
            with pytest.raises(InvalidInput, match="nested too deeply"):
                dumps(graph, kind)


def test_attributes_nested_as_deeply_as_can_be_read_are_written() -> None:
    assert_accepted(nested(32))
    assert isinstance(load_graph(nested(33), None), InvalidInput)


# -- invalid graphs ------------------------------------------------------------------------------


def test_a_cycle_without_a_loop_is_loaded_for_check_to_report() -> None:
    graph = assert_accepted(b"a = Identity(b)\nb = Identity(a)\nc = Identity(c)\nd = NoOp(^d)\n")
    assert graph["a"].inputs[0].node is graph["b"]
    assert graph["d"].controls == (graph["d"],)


def test_a_long_chain_of_nodes_without_types_does_not_hang() -> None:
    count = 20_000
    lines = [f"n{index} = Identity(n{index + 1})" for index in range(count)]
    text = "\n".join([*lines, f"n{count} = Placeholder() {{dtype=float32}}"])
    with time_limit():
        graph = loads(text.encode())
    assert all(graph[f"n{index}"].attrs for index in range(count))


def test_a_node_that_reads_many_nodes_without_types_does_not_hang() -> None:
    count = 5_000
    lines = [f"n{index} = Identity(n{index + 1})" for index in range(count)]
    inputs = ", ".join(f"n{index}" for index in range(count))
    text = "\n".join([f"all = IdentityN({inputs})", *lines, f"n{count} = P() {{dtype=float32}}"])
    with time_limit():
        loads(text.replace("P()", "Placeholder()").encode())


def test_many_duplicate_names_are_rejected() -> None:
    error = assert_rejected(wire_field(1, node_def()) * 20_000)
    assert len(error.findings) == 10_000
    assert error.code == "CFG104"


def test_many_inputs_that_lead_nowhere_are_refused() -> None:
    nodes = [node_def(f"node_{index}", "A", (3, f"nod_{index}")) for index in range(10_000)]
    error = assert_rejected(b"".join(wire_field(1, item) for item in nodes))
    assert len(error.findings) == 10_000
    assert error.code == "CFG105"
    assert error.hint is not None
    assert error.hint.startswith("did you mean 'node_0'")


def test_names_of_megabytes_are_not_shown() -> None:
    name = "n" * (4 << 20)
    for data in (
        wire_field(1, node_def(name + "!")),
        wire_field(1, node_def(name)) * 2,
        wire_field(1, node_def("x", "A", (3, name))),
        wire_field(1, node_def("x", "A")) + wire_field(1, node_def(name, "A", (3, name + "?"))),
    ):
        error = assert_rejected(data)
        assert len(str(error)) < 50_000
    error = assert_rejected(("x = A() {a=" + name + "}").encode())
    assert len(str(error)) < 1000


@pytest.mark.parametrize(
    "name", ["", " ", "a b", "-a", "/a", ">a", "a:0", "^a", "a\n", "é", "a,b", "\x00"]
)
def test_a_node_with_a_bad_name_is_refused(name: str) -> None:
    assert assert_rejected(wire_field(1, node_def(name)), "pb").code == "CFG102"


@pytest.mark.parametrize("text", ["", "^", ":", ":0", "x:", "x:-1", "x:1x", "^x:0", "^^x", "x :0"])
def test_an_input_with_a_bad_name_is_refused(text: str) -> None:
    data = wire_field(1, node_def("x")) + wire_field(1, node_def("y", "A", (3, text)))
    assert assert_rejected(data).code == "CFG105"


def test_an_output_of_any_number_is_loaded_for_check_to_report() -> None:
    number = 10**18
    graph = assert_accepted(
        wire_field(1, node_def("x")) + wire_field(1, node_def("y", "A", (3, f"x:{number}")))
    )
    assert graph["y"].inputs[0].port == number


@pytest.mark.parametrize("digits", [30, 10_000])
def test_an_output_of_too_many_digits_is_refused(digits: int) -> None:
    data = wire_field(1, node_def("x")) + wire_field(
        1, node_def("y", "A", (3, "x:" + "9" * digits))
    )
    assert assert_rejected(data).code == "CFG105"
