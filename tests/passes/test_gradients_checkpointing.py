from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.errors import Unsupported, UsageError
from cfgraph.ops.families.stacks import Stack
from cfgraph.passes.derivatives import DerivativeRequest, derivatives
from tests.passes.differentiable_programs import SmoothProgram
from tests.sampled import in_sweep, sampled

XS = ["x:0", "w:0"]


class StackDepth:
    """Number of values on stacks: current and peak."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.most = 0
        push, pop = Stack.push, Stack.pop

        def counted_push(stack: Stack, *inputs: Any) -> None:
            push(stack, *inputs)
            self.now += 1
            self.most = max(self.most, self.now)

        def counted_pop(stack: Stack, dtype: Any) -> Any:
            self.now -= 1
            return pop(stack, dtype)

        monkeypatch.setattr(Stack, "push", counted_push)
        monkeypatch.setattr(Stack, "pop", counted_pop)


def gradients_of(
    make: Any, ys: list[str], xs: list[str], feeds: dict[str, Any], **options: Any
) -> list[Any]:
    """The values of a graph's ys and of their gradients."""
    graph = make()
    names = cfgraph.gradients(graph, ys, xs, unconnected="zero", **options)
    assert not any(finding.code == "CFG401" for finding in cfgraph.check(graph).findings)
    session = cfgraph.Session(graph, schedule="random", schedule_seed=1)
    return session.run([*ys, *(str(name) for name in names)], feeds)


def same(have: list[Any], want: list[Any]) -> bool:
    return all(np.allclose(a, b, 1e-12, 1e-14) for a, b in zip(have, want, strict=True))


@pytest.mark.parametrize("seed", sampled(range(30), 3))
def test_recomputed_gradients_of_a_random_program_are_those_of_saved_values(seed: int) -> None:
    program = SmoothProgram(seed)
    program.count = (0, 1, 2, 3, 5)[seed % 5]
    want = gradients_of(program.graph, ["y:0"], XS, program.feeds)
    for every in (1, 2, 3):
        assert same(gradients_of(program.graph, ["y:0"], XS, program.feeds, recompute=every), want)


@pytest.mark.slow
@pytest.mark.parametrize("seed", in_sweep(range(2000, 2100)))
def test_recomputed_gradients_of_many_random_programs_are_those_of_saved_values(seed: int) -> None:
    program = SmoothProgram(seed, depth=3)
    want = gradients_of(program.graph, ["y:0"], XS, program.feeds)
    assert same(gradients_of(program.graph, ["y:0"], XS, program.feeds, recompute=2), want)


def powers(limit: int | None = None) -> cfgraph.Graph:
    """Repeat v = sin(v w) `n` times, or a static number of times."""
    b = cfgraph.Builder()
    x, w = b.placeholder("x", "float64", []), b.placeholder("w", "float64", [])
    end = b.placeholder("n", "int32", []) if limit is None else b.const(limit)
    results = b.while_loop(
        lambda i, v: b.Less(i, end),
        lambda i, v: (b.AddV2(i, 1), b.Sin(b.Mul(v, w))),
        (b.const(0), x),
    )
    b.Identity(results[1], name="y")
    return b.graph


@pytest.mark.parametrize("every", [1, 2, 3, 100])
@pytest.mark.parametrize("count", [0, 1, 2, 5, 6])
def test_segments_need_not_fill_up(every: int, count: int) -> None:
    feeds = {"x:0": 0.7, "w:0": 1.3, "n:0": count}
    want = gradients_of(powers, ["y:0"], XS, feeds)
    assert same(gradients_of(powers, ["y:0"], XS, feeds, recompute=every), want)


def checked_powers() -> cfgraph.Graph:
    """x times w to the fifth, checked for NaN and for its size in each iteration."""
    b = cfgraph.Builder()
    x, w = b.placeholder("x", "float64", []), b.placeholder("w", "float64", [])

    def body(i: Any, v: Any) -> Any:
        product = b.CheckNumerics(b.Mul(v, w), message="in the loop")
        with b.control(b.Assert(b.Less(product, 100.0), [product])):
            return b.AddV2(i, 1), b.Identity(product)

    results = b.while_loop(lambda i, v: b.Less(i, b.const(5)), body, (b.const(0), x))
    b.Identity(results[1], name="y")
    return b.graph


def test_a_loop_that_checks_numbers_is_recomputed() -> None:
    feeds = {"x:0": 0.7, "w:0": 1.3}
    want = gradients_of(checked_powers, ["y:0"], XS, feeds)
    assert same(gradients_of(checked_powers, ["y:0"], XS, feeds, recompute=2), want)


def test_segments_of_the_root_of_the_iterations_save_about_two_roots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    feeds, results = {"x:0": 0.7, "w:0": 1.3}, []
    for options in ({}, {"recompute": "auto"}):
        saved = StackDepth(monkeypatch)
        values = gradients_of(lambda: powers(100), ["y:0"], XS, feeds, **options)
        assert saved.now == 0
        results.append((values, saved.most))
    (plain, most), (again, fewer) = results
    assert same(again, plain)
    assert most == 200
    # counter and value per segment, and the values saved for a segment of ten iterations
    assert fewer <= 10 * 2 + 10 * 2 + 2


def test_the_forward_values_and_the_names_of_exits_stay() -> None:
    graph = powers()
    cfgraph.lower(graph)
    exits = [f"{node.name}:0" for node in graph if node.op == "Exit"]
    feeds = {"x:0": 0.7, "w:0": 1.3, "n:0": 5}
    want = cfgraph.Session(graph).run(exits, feeds)
    cfgraph.gradients(graph, ["y:0"], XS, recompute=2)
    assert cfgraph.Session(graph).run(exits, feeds) == want


def nested() -> cfgraph.Graph:
    """A conditional and a loop in a loop in a conditional."""
    b = cfgraph.Builder()
    x, w = b.placeholder("x", "float64", []), b.placeholder("w", "float64", [])
    flag = b.placeholder("flag", "bool", [])

    def body(i: Any, v: Any) -> Any:
        inner = b.while_loop(
            lambda j, u: b.Less(j, i),
            lambda j, u: (b.AddV2(j, 1), b.Tanh(b.AddV2(b.Mul(u, w), v))),
            (b.const(0), v),
        )[1]
        even = b.Equal(b.FloorMod(i, 2), 0)
        chosen = b.cond(even, lambda: b.Sin(inner), lambda: b.Mul(inner, b.Exp(v)))
        return b.AddV2(i, 1), chosen

    def loop() -> Any:
        return b.while_loop(lambda i, v: b.Less(i, 7), body, (b.const(0), x))[1]

    b.Identity(b.cond(flag, loop, lambda: b.Mul(x, w)), name="y")
    return b.graph


@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("every", [1, 2, 3, "auto"])
def test_loops_inside_and_outside_of_a_loop_run_again(flag: bool, every: int | str) -> None:
    feeds = {"x:0": 0.7, "w:0": 1.3, "flag:0": flag}
    want = gradients_of(nested, ["y:0"], XS, feeds)
    assert same(gradients_of(nested, ["y:0"], XS, feeds, recompute=every), want)


def test_recomputed_gradients_are_differentiated_again() -> None:
    feeds, results = {"x:0": 0.7, "w:0": 1.3, "flag:0": True}, []
    for options in ({}, {"recompute": 2}):
        graph = nested()
        (first,) = cfgraph.gradients(graph, ["y:0"], ["w:0"], **options)
        second = cfgraph.gradients(graph, [str(first)], XS)
        results.append(cfgraph.Session(graph).run([str(name) for name in second], feeds))
    assert np.allclose(results[1], results[0], 1e-10)


def test_a_second_order_is_refused_for_it_would_save_more(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unsupported, match="not supported for gradients of order 2"):
        derivatives(powers(50), DerivativeRequest(["y:0"], ["w:0"], order=2, recompute=7))
    held = []
    for options in ({}, {"recompute": 7}):
        graph = powers(50)
        (first,) = cfgraph.gradients(graph, ["y:0"], ["w:0"], **options)
        second = cfgraph.gradients(graph, [str(first)], ["w:0"])
        saved = StackDepth(monkeypatch)
        cfgraph.Session(graph).run([str(second[0])], {"x:0": 0.7, "w:0": 1.3})
        held.append(saved.most)
        monkeypatch.undo()
    assert held[1] > held[0]


def arrays(*, read_back: bool = False) -> cfgraph.Graph:
    """A recurrent cell that reads one array and writes another."""
    b = cfgraph.Builder()
    x, w = b.placeholder("x", "float64", [7, 2]), b.placeholder("w", "float64", [2])
    inputs = b.TensorArrayV3(7, dtype="float64", name="inputs")
    filled = b.TensorArrayScatterV3(inputs[0], b.Range(0, 7, 1), x, inputs[1])
    made = b.TensorArrayV3(7, dtype="float64", clear_after_read=False)

    def body(i: Any, v: Any, flow: Any) -> Any:
        item = b.TensorArrayReadV3(inputs[0], i, filled, dtype="float64")
        after = b.EnsureShape(b.Tanh(b.AddV2(b.Mul(v, w), item)), shape=[2])
        flow = b.TensorArrayWriteV3(made[0], i, b.Mul(after, after), flow)
        if read_back:
            after = b.EnsureShape(b.TensorArrayReadV3(made[0], i, flow, dtype="float64"), shape=[2])
        return b.AddV2(i, 1), after, flow

    start = (b.const(0), b.const([0.1, 0.2], "float64"), made[1])
    flow = b.while_loop(lambda i, v, flow: b.Less(i, 7), body, start)[2]
    rows = b.TensorArrayGatherV3(
        made[0], b.Range(0, 7, 1), flow, dtype="float64", element_shape=[2]
    )
    b.Identity(b.Sum(b.Mul(rows, rows), [0, 1]), name="y")
    return b.graph


FEEDS = {"x:0": np.linspace(-1, 1, 14).reshape(7, 2), "w:0": np.array([0.5, -0.7])}


@pytest.mark.parametrize("every", [1, 3, 7])
def test_arrays_are_read_again_and_not_written_again(every: int) -> None:
    want = gradients_of(arrays, ["y:0"], XS, FEEDS)
    assert same(gradients_of(arrays, ["y:0"], XS, FEEDS, recompute=every), want)


def test_an_array_that_is_read_again_keeps_its_elements() -> None:
    graph = arrays()
    cfgraph.gradients(graph, ["y:0"], XS, recompute=2)
    assert graph["inputs"].attr("clear_after_read") is False
    # its own array, and that of a gradient
    assert sum(node.op == "TensorArrayWriteV3" for node in graph) == 2


def array_of_each_iteration() -> cfgraph.Graph:
    """A loop that creates, writes and reads an array in each iteration."""
    b = cfgraph.Builder()
    x, w = b.placeholder("x", "float64", []), b.placeholder("w", "float64", [])

    def body(i: Any, v: Any) -> Any:
        made = b.TensorArrayV3(1, dtype="float64")
        flow = b.TensorArrayWriteV3(made[0], 0, b.Mul(v, w), made[1])
        item = b.TensorArrayReadV3(made[0], 0, flow, dtype="float64")
        return b.AddV2(i, 1), b.EnsureShape(b.Sin(item), shape=[])

    b.Identity(b.while_loop(lambda i, v: b.Less(i, 5), body, (b.const(0), x))[1], name="y")
    return b.graph


def test_an_array_of_each_iteration_is_made_again() -> None:
    feeds = {"x:0": 0.7, "w:0": 1.3}
    want = gradients_of(array_of_each_iteration, ["y:0"], XS, feeds)
    assert same(gradients_of(array_of_each_iteration, ["y:0"], XS, feeds, recompute=2), want)


@pytest.mark.parametrize("first", [None, 2])
def test_what_other_gradients_save_is_not_saved_again(first: int | None) -> None:
    graph, feeds = powers(), {"x:0": 0.7, "w:0": 1.3, "n:0": 5}
    results = []
    for every in (first, 3):
        names = cfgraph.gradients(graph, ["y:0"], XS, recompute=every)
        wanted = [str(name) for name in names]
        results.append(cfgraph.Session(graph).run(wanted, feeds))
    both = cfgraph.Session(graph).run([*wanted, "gradients/x:0", "gradients/w:0"], feeds)
    assert same(results[1], results[0])
    assert same(both, results[0] * 2)


def lists() -> cfgraph.Graph:
    """The same cell with lists."""
    b = cfgraph.Builder()
    x, w = b.placeholder("x", "float64", [7, 2]), b.placeholder("w", "float64", [2])
    inputs = b.TensorListFromTensor(x, b.const([2]))
    made = b.TensorListReserve(b.const([2]), b.const(7), element_dtype="float64")

    def body(i: Any, v: Any, items: Any) -> Any:
        item = b.TensorListGetItem(inputs, i, b.const([2]), element_dtype="float64")
        after = b.EnsureShape(b.Tanh(b.AddV2(b.Mul(v, w), item)), shape=[2])
        return b.AddV2(i, 1), after, b.TensorListSetItem(items, i, b.Mul(after, after))

    start = (b.const(0), b.const([0.1, 0.2], "float64"), made)
    results = b.while_loop(lambda i, v, items: b.Less(i, 7), body, start)[2]
    rows = b.TensorListStack(results, b.const([2]), element_dtype="float64", num_elements=7)
    b.Identity(b.Sum(b.Mul(rows, rows), [0, 1]), name="y")
    return b.graph


@pytest.mark.parametrize("every", [1, 3, 7])
def test_lists_run_again(every: int) -> None:
    want = gradients_of(lists, ["y:0"], XS, FEEDS)
    assert same(gradients_of(lists, ["y:0"], XS, FEEDS, recompute=every), want)


def variable(*, changes: bool) -> cfgraph.Graph:
    """A loop that reads a variable, which may change after it."""
    b = cfgraph.Builder()
    x = b.placeholder("x", "float64", [])
    handle = b.VarHandleOp(dtype="float64", shape=[], name="v", shared_name="v")
    b.AssignVariableOp(handle, b.const(0.9, "float64"), name="init")
    results = b.while_loop(
        lambda i, v: b.Less(i, 5),
        lambda i, v: (b.AddV2(i, 1), b.Sin(b.Mul(v, b.ReadVariableOp(handle, dtype="float64")))),
        (b.const(0), x),
        shape_invariants={"v": None},
    )
    b.Identity(results[1], name="y")
    if changes:
        b.AssignVariableOp(handle, results[1], name="late")
    return b.graph


def test_a_variable_that_does_not_change_is_read_again() -> None:
    results = []
    for options in ({}, {"recompute": 2}):
        graph = variable(changes=False)
        names = cfgraph.gradients(graph, ["y:0"], ["x:0", "v:0"], **options)
        session = cfgraph.Session(graph)
        session.run([], targets=["init"])
        results.append(session.run([str(name) for name in names], {"x:0": 0.7}))
    assert same(results[1], results[0])


def noisy() -> cfgraph.Graph:
    b = cfgraph.Builder()
    x = b.placeholder("x", "float64", [])

    def body(v: Any) -> Any:
        return b.Mul(v, b.RandomUniform(b.const([], "int32"), dtype="float64"))

    b.Identity(b.while_loop(lambda v: b.Greater(v, 0.1), body, x), name="y")
    return b.graph


def printing() -> cfgraph.Graph:
    b = cfgraph.Builder()
    x = b.placeholder("x", "float64", [])
    results = b.while_loop(lambda v: b.Less(v, 9.0), lambda v: b.Mul(b.Print(v, [v]), v), x)
    b.Identity(results, name="y")
    return b.graph


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (noisy, "RandomUniform draws random numbers"),
        (printing, "Print has state"),
        (lambda: variable(changes=True), "ReadVariableOp reads v, which changes after the loop"),
        (
            lambda: arrays(read_back=True),
            "TensorArrayReadV3 reads an array that the loop itself writes",
        ),
    ],
)
def test_a_loop_that_must_not_run_twice_is_refused(make: Any, why: str) -> None:
    graph = make()
    cfgraph.lower(graph)
    before = cfgraph.dumps(graph, format="graph")
    with pytest.raises(Unsupported, match=f"{why}: the loop /while cannot be recomputed") as caught:
        cfgraph.gradients(graph, ["y:0"], ["x:0"], recompute=2)
    assert caught.value.code == "CFG510"
    assert cfgraph.dumps(graph, format="graph") == before


def test_a_loop_whose_gradient_is_refused_is_put_together_again() -> None:
    b = cfgraph.Builder()
    x, w = b.placeholder("x", "float64", []), b.placeholder("w", "float64", [])
    results = b.while_loop(lambda v: b.Less(v, 9.0), lambda v: b.Mul(b.PreventGradient(v), w), x)
    b.Identity(results, name="y")
    cfgraph.lower(b.graph)
    before = cfgraph.dumps(b.graph, format="graph")
    with pytest.raises(Unsupported, match="PreventGradient"):
        cfgraph.gradients(b.graph, ["y:0"], ["x:0"], recompute=2)
    assert cfgraph.dumps(b.graph, format="graph") == before


def test_auto_needs_a_number_of_iterations_that_is_known() -> None:
    with pytest.raises(Unsupported, match="is not statically known") as caught:
        cfgraph.gradients(powers(), ["y:0"], XS, recompute="auto")
    assert caught.value.code == "CFG510"


@pytest.mark.parametrize("every", [0, -1, "often"])
def test_an_interval_that_is_none_is_refused(every: int | str) -> None:
    with pytest.raises(UsageError, match=f"recompute is {every!r}"):
        cfgraph.gradients(powers(), ["y:0"], XS, recompute=every)


def test_the_lstm_runs_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps, random, results = 9, np.random.default_rng(0), []
    weights = (random.standard_normal((512, 1024)) * 0.05).astype(np.float32)
    inputs = random.standard_normal((steps, 32, 256)).astype(np.float32)
    for options in ({}, {"recompute": 3}):
        graph = cfgraph.load(root / "fixtures/graphs/lstm.pb")
        (name,) = cfgraph.gradients(graph, ["loss:0"], ["W:0"], **options)
        saved = StackDepth(monkeypatch)
        values = cfgraph.Session(graph).run(["loss:0", str(name)], {"W:0": weights, "x:0": inputs})
        results.append((values, saved.most))
    (plain, most), (again, fewer) = results
    assert np.allclose(again[1], plain[1], 1e-4, 1e-5)
    assert again[0] == plain[0]
    assert fewer < most / 2
