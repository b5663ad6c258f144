"""One seed: TensorFlow's values of a program, and what differs in cfgraph."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import cfgraph
from cfgraph.errors import CfgraphError, Unsupported
from cfgraph.ir.graph import Graph
from tests.conformance import recorded
from tests.conformance.agree.programs import Program, built, tf
from tests.conformance.agree.ways import Inputs, Way, applied, session, ways

# the order of the gradients of a seed, by its last digit
_ORDERS = (0, 1, 0, 0, 1, 0, 2, 0, 1, 0)
_WAYS_PER_SEED = 2
# gradients, and runs that XLA compiled, round in another order
_LOOSER = 20


@dataclass
class Run:
    """Fetches and feeds of one run, and TensorFlow's values or the message of its error."""

    fetches: list[str]
    feeds: dict[str, Any]
    values: list[Any] = field(default_factory=list)
    error: str = ""


@dataclass
class Difference:
    """A way of a seed that differs from TensorFlow."""

    seed: int
    way: Way
    message: str
    kind: str = "values"


@dataclass
class Trial:
    """A program with TensorFlow's values."""

    seed: int
    program: Program
    message: bytes
    runs: list[Run]
    # TensorFlow's gradients of each order in the feeds of the first run
    gradients: list[list[Any]]

    @property
    def inputs(self) -> Inputs:
        program = self.program
        feeds = list(program.feeds[0])
        return Inputs(self.runs[0].fetches, feeds, program.init, program.ys, program.xs)


class NotRun(Exception):
    """TensorFlow does not run a program at all, for instance for want of a kernel."""


def order_of(seed: int) -> int:
    """The order of the gradients of a seed."""
    return _ORDERS[seed % len(_ORDERS)]


def ways_of(seed: int) -> list[Way]:
    """A few ways for a seed; consecutive seeds of one order go through all of them."""
    order, (tens, last) = order_of(seed), divmod(seed, len(_ORDERS))
    rank = tens * _ORDERS.count(order) + _ORDERS[:last].count(order)
    candidates = list(ways(order))
    # in a random order, so that neighbors differ in everything
    random.Random(order).shuffle(candidates)
    numbers = range(rank * _WAYS_PER_SEED, (rank + 1) * _WAYS_PER_SEED)
    return [candidates[number % len(candidates)] for number in numbers]


def _config() -> Any:
    config = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1
    config.allow_soft_placement = True
    return config


def trial_of(seed: int) -> Trial:
    """Build the program of a seed, and run it in TensorFlow."""
    order, is_functional = order_of(seed), (seed + seed // len(_ORDERS)) % 2 == 1
    program = built(seed, order, v2=is_functional)
    draw = random.Random(seed)
    subset = draw.sample(program.fetches, draw.randint(1, len(program.fetches)))
    first, second = program.feeds
    runs = [Run(program.fetches, first), Run(subset, second)]
    gradients = _run(program, runs)
    message = forward_message(program)
    if gradients and draw.random() < 0.3:
        # TensorFlow's gradients are one more program
        message = program.graph.as_graph_def().SerializeToString(deterministic=True)
        names = [name for names in program.gradients[: len(gradients)] for name in names]
        runs[0] = Run([*program.fetches, *names], first)
        _run(program, runs)
    if order > 1 and any(op.type == "Enter" for op in program.graph.get_operations()):
        gradients = _functional_gradients(seed, order, runs) or gradients[:1]
    return Trial(seed, program, message, runs, gradients)


def _functional_gradients(seed: int, order: int, runs: list[Run]) -> list[list[Any]]:
    """The gradients of the same program in functional form.

    Of a loop of primitives TensorFlow has none of order 2, and returns zeros in their place.
    """
    twin = built(seed, order, v2=True)
    twin_runs = [Run(run.fetches[: len(twin.fetches)], run.feeds) for run in runs[:1]]
    gradients = _run(twin, twin_runs)
    is_same = not _compared(twin.fetches, twin_runs[0].values, runs[0].values, 1)
    return gradients if is_same else []


def _run(program: Program, runs: list[Run]) -> list[list[Any]]:
    """Run a program; returns the gradients of each order."""
    gradients: list[list[Any]] = []
    with tf.Session(graph=program.graph, config=_config()) as session:
        try:
            session.run(program.init)
        except tf.errors.OpError as error:
            raise NotRun(error.message) from None
        try:
            for names in program.gradients:
                gradients.append(session.run(names, program.feeds[0]))
        except tf.errors.OpError as error:
            program.refusal = error.message
        session.run(program.init)
        for run in runs:
            try:
                run.values = session.run(run.fetches, run.feeds)
            except tf.errors.OpError as error:
                run.error = error.message
    return gradients


def forward_message(program: Program) -> bytes:
    """The graph without TensorFlow's gradients."""
    from tensorflow.python.framework.graph_util import extract_sub_graph

    message = program.graph.as_graph_def()
    if program.gradients:
        kept = [name.rpartition(":")[0] for name in program.fetches]
        kept += [name.rpartition(":")[0] for name in program.feeds[0]]
        library = message.library
        message = extract_sub_graph(message, [*kept, program.init])
        message.library.CopyFrom(library)
    return bytes(message.SerializeToString(deterministic=True))


def differences(trial: Trial, chosen: Sequence[Way]) -> Iterator[Difference]:
    """Yield the ways that differ from TensorFlow."""
    for way in chosen:
        try:
            failure = disagreement(trial, way)
        except Unsupported as error:
            yield Difference(trial.seed, way, str(error), "unsupported")
        except CfgraphError as error:
            yield Difference(trial.seed, way, f"{type(error).__name__}: {error}", "error")
        except Exception as error:
            yield Difference(trial.seed, way, f"{type(error).__name__}: {error}", "internal")
        else:
            if failure:
                yield Difference(trial.seed, way, failure)


def disagreement(trial: Trial, way: Way) -> str:
    """What differs from TensorFlow in a way, or ``."""
    graph = cfgraph.loads(trial.message)
    derived = applied(graph, way, trial.inputs)
    loosen = _LOOSER if way.engine == "xla" or way.order else 1
    with session(graph, way) as running:
        running.run(targets=[trial.program.init])
        for names, expected in zip(derived, trial.gradients, strict=False):
            if trial.runs[0].error:
                continue
            values = running.run(names, fed(graph, trial.runs[0].feeds))
            failure = _compared(trial.program.xs, values, expected, loosen)
            if failure:
                return f"gradient {failure}"
        if way.order:
            running.run(targets=[trial.program.init])
        for run in trial.runs:
            try:
                values = running.run(run.fetches, fed(graph, run.feeds), timeout=60)
            except Unsupported:
                raise
            except CfgraphError as error:
                if not run.error:
                    return f"{type(error).__name__}: {error}"
                # what ran before an error depends on the schedule
                return ""
            if run.error:
                return f"no error, where TensorFlow has {run.error[:200]}"
            failure = _compared(run.fetches, values, run.values, loosen)
            if failure:
                return failure
    return ""


def fed(graph: Graph, feeds: dict[str, Any]) -> dict[str, Any]:
    """The feeds that a graph still has."""
    return {name: value for name, value in feeds.items() if name.rpartition(":")[0] in graph}


def _compared(names: Sequence[str], have: Sequence[Any], want: Sequence[Any], loosen: float) -> str:
    for name, actual, expected in zip(names, have, want, strict=False):
        failure = recorded.compare(actual, np.asarray(expected), loosen=loosen)
        if failure:
            return f"{name}: {failure}"
    return ""
