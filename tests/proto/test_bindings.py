"""The bindings match the schemas, and TensorFlow reads what they write."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format

from cfgraph.proto import (
    function_pb2,
    graph_pb2,
    meta_graph_pb2,
    node_def_pb2,
    saved_model_pb2,
    tensor_pb2,
)

SCHEMAS = sorted((Path(__file__).parents[2] / "schemas").glob("*.proto"))

SWITCH = """
name: "n" op: "Switch" input: "a:1" input: "^c" device: "/cpu:0"
attr { key: "T" value { type: DT_FLOAT } }
attr { key: "b" value { b: false } }
attr { key: "e" value { } }
attr { key: "l" value { list { i: -1 i: 2 } } }
"""
SWITCH_BYTES = bytes.fromhex(
    "0a4b 0a016e 1206537769746368 1a03613a31 1a025e63 22062f6370753a30 2a070a015412023001"
    "2a070a016212022800 2a050a01651200 2a140a016c120f0a0d1a0bffffffffffffffffff0102"
)

MESSAGES = {
    "graph": (
        graph_pb2.GraphDef,
        f"""
        node {{ {SWITCH} experimental_type {{ type_id: TFT_TENSOR args {{ type_id: TFT_FLOAT }} }}
               experimental_debug_info {{ original_node_names: "m" }} }}
        versions {{ producer: 2286 min_consumer: 12 bad_consumers: 7 }}
        debug_info {{ files: "a.py" frames_by_id {{ key: 5 value {{ line: 3 }} }}
                     traces_by_id {{ key: 9 value {{ frame_id: 5 frame_id: 6 }} }} }}
        """,
    ),
    "attributes": (
        node_def_pb2.NodeDef,
        """
        attr { key: "a" value { list { } } }
        attr { key: "c" value { s: "" } }
        attr { key: "d" value { shape { unknown_rank: true } } }
        attr { key: "f" value { func { name: "g"
          attr { key: "T" value { type: DT_INT64_REF } } } } }
        attr { key: "g" value { list { s: "x" f: 0.5 b: true type: DT_HALF func { name: "h" } } } }
        attr { key: "p" value { placeholder: "T" } }
        attr { key: "s" value { list { shape { dim { size: 0 } dim { size: -1 name: "n" } } } } }
        """,
    ),
    "tensor": (
        tensor_pb2.TensorProto,
        r"""
        dtype: DT_FLOAT8_E4M3FN tensor_shape { dim { size: 0 } } tensor_content: "\000\377"
        float_val: [1, -0.0] double_val: 2 int_val: [-1, 3] string_val: "\377" scomplex_val: [1, 2]
        int64_val: -9 bool_val: [true, false] dcomplex_val: [3, 4] half_val: 15360
        resource_handle_val { name: "v" hash_code: 7 dtypes_and_shapes { dtype: DT_INT4 } }
        variant_val { type_name: "l" metadata: "m" tensors { dtype: DT_BOOL } }
        uint32_val: 4294967295 uint64_val: 18446744073709551615 float8_val: "\001\002"
        """,
    ),
    "function": (
        function_pb2.FunctionDefLibrary,
        """
        function {
          signature { name: "f" is_stateful: true control_output: "c"
            input_arg { name: "x" type_attr: "T" is_ref: true handle_data { dtype: DT_FLOAT } }
            output_arg { name: "y" type_list_attr: "Ts" experimental_full_type { s: "t" } }
            attr { name: "T" type: "type" has_minimum: true minimum: 1
                   allowed_values { list { type: [DT_FLOAT, DT_UINT4] } } } }
          node_def { name: "n" op: "Identity" input: "x" }
          ret { key: "y" value: "n:output:0" } control_ret { key: "c" value: "n" }
          arg_attr { key: 0 value { attr { key: "_output_shapes" value { list { } } } } }
          resource_arg_unique_id { key: 1 value: 2 }
        }
        gradient { function_name: "f" gradient_func: "g" }
        registered_gradients { gradient_func: "g" registered_op_type: "Foo" }
        """,
    ),
    "meta_graph": (
        meta_graph_pb2.MetaGraphDef,
        """
        meta_info_def { tags: "serve"
          stripped_op_list { op { name: "A" deprecation { version: 3 } } } }
        saver_def { version: V2 max_to_keep: 5 sharded: true }
        collection_def { key: "while_context" value { bytes_list { value: "x" } } }
        collection_def { key: "losses" value { node_list { value: "l:0" } } }
        signature_def { key: "s" value { method_name: "predict"
          inputs { key: "x" value { name: "x:0" dtype: DT_FLOAT tensor_shape { } } }
          inputs { key: "sp" value { coo_sparse { values_tensor_name: "v:0" } } } } }
        asset_file_def { tensor_info { name: "a:0" } filename: "vocab" }
        """,
    ),
    "saved_model": (
        saved_model_pb2.SavedModel,
        "saved_model_schema_version: 1 meta_graphs { graph_def { node { name: 'x' } } }",
    ),
}


def generate(folder: Path) -> None:
    names = [f"cfgraph/proto/{schema.name}" for schema in SCHEMAS]
    protoc = [sys.executable, "-m", "grpc_tools.protoc", f"-Icfgraph/proto={SCHEMAS[0].parent}"]
    subprocess.run(
        [*protoc, f"--python_out={folder}", f"--pyi_out={folder}", *names], check=True, timeout=120
    )


def bindings(folder: Path) -> dict[str, bytes]:
    files = (folder / "cfgraph" / "proto").glob("*_pb2.py*")
    return {file.name: file.read_bytes() for file in files}


def test_the_committed_bindings_are_what_the_schemas_generate(
    root: Path, tmp_path: Path, update: bool
) -> None:
    if update:
        generate(root)
    generate(tmp_path)
    assert len(SCHEMAS) > 10
    assert bindings(root) == bindings(tmp_path)


def test_a_node_has_the_bytes_that_tensorflow_writes() -> None:
    graph = text_format.Parse(f"node {{ {SWITCH} }}", graph_pb2.GraphDef())
    assert graph.SerializeToString(deterministic=True) == SWITCH_BYTES
    assert graph_pb2.GraphDef.FromString(SWITCH_BYTES) == graph


def test_an_empty_control_token_has_the_bytes_that_tensorflow_writes() -> None:
    token = text_format.Parse(
        "dtype: DT_FLOAT tensor_shape { dim { size: 0 } }", tensor_pb2.TensorProto()
    )
    assert token.SerializeToString() == bytes.fromhex("08 01 12 02 12 00")


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "unpacked"])
def test_lists_are_read_packed_and_unpacked(packed: bool) -> None:
    wire = bytes.fromhex("5202 0102" if packed else "5001 5002")
    assert list(tensor_pb2.TensorProto.FromString(wire).int64_val) == [1, 2]


def test_unknown_fields_survive() -> None:
    wire = SWITCH_BYTES + bytes.fromhex("f23e 03 616263")
    assert graph_pb2.GraphDef.FromString(wire).SerializeToString(deterministic=True) == wire


def test_an_unknown_dtype_survives() -> None:
    wire = bytes.fromhex("08e707")
    assert tensor_pb2.TensorProto.FromString(wire).SerializeToString() == wire


@pytest.fixture(scope="module")
def tensorflow_messages() -> Any:
    pytest.importorskip("tensorflow", reason="needs the extra `interop`")
    from google.protobuf import descriptor_pool, message_factory

    # registers all messages used below
    from tensorflow.compiler.xla import xla_data_pb2  # noqa: F401
    from tensorflow.core.example import example_pb2  # noqa: F401
    from tensorflow.core.protobuf import saved_model_pb2, tensor_bundle_pb2  # noqa: F401

    pool = descriptor_pool.Default()
    return lambda name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


@pytest.mark.interop
@pytest.mark.parametrize("case", MESSAGES)
def test_tensorflow_writes_the_same_bytes_and_the_same_text(
    case: str, tensorflow_messages: Any
) -> None:
    kind, text = MESSAGES[case]
    ours = text_format.Parse(text, kind())
    twin = tensorflow_messages(kind.DESCRIPTOR.full_name.replace("cfgraph.", "tensorflow."))()
    text_format.Parse(text, twin)
    wire = ours.SerializeToString(deterministic=True)
    assert wire == twin.SerializeToString(deterministic=True)
    assert text_format.MessageToString(ours) == text_format.MessageToString(twin)
    assert wire


def messages(descriptor: Any) -> Iterator[Any]:
    for message in descriptor:
        yield message
        yield from messages(message.nested_types)


@pytest.mark.interop
@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda path: path.stem)
def test_names_numbers_and_types_are_tensorflows(schema: Path, tensorflow_messages: Any) -> None:
    file = importlib.import_module(f"cfgraph.proto.{schema.stem}_pb2").DESCRIPTOR
    for message in messages(file.message_types_by_name.values()):
        package = "xla" if schema.stem.startswith("xla_") else "tensorflow"
        twin = tensorflow_messages(message.full_name.replace("cfgraph", package, 1)).DESCRIPTOR
        for field in message.fields:
            other = twin.fields_by_number[field.number]
            assert facts(field) == facts(other), field.full_name
    for name, enum in file.enum_types_by_name.items():
        twin = importlib.import_module(f"tensorflow.core.framework.{schema.stem}_pb2")
        values = twin.DESCRIPTOR.enum_types_by_name[name].values
        assert {v.name: v.number for v in enum.values} == {v.name: v.number for v in values}


def facts(field: Any) -> tuple[Any, ...]:
    return field.name, field.type, field.is_repeated, field.is_packed, field.has_presence
