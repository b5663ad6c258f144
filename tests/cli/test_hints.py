"""Hints name what works: the option, the tensor, the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.errors import InvalidInput

CALL = """
x = Placeholder() {dtype=string, shape=[?]}
call = PartitionedCall(x) {Tin=(string), Tout=(float32), f=@f}
loop = StatelessWhile(zero, x) {T=(int32, string), cond=@c, body=@b}
zero = Const() {dtype=int32, value=int32[]:0}
n = Identity(loop:0)
y = Neg(call)

function f(x: string) -> (y: float32) {
  contents = DecodeRaw(x) {out_type=float32}
  image = DecodeWebP(name) {channels=3}
  name = Const() {dtype=string, value=string[]:"jpeg"}
  y = Cast(image) {SrcT=uint8, DstT=float32}
  return y
}
function c(i: int32, x: string) -> (more: bool) {
  one = Const() {dtype=int32, value=int32[]:1}
  more = Less(i, one)
  return more
}
function b(i: int32, x: string) -> (j: int32, z: string) {
  image = DecodeWebP(name) {channels=3}
  name = Const() {dtype=string, value=string[]:"jpeg"}
  rank = Rank(image) {T=uint8}
  j = AddV2(i, rank)
  return j, x
}
"""


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write_graph(text: str) -> Path:
        path = tmp_path / "g.graph"
        path.write_text(text)
        return path

    return write_graph


def test_an_op_without_a_kernel_in_a_function_is_fed(
    command: Any, write: Any, tmp_path: Path
) -> None:
    done = command("run", write(CALL), "--feed", 'x=["a"]', "--fetch", "y")
    assert done.code == 4
    assert "feed call/image:0, or" in done.err
    inner = command("run", write(CALL), "--feed", "call/image:0=[[[1,2,3]]]", "--fetch", "y")
    assert inner.code == 0
    command("lower", write(CALL), "-o", tmp_path / "l.pb")
    line = ("run", tmp_path / "l.pb", "--feed", "call/image:0=[[[1,2,3]]]", "--fetch", "y")
    assert command(*line).code == 0


def test_an_op_without_a_kernel_in_a_loop_cannot_be_fed(command: Any, write: Any) -> None:
    done = command("run", write(CALL), "--feed", 'x=["a"]', "--fetch", "n")
    assert done.code == 4
    assert "what a loop around it returns" in done.err


@pytest.mark.parametrize("op", ["XlaCustomCall", "XlaSetBound", "XlaHostCompute"])
def test_ops_of_xla_are_no_collectives(command: Any, op: str) -> None:
    text = command("ops", op).err
    assert "code of other libraries" in text
    assert "other processes" in command("ops", "CollectiveReduce").err


def test_the_gradient_of_a_custom_op_names_the_option(command: Any, write: Any) -> None:
    text = """
        x = Placeholder() {dtype=float32, shape=[]}
        y = IdentityN(x) {T=(float32), _gradient_op_type="CustomGradient-1"}
    """
    done = command("grad", write(text), "--ys", "y", "--xs", "x", "-o", "-")
    assert "--ignore-custom" in done.err


def test_a_dead_fetch_names_the_merge_that_joins_its_branch_if_there_is_one(
    command: Any, write: Any
) -> None:
    text = """
        p = Placeholder() {dtype=bool, shape=[]}
        x = Placeholder() {dtype=float32, shape=[]}
        s = Switch(x, p)
        a = Neg(s:0)
        b = Exp(s:1)
        joined = Merge(a, b)
        alone = Sqrt(b)
    """
    line = ("run", write(text), "--feed", "p=false", "--feed", "x=1", "--fetch")
    assert "fetch joined:0, which joins the branches, or feed" in command(*line, "b").err
    err = command(*line, "alone").err
    assert "Merge" not in err
    assert "feed the predicate differently" in err


def test_lower_prints_the_names_of_a_signature(
    command: Any, fixtures: Path, tmp_path: Path
) -> None:
    model, out = fixtures / "saved_model_tables", tmp_path / "l.pb"
    done = command("lower", model, "--signature", "scale", "-o", out)
    assert done.code == 0, done.err
    assert "in the signature scale, y is StatefulPartitionedCall:0, x is scale_x:0" in done.err
    assert command("lower", model, "--signature", "none", "-o", out).code == 2


def test_by_products_of_a_function_are_not_fetched_by_default(command: Any, write: Any) -> None:
    text = """
        x = Placeholder() {dtype=float32, shape=[]}
        range = Neg(x)
        while = IdentityN(x, x) {T=(float32, float32)}
        Identity = Exp(x)
        Identity_1 = Sqrt(x)
    """
    done = command("run", write(text), "--feed", "x=1")
    assert [line.split()[0] for line in done.out.splitlines()] == ["Identity:0", "Identity_1:0"]
    assert "nothing reads range:0, while:0, while:1" in done.err


def test_a_pattern_without_matches_gets_similar_names(command: Any, write: Any) -> None:
    text = "x = Placeholder() {dtype=float32, shape=[]}\n"
    text += "loop/cell/mul = Neg(x)\nloop/cell/mul_1 = Neg(x)\nloop/cell/mul_2 = Neg(x)\n"
    done = command("run", write(text), "--feed", "x=1", "--tap", "*mul_3*")
    assert "did you mean 'mul_" in done.err


def test_a_name_of_a_signature_suggests_all_inputs_made_for_it(command: Any, write: Any) -> None:
    text = """
        serve_keras_tensor = Placeholder() {dtype=float32, shape=[]}
        serving_default_keras_tensor = Placeholder() {dtype=float32, shape=[]}
        y = Neg(serving_default_keras_tensor)
    """
    done = command("run", write(text), "--feed", "keras_tensor=1")
    assert "'serve_keras_tensor' or 'serving_default_keras_tensor'" in done.err
    assert "--variables SAVED_MODEL" in done.err


def test_an_unknown_op_names_the_option_that_declares_it(command: Any, write: Any) -> None:
    graph = write("x = Placeholder() {dtype=float32, shape=[]}\ny = MyCustomOp(x)\nz = Neg(y)\n")
    assert "--op-def FILE" in command("check", graph).out
    assert "--op-def FILE" in command("run", graph, "--feed", "x=1", "--fetch", "z").err
    misspelled = write("x = Placeholder() {dtype=float32, shape=[]}\ny = Sigmiod(x)\n")
    assert "did you mean 'Sigmoid'?" in command("check", misspelled).out


def test_a_large_generated_feed_names_the_limit_and_the_way_out(command: Any, write: Any) -> None:
    graph = write("x = Placeholder() {dtype=float32}\ny = Neg(x)\n")
    done = command("run", graph, "--feed", "x=f32[1000000000,28,28,1]:zeros")
    assert "2 GiB, the limit of generated values" in done.err
    assert "@x.npy" in done.err


def test_a_file_that_is_no_archive_of_feeds_names_those_that_are(
    command: Any, write: Any, tmp_path: Path
) -> None:
    (tmp_path / "build.py").write_text("print(1)\n")
    graph = write("x = Placeholder() {dtype=float32}\ny = Neg(x)\n")
    done = command("run", graph, "--feeds", tmp_path / "build.py")
    assert "File is not a zip file" not in done.err
    assert ".npz" in done.err
    assert ".json" in done.err


@pytest.mark.parametrize("value", ["yes", 1, b"yes", None, [True]])
def test_an_attribute_of_another_kind_is_rejected_where_it_is_set(value: Any) -> None:
    graph = cfgraph.loads(b"x = Placeholder() {dtype=float32, shape=[2,2]}\ny = MatMul(x, x)\n")
    with pytest.raises(InvalidInput, match="MatMul expects bool") as caught:
        graph.set_attr(graph["y"], "transpose_a", value)
    assert caught.value.code == "CFG113"
    graph.set_attr(graph["y"], "transpose_a", True)
    graph.set_attr(graph["y"], "_note", "any")
    (y,) = cfgraph.Session(graph).run(["y"], {"x": np.eye(2, dtype=np.float32)})
    assert y.tolist() == [[1, 0], [0, 1]]


def test_the_tour_begins_without_a_note_on_what_to_read(root: Path, tmp_path: Path) -> None:
    import subprocess
    import sys

    script = (
        f"import sys; sys.path.insert(0, 'docs'); import demo; demo.main({str(tmp_path)!r}, ())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""


def test_results_of_a_function_are_the_first_outputs_that_are_shown(
    command: Any, write: Any
) -> None:
    text = """
        x = Placeholder() {dtype=float32, shape=[]}
        range = Neg(x)
        Identity = Exp(x)
    """
    shown = command("show", write(text)).out
    assert shown.index("Identity:0") < shown.index("range:0")
