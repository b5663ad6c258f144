"""Recorded models against TensorFlow: load and first run, and one steady run.

    python -m benchmarks models --models PATH

PATH is a folder or a .zip of recordings (`cases.jsonl`, `graphs/`, `arrays/`, `saved/`); without
it, the SavedModel of fixtures/ is measured. Recordings are read before a time starts. Times are
processor time with one thread a side. Each side is a process of its own, since libraries read the
number of threads when they are loaded; the processes run each model in turn, so that a machine
whose speed changes changes it for all of them. TensorFlow runs in its default configuration, and
with graph rewrites and oneDNN off; the faster of the two counts. With the extra `xla`, a second
process of ours runs each model until it has moved to XLA, or was rejected, at once instead of after
the time that this takes to pay.
"""

from __future__ import annotations

import io
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import zipfile
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from compileall import compile_dir
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from time import process_time
from types import FrameType, ModuleType
from typing import Any

from benchmarks.measurement import Row
from cfgraph.backends.xla.jax_library import has_jax

ROOT = Path(__file__).parents[1]
SAVED_MODEL: dict[str, Any] = {
    "id": "fixtures/saved_model",
    "saved": "saved_model",
    "runs": [
        {"feeds": {"serving_default_x:0": [[1.0, 2.0]]}, "fetches": ["StatefulPartitionedCall:1"]}
    ],
}
SIDES = ("cfgraph", "tensorflow", "tensorflow without rewrites", "cfgraph with xla")
# processor seconds of the steady runs of one round, rounds, and the most seconds for one request
BUDGET, ROUNDS, LIMIT = 0.1, 6, 60
MOST_RUNS = 4096
# goals of geometric mean and worst ratio, steady and first
STEADY, WORST, FIRST, WORST_FIRST = 1.5, 4.0, 0.5, 1.5
STEADY_XLA, WORST_XLA = 0.7, 2.0
# runs before the times of a model with XLA, more until the session has decided, and processor
# seconds that this may take
WARM_UPS, MOST_WARM_UPS, COMPILE_LIMIT = 20, 10**9, 120
UNDECIDED = "would compile", "XLA compiles", "is compared"


@dataclass
class Recordings:
    """Recorded models: documents, graphs, arrays, and SavedModels, in a folder or an archive."""

    path: Path | None
    folder: str = field(default_factory=tempfile.mkdtemp)

    def cases(self) -> list[dict[str, Any]]:
        """The documents of the models."""
        if self.path is None:
            return [SAVED_MODEL]
        return [json.loads(line) for line in self.read("cases.jsonl").decode().splitlines()]

    def read(self, name: str) -> bytes:
        """The content of a file."""
        assert self.path is not None
        if self.path.is_dir():
            return (self.path / name).read_bytes()
        return self._archive.read(name)

    @cached_property
    def _archive(self) -> zipfile.ZipFile:
        """The archive, opened once: reading its directory is no work of a model."""
        assert self.path is not None
        return zipfile.ZipFile(self.path)

    def saved(self, name: str) -> str:
        """The path of the folder of a SavedModel."""
        if self.path is None:
            return str(ROOT / "fixtures" / name)
        if self.path.is_dir():
            return str(self.path / "saved" / name)
        for member in self._archive.namelist():
            if member.startswith(f"saved/{name}/"):
                self._archive.extract(member, self.folder)
        return str(Path(self.folder) / "saved" / name)

    def graph(self, case: dict[str, Any]) -> str | bytes:
        """The folder of a SavedModel, or the bytes of a graph."""
        return (
            self.saved(case["saved"]) if "saved" in case else self.read(f"graphs/{case['graph']}")
        )

    def array(self, key: Any) -> Any:
        """A recorded array; strings are recorded as JSON."""
        import numpy as np

        if not isinstance(key, str):
            return np.array(key, np.float32)
        data = self.read(f"arrays/{key}")
        if key.endswith(".npy"):
            return np.load(io.BytesIO(data), allow_pickle=False)
        document = json.loads(data)
        array = np.empty(len(document["strings"]), object)
        array[:] = [b64decode(text) for text in document["strings"]]
        return array.reshape(document["shape"])

    def feeds(self, case: dict[str, Any]) -> dict[str, Any]:
        """The feeds of the last run, by tensor."""
        return {name: self.array(key) for name, key in case["runs"][-1]["feeds"].items()}


Run = Callable[[], object]
Side = Callable[[Recordings, dict[str, Any]], tuple[Run, Callable[[Any], Run]]]


def cfgraph_side(
    recordings: Recordings, case: dict[str, Any], *, xla: bool = False
) -> tuple[Run, Callable[[Any], Run]]:
    """Functions that load a model, and that make its last run."""
    import cfgraph

    source, feeds = recordings.graph(case), recordings.feeds(case)

    def load() -> object:
        if isinstance(source, str):
            return cfgraph.load(source), cfgraph.restore(source)
        return cfgraph.loads(source), None

    def make(loaded: Any) -> Run:
        graph, state = loaded
        session = cfgraph.Session(graph, state=state, soft_placement=True)
        for run in case["runs"][:-1]:
            if run.get("init"):
                session.run(targets=run["targets"])
        fetches = case["runs"][-1]["fetches"]
        for number in range(MOST_WARM_UPS if xla else 0):
            session.run(fetches, feeds)
            if number >= WARM_UPS and not any(x in session.tier_choice for x in UNDECIDED):
                break
        if xla:
            print(f"{case['id']}: {session.tier_choice}", file=sys.stderr)
        return lambda: session.run(fetches, feeds)

    return load, make


def our_side(*, xla: bool) -> Side:
    """Ours without XLA, or with XLA as soon as a run is repeated."""
    from cfgraph.backends.xla import tier as xla_tier

    xla_tier.PAYMENT = 0.0 if xla else math.inf
    return partial(cfgraph_side, xla=xla)


def tensorflow_side(*, rewrites: bool) -> Side:
    """The same for TensorFlow, one thread each for operators and between them."""
    import tensorflow

    tf = tensorflow.compat.v1
    tf.disable_eager_execution()
    config = tf.ConfigProto(
        intra_op_parallelism_threads=1, inter_op_parallelism_threads=1, device_count={"CPU": 1}
    )
    config.graph_options.rewrite_options.disable_meta_optimizer = not rewrites

    def side(recordings: Recordings, case: dict[str, Any]) -> tuple[Run, Callable[[Any], Run]]:
        handles: Mapping[str, Any] = case.get("handles") or {}
        source, feeds = recordings.graph(case), recordings.feeds(case)

        def load() -> object:
            graph = tf.Graph()
            with graph.as_default():
                session = tf.Session(graph=graph, config=config)
                if isinstance(source, str):
                    tf.saved_model.loader.load(session, ["serve"], source)
                    return session
                definition = tf.GraphDef()
                definition.ParseFromString(source)
                variables = {name: tf.Variable(feeds[name], use_resource=True) for name in handles}
                inputs = {name: variable.handle for name, variable in variables.items()}
                tf.import_graph_def(definition, input_map=inputs, name="")
                if variables:
                    session.run(tf.variables_initializer(list(variables.values())))
                for run in case["runs"][:-1]:
                    if run.get("init"):
                        session.run(run["targets"])
                return session

        def make(session: Any) -> Run:
            names = [name for name in feeds if name not in handles]
            values = [feeds[name] for name in names]
            call = session.make_callable(case["runs"][-1]["fetches"], feed_list=names)
            return lambda: call(*values)

        return load, make

    return side


class TimeOver(BaseException):
    """The time of a model has ended."""


@contextmanager
def stopped_after(seconds: float) -> Iterator[None]:
    """End the body with TimeOver after some processor time, as soon as Python code runs.

    A timer of processor time would make the kernel count it in ticks of 4 ms. This one is of real
    time and waits for what is missing.
    """
    end = process_time() + seconds

    def stop(number: int, frame: FrameType | None) -> None:
        remaining = end - process_time()
        if remaining <= 0:
            raise TimeOver
        signal.setitimer(signal.ITIMER_REAL, max(remaining, 1e-3))

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class TimedModel:
    """One model on one side: the time to load it and of its first run, and of steady runs."""

    def __init__(self, load: Run, make: Callable[[Any], Run], limit: float = LIMIT) -> None:
        self._load, self._make, self._limit = load, make, limit
        self._run: Run | None = None
        self._count = 0

    def first(self) -> float:
        """The processor seconds of load and first run."""
        with stopped_after(self._limit):
            start = process_time()
            self._run = self._make(self._load())
            self._run()
            return process_time() - start

    def steady(self, budget: float) -> float:
        """The processor seconds of one of as many runs as take about `budget`."""
        assert self._run is not None
        with stopped_after(self._limit):
            took, count = 0.0, self._count or 1
            while True:
                took = _repeated(self._run, count)
                if self._count or took >= budget or count >= MOST_RUNS:
                    self._count = count
                    return took / count
                count = min(MOST_RUNS, max(2 * count, int(count * budget / max(took, 1e-3))))


def _repeated(run: Run, count: int) -> float:
    start = process_time()
    for _ in range(count):
        run()
    return process_time() - start


def measure(tf: ModuleType | None, *, tiny: bool, path: Path | None = None) -> Iterator[Row]:
    """Each model, and the geometric means and worst ratios of all."""
    sides = [*(SIDES[:3] if tf else SIDES[:1]), *(SIDES[3:] if has_jax() and not tiny else ())]
    steady, first, xla = [], [], []
    for name, results in _results(sides, path, tiny=tiny):
        ours = results[SIDES[0]]
        if "error" in ours:
            print(f"{name}: {ours['error']}")
            continue
        peers = [results[side] for side in sides[1:3] if "steady" in results[side]] if tf else []
        steady.append(_row(f"{name}, a run", ours, peers, "steady", WORST))
        first.append(_row(f"{name}, load and first run", ours, peers, "first", WORST_FIRST))
        with_xla = results.get(SIDES[3], {})
        if "steady" in with_xla:
            xla.append(_row(f"{name}, a run with xla", with_xla, peers, "steady", WORST_XLA))
    yield from sorted(steady, key=lambda row: -(row.ratio or 0))
    yield from first
    if xla:
        yield from sorted(xla, key=lambda row: -(row.ratio or 0))
        yield from _summary("a run of a model with xla", xla, STEADY_XLA, WORST_XLA)
    yield from _summary("a run of a model", steady, STEADY, WORST)
    yield from _summary("load and first run of a model", first, FIRST, WORST_FIRST)


@dataclass(frozen=True)
class Section:
    """The section `models` on recordings in a folder or an archive."""

    path: Path

    def measure(self, tf: ModuleType | None, *, tiny: bool) -> Iterator[Row]:
        """The rows of these recordings."""
        return measure(tf, tiny=tiny, path=self.path)


def _row(
    work: str, ours: dict[str, float], peers: list[dict[str, float]], key: str, goal: float
) -> Row:
    peer = min((result[key] * 1e3 for result in peers), default=None)
    return Row(work, ours[key] * 1e3, "ms", peer, goal)


def _summary(work: str, rows: list[Row], mean_goal: float, worst_goal: float) -> Iterator[Row]:
    ratios = [row.ratio for row in rows if row.ratio]
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        yield Row(f"{work}, geometric mean of {len(ratios)}", mean, "x", 1, mean_goal)
        yield Row(f"{work}, worst", max(ratios), "x", 1, worst_goal)


def _results(
    sides: Sequence[str], path: Path | None, *, tiny: bool
) -> Iterator[tuple[str, dict[str, dict[str, Any]]]]:
    """The times of each model on all sides, or its error there."""
    # without cached bytecode, the first use of an op compiles its module
    compile_dir(ROOT / "cfgraph", quiet=2)
    names = [case["id"] for case in Recordings(path).cases()]
    with ExitStack() as stack:
        processes = {side: stack.enter_context(SideProcess(side, path)) for side in sides}
        for index, name in enumerate(names):
            results = {side: process.first(index) for side, process in processes.items()}
            for _ in range(1 if tiny else ROUNDS):
                for side, process in processes.items():
                    if "error" not in results[side]:
                        results[side] = _least(results[side], process.steady())
            yield name, results


def _least(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """The times of two rounds together, or the error of the second."""
    if "error" in after:
        return after
    return {**before, "steady": min(before.get("steady", math.inf), after["steady"])}


class SideProcess:
    """The process of a side, which measures one model after the other on request."""

    def __init__(self, side: str, path: Path | None) -> None:
        threads = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
        variables = {**dict.fromkeys(threads, "1"), "TF_CPP_MIN_LOG_LEVEL": "3"}
        if side == SIDES[3]:
            variables["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
        if side == SIDES[2]:
            variables["TF_ENABLE_ONEDNN_OPTS"] = "0"
        inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.models", side, str(path or "")],
            env={**inherited, **variables},
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def first(self, index: int) -> dict[str, Any]:
        """The time of load and first run of a model, or its error."""
        return self._answer(str(index))

    def steady(self) -> dict[str, Any]:
        """The time of a run of this model, or its error."""
        return self._answer("steady")

    def _answer(self, request: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(request + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            message = f"a side ended with status {self._process.wait()}"
            raise RuntimeError(message)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> SideProcess:
        return self

    def __exit__(self, *error: object) -> None:
        """End the process, which ends with its input."""
        self._process.communicate()


def main(side: str, path: str) -> None:
    """Answer the requests of `SideProcess` on standard input, one line of JSON each."""
    # what a library prints is no answer
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    recordings = Recordings(Path(path) if path else None)
    if side in SIDES[1:3]:
        functions = tensorflow_side(rewrites=side == SIDES[1])
    else:
        functions = our_side(xla=side == SIDES[3])
    limit = COMPILE_LIMIT if side == SIDES[3] else LIMIT
    TimedModel(*functions(Recordings(None), SAVED_MODEL)).first()  # imports, the first session
    cases, model = recordings.cases(), None
    for line in sys.stdin:
        request = line.strip()
        try:
            if request == "steady":
                assert model is not None
                answer: dict[str, Any] = {"steady": model.steady(BUDGET)}
            else:
                model = None  # frees the last one before the next is loaded
                model = TimedModel(*functions(recordings, cases[int(request)]), limit)
                answer = {"first": model.first()}
        except TimeOver:
            answer = {"error": f"over {limit} s"}
        except Exception as error:  # a model that one side cannot run must not end the others
            answer = {"error": " ".join(f"{type(error).__name__}: {error}".split())}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
