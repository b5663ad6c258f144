"""`cfgraph run` with clusters: formed before the run, or stored in the file."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

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


def test_jit_clusters_on_the_way_and_says_what_ran_them(command: Any, chain: Path) -> None:
    options = ["run", chain, "--feed", "x=3", "--fetch", "y:0"]
    done = command(*options, "--jit", "--engine", "numpy")
    assert (done.code, done.out) == (0, "y:0  float32[]  = 4.0\n")
    assert done.err == "1 cluster run by NumPy: 1 call\n"
    assert command(*options, "--engine", "numpy").err == ""


@needs_jax
def test_auto_says_what_is_too_small_for_xla(command: Any, chain: Path) -> None:
    done = command("run", chain, "--feed", "x=3", "--fetch", "y:0", "--jit")
    assert done.out == "y:0  float32[]  = 4.0\n"
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
    assert "one of auto, tokens, compiled, numpy, xla" in done.err


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
    reported = command("explain", file, "cluster_0/u")
    assert (
        reported.code,
        "is inside a cluster and runs whenever the cluster does" in reported.err,
    ) == (
        2,
        True,
    )


@pytest.mark.parametrize("engine", ["tokens", "compiled", "auto"])
def test_the_engine_of_a_run_leaves_that_of_its_clusters_open(
    command: Any, chain: Path, engine: str
) -> None:
    done = command("run", chain, "--feed", "x=3", "--fetch", "y:0", "--jit", "--engine", engine)
    assert (done.code, done.out) == (0, "y:0  float32[]  = 4.0\n")


def test_a_number_of_threads_with_many_digits_is_a_usage_error(command: Any, chain: Path) -> None:
    threads = "9" * 5000
    done = command("run", chain, "--feed", "x=3", "--fetch", "y:0", "--blas-threads", threads)
    assert done.code == 2
