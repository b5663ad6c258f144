"""Modes of TensorFlow against cfgraph: public faults, and graphs on which all agree."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.comparison.differences import RunDiff, ValueMismatch
from cfgraph.comparison.equivalence import ComparisonRunOptions
from cfgraph.comparison.sample_point import SampleOptions
from cfgraph.errors import Unsupported, UsageError
from cfgraph.integrations.tensorflow.mode_comparison import compare_modes
from cfgraph.integrations.tensorflow.mode_oracle import ModeOracle
from cfgraph.integrations.tensorflow.mode_report import ModeFault, simplest_fault, write_report
from cfgraph.integrations.tensorflow.mode_script import repro_script
from cfgraph.integrations.tensorflow.modes import MODES
from cfgraph.integrations.tensorflow.processes import ModePool
from cfgraph.integrations.tensorflow.reduce_mode import reduce_mode, start_oracle
from tests.analysis.graph_text import graph

pytestmark = [pytest.mark.interop, pytest.mark.slow]

pytest.importorskip("tensorflow", reason="needs the extra `interop`")

X1 = ComparisonRunOptions(SampleOptions({"x1:0": np.float32([4, 5, 6, 7])}), cases=1)
CASES = ComparisonRunOptions(cases=1)


@pytest.fixture(scope="module")
def pool() -> Iterator[ModePool]:
    with ModePool() as pool:
        yield pool


def fixture(root: Path, name: str) -> cfgraph.Graph:
    return cfgraph.load(root / "fixtures" / "tensorflow_modes" / name)


def test_grappler_empties_a_loop_variable_that_is_reshaped(pool: ModePool, root: Path) -> None:
    graph = fixture(root, "while_reshape.graph")
    differing = [name for name in MODES if compare_modes(pool, graph, MODES[name], options=X1)]
    assert differing == ["grappler", "autojit"]


def test_the_first_wrong_node_is_the_loop(pool: ModePool, root: Path) -> None:
    graph = fixture(root, "while_reshape.graph")
    delta = compare_modes(pool, graph, MODES["autojit"], MODES["graph"], X1)
    assert delta.first is not None
    assert (delta.first.node, delta.first.port) == ("while", 3)
    assert delta.first.message == "live in A, dead in B, which returns an empty array"


def test_xla_empties_a_tensor_array_that_grows(pool: ModePool, root: Path) -> None:
    graph = fixture(root, "growing_tensor_array.graph")
    names = ("graph", "grappler", "autojit", "jit")
    differing = [name for name in names if compare_modes(pool, graph, MODES[name], options=CASES)]
    assert differing == ["jit"]


def test_a_string_that_ends_with_zero_agrees(pool: ModePool) -> None:
    graph = cfgraph.loads(
        b'versions producer=1\nx = Const() {dtype=string, value=string[]:"a\\x00"}'
    )
    assert not compare_modes(pool, graph, MODES["graph"], options=CASES)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_a_dead_fetch_is_dead_in_tensorflow(pool: ModePool, dtype: str) -> None:
    graph = cfgraph.loads(
        "versions producer=1\np = Const() {dtype=bool, value=bool[]:true}\n"
        f"x = Const() {{dtype={dtype}, value={dtype}[]:3}}\n"
        f"s = Switch(x, p) {{T={dtype}}}\n"
        f"y = Identity(s:0) {{T={dtype}}}\nz = Identity(s:1) {{T={dtype}}}\n".encode()
    )
    for name in ("graph", "grappler", "autojit"):
        assert not compare_modes(pool, graph, MODES[name], options=CASES), name


@pytest.mark.parametrize(
    ("name", "mode", "options", "op"),
    [
        ("while_reshape.graph", "autojit", X1, "Reshape"),
        ("growing_tensor_array.graph", "jit", CASES, "TensorListSetItem"),
    ],
)
def test_a_public_fault_is_reduced_to_ten_nodes(
    pool: ModePool, root: Path, name: str, mode: str, options: ComparisonRunOptions, op: str
) -> None:
    graph = fixture(root, name)
    oracle, delta = start_oracle(pool, graph, MODES[mode], None, options)
    search = reduce_mode(oracle, graph, delta)
    (reduced,) = search.best.graphs
    assert search.best.nodes <= 10
    assert oracle.compare(reduced)
    assert op in {
        n.op for function in reduced.functions.values() for n in function.definition.nodes
    }


def test_modes_that_agree_leave_nothing_to_reduce(pool: ModePool, root: Path) -> None:
    graph = fixture(root, "while_reshape.graph")
    with pytest.raises(UsageError, match="nothing to reduce"):
        start_oracle(pool, graph, MODES["jit"], None, X1)


def test_a_report_shows_the_fault_in_tensorflow_alone(
    pool: ModePool, root: Path, tmp_path: Path
) -> None:
    graph = fixture(root, "while_reshape.graph")
    oracle, delta = start_oracle(pool, graph, MODES["autojit"], None, X1)
    fault = simplest_fault(ModeFault(oracle, graph, delta, pool.version))
    assert fault.mode.name == "grappler", "XLA forms no cluster"
    write_report(fault, str(tmp_path))
    script = tmp_path / "repro.py"
    assert len(script.read_text().splitlines()) <= 60
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 1
    assert "AssertionError" in done.stderr
    assert "shapes (0,), (4, 1) mismatch" in done.stderr
    issue = (tmp_path / "issue.md").read_text()
    assert "`constant_folding`, `arithmetic_optimization`" in issue
    value = "[[128.0], [160.0], [192.0], [224.0]]"
    assert f"| `jit` | returns `{value}`, as cfgraph |" in issue
    assert re.findall("CFG[0-9]+", issue) == ["CFG221"], (
        "the graph of Grappler has a node that never runs"
    )
    assert cfgraph.load(tmp_path / "graph.pb").nodes.keys() == graph.nodes.keys()


def counting() -> cfgraph.Graph:
    """A graph whose loop and conditional read and assign a variable."""
    b = cfgraph.Builder()
    n, v = b.placeholder("n", "int32", []), b.variable(1.0, name="v")

    def body(i: Any) -> Any:
        v.assign(v * 2)
        b.cond(i > 0, lambda: (v.assign_add(1.0), v.read())[1], v.read)
        return i + 1

    (done,) = b.while_loop(lambda i: i < n, body, [0])
    with b.control(done):
        b.Identity(v.read(), name="after")
    b.initializer()
    return b.graph


@pytest.mark.parametrize("name", ["graph", "grappler", "autojit", "jit"])
def test_each_run_starts_from_the_values_of_its_variables(name: str, pool: ModePool) -> None:
    functional, primitive = counting(), counting()
    cfgraph.lower(primitive)
    inits = SampleOptions({"n:0": 3}, inits=["init"])
    fed = SampleOptions({"n:0": 3, "v:0": np.float32(-2)})
    # XLA compiles no Switch
    for form in (functional,) if name == "jit" else (functional, primitive):
        for setting in (inits, inits, fed):
            options = ComparisonRunOptions(setting, ("after:0",), cases=1)
            assert not compare_modes(pool, form, MODES[name], options=options)


CAST = ("a = Placeholder() {dtype=int32, shape=[]}", "c = Cast(a) {SrcT=int32, DstT=float32}")
READ = (
    'a = VarHandleOp() {dtype=float32, shape=[], shared_name="a"}',
    "c = ReadVariableOp(a) {dtype=float32}",
)


@pytest.mark.parametrize(
    ("mode", "source"),
    [("grappler", CAST), ("jit", CAST), ("lite", CAST), ("grappler", READ), ("jit", READ)],
)
def test_a_script_calls_the_graph_as_the_mode_does(
    pool: ModePool, tmp_path: Path, mode: str, source: tuple[str, ...]
) -> None:
    found = graph(
        "b = Placeholder() {dtype=float32, shape=[?,2]}",
        *source,
        "y = Mul(b, c) {T=float32}",
        "t = Neg(b) {T=float32}",
    )
    feeds = {"b:0": np.float32([[1, 2], [3, np.inf], [5, 6]]), "a:0": np.int32(2)}
    options = ComparisonRunOptions(SampleOptions(feeds), ("y:0",), ("t",), cases=1)
    assert not compare_modes(pool, found, MODES[mode], options=options)
    oracle = ModeOracle(pool, MODES[mode], None, options, ("value",), feeds)
    value = feeds["b:0"] * 2
    for expected, status in ((value, 0), (value + np.float32(1), 1)):
        gap = ValueMismatch("y:0", "the value differs", expected, value)
        delta = RunDiff(("y:0",), gaps=(gap,), inputs=feeds, targets=("t",))
        path = tmp_path / "repro.py"
        path.write_text(repro_script(oracle, found, delta, "title"))
        done = subprocess.run(
            [sys.executable, path], capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == status, done.stderr
        assert ("AssertionError" in done.stderr) == bool(status)


RUN_EACH = """
import os, runpy, sys
import tensorflow
for path in sys.argv[1:]:
    pid = os.fork()
    if not pid:
        try:
            runpy.run_path(path)
        except (AssertionError, tensorflow.errors.OpError):
            os._exit(1)
        finally:
            os._exit(0)
    print(path, os.waitpid(pid, 0)[1], flush=True)
"""


def test_each_published_script_fails_with_tensorflow_alone(root: Path) -> None:
    paths = sorted(str(path) for path in (root / "docs" / "findings").glob("*.py"))
    # oneDNN, which the tests turn off, takes part in one of the faults
    environment = {name: value for name, value in os.environ.items() if "ONEDNN" not in name}
    command = [sys.executable, "-c", RUN_EACH, *paths]
    result = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    statuses = dict(re.findall(r"^(/.+\.py) (\d+)$", result.stdout, flags=re.MULTILINE))
    assert [path for path in paths if statuses.get(path, "0") == "0"] == []
    assert max(len(Path(path).read_text().splitlines()) for path in paths) <= 20


def test_a_loop_that_waits_for_what_waits_for_it_is_not_dead(pool: ModePool) -> None:
    # the first iteration ends after `late` has entered, and the second starts after the first
    enter = 'frame_name="loop", parallel_iterations=1'
    found = graph(f"""
        zero = Const() {{dtype=int32, value=int32[]:0}}
        e = Enter(zero) {{{enter}}}
        m = Merge(e, n) {{T=int32, N=2}}
        two = Const(^m) {{dtype=int32, value=int32[]:2}}
        c = Less(m, two)
        s = Switch(m, c)
        i = AddV2(s:1, two)
        n = NextIteration(i)
        out = Exit(s)
        late = Enter(out) {{{enter}}}
        both = AddV2(m, late)
        exit = Exit(both)
    """)
    options = ComparisonRunOptions(fetches=("zero:0", "out:0", "exit:0"), cases=1)
    delta = compare_modes(pool, found, MODES["graph"], options=options)
    assert not delta
    missing = [item.node for item in delta.notices if item.code == "CFG707"]
    assert missing == ["out", "exit"]


def tie(root: Path) -> ComparisonRunOptions:
    """The options of a run in which an element equals the mean of its row."""
    values = np.load(root / "fixtures" / "tensorflow_modes" / "tie_of_a_comparison.npy")
    feeds = {"x:0": values, "Mean/reduction_indices:0": np.int32(1)}
    return ComparisonRunOptions(SampleOptions(feeds), cases=1)


@pytest.mark.parametrize("name", MODES)
def test_a_tie_of_a_comparison_is_rounding(name: str, pool: ModePool, root: Path) -> None:
    graph = fixture(root, "tie_of_a_comparison.pb")
    delta = compare_modes(pool, graph, MODES[name], options=tie(root))
    assert not delta
    messages = [item.message for item in delta.notices if item.code == "CFG809"]
    assert len(messages) == (name == "jit")
    assert all("differ by 1 ulp" in message for message in messages)


def test_a_tie_is_nothing_to_reduce(pool: ModePool, root: Path) -> None:
    graph = fixture(root, "tie_of_a_comparison.pb")
    with pytest.raises(UsageError, match="within rounding: Greater:0: 1 of 30 elements differ"):
        start_oracle(pool, graph, MODES["jit"], None, tie(root))


def test_a_tie_explains_no_node_after_which_cfgraph_fails(pool: ModePool, root: Path) -> None:
    options = tie(root)
    (greater,) = cfgraph.Session(fixture(root, "tie_of_a_comparison.pb")).run(
        ["Greater"], options.setting.feeds
    )
    # the index is 0 in cfgraph, and out of range in the mode, where XLA takes the nearest element
    found = graph(f"""
        x = Placeholder() {{dtype=float32, shape=[?,5]}}
        Mean/reduction_indices = Placeholder() {{dtype=int32, shape=[]}}
        mean = Mean(x, Mean/reduction_indices) {{keep_dims=true}}
        greater = Greater(x, mean)
        numbers = Cast(greater) {{DstT=int32}}
        axes = Const() {{dtype=int32, value=int32[2]:[0, 1]}}
        count = Sum(numbers, axes)
        expected = Const() {{dtype=int32, value=int32[]:{np.sum(greater)}}}
        index = Sub(count, expected)
        values = Const() {{dtype=float32, value=float32[1]:[3]}}
        axis = Const() {{dtype=int32, value=int32[]:0}}
        value = GatherV2(values, index, axis)
        number = Cast(index) {{DstT=float32}}
        y = AddV2(value, number)
    """)
    delta = compare_modes(pool, found, MODES["jit"], options=options)
    assert delta
    assert not delta.notices


@pytest.mark.parametrize(
    ("name", "mode", "reason"),
    [
        ("lists_without_size.pb", "jit", "traced with jit_compile=True"),
        ("dead_fetch.pb", "lite", "the converter removes a fetched node"),
    ],
)
def test_a_graph_that_a_mode_cannot_have_is_not_compared(
    name: str, mode: str, reason: str, pool: ModePool, root: Path
) -> None:
    with pytest.raises(Unsupported, match=reason):
        compare_modes(pool, fixture(root, name), MODES[mode], options=CASES)
