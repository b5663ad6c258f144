"""Gradients through Switches and Merges that no structured program contains.

The gradient of a live tensor is live for all predicate values; it is zero if the y is dead.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.errors import Unsupported
from cfgraph.ir import dtypes
from cfgraph.ir.graph import Output
from cfgraph.ir.shapes import Shape

PREDICATES = 3
SCALAR = Shape([])
STEP = 1e-5


@dataclass
class UnstructuredGraph:
    """A random graph of x and w: each value with the predicate values that make it live."""

    draw: random.Random
    graph: cfgraph.Graph = field(default_factory=cfgraph.Graph)
    values: list[tuple[Output, dict[int, int]]] = field(default_factory=list)

    def grow(self, steps: int) -> str:
        """Add nodes; the name of the last value."""
        graph, draw = self.graph, self.draw
        for name in ("x", "w"):
            node = graph.add("Placeholder", name=name, dtype=dtypes.float64, shape=SCALAR)
            self.values.append((node.output(), {}))
        for place in range(PREDICATES):
            graph.add("Placeholder", name=f"p{place}", dtype=dtypes.bool_, shape=SCALAR)
        for _ in range(steps):
            getattr(self, draw.choice(["sine", "product", "switch", "switch", "merge", "merge"]))()
        return self.values[-1][0].name

    def pick(self) -> tuple[Output, dict[int, int]]:
        """Pick a value, preferably a recent one."""
        late = max(0, len(self.values) - 5)
        return self.values[self.draw.randrange(self.draw.choice([0, late]), len(self.values))]

    def sine(self) -> None:
        item, sides = self.pick()
        self.values.append((self.graph.add("Sin", item).output(), sides))

    def product(self) -> None:
        (left, a), (right, b) = self.pick(), self.pick()
        if all(b.get(key, side) == side for key, side in a.items()):
            self.values.append((self.graph.add("Mul", left, right).output(), {**a, **b}))

    def switch(self) -> None:
        item, sides = self.pick()
        key = self.draw.randrange(PREDICATES)
        node = self.graph.add("Switch", item, self.graph[f"p{key}"])
        for port in range(2):
            if sides.get(key, port) == port:
                self.values.append((node.output(port), {**sides, key: port}))

    def merge(self) -> None:
        """Merge two values that are never live together."""
        pairs = [
            (left, right)
            for left, right in itertools.combinations(self.values, 2)
            if any(right[1].get(key, side) != side for key, side in left[1].items())
        ]
        if not pairs:
            return
        (left, a), (right, b) = self.draw.choice(pairs)
        items = [left, right] if self.draw.random() < 0.5 else [right, left]
        common = {key: side for key, side in a.items() if b.get(key) == side}
        self.values.append((self.graph.add("Merge", *items).output(), common))


def at_point(x: float, w: float, predicates: dict[str, bool]) -> dict[str, Any]:
    return {"x:0": x, "w:0": w, **predicates}


def slope(session: cfgraph.Session, y: str, place: int, predicates: dict[str, bool]) -> float:
    """The derivative of y with respect to x or w; zero if y is dead."""
    ends = []
    for sign in (1, -1):
        point = [0.7, -0.4]
        point[place] += sign * STEP
        ends.append(session.run([y], at_point(*point, predicates), allow_dead=True)[0])
    return 0.0 if ends[0] is None else float(ends[0] - ends[1]) / (2 * STEP)


def check(seed: int) -> bool:
    """Compare gradients with slopes for all predicates; False without gradients."""
    tangle = UnstructuredGraph(random.Random(seed))
    y = tangle.grow(tangle.draw.randint(4, 14))
    graph = tangle.graph
    try:
        names = cfgraph.gradients(graph, [y], ["x:0", "w:0"])
    except Unsupported as error:
        if error.code != "CFG505":
            raise
        return False
    places = [place for place, name in enumerate(names) if name]
    wanted = [name for name in names if name]
    session = cfgraph.Session(graph, schedule="random", schedule_seed=seed)
    for chosen in itertools.product([False, True], repeat=PREDICATES):
        feeds = {f"p{place}:0": value for place, value in enumerate(chosen)}
        have = session.run(wanted, at_point(0.7, -0.4, feeds), allow_dead=True)
        for value, place in zip(have, places, strict=True):
            assert value is not None, (seed, chosen)
            assert np.isclose(value, slope(session, y, place, feeds), 1e-5, 1e-7), (seed, chosen)
    return True


def test_gradients_through_a_tangle_are_live_where_they_should_be_and_right() -> None:
    done = sum(check(seed) for seed in range(60))
    assert done > 50


@pytest.mark.slow
def test_gradients_through_many_tangles() -> None:
    done = sum(check(seed) for seed in range(1000, 2500))
    assert done > 1350
