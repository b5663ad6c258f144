from __future__ import annotations

from typing import Any

from cfgraph import Builder
from tests.build.execution import rejection, run_builder


def scaling() -> tuple[Builder, Any, Any]:
    b = Builder()
    return b, b.placeholder("x", "float32", []), b.placeholder("w", "float32", [])


def test_a_function_is_written_once_and_called_often() -> None:
    b, x, w = scaling()
    scaled = b.function(lambda a: a * w, name="scaled")
    out = scaled(scaled(scaled(x)))
    assert list(b.graph.functions) == ["scaled"]
    assert [node.op for node in b.graph].count("PartitionedCall") == 3
    assert run_builder(b, [out], {"x": 3, "w": 2}) == [24.0]


def test_arguments_and_results_keep_their_structure() -> None:
    b, x, _ = scaling()

    @b.function
    def parts(pair: Any, *, factor: Any = 2.0) -> Any:
        return {"left": pair["a"] * factor, "both": [pair["a"], pair["b"]]}

    out = parts({"a": x, "b": 1}, factor=3.0)
    assert run_builder(b, [out["left"], *out["both"]], {"x": 2}) == [6.0, 2.0, 1]
    assert run_builder(b, [parts({"a": x, "b": 1})["left"]], {"x": 2}) == [4.0]


def test_other_types_or_shapes_make_another_function() -> None:
    b, x, _ = scaling()
    twice = b.function(lambda a: a + a, name="twice")
    twice(x), twice(x), twice(1), twice([1.0, 2.0])
    assert list(b.graph.functions) == ["twice", "twice_1", "twice_2"]


def test_a_function_is_called_from_within_a_loop() -> None:
    b, x, w = scaling()
    scaled = b.function(lambda a: a * w)
    (out,) = b.while_loop(lambda a: a < 100, lambda a: [scaled(a)], [x])
    assert run_builder(b, [out], {"x": 3, "w": 2}) == [192.0]


def test_effects_in_a_function_keep_the_order_of_the_program() -> None:
    b, x, _ = scaling()
    v = b.variable(1.0)

    @b.function
    def change() -> Any:
        before = v.read()
        v.assign(v + 1)
        v.assign(v * x)
        return before, v.read()

    before, after = change()
    assert before.op.node.op == "StatefulPartitionedCall"
    assert run_builder(b, [before, after], {"x": 10}, [b.initializer()]) == [1.0, 20.0]


def test_a_function_for_its_effect_gives_an_operation() -> None:
    b, x, _ = scaling()
    v = b.variable(1.0)
    done = b.function(lambda: v.assign(x), name="set")()
    with b.control(done):
        after = v.read()
    assert run_builder(b, [after], {"x": 5}, [b.initializer()]) == [5.0]


def test_a_function_that_calls_itself_is_refused() -> None:
    b, x, _ = scaling()

    @b.function
    def again(a: Any) -> Any:
        return again(a)

    error = None
    try:
        again(x)
    except Exception as result:
        error = result
    assert str(error).startswith("function 'again' calls itself")


def test_what_a_function_reads_must_be_there_where_it_is_called() -> None:
    b, x, _ = scaling()
    leaked: list[Any] = []

    def branch() -> Any:
        y = x + 1
        leaked.append(b.function(lambda a: a + y, name="adds"))
        return leaked[0](x)

    b.cond(x > 0, branch, lambda: x)
    message = rejection(lambda: leaked[0](x)).message
    assert "was created in the then branch of 'cond'" in message


def test_arguments_that_a_function_does_not_take_are_named() -> None:
    b, x, _ = scaling()
    twice = b.function(lambda a: a + a, name="twice")
    assert "too many positional" in rejection(lambda: twice(x, x)).message


def test_only_conditionals_and_loops_request_lowering() -> None:
    # TensorFlow drops effects from calls with this attribute
    b, x, _ = scaling()
    out = b.cond(x > 0, lambda: b.function(lambda a: a * 2, name="twice")(x), lambda: x)
    call = next(n for n in b.graph.functions["cond_then"].definition.nodes if n.name == "twice")
    assert "_lower_using_switch_merge" in out.op.node.attrs
    assert "_lower_using_switch_merge" not in call.attrs
