"""`cfgraph run` with clusters: formed before the run, or stored in the file."""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import cfgraph

CHAIN = """
x = Placeholder() {dtype=float32, shape=?}
two = Const() {dtype=float32, value=float32[]:2}
double = Mul(x, two)
less = Sub(double, two)
y = Identity(less)
"""
CLUSTERED = """
x = Placeholder() {dtype=float32, shape=?}
y = XlaLaunch(x) {Tconstants=(), Targs=(float32), Nresources=0, Tresults=(float32), function=@f}

function f(x: float32) -> (y: float32) {
  y = Add(x, x) {T=float32}
  return y = y:z:0
}
"""
needs_jax = pytest.mark.skipif(find_spec("jax") is None, reason="jax (extra `xla`) is absent")


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    path = tmp_path / "chain.graph"
    path.write_text(CHAIN)
    return path


@pytest.fixture
def clustered(tmp_path: Path) -> Path:
    path = tmp_path / "clustered.graph"
    path.write_text(CLUSTERED)
    return path


@needs_jax
def test_auto_says_what_is_too_small_for_xla(command: Any, clustered: Path) -> None:
    done = command("run", clustered, "--feed", "x=3", "--fetch", "y:0")
    assert done.out == "y:0  float32[]  = 6.0\n"
    assert "too small to gain from XLA (--engine xla compiles all)" in done.err


@needs_jax
def test_the_clusters_of_a_file_run_by_xla_are_in_the_document(
    command: Any, clustered: Path
) -> None:
    options = ["run", clustered, "--feed", "x=[1,2]", "--fetch", "y:0", "--engine", "xla"]
    reported = command(*options, "--json").json["result"]["jit"]
    (cluster,) = reported["clusters"]
    assert (reported["engine"], cluster["name"], cluster["calls"], cluster["fused"]) == (
        "xla", "f", 1, 0,
    )  # fmt: skip
    assert [item["refused"] for item in cluster["compilations"]] == [None]
    assert "1 cluster run by XLA: 1 call, 1 compilation in" in command(*options).err


@needs_jax
def test_lazy_compiles_nothing_in_a_single_call(command: Any, clustered: Path) -> None:
    options = ["run", clustered, "--feed", "x=1", "--fetch", "y:0", "--engine", "xla", "--lazy"]
    done = command(*options)
    assert (done.out, done.err) == ("y:0  float32[]  = 2.0\n", "1 cluster run by NumPy: 1 call\n")


def test_an_unknown_engine_is_a_wrong_call(command: Any, clustered: Path) -> None:
    done = command("run", clustered, "--feed", "x=1", "--engine", "tpu")
    assert done.code == 2
    assert "one of auto, tokens, compiled, xla" in done.err


def test_a_node_in_a_cluster_of_a_file_is_fetched_and_fed(command: Any, tmp_path: Path) -> None:
    graph, file = tmp_path / "g.graph", tmp_path / "c.pb"
    graph.write_text(
        "x = Placeholder() {dtype=float32, shape=[]}\nz = Placeholder() {dtype=float32, shape=[]}\n"
        "u = Square(x)\nw = Mul(u, z)\nboth = AddV2(u, w)\n"
    )
    assert command("cluster", graph, "-o", file).code == 0
    assert command("run", file, "--feed", "x=3", "--fetch", "u", "--expect", "u=9").code == 0
    fed = command("run", file, "--feed", "u=2", "--feed", "z=5", "--fetch", "both")
    assert fed.out == "both:0  float32[]  = 12.0\n"
    lacking = command("run", file, "--feed", "x=3", "--fetch", "w")
    assert lacking.code == 2
    assert "a feed is missing: z:0" in lacking.err
    lines = [line.split() for line in command("explain", file, "cluster_0/u").lines]
    assert lines[1][:5] == ["function", "cluster_0", "runs", "when", "it"]
    reported = command("explain", file, "cluster_0/u", "--run", "--feed", "x=3")
    assert reported.code == 2
    assert "is inside a cluster and runs whenever the cluster does" in reported.err


@pytest.mark.parametrize("engine", ["tokens", "compiled", "auto"])
def test_every_engine_runs_the_clusters_of_a_file(
    command: Any, clustered: Path, engine: str
) -> None:
    done = command("run", clustered, "--feed", "x=3", "--fetch", "y:0", "--engine", engine)
    assert (done.code, done.out) == (0, "y:0  float32[]  = 6.0\n")


def test_a_traced_run_compiles_nothing(chain: Path) -> None:
    import cfgraph.runtime.preparation.prepare

    compiled = []
    session = cfgraph.Session(cfgraph.load(chain))
    events: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cfgraph.runtime.preparation.prepare, "_compiled", compiled.append)
        for _ in range(2):
            assert session.run("y", {"x": 3}, trace=_Recorder(events)) == [4]
            assert session.fallback == "the run is traced"
    assert not compiled
    assert events
    assert session.run("y", {"x": 3}) == [4]
    assert session.fallback == ""


class _Recorder:
    """An observer that stores the events of a run."""

    def __init__(self, events: list[Any]) -> None:
        self.event = events.append


def test_old_options_of_a_session_warn(chain: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        session = cfgraph.Session(cfgraph.load(chain), jit="numpy")
    assert [(item.category, item.filename) for item in caught] == [(DeprecationWarning, __file__)]
    assert session.run("y", {"x": 3}) == [4]


def test_a_number_of_threads_with_many_digits_is_a_usage_error(command: Any, chain: Path) -> None:
    threads = "9" * 5000
    done = command("run", chain, "--feed", "x=3", "--fetch", "y:0", "--blas-threads", threads)
    assert done.code == 2
