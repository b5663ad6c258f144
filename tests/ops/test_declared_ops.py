"""Ops of TensorFlow without a class are known by their signature."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cfgraph
from cfgraph.errors import InvalidInput, Unsupported, UsageError
from cfgraph.ir import registry
from cfgraph.ops import declared
from cfgraph.ops.declared import declared_names
from cfgraph.ops.opdef.op import lookup
from tests import declarations

DECLARATIONS = Path(cfgraph.ops.declared.__file__).with_name("declarations.txt")
RNN = """
x = Placeholder() {dtype=float32, shape=[1,1,1]}
lengths = Const() {dtype=int32, value=int32[1]:[1]}
rnn = CudnnRNNV3(x, x, x, x, lengths) {rnn_mode="gru"}
y = Identity(rnn:1)
z = Neg(x)
"""


_LIST_OPS = """
import sys
from tensorflow.python.client import pywrap_tf_session as tf_session
sys.stdout.buffer.write(tf_session.TF_GetBuffer(tf_session.TF_GetAllOpList()))
"""


@pytest.mark.interop
def test_all_ops_of_tensorflow_are_known(update: bool) -> None:
    pytest.importorskip("tensorflow", reason="the extra `interop` is not installed")
    from tensorflow.core.framework import op_def_pb2

    # in a process of its own: the converter of TensorFlow Lite registers more ops
    listed = subprocess.run([sys.executable, "-c", _LIST_OPS], capture_output=True, check=True)
    ops = op_def_pb2.OpList.FromString(listed.stdout).op
    text = declarations.as_text(declarations.of_tensorflow(ops), registry.op_names())
    if update:
        DECLARATIONS.write_text(text, encoding="utf-8")
        declared._declarations.cache_clear()
    assert DECLARATIONS.read_text(encoding="utf-8") == text
    assert [op.name for op in ops if lookup(op.name) is None] == []
    assert [op.name for op in ops if op.is_stateful and not _is_stateful(op.name)] == []


def _is_stateful(name: str) -> bool:
    op = lookup(name)
    # of ops with a class, roles and reads of variables are not stateful here
    return op is None or op.effects.stateful or name not in declared_names()


def test_an_op_with_a_class_is_not_declared(update: bool) -> None:
    text = DECLARATIONS.read_text(encoding="utf-8")
    names = registry.op_names()
    known = declarations.of_text(text)
    rest = declarations.as_text(known, names)
    if update:
        DECLARATIONS.write_text(rest, encoding="utf-8")
        declared._declarations.cache_clear()
        return
    both = {item.name.removesuffix("!") for item in known} & {*names}
    assert not both, f"ops have a class and are declared: {sorted(both)}; run `make generate`"
    assert rest == text


def test_the_declarations_are_small_and_parse() -> None:
    assert DECLARATIONS.stat().st_size < 150_000
    ops = [lookup(name) for name in declared_names()]
    assert len(ops) > 900
    runnable = [op.name for op in ops if op and op.compilation.runnable]
    assert runnable == [], "ops have a class and are declared: `make generate`"
    assert all(op and op.parsed() for op in ops)
    assert not {*declared_names()} & {*registry.op_names()}


# a family that is written after the declaration was read, before the index lists it
REPLACED = """
import cfgraph.ops
from cfgraph.ops.opdef.op import Op, lookup
assert not lookup("CudnnRNNV3").compilation.runnable
class CudnnRNNV3(Op):
    signature = "x: T -> y: T"
    function = staticmethod(lambda x: x)
assert lookup("CudnnRNNV3") is CudnnRNNV3
"""


def test_a_class_replaces_the_declaration_of_its_op() -> None:
    subprocess.run([sys.executable, "-c", REPLACED], check=True)


def test_a_graph_with_a_declared_op_passes_every_pass() -> None:
    graph = cfgraph.loads(RNN.encode())
    assert not cfgraph.check(graph).findings
    assert graph["rnn"].output(4).dtype.name == "int8"
    cfgraph.lower(graph)
    cfgraph.optimize(graph, fetches=["y:0", "z:0"])
    cfgraph.cluster(graph, fetches=["y:0", "z:0"])
    assert cfgraph.gradients(graph, ["z:0"], ["x:0"]) == ["gradients/x:0"]
    cfgraph.place(graph, devices=["cpu:0", "cpu:1"])
    cfgraph.partition(graph)
    assert "rnn" in graph.nodes


def test_a_run_executes_what_needs_no_declared_op() -> None:
    session = cfgraph.Session(cfgraph.loads(RNN.encode()))
    assert session.run("z", {"x": [[[2.0]]]})[0] == -2
    with pytest.raises(Unsupported, match="no kernel for CudnnRNNV3") as caught:
        session.run("y", {"x": [[[2.0]]]})
    assert (caught.value.code, caught.value.node) == ("CFG701", "rnn")


@pytest.mark.parametrize("engine", ["tokens", "compiled"])
def test_a_branch_with_a_declared_op_fails_once_it_is_taken(fixtures: Path, engine: str) -> None:
    path = fixtures / "passes" / "lower" / "if_with_an_op_without_a_kernel.graph"
    session = cfgraph.Session(
        cfgraph.loads(path.read_bytes().partition(b"# expect")[0]), engine=engine
    )
    x = np.full([1, 1, 1], -1, np.float32)
    assert session.run(["out", "last"], {"x": x, "p": False}) == [0, 0]
    with pytest.raises(Unsupported, match="no kernel for CudnnRNNV3") as caught:
        session.run(["out"], {"x": x, "p": True})
    assert (caught.value.code, caught.value.node) == ("CFG701", "gru/then/rnn")


def test_a_gradient_through_a_declared_op_names_it() -> None:
    with pytest.raises(Unsupported, match="CudnnRNNV3"):
        cfgraph.gradients(cfgraph.loads(RNN.encode()), ["y:0"], ["x:0"])


OPS = """
op {
  name: "MyDetect%s"
  input_arg { name: "boxes" type: DT_FLOAT }
  input_arg { name: "parts" type_attr: "T" number_attr: "N" }
  output_arg { name: "kept" type: DT_INT32 }
  output_arg { name: "score" type_attr: "T" }
  attr { name: "T" type: "type" default_value { type: DT_FLOAT } }
  attr { name: "N" type: "int" has_minimum: true minimum: 1 }
  attr { name: "limit" type: "int" default_value { i: 7 } }
  is_stateful: %s
}
"""


def graph_text(suffix: str) -> str:
    return f"""
        p = Placeholder() {{dtype=bool, shape=[]}}
        x = Placeholder() {{dtype=float32, shape=[2]}}
        c = If(p, x) {{Tcond=bool, Tin=(float32), Tout=(float32), then_branch=@f, else_branch=@g}}
        d = MyDetect{suffix}(x, x, x)
        y = Neg(c)
        k = Identity(d)
        s = Mul(d:1, y)

        function f(x: float32) -> (r: float32) {{
          d = MyDetect{suffix}(x, x) {{N=1, T=float32}}
          r = Identity(d:score:0, ^d) {{T=float32}}
          return r = r:output:0
        }}

        function g(x: float32) -> (r: float32) {{
          r = Neg(x) {{T=float32}}
          return r = r:y:0
        }}
    """


def op_list(tmp_path: Path, suffix: str, *, binary: bool = False, stateful: bool = False) -> Path:
    path = tmp_path / "ops.pbtxt"
    text = OPS % (suffix, str(stateful).lower())
    path.write_text(text)
    if binary:
        from google.protobuf import text_format

        from cfgraph.proto import op_def_pb2

        message = text_format.Parse(text, op_def_pb2.OpList())
        path = tmp_path / "ops.pb"
        path.write_bytes(message.SerializeToString())
    return path


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("stateful", [False, True])
def test_an_op_of_a_file_has_outputs_defaults_and_state(
    tmp_path: Path, binary: bool, stateful: bool
) -> None:
    suffix = f"{binary}{stateful}"
    file = tmp_path / "g.graph"
    file.write_text(graph_text(suffix))
    path = op_list(tmp_path, suffix, binary=binary, stateful=stateful)
    graph = cfgraph.load(file, op_defs=[path])
    node = graph["d"]
    assert (node.attr("limit"), node.attr("N")) == (7, 2)
    assert [node.output(port).dtype.name for port in range(2)] == ["int32", "float32"]
    op = lookup(node.op)
    assert op is not None
    assert op.effects.stateful == stateful
    cfgraph.lower(graph)
    cfgraph.optimize(graph, fetches=["k", "s"])
    assert len([n for n in graph if n.op == node.op]) == 2
    cfgraph.cluster(graph, fetches=["k", "s"])
    cfgraph.load(file, op_defs=[path, path])


def test_an_op_cannot_be_declared_in_two_ways(tmp_path: Path) -> None:
    registry_names = {*declared_names()}
    file = tmp_path / "g.graph"
    file.write_text(graph_text("Twice"))
    cfgraph.load(file, op_defs=[op_list(tmp_path, "Twice")])
    other = tmp_path / "other.pbtxt"
    other.write_text((OPS % ("Twice", "false")).replace("i: 7", "i: 8"))
    with pytest.raises(UsageError, match="'MyDetectTwice' is declared twice"):
        cfgraph.load(file, op_defs=[other])
    with pytest.raises(InvalidInput, match="found no OpDefs"):
        cfgraph.load(file, op_defs=[file])
    known = tmp_path / "known.pbtxt"
    known.write_text('op { name: "Neg" }\nop { name: "CudnnRNNV3" }')
    cfgraph.load(file, op_defs=[known])
    assert {*declared_names()} == registry_names


def test_the_ops_of_a_saved_model_are_known(tmp_path: Path) -> None:
    from google.protobuf import text_format

    from cfgraph.proto import saved_model_pb2

    saved = saved_model_pb2.SavedModel(saved_model_schema_version=1)
    meta = saved.meta_graphs.add()
    text_format.Parse(OPS % ("Saved", "true"), meta.meta_info_def.stripped_op_list)
    text = (
        'node { name: "d" op: "MyDetectSaved" input: ["x", "x"] attr { key: "N" value { i: 1 } } }'
    )
    text += 'node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } }'
    text_format.Parse(text, meta.graph_def)
    (tmp_path / "saved_model.pb").write_bytes(saved.SerializeToString())
    graph = cfgraph.load(tmp_path)
    assert graph.tensor("d:1").name == "d:1"
    assert graph["d"].attr("limit") == 7
    with pytest.raises(UsageError, match="2 outputs"):
        graph.tensor("d:2")
