from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import cfgraph
from cfgraph import Graph, InvalidInput, Unsupported
from cfgraph.analysis.loops.frames import frames
from cfgraph.ir.graph import Node
from cfgraph.ir.traversal import rendezvous_key
from tests.passes.random_programs import random_program

FOLDER = Path(__file__).parents[2] / "fixtures" / "passes" / "partition"
A, B, C = (f"/job:localhost/replica:0/task:0/device:CPU:{number}" for number in range(3))
DEVICES = {"A": A, "B": B, "C": C}


def graph(text: str) -> Graph:
    """Parse a graph whose lines end with `@A`, `@B` or `@C`."""
    with_devices = re.sub(
        r"@([ABC])$", lambda match: f'@"{DEVICES[match[1]]}"', text, flags=re.MULTILINE
    )
    return cfgraph.loads(with_devices.encode(), "graph")


def golden(name: str) -> Graph:
    """Return the unpartitioned graph of a golden file."""
    data = (FOLDER / f"{name}.graph").read_bytes()
    return cfgraph.loads(data.partition(b"# expect\n")[0], "graph")


def crossing(program: Graph) -> list[Node]:
    sources = {node: [*(tensor.node for tensor in node.inputs), *node.controls] for node in program}
    return [node for node, read in sources.items() if any(s.device != node.device for s in read)]


RANDOM = range(40)


def placed(seed: int) -> Graph:
    """Return a random program on three devices."""
    program = random_program(seed).graph
    cfgraph.place(program, devices="cpu:0-2", seed=seed)
    return program


def test_no_edge_crosses_and_every_pair_has_a_unique_key() -> None:
    for seed in RANDOM:
        program = placed(seed)
        cfgraph.partition(program)
        assert crossing(program) == []
        sends = Counter(rendezvous_key(node) for node in program if node.op == "_Send")
        recvs = Counter(rendezvous_key(node) for node in program if node.op == "_Recv")
        assert sends == recvs
        assert set(sends.values()) <= {1}
        assert len({key.tensor_name for key in sends}) == len(sends)


def test_no_new_name_starts_with_an_underscore() -> None:
    program = graph("_x = Const() {dtype=float32, value=float32[]:1} @A\ny = Neg(_x, ^_x) @B")
    cfgraph.partition(program)
    assert [name for name in program.nodes if name.startswith("_")] == ["_x"]


def test_nodes_keep_their_names_and_are_listed_device_by_device() -> None:
    for seed in RANDOM:
        program = placed(seed)
        before = set(program.nodes)
        report = cfgraph.partition(program)
        assert before <= set(program.nodes)
        devices = [node.device for node in program]
        assert sorted(devices) == devices
        assert report.devices == tuple(dict.fromkeys(devices))


def test_a_device_has_one_control_loop_for_each_of_its_loops() -> None:
    for seed in RANDOM:
        program = placed(seed)
        report = cfgraph.partition(program)
        loop_frames = frames(program)
        expected = set()
        for frame in loop_frames.all[1:]:
            leader = frame.loop_conds[0].device
            inside = {
                node.device for f in loop_frames.all if f.is_within(frame) for node in f.nodes
            }
            expected |= {(str(frame), device) for device in inside if device != leader}
        have = report.control_loops
        assert len(set(have)) == len(have)
        assert expected <= set(have)
        extra = set(have) - expected  # the LoopCond's own device, without a variable next to it
        for frame in loop_frames.all[1:]:
            extra.discard((str(frame), frame.loop_conds[0].device))
        assert extra == set()


def test_every_recv_in_a_loop_waits_for_a_merge_of_the_loop() -> None:
    for seed in RANDOM:
        program = placed(seed)
        cfgraph.partition(program)
        loop_frames = frames(program)
        for node in program:
            if node.op == "_Recv":
                gates = [control.op for control in node.controls]
                assert gates == ([] if loop_frames.of[node] is loop_frames.root else ["Merge"])


def test_a_graph_on_one_device_is_unchanged() -> None:
    program = graph("x = Placeholder() {dtype=float32, shape=[]} @A\ny = Neg(x) @A")
    before = cfgraph.dumps(program)
    assert not cfgraph.partition(program)
    assert cfgraph.dumps(program) == before


def test_the_report_lists_moved_nodes_and_messages() -> None:
    report = cfgraph.partition(golden("loop_primitives_are_colocated"))
    assert report.moved == {
        "enter": (B, A),
        "limit": (C, A),
        "switch": (B, A),
        "next": (C, A),
        "exit": (C, A),
    }
    assert report.messages == {}
    report = cfgraph.partition(golden("nested_loops_have_stacked_control_loops"))
    assert report.moved == {}
    # the predicate of each loop, a constant of the body, and the value that goes there and back
    assert report.messages == {"/outer": 1, "/outer/inner": 4}
    assert report.control_loops == (("/outer", B), ("/outer/inner", B))


def test_a_loop_that_stays_on_one_device_is_reported() -> None:
    report = cfgraph.partition(golden("a_loop_without_loop_cond_stays_together"))
    assert report.warnings == ("the loop /loop stays on one device: it has no LoopCond",)


def test_short_device_names_are_written_in_full() -> None:
    program = cfgraph.loads(b'x = NoOp() @"/job:w/replica:0/task:1/gpu:2"', "graph")
    assert cfgraph.partition(program).rewrites == 1
    assert program["x"].device == "/job:w/replica:0/task:1/device:GPU:2"


@pytest.mark.parametrize(
    ("text", "code", "node"),
    [
        ("x = NoOp()", "CFG420", "x"),
        ('x = NoOp() @A\ny = NoOp() @"/device:CPU:0"', "CFG420", "y"),
        (
            "v = VariableV2() {dtype=float32, shape=[]} @A\n"
            "one = Const() {dtype=float32, value=float32[]:1} @A\n"
            "set = Assign(v, one) @B",
            "CFG421",
            "set",
        ),
        (
            "v = VariableV2() {dtype=float32, shape=[]} @A\n"
            'enter = RefEnter(v) {frame_name="f"} @A\n'
            "out = Identity(enter) @B\n"
            "more = Identity(enter) @A",
            "CFG421",
            "enter",
        ),
        ("x = Strange() @A\ny = Neg(x) {T=float32} @B", "CFG422", "x"),
    ],
)
def test_an_edge_that_cannot_be_cut_is_rejected_before_any_change(
    text: str, code: str, node: str
) -> None:
    program = graph(text)
    before = cfgraph.dumps(program)
    with pytest.raises((InvalidInput, Unsupported)) as caught:
        cfgraph.partition(program)
    assert (caught.value.code, caught.value.node) == (code, node)
    assert cfgraph.dumps(program) == before


def test_a_control_edge_from_the_enter_of_a_handle_sends_no_handle() -> None:
    program = graph(
        'v = VarHandleOp() {dtype=float32, shape=[], shared_name="v"} @A\n'
        "one = Const() {dtype=float32, value=float32[]:1} @A\n"
        "init = AssignVariableOp(v, one) @A\n"
        "zero = Const() {dtype=float32, value=float32[]:0} @A\n"
        "ten = Const() {dtype=float32, value=float32[]:10} @A\n"
        'handle = Enter(v) {frame_name="loop", is_constant=true} @A\n'
        'limit = Enter(ten) {frame_name="loop", is_constant=true} @A\n'
        'enter = Enter(zero) {frame_name="loop"} @A\n'
        "merge = Merge(enter, next) @A\n"
        "less = Less(merge, limit) @A\n"
        "cond = LoopCond(less) @A\n"
        "switch = Switch(merge, cond) @A\n"
        "body = Identity(switch:1) @A\n"
        "value = ReadVariableOp(handle, ^body) {dtype=float32} @A\n"
        "negative = Neg(body, ^handle) @B\n"
        "sum = Sub(value, negative) @A\n"
        "next = NextIteration(sum) @A\n"
        "out = Exit(switch) @A"
    )
    cfgraph.partition(program)
    sent = {node.inputs[0].node.name for node in program if node.op == "_Send"}
    assert "v" not in sent
    with cfgraph.Session(program) as session:
        session.run([], targets=["init"])
        assert session.run(["out:0"]) == [10]


@pytest.mark.parametrize("fan_out", [1, 2, 3, 7])
def test_a_fan_out_bounds_the_messages_with_a_predicate(fan_out: int) -> None:
    program = cfgraph.load(FOLDER.parents[1] / "graphs" / "eight_devices.pb")
    names = {node.name for node in program}
    predicate = next(node.name for node in program if node.op == "LoopCond").encode()
    cfgraph.place(program, devices="cpu:0-7")
    cfgraph.partition(program, fan_out=fan_out)
    senders = Counter[str]()
    for node in program:
        if node.op == "_Send" and node.attr("tensor_name").endswith(predicate):
            assert node.attr("send_device").decode() == node.device == node.inputs[0].node.device
            senders[node.device] += 1
    assert sum(senders.values()) == 7
    assert max(senders.values()) == min(fan_out, 7)
    assert crossing(program) == []
    assert names <= {node.name for node in program}
    with cfgraph.Session(program) as session:
        values = session.run([f"out{place}:0" for place in range(8)], {"n:0": 5})
        assert values == [5] * 8
        assert session.run(["out7:0"], {"n:0": 5}) == [5]


def test_a_fan_out_below_one_is_rejected() -> None:
    with pytest.raises(ValueError, match="fan_out must be at least 1, not 0"):
        cfgraph.partition(Graph(), fan_out=0)


def test_random_programs_agree_with_a_fan_out() -> None:
    for seed in RANDOM[:20]:
        program = random_program(seed)
        cfgraph.lower(program.graph)
        cfgraph.place(program.graph, devices="cpu:0-4", seed=seed)
        cfgraph.partition(program.graph, fan_out=1 + seed % 2)
        assert crossing(program.graph) == []
        assert not program.difference(), seed


def test_a_functional_graph_that_cannot_be_cut_is_not_lowered() -> None:
    program = graph(
        "v = VariableV2() {dtype=float32, shape=[]} @A\n"
        "one = Const() {dtype=float32, value=float32[]:1} @A\n"
        "two = PartitionedCall(one) {Tin=(float32), Tout=(float32), f=@same} @A\n"
        "set = Assign(v, two) @B\n"
        "function same(x: float32) -> (y: float32) {\n  return y = x\n}\n"
    )
    before = cfgraph.dumps(program)
    with pytest.raises(Unsupported):
        cfgraph.partition(program)
    assert cfgraph.dumps(program) == before


def test_a_partitioned_graph_with_a_new_crossing_edge_is_rejected() -> None:
    program = golden("an_edge_is_cut_once_for_a_device")
    cfgraph.partition(program)
    program.add("Neg", program["x"], name="stray", device=B)
    with pytest.raises(InvalidInput) as caught:
        cfgraph.partition(program)
    assert (caught.value.code, caught.value.node) == ("CFG430", "stray")


def test_a_partitioned_graph_is_neither_lowered_nor_placed_again() -> None:
    program = golden("functional_nodes_are_lowered_first")
    cfgraph.partition(program)
    with pytest.raises(Unsupported):
        cfgraph.place(program, devices="cpu:0")


def test_the_bytes_do_not_depend_on_the_hash_seed() -> None:
    script = (
        "import sys, cfgraph; from tests.passes.test_partition import placed\n"
        "for seed in (3, 17, 29):\n"
        "    made = placed(seed); cfgraph.partition(made)\n"
        "    sys.stdout.buffer.write(cfgraph.dumps(made))\n"
    )
    outputs = set()
    for seed in ("0", "1"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", script]
        folder = Path(__file__).parents[2]
        process = subprocess.run(
            command, env=environment, cwd=folder, capture_output=True, check=True, timeout=120
        )
        outputs.add(process.stdout)
    assert len(outputs) == 1
    assert outputs != {b""}


def test_a_value_is_sent_once_for_all_loops_that_read_it() -> None:
    report = cfgraph.partition(golden("an_outer_value_enters_once"))
    assert report.messages["/"] == 2  # w to B and to C


def test_loops_nested_deeper_than_the_stack_are_cut() -> None:
    depth = 1500
    lines = ["x = Placeholder() {dtype=float32, shape=[]} @A"]
    source = "x"
    for level in range(depth):
        lines.append(f'e{level} = Enter({source}) {{frame_name="f{level}", is_constant=true}} @A')
        source = f"e{level}"
    lines.append(f"y = Neg({source}) @B")
    for level in reversed(range(depth)):
        lines.append(f"o{level} = Exit({'y' if level == depth - 1 else f'o{level + 1}'}) @A")
    program = graph("\n".join(lines))
    assert cfgraph.partition(program)
    assert crossing(program) == []
