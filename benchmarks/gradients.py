"""Microseconds a node to add gradients, and what an LSTM's gradient costs, against TensorFlow's."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.measurement import Row, alternating_times, single_time
from benchmarks.peer import runner
from cfgraph.build.builder import Builder
from cfgraph.ir import dtypes
from cfgraph.ir.graph import Graph
from cfgraph.ir.serde import graph_def
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.passes.derivatives import gradients
from cfgraph.passes.jacobians import ROWS_IN_FLIGHT, jacobian
from cfgraph.runtime.session import Session

CHAINS = (1_000, 10_000, 100_000)
# TensorFlow takes a millisecond and more a node, for this many as for five times as many
COMPARED = 10_000
PEER_CHAIN = 2_000
REPEATS = 3
LOOPS = 1_000
TINY = 20
# a loop that runs again, and the numbers that it carries: 64 KiB
ITERATIONS = 400
VALUES = 16_384
# the Jacobian of a recurrent network: steps, examples, inputs, and units
RECURRENT = (20, 4, 24, 8)


def measure(tf: ModuleType | None, *, tiny: bool) -> Iterator[Row]:
    """Chains, loops in a row, and the LSTM."""
    for count in (TINY,) if tiny else CHAINS:
        yield compare_chain(tf if count == COMPARED else None, count)
    yield compare_sums(tf, TINY if tiny else COMPARED)
    count = TINY if tiny else LOOPS
    graph, last = loops(count)
    took = single_time(lambda: gradients(graph, [last], ["x:0"]))
    yield Row(f"gradient of {count:,} loops in a row", took * 1e6 / count, "µs a loop")
    yield from lstm(tf, tiny=tiny)
    yield from checkpointing(tiny=tiny)
    yield from jacobians(tf, tiny=tiny)


def compare_chain(tf: ModuleType | None, count: int) -> Row:
    """The time of a chain's gradient, and of TensorFlow's; the least of some, taken in turn."""
    mine, theirs = [], []
    for _ in range(REPEATS):
        graph, last = chain(count)
        mine.append(single_time(lambda graph=graph, last=last: gradients(graph, [last], ["x:0"])))
        if tf is not None:
            theirs.append(peer_chain(tf))
    peer = min(theirs) * 1e6 / PEER_CHAIN if theirs else None
    work, took = f"gradient of {count:,} nodes", min(mine) * 1e6 / count
    return Row(work, took, "µs a node", peer, 1 / 20 if theirs else None)


def chain(count: int) -> tuple[Graph, str]:
    """Products and tanhs in a row."""
    graph = Graph()
    x = graph.add("Placeholder", name="x", dtype=dtypes.float32, shape=Shape([8]))
    w = graph.add("Placeholder", name="w", dtype=dtypes.float32, shape=Shape([8]))
    last = x
    for place in range(count):
        last = graph.add("Mul", last, w) if place % 2 else graph.add("Tanh", last)
    return graph, f"{last.name}:0"


def peer_chain(tf: ModuleType) -> float:
    """The seconds that TensorFlow takes for a shorter chain."""
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, [8])
        w = tf.compat.v1.placeholder(tf.float32, [8])
        last = x
        for place in range(PEER_CHAIN):
            last = last * w if place % 2 else tf.tanh(last)
        return single_time(lambda: tf.gradients(last, [x]))


def compare_sums(tf: ModuleType | None, count: int) -> Row:
    """The time of the gradient of sums that all add one x of unknown shape, and TensorFlow's."""
    mine, theirs = [], []
    for _ in range(REPEATS):
        graph = Graph()
        x = last = graph.add("Placeholder", name="x", dtype=dtypes.float32, shape=UNKNOWN_SHAPE)
        for _ in range(count):
            last = graph.add("AddV2", last, x)
        name = f"{last.name}:0"
        mine.append(single_time(lambda graph=graph, name=name: gradients(graph, [name], ["x:0"])))
        if tf is not None:
            theirs.append(peer_sums(tf))
    peer = min(theirs) * 1e6 / PEER_CHAIN if theirs else None
    work, took = f"gradient of {count:,} nodes AddV2(prev, x)", min(mine) * 1e6 / count
    return Row(work, took, "µs a node", peer, 1 / 20 if theirs else None)


def peer_sums(tf: ModuleType) -> float:
    """The seconds that TensorFlow takes for fewer of these sums."""
    with tf.Graph().as_default():
        x = last = tf.compat.v1.placeholder(tf.float32)
        for _ in range(PEER_CHAIN):
            last = tf.raw_ops.AddV2(x=last, y=x)
        return single_time(lambda: tf.gradients(last, [x]))


def loops(count: int) -> tuple[Graph, str]:
    """Loops in a row, each over the result of the last; lowered."""
    from cfgraph.passes.lowering import lower

    b = Builder()
    last: Any = b.placeholder("x", "float32", [])
    for _ in range(count):
        last = b.while_loop(lambda v: b.Less(v, 8.0), lambda v: b.Mul(v, v), last)
    lower(b.graph)
    return b.graph, last.name


def lstm(tf: ModuleType | None, *, tiny: bool) -> Iterator[Row]:
    """The gradient that cfgraph adds to the LSTM, compared with the one that TensorFlow added."""
    from benchmarks.running import GRAPHS

    graph = graph_def.graph_from_bytes((GRAPHS / "lstm.pb").read_bytes())
    theirs = graph_def.graph_from_bytes((GRAPHS / "lstm_grad.pb").read_bytes())
    (name,) = gradients(graph, ["loss:0"], ["W:0"])
    yield Row("LSTM with our gradient", len(graph), "nodes", len(theirs), 1)
    yield Row("  values saved in each step", saved_values(graph), "stacks", saved_values(theirs), 1)
    steps = 2 if tiny else 100
    random = np.random.default_rng(0)
    feeds = {
        "W:0": (random.standard_normal((512, 1024)) * 0.05).astype(np.float32),
        "x:0": random.standard_normal((steps, 32, 256)).astype(np.float32),
    }
    path, both = GRAPHS / "lstm_grad.pb", ["loss:0", "dW:0"]
    session, fetches = Session(graph), ["loss:0", str(name)]
    peer = runner(tf, path, both, feeds) if tf else None
    repeats = 1 if tiny else 5
    mine, took = alternating_times(lambda: session.run(fetches, feeds), peer, repeats)
    per_step = None if took is None else took * 1e6 / steps
    yield Row("  run", mine * 1e6 / steps, "µs per iteration", per_step, 1.5)


def checkpointing(*, tiny: bool) -> Iterator[Row]:
    """A long loop that saves what its gradient needs, and one that runs again in segments."""
    count = TINY if tiny else ITERATIONS
    plain, most = _checkpointed_run(count, None)
    yield Row(f"peak memory of {count:,} iterations back", most, "MiB")
    every = round(count**0.5)
    took, peak = _checkpointed_run(count, every)
    yield Row(f"  state saved every {every} iterations", peak, "MiB", most, 4 / every)
    yield Row("  and the time", took * 1e6 / count, "µs per iteration", plain * 1e6 / count, 3)


def _checkpointed_run(count: int, every: int | None) -> tuple[float, float]:
    """The seconds and the peak memory in MiB of a loop with its gradient."""
    b = Builder()
    x = b.placeholder("x", "float32", [VALUES])
    found = b.while_loop(
        lambda i, v: b.Less(i, count),
        lambda i, v: (b.AddV2(i, 1), b.Sin(b.Mul(v, v))),
        (b.const(0), x),
    )
    y = b.Identity(found[1], name="y").name
    (name,) = gradients(b.graph, [y], ["x:0"], recompute=every)
    session, feeds = Session(b.graph), {"x:0": np.ones(VALUES, np.float32)}
    fetches = [str(name)]
    took = single_time(lambda: session.run(fetches, feeds))
    tracemalloc.start()
    session.run(fetches, feeds)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return took, peak / 2**20


def jacobians(tf: ModuleType | None, *, tiny: bool) -> Iterator[Row]:
    """The Jacobian of a recurrent network by its inputs, and its memory by rows in flight."""
    steps, batch, inputs, units = RECURRENT
    random = np.random.default_rng(0)
    values = [
        (random.standard_normal(shape) / 3).astype(np.float32)
        for shape in ((steps, batch, inputs), (inputs, units), (units, units))
    ]
    repeats, feeds = 1 if tiny else 7, {"x:0": values[0]}
    work = f"Jacobian of an RNN, {steps} steps, {batch * units:,} x {values[0].size:,}"
    for rows in (1, ROWS_IN_FLIGHT, batch * units):
        graph = recurrent_network(*values)
        ((name,),) = jacobian(graph, "y:0", "x:0", mode="reverse", rows_in_flight=rows)
        session = Session(graph)
        run = partial(session.run, [str(name)], feeds)
        if rows == ROWS_IN_FLIGHT:
            for pfor in (False, True):
                peer = recurrent_peer(tf, *values, pfor=pfor) if tf else None
                mine, took = alternating_times(run, peer, repeats)
                budget = None if took is None or pfor else 1
                theirs = None if took is None else took * 1e3
                yield Row(work, mine * 1e3, "ms", theirs, budget)
                work = "  against pfor"
        run()
        tracemalloc.start()
        run()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        yield Row(f"  peak memory with {rows} rows in flight", peak / 2**20, "MiB")


def recurrent_network(x: Any, w: Any, u: Any) -> Graph:
    """A graph with the last state y of a recurrent network over the steps of x."""
    b = Builder()
    steps = b.placeholder("x", "float32", x.shape)
    _, state = b.while_loop(
        lambda i, h: b.Less(i, len(x)),
        lambda i, h: (
            b.AddV2(i, 1),
            b.Tanh(b.AddV2(b.MatMul(b.GatherV2(steps, i, 0), w), b.MatMul(h, u))),
        ),
        (b.const(0), b.const(np.zeros((x.shape[1], len(u)), np.float32))),
    )
    b.Identity(state, name="y")
    return b.graph


def recurrent_peer(tf: ModuleType, x: Any, w: Any, u: Any, *, pfor: bool) -> Any:
    """A run of TensorFlow's Jacobian of the same network."""
    with tf.Graph().as_default() as graph:

        @tf.function
        def jacobian_of(steps: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(steps)
                state = tf.zeros((x.shape[1], len(u)))
                for i in tf.range(len(x)):
                    state = tf.tanh(tf.matmul(steps[i], w) + tf.matmul(state, u))
            return tape.jacobian(state, steps, experimental_use_pfor=pfor)

        steps = tf.compat.v1.placeholder(tf.float32, x.shape)
        result = jacobian_of(steps)
    session = tf.compat.v1.Session(graph=graph)
    return lambda: session.run(result, {steps: x})


def saved_values(graph: Graph) -> int:
    """The values that loops push."""
    return sum(node.op == "StackPushV2" for node in graph)
