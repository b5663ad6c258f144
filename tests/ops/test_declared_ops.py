"""Ops of TensorFlow without a class are known by their signature."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import cfgraph
from cfgraph.errors import Unsupported
from cfgraph.ir import registry
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


@pytest.mark.interop
def test_all_ops_of_tensorflow_are_known(update: bool) -> None:
    pytest.importorskip("tensorflow", reason="the extra `interop` is not installed")
    from tensorflow.core.framework import op_def_pb2
    from tensorflow.python.client import pywrap_tf_session as tf_session

    buffer = tf_session.TF_GetBuffer(tf_session.TF_GetAllOpList())
    ops = op_def_pb2.OpList.FromString(buffer).op
    text = declarations.as_text(ops, registry.op_names())
    if update:
        DECLARATIONS.write_text(text, encoding="utf-8")
    assert DECLARATIONS.read_text(encoding="utf-8") == text
    assert [op.name for op in ops if lookup(op.name) is None] == []
    assert [op.name for op in ops if op.is_stateful and not _is_stateful(op.name)] == []


def _is_stateful(name: str) -> bool:
    op = lookup(name)
    # of ops with a class, roles and reads of variables are not stateful here
    return op is None or op.effects.stateful or name not in declared_names()


def test_the_declarations_are_small_and_parse() -> None:
    assert DECLARATIONS.stat().st_size < 150_000
    ops = [lookup(name) for name in declared_names()]
    assert len(ops) > 1000
    assert all(op and op.parsed() and not op.compilation.runnable for op in ops)
    assert not {*declared_names()} & {*registry.op_names()}


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
