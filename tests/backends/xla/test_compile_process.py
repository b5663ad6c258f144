"""A process of its own traces and compiles for XLA: its faults, and what its parent imports."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.backends.xla import compile_process
from cfgraph.backends.xla import tier as xla_tier
from cfgraph.backends.xla.background import BACKGROUND, Job
from cfgraph.backends.xla.loaded_executable import LoadedExecutable, NotLoadable
from cfgraph.backends.xla.tier import Phase
from cfgraph.errors import ProcessLost
from cfgraph.processes.child_process import ChildPool, ChildProcess
from cfgraph.runtime.cluster_runner import ClusterRunner
from cfgraph.runtime.code_cache import CodeCache
from cfgraph.runtime.session import Session
from tests.backends.xla.faulty_compile_program import FAULT, STEPS
from tests.backends.xla.test_xla_tier import FETCHES, TRAINING, initialized, phase, steps
from tests.runtime.compiled.test_code_cache import folder

__all__ = ["folder"]

pytestmark = pytest.mark.skipif(find_spec("jax") is None, reason="jax (extra `xla`) is absent")

ENDINGS = {
    "failed check": "] Check failed: ",
    "abort": "ended: SIGABRT: Check failed: planted",
    "exit without an error": "ended: exit status 0",
    "segfault": "ended: SIGSEGV",
    "stop": "did nothing for",
}


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Compilations start processes with the fault of the environment."""
    program = replace(
        compile_process._PROGRAM,
        module="tests.backends.xla.faulty_compile_program",
        idle_seconds=1.0,
    )
    pool = ChildPool(lambda: ChildProcess(program))
    for name in ("_POOL", "_YIELDING_POOL"):
        monkeypatch.setattr(compile_process, name, pool)
    yield monkeypatch
    pool.close()


def variable(run: Session) -> Any:
    ((_, found),) = run.state.variables()
    return found.value


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        ("compile", "abort"),
        ("compile", "stop"),
        *(
            pytest.param(step, kind, marks=pytest.mark.slow)
            for step in ("import", "trace", "compile")
            for kind in ENDINGS
            if step != "compile" or kind not in ("abort", "stop")
        ),
    ],
)
def test_a_fault_of_the_process_is_an_error_where_xla_was_requested(
    step: str, kind: str, faulty: pytest.MonkeyPatch
) -> None:
    faulty.setenv(FAULT, f"{step} {kind}")
    run, start = initialized(TRAINING, engine="xla"), time.monotonic()
    before = variable(run)
    with pytest.raises(ProcessLost) as caught:
        steps(run, 1)
    assert caught.value.code == "CFG716"
    assert ENDINGS[kind] in caught.value.message
    assert time.monotonic() - start < LONGEST_SECONDS
    np.testing.assert_array_equal(variable(run), before)


DECIDED = (Phase.XLA, Phase.REJECTED)
# of a run while a process dies or is silent, and until a session decides
LONGEST_SECONDS, MOST_SECONDS = 60.0, 240.0


def run_until_decided(run: Session, data: Any) -> tuple[list[Any], float]:
    """The losses of steps until the session has chosen an engine, and the longest step."""
    losses, longest, start = [], 0.0, time.monotonic()
    while phase(run) not in DECIDED or len(losses) < len(data):
        begin = time.monotonic()
        losses.append(run.run(FETCHES, {"x": data[len(losses) % len(data)]}, ["step"])[0])
        longest = max(longest, time.monotonic() - begin)
        assert time.monotonic() - start < MOST_SECONDS, run.tier_choice
        time.sleep(0.001)
    return losses, longest


@pytest.fixture
def paid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling is estimated to take no time."""
    monkeypatch.setattr(xla_tier, "compile_seconds", lambda nodes: 0.0)
    monkeypatch.setattr(xla_tier, "_START_PROCESS", 0.0)


def check_auto(data: Any, **options: Any) -> Session:
    """A session that chooses its engine agrees with tokens, whatever happens to the process."""
    run = initialized(TRAINING, **options)
    losses, longest = run_until_decided(run, data)
    tokens = initialized(TRAINING, engine="tokens")
    for number, loss in enumerate(losses):
        (expected,) = tokens.run(FETCHES[:1], {"x": data[number % len(data)]}, ["step"])
        np.testing.assert_allclose(loss, expected, rtol=1e-3)
    np.testing.assert_allclose(variable(run), variable(tokens), rtol=1e-3)
    assert longest < LONGEST_SECONDS
    return run


DATA = np.random.default_rng(0).standard_normal((8, 4, 3)).astype(np.float32) / 8
FAULTS = ["kill", "stop", "memory", "exit without an error", "abort"]


@pytest.mark.usefixtures("paid")
@pytest.mark.parametrize(
    ("step", "kind"),
    [
        ("compile", "abort"),
        *(
            pytest.param(step, kind, marks=pytest.mark.slow)
            for step in (*STEPS, "load")
            for kind in FAULTS
            if (step, kind) != ("compile", "abort")
        ),
    ],
)
@pytest.mark.parametrize("cache", ["cold", "none"])
def test_a_fault_of_the_process_is_a_note_where_a_session_chooses(
    step: str, kind: str, cache: str, faulty: pytest.MonkeyPatch, folder: Path
) -> None:
    faulty.setenv(FAULT, f"{step} {kind}")
    options = {} if cache == "none" else {"cache": CodeCache(folder=folder)}
    run = check_auto(DATA, **options)
    if step != "load":
        assert phase(run) is Phase.REJECTED
        assert run.tier_choice.startswith("XLA is not used: the process that traces and compiles")


@pytest.mark.usefixtures("paid")
def test_a_stored_executable_needs_no_process(faulty: pytest.MonkeyPatch, folder: Path) -> None:
    faulty.setattr(xla_tier, "_WORTH", 1e9)
    faulty.setattr(xla_tier, "_WORTH_DISTURBED", 1e9)
    cache = CodeCache(folder=folder)
    faulty.setenv(FAULT, "load nothing")
    assert phase(check_auto(DATA, cache=cache)) is Phase.XLA
    faulty.setenv(FAULT, "import abort")
    assert phase(check_auto(DATA, cache=cache)) is Phase.XLA


def test_a_compilation_that_dies_in_a_fusion_is_tried_without(faulty: pytest.MonkeyPatch) -> None:
    faulty.setenv(FAULT, "compile fusion")
    ours = steps(initialized(TRAINING, engine="xla"), 2)
    expected = steps(initialized(TRAINING, engine="compiled"), 2)
    np.testing.assert_allclose([x[0] for x in ours], [x[0] for x in expected], rtol=1e-5)


@pytest.fixture
def not_loadable(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Any, *_: Any) -> None:
        raise NotLoadable("another jaxlib")

    monkeypatch.setattr(LoadedExecutable, "__init__", fail)


@pytest.mark.usefixtures("not_loadable")
def test_a_session_compiles_what_it_cannot_load_if_xla_was_requested() -> None:
    run = initialized(TRAINING, engine="xla")
    ours, expected = steps(run, 2), steps(initialized(TRAINING, engine="compiled"), 2)
    np.testing.assert_allclose([x[0] for x in ours], [x[0] for x in expected], rtol=1e-5)
    (cluster,) = run.cluster_runner.clusters.values()
    assert (cluster.compiled_times, cluster.fused) == (1, 0)


@pytest.mark.usefixtures("not_loadable", "paid")
def test_a_session_that_chooses_compiles_nothing_itself() -> None:
    assert check_auto(DATA).tier_choice == "XLA is not used: another jaxlib"


WITHOUT_JAX = """
import sys
from tests.backends.xla.test_xla_tier import TRAINING, initialized, steps
from tests.backends.xla.test_compile_process import DOUBLED, LINEAR_ALGEBRA
import cfgraph, numpy as np
steps(initialized(TRAINING, engine="xla"), 2)
run = cfgraph.Session(cfgraph.loads(LINEAR_ALGEBRA.encode(), "graph"), engine="xla")
x = np.array([[4, 2], [2, 3]])
(y,) = run.run("y", {"x": x.astype(np.float32)})
np.testing.assert_allclose(y, np.linalg.cholesky(x) * 2, rtol=1e-6)
limited = cfgraph.Session(cfgraph.loads(DOUBLED.encode(), "graph"), engine="xla")
(y,) = limited.run("y", {"x": np.float32(3)}, timeout=60)
assert y == 3 * 2**20, y
clusters = [*run.cluster_runner.clusters.values(), *limited.cluster_runner.clusters.values()]
print([cluster.fused for cluster in clusters], "jax" in sys.modules)
"""
DOUBLED = """
x = Placeholder() {dtype=float32, shape=[]}
i0 = Const() {dtype=int32, value=int32[]:0}
loop = While(i0, x) {T=(int32, float32), cond=@more, body=@double}
y = Identity(loop:1)

function more(i: int32, v: float32) -> (z: bool) {
  most = Const() {dtype=int32, value=int32[]:20}
  less = Less(i, most:output:0) {T=int32}
  return z = less:z:0
}

function double(i: int32, v: float32) -> (j: int32, w: float32) {
  one = Const() {dtype=int32, value=int32[]:1}
  next = AddV2(i, one:output:0) {T=int32}
  sum = AddV2(v, v) {T=float32}
  return j = next:z:0
  return w = sum:z:0
}
"""
LINEAR_ALGEBRA = """
x = Placeholder() {dtype=float32, shape=?}
c = Cholesky(x)
y = AddV2(c, c)
"""


def test_the_caller_imports_no_jax() -> None:
    command = [sys.executable, "-c", WITHOUT_JAX]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert ended.stdout == "[0, 0] False\n"
    assert ended.stderr == ""


FOREIGN_OP = """
from cfgraph.ops.opdef.op import Op
class OfAnotherPackage(Op):
    signature = "x: T -> y: T"
    def kernel(xp, x):
        return x / 2
"""
USES_FOREIGN_OP = """
import sys
from tests.backends.xla.test_compile_process import HALVED
import cfgraph, numpy as np
run = cfgraph.Session(cfgraph.loads(HALVED.encode(), "graph"), engine="xla")
(z,) = run.run("z", {"x": np.ones(3, np.float32)})
(cluster,) = run.cluster_runner.clusters.values()
(compilation,) = cluster.compilations
print(z.tolist(), cluster.fused, "jax" in sys.modules, compilation.local_reason, end="")
"""
HALVED = """
x = Placeholder() {dtype=float32, shape=?}
y = OfAnotherPackage(x)
z = AddV2(y, y)
"""


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        ("import another_package", "[1.0, 1.0, 1.0] 0 False "),
        pytest.param(
            FOREIGN_OP,
            "[1.0, 1.0, 1.0] 0 True another process cannot import OfAnotherPackage, "
            "an op of another package",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["of a module", "of a script"],
)
def test_a_process_compiles_ops_of_another_package_that_it_can_import(
    definition: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "another_package.py").write_text(FOREIGN_OP)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    command = [sys.executable, "-c", definition + USES_FOREIGN_OP]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert ended.stdout == expected


def test_constants_are_not_copied_into_the_executable(tmp_path: Path) -> None:
    b = cfgraph.Builder()
    x = b.placeholder("x", "float32", [256])
    values = np.random.default_rng(0).standard_normal((2, 256, 256)).astype(np.float32)
    y = x
    for weight in values:
        y = b.Tanh(b.MatMul(b.Reshape(y, b.const([1, 256])), b.const(weight)))
    b.Identity(y, name="y")
    run = Session(b.graph, engine="xla", cache=CodeCache(folder=tmp_path / "cache"))
    for _ in range(2):
        (y,) = run.run("y", {"x": np.ones(256, np.float32)})
    expected = np.tanh(np.tanh(np.ones((1, 256), np.float32) @ values[0]) @ values[1])
    np.testing.assert_allclose(y, expected, rtol=1e-4)
    (file,) = (tmp_path / "cache").glob("*.xla")
    assert file.stat().st_size < values[0].nbytes


# Unique cannot be traced, so that it needs the elements of the table
ELEMENTS = """
x = Placeholder() {{dtype=int32, shape=[]}}
y = XlaLaunch(x) {{Tconstants=(), Targs=(int32), Nresources=0, Tresults=(int32), function=@f}}

function f(x: int32) -> (y: int32) {{
  table = Const() {{dtype=int32, value=int32[20000]:{0}}}
  unique = Unique(table:output:0) {{T=int32, out_idx=int32}}
  sum = AddV2(x, unique:y:0) {{T=int32}}
  return y = sum:z:0
}}
"""


def test_an_executable_that_contains_a_constant_is_of_no_other_graph(folder: Path) -> None:
    for element in (3, 4, 3):
        text = ELEMENTS.format([element] * 19_999 + [1])
        options = {"engine": "xla", "cache": CodeCache(folder=folder)}
        run = Session(cfgraph.loads(text.encode(), "graph"), **options)
        (y,) = run.run("y", {"x": 10})
        assert list(y) == [10 + element, 11]
        (cluster,) = run.cluster_runner.clusters.values()
        assert (cluster.compiled_times, cluster.fused) == (1, 0)


def test_a_cluster_whose_shapes_change_does_not_compile_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs: list[Any] = []
    monkeypatch.setattr(BACKGROUND, "start", lambda work: jobs.append(work) or Job(work))
    graph = cfgraph.loads(LAUNCH.encode(), "graph")
    runner = ClusterRunner("xla", compiles_later=True)
    kernel = runner.kernel(graph, graph["y"], "cpu:0")
    for size in range(1, 100):
        x = np.ones(size, np.float32)
        np.testing.assert_allclose(kernel(None, x), np.tanh(x), rtol=1e-6)
    assert 0 < len(jobs) < 20
    assert runner.signatures.missed
    jobs[0]()  # compiles nothing any more
    (cluster,) = runner.clusters.values()
    assert cluster.compilations == []


LAUNCH = """
x = Placeholder() {dtype=float32, shape=?}
y = XlaLaunch(x) {Tconstants=(), Targs=(float32), Nresources=0, Tresults=(float32), function=@f}

function f(x: float32) -> (y: float32) {
  y = Tanh(x) {T=float32}
  return y = y:y:0
}
"""

WITH_JAX = """
import sys
first, second = sys.argv[1:]
from tests.backends.xla.test_compile_process import LINEAR_ALGEBRA
import cfgraph, numpy as np
x = np.array([[4, 2], [2, 3]], np.float32)
expected = np.linalg.cholesky(x)
for library in (first, second, first):
    if library == "jax":
        import jax.numpy
        y = jax.numpy.linalg.cholesky(x)
    else:
        run = cfgraph.Session(cfgraph.loads(LINEAR_ALGEBRA.encode(), "graph"), engine="xla")
        y = run.run("y", {"x": x})[0] / 2
    np.testing.assert_allclose(y, expected, rtol=1e-6)
"""


@pytest.mark.slow
@pytest.mark.parametrize("order", [("jax", "cfgraph"), ("cfgraph", "jax")], ids="-".join)
def test_a_program_may_use_jax_itself(order: tuple[str, str]) -> None:
    command = [sys.executable, "-c", WITH_JAX, *order]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert ended.stderr == ""


ENDING = """
import os, sys, time
from cfgraph.backends.xla import compile_process, tier
from cfgraph.processes import child_process
from dataclasses import replace
from tests.backends.xla.test_compile_process import DATA
from tests.backends.xla.test_xla_tier import FETCHES, TRAINING, initialized
module = "tests.backends.xla.faulty_compile_program"
compile_process._PROGRAM = replace(compile_process._PROGRAM, module=module, idle_seconds=1000)
tier.compile_seconds, tier._START_PROCESS = lambda nodes: 0.0, 0.0
run = initialized(TRAINING)
while not child_process._CHILDREN:
    run.run(FETCHES, {"x": DATA[0]}, ["step"])
(child,) = child_process._CHILDREN
print(child.pid, flush=True)
if sys.argv[1] == "kill":
    os.kill(os.getpid(), 9)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="signals of pipes are those of Linux")
@pytest.mark.parametrize("end", ["exit", pytest.param("kill", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["sleep", pytest.param("stop", marks=pytest.mark.slow)])
def test_a_session_that_ends_waits_for_no_process_and_leaves_none(
    end: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FAULT, f"import {kind}")
    command = [sys.executable, "-c", ENDING, end]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert (ended.returncode, ended.stderr) == (0 if end == "exit" else -9, "")
    deadline = time.monotonic() + 20
    while Path(f"/proc/{int(ended.stdout)}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


FORKING = """
import os, sys, threading
from cfgraph.errors import Unsupported
from cfgraph.backends.xla.background import BACKGROUND
interval, works, forked = sys.getswitchinterval(), threading.Event(), threading.Event()
job = BACKGROUND.start(lambda: works.set() or forked.wait())
works.wait()
copy = os.fork()
if not copy:
    try:
        job.result() if job.is_done else os._exit(1)
    except Unsupported:
        os._exit(sys.getswitchinterval() != interval)
forked.set()
job.result()
print(os.waitpid(copy, 0)[1], sys.getswitchinterval() == interval)
"""


def test_a_process_forked_beside_a_compilation_does_not_wait_for_it() -> None:
    command = [sys.executable, "-c", FORKING]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert ended.stdout == "0 True\n"


SCALED = """
x = Placeholder() {dtype=float32, shape=[4]}
a = Tanh(x)
b = Mul(a, a)
c = Sub(b, a)
d = Exp(c)
y = AddV2(d, c)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("paid")
def test_eight_threads_agree_while_a_process_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xla_tier, "_WORTH", 1e9)
    monkeypatch.setattr(xla_tier, "_WORTH_DISTURBED", 1e9)
    run, right = Session(cfgraph.loads(SCALED.encode(), "graph")), []

    def repeat(seed: int) -> None:
        for number in range(2500):
            x = np.random.default_rng([seed, number]).standard_normal(4).astype(np.float32)
            tanh = np.tanh(x)
            (y,) = run.run("y", {"x": x})
            part = tanh * tanh - tanh
            right.append(bool(np.allclose(y, np.exp(part) + part, rtol=1e-5)))

    threads = [Thread(target=repeat, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    while phase(run) not in DECIDED:
        run.run("y", {"x": np.ones(4, np.float32)})
    repeat(8)
    assert phase(run) is Phase.XLA
    assert right == [True] * 22_500
