"""`cfgraph extract`: a part of a graph, one iteration with its values, and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import cfgraph

INNER = "while/while/add_1"


def test_an_iteration_with_its_values_runs_without_feeds(command: Any, counter: Path) -> None:
    line = ("--outputs", "while/add", "--feed", "n=5", "--iteration", "3")
    done = command("extract", counter, *line)
    assert "one iteration of /while/while_context" in done.err
    ran = command("run", "-", stdin=done.data)
    assert ran.out.split() == ["while/add:0", "int32[]", "=", "4"]


def test_the_default_iteration_is_reported(command: Any, graphs: Path, tmp_path: Path) -> None:
    written = ("-o", tmp_path / "o.pb", "--json")
    counter, nested = graphs / "counter.pb", tmp_path / "nested.graph"
    text = command("convert", graphs / "nested.pb", "--to", "graph").out
    nested.write_text(text.replace("int32[]:100", "int32[]:5"))
    lines = {
        (counter, "while/add", "--feed", "n=5"): "0",
        (counter, "count", "--feed", "n=5"): None,
        (counter, "while/add"): None,
        (nested, INNER, "--iteration", "1"): "0,1",
        (nested, INNER, "--iteration", "1,0"): "1,0",
    }
    for (path, output, *options), iteration in lines.items():
        done = command("extract", path, "--outputs", output, *options, *written)
        assert done.json["result"]["iteration"] == iteration
    done = command("extract", nested, "--outputs", INNER, "--iteration", "0,999")
    assert "the loop started 6 iterations" in done.err


@pytest.mark.parametrize("iteration", [0, 1, 3])
def test_the_index_of_a_merge_is_that_of_the_iteration(
    iteration: int, command: Any, counter: Path
) -> None:
    line = ("--outputs", "while/Merge:1", "--feed", "n=5", "--iteration", str(iteration))
    data = command("extract", counter, *line).data
    assert command("run", "-", stdin=data).out.split()[-1] == str(min(iteration, 1))
    done = command("extract", counter, "--outputs", "while/Merge:1", "--inputs", "while/Merge")
    assert (done.code, "while/Merge:1" in done.err) == (2, True)


def test_a_value_from_a_stack_that_is_an_output_needs_no_stack(command: Any, graphs: Path) -> None:
    feeds = ("--feed", "W=f32[512,1024]:zeros", "--feed", "x=f32[3,32,256]:zeros")
    pop = "gradients/lstm/MatMul_grad/MatMul_1/StackPopV2"
    done = command("extract", graphs / "lstm_grad.pb", *feeds, "--outputs", pop)
    assert command("run", "-", stdin=done.data).code == 0


def test_the_iteration_of_a_gradient_needs_no_stack(
    command: Any, graphs: Path, tmp_path: Path
) -> None:
    feeds = ("--feed", "W=f32[512,1024]:zeros", "--feed", "x=f32[3,32,256]:zeros")
    lines = ("--outputs", "gradients/lstm/MatMul/Enter_grad/NextIteration", "--iteration", "1")
    written = ("--json", "-o", tmp_path / "o.pb")
    done = command("extract", graphs / "lstm_grad.pb", *feeds, *lines, *written)
    names = [item["input"] for item in done.json["result"]["inputs"]]
    assert "gradients/lstm/mul_grad/Mul/StackPopV2:0" in names
    assert all(item["constant"] for item in done.json["result"]["inputs"])
    assert command("run", tmp_path / "o.pb", "--json").code == 0


def test_without_feeds_inputs_are_placeholders(command: Any, counter: Path, tmp_path: Path) -> None:
    part, names = tmp_path / "o.pb", tmp_path / "names.json"
    line = ("--outputs", "while/add", "--inputs", "while/Identity", "--map-out", names)
    assert command("extract", counter, *line, "-o", part).code == 0
    assert '"while/Identity:0": "while/Identity:0"' in names.read_text()
    ran = command("run", part, "--feed", "while/Identity=6", "--fetch", "while/add")
    assert ran.out.split()[-1] == "7"


def test_feeds_outside_of_loops_become_constants(command: Any, graphs: Path) -> None:
    feeds = ("--feed", "x=3", "--feed", "y=2", "--feed", "z=5")
    done = command("extract", graphs / "cond_functional.pb", "--outputs", "out", *feeds)
    assert command("run", "-", stdin=done.data).out.split()[-1] == "4.0"


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("--outputs while/add --feed n=2 --iteration 9", 2, "the loop started 3 iterations"),
        ("--outputs while/add --feed n=2 --iteration 1,2", 2, "in one loop"),
        ("--outputs count --feed n=2 --iteration 1", 2, "the outputs are in no loop"),
        ("--outputs while/add --iteration x", 2, "invalid --iteration 'x'"),
        ("--outputs count --inputs while/add", 2, "as a whole"),
        ("--outputs while/Exitt", 2, "did you mean 'while/Exit'?"),
        ("", 2, "--outputs"),
    ],
)
def test_errors_say_what_to_name(
    line: str, code: int, message: str, command: Any, counter: Path, tmp_path: Path
) -> None:
    done = command("extract", counter, *line.split(), "-o", tmp_path / "o.pb")
    assert (done.code, message in done.err) == (code, True), done.err
    assert not (tmp_path / "o.pb").exists()


def test_it_is_a_pass_of_a_pipeline(command: Any, counter: Path) -> None:
    single = command("extract", counter, "--outputs", "count", "--inputs", "n")
    text = "extract{outputs=count inputs=n}"
    assert command("pipeline", counter, "-p", text).data == single.data


def test_a_faulty_node_that_the_outputs_need_is_reported_before_the_run(command: Any) -> None:
    text = """
        p = Placeholder()
        entered = Enter(p) {frame_name="loop"}
        sides = RefSwitch(entered)
    """
    done = command(
        "extract", "-", "--outputs", "sides", "--iteration", "0", "-o", "-", stdin=text.encode()
    )
    assert (done.code, "CFG110" in done.err) == (3, True)


def test_a_faulty_node_elsewhere_does_not_matter_to_a_run(command: Any) -> None:
    text = """
        x = Placeholder() {dtype=float32, shape=[]}
        y = Neg(x)
        z = Abs(y)
        faulty = AssignSub(x, y) {T=float32}
        lonely = _SwitchN(x) {T=float32, num_outs=3}
    """
    arguments = ("extract", "-", "--outputs", "z", "--inputs", "y", "--feed", "x=3", "-o", "-")
    done = command(*arguments, stdin=text.encode())
    assert done.code == 0
    assert cfgraph.loads(done.data)["y"].attr("value").array == -3
