from __future__ import annotations

import pytest

from cfgraph.errors import InvalidInput, Unsupported
from cfgraph.ir import dtypes
from cfgraph.ir.attrs import Func
from cfgraph.ir.function_graph import FunctionGraph, FunctionInstances
from tests.analysis.graph_text import graph as graph_of


def instance(text: str, name: str, **attrs: object) -> FunctionGraph:
    return FunctionInstances(graph_of(text).functions).get(name, attrs)


LISTS = """
function spread(xs: N*T, rest: L) -> (a: T, b: N*T, c: L) {
  attr T: type
  attr N: int
  attr L: list(type)
  split = Split(axis:output:0, xs:1) {T=$T, num_split=2}
  axis = Const() {dtype=int32, value=int32[]:0}
  two = IdentityN(xs:0, split:output:1) {T=(float32, float32)}
  pair = pair(rest:1, rest) {A=int32}
  merge = Merge(pair:y, pair:x:0, ^two) {N=2, T=float32}
  return a = merge:output:0
  return b = two:output
  return c = rest
}
function pair(x: A, y: float32) -> (x: A, y: float32) {
  attr A: type
  return x = x
  return y = y
}
"""


def test_arguments_and_outputs_become_flat() -> None:
    types = (dtypes.float32, dtypes.int32)
    result = instance(LISTS, "spread", T=dtypes.float32, N=2, L=types)
    assert [node.name for node in result.arguments] == ["xs", "xs_1", "rest", "rest_1"]
    assert result.input_types == (dtypes.float32, dtypes.float32, *types)
    assert result.output_types == (dtypes.float32, dtypes.float32, dtypes.float32, *types)
    nodes = result.graph
    assert nodes["split"].inputs == (nodes["axis"].output(), nodes["xs_1"].output())
    assert nodes["two"].inputs[1] == nodes["split"].output(1)
    assert [item.name for item in nodes["merge"].inputs] == ["pair:1", "pair:0"]
    assert nodes["merge"].controls == (nodes["two"],)
    names = [item.name for item in result.returns]
    assert names == ["merge:0", "two:0", "two:1", "rest:0", "rest_1:0"]


def test_attributes_are_filled_in_wherever_they_stand() -> None:
    text = """
function f(x: T) -> (y: T) {
  attr T: type
  attr n: int = 3
  attr g: func
  a = If(x, x) {Tcond=$T, Tin=$L, Tout=($T), then_branch=$g, else_branch=@h{T=$T, deep=@k{n=$n}}}
  b = Case(i:output:0) {branches=(@h{T=$T}, @h{T=float32}), Tin=(), Tout=()}
  i = Const() {dtype=int32, value=int32[]:0}
  return y = x
}
"""
    # a list of types cannot name a placeholder of one type
    graph = graph_of(text.replace("Tout=($T)", "Tout=$L"))
    attrs = {"T": dtypes.int32, "L": (dtypes.int32,), "g": Func("g")}
    nodes = FunctionInstances(graph.functions).get("f", attrs).graph
    assert nodes["a"].attrs["Tin"] == (dtypes.int32,)
    assert nodes["a"].attrs["then_branch"] == Func("g")
    expected = Func("h", {"T": dtypes.int32, "deep": Func("k", {"n": 3})})
    assert nodes["a"].attrs["else_branch"] == expected
    first, second = nodes["b"].attrs["branches"]
    assert (first.attrs["T"], second.attrs["T"]) == (dtypes.int32, dtypes.float32)


def test_a_function_is_made_once_for_each_set_of_attributes() -> None:
    text = """
function f(x: T) -> (y: T) {
  attr T: type
  y = Identity(x) {T=$T}
  return y = y:output:0
}
"""
    instances = FunctionInstances(graph_of(text).functions)
    whole = instances.get("f", {"T": dtypes.int32, "unused": 1})
    assert instances.get("f", {"T": dtypes.int32, "unused": 2}) is whole
    real = instances.get("f", {"T": dtypes.float32})
    assert real.graph["y"].attrs["T"] is dtypes.float32
    assert whole.graph["y"].attrs["T"] is dtypes.int32


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("a = Neg(x) {T=$U}\n  return y = a:y:0", "CFG110"),
        ("a = Neg(z) {T=float32}\n  return y = a:y:0", "CFG130"),
        ("a = Neg(x) {T=float32}\n  return y = a:z:0", "CFG130"),
        ("a = Neg(x) {T=float32}\n  return y = a:y:1", "CFG130"),
        ('a = Neg(x) {T=float32}\n  return y = "a"', "CFG130"),
        ("a = Neg(x:1) {T=float32}\n  return y = a:y:0", "CFG130"),
        ("a = Neg(x, ^b) {T=float32}\n  return y = a:y:0", "CFG130"),
        ("a = Neg(x) {T=float32}", "CFG131"),
    ],
)
def test_a_body_that_does_not_fit_together_is_refused(body: str, code: str) -> None:
    text = f"function f(x: float32) -> (y: float32) {{\n  {body}\n}}\n"
    with pytest.raises(InvalidInput) as caught:
        instance(text, "f")
    assert caught.value.code == code
    assert caught.value.node


def test_the_only_output_of_an_unknown_op_is_its_first() -> None:
    text = """
function f() -> (y: float32, z: float32) {
  a = NobodyKnows()
  return y = a:out:0
  return z = a:out:2
}
"""
    result = instance(text, "f")
    assert [item.name for item in result.returns] == ["a:0", "a:2"]
    assert result.guessed == ("a",)


def test_two_outputs_of_an_unknown_op_have_no_order() -> None:
    text = """
function f() -> (y: float32, z: float32) {
  a = NobodyKnows()
  return y = a:out:0
  return z = a:more:0
}
"""
    with pytest.raises(Unsupported, match="'out' and 'more'") as caught:
        instance(text, "f")
    assert caught.value.node == "f/a"


def test_a_function_that_is_not_there_is_an_invalid_input() -> None:
    with pytest.raises(InvalidInput, match="no function 'g'"):
        FunctionInstances({}).get("g", {})


def test_a_long_body_is_no_matter_of_recursion() -> None:
    lines = [f"n{i} = Neg({f'n{i - 1}:y:0' if i else 'x'}) {{T=float32}}" for i in range(20_000)]
    body = "\n  ".join(lines)
    text = f"function f(x: float32) -> (y: float32) {{\n  {body}\n  return y = n19999:y:0\n}}\n"
    assert instance(text, "f").returns[0].name == "n19999:0"
