"""TensorFlow loads what the Builder writes, unchanged, and computes the same values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cfgraph import Builder
from tests.build.execution import run_builder, run_with_tensorflow

Program = Callable[[Builder], tuple[list[Any], dict[str, Any]]]


def nested(b: Builder) -> tuple[list[Any], dict[str, Any]]:
    x, n = b.placeholder("x", "float64", []), b.placeholder("n", "int32", [])

    def step(i: Any, a: Any) -> Any:
        def inner() -> Any:
            return b.while_loop(lambda j, c: j < i, lambda j, c: (j + 1, c + x * 2), (0, a))[1]

        return i + 1, b.cond(a > 10.0, lambda: a - x, inner)

    return list(b.while_loop(lambda i, a: i < n, step, (0, x))), {"x": 1.5, "n": 6}


def structures(b: Builder) -> tuple[list[Any], dict[str, Any]]:
    x = b.placeholder("x", "float32", [2])
    out = b.while_loop(
        lambda s: s["n"] < 3,
        lambda s: {"pair": (s["pair"][1], s["pair"][0] + 1), "n": s["n"] + 1},
        {"n": 0, "pair": (x, x * 2)},
    )
    return [out["n"], *out["pair"]], {"x": [1, 2]}


def grown(b: Builder) -> tuple[list[Any], dict[str, Any]]:
    x = b.placeholder("x", "float32", [2])
    _, out = b.while_loop(
        lambda i, a: i < 3,
        lambda i, a: (i + 1, b.ConcatV2([a, x], 0)),
        (0, x),
        shape_invariants=([], [None]),
    )
    return [out], {"x": [1, 2]}


def chosen(b: Builder) -> tuple[list[Any], dict[str, Any]]:
    k, x = b.placeholder("k", "int32", []), b.placeholder("x", "int64", [None])
    branches = [lambda: x, lambda: x * 2, lambda: x[::-1]]
    return [b.case(k + index, branches) for index in (-2, 0, 1, 5)], {"k": 1, "x": [1, 2, 3]}


def called(b: Builder) -> tuple[list[Any], dict[str, Any]]:
    x, w = b.placeholder("x", "float32", []), b.placeholder("w", "float32", [])
    scaled = b.function(lambda a, k: (a * k + w, a), name="scaled")
    _, looped = b.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, scaled(a, 2.0)[0]), (0, x))
    return [*scaled(x, 3.0), looped], {"x": 1, "w": 0.5}


def bounded(b: Builder) -> tuple[list[Any], dict[str, Any]]:
    most = b.placeholder("m", "int64", [])
    (out,) = b.while_loop(lambda i: i < 100, lambda i: i * 2, [1], maximum_iterations=most)
    return [out], {"m": 5}


def changed(b: Builder) -> tuple[list[Any], dict[str, Any]]:
    v, n = b.variable(1.0, name="v"), b.placeholder("n", "int32", [])

    def body(i: Any) -> Any:
        b.cond(i % 2 == 0, lambda: v.assign_add(2.0), lambda: v.assign(v * 3))
        return i + 1

    (done,) = b.while_loop(lambda i: i < n, body, [0])
    with b.control(done):
        after = v.read()
    return [done, after], {"n": 5}


def only_resources(b: Builder) -> tuple[list[Any], dict[str, Any]]:
    v = b.variable(3)
    with b.control(b.while_loop(lambda: v < 10, lambda: v.assign_add(3), [])):
        return [v.read()], {}


def parts(b: Builder) -> tuple[list[Any], dict[str, Any]]:
    x, k = b.placeholder("x", "float32", [2, 3]), b.placeholder("k", "int32", [])
    return [x[1], x[:, 1:], x[..., -1], x[None, 0, ::2], x[k], x[:, ::-1]], {
        "x": [[1, 2, 3], [4, 5, 6]],
        "k": 1,
    }


def placed(b: Builder) -> tuple[list[Any], dict[str, Any]]:
    x = b.placeholder("x", "float32", [])
    with b.device("/cpu:0"), b.scope("layer"):
        return [b.cond(x > 0, lambda: x / 2, lambda: -x, name="half")], {"x": 3}


PROGRAMS: list[Program] = [
    nested,
    structures,
    grown,
    chosen,
    called,
    bounded,
    changed,
    only_resources,
    parts,
    placed,
]


@pytest.mark.interop
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_tensorflow_gives_the_same_values(program: Program) -> None:
    b = Builder()
    fetches, feeds = program(b)
    before = [b.initializer()]
    assert run_builder(b, fetches, feeds, before) == run_with_tensorflow(b, fetches, feeds, before)
