from __future__ import annotations

import pytest

from cfgraph.ir import dtypes
from cfgraph.ir.graph import Versions
from cfgraph.ir.serde import graph_from_bytes, graph_to_bytes
from cfgraph.ir.text import parse_graph, print_graph
from tests.ir.wire import entry, field, message, node

# fields that no version of the format has: of each wire type
UNKNOWN = field(999, 7) + field(1000, "?") + field(1001, 0.5)
TYPE = field(6, 1)


def graph(*nodes: bytes, library: bytes = b"", more: bytes = b"") -> bytes:
    """A GraphDef in the order in which bindings write it."""
    written = b"".join(field(1, item) for item in nodes)
    return written + (field(2, library) if library else b"") + more


def with_attr(value: bytes) -> bytes:
    return graph(node("x", "Thing", (5, entry("a", value))))


def with_tensor(*fields: bytes) -> bytes:
    return with_attr(field(8, b"".join((field(1, 1), field(2, b""), *fields))))


def with_function(*fields: bytes, signature: bytes = b"") -> bytes:
    return graph(library=field(1, field(1, field(1, "f") + signature) + b"".join(fields)))


LEVELS = {
    "GraphDef": graph(node("x"), more=UNKNOWN),
    "VersionDef": graph(more=field(4, field(1, 27) + UNKNOWN)),
    "empty VersionDef": graph(more=field(4, UNKNOWN)),
    "debug info": graph(more=field(5, field(1, "a.py") + UNKNOWN)),
    "library": graph(library=field(1, field(1, field(1, "f"))) + UNKNOWN),
    "empty library": graph(library=UNKNOWN),
    "GradientDef": graph(library=field(2, field(1, "f") + field(2, "g") + UNKNOWN)),
    "RegisteredGradient": graph(library=field(3, field(1, "g") + field(2, "A") + UNKNOWN)),
    "NodeDef": graph(node("x") + UNKNOWN),
    "debug info of a node": graph(node("x", "Thing", (6, field(1, "m") + UNKNOWN))),
    "type of a node": graph(node("x", "Thing", (7, field(1, 1000) + UNKNOWN))),
    "AttrValue": with_attr(TYPE + UNKNOWN),
    "AttrValue without a value": with_attr(UNKNOWN),
    "ListValue": with_attr(field(1, field(3, b"\x01\x02") + UNKNOWN)),
    "TensorShapeProto": with_attr(field(7, field(2, field(1, 3)) + UNKNOWN)),
    "Dim": with_attr(field(7, field(2, field(1, 3) + UNKNOWN))),
    "NameAttrList": with_attr(field(10, field(1, "f") + UNKNOWN)),
    "attribute of a NameAttrList": with_attr(
        field(10, field(1, "f") + field(2, entry("T", TYPE + UNKNOWN)))
    ),
    "TensorProto": with_tensor(field(5, b"\x00\x00\x80?"), UNKNOWN),
    "ResourceHandleProto": with_attr(
        field(8, field(1, 20) + field(2, b"") + field(14, field(1, "cpu") + UNKNOWN))
    ),
    "VariantTensorDataProto": with_attr(
        field(8, field(1, 21) + field(2, b"") + field(15, field(1, "list") + UNKNOWN))
    ),
    "FunctionDef": with_function(UNKNOWN),
    "OpDef": with_function(signature=UNKNOWN),
    "ArgDef": with_function(signature=field(2, field(1, "x") + field(3, 1) + UNKNOWN)),
    "AttrDef": with_function(signature=field(4, field(1, "T") + field(2, "type") + UNKNOWN)),
    "default of an AttrDef": with_function(
        signature=field(4, field(1, "T") + field(2, "type") + field(3, TYPE + UNKNOWN))
    ),
    "node of a function": with_function(field(3, node("n") + UNKNOWN)),
    "attribute of a node of a function": with_function(
        field(3, node("n", "Thing", (5, entry("T", TYPE + UNKNOWN))))
    ),
    "attribute of a function": with_function(field(5, entry("a", TYPE + UNKNOWN))),
    "attributes of an argument": with_function(
        field(7, field(1, 0) + field(2, field(1, entry("a", TYPE + UNKNOWN)))),
        signature=field(2, field(1, "x") + field(3, 1)),
    ),
    "ArgAttrs": with_function(
        field(7, field(1, 0) + field(2, UNKNOWN)), signature=field(2, field(1, "x") + field(3, 1))
    ),
}


@pytest.mark.parametrize("level", LEVELS)
def test_unknown_fields_survive_loading_and_saving(level: str) -> None:
    data = LEVELS[level]
    assert graph_to_bytes(graph_from_bytes(data)) == data


@pytest.mark.parametrize("level", LEVELS)
def test_unknown_fields_survive_the_readable_form(level: str) -> None:
    data = LEVELS[level]
    text = print_graph(graph_from_bytes(data))
    assert graph_to_bytes(parse_graph(text)) == data
    assert print_graph(parse_graph(text)) == text


@pytest.mark.parametrize("key", ["_note", "not_declared", "", "a b", "é"])
def test_unknown_attributes_survive(key: str) -> None:
    data = graph(node("x", "Identity", (5, entry(key, field(2, "v")))))
    loaded = graph_from_bytes(data)
    assert loaded["x"].attrs == {key: b"v"}
    assert graph_to_bytes(loaded) == data
    assert graph_to_bytes(parse_graph(print_graph(loaded))) == data


def test_unknown_fields_of_a_node_survive_its_edits() -> None:
    loaded = graph_from_bytes(graph(node("x", "A", (5, entry("T", TYPE))) + UNKNOWN))
    x = loaded["x"]
    loaded.rename(x, "y")
    loaded.set_attr(x, "T", dtypes.int32)
    loaded.set_device(x, "/cpu:0")
    data = graph_to_bytes(loaded)
    wanted = node("y", "A", (4, "/cpu:0"), (5, entry("T", field(6, 3)))) + UNKNOWN
    assert data == graph(wanted)


def test_an_attribute_that_is_set_anew_loses_what_the_old_one_held() -> None:
    loaded = graph_from_bytes(with_attr(TYPE + UNKNOWN))
    loaded.set_attr(loaded["x"], "a", dtypes.int32)
    assert graph_to_bytes(loaded) == with_attr(field(6, 3))


def test_an_attribute_that_is_removed_is_not_written() -> None:
    loaded = graph_from_bytes(with_attr(TYPE))
    del loaded["x"].attrs["a"]
    assert graph_to_bytes(loaded) == graph(node("x"))


def test_unknown_fields_of_versions_survive_a_new_version() -> None:
    loaded = graph_from_bytes(graph(more=field(4, field(1, 27) + UNKNOWN)))
    loaded.versions = Versions(28, 12)
    wanted = field(1, 28) + field(2, 12) + UNKNOWN
    assert graph_to_bytes(loaded) == graph(more=field(4, wanted))


def test_unknown_fields_of_a_gradient_survive_another_gradient() -> None:
    pair = field(1, "f") + field(2, "g") + UNKNOWN
    loaded = graph_from_bytes(graph(library=field(2, pair)))
    loaded.gradient_functions["h"] = "i"
    other = message((1, "h"), (2, "i"))
    assert graph_to_bytes(loaded) == graph(library=field(2, pair) + field(2, other))


def test_a_function_that_is_removed_is_not_written() -> None:
    loaded = graph_from_bytes(with_function())
    del loaded.functions["f"]
    assert b"f" not in graph_to_bytes(loaded)


def test_a_renamed_function_keeps_the_rest() -> None:
    loaded = graph_from_bytes(with_function(UNKNOWN))
    function = loaded.functions.pop("f")
    function.name = "g"
    loaded.functions["g"] = function
    assert graph_to_bytes(loaded) == graph(library=field(1, field(1, field(1, "g")) + UNKNOWN))


def test_inputs_are_written_in_the_words_of_the_file_while_they_hold() -> None:
    first = node("x", "A")
    second = node("y", "A")
    reader = node("z", "B", (3, "x:0"), (3, "x:1"), (3, "^x"), (3, "^x"))
    data = graph(first, second, reader)
    loaded = graph_from_bytes(data)
    assert graph_to_bytes(loaded) == data
    loaded.set_input(loaded["z"], 0, loaded["y"].output(0))
    changed = node("z", "B", (3, "y"), (3, "x:1"), (3, "^x"))
    assert graph_to_bytes(loaded) == graph(first, second, changed)
