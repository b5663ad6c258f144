from __future__ import annotations

import pytest

from cfgraph.ir import dtypes
from cfgraph.ir.graph import Versions
from cfgraph.ir.serde.graph_def import graph_from_bytes, graph_to_bytes
from cfgraph.ir.text.parser import parse_graph
from cfgraph.ir.text.printer import print_graph
from cfgraph.proto import graph_pb2
from tests.ir.wire import map_entry, node_def, wire_field, wire_message

# fields that no version of the format has, one of each wire type
UNKNOWN = wire_field(999, 7) + wire_field(1000, "?") + wire_field(1001, 0.5)
TYPE = wire_field(6, 1)


def graph(*nodes: bytes, library: bytes = b"", more: bytes = b"") -> bytes:
    """A GraphDef with the field order of the bindings."""
    written = b"".join(wire_field(1, item) for item in nodes)
    return written + (wire_field(2, library) if library else b"") + more


def with_attr(value: bytes) -> bytes:
    return graph(node_def("x", "Thing", (5, map_entry("a", value))))


def with_tensor(*fields: bytes) -> bytes:
    return with_attr(wire_field(8, b"".join((wire_field(1, 1), wire_field(2, b""), *fields))))


def with_function(*fields: bytes, signature: bytes = b"") -> bytes:
    return graph(
        library=wire_field(1, wire_field(1, wire_field(1, "f") + signature) + b"".join(fields))
    )


LEVELS = {
    "GraphDef": graph(node_def("x"), more=UNKNOWN),
    "VersionDef": graph(more=wire_field(4, wire_field(1, 27) + UNKNOWN)),
    "empty VersionDef": graph(more=wire_field(4, UNKNOWN)),
    "debug info": graph(more=wire_field(5, wire_field(1, "a.py") + UNKNOWN)),
    "library": graph(library=wire_field(1, wire_field(1, wire_field(1, "f"))) + UNKNOWN),
    "empty library": graph(library=UNKNOWN),
    "GradientDef": graph(library=wire_field(2, wire_field(1, "f") + wire_field(2, "g") + UNKNOWN)),
    "RegisteredGradient": graph(
        library=wire_field(3, wire_field(1, "g") + wire_field(2, "A") + UNKNOWN)
    ),
    "NodeDef": graph(node_def("x") + UNKNOWN),
    "debug info of a node": graph(node_def("x", "Thing", (6, wire_field(1, "m") + UNKNOWN))),
    "type of a node": graph(node_def("x", "Thing", (7, wire_field(1, 1000) + UNKNOWN))),
    "AttrValue": with_attr(TYPE + UNKNOWN),
    "AttrValue without a value": with_attr(UNKNOWN),
    "ListValue": with_attr(wire_field(1, wire_field(3, b"\x01\x02") + UNKNOWN)),
    "TensorShapeProto": with_attr(wire_field(7, wire_field(2, wire_field(1, 3)) + UNKNOWN)),
    "Dim": with_attr(wire_field(7, wire_field(2, wire_field(1, 3) + UNKNOWN))),
    "NameAttrList": with_attr(wire_field(10, wire_field(1, "f") + UNKNOWN)),
    "attribute of a NameAttrList": with_attr(
        wire_field(10, wire_field(1, "f") + wire_field(2, map_entry("T", TYPE + UNKNOWN)))
    ),
    "TensorProto": with_tensor(wire_field(5, b"\x00\x00\x80?"), UNKNOWN),
    "ResourceHandleProto": with_attr(
        wire_field(
            8,
            wire_field(1, 20) + wire_field(2, b"") + wire_field(14, wire_field(1, "cpu") + UNKNOWN),
        )
    ),
    "VariantTensorDataProto": with_attr(
        wire_field(
            8,
            wire_field(1, 21)
            + wire_field(2, b"")
            + wire_field(15, wire_field(1, "list") + UNKNOWN),
        )
    ),
    "FunctionDef": with_function(UNKNOWN),
    "OpDef": with_function(signature=UNKNOWN),
    "ArgDef": with_function(
        signature=wire_field(2, wire_field(1, "x") + wire_field(3, 1) + UNKNOWN)
    ),
    "AttrDef": with_function(
        signature=wire_field(4, wire_field(1, "T") + wire_field(2, "type") + UNKNOWN)
    ),
    "default of an AttrDef": with_function(
        signature=wire_field(
            4, wire_field(1, "T") + wire_field(2, "type") + wire_field(3, TYPE + UNKNOWN)
        )
    ),
    "node of a function": with_function(wire_field(3, node_def("n") + UNKNOWN)),
    "attribute of a node of a function": with_function(
        wire_field(3, node_def("n", "Thing", (5, map_entry("T", TYPE + UNKNOWN))))
    ),
    "attribute of a function": with_function(wire_field(5, map_entry("a", TYPE + UNKNOWN))),
    "attributes of an argument": with_function(
        wire_field(
            7, wire_field(1, 0) + wire_field(2, wire_field(1, map_entry("a", TYPE + UNKNOWN)))
        ),
        signature=wire_field(2, wire_field(1, "x") + wire_field(3, 1)),
    ),
    "ArgAttrs": with_function(
        wire_field(7, wire_field(1, 0) + wire_field(2, UNKNOWN)),
        signature=wire_field(2, wire_field(1, "x") + wire_field(3, 1)),
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
    data = graph(node_def("x", "Identity", (5, map_entry(key, wire_field(2, "v")))))
    loaded = graph_from_bytes(data)
    assert loaded["x"].attrs == {key: b"v"}
    assert graph_to_bytes(loaded) == data
    assert graph_to_bytes(parse_graph(print_graph(loaded))) == data


def test_unknown_fields_of_a_node_survive_its_edits() -> None:
    loaded = graph_from_bytes(graph(node_def("x", "A", (5, map_entry("T", TYPE))) + UNKNOWN))
    x = loaded["x"]
    loaded.rename(x, "y")
    loaded.set_attr(x, "T", dtypes.int32)
    loaded.set_device(x, "/cpu:0")
    data = graph_to_bytes(loaded)
    expected = node_def("y", "A", (4, "/cpu:0"), (5, map_entry("T", wire_field(6, 3)))) + UNKNOWN
    assert data == graph(expected)


def test_an_attribute_that_is_set_anew_loses_what_the_old_one_held() -> None:
    loaded = graph_from_bytes(with_attr(TYPE + UNKNOWN))
    loaded.set_attr(loaded["x"], "a", dtypes.int32)
    assert graph_to_bytes(loaded) == with_attr(wire_field(6, 3))


def test_an_attribute_that_is_removed_is_not_written() -> None:
    loaded = graph_from_bytes(with_attr(TYPE))
    loaded["x"].attrs = {}
    assert graph_to_bytes(loaded) == graph(node_def("x"))


def test_nodes_with_equal_attributes_share_them_until_one_is_set() -> None:
    attr = (5, map_entry("T", TYPE))
    loaded = graph_from_bytes(graph(node_def("x", "A", attr), node_def("y", "B", attr)))
    x, y = loaded
    assert x.attrs is y.attrs
    loaded.set_attr(x, "T", dtypes.int32)
    assert y.attrs == {"T": dtypes.float32}
    changed = (5, map_entry("T", wire_field(6, 3)))
    expected = graph(node_def("x", "A", changed), node_def("y", "B", attr))
    assert graph_to_bytes(loaded) == expected


@pytest.mark.parametrize(
    "node",
    [
        wire_message((5, map_entry("T", TYPE)), (2, "A"), (1, "x")),
        node_def("y", "B", (5, map_entry("T", TYPE)), (2, "A"), (1, "x")),
        node_def("x", "A", (5, map_entry("T", wire_field(6, 3))), (5, map_entry("T", TYPE))),
        node_def("x", "A", (5, wire_message((2, TYPE), (1, "T")))),
        b"\x8a\x00\x01x" + wire_message((2, "A"), (5, map_entry("T", TYPE))),
        node_def("x", "A", (5, map_entry("T", TYPE)), (4, "d"), (4, "")),
    ],
    ids=[
        "attributes first",
        "fields twice",
        "an attribute twice",
        "value first",
        "long tag",
        "an empty device last",
    ],
)
def test_a_node_in_another_encoding_is_written_in_the_usual_one(node: bytes) -> None:
    expected = graph(node_def("x", "A", (5, map_entry("T", TYPE))))
    assert graph_to_bytes(graph_from_bytes(graph(node))) == expected


def test_nodes_with_a_long_tag_are_in_their_place() -> None:
    x, y = (wire_message((1, name), (2, "NoOp")) for name in "xy")
    data = b"\x8a\x00" + bytes([len(x)]) + x + wire_field(1, y)
    assert [node.name for node in graph_from_bytes(data)] == ["x", "y"]


def test_attributes_have_the_order_of_deterministic_protobuf() -> None:
    keys = ["T", "Tidx", "Tperm", "N", "_a", "_a_b", "a", "é", "a\U0001f600"]
    attrs = [(5, map_entry(key, wire_field(3, number))) for number, key in enumerate(keys, 1)]
    data = graph(node_def("x" * 200, "A", *attrs))
    proto = graph_pb2.GraphDef.FromString(data)
    assert graph_to_bytes(graph_from_bytes(data)) == proto.SerializeToString(deterministic=True)


def test_unknown_fields_of_versions_survive_a_new_version() -> None:
    loaded = graph_from_bytes(graph(more=wire_field(4, wire_field(1, 27) + UNKNOWN)))
    loaded.versions = Versions(28, 12)
    expected = wire_field(1, 28) + wire_field(2, 12) + UNKNOWN
    assert graph_to_bytes(loaded) == graph(more=wire_field(4, expected))


def test_unknown_fields_of_a_gradient_survive_another_gradient() -> None:
    pair = wire_field(1, "f") + wire_field(2, "g") + UNKNOWN
    loaded = graph_from_bytes(graph(library=wire_field(2, pair)))
    loaded.gradient_functions["h"] = "i"
    other = wire_message((1, "h"), (2, "i"))
    assert graph_to_bytes(loaded) == graph(library=wire_field(2, pair) + wire_field(2, other))


def test_a_function_that_is_removed_is_not_written() -> None:
    loaded = graph_from_bytes(with_function())
    del loaded.functions["f"]
    assert b"f" not in graph_to_bytes(loaded)


def test_a_renamed_function_keeps_the_rest() -> None:
    loaded = graph_from_bytes(with_function(UNKNOWN))
    function = loaded.functions.pop("f")
    function.name = "g"
    loaded.functions["g"] = function
    assert graph_to_bytes(loaded) == graph(
        library=wire_field(1, wire_field(1, wire_field(1, "g")) + UNKNOWN)
    )


def test_inputs_are_written_in_the_words_of_the_file_while_they_hold() -> None:
    first = node_def("x", "A")
    second = node_def("y", "A")
    reader = node_def("z", "B", (3, "x:0"), (3, "x:1"), (3, "^x"), (3, "^x"))
    data = graph(first, second, reader)
    loaded = graph_from_bytes(data)
    assert graph_to_bytes(loaded) == data
    loaded.set_input(loaded["z"], 0, loaded["y"].output(0))
    changed = node_def("z", "B", (3, "y"), (3, "x:1"), (3, "^x"))
    assert graph_to_bytes(loaded) == graph(first, second, changed)
