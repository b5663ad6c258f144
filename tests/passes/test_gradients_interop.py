"""TensorFlow loads gradient graphs of cfgraph, and computes its own recorded values with them."""

from __future__ import annotations

from typing import Any

import pytest

from cfgraph.ir.graph import Graph
from tests.conformance import recorded, recorded_gradients
from tests.passes.differentiable_programs import SmoothProgram
from tests.passes.tf_sessions import feeds_of, imported, message_of

pytestmark = [pytest.mark.interop, pytest.mark.slow]

tf = pytest.importorskip("tensorflow", reason="needs the extra `interop`").compat.v1

CASES = recorded.parameters("gradient")


def whole_graph(case: dict[str, Any]) -> Graph:
    """The graph of a case, with the initializers of its variables if they are in a larger graph."""
    graph = recorded.graph(case["graph"])
    for run in case["init"]:
        if any(name.partition(":")[0] not in graph for name in run["fetches"]):
            graph = recorded.graph(run["graph"])
    return graph


@pytest.mark.parametrize("case", CASES)
def test_tensorflow_computes_the_recorded_gradients_from_our_graph(case: dict[str, Any]) -> None:
    graph = whole_graph(case)
    names = recorded_gradients.add_gradients(case, graph)
    wanted = [
        (name, want)
        for name, want in zip(names, case["expected"], strict=True)
        if name is not None and want is not None
    ]
    config = tf.ConfigProto(allow_soft_placement=True)
    with tf.Session(graph=imported(message_of(graph)), config=config) as session:
        for run in case["init"]:
            session.run(run["fetches"], feeds_of(run))
        values = session.run([name for name, _ in wanted], feeds_of(case))
    random = "random" in case["tags"]
    for have, (name, want) in zip(values, wanted, strict=True):
        expected = recorded.array(want)
        loosen = recorded_gradients.LOOSEN
        failure = recorded.compare(have, expected, shapes_only=random, loosen=loosen)
        assert not failure, f"{name}: {failure}"


@pytest.mark.parametrize("every", [None, 2])
@pytest.mark.parametrize("seed", range(40))
def test_tensorflow_computes_the_slopes_of_random_programs_from_our_graph(
    seed: int, every: int | None
) -> None:
    from cfgraph.passes.derivatives import gradients

    program = SmoothProgram(seed)
    graph = program.graph()
    names = gradients(graph, ["y:0"], program.XS, unconnected="zero", recompute=every)
    with tf.Session(graph=imported(message_of(graph))) as session:
        have = session.run(names, program.feeds)
    assert have == pytest.approx(program.expected().first, rel=1e-5, abs=1e-7)
