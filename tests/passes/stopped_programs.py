"""Loops in which StopGradient stands at different places, for cfgraph and for TensorFlow.

Each program is written once, over a `Language`, which runs its loops as loops or unrolls them.
Unrolled, a program has no saved values, so that its gradients are those of the ops alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import cfgraph

FEEDS = {"a": 1.3, "w": 0.7, "x": 0.4}
XS = [f"{name}:0" for name in FEEDS]


class Language(Protocol):
    """The constructs of a program; tensors have the operators `+`, `*` and `<`."""

    def stop(self, x: Any) -> Any: ...

    def same(self, x: Any) -> Any: ...

    def cond(self, pred: Any, true: Callable[[], Any], false: Callable[[], Any]) -> Any: ...

    def repeat(self, count: int, step: Callable[..., Any], *state: Any) -> Any:
        """The state after `count` steps."""

    def collect(self, count: int, step: Callable[[Any], Any], a: Any) -> Any:
        """The sum of squares of the states after 1, 2, … steps, through an array."""


Program = Callable[[Language, Any, Any, Any], Any]


class BuilderLanguage:
    """The constructs in a Builder."""

    def __init__(self, *, unrolled: bool = False) -> None:
        self.b = cfgraph.Builder()
        self.unrolled = unrolled

    def stop(self, x: Any) -> Any:
        return self.b.StopGradient(x)

    def same(self, x: Any) -> Any:
        return self.b.Identity(x)

    def cond(self, pred: Any, true: Callable[[], Any], false: Callable[[], Any]) -> Any:
        return self.b.cond(pred, true, false)

    def repeat(self, count: int, step: Callable[..., Any], *state: Any) -> Any:
        if self.unrolled:
            return unrolled(count, step, *state)

        def body(i: Any, *now: Any) -> Any:
            after = step(*now)
            return (i + 1, *(after if isinstance(after, tuple) else (after,)))

        results = self.b.while_loop(lambda i, *now: i < count, body, [0, *state])
        return results[1] if len(state) == 1 else tuple(results[1:])

    def collect(self, count: int, step: Callable[[Any], Any], a: Any) -> Any:
        if self.unrolled:
            return sum_of_squares(count, step, a)
        b = self.b
        array, flow = b.TensorArrayV3(count, dtype="float64")

        def body(i: Any, a: Any, flow: Any) -> Any:
            after = step(a)
            return i + 1, after, b.TensorArrayWriteV3(array, i, after, flow)

        results = b.while_loop(lambda i, a, flow: i < count, body, [0, a, flow])
        indices = b.Range(0, count, 1)
        rows = b.TensorArrayGatherV3(array, indices, results[2], dtype="float64", element_shape=[])
        return b.Sum(b.Square(rows), [0])


def graph_of(program: Callable[..., Any], *, unrolled: bool = False) -> cfgraph.Graph:
    """The graph of a program, with inputs `a`, `w`, `x` and the result `y`."""
    language = BuilderLanguage(unrolled=unrolled)
    inputs = [language.b.placeholder(name, "float64", []) for name in FEEDS]
    language.b.Identity(program(language, *inputs), name="y")
    return cfgraph.loads(cfgraph.dumps(language.b.graph))


def unrolled(count: int, step: Callable[..., Any], *state: Any) -> Any:
    """The state after `count` steps, without a loop."""
    for _ in range(count):
        after = step(*state)
        state = after if isinstance(after, tuple) else (after,)
    return state[0] if len(state) == 1 else state


def sum_of_squares(count: int, step: Callable[[Any], Any], a: Any) -> Any:
    """The sum of squares of the states after 1, 2, … steps, without an array."""
    total: Any = None
    for _ in range(count):
        a = step(a)
        total = a * a if total is None else total + a * a
    return total


# -- the places of StopGradient ----------------------------------------------------------------


def of_the_state(c: Language, a: Any, w: Any, x: Any) -> Any:
    return c.repeat(3, lambda a: c.stop(a) * w + x, a)


def of_a_factor(c: Language, a: Any, w: Any, x: Any) -> Any:
    return c.repeat(3, lambda a: c.stop(a) * a * w + x, a)


def of_a_product(c: Language, a: Any, w: Any, x: Any) -> Any:
    return c.repeat(3, lambda a: c.stop(a * w) * a + x * w, a)


def of_an_invariant(c: Language, a: Any, w: Any, x: Any) -> Any:
    return c.repeat(3, lambda a: a * c.stop(w) * w + c.stop(x * w) * a, a)


def of_a_variable_that_stays(c: Language, a: Any, w: Any, x: Any) -> Any:
    return c.repeat(5, lambda a, v: (a * v * v + x, c.stop(v)), a, w)[0]


def between_identities(c: Language, a: Any, w: Any, x: Any) -> Any:
    def step(a: Any, v: Any) -> Any:
        return c.same(c.stop(c.same(a))) * a * v, c.same(c.stop(c.same(v)))

    return c.repeat(4, step, a * x, w)[0]


def in_a_branch(c: Language, a: Any, w: Any, x: Any) -> Any:
    def step(a: Any) -> Any:
        return c.cond(a < 1.0, lambda: c.stop(a) * w * a + a, lambda: a * c.stop(x) * x + w)

    return c.repeat(4, step, a)


def of_a_conditional(c: Language, a: Any, w: Any, x: Any) -> Any:
    def step(a: Any) -> Any:
        return c.stop(c.cond(a < 1.0, lambda: a * w + a, lambda: a * x)) * a * w

    return c.repeat(4, step, a)


def in_an_inner_loop(c: Language, a: Any, w: Any, x: Any) -> Any:
    def step(a: Any) -> Any:
        return c.repeat(2, lambda v: c.stop(v) * v * w * a + x, a * c.stop(x))

    return c.repeat(3, step, a)


def of_an_invariant_of_an_inner_loop(c: Language, a: Any, w: Any, x: Any) -> Any:
    def step(a: Any) -> Any:
        return c.repeat(2, lambda v: v * c.stop(a) * w * a + c.stop(w) * v, x)

    return c.repeat(3, step, a)


def of_elements(c: Language, a: Any, w: Any, x: Any) -> Any:
    return c.collect(3, lambda a: c.stop(a) * w * a + x, a)


def of_all_elements(c: Language, a: Any, w: Any, x: Any) -> Any:
    return c.collect(3, lambda a: c.stop(a * w) + x * x, a)


PROGRAMS: list[Program] = [
    of_the_state,
    of_a_factor,
    of_a_product,
    of_an_invariant,
    of_a_variable_that_stays,
    between_identities,
    in_a_branch,
    of_a_conditional,
    in_an_inner_loop,
    of_an_invariant_of_an_inner_loop,
    of_elements,
    of_all_elements,
]
