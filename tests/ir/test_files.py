from __future__ import annotations

import gzip
import io
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest

from cfgraph.errors import InvalidInput, UsageError
from cfgraph.ir import file_io
from cfgraph.ir.files import (
    FORMATS,
    decode_graph,
    dumps,
    format_for_path,
    load,
    loads,
    open_graph,
    save,
)
from cfgraph.ir.graph import Graph
from cfgraph.ir.text.parser import parse_graph
from cfgraph.proto import graph_pb2, meta_graph_pb2, saved_model_pb2
from tests.ir.wire import node_def, wire_field, wire_message

TEXT = """\
versions producer=27
x = Placeholder() {dtype=float32}
y = Identity(x, ^x) {T=float32}
"""


@pytest.fixture
def graph() -> Graph:
    return parse_graph(TEXT)


def meta(graph: Graph) -> Any:
    wrapped = meta_graph_pb2.MetaGraphDef()
    wrapped.meta_info_def.tags.append("serve")
    wrapped.meta_info_def.tensorflow_version = "2.21.0"
    wrapped.meta_info_def.stripped_op_list.op.add().name = "Identity"
    wrapped.graph_def.ParseFromString(dumps(graph))
    wrapped.saver_def.filename_tensor_name = "save/Const:0"
    wrapped.collection_def["ops"].node_list.value.append("x")
    return wrapped


def saved_model(graph: Graph) -> Any:
    return saved_model_pb2.SavedModel(saved_model_schema_version=1, meta_graphs=[meta(graph)])


def names(graph: Graph) -> list[str]:
    return list(graph.nodes)


# -- formats are detected from the content -------------------------------------------------------


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gz"])
def test_the_format_is_found_from_the_content(graph: Graph, format: str, pack: Any) -> None:
    data = pack(dumps(graph, format))
    loaded = decode_graph(data)
    assert loaded.format == format
    assert loaded.size == len(data)
    assert dumps(loaded.graph) == dumps(graph)


@pytest.mark.parametrize("format", FORMATS)
def test_an_explicit_format_is_used(graph: Graph, format: str) -> None:
    assert names(loads(dumps(graph, format), format)) == ["x", "y"]
    for other in set(FORMATS) - {format}:
        with pytest.raises(InvalidInput):
            loads(dumps(graph, format), other)


def test_an_unknown_format_is_refused(graph: Graph) -> None:
    with pytest.raises(UsageError, match="unknown format 'json'") as caught:
        loads(b"{}", "json")
    assert caught.value.hint == "one of pb, pbtxt, graph"
    with pytest.raises(UsageError, match="unknown format 'json'"):
        dumps(graph, "json")


def test_the_suffix_does_not_matter_for_reading(graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "graph.pbtxt.gz"
    path.write_bytes(dumps(graph))
    assert open_graph(path).format == "pb"


@pytest.mark.parametrize("wrap", [meta, saved_model])
def test_the_graph_of_a_container_is_taken(graph: Graph, wrap: Any) -> None:
    loaded = decode_graph(wrap(graph).SerializeToString())
    assert loaded.format == wrap.__name__
    assert dumps(loaded.graph) == dumps(graph)


@pytest.mark.parametrize("wrap", [meta, saved_model])
def test_the_graph_of_a_container_in_protobuf_text_is_taken(graph: Graph, wrap: Any) -> None:
    loaded = decode_graph(b"# made by hand\n" + str(wrap(graph)).encode())
    assert loaded.format == "pbtxt"
    assert dumps(loaded.graph) == dumps(graph)


def test_a_bare_meta_graph_is_not_taken_for_a_library(graph: Graph) -> None:
    data = meta_graph_pb2.MetaGraphDef(graph_def=graph_pb2.GraphDef.FromString(dumps(graph)))
    loaded = decode_graph(data.SerializeToString())
    assert (loaded.format, names(loaded.graph)) == ("meta", ["x", "y"])


def test_a_saved_model_without_a_version_is_found(graph: Graph) -> None:
    data = saved_model_pb2.SavedModel(meta_graphs=[meta(graph)]).SerializeToString()
    assert data[0] != 0x08
    assert names(loads(data)) == ["x", "y"]


def test_a_saved_model_without_a_graph_is_refused() -> None:
    with pytest.raises(InvalidInput, match="the SavedModel contains no graph"):
        loads(saved_model_pb2.SavedModel(saved_model_schema_version=1).SerializeToString())
    with pytest.raises(InvalidInput, match="the SavedModel contains no graph"):
        loads(b"saved_model_schema_version: 1")


def test_a_library_alone_is_a_graph() -> None:
    data = wire_field(2, wire_field(1, wire_field(1, wire_field(1, "f"))))
    loaded = decode_graph(data)
    assert (loaded.format, list(loaded.graph.functions)) == ("pb", ["f"])


@pytest.mark.parametrize("length", [9, 10, 12, 13, 32, 5000])
def test_a_binary_graph_is_never_taken_for_text(length: int) -> None:
    # lengths that are printable bytes
    data = wire_field(1, node_def("n" * length, "o" * length))
    assert decode_graph(data).format == "pb"


@pytest.mark.parametrize(
    "text", ["x = A()", "# nothing: but a comment {\nx = A()", "\n\n  x=A()", "node = A()"]
)
def test_the_readable_form_is_never_taken_for_protobuf_text(text: str) -> None:
    assert decode_graph(text.encode()).format == "graph"


@pytest.mark.parametrize(
    "text", ["node { name: 'x' op: 'A' }", "# x = A()\n node:<name:'x' op:'A'>"]
)
def test_protobuf_text_is_never_taken_for_the_readable_form(text: str) -> None:
    loaded = decode_graph(text.encode())
    assert (loaded.format, names(loaded.graph)) == ("pbtxt", ["x"])


def test_text_may_begin_with_a_byte_order_mark(graph: Graph) -> None:
    for format in ("pbtxt", "graph"):
        assert decode_graph(b"\xef\xbb\xbf" + dumps(graph, format)).format == format


# -- output --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "format"),
    [
        *(("g.pb", "pb"), ("g.pbtxt", "pbtxt"), ("g.pb.txt", "pbtxt"), ("g.graph", "graph")),
        *(("g.graph.gz", "graph"), ("g.pbtxt.gz", "pbtxt"), ("g.gz", "pb"), ("g", "pb")),
        ("graph", "pb"),
    ],
)
def test_the_suffix_says_what_is_written(
    name: str, format: str, graph: Graph, tmp_path: Path
) -> None:
    assert format_for_path(name) == format
    save(graph, tmp_path / name)
    data = (tmp_path / name).read_bytes()
    assert (data[:2] == b"\x1f\x8b") == name.endswith(".gz")
    assert decode_graph(data).format == format
    assert dumps(load(tmp_path / name)) == dumps(graph)


@pytest.mark.parametrize("name", ["g.pb", "g.pbtxt.gz", "g.graph.gz"])
def test_saving_twice_gives_the_same_bytes(name: str, graph: Graph, tmp_path: Path) -> None:
    save(graph, tmp_path / name)
    first = (tmp_path / name).read_bytes()
    save(load(tmp_path / name), tmp_path / name)
    assert (tmp_path / name).read_bytes() == first


def test_a_format_may_be_requested(graph: Graph, tmp_path: Path) -> None:
    save(graph, tmp_path / "g.pb", "graph")
    assert (tmp_path / "g.pb").read_text() == TEXT


@pytest.mark.parametrize("name", ["saved_model.pb", "saved_model.pbtxt"])
def test_the_folder_of_a_saved_model_is_read(name: str, graph: Graph, tmp_path: Path) -> None:
    saved = saved_model(graph)
    data = saved.SerializeToString() if name.endswith(".pb") else str(saved).encode()
    (tmp_path / name).write_bytes(data)
    (tmp_path / "variables").mkdir()
    assert names(load(tmp_path)) == ["x", "y"]
    assert names(load(str(tmp_path))) == ["x", "y"]


def test_protobuf_text_says_where_it_breaks() -> None:
    with pytest.raises(
        InvalidInput, match=r'line 2, column 16: Message type "cfgraph\.NodeDef" has'
    ):
        loads(b"node { op: 'A' }\nnode { op: 'B' what: 3 }")


def test_a_message_of_one_function_twice_is_one_function() -> None:
    once = wire_field(1, wire_field(1, wire_message((1, "f"))))
    assert list(loads(wire_field(2, once + once)).functions) == ["f"]
    other = wire_field(1, wire_field(1, wire_message((1, "f"), (5, "different"))))
    with pytest.raises(InvalidInput, match="two different functions have the name 'f'"):
        loads(wire_field(2, once + other))


@pytest.mark.parametrize(
    "data",
    [
        wire_field(1, node_def())[:-1],
        wire_field(1, node_def()) + b"\x0f",
        wire_field(1, node_def()) + b"\x0a" + b"\xff" * 10,
        wire_field(1, node_def("x", "A", (5, b"\x0a\x05T"))),
        wire_field(1, node_def(b"\xff")),  # type: ignore[arg-type]
    ],
)
def test_broken_protobuf_data_are_truncated_or_corrupt(data: bytes) -> None:
    with pytest.raises(InvalidInput, match=r"not a valid GraphDef: .*(truncated|cut short)"):
        loads(data, "pb")


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0", "a PNG image"),
        (b"\x89HDF\r\n\x1a\n\0", "an HDF5 file"),
        (b"\x1c\0\0\0TFL3\0\0", "a TensorFlow Lite model"),
        (b"\x93NUMPY\1\0", "an .npy array"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d\n", "a Git LFS pointer"),
        (b"\n<!DOCTYPE html><html>", "an HTML page"),
        (b"<?xml version='1.0'?><Error/>", "an XML document"),
        (b"HloModule jit_f, entry_computation_layout={()->f32[]}", "an XLA HLO module"),
        (b"module @jit_f attributes {", "an MLIR module"),
        (b'{"format": "graph-model"}', "a JSON document"),
        (b"ML\xefR\x06StableHLO", "MLIR bytecode"),
        (
            b"\x18\0\0\0\0\0\0\0crc4\x09\0\0\0\0\0\0\0\x1a\rbrain.Event:2",
            "a TensorBoard event file",
        ),
        (b'\x10\0\0\0\0\0\0\0{"w":{}}', "a file of weights or Python objects"),
        (b"\n\x05jit_f\x12\x06main.3\x1a\x02\n\0", "an XLA HLO module"),
    ],
)
def test_a_file_of_another_format_is_named(data: bytes, name: str) -> None:
    with pytest.raises(InvalidInput, match=f"this is {name}, not a graph") as caught:
        loads(data + b"\xff" * 20)
    assert caught.value.code == "CFG003"


@pytest.mark.parametrize(
    ("names", "what"),
    [
        (["config.json", "model.weights.h5", "metadata.json"], "a Keras model"),
        (["archive/data.pkl"], "a PyTorch model"),
        (["x.npy", "y.npy"], "an .npz archive of arrays"),
        (["model/saved_model.pb", "x.npy"], "a zip archive"),
        ([], "an empty zip archive"),
    ],
)
def test_an_archive_is_named(names: list[str], what: str) -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name in names:
            archive.writestr(name, b"data")
    with pytest.raises(InvalidInput, match=f"this is {what}, not a graph"):
        loads(data.getvalue())


@pytest.mark.parametrize("kind", ["tar", "gztar"])
def test_a_tar_archive_is_to_be_unpacked(fixtures: Path, tmp_path: Path, kind: str) -> None:
    model = fixtures / "saved_model"
    path = shutil.make_archive(str(tmp_path / "model"), kind, model.parent, model.name)
    with pytest.raises(InvalidInput, match="this is a tar archive, not a graph") as caught:
        load(path)
    assert caught.value.hint == "unpack it, and name the file or folder of the graph"


def test_a_graph_that_is_cut_short_says_so(fixtures: Path) -> None:
    data = (fixtures / "graphs" / "lstm.pb").read_bytes()
    with pytest.raises(InvalidInput, match="cut short, its last node or function lacks") as caught:
        loads(data[: len(data) // 2])
    assert caught.value.hint == "copy or download the file again"


def test_messages_that_start_like_a_saved_model_are_named() -> None:
    onnx = b"\x08\x0a" + wire_field(2, b"pytorch") + wire_field(7, b"graph") + wire_field(8, b"")
    with pytest.raises(InvalidInput, match="this is an ONNX model, not a graph"):
        loads(onnx)
    with pytest.raises(InvalidInput, match="this is the fingerprint of a SavedModel"):
        loads(b"\x08\x01\x10\x02\x18\x03\x20\x04")
    with pytest.raises(InvalidInput, match="the SavedModel contains no graph"):
        loads(b"\x08\x01")


def test_a_checkpoint_alone_is_named(fixtures: Path, tmp_path: Path) -> None:
    variables = fixtures / "saved_model" / "variables"
    folder = Path(shutil.copytree(variables, tmp_path / "checkpoint"))
    (folder / "checkpoint").write_text('model_checkpoint_path: "variables"')
    messages = {
        ".": "the folder contains a checkpoint",
        "variables": "this is the prefix of a checkpoint",
        "variables.index": "this is the index of a checkpoint",
        "variables.data-00000-of-00001": "this is the data of a checkpoint",
        "checkpoint": "this is a list of checkpoints",
    }
    for name, message in messages.items():
        with pytest.raises(InvalidInput, match=message) as caught:
            load(folder / name)
        assert "--variables" in str(caught.value.hint), name


def test_text_that_is_not_utf8_names_the_line() -> None:
    with pytest.raises(InvalidInput, match="line 2 is not UTF-8: it has the byte 0xe9"):
        loads(b"x = A()\n# caf\xe9\n")


@pytest.mark.parametrize("name", ["g.pb", "g.pbtxt", "g.graph", "g.graph.gz"])
def test_a_graph_of_more_bytes_than_are_read_is_not_written(
    name: str, graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_io, "MAX_BYTES", len(dumps(graph)) - 1)
    with pytest.raises(InvalidInput, match="the graph cannot be written") as caught:
        save(graph, tmp_path / name)
    assert caught.value.code == "CFG111"
    assert list(tmp_path.iterdir()) == []
