"""Reduction of a difference: the smallest graph that TensorFlow and cfgraph run differently."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import tensorflow

import cfgraph
from cfgraph.comparison.equivalence import ComparisonRunOptions
from cfgraph.comparison.reduce import subject as reduced
from cfgraph.comparison.reduce.reduce_graph import reduce_graph
from cfgraph.comparison.sample_point import SampleOptions
from cfgraph.errors import CfgraphError
from cfgraph.ir.graph import Graph
from tests.conformance.agree.programs import dense_gradients
from tests.conformance.agree.trial import run_config
from tests.conformance.agree.ways import Run, Subject, Way, disagreement

tf: Any = tensorflow.compat.v1


@dataclass
class DifferenceOracle:
    """A test of graphs: TensorFlow runs them, and cfgraph has other values or the same error."""

    subject: Subject
    way: Way
    width: int = 1

    def __post_init__(self) -> None:
        self.failure = _failure(self.subject, self.way)

    def first_interesting(self, candidates: Sequence[reduced.Subject]) -> int | None:
        """Return the index of the first graph that still differs."""
        tested = (n for n, item in enumerate(candidates) if self.is_interesting(item.graphs[0]))
        return next(tested, None)

    def is_interesting(self, graph: Graph) -> bool:
        """Return true if a graph still differs in the same manner."""
        subject = self.restricted(graph)
        return bool(subject and _failure(subject, self.way) == self.failure)

    def restricted(self, graph: Graph) -> Subject | None:
        """The subject of a smaller graph with TensorFlow's values, None if it does not run it."""
        old = self.subject

        def has(name: str) -> bool:
            return name.rpartition(":")[0] in graph if ":" in name else name in graph

        runs = [
            Run(list(filter(has, run.fetches)), {n: v for n, v in run.feeds.items() if has(n)})
            for run in old.runs
        ]
        runs = [run for run in runs if run.fetches or self.way.order]
        ys, xs = list(filter(has, old.ys)), list(filter(has, old.xs))
        if not runs or (self.way.order and not (ys and xs)):
            return None
        init = old.init if has(old.init) else ""
        subject = Subject(cfgraph.dumps(graph), init, runs, ys, xs)
        try:
            return tensorflow_values(subject, self.way.order)
        except Exception:
            # TensorFlow raises errors of many types for graphs that it cannot import
            return None


def _failure(subject: Subject, way: Way) -> str:
    """The type of an error, `values` for other values, or ``."""
    try:
        return "values" if disagreement(subject, way) else ""
    except CfgraphError as error:
        return f"{type(error).__name__} {error.message.split(' ')[0]}"
    except Exception as error:
        return type(error).__name__


def tensorflow_values(subject: Subject, order: int) -> Subject:
    """Return the subject with TensorFlow's values, and gradients where it has some."""
    message = tf.GraphDef.FromString(subject.graph)
    with tensorflow.Graph().as_default() as graph:
        tf.import_graph_def(message, name="")
        ys = [graph.get_tensor_by_name(name) for name in subject.ys]
        xs = [graph.get_tensor_by_name(name) for name in subject.xs]
        names = []
        for _ in range(order):
            ys = dense_gradients(ys, xs)
            names.append([y.name for y in ys])
    runs = []
    with tf.Session(graph=graph, config=run_config()) as session:
        if subject.init:
            session.run(subject.init)
        gradients = [session.run(row, subject.runs[0].feeds) for row in names]
        if subject.init and order:
            session.run(subject.init)
        for run in subject.runs:
            try:
                runs.append(replace(run, values=session.run(run.fetches, run.feeds), error=""))
            except tf.errors.OpError as error:
                runs.append(replace(run, error=error.message))
                break
    return replace(subject, runs=runs, gradients=gradients)


def smallest(subject: Subject, way: Way) -> Subject:
    """Return the smallest subject that still differs in a way, or the subject itself."""
    oracle = DifferenceOracle(subject, way)
    graph = cfgraph.loads(subject.graph)
    if not oracle.failure or not oracle.is_interesting(graph):
        return subject
    run = subject.runs[0]
    options = ComparisonRunOptions(SampleOptions(feeds=run.feeds), fetches=tuple(run.fetches))
    search = reduce_graph(reduced.Subject((graph,)), oracle, options)
    return oracle.restricted(search.best.graphs[0]) or subject
