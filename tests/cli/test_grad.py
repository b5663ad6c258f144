"""`cfgraph grad`: added, piped, checked, and rejected gradients, and their report."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import cfgraph
from cfgraph.ops.opdef.op import lookup

LINE = """
x = Placeholder() {dtype=float32, shape=[2]}
w = Placeholder() {dtype=float32, shape=[2]}
n = Placeholder() {dtype=int32, shape=[]}
y = Mul(x, w)
loss = Square(y)
z = StopGradient(w)
other = Neg(z)
"""


@pytest.fixture
def line(tmp_path: Path) -> Path:
    """A straight line: (x * w)^2."""
    path = tmp_path / "line.graph"
    path.write_text(LINE)
    return path


@pytest.fixture
def power(tmp_path: Path) -> Path:
    """The loop `while v < 100: v = v * w`, in functional form."""
    b = cfgraph.Builder()
    x, w = b.placeholder("x", "float32", []), b.placeholder("w", "float32", [])
    b.Identity(b.while_loop(lambda v: v < 100.0, lambda v: v * w, x), name="y")
    cfgraph.save(b.graph, tmp_path / "power.pb")
    return tmp_path / "power.pb"


FEEDS = ("--feed", "x=2", "--feed", "w=3")


def value(done: Any) -> Any:
    return json.loads(done.out.split()[-1])


def rows(text: str) -> dict[str, list[str]]:
    return {row[0]: row[1:] for row in map(str.split, text.splitlines()) if row}


def test_gradients_of_a_loop_go_through_a_pipe(command: Any, power: Path) -> None:
    lowered = command("lower", power, "-q")
    made = command("grad", "-", "--ys", "y", "--xs", "x,w", stdin=lowered.data)
    assert made.code == 0
    for x, want in (("x", 81.0), ("w", 216.0)):
        done = command("run", "-", *FEEDS, "--fetch", f"gradients/{x}", stdin=made.data)
        assert (done.code, value(done)) == (0, want)


def test_a_functional_graph_is_lowered_on_the_way(command: Any, power: Path) -> None:
    made = command("grad", power, "--ys", "y", "--xs", "w")
    done = command("run", "-", *FEEDS, "--fetch", "gradients/w", stdin=made.data)
    assert value(done) == 216.0


def test_stderr_reports_gradients_types_and_what_was_added(command: Any, power: Path) -> None:
    done = command("grad", power, "--ys", "y", "--xs", "w")
    assert "1 value saved per iteration, 1 loop" in done.err
    assert rows(done.err)["w:0"] == ["gradients/w:0", "float32[]"]
    assert command("grad", power, "--ys", "y", "-q").err == ""


def test_lists_may_have_commas_ports_or_repeat(command: Any, line: Path) -> None:
    one = command("grad", line, "--ys", "loss", "--xs", "x,w")
    two = command("grad", line, "--ys", "loss:0", "--xs", "x:0", "--xs", " w ")
    assert one.code == two.code == 0
    assert one.data == two.data


def test_without_xs_variables_and_float_inputs_are_taken(command: Any, line: Path) -> None:
    done = command("grad", line, "--ys", "loss")
    assert set(rows(done.err)) == {"gradients", "x", "x:0", "w:0"}
    assert "warning" not in done.err


@pytest.mark.parametrize(
    ("weight", "want"),
    [("[1,10]", [12.0, 160.0]), ("w", [72.0, 32.0]), ("@dy.npy", [24.0, 32.0])],
)
def test_weights_are_tensors_or_values(
    weight: str,
    want: list[float],
    command: Any,
    line: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import numpy as np

    monkeypatch.chdir(tmp_path)
    np.save("dy.npy", np.array([2, 2], np.float32))
    made = command("grad", line, "--ys", "loss", "--xs", "w", "--grad-ys", weight)
    assert made.code == 0, made.err
    feeds = ("--feed", "x=[1, 2]", "--feed", "w=[6, 2]")
    done = command("run", "-", *feeds, "--fetch", "gradients/w", "--json", stdin=made.data)
    assert done.json["result"]["values"][0]["data"] == want


def test_several_weights_have_commas_between_them(command: Any, line: Path) -> None:
    done = command("grad", line, "--ys", "loss,y", "--xs", "x", "--grad-ys", "[1,2],w")
    assert done.code == 0
    done = command("grad", line, "--ys", "loss,y", "--xs", "x", "--grad-ys", "[1,2]")
    assert (done.code, "1 upstream gradients (--grad-ys) for 2 ys" in done.err) == (2, True)


@pytest.mark.parametrize("weight", ["nothing", "[1,2,3", "@none.npy", "[[1,2],[3]]"])
def test_a_weight_that_is_none_is_refused(weight: str, command: Any, line: Path) -> None:
    done = command("grad", line, "--ys", "loss", "--xs", "x", "--grad-ys", weight)
    assert done.code in (2, 3)
    assert done.data == b""


def test_gradients_stop_where_they_are_reported_to(command: Any, line: Path) -> None:
    done = command("grad", line, "--ys", "loss", "--xs", "w,y", "--stop", "y")
    assert "warning: no gradient with respect to w:0: y (Mul) stops gradients" in done.err
    assert rows(done.err)["y:0"] == ["gradients/y:0", "float32[2]"]


def test_an_x_without_a_gradient_is_warned_of_with_the_reason(command: Any, line: Path) -> None:
    done = command("grad", line, "--ys", "loss,other", "--xs", "n,x")
    assert done.code == 0
    assert (
        "warning: no gradient with respect to n:0: n:0 has dtype int32, which has no gradient"
        in done.err
    )
    done = command("grad", line, "--ys", "other", "--xs", "x,w")
    assert "warning: no gradient with respect to x:0: no path leads to other:0" in done.err
    assert "warning: no gradient with respect to w:0: z (StopGradient) stops gradients" in done.err
    assert "warning: no x has a gradient: nothing is written" in done.err
    assert (done.code, done.data) == (1, b"")


def test_without_any_gradient_nothing_is_written(command: Any, line: Path, tmp_path: Path) -> None:
    options = ["grad", line, "--ys", "other", "--xs", "x", "-o", tmp_path / "out.pb"]
    checked = command(*options, "--check", "--feed", "x=[1, 2]")
    assert (checked.code, "nothing could be compared" in checked.err) == (1, True)
    done = command(*options, "--json")
    assert (done.code, done.json["result"]["gradients"][0]["gradient"]) == (1, None)
    assert not (tmp_path / "out.pb").exists()


def test_default_xs_are_named_if_none_has_a_gradient(command: Any, line: Path) -> None:
    done = command("grad", line, "--ys", "other")
    assert done.code == 1
    assert "warning: no gradient with respect to x:0: no path leads to other:0" in done.err


def test_an_x_without_a_gradient_may_get_zeros(command: Any, line: Path) -> None:
    made = command("grad", line, "--ys", "other", "--xs", "x", "--unconnected", "zero")
    assert "warning" not in made.err
    done = command("run", "-", "--feed", "x=[1, 2]", "--fetch", "gradients/x", stdin=made.data)
    assert done.out.split()[-2:] == ["[0.0,", "0.0]"]


def test_the_second_order_sums_the_first_and_names_both(
    command: Any, line: Path, tmp_path: Path
) -> None:
    files = ("-o", tmp_path / "out.pb", "--map-out", tmp_path / "map.json")
    done = command("grad", line, "--ys", "loss", "--xs", "x,w", "--order", "2", *files)
    assert done.code == 0, done.err
    assert json.loads((tmp_path / "map.json").read_text()) == {
        "x:0": ["gradients/x:0", "gradients_1/x:0"],
        "w:0": ["gradients/w:0", "gradients_1/w:0"],
    }
    graph = cfgraph.load(tmp_path / "out.pb")
    feeds = {"x": [1, 2], "w": [3, 5]}
    (second,) = cfgraph.Session(graph).run(["gradients_1/x"], feeds)
    # of the sum of 2 x w^2 and 2 x^2 w by x
    assert second.tolist() == [2 * 9 + 4 * 3, 2 * 25 + 4 * 2 * 5]


def test_pushes_are_marked_to_be_swapped(command: Any, power: Path) -> None:
    done = command("grad", power, "--ys", "y", "--xs", "w", "--swap-memory")
    pushes = [node for node in cfgraph.loads(done.data) if node.op == "StackPushV2"]
    assert [node.attr("swap_memory") for node in pushes] == [True]


def test_json_says_it_all(command: Any, line: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.pb"
    done = command("grad", line, "--ys", "loss", "--xs", "x,n", "-o", out, "--json", "-q")
    reported = done.json
    assert (done.code, done.err) == (0, "")
    assert reported["schema"] == "cfgraph.grad/1"
    assert reported["inputs"][0]["nodes"] == 7
    assert reported["summary"]["loops"] == reported["summary"]["accumulators"] == 0
    assert reported["summary"]["nodes"] == len(cfgraph.load(out)) - 7
    first, second = reported["result"]["gradients"]
    assert first == {
        "order": 1,
        "y": "",
        "x": "x:0",
        "gradient": "gradients/x:0",
        "type": "float32[2]",
        "cut": None,
    }
    assert (second["gradient"], second["cut"]["kind"]) == (None, "type")
    assert reported["result"]["check"] is None
    assert reported["artifacts"][0]["path"] == str(out)


# -- finite differences ----------------------------------------------------------------------------


def test_gradients_that_agree_with_finite_differences_are_written(
    command: Any, power: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.pb"
    done = command("grad", power, "--ys", "y", "--check", *FEEDS, "-o", out)
    assert done.code == 0, done.err
    assert "finite differences  agree" in done.err
    assert rows(done.err)["w:0"][-2:] == ["216", "216"]
    assert cfgraph.load(out)["x"].attr("dtype").name == "float32"


def test_the_comparison_fits_a_terminal(
    command: Any, power: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    done = command("grad", power, "--ys", "y", "--check", *FEEDS, "-o", "/dev/null", terminal=True)
    *_, heading, x, w = done.err.splitlines()
    names = "x checked max abs max rel at gradient numeric"
    assert re.sub("\x1b[^m]*m", "", heading).split() == names.split()
    assert (x.split()[0], w.split()[0], w.split()[-2:]) == ("x:0", "w:0", ["216", "216"])
    assert max(map(len, [x, w])) <= 80


@pytest.fixture
def remembered(tmp_path: Path) -> Path:
    """x times a variable that x was assigned to: state has no gradient."""
    path = tmp_path / "state.graph"
    path.write_text("""
x = Placeholder() {dtype=float32, shape=[3]}
v = VarHandleOp() {dtype=float32, shape=[3], shared_name="v"}
set = AssignVariableOp(v, x)
read = ReadVariableOp(v, ^set) {dtype=float32}
y = Mul(read, x)
""")
    return path


def test_gradients_that_differ_leave_with_1_a_table_and_no_file(
    command: Any, remembered: Path, tmp_path: Path
) -> None:
    files = ("-o", tmp_path / "out.pb", "--map-out", tmp_path / "map.json")
    feed = ("--feed", "x=[0.5, 1.5, 2.5]")
    done = command("grad", remembered, "--ys", "y", "--xs", "x", "--check", *feed, *files, "--json")
    assert done.code == 1
    assert rows(done.err)["x:0"][0] == "no"
    reported = done.json
    assert (reported["status"], reported["exit_code"], reported["artifacts"]) == ("findings", 1, [])
    assert reported["result"]["check"][0]["agrees"] is False
    assert not (tmp_path / "out.pb").exists()
    assert not (tmp_path / "map.json").exists()


def test_a_looser_tolerance_may_let_them_agree(command: Any, remembered: Path) -> None:
    args = ("--ys", "y", "--xs", "x", "--check", "--feed", "x=[1, 2, 3]", "--rtol", "10")
    assert command("grad", remembered, *args).code == 0


def test_inputs_are_random_by_seed_and_case(command: Any, line: Path, tmp_path: Path) -> None:
    def check(*more: str) -> Any:
        out = ("-o", tmp_path / "out.pb", "--json")
        done = command("grad", line, "--ys", "loss", "--check", *more, *out)
        assert done.code == 0
        return done.json["result"]["check"]

    assert check() == check()
    assert check("--seed", "1") != check()
    assert check("--cases", "3")[0]["directions"] == 3 * check()[0]["directions"]


def test_each_order_is_compared(command: Any, line: Path) -> None:
    done = command("grad", line, "--ys", "loss", "--order", "2", "--check", "--feed", "x=[1,2]")
    assert done.code == 0, done.err
    assert "gradients_1/x:0" in done.err


def test_variables_are_initialized_for_a_check(command: Any, tmp_path: Path) -> None:
    (tmp_path / "v.graph").write_text("""
w = VarHandleOp() {dtype=float32, shape=[], shared_name="w"}
three = Const() {dtype=float32, value=float32[]:3}
init = AssignVariableOp(w, three)
read = ReadVariableOp(w) {dtype=float32}
y = Square(read)
""")
    args = ("grad", tmp_path / "v.graph", "--ys", "y", "--check")
    assert rows(command(*args, "--init", "init").err)["w:0"][-2:] == ["6", "6"]
    assert command(*args).code == 0


def test_a_check_on_a_terminal_writes_no_graph(command: Any, line: Path) -> None:
    done = command("grad", line, "--ys", "loss", "--check", terminal=True)
    assert (done.code, done.data) == (0, b"")


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "reported"),
    [
        ((), "outputs of the graph: loss:0, other:0"),
        (("--ys", "los"), "did you mean 'loss'?"),
        (("--ys", "loss", "--xs", "v"), "no node 'v'"),
        (("--ys", "loss:3"), "1 output, so output 3 does not exist"),
        (("--ys", "loss", "--unconnected", "ones"), "one of none, zero"),
        (("--ys", "loss", "--order", "0"), "order"),
        (("--ys", "loss", "--stop", "nix"), "no node 'nix'"),
        (("--ys", "loss", "--feed", "x=1"), "add --check"),
        (("--ys", "loss", "--seed", "1"), "add --check"),
        (("--ys", "loss", "--json"), "-o FILE"),
        (("--ys", "loss", "--check", "--feed", "q=1"), "no node 'q'"),
    ],
)
def test_wrong_usage_is_2(args: tuple[str, ...], reported: str, command: Any, line: Path) -> None:
    done = command("grad", line, *args)
    assert (done.code, reported in done.err + done.out) == (2, True), done.err


def test_graph_and_names_go_to_different_places(command: Any, line: Path, tmp_path: Path) -> None:
    place = tmp_path / "a"
    assert command("grad", line, "--ys", "loss", "-o", place, "--map-out", place).code == 2
    assert not place.exists()


def test_a_graph_without_floats_to_differentiate_by_is_2(command: Any, counter: Path) -> None:
    done = command("grad", counter, "--ys", "count")
    assert (done.code, "neither variables nor float inputs" in done.err) == (2, True)


def test_what_is_no_graph_is_3(command: Any, empty: Path) -> None:
    assert command("grad", empty, "--ys", "y").code == 3


def test_an_op_without_a_gradient_is_4_with_a_path_through_it(
    command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup("Exp"), "gradient", None)
    (tmp_path / "in.graph").write_text("""
x = Placeholder() {dtype=float32, shape=[]}
a = Neg(x)
e = Exp(a)
y = Square(e)
""")
    done = command("grad", tmp_path / "in.graph", "--ys", "y", "-o", tmp_path / "out.pb")
    assert done.code == 4
    reported = "error[CFG502]: Exp has no gradient; it is on the path x → a → e → y\n"
    assert done.err.startswith(reported)
    assert "at node 'e'" in done.err
    assert not (tmp_path / "out.pb").exists()


def test_a_gradient_that_is_not_in_the_file_is_4_unless_ignored(
    command: Any, tmp_path: Path
) -> None:
    (tmp_path / "in.graph").write_text("""
x = Placeholder() {dtype=float32, shape=[]}
a = IdentityN(x) {T=(float32), _gradient_op_type="CustomGradient-7"}
y = Square(a)
""")
    args = ("grad", tmp_path / "in.graph", "--ys", "y")
    done = command(*args)
    assert (done.code, "--ignore-custom" in done.err, "x → a → y" in done.err) == (
        4,
        True,
        True,
    )
    assert command(*args, "--ignore-custom").code == 0


def test_a_run_that_fails_in_a_check_is_5_with_a_hint_to_feed(command: Any, power: Path) -> None:
    args = ("--check", "--feed", "x=1", "--feed", "w=1", "--max-iterations", "50")
    done = command("grad", power, "--ys", "y", *args)
    assert done.code == 5


def test_a_partitioned_graph_is_4(command: Any, tmp_path: Path) -> None:
    (tmp_path / "in.graph").write_text("""
x = Placeholder() {dtype=float32, shape=[]} @"/device:CPU:0"
y = Square(x) @"/device:CPU:1"
""")
    cut = command("partition", tmp_path / "in.graph", "--devices", "cpu:0-1")
    done = command("grad", "-", "--ys", "y", "--xs", "x", stdin=cut.data)
    assert (done.code, "partitioned" in done.err) == (4, True)


def test_a_tensor_inside_a_loop_is_4_with_what_to_name_instead(command: Any, graphs: Path) -> None:
    done = command("grad", graphs / "lstm.pb", "--ys", "loss", "--xs", "lstm/concat")
    assert done.code == 4
    assert "lstm/concat:0 is inside the loop /lstm/while_context, and loss:0 is not" in done.err
    assert "its Exits" in done.err


def test_a_loop_that_runs_again_has_the_same_gradients(command: Any, power: Path) -> None:
    made = command("grad", power, "--ys", "y", "--xs", "x,w", "--recompute", "2", "--check", *FEEDS)
    assert made.code == 0
    for x, want in (("x", 81.0), ("w", 216.0)):
        done = command("run", "-", *FEEDS, "--fetch", f"gradients/{x}", stdin=made.data)
        assert (done.code, value(done)) == (0, want)


@pytest.mark.parametrize("text", ["0", "-1", "often", "1.5"])
def test_an_interval_must_be_a_number_of_iterations(command: Any, power: Path, text: str) -> None:
    done = command("grad", power, "--ys", "y", "--recompute", text)
    assert (done.code, done.data) == (2, b"")
    assert f"invalid --recompute {text!r}" in done.err


@pytest.mark.parametrize("options", [("--recompute", "auto"), ("--recompute", "2", "--order", "2")])
def test_a_loop_that_cannot_run_again_is_refused(
    command: Any, power: Path, options: tuple[str, ...]
) -> None:
    done = command("grad", power, "--ys", "y", "--xs", "w", *options)
    assert (done.code, done.data) == (4, b"")
    assert "hint:" in done.err


@pytest.mark.parametrize("x", ["x", "other"])
def test_a_check_that_compares_nothing_does_not_say_that_all_is_well(
    x: str, command: Any, tmp_path: Path
) -> None:
    (tmp_path / "dead.graph").write_text(
        "x = Placeholder() {dtype=float32, shape=[]}\n"
        "other = Placeholder() {dtype=float32, shape=[]}\n"
        "p = Placeholder() {dtype=bool, shape=[]}\n"
        "s = Switch(x, p)\ny = Neg(s:1)\n"
    )
    arguments = ("--ys", "y", "--xs", x, "--check", "--feed", "p=false", "-o", tmp_path / "o.pb")
    done = command("grad", tmp_path / "dead.graph", *arguments)
    assert done.code == 1
    assert "nothing could be compared; nothing was written" in done.err
    assert ("every y is dead" if x == "x" else "it has no gradient") in done.err
    assert not (tmp_path / "o.pb").exists()
    assert command("grad", tmp_path / "dead.graph", *arguments, "-q").err


def test_default_xs_that_nothing_leads_from_are_counted(command: Any, line: Path) -> None:
    done = command("grad", line, "--ys", "loss")
    assert "not connected" not in done.err
    done = command("grad", line, "--ys", "other", "--json", "-o", str(line.parent / "g.pb"))
    total = len(done.json["result"]["gradients"])
    hidden = [row for row in done.json["result"]["gradients"] if row["cut"]["kind"] == "none"]
    assert f"  {len(hidden)} of {total} variables and inputs" in done.err
    assert done.code == 1
    listed = command("grad", line, "--ys", "other", "--xs", hidden[0]["x"])
    assert "no path leads to other:0" in listed.err


def test_a_faulty_node_elsewhere_is_reported_for_every_order(command: Any) -> None:
    text = """
        x = Placeholder() {dtype=float32, shape=[]}
        y = While(x) {T=(float32), cond=@more, body=@same}
        index = Placeholder() {dtype=int32, shape=[]}
        sides = _SwitchN(index) {T=int32, num_outs=3}
        first = Identity(sides)

        function more(x: float32) -> (b: bool) {
          c = IsNan(x)
          return b = c:y:0
        }
        function same(x: float32) -> (y: float32) {
          return y = x
        }
    """
    for order in ("1", "2"):
        done = command("grad", "-", "--ys", "y", "--order", order, "-o", "-", stdin=text.encode())
        assert (done.code, "_SwitchN reads 2 inputs" in done.err) == (3, True)


SOFTMAX = """
x = Placeholder() {dtype=float32, shape=[2,3]}
p = Softmax(x)
exponential = Exp(x)
axis = Const() {dtype=int32, value=int32[1]:[1]}
total = Sum(exponential, axis) {keep_dims=true}
share = RealDiv(exponential, total)
probabilities = Identity(p)
"""


@pytest.fixture
def softmax(tmp_path: Path) -> Path:
    path = tmp_path / "softmax.graph"
    path.write_text(SOFTMAX)
    return path


@pytest.mark.parametrize("index", ["[:, 1]", "[..., 1]", "[:,-2]", "[0:2, 1]"])
def test_a_y_may_be_a_slice(index: str, command: Any, softmax: Path) -> None:
    import numpy as np

    made = command("grad", softmax, "--ys", f"probabilities{index}, x", "--xs", "x", "--check")
    assert (made.code, "constant sum" in made.err) == (0, False), made.err
    assert "gradients of probabilities/slice:0, x:0" in made.err
    x = np.array([[0.1, 0.2, 0.3], [1, 0, -1]])
    p = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    want = p[:, 1:2] * (np.eye(3)[1] - p) + 1
    feed = ("--feed", f"x={x.tolist()}", "--expect", f"gradients/x={want.tolist()}")
    done = command("run", "-", *feed, stdin=made.data)
    assert done.code == 0, done.err


@pytest.mark.parametrize(
    ("index", "reported"),
    [
        ("[:, 3]", "index 3 is out of bounds"),
        ("[0, 0, 0]", "3 dimensions are sliced"),
        ("[", "no valid index"),
        ("[x]", "no valid index"),
        ("[0.5]", "no valid index"),
        ("[True]", "no valid index"),
        ("[0] + 1", "no valid index"),
    ],
)
def test_an_index_that_does_not_fit_is_2(
    index: str, reported: str, command: Any, softmax: Path
) -> None:
    done = command("grad", softmax, "--ys", f"probabilities{index}", "--xs", "x")
    assert (done.code, reported in done.err) == (2, True), done.err


def test_an_x_is_no_slice(command: Any, softmax: Path) -> None:
    done = command("grad", softmax, "--ys", "p", "--xs", "x[:, 1]")
    assert (done.code, "slice its gradient" in done.err) == (2, True), done.err


@pytest.mark.parametrize("y", ["probabilities", "share"])
def test_a_sum_that_is_constant_is_warned_of(y: str, command: Any, softmax: Path) -> None:
    done = command("grad", softmax, "--ys", y, "--xs", "x")
    assert done.code == 0
    assert f"warning: the elements of {y}:0 have a constant sum" in done.err
    assert f"--ys '{y}[:, 0]'" in done.err
    weighted = command("grad", softmax, "--ys", y, "--xs", "x", "--grad-ys", "x")
    assert "constant sum" not in weighted.err
    assert "constant sum" not in command("grad", softmax, "--ys", "total", "--xs", "x").err


def test_a_weight_of_another_shape_names_the_option(command: Any, line: Path) -> None:
    done = command("grad", line, "--ys", "loss", "--xs", "x", "--grad-ys", "[1,2,3]")
    assert done.code == 2
    assert "--grad-ys" in done.err
    assert "of its y, loss:0" in done.err
