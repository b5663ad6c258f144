"""Gradients of orders 1 and 2 through nodes that forward a value but not its gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

import cfgraph
from cfgraph.errors import Unsupported
from cfgraph.ir.role import Role
from cfgraph.ops.opdef.op import role_of
from cfgraph.passes.cluster.encapsulate import cluster_calls, inline_clusters
from cfgraph.passes.derivatives import DerivativeRequest, derivatives
from tests.passes.gradient_programs import GradientProgram, times
from tests.passes.stopped_programs import FEEDS, PROGRAMS, XS, BuilderLanguage, Program, graph_of
from tests.sampled import sampled

CASES = [pytest.param(program, id=program.__name__) for program in PROGRAMS]
every_program = pytest.mark.parametrize("program", CASES)
some_programs = pytest.mark.parametrize("program", sampled(CASES, 3))


def values(graph: cfgraph.Graph, names: Sequence[str | None]) -> list[float]:
    """The values of gradients; 0 for one that does not exist."""
    present = [name for name in names if name is not None]
    results = iter(cfgraph.Session(graph).run(present, FEEDS) if present else [])
    return [0.0 if name is None else float(next(results)) for name in names]


def slopes(graph: cfgraph.Graph, order: int) -> list[float]:
    return values(graph, derivatives(graph, DerivativeRequest(["y:0"], XS, order=order))[-1].names)


@every_program
@pytest.mark.parametrize("order", [1, 2])
def test_a_loop_has_the_gradients_of_its_unrolled_form(program: Program, order: int) -> None:
    want = slopes(graph_of(program, unrolled=True), order)
    assert slopes(graph_of(program), order) == pytest.approx(want, rel=1e-9, abs=1e-12)


@some_programs
@pytest.mark.parametrize("every", [1, 2])
def test_a_recomputed_loop_has_the_gradients_of_its_unrolled_form(
    program: Program, every: int
) -> None:
    graph = graph_of(program)
    first = cfgraph.gradients(graph, ["y:0"], XS, recompute=every)
    want = slopes(graph_of(program, unrolled=True), 1)
    assert values(graph, first) == pytest.approx(want, rel=1e-9, abs=1e-12)


@some_programs
@pytest.mark.parametrize("order", [1, 2])
def test_clusters_retain_the_gradients(program: Program, order: int) -> None:
    graph, want = graph_of(program), slopes(graph_of(program, unrolled=True), order)
    names = derivatives(graph, DerivativeRequest(["y:0"], XS, order=order))[-1].names
    cfgraph.cluster(graph, regions=True, fetches=[name for name in names if name is not None])
    assert values(graph, names) == pytest.approx(want, rel=1e-9, abs=1e-12)


@some_programs
@pytest.mark.parametrize("order", [1, 2])
def test_a_loop_that_was_functionalized_has_the_same_gradients(
    program: Program, order: int
) -> None:
    graph = graph_of(program)
    cfgraph.cluster(graph, regions=True, fetches=["y:0"])
    inline_clusters(graph, cluster_calls(graph))
    want = slopes(graph_of(program, unrolled=True), order)
    assert slopes(graph, order) == pytest.approx(want, rel=1e-9, abs=1e-12)


@some_programs
def test_the_gradient_of_a_recomputed_loop_has_a_gradient(program: Program) -> None:
    graph = graph_of(program)
    first = cfgraph.gradients(graph, ["y:0"], XS, recompute=2)
    second = cfgraph.gradients(graph, [name for name in first if name is not None], XS)
    want = slopes(graph_of(program, unrolled=True), 2)
    assert values(graph, second) == pytest.approx(want, rel=1e-9, abs=1e-12)


# -- stop_gradients in a loop ------------------------------------------------------------------


def factors(c: BuilderLanguage, a: Any, w: Any, x: Any) -> Any:
    return c.repeat(3, lambda a: c.b.EnsureShape(a, shape=[]) * a * w + x, a)


def invariants(c: BuilderLanguage, a: Any, w: Any, x: Any) -> Any:
    return c.repeat(3, lambda a: a * c.b.EnsureShape(w, shape=[]) * w + x, a)


def constant_variables(c: BuilderLanguage, a: Any, w: Any, x: Any) -> Any:
    return c.repeat(4, lambda a, v: (a * v * v + x, c.b.EnsureShape(v, shape=[])), a, w)[0]


@pytest.mark.parametrize("program", [factors, invariants, constant_variables])
@pytest.mark.parametrize(("order", "every"), [(1, None), (1, 2), (2, None)])
def test_a_gradient_of_any_order_stops_at_a_node_in_a_loop(
    program: Callable[..., Any], order: int, every: int | None
) -> None:
    results = []
    for unrolled in (False, True):
        graph = graph_of(program, unrolled=unrolled)
        cfgraph.lower(graph)
        names = derivatives(
            graph,
            DerivativeRequest(
                ["y:0"],
                XS,
                order=order,
                stop_gradients=[node.name for node in graph if node.op == "EnsureShape"],
                recompute=None if unrolled else every,
            ),
        )[-1].names
        results.append(values(graph, names))
    assert results[0] == pytest.approx(results[1], rel=1e-9, abs=1e-12)


# -- numbers -----------------------------------------------------------------------------------


def test_a_state_that_is_stopped_has_no_second_derivative() -> None:
    p = GradientProgram(a=1.0, w=0.5, x=0.25)
    stop, w, x = p.b.StopGradient, p["w"], p["x"]
    y = times(p, 3, lambda a: stop(a) * w + x, p["a"])
    # the last iteration alone has gradients: a2 by w, and 1 by x
    assert p.gradients(y, "a", "w", "x") == [0, 0.625, 1]
    zero = {"unconnected": "zero"}
    assert p.gradients(y, "a", "w", "x", order=2, options=zero) == [0, 0, 0]


def test_a_stopped_factor_is_a_constant_to_the_second_derivative() -> None:
    p = GradientProgram(w=2.0)
    w = p["w"]
    # y = s³ w³ with s = w held: y' = 3 s³ w² = 96, y'' = 6 s³ w = 96
    y = times(p, 3, lambda a: a * p.b.StopGradient(w) * w, p.b.const(1.0))
    assert p.gradients(y, "w") == 96
    assert p.gradients(y, "w", order=2) == 96


def test_a_variable_that_is_stopped_has_the_gradient_of_the_first_iteration() -> None:
    p = GradientProgram(v=2.0)
    y, _ = times(p, 4, lambda a, v: (a * v, p.b.StopGradient(v)), p.b.const(1.0), p["v"])
    # y = v s³, where s is v held
    assert p.gradients(y, "v") == 8
    assert p.gradients(y, "v", order=2, options={"unconnected": "zero"}) == 0
    assert p.gradients(y, "v", options={"recompute": 2}) == 8


def test_a_stopped_invariant_is_not_saved_in_each_iteration() -> None:
    p = GradientProgram(x=[1.0, 2.0], w=[3.0, 4.0])
    y = times(p, 3, lambda a: a * p.b.StopGradient(p["w"]), p["x"])
    graph = p.graph()
    names = cfgraph.gradients(graph, [y.name], ["x"])
    assert not [node for node in graph if node.op == "StackPushV2"]
    assert p.values(graph, names, {}) == [[27, 64]]


# -- other nodes whose gradient is not that of their value -------------------------------------


def marked(graph: cfgraph.Graph, op: str) -> None:
    """Change each StopGradient to another op; an IdentityN gets a custom gradient."""
    for node in graph:
        if node.op == "StopGradient":
            attrs = {"T": node.attr("T")}
            if op == "IdentityN":
                attrs = {"T": (attrs["T"],), "_gradient_op_type": b"Custom-1"}
            elif op == "Identity":
                attrs["_gradient_op_type"] = b"Custom-1"
            graph.set_op(node, op, attrs)


def products(p: GradientProgram, *, as_state: bool) -> Any:
    """`a + 3 x w`, with x stopped: by w, only x is saved. In the second form x is a variable."""
    stop, w, x = p.b.StopGradient, p["w"], p["x"]
    if as_state:
        return times(p, 3, lambda a, v: (a + v * w, stop(v)), p["a"], x)[0]
    return times(p, 3, lambda a: a + stop(x) * w, p["a"])


@pytest.mark.parametrize("as_state", [False, True])
@pytest.mark.parametrize(
    ("op", "code"), [("PreventGradient", "CFG509"), ("IdentityN", "CFG507"), ("Identity", "CFG507")]
)
def test_a_second_derivative_through_a_saved_value_is_rejected_like_the_first(
    op: str, code: str, as_state: bool
) -> None:
    p = GradientProgram(a=1.0, w=2.0, x=3.0)
    y = products(p, as_state=as_state)
    graph = p.graph()
    cfgraph.lower(graph)
    marked(graph, op)
    (by_w,) = cfgraph.gradients(graph, [y.name], ["w"])
    assert p.values(graph, [by_w], {}) == [9]
    with pytest.raises(Unsupported) as caught:
        cfgraph.gradients(graph, [str(by_w)], ["x"])
    assert caught.value.code == code


@pytest.mark.parametrize("op", ["Identity", "IdentityN"])
def test_a_custom_gradient_is_ignored_in_a_saved_value_too(op: str) -> None:
    p = GradientProgram(a=1.0, w=2.0, x=3.0)
    y = products(p, as_state=False)
    graph = p.graph()
    cfgraph.lower(graph)
    marked(graph, op)
    (by_w,) = cfgraph.gradients(graph, [y.name], ["w"])
    (by_x,) = cfgraph.gradients(graph, [str(by_w)], ["x"], ignore_custom=True)
    assert p.values(graph, [by_x], {}) == [3]


# -- StopGradient among the primitives of a loop -----------------------------------------------


def with_stopped_edge(role: Role, op: str = "StopGradient") -> cfgraph.Graph:
    """`y = a w³`, where the Exit of the state, or its Switch, reads it through another op."""
    p = GradientProgram(a=1.0, w=2.0, x=0.0)
    p.b.Identity(times(p, 3, lambda a: a * p["w"], p["a"]), name="y")
    graph = p.graph()
    cfgraph.lower(graph)
    node = graph["y"].inputs[0].node
    while role_of(node) is not role:
        node = node.inputs[0].node
    graph.set_input(node, 0, graph.add(op, node.inputs[0], name="stopped").output())
    return graph


roles = pytest.mark.parametrize("role", [Role.EXIT, Role.SWITCH])


@roles
@pytest.mark.parametrize("regions", [False, True])
def test_the_result_of_a_loop_may_be_stopped_inside_it(role: Role, regions: bool) -> None:
    graph = with_stopped_edge(role)
    if regions:
        cfgraph.cluster(graph, regions=True, fetches=["y:0"])
        inline_clusters(graph, cluster_calls(graph))
    names = cfgraph.gradients(graph, ["y"], ["a", "w"], unconnected="zero")
    assert values(graph, ["y", *names]) == pytest.approx([1.3 * 0.7**3, 0, 0])


@roles
def test_the_result_of_a_loop_may_be_prevented_from_differentiation(role: Role) -> None:
    with pytest.raises(Unsupported) as caught:
        cfgraph.gradients(with_stopped_edge(role, "PreventGradient"), ["y"], ["a", "w"])
    assert caught.value.code == "CFG509"


def loop_and_conditional() -> cfgraph.Graph:
    """`y`, the result of a loop whose body has a conditional, in lowered form."""
    p = GradientProgram(a=1.3, w=0.7, x=0.0)

    def body(a: Any) -> Any:
        return p.b.cond(p.b.Less(a, 1.0), lambda: a * p["w"], lambda: a + p["w"])

    p.b.Identity(times(p, 3, body, p["a"]), name="y")
    graph = p.graph()
    cfgraph.lower(graph)
    return graph


PRIMITIVES = ("Enter", "Merge", "Switch", "NextIteration", "Exit")


@pytest.mark.parametrize("op", PRIMITIVES)
def test_a_custom_gradient_of_a_primitive_is_rejected(op: str) -> None:
    plain = loop_and_conditional()
    expected = values(plain, cfgraph.gradients(plain, ["y"], ["a", "w"]))
    faults, changed = [], []
    for name in [node.name for node in loop_and_conditional() if node.op == op]:
        graph = loop_and_conditional()
        graph.set_attr(graph[name], "_gradient_op_type", b"Custom-1")
        try:
            names = cfgraph.gradients(graph, ["y"], ["a", "w"])
        except Unsupported as error:
            faults.append((error.node, error.code))
            names = cfgraph.gradients(graph, ["y"], ["a", "w"], ignore_custom=True)
            changed.append(name)
        assert values(graph, names) == expected
    assert faults
    assert faults == [(name, "CFG507") for name in changed]


@roles
def test_an_identity_before_the_result_of_a_loop_forwards_its_gradient(role: Role) -> None:
    graph = with_stopped_edge(role, "Identity")
    names = cfgraph.gradients(graph, ["y"], ["a", "w"])
    assert values(graph, names) == pytest.approx([0.7**3, 3 * 1.3 * 0.7**2])
