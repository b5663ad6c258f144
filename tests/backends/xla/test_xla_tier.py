"""Repeated runs of a session move from generated code to XLA where measured times say so."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from threading import Thread
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.backends.xla import background
from cfgraph.backends.xla import tier as xla_tier
from cfgraph.backends.xla.background import Job
from cfgraph.backends.xla.compile import CompiledFunction
from cfgraph.backends.xla.tier import Phase, RepeatedRun
from cfgraph.errors import ExecutionError
from cfgraph.ir.graph import Graph
from cfgraph.runtime.cluster_runner import ClusterRunner, SignatureCounts
from cfgraph.runtime.session import Session
from tests.backends.xla.tier_fixtures import at_once
from tests.recorder import Recorder

__all__ = ["at_once"]

needs_jax = pytest.mark.skipif(find_spec("jax") is None, reason="jax (extra `xla`) is absent")

# one step of gradient descent on a product of matrices, and integers and Booleans from it
TRAINING = """
x = Placeholder() {dtype=float32, shape=?}
w = VarHandleOp() {dtype=float32, shape=[3,2], shared_name="w"}
start = Const() {dtype=float32, value=float32[3,2]:[[1,2],[3,4],[5,6]]}
init = AssignVariableOp(w, start) {dtype=float32}
rate = Const() {dtype=float32, value=float32[]:0.01}
read = ReadVariableOp(w) {dtype=float32}
y = MatMul(x, read)
tanh = Tanh(y)
square = Mul(tanh, tanh)
ones = OnesLike(square)
dsquare = Sub(ones, square)
dw = MatMul(x, dsquare) {transpose_a=true}
delta = Mul(rate, dw)
step = AssignSubVariableOp(w, delta, ^read) {dtype=float32}
axes = Const() {dtype=int32, value=int32[2]:[0,1]}
loss = Sum(square, axes)
count = Cast(y) {SrcT=float32, DstT=int32}
half = Const() {dtype=float32, value=float32[]:0.5}
large = Greater(square, half)
"""
FETCHES = ["loss:0", "count:0", "large:0"]


def planned() -> Job[Any]:
    """Work that is done."""
    job = Job[Any](lambda: None)
    job.run()
    return job


def phase(run: Session) -> Phase | None:
    repeated = None if run._last is None else run._last.repeated
    return None if repeated is None else repeated.phase


def session(text: str, **options: Any) -> Session:
    return Session(cfgraph.loads(text.encode(), "graph"), **options)


def initialized(text: str, **options: Any) -> Session:
    made = session(text, **options)
    made.run(targets=["init"])
    return made


def steps(run: Session, count: int, **limits: Any) -> list[list[Any]]:
    data = np.random.default_rng(0).standard_normal((count, 4, 3)).astype(np.float32)
    return [run.run(FETCHES, {"x": x}, ["step"], **limits) for x in data]


@pytest.mark.smallest
@needs_jax
def test_training_moves_to_xla_and_agrees(at_once: None) -> None:
    auto, compiled = initialized(TRAINING), initialized(TRAINING, engine="compiled")
    for ours, expected in zip(steps(auto, 12), steps(compiled, 12), strict=True):
        np.testing.assert_allclose(ours[0], expected[0], rtol=1e-5)
        np.testing.assert_array_equal(ours[1], expected[1])
        np.testing.assert_array_equal(ours[2], expected[2])
        assert [value.dtype for value in ours] == [value.dtype for value in expected]
    assert phase(auto) is Phase.XLA
    assert auto.tier_choice.startswith("XLA compiled in ")
    assert phase(compiled) is None
    assert compiled.tier_choice == ""
    (_, ours), (_, theirs) = *auto.state.variables(), *compiled.state.variables()
    np.testing.assert_allclose(ours.value, theirs.value, rtol=1e-5)


@needs_jax
def test_generated_code_continues_with_the_variables_of_a_rejected_trial(
    at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xla_tier, "_WORTH", 0.0)
    auto, compiled = initialized(TRAINING), initialized(TRAINING, engine="compiled")
    ours, expected = steps(auto, 14), steps(compiled, 14)
    assert phase(auto) is Phase.REJECTED
    assert "a run, generated code" in auto.tier_choice
    assert auto._last is not None
    assert auto._last.prepared.upper is None
    np.testing.assert_allclose([v[0] for v in ours], [v[0] for v in expected], rtol=1e-5)


@needs_jax
@pytest.mark.parametrize(
    ("options", "limits"),
    [
        ({"engine": "compiled"}, {}),
        ({"engine": "tokens"}, {}),
        ({}, {"timeout": 60.0}),
        ({}, {"max_iterations": 9}),
        ({}, {"trace": Recorder()}),
        ({"devices": ["cpu:0", "cpu:1"]}, {}),
    ],
    ids=",".join,
)
def test_other_engines_and_limited_or_observed_runs_do_not_move(
    at_once: None, options: dict[str, Any], limits: dict[str, Any]
) -> None:
    run = initialized(TRAINING, **options)
    steps(run, 4, **limits)
    assert phase(run) is None


@needs_jax
def test_each_combination_of_feed_shapes_is_decided_by_itself(at_once: None) -> None:
    run = initialized(TRAINING)
    for _ in range(9):
        run.run(FETCHES, {"x": np.ones((4, 3), np.float32)}, ["step"])
    assert phase(run) is Phase.XLA
    run.run(FETCHES, {"x": np.ones((5, 3), np.float32)}, ["step"])
    assert phase(run) is Phase.GENERATED


VALUE_AS_SHAPE = """
n = Placeholder() {dtype=int32, shape=[]}
x = Placeholder() {dtype=float32, shape=?}
dims = Pack(n, n) {N=2}
filled = Fill(dims, x)
twice = Add(filled, filled)
y = Mul(twice, filled)
"""


@needs_jax
def test_a_value_that_shapes_depend_on_is_not_compiled_for_ever(at_once: None) -> None:
    run = session(VALUE_AS_SHAPE)
    for n in range(1, 12):
        (y,) = run.run(["y:0"], {"n": n, "x": 2.0})
        np.testing.assert_array_equal(y, np.full((n, n), 8.0, np.float32))
    assert phase(run) is Phase.REJECTED
    assert "change from run to run" in run.tier_choice


RANDOM = """
dims = Const() {dtype=int32, value=int32[1]:[5]}
noise = RandomStandardNormal(dims) {dtype=float32, seed=3}
a = Tanh(noise)
b = Mul(a, a)
c = Sub(b, a)
d = Exp(c)
e = Add(d, c)
y = Mul(e, noise)
"""


@needs_jax
def test_random_numbers_are_those_of_generated_code(at_once: None) -> None:
    auto, compiled = session(RANDOM), session(RANDOM, engine="compiled")
    for _ in range(10):
        ours, theirs = (run.run(["noise:0", "y:0"]) for run in (auto, compiled))
        np.testing.assert_array_equal(ours[0], theirs[0])
        np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-5)
    assert phase(auto) is Phase.XLA


STRINGS = """
x = Placeholder() {dtype=string, shape=[]}
a = StringUpper(x)
b = StringLower(a)
y = StringStrip(b)
"""


@needs_jax
def test_a_run_that_xla_cannot_compile_stays(at_once: None) -> None:
    run = session(STRINGS)
    for _ in range(5):
        assert run.run(["y:0"], {"x": b" A "}) == [b"a"]
    assert phase(run) is Phase.REJECTED
    assert "remain outside of clusters" in run.tier_choice


def test_time_in_generated_code_pays_for_a_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xla_tier, "_START_PROCESS", 0.0)
    monkeypatch.setattr(xla_tier, "_TRIAL_RUNS", 2)
    run = RepeatedRun(1.0, start_plan=planned)
    run.add_generated(1.5)
    assert not run.uses_tier
    assert str(run) == "1 run took 1.5 s, XLA would compile for about 1 s"
    run.add_generated(0.6)
    assert not run.uses_tier
    assert str(run) == "XLA compiles in a process of its own"
    run.advance()
    assert run.uses_tier
    assert run.may_compile


def test_runs_beside_a_compilation_leave_it_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    run, phases = RepeatedRun(1.0, start_plan=planned), list[Phase]()

    @contextmanager
    def recorded() -> Iterator[None]:
        phases.append(run.phase)
        yield

    monkeypatch.setattr(xla_tier, "leave_a_core", recorded)
    for phase in (Phase.GENERATED, Phase.COMPILING, Phase.TRIAL):
        run.phase = phase
        run.run(lambda: None, None)
    run.compiling.add(1.0)
    run.run(lambda: None, None)
    assert phases == [Phase.COMPILING, Phase.TRIAL]


def test_runs_beside_a_compilation_give_it_time_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    run, phases = RepeatedRun(1.0, start_plan=planned), list[Phase]()
    monkeypatch.setattr(background.BACKGROUND, "let_work", lambda seconds: phases.append(run.phase))
    for phase in (Phase.GENERATED, Phase.COMPILING, Phase.TRIAL):
        run.phase = phase
        run.run(lambda: None, None)
    assert phases == [Phase.COMPILING]


def test_a_thread_that_waits_for_a_process_is_given_less_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thread, seconds = background.BackgroundThread(), list[float]()
    monkeypatch.setattr(background, "sleep", seconds.append)
    with thread.waiting():
        thread.let_work(0.1)
    thread.let_work(0.1)
    thread.let_work(100)
    waiting, working, most = seconds
    assert 0 < waiting < working < most < 0.1


@pytest.mark.parametrize(("seconds", "expected"), [(0.89, Phase.XLA), (0.91, Phase.REJECTED)])
def test_a_trial_compares_runs_in_turn(
    seconds: float, expected: Phase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xla_tier, "_START_PROCESS", 0.0)
    run, signatures, turns = RepeatedRun(0.0, start_plan=planned), SignatureCounts(), []
    for _ in range(5):
        run.add_generated(0.5)  # as fast as it never is after the compilation
    run.advance()
    while run.phase is Phase.TRIAL:
        turns.append(run.uses_tier)
        if run.uses_tier:
            signatures.start_run(may_compile=run.may_compile)
            signatures.compiled = len(turns) == 1
            run.add_xla(60.0 if signatures.compiled else seconds, signatures)
        else:
            run.add_generated(1.0)
    assert turns == [True, *(True, False) * 5]
    assert run.phase is expected
    assert "generated code 1 s" in str(run)


@needs_jax
def test_threads_count_their_own_runs(at_once: None) -> None:
    clusters, runs = ClusterRunner("xla"), [RepeatedRun(0.0), RepeatedRun(0.0)]
    for run in runs:
        run.phase = Phase.TRIAL

    def compile_one() -> None:
        clusters.signatures.compiled += 1
        other = Thread(target=runs[1].run, args=(lambda: None, clusters))
        other.start()
        other.join()

    runs[0].run(compile_one, clusters)
    assert [run.compiling.count for run in runs] == [1, 0]
    assert [run.xla.count for run in runs] == [0, 1]


@needs_jax
def test_a_run_of_generated_code_that_ends_in_the_trial_is_one_of_generated_code(
    at_once: None,
) -> None:
    run = RepeatedRun(0.0)
    run.run(lambda: setattr(run, "phase", Phase.TRIAL), None)
    assert (run.compared.count, run.xla.count) == (1, 0)


@needs_jax
def test_threads_with_different_shapes_compile_once_each(at_once: None) -> None:
    run = initialized(TRAINING)
    # the tier of the run
    steps(run, 2)

    def repeat(size: int) -> None:
        for _ in range(20):
            run.run(FETCHES, {"x": np.ones((size, 3), np.float32)}, ["step"])

    threads = [Thread(target=repeat, args=(size,)) for size in range(4, 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for size in range(4, 8):
        repeat(size)
        assert phase(run) is Phase.XLA
        assert run._last is not None
        repeated = run._last.repeated
        assert repeated is not None
        assert (repeated.compiling.count, repeated.misses) == (1, 0)


@needs_jax
@pytest.mark.parametrize("engine", ["auto", "xla"])
def test_a_run_continues_on_numpy_if_xla_has_no_memory(
    at_once: None, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    def fail(self: CompiledFunction, inputs: Any, step: Any) -> Any:
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.\nmore")

    monkeypatch.setattr(CompiledFunction, "run", fail)
    run, compiled = initialized(TRAINING, engine=engine), initialized(TRAINING, engine="compiled")
    ours, expected = steps(run, 8), steps(compiled, 8)
    np.testing.assert_allclose([v[0] for v in ours], [v[0] for v in expected], rtol=1e-5)
    if engine == "auto":
        assert phase(run) is Phase.REJECTED
        text = "XLA is not used: RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes."
        assert run.tier_choice == text


def loop_without_iterations() -> Graph:
    """A loop that reads a variable, and another variable that counts the runs."""
    b = cfgraph.Builder()
    n, x = b.placeholder("n", "int32", []), b.placeholder("x", "float32", [])
    handles = [
        b.VarHandleOp(dtype="float32", shape=[], shared_name=name, name=name) for name in "vw"
    ]
    b.AssignVariableOp(handles[1], x, name="init")

    def body(i: Any, y: Any) -> Any:
        for _ in range(6):
            y = b.Tanh(y + b.ReadVariableOp(handles[0], dtype="float32"))
        return i + 1, b.EnsureShape(y, shape=[])

    y = b.while_loop(lambda i, y: i < n, body, (b.const(0), x))[1]
    b.Identity(y, name="y")
    b.AssignAddVariableOp(handles[1], y, name="step")
    return b.graph


@needs_jax
def test_a_variable_without_a_value_that_a_run_does_not_read_is_no_error(
    at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xla_tier, "MOST_REMAINING", 1.0)
    run = Session(loop_without_iterations())
    feeds = {"n": np.int32(0), "x": np.float32(2)}
    run.run([], feeds, ["init"])
    for _ in range(6):
        assert run.run(["y:0"], feeds, ["step"]) == [2.0]
    assert run.tier_choice == "XLA is not used: the variable v has no value"


LOOKUP = """
table = VarHandleOp() {dtype=float32, shape=[4], shared_name="table"}
start = Const() {dtype=float32, value=float32[4]:[1,2,3,4]}
init = AssignVariableOp(table, start) {dtype=float32}
row = Placeholder() {dtype=int32, shape=[]}
divisor = Placeholder() {dtype=int32, shape=[]}
read = ReadVariableOp(table) {dtype=float32}
axis = Const() {dtype=int32, value=int32[]:0}
picked = GatherV2(read, row, axis)
n = FloorDiv(row, divisor)
tanh = Tanh(picked)
y = Mul(tanh, picked)
more = Mul(read, read)
step = AssignVariableOp(table, more, ^read) {dtype=float32}
"""
WRONG = [
    ({"row": 9, "divisor": 1}, "indices = 9 is not in [0, 4)", "picked"),
    ({"row": 1, "divisor": 0}, "Integer division by zero", "n"),
]


@needs_jax
@pytest.mark.parametrize("targets", [(), ("step",)], ids=["pure", "writes"])
def test_errors_are_those_of_generated_code(
    at_once: None, monkeypatch: pytest.MonkeyPatch, targets: tuple[str, ...]
) -> None:
    monkeypatch.setattr(xla_tier, "MOST_REMAINING", 1.0)
    errors = []
    for engine in ("auto", "compiled"):
        run = initialized(LOOKUP, engine=engine)
        for _ in range(9):
            run.run(["y:0", "n:0"], {"row": 2, "divisor": 2}, targets)
        assert phase(run) is (Phase.XLA if engine == "auto" else None)
        for feeds, message, node in WRONG:
            with pytest.raises(ExecutionError) as caught:
                run.run(["y:0", "n:0"], feeds, targets)
            assert message in caught.value.message
            assert caught.value.node == node
            errors.append(str(caught.value))
        assert phase(run) is (Phase.XLA if engine == "auto" else None)
    assert errors[:2] == errors[2:]


def sum_of_rows() -> Graph:
    """A loop whose Gather fails in iteration 4."""
    b = cfgraph.Builder()
    n, table = b.placeholder("n", "int32", []), b.placeholder("table", "float32", [4])

    def body(i: Any, total: Any) -> Any:
        return i + 1, total + b.Tanh(b.GatherV2(table, i, 0))

    b.Identity(b.while_loop(lambda i, total: i < n, body, (b.const(0), 0.0))[1], name="y")
    return b.graph


@needs_jax
def test_an_error_in_a_loop_has_its_iteration(at_once: None) -> None:
    errors, table = [], np.arange(4, dtype=np.float32)
    for engine in ("auto", "compiled"):
        run = Session(sum_of_rows(), engine=engine)
        for _ in range(9):
            (y,) = run.run(["y:0"], {"n": 4, "table": table})
        np.testing.assert_allclose(y, np.tanh(table).sum(), rtol=1e-6)
        assert phase(run) is (Phase.XLA if engine == "auto" else None)
        with pytest.raises(ExecutionError) as caught:
            run.run(["y:0"], {"n": 5, "table": table})
        errors.append((caught.value.node, caught.value.frame, str(caught.value)))
    assert errors[0] == errors[1]


def test_another_thread_may_add_a_time_while_times_are_compared() -> None:
    times = xla_tier.RunTimes()

    class Compared(float):
        def __lt__(self, other: float) -> bool:
            times.add(3.0)
            return super().__lt__(other)

    for seconds in (2.0, 1.0):
        times.add(Compared(seconds))
    assert times.least == 1.0


INTERVALS = """
import sys
from cfgraph.backends.xla.background import BACKGROUND
before = sys.getswitchinterval()
beside = BACKGROUND.start(sys.getswitchinterval).result()
print(beside < before == sys.getswitchinterval())
"""


def test_work_beside_the_runs_soon_returns_the_interpreter() -> None:
    # a process of its own: other tests may still have work beside their runs
    command = [sys.executable, "-c", INTERVALS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "True\n", done.stderr
