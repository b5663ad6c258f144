"""Verdicts of `diff --run` and `--verify` on files that name the same things differently."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

MODEL = """
x = Placeholder() {dtype=float32, shape=[?,2]}
w = VarHandleOp() {dtype=float32, shape=[2,2], shared_name="w"}
read = ReadVariableOp(w) {dtype=float32}
y = MatMul(x, read)
"""


@pytest.fixture(scope="module")
def verdicts(fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of the exports."""
    folder = tmp_path_factory.mktemp("verdicts")
    for path in (fixtures / "verdicts").glob("*.zip"):
        if path.name != "pairs.zip":
            shutil.unpack_archive(path, folder)
    return folder


@pytest.fixture
def without_variables(verdicts: Path, tmp_path: Path) -> Path:
    """The graph of a SavedModel without its variables."""
    return Path(
        shutil.copy(verdicts / "lstm_retrained" / "saved_model.pb", tmp_path / "retrained.pb")
    )


def text(path: Path, content: str) -> Path:
    path.write_text(content)
    return path


def test_retrained_weights_are_a_difference(command: Any, verdicts: Path) -> None:
    done = command("diff", verdicts / "lstm", verdicts / "lstm_retrained", "--run")
    assert done.code == 1
    assert "sequential/dense/kernel_1: 16 of 16 elements differ" in done.out


@pytest.mark.parametrize("options", [(), ("--fetch", "output_0"), ("--signature", "serve")])
def test_inputs_of_two_exports_are_paired_by_type_and_shape(
    options: Any, command: Any, verdicts: Path
) -> None:
    done = command("diff", verdicts / "t1", verdicts / "t2", "--run", *options)
    assert (done.code, done.lines) == (
        0,
        [
            "note: input paired by type and shape: keras_tensor is keras_tensor_4 in B",
            "no differences: 1 fetch agrees in 4 cases",
        ],
    )


def test_the_output_of_a_frozen_graph_is_paired_by_type_and_shape(
    command: Any, verdicts: Path, tmp_path: Path
) -> None:
    # a frozen function has names of its own for input and output
    names = {
        "StatefulPartitionedCall_1/": "",
        "serving_default_": "",
        "StatefulPartitionedCall_1": "logits",
    }
    model, frozen = verdicts / "t1", tmp_path / "frozen.graph"
    assert command("freeze", model, "-o", frozen).code == 0
    content = frozen.read_text()
    for old, new in names.items():
        content = content.replace(old, new)
    frozen.write_text(content)
    for pair, names_text in (
        ((model, frozen), "output_0 is logits"),
        ((frozen, model), "logits is output_0"),
        ((frozen, verdicts / "t2"), "logits is output_0"),
    ):
        done = command("diff", *pair, "--run", "--json")
        notes = [item["message"] for item in done.json["findings"]]
        assert (done.code, done.json["result"]["runs"]["equal"]) == (0, True), done.err
        assert f"output paired by type and shape: {names_text} in B" in notes
    frozen.write_text(content.replace("[0.0,0.0]", "[0.0,0.5]"))
    assert command("diff", model, frozen, "--run").code == 1


def test_outputs_of_one_type_are_not_paired(command: Any, tmp_path: Path) -> None:
    content = "x = Placeholder() {dtype=float32, shape=[2]}\ny = Neg(x)\nz = Abs(x)\n"
    first = text(tmp_path / "a.graph", content)
    second = text(tmp_path / "b.graph", content.replace("y =", "u =").replace("z =", "v ="))
    done = command("diff", first, second, "--run")
    assert (done.code, "no outputs in common: B lacks y:0, z:0" in done.err) == (2, True)
    done = command(
        "diff", second, text(tmp_path / "c.graph", content + "u = Neg(y)\nw = Neg(x)\n"), "--run"
    )
    assert (done.code, "hint: --fetch NAME=NAME_B" in done.out) == (1, True)
    for other, code in (("u", 0), ("v:0", 1)):
        done = command("diff", first, second, "--run", "--fetch", f"y={other}")
        assert done.code == code, done.err
    repeated = "--fetch", "y=u", "--fetch", "y:0=v"
    done = command("diff", first, second, "--run", *repeated)
    assert (done.code, "y:0 has two counterparts: u:0 and v:0" in done.err) == (2, True)
    done = command("diff", first, second, "--run", "--fetch", "y=w")
    assert (done.code, "no node 'w'" in done.err) == (2, True)
    assert command("record", first, "-o", tmp_path / "golden.npz").code == 0
    done = command("diff", second, tmp_path / "golden.npz")
    assert (done.code, "--fetch y:0=OUTPUT" in done.err) == (2, True)
    for other, code in (("u", 0), ("v", 1)):
        golden = "--fetch", f"y:0={other}"
        assert command("diff", second, tmp_path / "golden.npz", *golden).code == code
    repeated = "--fetch", "y:0=u", "--fetch", "y:0=v"
    assert command("diff", second, tmp_path / "golden.npz", *repeated).code == 2


def test_a_node_that_one_export_does_not_need_is_not_where_they_diverge(
    command: Any, tmp_path: Path
) -> None:
    content = "x = Placeholder() {dtype=float32, shape=[2]}\ninit = NoOp()\ny = Neg(x)\n"
    first = text(tmp_path / "a.graph", content)
    second = text(tmp_path / "b.graph", content.replace("y = Neg(x)", "z = Abs(x, ^init)"))
    done = command("diff", first, second, "--run")
    assert (done.code, "no earlier node that both graphs contain" in done.out) == (1, True)


def test_a_feed_by_the_name_of_either_side_feeds_both(command: Any, verdicts: Path) -> None:
    pair = verdicts / "t1", verdicts / "t2"
    for name in ("keras_tensor", "keras_tensor_4"):
        feed = f"{name}=f32[1,6,4]:normal"
        done = command("diff", *pair, "--run", "--feed", feed, "--json")
        assert (done.code, done.json["result"]["runs"]["equal"]) == (0, True), done.err


def test_a_feed_that_no_side_knows_is_an_error(command: Any, verdicts: Path) -> None:
    pair = verdicts / "t1", verdicts / "t2"
    done = command("diff", *pair, "--run", "--feed", "keras_tensor_9=f32[1,6,4]:zeros")
    assert done.code == 2
    assert "feed keras_tensor_9: no node 'keras_tensor_9'" in done.err


def test_the_outputs_of_the_signature_are_compared_by_default(command: Any, verdicts: Path) -> None:
    done = command("diff", verdicts / "u1", verdicts / "u2", "--run", "--json")
    assert done.code == 0
    runs = done.json["result"]["runs"]
    assert runs["fetches"] == ["StatefulPartitionedCall_1:0"]
    assert (runs["not_in_b"], runs["warnings"]) == ([], [])


def test_a_graph_without_signatures_has_those_of_the_other(
    command: Any, verdicts: Path, tmp_path: Path
) -> None:
    lowered, model = tmp_path / "lowered.pb", verdicts / "u1"
    command("lower", model, "-o", lowered)
    for pair in ((model, lowered), (lowered, model)):
        done = command("diff", *pair, "--run", "--json")
        assert done.code == 0
        assert done.json["result"]["runs"]["fetches"] == ["StatefulPartitionedCall_1:0"]


WARNING = "B has no values of its own for 5 variables, sequential/dense/bias_1, "


def test_variables_of_the_other_graph_are_a_warning_in_every_format(
    command: Any, verdicts: Path, without_variables: Path
) -> None:
    pair = verdicts / "lstm", without_variables, "--run"
    plain = command("diff", *pair)
    assert plain.code == 0
    assert plain.lines[0].startswith(f"warning: {WARNING}")
    document = command("diff", *pair, "--json").json
    assert document["exit_code"] == 0
    assert document["result"]["runs"]["warnings"][0].startswith(WARNING)
    assert [item["code"] for item in document["findings"]] == ["CFG807"]
    outputs = {
        name: command("diff", *pair, "--format", name).out.replace("\\", "")
        for name in ("markdown", "github", "sarif", "junit")
    }
    assert [name for name, out in outputs.items() if WARNING not in out] == []
    assert "no differences" not in outputs["markdown"]
    assert outputs["github"].startswith("::warning ")
    assert json.loads(outputs["sarif"])["runs"][0]["results"][0]["level"] == "warning"
    assert ElementTree.fromstring(outputs["junit"]).get("failures") == "0"


def test_variables_that_only_the_second_graph_has_are_a_warning_too(
    command: Any, verdicts: Path, without_variables: Path
) -> None:
    done = command("diff", without_variables, verdicts / "lstm", "--run")
    assert done.code == 0
    assert "warning: A has no values of its own for 5 variables" in done.out


def test_variables_that_the_options_name_are_no_warning(
    command: Any, verdicts: Path, without_variables: Path
) -> None:
    pair = verdicts / "lstm", without_variables
    both = command("diff", *pair, "--run", "--variables", verdicts / "lstm")
    assert (both.code, both.out) == (0, "no differences: 1 fetch agrees in 4 cases\n")
    own = command("diff", *pair, "--run", "--variables-b", verdicts / "lstm_retrained")
    assert (own.code, "warning" in own.out) == (1, False)


def test_a_graph_that_reads_no_variables_is_no_warning(
    command: Any, verdicts: Path, tmp_path: Path
) -> None:
    frozen = tmp_path / "frozen.pb"
    model = verdicts / "lstm"
    assert command("freeze", model, "--fetch", "output_0", "-o", frozen).code == 0
    for pair in ((model, frozen), (frozen, model)):
        done = command("diff", *pair, "--run", "--fetch", "StatefulPartitionedCall_1:0")
        assert (done.code, done.out) == (0, "no differences: 1 fetch agrees in 4 cases\n")


def test_an_input_without_a_counterpart_is_an_error_if_the_fetches_need_it(
    command: Any, tmp_path: Path
) -> None:
    more = "scale = Placeholder() {dtype=float32, shape=[2]}\nz = Mul(y, scale)\n"
    a, b = text(tmp_path / "a.graph", MODEL), text(tmp_path / "b.graph", MODEL + more)
    agrees = command("diff", a, b, "--run", "--fetch", "y")
    assert agrees.code == 0, agrees.err
    scaled = MODEL.replace("y = ", "product = ") + more.replace("y,", "product,")
    changed = text(tmp_path / "c.graph", scaled.replace("z = ", "y = "))
    for pair, where in (((a, changed), "of B has no counterpart in A"), ((changed, a), "of A has")):
        done = command("diff", *pair, "--run", "--fetch", "y")
        assert done.code == 2
        assert f"input scale:0 (float32[2]) {where}" in done.err
        assert "--feed 'scale=f32[2]:uniform(-1,1)'" in done.err
    fed = command("diff", a, changed, "--run", "--fetch", "y", "--feed", "scale=[1,1]")
    assert fed.code == 0, fed.err


DIFFERENCE = """
FIRST = Placeholder() {dtype=float32, shape=[]}
SECOND = Placeholder() {dtype=float32, shape=[]}
y = Sub(FIRST, SECOND)
"""


def test_two_inputs_of_one_type_without_namesakes_are_not_guessed(
    command: Any, tmp_path: Path
) -> None:
    a = text(tmp_path / "a.graph", DIFFERENCE.replace("FIRST", "p").replace("SECOND", "q"))
    b = text(tmp_path / "b.graph", DIFFERENCE.replace("FIRST", "s").replace("SECOND", "t"))
    done = command("diff", a, b, "--run")
    assert done.code == 2
    assert "inputs p:0 (float32[]), q:0 (float32[]) of A have no counterpart in B" in done.err
    assert "feed equal values to both: --feed NAME=@x.npy" in done.err


def test_variables_with_other_names_and_no_values_are_paired(command: Any, tmp_path: Path) -> None:
    a = text(tmp_path / "a.graph", MODEL)
    b = text(tmp_path / "b.graph", MODEL.replace('"w"', '"v"').replace("w =", "v ="))
    text(b, b.read_text().replace("(w)", "(v)"))
    done = command("diff", a, b, "--run")
    assert (done.code, done.lines) == (
        0,
        [
            "note: variable paired by type and shape: w is v in B",
            "no differences: 1 fetch agrees in 4 cases",
        ],
    )


def test_a_fetch_without_a_value_in_both_graphs_agrees(command: Any, fixtures: Path) -> None:
    file = fixtures / "verdicts" / "fetch_without_value.pb.gz"
    feeds = "--feed", "use_next=false", "--feed", "numbers=[3,4]"
    done = command("diff", file, file, "--run", *feeds)
    agrees = "no differences: 9 fetches agree in 4 cases; 4 of them have no value in either graph\n"
    assert (done.code, done.out) == (0, agrees)
    runs = command("diff", file, file, "--run", *feeds, "--json").json["result"]["runs"]
    assert "cond/gradients/b_count_3:0" in runs["no_value"]
    assert "out:0" not in runs["no_value"]


@pytest.mark.parametrize("verb", ["optimize", "cluster", "lower", "functionalize"])
def test_a_fetch_without_a_value_is_verified(
    verb: str, command: Any, fixtures: Path, tmp_path: Path
) -> None:
    file = fixtures / "verdicts" / "fetch_without_value.pb.gz"
    done = command(verb, file, "--verify", "-o", tmp_path / "o.pb")
    assert (done.code, (tmp_path / "o.pb").exists()) == (0, True), done.err


def test_a_value_that_only_one_graph_has_is_a_difference(command: Any, tmp_path: Path) -> None:
    never = (
        "x = Const() {dtype=float32, value=float32[]:1}\n"
        "p = Const() {dtype=bool, value=bool[]:false}\n"
        "s = Switch(x, p)\nm = Identity(s:1)\ny = Identity(m)\nz = Identity(x)\n"
    )
    a = text(tmp_path / "a.graph", never)
    b = text(tmp_path / "b.graph", never.replace("s:1", "s"))
    done = command("diff", a, b, "--run", "--fetch", "y", "--fetch", "z")
    assert (done.code, "y:0: dead in A, live in B" in done.out) == (1, True)


@pytest.mark.parametrize("option", [("--fetch", "y"), ("--target", "y")])
def test_a_node_that_only_the_first_graph_has_is_a_difference(
    option: Any, command: Any, tmp_path: Path
) -> None:
    a = text(tmp_path / "a.graph", MODEL)
    b = text(tmp_path / "b.graph", MODEL.replace("y = ", "z = "))
    done = command("diff", a, b, "--run", *option)
    assert (done.code, "missing in B" in done.out) == (1, True)


NOISE = """
x = Placeholder() {dtype=float32, shape=[8]}
y = PartitionedCall(x) {Tin=(float32), Tout=(float32), f=@noisy}
function noisy(x: float32) -> (y: float32) {
  size = Const() {dtype=int32, value=int32[1]:[8]}
  first = RandomUniform(size) {T=int32, dtype=float32, seed=1, seed2=2}
  second = RandomUniform(size) {T=int32, dtype=float32, seed=1, seed2=3}
  noise = AddV2(first, second)
  y = Mul(x, noise)
  return y
}
"""


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"first": "third"}, 0),
        ({"@noisy": "@other", "noisy(": "other("}, 0),
        ({"y = P": "z = P", "first": "third", "second": "fourth"}, 0),
        ({"seed2=3": "seed2=4"}, 1),
        ({"seed2=3": "seed2=4", "second": "fourth"}, 1),
        ({"first": "third", "AddV2": "Sub"}, 1),
    ],
)
def test_random_numbers_of_renamed_ops_are_those_of_their_seeds(
    changes: dict[str, str], status: int, command: Any, tmp_path: Path
) -> None:
    renamed = NOISE
    for old, new in changes.items():
        renamed = renamed.replace(old, new)
    a = text(tmp_path / "a.graph", NOISE + "out = Identity(y)\n")
    last = "out = Identity(z)\n" if "z = P" in renamed else "out = Identity(y)\n"
    b = text(tmp_path / "b.graph", renamed + last)
    assert command("diff", a, b, "--run", "--fetch", "out").code == status


def test_random_ops_that_cannot_be_told_apart_are_not_compared(
    command: Any, tmp_path: Path
) -> None:
    noise = NOISE.replace("seed2=3", "seed2=2")
    a = text(tmp_path / "a.graph", noise)
    b = text(tmp_path / "b.graph", noise.replace("first", "third").replace("second", "fourth"))
    done = command("diff", a, b, "--run", "--fetch", "y")
    assert (done.code, "error[CFG810]: nothing is compared" in done.err) == (2, True)
    more = "z = Neg(x)\n"
    for file in (a, b):
        text(file, file.read_text() + more)
    done = command("diff", a, b, "--run", "--fetch", "y", "--fetch", "z")
    assert (done.code, done.lines[0][:18]) == (0, "not compared: y:0;")


ROWS = """
ids = Placeholder() {dtype=int32, shape=[3]}
rows = Const() {dtype=float32, value=float32[8,1]:[[1],[2],[3],[4],[5],[6],[7],[8]]}
unused = Const() {dtype=float32, value=float32[]:1}
axis = Const() {dtype=int32, value=int32[]:0}
y = GatherV2(rows, ids, axis)
"""


def test_a_constant_that_the_inputs_do_not_reach_is_a_difference(
    command: Any, tmp_path: Path
) -> None:
    a = text(tmp_path / "a.graph", ROWS)
    b = text(tmp_path / "b.graph", ROWS.replace("[8]]", "[9]]"))
    done = command("diff", a, b, "--run", "--fetch", "y")
    assert (done.code, done.lines[0], done.lines[-1]) == (
        1,
        "constant rows: 1 of 8 elements differ, the first at [7, 0]: 8.0 and 9.0; "
        "largest difference 1, relative 0.125",
        "everything else agrees: 1 fetch agrees in 4 cases",
    )
    c = text(tmp_path / "c.graph", ROWS.replace("float32[]:1", "float32[]:2"))
    assert command("diff", a, c, "--run", "--fetch", "y").code == 0


@pytest.mark.parametrize("report", [(), ("--format", "markdown"), ("--json",)])
def test_a_difference_of_many_elements_has_values_in_each_report(
    report: tuple[str, ...], command: Any, tmp_path: Path
) -> None:
    model = "x = Placeholder() {dtype=float32, shape=[4,4]}\ny = AddV2(x, c)\n"
    one, two = (f"{model}c = Const() {{dtype=float32, value=float32[]:{c}}}\n" for c in (1, 2))
    a, b = text(tmp_path / "a.graph", one), text(tmp_path / "b.graph", two)
    feeds = ("--feed", "x=float32[4,4]:zeros")
    done = command("diff", a, b, "--run", "--fetch", "y", *feeds, *report)
    assert done.code == 1
    message = "16 of 16 elements differ, the first at [0, 0]: 1.0 and 2.0; largest difference 1, "
    assert message in done.out.replace("\\", ""), done.out
    assert "relative 1" in done.out


def test_a_constant_of_a_function_is_compared_too(command: Any, tmp_path: Path) -> None:
    body = ROWS.replace("ids = Placeholder() {dtype=int32, shape=[3]}\n", "")
    function = f"function f(ids: int32) -> (y: float32) {{{body}return y\n}}\n"
    call = "ids = Placeholder() {dtype=int32, shape=[3]}\n"
    call += "out = PartitionedCall(ids) {Tin=(int32), Tout=(float32), f=@f}\n"
    a = text(tmp_path / "a.graph", call + function)
    b = text(tmp_path / "b.graph", (call + function).replace("[8]]", "[9]]"))
    done = command("diff", a, b, "--run")
    assert (done.code, "constant rows: 1 of 8 elements differ" in done.out) == (1, True), done.err


def test_a_constant_that_a_rewrite_scales_is_no_difference(command: Any, tmp_path: Path) -> None:
    a = text(tmp_path / "a.graph", ROWS)
    rows = "[[1],[2],[3],[4],[5],[6],[7],[8]]"
    doubled = ROWS.replace(rows, "[[2],[4],[6],[8],[10],[12],[14],[16]]")
    half = "half = Const() {dtype=float32, value=float32[]:0.5}\ny = Mul(v, half)\n"
    b = text(tmp_path / "b.graph", doubled.replace("y =", "v =") + half)
    assert command("diff", a, b, "--run", "--fetch", "y").code == 0


IGNORING = """
x = Placeholder() {dtype=float32, shape=[2]}
call = PartitionedCall(x) {Tin=(float32), Tout=(float32), f=@square}
y = Identity(call)

function square(x: float32) -> (y: float32) {
  product = Square(x)
  return y = product:y:0
}
"""
MORE = """
extra = Placeholder() {dtype=float32, shape=[2]}
image = Placeholder() {dtype=float32, shape=[2]}
call = PartitionedCall(image, extra) {Tin=(float32, float32), Tout=(float32), f=@square}
y = Identity(call)

function square(x: float32, extra: float32) -> (y: float32) {
  product = Square(x)
  return y = product:y:0
}
"""


def test_an_input_that_a_function_ignores_needs_no_counterpart(
    command: Any, tmp_path: Path
) -> None:
    a, b = text(tmp_path / "a.graph", IGNORING), text(tmp_path / "b.graph", MORE)
    for pair in ((a, b), (b, a)):
        done = command("diff", *pair, "--run", "--fetch", "y")
        assert done.code == 0, done.err
        assert "paired by type and shape" in done.out
