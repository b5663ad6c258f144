"""Bodies of functions with groups in one kernel each: what is joined, and what it gives."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.ir.function_graph import FunctionGraph, instantiate
from cfgraph.ops.evaluate import StraightLine, numpy_kernel
from cfgraph.ops.op import OpError
from cfgraph.runtime.fused.group import Group
from cfgraph.runtime.fused.line import joined
from tests.runtime.fused.host import COMPILER, WHY_NOT, Batch, Host

needs_compiler = pytest.mark.skipif(COMPILER is None, reason=WHY_NOT)


BODY = """
function f(x: float32, y: float32, v: float32, w: float32) -> (a: float32, b: float32, c: bool) {
  two = Const() {dtype=float32, value=float32[]:2}
  s = Sigmoid(x) {T=float32}
  t = Tanh(y) {T=float32}
  m = Mul(s:y:0, t:y:0) {T=float32}
  n = AddV2(m:z:0, v) {T=float32}
  d = Mul(n:z:0, two:output:0) {T=float32}
  p = MatMul(d:z:0, w) {T=float32}
  r = Sub(p:product:0, s:y:0) {T=float32}
  q = Square(v) {T=float32}
  l = Less(r:z:0, q:y:0) {T=float32}
  return a = r:z:0
  return b = q:y:0
  return c = l:z:0
}
"""


def function(text: str) -> FunctionGraph:
    (found,) = cfgraph.loads(text.encode(), "graph").functions.values()
    return instantiate(found, {}, {})


def fused(text: str, machine: Host) -> tuple[StraightLine, list[Group]]:
    line = StraightLine(function(text), numpy_kernel, joined(machine))
    return line, [call.kernel for call in line.calls if isinstance(call.kernel, Group)]


def names(line: StraightLine) -> list[list[str]]:
    return [[node.name for node in call.nodes] for call in line.calls]


def test_what_lies_around_a_product_is_two_groups_each_as_large_as_can_be(tmp_path: Path) -> None:
    line, _ = fused(BODY, Host(tmp_path))
    assert names(line) == [["two"], ["s", "t", "m", "n", "d"], ["p"], ["r", "q", "l"]]


def test_a_node_that_can_wait_joins_its_readers(tmp_path: Path) -> None:
    text = """
    function f(x: float32, w: float32) -> (y: float32) {
      e = Exp(x) {T=float32}
      p = MatMul(x, w) {T=float32}
      r = Neg(p:product:0) {T=float32}
      y = Mul(r:y:0, e:y:0) {T=float32}
      return y = y:z:0
    }
    """
    assert names(fused(text, Host(tmp_path))[0]) == [["p"], ["e", "r", "y"]]


def test_nodes_that_read_the_same_are_joined_though_no_edge_does(tmp_path: Path) -> None:
    text = """
    function f(x: float32, y: float32) -> (a: float32, b: float32, c: float32) {
      a = Neg(x) {T=float32}
      b = Mul(x, y) {T=float32}
      c = MatMul(b:z:0, a:y:0) {T=float32}
      return a = a:y:0
      return b = b:z:0
      return c = c:product:0
    }
    """
    assert names(fused(text, Host(tmp_path))[0]) == [["a", "b"], ["c"]]


def test_nothing_is_joined_around_what_lies_between(tmp_path: Path) -> None:
    text = """
    function f(x: float32) -> (y: float32) {
      a = Neg(x) {T=float32}
      p = MatMul(a:y:0, a:y:0) {T=float32}
      y = Mul(p:product:0, a:y:0) {T=float32}
      return y = y:z:0
    }
    """
    assert names(fused(text, Host(tmp_path))[0]) == [["a"], ["p"], ["y"]]


def test_integer_division_stays_by_itself_because_it_may_fail(tmp_path: Path) -> None:
    text = """
    function f(x: int64) -> (y: int64) {
      a = Mul(x, x) {T=int64}
      d = FloorDiv(a:z:0, x) {T=int64}
      y = Neg(d:z:0) {T=int64}
      return y = y:y:0
    }
    """
    line, groups = fused(text, Host(tmp_path))
    assert not groups
    with pytest.raises(OpError, match="division by zero"):
        line.run(None, np.zeros(3, np.int64))


@needs_compiler
def test_a_line_with_groups_gives_what_it_gives_without(tmp_path: Path) -> None:
    machine, rng = Host(tmp_path), np.random.default_rng(1)
    x, y, v, w = (rng.standard_normal(s).astype(np.float32) for s in [(4, 5), (5,), (5,), (5, 5)])
    line, groups = fused(BODY, machine)
    got = line.run(None, *map(machine.to_device, (x, y, v, w)))
    want = StraightLine(function(BODY), numpy_kernel).run(None, x, y, v, w)
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(np.asarray(one), other, rtol=1e-6)
    # the last group has outputs of two shapes
    assert (len(groups), machine.launches) == (2, 3)


ROWS = """
function f(n: int64, m: int64, x: float32, y: float32) -> (r: float32) {
  c = Less(n, m) {T=int64}
  s = AddV2(x, y) {T=float32}
  r = Select(c:z:0, s:z:0, x) {T=float32}
  return r = r:output:0
}
"""


@needs_compiler
def test_a_condition_chooses_whole_rows_for_any_number_of_them(tmp_path: Path) -> None:
    machine = Host(tmp_path)
    line, _ = fused(ROWS, machine)
    for rows in (2, 5):
        n, x = np.arange(rows), np.ones((rows, 3), np.float32)
        given = [n, np.int64(2), x, 2 * x]
        got = line.run(None, *(machine.to_device(one) if one.ndim else one for one in given))
        assert np.array_equal(got, StraightLine(function(ROWS), numpy_kernel).run(None, *given))
    assert (machine.launches, len(machine.sources)) == (2, 1)


@needs_compiler
def test_sources_are_the_same_for_all_shapes_of_a_pattern(tmp_path: Path) -> None:
    machine = Host(tmp_path)
    line, _ = fused(SUM, machine)
    for rows, columns in [(2, 3), (7, 1), (300, 5), (0, 4)]:
        x, y = np.ones((rows, columns), np.float32), np.ones((rows, columns), np.float32)
        got = line.run(None, machine.to_device(x), machine.to_device(y))
        assert np.array_equal(got, np.full((rows, columns), -2))
    assert len(machine.sources) == 1
    assert machine.launches == 3  # nothing to launch where nothing is computed


SUM = """
function f(x: float32, y: float32) -> (n: float32) {
  s = AddV2(x, y) {T=float32}
  n = Neg(s:z:0) {T=float32}
  return n = n:y:0
}
"""
WIDE = np.arange(2 * 6 * 4, dtype=np.float32).reshape(2, 6, 4)
LAYOUTS = {
    "a transposed one": (WIDE.transpose(2, 1, 0), WIDE.transpose(2, 1, 0)),
    "one with gaps": (WIDE[:, ::2], WIDE[:, 1::2]),
    "one backwards": (WIDE[::-1, :, ::-1], WIDE),
    "a row for all": (WIDE, WIDE[0, 0]),
    "a column for all": (WIDE, WIDE[0, :, :1]),
    "two that stretch each other": (WIDE[:, :1], WIDE[:1, :, :1]),
    "a scalar on the machine": (WIDE, np.array(3, np.float32)),
    "one broadcast before": (np.broadcast_to(WIDE[0, 0], (3, 4)), np.float32(2)),
    "a value of the host": (WIDE, np.float32(2.5)),
    "an array of the host": (WIDE, WIDE[0]),
}


@needs_compiler
@pytest.mark.parametrize("name", LAYOUTS)
def test_any_layout_is_read_where_it_is(name: str, tmp_path: Path) -> None:
    machine = Host(tmp_path)
    x, y = LAYOUTS[name]
    line, _ = fused(SUM, machine)
    here = isinstance(y, np.generic) or name == "an array of the host"
    got = line.run(None, x.view(machine.array), y if here else y.view(machine.array))
    assert np.array_equal(got, -(x + y))
    assert machine.launches == 1


def test_what_the_host_knows_is_computed_on_the_host(tmp_path: Path) -> None:
    machine = Host(tmp_path)
    line, _ = fused(SUM, machine)
    assert line.run(None, np.float32(1), np.float32(2)) == -3
    assert not machine.launches


def test_a_lack_of_memory_does_not_leave_a_group_to_its_nodes_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Host(tmp_path)
    line, _ = fused(SUM, machine)
    given = [machine.to_device(np.ones(2, np.float32)) for _ in range(2)]

    def none(*asked: Any) -> Any:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(machine, "function", none)
        with pytest.raises(MemoryError):
            line.run(None, *given)
    assert line.run(None, *given).tolist() == [-2, -2]
    assert machine.launches == 1


def test_shapes_that_do_not_fit_name_the_node(tmp_path: Path) -> None:
    machine = Host(tmp_path)
    line, _ = fused(SUM, machine)
    with pytest.raises(ValueError, match="broadcast") as caught:
        line.run(None, *(machine.to_device(np.ones(size, np.float32)) for size in (2, 3)))
    assert getattr(line.failed(caught.value), "name", "") == "s"


BINARY = ("AddV2", "Sub", "Mul", "Maximum", "Minimum", "SquaredDifference", "DivNoNan")
UNARY = ("Neg", "Abs", "Sign", "Square", "Relu", "Relu6", "Floor", "Identity", "ZerosLike")


def program(seed: int) -> str:
    """A random function of four arguments, with outputs along the way."""
    rng, dtype = random.Random(seed), random.Random(seed).choice(["float16", "bfloat16", "float32"])
    values, lines = ["a", "b", "c", "d"], []
    for place in range(rng.randint(3, 12)):
        op = rng.choice([*BINARY, *UNARY, "SelectV2"])
        given = rng.choices(values, k=2 if op in BINARY else 1)
        port = "z" if op in BINARY else {"Relu": "activations", "Relu6": "activations"}.get(op)
        port = port or ("output" if op == "Identity" else "y")
        if op == "SelectV2":
            lines.append(
                f"l{place} = Less({rng.choice(values)}, {rng.choice(values)}) {{T={dtype}}}"
            )
            given, port = [f"l{place}:z:0", *rng.choices(values, k=2)], "output"
        lines.append(f"n{place} = {op}({', '.join(given)}) {{T={dtype}}}")
        values.append(f"n{place}:{port}:0")
    outputs = [*rng.sample(values[4:], k=min(3, len(values) - 4)), values[-1]]
    heads = ", ".join(f"o{place}: {dtype}" for place in range(len(outputs)))
    ends = [f"return o{place} = {item}" for place, item in enumerate(outputs)]
    given = ", ".join(f"{name}: {dtype}" for name in "abcd")
    body = "\n  ".join([*lines, *ends])
    return f"function f({given}) -> ({heads}) {{\n  {body}\n}}"


@needs_compiler
def test_random_groups_of_random_shapes_give_every_bit_that_numpy_gives(tmp_path: Path) -> None:
    machine, made = Batch(tmp_path), []
    for seed in range(60):
        text, rng = program(seed), np.random.default_rng(seed)
        line, groups = fused(text, machine)
        kind = line.returned[0].dtype.numpy
        shapes = [[(3, 4), (4,), (3, 1), ()][place] for place in rng.integers(0, 4, 4)]
        values = [np.asarray(rng.standard_normal(shape)).astype(kind) for shape in shapes]
        with np.errstate(all="ignore"):
            want = StraightLine(function(text), numpy_kernel).run(None, *values)
        given: list[Any] = [machine.to_device(value) for value in values]
        argument = dict(
            zip((node.output() for node in function(text).arguments), given, strict=True)
        )
        for group in groups:
            assert group.prepare([found_of(argument, item) for item in group.inputs])
        made.append((text, line, given, want))
    with np.errstate(all="ignore"):
        for text, line, given, want in made:
            for one, other in zip(line.run(None, *given), want, strict=True):
                assert np.array_equal(np.asarray(one), other, equal_nan=True), text


def found_of(arguments: dict[Any, Any], item: Any) -> Any:
    return next(value for key, value in arguments.items() if key.node.name == item.node.name)
