"""`run --gpu` reports the kind of GPU and the ops without a GPU kernel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cfgraph.backends.gpu import context
from cfgraph.backends.gpu.context import GpuContext
from cfgraph.backends.xla import tier
from cfgraph.backends.xla.jax_library import has_jax
from tests.backends.gpu.stand_in import library

TEXT = """
x = Placeholder() {dtype=float32, shape=[?]} @"/gpu:0"
y = Square(x) @"/gpu:0"
dawsn = Dawsn(y) @"/gpu:0"
z = Neg(dawsn) @"/cpu:0"
"""


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "g.graph"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "gpu_context", lambda: GpuContext(library))


def line(graph: Path, *more: str) -> list[Any]:
    return ["run", graph, "--devices", "cpu:0,gpu:0", "--feed", "x=[0,0]", *more]


@pytest.mark.smallest
def test_a_gpu_that_numpy_simulates_is_said_to_be(command: Any, graph: Path) -> None:
    for more in ((), ("--gpu", "simulated")):
        done = command(*line(graph, *more))
        assert "gpu:0: simulated by NumPy" in done.err
        reported = json.loads(command(*line(graph, *more, "--json")).out)
        assert reported["result"]["gpu"] == {"kind": "simulated", "devices": ["gpu:0"]}


def test_a_run_without_a_gpu_says_nothing_of_one(command: Any, graph: Path) -> None:
    done = command("run", graph, "--devices", "cpu:0", "--feed", "x=[0,0]")
    assert "gpu" not in done.err


@pytest.mark.usefixtures("stand_in")
def test_a_gpu_on_a_card_is_named_and_so_is_what_the_host_did_for_it(
    command: Any, graph: Path
) -> None:
    done = command(*line(graph, "--gpu", "real", "--memory", "gpu:0"))
    assert "gpu:0: Stand-in" in done.err
    assert "run on the host, no GPU kernel: Dawsn" in done.err
    assert "simulated" not in done.err
    gpu = json.loads(command(*line(graph, "--gpu", "real", "--json")).out)["result"]["gpu"]
    assert (gpu["kind"], gpu["name"], list(gpu["on_host"])) == ("real", "Stand-in", ["Dawsn"])


@pytest.mark.skipif(not has_jax(), reason="jax (extra `xla`) is absent")
@pytest.mark.usefixtures("stand_in")
def test_explain_engine_has_the_times_that_decide_on_xla_on_a_card(
    command: Any, graph: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tier, "has_jax_cuda", lambda: True)
    options = ["run", graph, "--devices", "gpu:0", "--soft", "--gpu", "real", "--feed", "x=[0,0]"]
    done = command(*options, "--explain-engine")
    assert "engine: compiled: XLA would compile for about" in done.err


@pytest.mark.usefixtures("stand_in")
def test_a_virtual_clock_does_not_go_with_a_real_gpu(command: Any, graph: Path) -> None:
    done = command(*line(graph, "--gpu", "real", "--clock", "virtual"))
    assert done.code == 2
    assert "virtual clock does not run on a real GPU" in done.err
