"""Recorded models on every engine, against the values that TensorFlow computed.

The recordings are not in the repository: `RECORDED_MODELS=models.zip pytest -m slow
tests/conformance/test_models.py` names an archive or a folder in the format of
`python -m benchmarks models`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from benchmarks.models import Recordings
from cfgraph.ir.graph import Graph
from cfgraph.runtime.jax.compile import has_jax
from tests.runtime.remote.threads import Threads

VARIABLE = "RECORDED_MODELS"
CPUS = ["cpu:0", "cpu:1", "cpu:2"]
# loops and conditionals, variables that change from run to run or are trained, random numbers
ON_WORKERS = (
    "flow/beam_search",
    "flow/cartpole_policy_gradient",
    "flow/collatz",
    "flow/stateless_random",
    "packages/sonnet_dynamic_unroll",
    "rnn/generate",
    "rnn/small_cnn/train_step",
    "tf1/dynamic_rnn_lstm_v1",
    "tfp/hmc",
    "tfp/particle_filter",
)
PRECISION = {np.dtype(np.float64): 1e-7, np.dtype(np.complex128): 1e-7}


@pytest.fixture(scope="module")
def recordings() -> Recordings:
    path = os.environ.get(VARIABLE)
    if not path:
        pytest.skip(f"the variable {VARIABLE} names no recorded models")
    return Recordings(Path(path))


def unchanged(graph: Graph) -> dict[str, Any]:
    return {}


def lowered(graph: Graph) -> dict[str, Any]:
    cfgraph.lower(graph)
    return {}


def partitioned(graph: Graph) -> dict[str, Any]:
    cfgraph.place(graph, devices=CPUS, seed=1, soft_placement=True)
    cfgraph.partition(graph)
    return {"devices": CPUS}


@pytest.mark.slow
@pytest.mark.parametrize("prepare", [unchanged, lowered, partitioned])
@pytest.mark.parametrize("engine", ["tokens", "compiled", "xla"])
def test_models_compute_what_tensorflow_did(
    engine: str, prepare: Callable[[Graph], dict[str, Any]], recordings: Recordings
) -> None:
    if engine == "xla" and not has_jax():
        pytest.skip("jax is not installed (extra `xla`)")
    failures = {}
    for case in recordings.cases():
        try:
            differences = differing_fetches(case, engine, prepare, recordings)
        except Exception as error:  # the rest runs too
            differences = [f"{type(error).__name__}: {error}"]
        if differences:
            failures[case["id"]] = differences[:2]
    assert not failures


def on_workers(count: int) -> Callable[[Graph], dict[str, Any]]:
    """Places at random on four devices, and partitions; the run uses workers."""

    def prepare(graph: Graph) -> dict[str, Any]:
        cfgraph.place(graph, devices="cpu:0-3", seed=count, soft_placement=True)
        cfgraph.partition(graph)
        return {"devices": "cpu:0-3", "workers": Threads(count)}

    return prepare


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("engine", ["tokens", "compiled"])
@pytest.mark.parametrize("name", ON_WORKERS)
def test_models_on_workers_compute_what_tensorflow_did(
    name: str, engine: str, workers: int, recordings: Recordings
) -> None:
    case = next((case for case in recordings.cases() if case["id"] == name), None)
    if case is None:
        pytest.skip(f"the recorded models do not contain {name}")
    assert not differing_fetches(case, engine, on_workers(workers), recordings)


def differing_fetches(
    case: dict[str, Any],
    engine: str,
    prepare: Callable[[Graph], dict[str, Any]],
    recordings: Recordings,
) -> list[str]:
    """The fetches of all runs of a model that differ from the recorded values."""
    state = None
    if case.get("saved"):
        path = recordings.saved(case["saved"])
        graph = cfgraph.load(path)
        if Path(path, "variables", "variables.index").exists():
            state = cfgraph.restore(path)
    else:
        graph = cfgraph.loads(recordings.read(f"graphs/{case['graph']}"))
    options = prepare(graph)
    options.update(state=state, soft_placement=True, engine=engine)
    differing = []
    with cfgraph.Session(graph, **options) as session:
        for run in case["runs"]:
            feeds = {name: recordings.array(key) for name, key in run["feeds"].items()}
            values = session.run(run["fetches"], feeds, targets=run["targets"])
            for name, value, key in zip(run["fetches"], values, run["expected"], strict=True):
                if not is_close(value, recordings.array(key), case.get("rtol")):
                    differing.append(name)
    return differing


def is_close(value: Any, expected: Any, tolerance: float | None) -> bool:
    """True if a value agrees as precisely as its dtype allows, relative to the largest number."""
    have = np.asarray(value)
    if have.shape != expected.shape:
        return False
    if expected.dtype == object:
        texts = [x if isinstance(x, bytes) else str(x).encode() for x in have.ravel().tolist()]
        return texts == expected.ravel().tolist()
    if expected.dtype.kind not in "fcV":
        return np.array_equal(have, expected)
    wide = "c16" if expected.dtype.kind == "c" else "f8"
    have, expected, dtype = have.astype(wide), expected.astype(wide), expected.dtype
    rtol = tolerance or PRECISION.get(dtype, 1e-4 if dtype.itemsize >= 4 else 2e-2)
    finite = np.abs(expected[np.isfinite(expected)])
    largest = float(finite.max()) if finite.size else 0.0
    atol = max(rtol * 0.1 * largest, 1e-12 if dtype in PRECISION else 1e-6)
    return np.allclose(have, expected, rtol=rtol, atol=atol, equal_nan=True)
