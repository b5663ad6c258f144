"""Gradients of tensors in a loop with respect to others of the same iteration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.errors import Unsupported
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import float64

STEPS, RATE = 3, 0.1
X, W = np.array([0.3, -0.2]), np.array([1.5, 0.7])
Loss = Callable[[Any, Any, Any], Any]


def total(b: Any, x: Any) -> Any:
    return b.Sum(x, np.array([0], np.int32))


def square(b: Any, x: Any, w: Any) -> Any:
    return total(b, x * x * w)


def branches(b: Any, x: Any, w: Any) -> Any:
    return b.cond(
        b.Greater(total(b, x), 0.0), lambda: total(b, x * x * w), lambda: total(b, b.Sin(x))
    )


def inner_loop(b: Any, x: Any, w: Any) -> Any:
    return total(b, b.while_loop(lambda j, v: j < 3, lambda j, v: (j + 1, b.Sin(v) * w), [0, x])[1])


def branches_in_an_inner_loop(b: Any, x: Any, w: Any) -> Any:
    def body(j: Any, v: Any) -> Any:
        return j + 1, b.cond(b.Equal(j, 1), lambda: b.Sin(v) * w, lambda: v * v)

    return total(b, b.while_loop(lambda j, v: j < 3, body, [0, x])[1])


def value(loss: Loss, x: Any) -> float:
    """The loss in NumPy, by the same function."""
    b = cfgraph.Builder()
    b.Identity(loss(b, b.const(x), b.const(W)), name="loss_of_x")
    return float(cfgraph.Session(b.graph).run(["loss_of_x:0"])[0])


def slope(loss: Loss, x: Any, step: float = 1e-6) -> Any:
    moves = step * np.eye(len(x))
    return np.array([value(loss, x + m) - value(loss, x - m) for m in moves]) / (2 * step)


def optimizer(loss: Loss) -> cfgraph.Graph:
    """A loop that computes a loss, without its gradient."""
    b = cfgraph.Builder()
    x0, w = b.placeholder("x0", "float64", [2]), b.placeholder("w", "float64", [2])

    def body(i: Any, x: Any) -> Any:
        point = b.Mul(x, np.ones(2), name="point")
        cost = b.AddV2(loss(b, point, w), np.zeros(()), name="loss")
        return i + 1, b.AddV2(point, cost * 0.0, name="next")

    b.Identity(b.while_loop(lambda i, x: i < STEPS, body, [0, x0])[1], name="result")
    cfgraph.lower(b.graph)
    return b.graph


def descend(graph: cfgraph.Graph) -> None:
    """Use the gradient in the body as the optimizer's step."""
    names = {node.name.rsplit("/", 1)[-1]: node for node in graph}
    loss, point, following = names["loss"], names["point"], names["next"]
    (name,) = cfgraph.gradients(graph, [f"{loss.name}:0"], [f"{point.name}:0"])
    assert name is not None
    rate = TensorValue(np.array(RATE))
    constant = graph.add("Const", controls=[point], dtype=float64, value=rate)
    step = graph.add("Mul", graph.tensor(name), constant)
    updated = graph.add("Sub", point, step)
    graph.set_inputs(following, [updated.output(), following.inputs[1]])


LOSSES = (square, branches, inner_loop, branches_in_an_inner_loop)


@pytest.mark.parametrize("engine", ["auto", "tokens"])
@pytest.mark.parametrize("loss", LOSSES)
def test_an_optimizer_in_a_loop_descends(loss: Loss, engine: str) -> None:
    graph = optimizer(loss)
    descend(graph)
    x = X
    for _ in range(STEPS):
        x = x - RATE * slope(loss, x)
    feeds = {"x0:0": X, "w:0": W}
    (found,) = cfgraph.Session(graph, engine=engine).run(["result:0"], feeds)
    np.testing.assert_allclose(found, x, rtol=1e-7)


@pytest.mark.slow
@pytest.mark.interop
@pytest.mark.parametrize("loss", LOSSES)
def test_tensorflow_runs_the_optimizer(loss: Loss) -> None:
    tensorflow = pytest.importorskip("tensorflow", reason="needs the extra `interop`")
    graph, v1 = optimizer(loss), tensorflow.compat.v1
    descend(graph)
    expected = cfgraph.Session(graph).run(["result:0"], {"x0:0": X, "w:0": W})[0]
    with tensorflow.Graph().as_default() as imported, v1.Session(graph=imported) as session:
        v1.import_graph_def(v1.GraphDef.FromString(cfgraph.dumps(graph)), name="")
        found = session.run("result:0", {"x0:0": X, "w:0": W})
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_gradient_does_not_leave_the_iteration() -> None:
    graph = optimizer(square)
    merge = next(node for node in graph if node.op == "Merge" and "_1" in node.name)
    following = next(node for node in graph if node.name.endswith("next"))
    (point,) = [node for node in graph if node.name.endswith("point")]
    # an iteration later, the merged value depends on `next`; in its own, it does not
    assert cfgraph.gradients(graph, [f"{merge.name}:0"], [f"{following.name}:0"]) == [None]
    assert cfgraph.gradients(graph, [f"{following.name}:0"], [f"{point.name}:0"]) != [None]


def test_a_tensor_outside_is_refused_with_its_name_inside() -> None:
    graph = optimizer(square)
    (loss,) = [node for node in graph if node.name.endswith("loss")]
    with pytest.raises(Unsupported, match="is inside the loop /while, and w:0 is not") as caught:
        cfgraph.gradients(graph, [f"{loss.name}:0"], ["w:0"])
    enter = next(node for node in graph if node.op == "Enter" and node.inputs[0].node.name == "w")
    assert f"inside, w:0 is {enter.name}" in str(caught.value.hint)
    assert cfgraph.gradients(graph, [f"{loss.name}:0"], [f"{enter.name}:0"]) != [None]


def test_a_jacobian_in_a_loop_is_refused() -> None:
    graph = optimizer(square)
    (loss,) = [node for node in graph if node.name.endswith("loss")]
    (point,) = [node for node in graph if node.name.endswith("point")]
    with pytest.raises(Unsupported, match="and a Jacobian is not"):
        cfgraph.jacobian(graph, [f"{loss.name}:0"], [f"{point.name}:0"])


def test_an_array_that_all_iterations_would_share_is_refused(fixtures: Path) -> None:
    graph = cfgraph.load(fixtures / "gradients_in_loops" / "shared_array.pb")
    before = cfgraph.dumps(graph)
    with pytest.raises(Unsupported, match="would write to one gradient array") as caught:
        cfgraph.gradients(graph, ["opt/mul:0"], ["opt/Identity_1:0"])
    assert caught.value.code == "CFG229"
    assert cfgraph.dumps(graph) == before


def test_a_check_finds_such_an_array(fixtures: Path) -> None:
    graph = cfgraph.load(fixtures / "gradients_in_loops" / "shared_array.pb")
    findings = [finding for finding in cfgraph.check(graph).findings if finding.code == "CFG229"]
    (finding,) = findings
    assert "share the gradient array of 'TensorArray'" in finding.message


@pytest.mark.parametrize("line", [("run", "--fetch", "x"), ("explain", "x")])
def test_a_run_that_fails_for_such_an_array_names_the_reason(
    line: Any, command: Any, fixtures: Path
) -> None:
    graph = fixtures / "gradients_in_loops" / "shared_array.pb"
    done = command(line[0], graph, *line[1:], "--feed", "x0=2")
    assert (done.code, "share one gradient array" in done.err) == (5, True), done.err
    assert "CFG229" in done.err
