"""One seed: TensorFlow's values of a program, and what differs in cfgraph."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cfgraph.errors import CfgraphError, Unsupported
from tests.conformance.agree.programs import Program, built, tf, unoptimized_calls
from tests.conformance.agree.ways import Run, Subject, Way, compared, disagreement, ways

# the order of the gradients of a seed, by its last digit
_ORDERS = (0, 1, 0, 0, 1, 0, 2, 0, 1, 0)
_WAYS_PER_SEED = 2


@dataclass
class Difference:
    """A way of a seed that differs from TensorFlow."""

    seed: int
    way: Way
    message: str
    kind: str = "values"


@dataclass
class Trial:
    """The program of a seed with TensorFlow's values, and why there are no gradients."""

    seed: int
    subject: Subject
    refusal: str


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


def run_config() -> Any:
    """The configuration of a session that runs a graph as it is, on one thread."""
    config = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1
    config.allow_soft_placement = True
    # a reduced graph may wait forever
    config.operation_timeout_in_ms = 20_000
    return config


def trial_of(seed: int) -> Trial:
    """Build the program of a seed, and run it in TensorFlow."""
    order, is_functional = order_of(seed), (seed + seed // len(_ORDERS)) % 2 == 1
    with unoptimized_calls():
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
    subject = Subject(message, program.init, runs, program.ys, program.xs, gradients)
    return Trial(seed, subject, program.refusal)


def _functional_gradients(seed: int, order: int, runs: list[Run]) -> list[list[Any]]:
    """The gradients of the same program in functional form.

    Of a loop of primitives TensorFlow has none of order 2, and returns zeros in their place.
    """
    with unoptimized_calls():
        twin = built(seed, order, v2=True)
    twin_runs = [Run(run.fetches[: len(twin.fetches)], run.feeds) for run in runs[:1]]
    gradients = _run(twin, twin_runs)
    if twin_runs[0].error or runs[0].error:
        return []
    is_same = not compared(twin.fetches, twin_runs[0].values, runs[0].values[: len(twin.fetches)])
    return gradients if is_same else []


def _run(program: Program, runs: list[Run]) -> list[list[Any]]:
    """Run a program; returns the gradients of each order."""
    gradients: list[list[Any]] = []
    with tf.Session(graph=program.graph, config=run_config()) as session:
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
            failure = disagreement(trial.subject, way)
        except Unsupported as error:
            yield Difference(trial.seed, way, str(error), "unsupported")
        except CfgraphError as error:
            yield Difference(trial.seed, way, f"{type(error).__name__}: {error}", "error")
        except Exception as error:
            yield Difference(trial.seed, way, f"{type(error).__name__}: {error}", "internal")
        else:
            if failure:
                yield Difference(trial.seed, way, failure)
