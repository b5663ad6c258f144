"""Recorded models on every engine, against the values that TensorFlow computed.

The recordings are not in the repository: `RECORDED_MODELS=models.zip pytest -m slow
tests/conformance/test_models.py` names an archive or a folder in the format of
`python -m benchmarks models`. With `-s`, each model is printed with its processor time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time
from typing import Any, Final

import numpy as np
import pytest

import cfgraph
from benchmarks.models import Recordings, TimeOver, stopped_after
from cfgraph.backends.xla.jax_library import has_jax
from cfgraph.ir.graph import Graph
from cfgraph.runtime.engine.step import State
from tests.backends.workers.threads import Threads

VARIABLE: Final = "RECORDED_MODELS"
CPUS: Final = ["cpu:0", "cpu:1", "cpu:2"]
# loops and conditionals, variables that change from run to run or are trained, random numbers
ON_WORKERS: Final = (
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
PRECISION: Final = {np.dtype(np.float64): 1e-7, np.dtype(np.complex128): 1e-7}
# of gradients in float32
GRADIENT_PRECISION: Final = 3e-4
ENGINES: Final = ["compiled", "tokens", "xla"]
# processor seconds of all threads for one model. The slowest recorded model takes 4 without XLA;
# with XLA, the training step of MobileNet takes over 30, and each other one less than 15. A limit
# interrupts XLA only after it has compiled a cluster.
LIMITS: Final = {"compiled": 60, "tokens": 60, "xla": 180}

Prepare = Callable[[Graph], dict[str, Any]]


@pytest.fixture(scope="module")
def recordings() -> Recordings:
    path = os.environ.get(VARIABLE)
    if not path:
        pytest.skip(f"the variable {VARIABLE} names no recorded models")
    return Recordings(Path(path))


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    if request.param == "xla" and not has_jax():
        pytest.skip("jax is not installed (extra `xla`)")
    return str(request.param)


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
def test_models_compute_what_tensorflow_did(
    engine: str, prepare: Prepare, recordings: Recordings
) -> None:
    def differing(case: dict[str, Any]) -> Iterator[str]:
        return differing_runs(case, engine, prepare, recordings)

    assert failures(recordings.cases(), engine, differing) == {}


@pytest.mark.slow
@pytest.mark.parametrize("prepare", [unchanged, partitioned])
def test_gradients_of_models_are_those_of_tensorflow(
    engine: str, prepare: Prepare, recordings: Recordings
) -> None:
    def differing(case: dict[str, Any]) -> Iterator[str]:
        graph, state = loaded(case, recordings)
        names = gradient_names(graph, case["grad"], recordings)
        options = prepare(graph)
        with session_of(graph, state, engine, options) as session:
            initial = [run for run in case["runs"] if run.get("init")]
            yield from differing_fetches(initial, case, session, recordings)
            yield from differing_gradients(names, case, session, recordings)

    cases = [case for case in recordings.cases() if case.get("grad")]
    assert failures(cases, engine, differing) == {}


def on_workers(count: int) -> Prepare:
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
    assert not list(differing_runs(case, engine, on_workers(workers), recordings))


def failures(
    cases: list[dict[str, Any]],
    engine: str,
    differing: Callable[[dict[str, Any]], Iterator[str]],
) -> dict[str, list[str]]:
    """The first differences of each model that has some, small models first."""
    failed = {}
    for case in sorted(cases, key=lambda case: case["nodes"]):
        start = process_time()
        try:
            with stopped_after(LIMITS[engine]):
                differences = list(differing(case))
        except TimeOver:
            differences = [f"over {LIMITS[engine]} s of processor time"]
        except Exception as error:  # the rest runs too
            differences = [f"{type(error).__name__}: {error}"]
        if differences:
            failed[case["id"]] = differences[:2]
        print(f"{case['id']}: {process_time() - start:.1f} s {differences[:2] or ''}", flush=True)
    return failed


def loaded(case: dict[str, Any], recordings: Recordings) -> tuple[Graph, State | None]:
    """The graph of a model, and the variables that are saved with it."""
    if not case.get("saved"):
        return cfgraph.loads(recordings.read(f"graphs/{case['graph']}")), None
    path = recordings.saved(case["saved"])
    has_variables = Path(path, "variables", "variables.index").exists()
    return cfgraph.load(path), cfgraph.restore(path) if has_variables else None


def session_of(
    graph: Graph, state: State | None, engine: str, options: dict[str, Any]
) -> cfgraph.Session:
    """A session that ignores requests for devices it does not have."""
    return cfgraph.Session(graph, state=state, soft_placement=True, engine=engine, **options)


def differing_runs(
    case: dict[str, Any], engine: str, prepare: Prepare, recordings: Recordings
) -> Iterator[str]:
    """The fetches of all runs of a model that differ from the recorded values."""
    graph, state = loaded(case, recordings)
    options = prepare(graph)
    with session_of(graph, state, engine, options) as session:
        yield from differing_fetches(case["runs"], case, session, recordings)


def differing_fetches(
    runs: list[dict[str, Any]],
    case: dict[str, Any],
    session: cfgraph.Session,
    recordings: Recordings,
) -> Iterator[str]:
    """The fetches of some runs of a model that differ from the recorded values."""
    for run in runs:
        feeds = {name: recordings.array(key) for name, key in run["feeds"].items()}
        values = session.run(run["fetches"], feeds, targets=run["targets"])
        for name, value, key in zip(run["fetches"], values, run["expected"], strict=True):
            if not is_close(value, recordings.array(key), case.get("rtol")):
                yield name


def gradient_names(
    graph: Graph, request: dict[str, Any], recordings: Recordings
) -> list[tuple[str, str, Any]]:
    """Add the gradient of a model; its tensors, each with its x and the recorded value."""
    names = cfgraph.gradients(
        graph, request["ys"], request["xs"], ignore_custom=bool(request.get("ignore_custom"))
    )
    expected = []
    for name, x, key in zip(names, request["xs"], request["expected"], strict=True):
        value = recordings.array(key) if key else None
        if name is None and value is not None and value.any():
            raise AssertionError(f"no gradient with respect to {x}")
        if name is not None and value is not None:
            expected.append((name, x, value))
    return expected


def differing_gradients(
    names: list[tuple[str, str, Any]],
    case: dict[str, Any],
    session: cfgraph.Session,
    recordings: Recordings,
) -> Iterator[str]:
    """The tensors with respect to which a gradient differs from the recorded value."""
    feeds = {name: recordings.array(key) for name, key in case["grad"]["feeds"].items()}
    values = session.run([name for name, _, _ in names], feeds)
    for (_, x, expected), value in zip(names, values, strict=True):
        tolerance = max(case.get("rtol") or 0, PRECISION.get(expected.dtype, GRADIENT_PRECISION))
        if not is_close(value, expected, tolerance):
            yield f"gradient with respect to {x}"


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
