from __future__ import annotations

from pathlib import Path

import pytest

import cfgraph
from cfgraph.analysis.loops.frame import Frame, Frames
from cfgraph.analysis.loops.frames import frames
from tests.analysis.graph_text import LOOP, graph


def frame_of_path(graph_frames: Frames, path: str) -> Frame:
    (frame,) = [frame for frame in graph_frames.all if frame.path == path]
    return frame


def names(nodes: list[cfgraph.Node]) -> list[str]:
    return [node.name for node in nodes]


def codes(graph_frames: Frames) -> list[str]:
    return [fault.code for fault in graph_frames.faults]


def test_a_graph_without_loops_has_the_root_frame_alone() -> None:
    of = graph("x = Placeholder() {dtype=float32}", "y = Neg(x)")
    graph_frames = frames(of)
    (root,) = graph_frames.all
    assert (root.name, root.parent, root.depth, root.path) == ("", None, 0, "/")
    assert names(root.nodes) == ["x", "y"]
    assert set(graph_frames.of.values()) == {root}


def test_an_enter_runs_in_the_parent_and_an_exit_in_the_loop() -> None:
    of = graph(LOOP)
    graph_frames = frames(of)
    root, loop = graph_frames.all
    assert graph_frames.of[of["e"]] is root
    assert graph_frames.of_outputs[of["e"]] is loop
    assert graph_frames.of[of["out"]] is loop
    assert graph_frames.of_outputs[of["out"]] is root
    assert graph_frames.of[of["y"]] is root
    assert graph_frames.faults == ()


def test_a_frame_knows_its_members_in_graph_order() -> None:
    loop = frame_of_path(frames(graph(LOOP)), "/loop")
    assert names(loop.nodes) == ["m", "c", "s", "body", "n", "out"]
    assert names(loop.enters) == ["e", "bound"]
    assert names(loop.exits) == ["out"]
    assert names(loop.merges) == ["m"]
    assert names(loop.next_iterations) == ["n"]
    assert names(loop.loop_conds) == ["c"]
    assert names(loop.invariants) == ["bound"]
    assert loop.parallel_iterations == 4


def test_the_order_of_a_file_does_not_matter() -> None:
    lines = [line for line in LOOP.splitlines() if line]
    forward, backward = graph(*lines), graph(*reversed(lines))
    paths = [
        {node.name: found.path for node, found in frames(of).of.items()}
        for of in (forward, backward)
    ]
    assert paths[0] == paths[1]
    assert frames(backward).faults == ()


def test_members_follow_the_order_of_the_file_not_that_of_the_data() -> None:
    lines = [line for line in LOOP.splitlines() if line]
    loop = frame_of_path(frames(graph(*reversed(lines))), "/loop")
    assert names(loop.nodes) == ["out", "n", "body", "s", "c", "m"]
    assert names(loop.enters) == ["bound", "e"]


def test_order_has_sources_before_readers_but_for_back_edges() -> None:
    of = graph(*reversed([line for line in LOOP.splitlines() if line]))
    place = {node: at for at, node in enumerate(frames(of).order)}
    for node in of:
        for source, _ in node.inputs:
            assert place[source] < place[node] or source.op == "NextIteration"
    assert len(place) == len(of)


def test_parallel_iterations_are_ten_where_the_enter_does_not_say() -> None:
    graph_frames = frames(
        graph(
            "x = Placeholder() {dtype=float32}",
            'e = Enter(x) {frame_name="f"}',
            "out = Exit(e)",
        )
    )
    assert frame_of_path(graph_frames, "/f").parallel_iterations == 10


NESTED = """
    x = Placeholder() {dtype=float32}
    a = Enter(x) {frame_name="outer"}
    b = Enter(a) {frame_name="inner"}
    b2 = Neg(b)
    i = Exit(b2)
    o = Exit(i)
"""


def test_loops_nest() -> None:
    of = graph(NESTED)
    graph_frames = frames(of)
    outer, inner = (
        frame_of_path(graph_frames, "/outer"),
        frame_of_path(graph_frames, "/outer/inner"),
    )
    assert inner.parent is outer
    assert (outer.depth, inner.depth) == (1, 2)
    assert [graph_frames.of[of[name]] for name in ("b2", "i", "o")] == [inner, inner, outer]
    assert inner.is_within(outer)
    assert inner.is_within(graph_frames.root)
    assert not outer.is_within(inner)


def test_parents_stand_before_children() -> None:
    graph_frames = frames(graph(NESTED))
    place = {frame: at for at, frame in enumerate(graph_frames.all)}
    assert all(place[frame.parent] < place[frame] for frame in graph_frames.all if frame.parent)


def test_one_name_under_two_parents_is_two_frames() -> None:
    of = graph(NESTED, 'c = Enter(x) {frame_name="inner"}', "k = Exit(c)")
    graph_frames = frames(of)
    assert graph_frames.faults == ()
    assert frame_of_path(graph_frames, "/inner") is not frame_of_path(graph_frames, "/outer/inner")
    assert names(frame_of_path(graph_frames, "/inner").enters) == ["c"]


def test_enters_of_one_name_and_parent_lead_into_one_frame() -> None:
    of = graph(
        "x = Placeholder() {dtype=float32}",
        'a = Enter(x) {frame_name="f"}',
        'b = Enter(x) {frame_name="f"}',
        "sum = Add(a, b)",
        "out = Exit(sum)",
    )
    graph_frames = frames(of)
    assert graph_frames.faults == ()
    assert len(graph_frames.all) == 2


def test_a_loop_nested_in_one_of_its_own_name_is_another_frame() -> None:
    of = graph(
        "x = Placeholder() {dtype=float32}",
        'a = Enter(x) {frame_name="f"}',
        'b = Enter(a) {frame_name="f"}',
        "i = Exit(b)",
        "o = Exit(i)",
    )
    assert [frame.path for frame in frames(of).all] == ["/", "/f", "/f/f"]


def test_a_node_that_hangs_on_control_edges_is_in_their_frame() -> None:
    of = graph(LOOP, "k = Const(^body) {dtype=float32, value=float32[]:1}")
    assert frames(of).of[of["k"]].path == "/loop"


def test_a_node_that_waits_for_an_exit_is_outside() -> None:
    of = graph(LOOP, "after = NoOp(^out)")
    assert frames(of).of[of["after"]].path == "/"


def test_unknown_ops_are_in_the_frame_of_their_inputs() -> None:
    of = graph(LOOP, "u = Frobnicate(body)", "v = Frobnicate()")
    graph_frames = frames(of)
    assert graph_frames.of[of["u"]].path == "/loop"
    assert graph_frames.of[of["v"]].path == "/"


def test_functions_of_ref_primitives_count_alike() -> None:
    of = graph(
        "v = VariableV2() {dtype=float32, shape=[]}",
        'e = RefEnter(v) {frame_name="f"}',
        "out = RefExit(e)",
    )
    graph_frames = frames(of)
    assert graph_frames.of[of["out"]].path == "/f"
    assert graph_frames.of_outputs[of["out"]] is graph_frames.root


# -- restricted to what a run needs ---------------------------------------------------------------


def test_only_the_chosen_nodes_have_frames() -> None:
    of = graph(LOOP)
    chosen = [of[name] for name in ("x", "e")]
    graph_frames = frames(of, chosen)
    assert set(graph_frames.of) == set(chosen)
    assert [names(frame.nodes) for frame in graph_frames.all] == [["x", "e"], []]


def test_what_reads_a_fed_tensor_is_in_the_root_frame() -> None:
    of = graph(LOOP, "z = Neg(body)")
    z = of["z"]
    graph_frames = frames(of, [z], {of["body"].output()})
    assert graph_frames.of[z] is graph_frames.root
    assert graph_frames.faults == ()


def test_a_fed_tensor_inside_a_loop_is_a_fault_where_the_loop_reads_it() -> None:
    of = graph(LOOP, "z = Add(body, s:1)")
    graph_frames = frames(of, None, {of["body"].output()})
    assert [(fault.code, fault.node) for fault in graph_frames.faults] == [
        ("CFG204", "n"),
        ("CFG201", "z"),
    ]


def test_a_feed_cuts_only_its_own_output() -> None:
    of = graph(LOOP, "z = Neg(s)")
    graph_frames = frames(of, None, {of["s"].output(1)})
    assert graph_frames.of[of["z"]].path == "/loop"
    assert graph_frames.of[of["body"]] is graph_frames.root


def test_a_fed_back_edge_is_no_back_edge() -> None:
    of = graph(LOOP)
    graph_frames = frames(of, [of["n"], of["m"]], {of["n"].output(), of["body"].output()})
    assert "CFG208" not in codes(graph_frames)


# -- faults are collected, not raised --------------------------------------------------------------


def test_inputs_from_two_loops_are_reported_with_both_frames() -> None:
    graph_frames = frames(
        graph(
            "x = Placeholder() {dtype=float32}",
            'e1 = Enter(x) {frame_name="f"}',
            'e2 = Enter(x) {frame_name="g"}',
            "a = Add(e1, e2)",
        )
    )
    (fault,) = graph_frames.faults
    assert (fault.code, fault.node) == ("CFG201", "a")
    assert "'e1:0' is in frame '/f'" in fault.message
    assert "'e2:0' in frame '/g'" in fault.message
    assert set(fault.related) == {"e1", "e2"}


@pytest.mark.parametrize(
    ("exit_node", "hint"),
    [
        ("out = Exit(inner)", "read 'out:0', the Exit of /outer/inner, instead of 'inner:0'"),
        ("", "forward 'inner:0' out of /outer/inner by an Exit, and read that"),
    ],
)
def test_a_loop_that_closes_inside_names_the_exit_to_read(exit_node: str, hint: str) -> None:
    graph_frames = frames(
        graph(
            "x = Placeholder() {dtype=float32}",
            'e = Enter(x) {frame_name="outer"}',
            "m = Merge(e, n)",
            'inner = Enter(m) {frame_name="inner"}',
            exit_node,
            "n = NextIteration(inner)",
        )
    )
    assert [(fault.code, fault.hint) for fault in graph_frames.faults] == [("CFG207", hint)]


def test_one_misplaced_constant_is_one_fault_not_one_for_each_node_behind_it() -> None:
    graph_frames = frames(graph(LOOP.replace("Identity(s:1)", "Add(s:1, x)")))
    assert [(fault.code, fault.node) for fault in graph_frames.faults] == [("CFG201", "body")]


def test_a_second_loop_cond_is_a_fault_unless_it_is_a_gradient_counter() -> None:
    assert codes(frames(graph(LOOP, "c2 = LoopCond(bound)"))) == ["CFG206"]
    assert codes(frames(graph(LOOP, "c2/LoopCounter = LoopCond(bound)"))) == []


def test_frames_that_need_the_nodes_to_be_sound_refuse_them_by_name() -> None:
    graph_frames = frames(graph("x = Placeholder() {dtype=float32}", "out = Exit(x)"))
    with pytest.raises(cfgraph.InvalidInput) as caught:
        graph_frames.require_valid()
    assert (caught.value.code, caught.value.node) == ("CFG203", "out")
    assert caught.value.findings == graph_frames.faults


def test_a_cycle_without_entry_does_not_hang_the_analysis() -> None:
    of = graph("a = NoOp(^b)", "b = NoOp(^a)", "c = NoOp(^b)")
    graph_frames = frames(of)
    assert [names(list(cycle)) for cycle in graph_frames.cycles] == [["b", "a"]]
    assert set(graph_frames.of) == set(of)


# -- size ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backwards", [False, True])
def test_a_chain_of_thirty_thousand_nodes_needs_no_deep_stack(backwards: bool) -> None:
    of = cfgraph.Graph()
    last = of.create("n0", "Identity")
    for number in range(1, 30_000):
        last = of.create(f"n{number}", "Identity", (last.output(),))
    nodes = list(of)
    graph_frames = frames(of, reversed(nodes) if backwards else nodes)
    assert len(graph_frames.root.nodes) == 30_000
    assert graph_frames.order == tuple(nodes)


def test_two_hundred_nested_frames() -> None:
    of = cfgraph.Graph()
    last = of.create("x", "Placeholder")
    for depth in range(200):
        attrs = {"frame_name": b"f%d" % depth}
        last = of.create(f"e{depth}", "Enter", (last.output(),), attrs=attrs)
    for depth in range(200):
        last = of.create(f"o{depth}", "Exit", (last.output(),))
    graph_frames = frames(of)
    assert graph_frames.faults == ()
    assert len(graph_frames.all) == 201
    assert graph_frames.all[-1].depth == 200
    assert graph_frames.of_outputs[last] is graph_frames.root
    assert graph_frames.all[3].path == "/f0/f1/f2"
    assert "…" in graph_frames.all[-1].path
    assert graph_frames.all[-1].path.endswith("/f198/f199")


def test_faults_of_deep_frames_stay_short() -> None:
    of = cfgraph.Graph()
    last = of.create("x", "Placeholder")
    for depth in range(5_000):
        attrs = {"frame_name": b"f"}
        last = of.create(f"e{depth}", "Enter", (last.output(),), attrs=attrs)
    of.create("a", "Add", (last.output(), of["x"].output()))
    (fault,) = frames(of).faults
    assert len(fault.message) < 500


def test_real_loops_have_the_frames_that_their_names_say(fixtures: Path) -> None:
    of = cfgraph.load(fixtures / "graphs" / "nested.pb")
    graph_frames = frames(of)
    assert graph_frames.faults == ()
    assert [(frame.path, len(frame.loop_conds)) for frame in graph_frames.all] == [
        ("/", 0),
        ("/while/while_context", 1),
        ("/while/while_context/while/while/while_context", 1),
    ]
