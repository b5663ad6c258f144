"""Gradients of functions that have a registered gradient in the library."""

from __future__ import annotations

from typing import Any

import pytest

import cfgraph

X = 3.0

# f(x) = x * x, with 10 * x * dy as its gradient; h(x) = f(x) * x calls it
PAIR = """
gradient f = df
function f(x: float32) -> (y: float32) {
  square = Mul(x, x) {T=float32}
  return y = square:z:0
}
function df(x: float32, dy: float32) -> (dx: float32) {
  ten = Const() {dtype=float32, value=float32[]: 10.0}
  scaled = Mul(x, ten:output:0) {T=float32}
  dx = Mul(scaled:z:0, dy) {T=float32}
  return dx = dx:z:0
}
"""
NESTED = """
function h(x: float32) -> (y: float32) {
  f = f(x)
  product = Mul(f:y:0, x) {T=float32}
  return y = product:z:0
}
"""
PLAIN = """
function h(x: float32) -> (y: float32) {
  product = Mul(x, x) {T=float32}
  return y = product:z:0
}
"""
UNUSED = """
w = Const() {dtype=float32, value=float32[]: 5.0}
v = Const() {dtype=float32, value=float32[]: 5.0}
"""
SECOND = """
function h(x: float32, w: float32) -> (y: float32) {
  product = Mul(x, x) {T=float32}
  return y = product:z:0
}
"""
SYMBOLIC = "dy = Const() {dtype=float32, value=float32[]: 1.0}\n"
SYMBOLIC += "dx = SymbolicGradient(x, dy) {Tin=(float32, float32), Tout=(float32), f=@h}\n"


def graph_of(*parts: str) -> cfgraph.Graph:
    text = "x = Placeholder() {dtype=float32, shape=[]}\n" + "".join(parts)
    return cfgraph.loads(text.encode())


def run(graph: cfgraph.Graph, name: str | None) -> Any:
    assert name is not None
    return cfgraph.Session(graph).run(name, {"x:0": X})


def test_uncalled_gradient_pairs_do_not_affect_the_gradient_of_a_function() -> None:
    assert run(graph_of(SYMBOLIC, PAIR, PLAIN), "dx:0") == [2 * X]


def test_the_gradient_of_a_function_calls_the_registered_gradient_of_its_callee() -> None:
    # x * df(x, x) + f(x), where df is ten times x
    assert run(graph_of(SYMBOLIC, PAIR, NESTED), "dx:0") == [10 * X * X + X * X]


def test_a_function_used_as_an_op_calls_the_registered_gradient_of_its_callee() -> None:
    graph = graph_of("y = h(x)\n", PAIR, NESTED)
    (name,) = cfgraph.gradients(graph, "y", "x")
    assert run(graph, name) == [10 * X * X + X * X]


@pytest.mark.parametrize("call", ["h(x, w)", "StatefulPartitionedCall(x, w) {CALL}"])
def test_an_argument_that_a_function_does_not_use_has_a_gradient_of_zeros(call: str) -> None:
    attrs = "Tin=(float32, float32), Tout=(float32), f=@h"
    graph = graph_of(UNUSED, f"y = {call.replace('CALL', attrs)}\n", SECOND)
    names = cfgraph.gradients(graph, ["y:0"], ["x:0", "w:0", "v:0"])
    assert names[2] is None
    assert [run(graph, name) for name in names[:2]] == [[2 * X], [0]]


def test_gradients_of_gradients_stop_at_the_limit_of_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "function f0(x: float32) -> (y: float32) {\n"
        "  t = Tanh(x) {T=float32}\n  return y = t:y:0\n}\n"
    )
    for level in range(1, 13):
        text += (
            f"function f{level}(x: float32) -> (y: float32) {{\n"
            "  one = Const() {dtype=float32, value=float32[]: 1.0}\n"
            "  dx = SymbolicGradient(x, one:output:0)"
            f" {{Tin=(float32, float32), Tout=(float32), f=@f{level - 1}}}\n"
            "  product = Mul(dx:output:0, x) {T=float32}\n  return y = product:z:0\n}\n"
        )
    graph, limit, sizes = graph_of("y = f12(x)\n", text), 1_000, [0]
    create = cfgraph.Graph.create

    def counted(self: cfgraph.Graph, *args: Any, **keywords: Any) -> Any:
        sizes.append(len(self))
        return create(self, *args, **keywords)

    monkeypatch.setattr(cfgraph.Graph, "create", counted)
    with cfgraph.limited(max_nodes=limit), pytest.raises(cfgraph.Unsupported) as refused:
        cfgraph.lower(graph)
    assert refused.value.code == "CFG137"
    assert limit / 2 < max(sizes) <= limit
    # as often as the gradient of a level is built
    assert len(sizes) < 4 * limit
