"""`cfgraph explain`: typical questions, each on a graph that raises it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import cfgraph
from cfgraph.analysis.loops.frames import frames
from cfgraph.build.builder import Builder
from cfgraph.ir.shapes import Shape
from cfgraph.passes.cluster import cluster
from tests.command_fixtures import Command


def cells_by_label(lines: list[str]) -> dict[str, str]:
    """The cells of each row after the first, by the first; rows without one go on."""
    found: dict[str, str] = {}
    for line in lines[1:]:
        what, _, rest = line.strip().partition("  ")
        found.setdefault(what, " ".join(rest.split()))
    return found


def test_why_do_the_iterations_of_a_loop_not_overlap(command: Command, graphs: Path) -> None:
    done = command("explain", graphs / "lstm.pb", "/lstm/while_context", "--json")
    loop = done.json["result"]["loop"]
    names = [node["name"] for node in loop["critical_cycle"]]
    assert (names[0], names[-1]) == ("lstm/Merge_2", "lstm/NextIteration_2")
    assert "lstm/MatMul" in names
    assert loop["share"] > 0.6
    assert "barely overlap" in loop["verdict"]
    assert loop["run"] is None


def test_a_run_in_virtual_time_reports_how_far_iterations_overlap(
    command: Command, graphs: Path, tmp_path: Path
) -> None:
    parts = tmp_path / "parts.pb"
    command("partition", graphs / "eight_devices.pb", "--devices", "cpu:0-7", "-o", parts)
    loop = command("explain", parts, "/while/while_context", "--feed", "n=100", "--json").json
    loop = loop["result"]["loop"]
    assert loop["run"]["at_once"] > 8
    assert loop["cycle_ns"] <= loop["run"]["period_ns"] <= loop["work_ns"]
    assert any(name["name"].endswith("/recv") for name in loop["critical_cycle"])
    alone = command("explain", graphs / "counter.pb", "/while/while_context", "--feed", "n=9")
    assert "barely overlap" in alone.out
    assert "per iteration in virtual time, over 10" in alone.out


def test_a_loop_that_runs_one_iteration_at_a_time_says_so(command: Command, tmp_path: Path) -> None:
    b = Builder()
    n = b.placeholder("n", "int32", [])
    b.while_loop(lambda i: i < n, lambda i: i + 1, 0, parallel_iterations=1)
    cfgraph.lower(b.graph)
    cfgraph.save(b.graph, tmp_path / "one.pb")
    frame = frames(b.graph).all[1]
    done = command("explain", tmp_path / "one.pb", frame.path)
    assert "parallel_iterations is 1" in done.out


def test_a_loop_that_waits_for_its_own_exit_has_a_critical_cycle(
    command: Command, root: Path
) -> None:
    file = root / "fixtures/passes/cluster/an_enter_waits_for_an_exit_of_its_loop.graph"
    text = file.read_text(encoding="utf-8").partition("# expect")[0]
    done = command("explain", "-", "/loop", "--json", stdin=text.encode())
    names = [node["name"] for node in done.json["result"]["loop"]["critical_cycle"]]
    assert (names[0], names[-1]) == ("i", "i_next")


def test_an_unknown_loop_is_a_usage_error_with_its_neighbours(
    command: Command, graphs: Path
) -> None:
    done = command("explain", graphs / "counter.pb", "/while/while_contex")
    assert done.code == 2
    assert "did you mean '/while/while_context'?" in done.err


def test_why_is_a_fetch_dead(command: Command, graphs: Path) -> None:
    path = graphs / "deadness_mismatch.pb"
    done = command("explain", path, "C", "--feed", "p=false", "--feed", "v=[1, 2]")
    assert cells_by_label(done.lines)["in this run"] == (
        "dead C:0 is dead: Switch 'switch' forwards nothing to output 1, as p:0 is false"
    )
    done = command("explain", path, "C", "--feed", "p=true", "--feed", "v=[1, 2]", "--json")
    assert done.json["result"]["node"]["run"] == {"live": 1, "dead": 0, "why": None}


def test_a_graph_runs_once_for_a_node_that_is_dead(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "effect.graph"
    file.write_text(
        "p = Placeholder() {dtype=bool, shape=[]}\n"
        'word = Const() {dtype=string, value=string[]:"said"}\n'
        "print = PrintV2(word)\n"
        "switch = Switch(p, p, ^print)\n"
        "not = LogicalNot(switch:1)\n"
    )
    done = command("explain", file, "not", "--feed", "p=false")
    assert cells_by_label(done.lines)["in this run"].startswith(
        "dead not:0 is dead: Switch 'switch' forwards"
    )
    assert done.err.splitlines() == ["said"]


def test_a_node_that_ran_is_explained_though_its_output_cannot_be_fetched(
    command: Command, tmp_path: Path
) -> None:
    file = tmp_path / "empty.graph"
    file.write_text("v = VariableV2() {dtype=float32, shape=[]}\n")
    done = command("explain", file, "v", "--run")
    assert cells_by_label(done.lines)["in this run"] == "ran once"


def test_a_node_in_a_loop_reports_how_often_it_ran(command: Command, counter: Path) -> None:
    done = command("explain", counter, "while/add", "--feed", "n=3")
    assert cells_by_label(done.lines)["in this run"] == (
        "ran 3 times in iterations 0-2, dead once in iteration 3"
    )


EVEN_ITERATIONS = """
zero = Const() {dtype=int32, value=int32[]:0}
enter = Enter(zero) {frame_name="loop"}
i = Merge(enter, next) {N=2, T=int32}
five = Const(^i) {dtype=int32, value=int32[]:5}
less = Less(i, five) {T=int32}
cond = LoopCond(less)
body = Switch(i, cond) {T=int32}
same = Identity(body:1) {T=int32}
two = Const(^same) {dtype=int32, value=int32[]:2}
none = Const(^same) {dtype=int32, value=int32[]:0}
rest = FloorMod(same, two) {T=int32}
even = Equal(rest, none) {T=int32}
branch = Switch(same, even) {T=int32}
raised = Neg(branch:1) {T=int32}
one = Const(^same) {dtype=int32, value=int32[]:1}
sum = AddV2(same, one) {T=int32}
next = NextIteration(sum) {T=int32}
exit = Exit(body) {T=int32}
"""


def test_a_node_in_a_branch_reports_the_iterations_that_do_not_take_it(
    command: Command, tmp_path: Path
) -> None:
    file = tmp_path / "even.graph"
    file.write_text(EVEN_ITERATIONS)
    done = command("explain", file, "raised", "--run")
    assert cells_by_label(done.lines)["in this run"] == (
        "ran 3 times in iterations 0, 2, 4, dead 3 times in iterations 1, 3, 5"
    )


OUTSIDE = """
p = Placeholder() {dtype=bool, shape=[]}
x = Placeholder() {dtype=float32, shape=[]}
dear = Exp(x) {T=float32}
dearer = Exp(dear) {T=float32}
both = Neg(x) {T=float32}
not = LogicalNot(p)
a = Switch(dearer, p) {T=float32}
b = Switch(both, not) {T=float32}
inside = Tanh(a:1) {T=float32}
merge = Merge(b:1, inside) {T=float32}
sum = AddV2(merge, both) {T=float32}
"""


def test_what_runs_regardless_of_a_conditional(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "outside.graph"
    file.write_text(OUTSIDE)
    found = cells_by_label(command("explain", file, "p").lines)
    assert found["decides"] == "p:0 predicate of 2 Switches"
    assert found["unconditional"] == "dear, dearer always computed, but used only if it is true"
    reported = command("explain", file, "a", "--json").json["result"]["node"]["decides"]
    assert reported["regardless"] == {"1": ["dear", "dearer"]}


def test_why_is_a_gradient_none(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "cut.graph"
    file.write_text(
        "x = Placeholder() {dtype=float32, shape=[]}\n"
        "whole = Cast(x) {SrcT=float32, DstT=int32}\n"
        "back = Cast(whole) {SrcT=int32, DstT=float32}\n"
        "y = Exp(back) {T=float32}\n"
    )
    found = cells_by_label(command("explain", file, "x", "y").lines)
    assert found["gradient"].startswith("no gradient of y:0 with respect to x:0")
    assert "whole" in found["gradient"]


def test_the_answer_on_a_gradient_is_that_of_grad(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "g.graph"
    path.write_text(
        "x = Placeholder() {dtype=float32, shape=[]}\n"
        "zero = Const() {dtype=int32, value=int32[]:0}\n"
        "one = Const() {dtype=int32, value=int32[]:1}\n"
        "a = TensorArrayV3(one) {dtype=float32}\n"
        "w = TensorArrayWriteV3(a, zero, x, a:1) {T=float32}\n"
        "r = TensorArrayReadV3(a, zero, w) {dtype=float32}\n"
        "q = Dequantize2(x)\n"
    )
    assert command("grad", path, "--ys", "r", "--xs", "x", "-o", tmp_path / "g.pb").code == 0
    answer = command("explain", path, "x", "r").out
    assert "gradient of r:0 with respect to x:0 exists" in answer
    assert "no gradient of q:0" in command("explain", path, "x", "q").out


def test_how_is_a_value_read_from_another_frame(command: Command, graphs: Path) -> None:
    path = graphs / "lstm_grad.pb"
    found = cells_by_label(command("explain", path, "lstm/mul_2", "loss").lines)
    assert "read lstm/Exit_2:0 instead" in found["frames"]
    found = cells_by_label(command("explain", path, "lstm/Sigmoid", "loss").lines)
    assert "route it through an Exit of /lstm/while_context" in found["frames"]
    found = cells_by_label(command("explain", path, "x", "lstm/mul").lines)
    assert "a constant Enter into /lstm/while_context" in found["frames"]


def test_why_is_an_edge_not_clustered(command: Command, graphs: Path) -> None:
    path = graphs / "deadness_mismatch.pb"
    reported = command("explain", path, "B", "C", "--json").json["result"]["pair"]["cluster"]
    assert "live" in reported
    path = graphs / "lstm_grad.pb"
    reported = command("explain", path, "lstm/Sigmoid", "lstm/mul_2").out
    assert "both are in cluster_" in reported


# an inner loop whose Enter c0 waits for an Exit of that loop
LATE_INNER = """
late = Const(^outer/body/inner/Exit) {dtype=float32, value=float32[]:0}
c0 = Enter(late) {frame_name="outer/body/inner", parallel_iterations=PARALLEL}
c = Merge(c0, c_next)
c_switch = Switch(c, outer/body/inner/LoopCond)
c_next = NextIteration(c_switch:1)
c_exit = Exit(c_switch)
"""


# a loop that runs no second iteration before its Enter c0 has a value, which waits for its Exit
LATE = """
zero = Const() {dtype=int32, value=int32[]:0}
three = Const() {dtype=int32, value=int32[]:3}
one = Const() {dtype=int32, value=int32[]:1}
i0 = Enter(zero) {frame_name="loop", parallel_iterations=1}
limit = Enter(three) {frame_name="loop", is_constant=true, parallel_iterations=1}
step = Enter(one) {frame_name="loop", is_constant=true, parallel_iterations=1}
i = Merge(i0, i_next)
less = Less(i, limit)
cond = LoopCond(less)
i_switch = Switch(i, cond)
i_add = AddV2(i_switch:1, step)
i_next = NextIteration(i_add)
i_exit = Exit(i_switch)
c0 = Enter(i_exit) {frame_name="loop", parallel_iterations=1}
c = Merge(c0, c_next)
c_switch = Switch(c, cond)
c_next = NextIteration(c_switch:1)
c_exit = Exit(c_switch)
"""


def nested_loops(parallel: int) -> cfgraph.Graph:
    b = cfgraph.Builder()

    def body(i: Any, v: Any) -> Any:
        steps = b.while_loop(
            lambda j, w: b.Less(j, 3),
            lambda j, w: (b.AddV2(j, 1), b.Mul(w, 2.0)),
            (b.const(0), v),
            name="inner",
            parallel_iterations=parallel,
        )
        return b.AddV2(i, 1), steps[1]

    b.while_loop(lambda i, v: b.Less(i, 2), body, (b.const(0), b.const(1.0)), name="outer")
    cfgraph.lower(b.graph)
    late = LATE_INNER.replace("PARALLEL", str(parallel)).encode()
    return cfgraph.loads(cfgraph.dumps(b.graph, "graph") + late, "graph")


def test_a_loop_around_one_with_a_late_enter_is_explained(command: Command, tmp_path: Path) -> None:
    cfgraph.save(nested_loops(10), tmp_path / "late.graph")
    done = command("explain", tmp_path / "late.graph", "/outer")
    assert (done.code, done.err) == (0, "")
    assert "critical cycle" in done.out
    assert "/outer/outer/body/inner" in done.out


@pytest.mark.parametrize("engine", ["tokens", "compiled"])
def test_an_exit_inside_of_a_loop_that_has_no_value_is_an_error(engine: str) -> None:
    session = cfgraph.Session(nested_loops(1), engine=engine)
    with pytest.raises(cfgraph.CfgraphError, match="c_exit:0 got no value"):
        session.run(["c_exit"])


def test_each_node_that_a_late_enter_keeps_from_running_names_it(
    command: Command, tmp_path: Path
) -> None:
    path = tmp_path / "late.graph"
    path.write_text(LATE)
    for node in ("c0", "c", "c_switch", "c_exit"):
        run = command("explain", path, node, "--run", "--json").json["result"]["node"]["run"]
        assert (run["live"], run["dead"]) == (0, 0)
        assert "its Enter 'c0' has a value" in run["why"]


def test_a_handle_has_no_gradient_by_itself(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "stack.graph"
    path.write_text(
        "size = Const() {dtype=int32, value=int32[]:-1}\n"
        "stack = StackV2(size) {elem_type=float32}\n"
    )
    found = cells_by_label(command("explain", path, "stack", "stack").lines)
    assert found["gradient"].startswith("no gradient of stack:0 with respect to stack:0: ")


def test_a_run_that_hangs_is_explained(command: Command, tmp_path: Path) -> None:
    device = "/job:localhost/replica:0/task:0/device:CPU:0"
    file = tmp_path / "lost.graph"
    file.write_text(
        f'recv = _Recv() {{tensor_type=float32, tensor_name="t", send_device="{device}", '
        f'send_device_incarnation=1, recv_device="{device}"}} @"{device}"\n'
        f'y = Exp(recv) {{T=float32}} @"{device}"\n'
    )
    reason = "waits for 't' from cpu:0: the graph has no such _Send"
    done = command("explain", file, "y", "--run")
    assert (done.code, f"'recv' {reason}" in done.out) == (0, True)
    waits = command("explain", file, "recv", "--run", "--json").json["result"]["node"]["run"]
    assert waits == {"live": 0, "dead": 0, "why": reason}


def test_a_node_that_waits_for_a_queue_is_explained(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "queue.graph"
    file.write_text(
        'queue = FIFOQueueV2() {component_types=(float32), shapes=([]), shared_name="q"}\n'
        "get = QueueDequeueV2(queue) {component_types=(float32)}\n"
        "y = Exp(get)\n"
    )
    done = command("explain", file, "get", "--run")
    assert (done.code, done.err) == (0, "")
    assert "waits, and nothing else is left to run" in done.out
    assert "waits for an element of <Queue 'q' of 0 elements>" in done.out
    assert "'get' waits for an element" in command("explain", file, "y", "--run").out


def test_what_was_compiled_again_and_why(command: Command, tmp_path: Path) -> None:
    pytest.importorskip("jax", reason="needs the extra `xla`")
    b = Builder()
    x, n = b.placeholder("x", "float32", [None]), b.placeholder("n", "int32", [])

    def body(i: Any, x: Any) -> tuple[Any, Any]:
        return i + 1, b.ConcatV2([b.Tanh(x) * b.Exp(x), x], 0)

    invariants = (Shape([]), Shape([None]))
    b.while_loop(lambda i, _: i < n, body, (0, x), shape_invariants=invariants)
    cfgraph.lower(b.graph)
    cfgraph.save(b.graph, tmp_path / "grow.pb")
    feeds = ["--feed", "x=[1]", "--feed", "n=3"]
    assert command("cluster", tmp_path / "grow.pb", "-o", tmp_path / "clustered.pb").code == 0
    done = command("run", tmp_path / "clustered.pb", *feeds, "--engine", "xla")
    assert "as switch_1 is [4], was [2]" in done.err


def test_a_pair_plans_its_clusters_once(
    command: Command, graphs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[object] = []
    monkeypatch.setattr(cluster, "kernel_gains", lambda *plan: planned.append(plan) or ())
    assert command("explain", graphs / "deadness_mismatch.pb", "B", "C").code == 0
    assert planned == []
    assert command("cluster", graphs / "deadness_mismatch.pb", "--explain").code == 0
    assert len(planned) == 1


def test_a_name_that_is_no_file_is_reported(command: Command, tmp_path: Path) -> None:
    done = command("explain", tmp_path / "nope.pb")
    assert (done.code, "is neither a file nor an error code" in done.err) == (2, True)


def test_a_pair_of_a_node_without_outputs_is_an_error(command: Command, tmp_path: Path) -> None:
    graph = tmp_path / "g.graph"
    graph.write_text("x = Const() {dtype=int32, value=int32[]:1}\ninit = NoOp(^x)\n")
    done = command("explain", graph, "x", "init")
    assert done.code == 2
    assert "'init' (NoOp) has no outputs" in done.err
    assert "hint: explain it alone: cfgraph explain GRAPH init" in done.err


def test_a_pair_takes_no_feeds(command: Command, counter: Path) -> None:
    done = command("explain", counter, "n", "while/add", "--feed", "n=3")
    assert done.code == 2


NEVER_BACK = """
x = Placeholder() {dtype=float32, shape=[]}
go = Placeholder() {dtype=bool, shape=[]}
enter = Enter(x) {frame_name="w"}
same = Enter(x) {frame_name="w", is_constant=true}
test = Enter(go) {frame_name="w", is_constant=true}
merge = Merge(enter, next)
cond = LoopCond(test, ^merge)
switch = Switch(merge, cond)
inside = Neg(switch:1)
next = NextIteration(same)
exit = Exit(switch:0)
out = Exp(x)
"""


def test_only_what_brings_the_value_in_every_iteration_is_recommended(
    command: Command, tmp_path: Path
) -> None:
    file = tmp_path / "loop.graph"
    file.write_text(NEVER_BACK)
    assert "read same:0 instead" in command("explain", file, "x", "inside").out
    file.write_text(NEVER_BACK.replace(", is_constant=true}\ntest", "}\ntest"))
    assert "a constant Enter into /w" in command("explain", file, "x", "inside").out
    assert "read exit:0" not in command("explain", file, "switch:1", "out").out
    assert "read exit:0" in command("explain", file, "merge", "out").out


def test_a_loop_whose_iterations_wait_for_nothing_says_so(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "loop.graph"
    file.write_text(NEVER_BACK)
    done = command("explain", file, "/w", "--json")
    loop = done.json["result"]["loop"]
    assert (loop["critical_cycle"], loop["cycle_ns"]) == ([], 0)
    assert "do not depend on each other" in command("explain", file, "/w").out


def test_a_question_on_an_endless_loop_is_answered(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "loop.graph"
    file.write_text(NEVER_BACK)
    feeds = ["--feed", "x=1", "--feed", "go=true", "--max-iterations", "50"]
    for subject in ("exit", "/w"):
        done = command("explain", file, subject, *feeds)
        assert (done.code, "CFG704" in done.err) == (5, True)


def test_a_fed_node_is_no_starved_one(command: Command, graphs: Path) -> None:
    feeds = ["--feed", "p=false", "--feed", "v=[1, 2]"]
    done = command("explain", graphs / "deadness_mismatch.pb", "p", *feeds)
    assert cells_by_label(done.lines)["in this run"] == "fed"


def test_an_inner_loop_that_runs_late_is_seen(command: Command, tmp_path: Path) -> None:
    b = Builder()

    def inner() -> Any:
        return b.while_loop(lambda j: j < 3, lambda j: j + 1, 0)

    def body(i: Any, total: Any) -> Any:
        return i + 1, b.cond(i > 1, lambda: total + inner(), lambda: total)

    b.while_loop(lambda i, _: i < 4, body, (0, 0))
    cfgraph.lower(b.graph)
    cfgraph.save(b.graph, tmp_path / "late.pb")
    path = frames(b.graph).all[2].path
    assert (
        "per iteration in virtual time, over 4"
        in command("explain", tmp_path / "late.pb", path, "--run").out
    )


def test_a_run_that_is_requested_begins_with_the_initializers(
    command: Command, tmp_path: Path
) -> None:
    b = Builder()
    w = b.variable(2.0, name="w")
    n = b.placeholder("n", "int32", [])
    b.while_loop(lambda i, _: i < n, lambda i, x: (i + 1, x * w), (0, 1.0))
    b.initializer()
    cfgraph.lower(b.graph)
    path = tmp_path / "g.pb"
    cfgraph.save(b.graph, path)
    options = ["--feed", "n=3", "--init", "init"]
    assert "ran 3 times" in command("explain", path, "while/body/Mul", *options).out
    assert (
        "per iteration in virtual time, over 4" in command("explain", path, "/while", *options).out
    )
    assert command("explain", path, "while/body/Mul", "--feed", "n=3").code == 5
    lacking = command("explain", path, "/while", "--init", "init")
    assert (lacking.code, "add --feed n=3" in lacking.err) == (2, True)


def test_who_reads_a_node_and_where_does_a_message_come_from(
    command: Command, graphs: Path, tmp_path: Path
) -> None:
    parts = tmp_path / "parts.pb"
    options = ["--devices", "cpu:0-1", "--place", "*=cpu:0", "--place", "while/add*=cpu:1"]
    assert command("partition", graphs / "counter.pb", *options, "-o", parts).code == 0
    graph = cfgraph.load(parts)
    recv = next(node for node in graph if node.op == "_Recv" and "cpu:1" in node.device.lower())
    reported = command("explain", parts, recv.name, "--json").json["result"]["node"]
    assert reported["read_by"] == [use.node.name for use in recv.uses]
    words = (reported["message"] or "").split()
    assert (words[0], words[2:]) == ("from", ["on", "cpu:0"])
    back = command("explain", parts, words[1], "--json").json["result"]["node"]
    assert back["message"] == f"to {recv.name} on cpu:1"
    assert command("explain", parts, "n", "--json").json["result"]["node"]["message"] is None


def test_what_is_the_name_of_a_function_is_said_to_be_one(command: Command, graphs: Path) -> None:
    path = graphs / "while_functional.pb"
    name = next(iter(cfgraph.load(path).functions))
    for options in (("explain", path, name), ("show", path, "--node", name)):
        done = command(*options)
        assert done.code == 2
        assert f"show --filter function:{name} lists its nodes" in done.err


def test_a_node_of_a_loop_that_fails_after_some_iterations_is_not_said_to_have_run(
    command: Command, tmp_path: Path
) -> None:
    b = Builder()
    b.while_loop(lambda i: i > -2, lambda i: i - i // i, 3, name="loop")
    cfgraph.lower(b.graph)
    cfgraph.save(b.graph, tmp_path / "fails.pb")
    (divides,) = (node.name for node in b.graph if node.op == "FloorDiv")
    done = command("explain", tmp_path / "fails.pb", divides, "--run")
    assert (done.code, "zero" in done.err) == (5, True)
    assert "in this run" not in done.out


@pytest.fixture(scope="module")
def stepped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph whose gradients end at steps, at StopGradients, and in branches."""
    b = Builder()
    x, w = b.placeholder("x", "float32", []), b.placeholder("w", "float32", [])
    n = b.placeholder("n", "int32", [])
    b.Mul(b.Floor(x, name="floor"), w, name="y")
    branches = (lambda: b.StopGradient(x) * 1.0, lambda: b.Floor(x) * 2.0)
    b.Identity(b.cond(n > 0, *branches, name="c"), name="cut")
    b.Identity(b.cond(n > 0, lambda: w * x, lambda: w * 2.0), name="open")
    b.Identity(b.while_loop(lambda i, t: i < n, lambda i, t: (i + 1, t * w), [0, x])[1], name="t")
    b.StopGradient(x, name="stop")
    b.Identity(w, name="other")
    file = tmp_path_factory.mktemp("stepped") / "stepped.pb"
    cfgraph.save(b.graph, file)
    return file


@pytest.mark.parametrize(
    ("x", "y", "text"),
    [
        ("x", "y", "is zero: floor (Floor) passes no gradient to x:0"),
        ("x", "cut", "is zero: c/else/Floor (Floor) passes no gradient to c/Switch:0; "
                     "c/then/StopGradient (StopGradient) stops gradients"),
        ("x", "stop", "no gradient of stop:0 with respect to x:0: stop (StopGradient) stops"),
        ("x", "other", "no gradient of other:0 with respect to x:0: no path leads to other:0"),
        ("n", "y", "n:0 has dtype int32, which has no gradient"),
        ("w", "y", "exists"),
        ("x", "open", "exists"),
        ("x", "t", "exists"),
    ],
)  # fmt: skip
def test_where_is_a_gradient_cut_that_is_none_or_zero(
    x: str, y: str, text: str, command: Command, stepped: Path
) -> None:
    said = command("explain", stepped, x, y, "--json").json["result"]["pair"]["gradient"]
    assert text in said
    if x == "n":
        return
    # as `gradients` decides
    graph = cfgraph.load(stepped)
    (name,) = cfgraph.gradients(graph, y, x)
    assert (name is None) == said.startswith("no gradient")
    if name is not None:
        feeds = {"x:0": 1.5, "w:0": 3.0, "n:0": 2}
        values = cfgraph.Session(graph).run([name], feeds)
        assert (values[0] == 0) == ("is zero" in said)


@pytest.mark.skipif(find_spec("jax") is None, reason="the extra `xla` is not installed")
def test_why_is_a_cluster_recompiled(command: Command, tmp_path: Path) -> None:
    b = Builder()
    x = b.placeholder("x", "float32", [None])

    def step(i: Any, t: Any) -> Any:
        return i + 1, b.ConcatV2([b.Tanh(t) * 2.0 + b.Sin(t), t], 0)

    b.Identity(b.while_loop(lambda i, t: i < 2, step, [0, x], name="loop")[1], name="y")
    cluster.cluster(b.graph)
    (call,) = (node for node in b.graph if node.op == "XlaLaunch")
    cfgraph.save(b.graph, tmp_path / "grows.pb")
    done = command("explain", tmp_path / "grows.pb", call.name, "--feed", "x=f32[50000]:ones")
    assert f"{call.name} compiled in" in done.out
    assert "is [100000], was [50000] (loop/Switch_1:1)" in done.out
    args = ("--feed", "x=f32[50000]:ones", "--json")
    node = command("explain", tmp_path / "grows.pb", call.name, *args).json["result"]["node"]
    first, again = (item["changed"] for item in node["run"]["compilations"])
    assert first is None
    assert "is [100000], was [50000]" in again


@pytest.mark.parametrize(
    ("source", "target", "text"),
    [
        ("while/add", "while/Less", "add a NextIteration and a Merge"),
        ("while/NextIteration", "while/Less", "read while/Merge:0 for its value in the next one"),
        ("while/NextIteration", "while/Merge", "same frame: while/Merge can read"),
        ("count", "n", "an edge back would close a cycle"),
        ("while/Merge", "while/add", "same frame: while/add can read while/Merge:0 directly"),
    ],
)
def test_an_edge_against_the_flow_is_no_advice(
    source: str, target: str, text: str, command: Command, graphs: Path
) -> None:
    done = command("explain", graphs / "counter.pb", source, target, "--json")
    assert text in done.json["result"]["pair"]["frames"]
