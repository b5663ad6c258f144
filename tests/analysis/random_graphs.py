"""Random graphs with control flow, deterministic per seed.

Structured graphs have conditionals and loops as TensorFlow's builders write them; in unstructured
ones Switches and Merges stand anywhere in a frame. Predicates are inputs or computed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

import cfgraph.ops  # noqa: F401 - fills the registry
from cfgraph.ir import dtypes
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.shapes import Shape

Enter = Callable[..., Output]

# loops end after so many iterations; names of nodes that say so hold GOES
ITERATIONS: Final = 3
CONTINUES: Final = "goes_on"


@dataclass(frozen=True)
class Recipe:
    """Frequencies and sizes of the parts of a random graph."""

    steps: int = 12
    predicates: int = 3
    indices: int = 1
    depth: int = 2
    weights: dict[str, int] = field(default_factory=dict)


_PLAIN: Final = {"operate": 4, "hang": 1, "derive": 1, "trigger": 1}
_BRANCHES: Final = {"switch": 3, "merge": 3, "split": 1}

RECIPES: Final = {
    "structured": Recipe(8, weights={"operate": 4, "hang": 1, "derive": 1, "conditional": 2}),
    "unstructured": Recipe(25, 4, weights={**_PLAIN, **_BRANCHES}),
    "dense": Recipe(60, 3, 0, weights={**_BRANCHES, "operate": 2, "derive": 1}),
    "wide": Recipe(40, 12, 0, weights={**_PLAIN, "switch": 4, "merge": 3}),
    "mixed": Recipe(12, 4, weights={**_PLAIN, **_BRANCHES, "conditional": 1}),
    "loops": Recipe(6, 2, weights={"operate": 4, "derive": 1, "conditional": 1, "loop": 2}),
    "wild": Recipe(9, 3, weights={**_PLAIN, **_BRANCHES, "conditional": 1, "loop": 2}),
}
WITHOUT_LOOPS: Final = tuple(
    name for name, recipe in RECIPES.items() if "loop" not in recipe.weights
)


@dataclass(frozen=True)
class RandomGraph:
    """A random graph and feeds for it."""

    graph: Graph
    seed: int

    def feeds(self, draw: random.Random) -> dict[str, Any]:
        """Random values for all placeholders; all loops end."""
        found: dict[str, Any] = {}
        for node in self.graph:
            if node.op == "Placeholder":
                found[f"{node.name}:0"] = _value(node, draw)
        return found


def _value(node: Node, draw: random.Random) -> Any:
    dtype = node.attrs["dtype"]
    if dtype is dtypes.float32:
        return np.float32(draw.random())
    if dtype is dtypes.int32:
        return np.int32(draw.randrange(-1, 5))
    if node.attrs["shape"].dims == ():
        return np.bool_(draw.random() < 0.5)
    bits = [draw.random() < (0.7 if CONTINUES in node.name else 0.5) for _ in range(ITERATIONS)]
    return np.array([*bits, False])


def random_graph(seed: int, kind: str | Recipe = "wild") -> RandomGraph:
    """A graph of a recipe, or of one of the kinds of RECIPES."""
    recipe = kind if isinstance(kind, Recipe) else RECIPES[kind]
    writer = _Writer(random.Random(f"{kind} {seed}"), recipe)
    writer.fill(writer.root, recipe.steps, recipe.depth)
    return RandomGraph(writer.graph, seed)


@dataclass
class _Scope:
    """The tensors that can be read in one scope, all in one frame; `start` is a live node."""

    start: Node | None
    data: list[Output]
    predicates: list[Output]
    indices: list[Output]
    counter: Output | None = None
    enters: tuple[Enter, ...] = ()  # from the root to here


class _Writer:
    def __init__(self, draw: random.Random, recipe: Recipe) -> None:
        self.draw = draw
        self.recipe = recipe
        self.graph = Graph()
        self.loops = 0
        data = [self.placeholder(f"x{k}", dtypes.float32) for k in range(2)]
        tests = [self.placeholder(f"p{k}", dtypes.bool_) for k in range(recipe.predicates)]
        numbers = [self.placeholder(f"i{k}", dtypes.int32) for k in range(recipe.indices)]
        self.root = _Scope(None, data, tests, numbers)

    # -- single nodes ----------------------------------------------------------------------------

    def placeholder(self, name: str, dtype: Any, *shape: int) -> Output:
        return self.graph.add("Placeholder", name=name, dtype=dtype, shape=Shape(shape)).output()

    def const(self, value: Any, *controls: Node) -> Output:
        dtype = dtypes.DType.from_numpy(value.dtype)
        return self.graph.add(
            "Const", controls=controls, value=TensorValue(value), dtype=dtype
        ).output()

    def constant(self, scope: _Scope, value: Any) -> Output:
        """A constant in the frame of a scope."""
        return self.const(value, *([scope.start] if scope.start else []))

    def op(self, op: str, *inputs: Output, **attrs: Any) -> Output:
        return self.graph.add(op, *inputs, **attrs).output()

    def pick(self, pool: list[Output]) -> Output:
        """A random tensor, usually one of the newest."""
        if self.draw.random() < 0.5:
            pool = pool[-6:]
        return self.draw.choice(pool)

    # -- steps -----------------------------------------------------------------------------------

    def fill(self, scope: _Scope, steps: int, depth: int) -> None:
        """Add random steps to a scope, nested up to a depth."""
        nested = ("conditional", "loop")
        kinds = [kind for kind in self.recipe.weights if depth or kind not in nested]
        weights = [self.recipe.weights[kind] for kind in kinds]
        for kind in self.draw.choices(kinds, weights, k=steps):
            if kind in nested:
                step: Callable[..., None] = getattr(self, kind)
                step(scope, depth - 1)
            else:
                getattr(self, kind)(scope)

    def operate(self, scope: _Scope) -> None:
        controls = [self.pick(scope.data).node] if self.draw.random() < 0.2 else []
        left, right = self.pick(scope.data), self.pick(scope.data)
        scope.data.append(self.op("AddV2", left, right, controls=controls))

    def hang(self, scope: _Scope) -> None:
        """A constant with a control input."""
        scope.data.append(self.const(np.float32(1), self.pick(scope.data).node))

    def trigger(self, scope: _Scope) -> None:
        sources = {self.pick(scope.data).node: None for _ in range(2)}
        self.hang_on(scope, self.graph.add("ControlTrigger", controls=sources))

    def hang_on(self, scope: _Scope, node: Node) -> None:
        scope.data.append(self.const(np.float32(2), node))

    def switch(self, scope: _Scope) -> None:
        made = self.graph.add("Switch", self.pick(scope.data), self.pick(scope.predicates))
        scope.data.extend((made.output(0), made.output(1)))
        if self.draw.random() < 0.1:
            self.hang_on(scope, made)

    def split(self, scope: _Scope) -> None:
        """A Switch with several outputs."""
        if not scope.indices:
            return
        count = self.draw.randrange(1, 4)
        made = self.graph.add(
            "_SwitchN", self.pick(scope.data), self.pick(scope.indices), num_outs=count
        )
        scope.data.extend(made.output(port) for port in range(count))

    def merge(self, scope: _Scope) -> None:
        count = self.draw.choice((1, 2, 2, 2, 3, 4))
        sources = [self.pick(scope.data) for _ in range(count)]
        controls = [self.pick(scope.data).node] if self.draw.random() < 0.2 else []
        made = self.graph.add("Merge", *sources, controls=controls)
        scope.data.append(made.output(0))

    def derive(self, scope: _Scope) -> None:
        """A predicate computed from others."""
        one, other = self.pick(scope.predicates), self.pick(scope.predicates)
        op = self.draw.choice(("Identity", "LogicalNot", "LogicalAnd", "LogicalOr", "is", "fix"))
        if op == "is" and scope.indices:
            wanted = self.constant(scope, np.int32(self.draw.randrange(3)))
            made = self.op("Equal", self.pick(scope.indices), wanted)
        elif op == "fix" and self.draw.random() < 0.3:
            made = self.constant(scope, np.bool_(self.draw.random() < 0.5))
        elif op in ("LogicalAnd", "LogicalOr"):
            made = self.op(op, one, other)
        else:
            made = self.op(op if op == "LogicalNot" else "Identity", one)
        scope.predicates.append(made)

    # -- conditionals ----------------------------------------------------------------------------

    def conditional(self, scope: _Scope, depth: int) -> None:
        """A conditional in the form of TensorFlow 1, or as TensorFlow 2 lowers it."""
        test = self.pick(scope.predicates)
        pivot = self.graph.add("Switch", test, test)
        test = self.op("Identity", test) if self.draw.random() < 0.5 else test
        captured = [self.pick(scope.data) for _ in range(2)]
        results = []
        for side in (0, 1):
            start = self.graph.add("Identity", pivot.output(side))
            inputs = [self.graph.add("Switch", item, test).output(side) for item in captured]
            inner = replace(
                scope,
                start=start,
                data=inputs,
                predicates=[*scope.predicates],
                indices=[*scope.indices],
            )
            self.hang_on(inner, start)
            self.fill(inner, self.draw.randrange(1, 4), depth)
            results.append([inner.data[-1], self.pick(inner.data), self.bit_of(inner)])
        *data, bits = [self.op("Merge", *pair) for pair in zip(*results, strict=True)]
        scope.data.extend(data)
        scope.predicates.append(bits)
        if scope.indices:
            scope.indices.append(Output(bits.node, 1))

    def bit_of(self, branch: _Scope) -> Output:
        """A Boolean of a branch: a constant, or a predicate that is live only in the branch."""
        if self.draw.random() < 0.6:
            return self.constant(branch, np.bool_(self.draw.random() < 0.5))
        controls = [branch.start] if branch.start else []
        return self.op("Identity", self.pick(branch.predicates), controls=controls)

    # -- loops -----------------------------------------------------------------------------------

    def loop(self, scope: _Scope, depth: int) -> None:
        """A loop with variables, some of them updated conditionally, invariants, and a body."""
        self.loops += 1
        frame = {
            "frame_name": b"loop%d" % self.loops,
            "parallel_iterations": self.draw.choice((1, 2, 10)),
        }

        def enter(item: Output, *, constant: bool = True) -> Output:
            return self.op("Enter", item, is_constant=constant, **frame)

        zero = self.const(np.int32(0), self.pick(scope.data).node)
        count = self.variable(enter(zero, constant=False))
        inner = _Scope(count, [], [], [], count.output(), (*scope.enters, enter))
        goes = self.bits(inner, CONTINUES)
        if self.draw.random() < 0.3:
            goes = self.op("LogicalAnd", goes, enter(self.pick(scope.predicates)))
        goes = self.op("LoopCond", goes)
        entered = [self.pick(scope.data) for _ in range(self.draw.choice((1, 2, 3)))]
        merges = [self.variable(enter(item, constant=False)) for item in entered]
        flag = self.variable(enter(self.pick(scope.predicates), constant=False))
        latches = [self.graph.add("Switch", item.output(), goes) for item in (count, *merges)]
        raised = self.graph.add("Switch", flag.output(), goes)
        inner.start = self.graph.add("Identity", latches[0].output(1))
        inner.data = [latch.output(1) for latch in latches[1:]]
        # a Merge must not read it itself: a dead Enter makes it dead, in a race with live inputs
        inner.data.append(self.op("Identity", enter(self.pick(scope.data))))
        inner.predicates = [enter(self.pick(scope.predicates))]
        inner.predicates.extend(self.bits(inner) for _ in range(2))
        inner.predicates.append(raised.output(1))
        inner.indices = [enter(item) for item in scope.indices]
        self.fill(inner, self.draw.randrange(2, 7), depth)
        one = self.constant(inner, np.int32(1))
        self.close_back_edge(count, self.op("AddV2", latches[0].output(1), one))
        for merge in merges:
            gate = [inner.start]
            self.close_back_edge(merge, self.op("Identity", self.pick(inner.data), controls=gate))
        changes = self.draw.random() < 0.3
        bit = self.pick(inner.predicates) if changes else raised.output(1)
        self.close_back_edge(flag, self.op("Identity", bit, controls=[inner.start]))
        scope.predicates.append(self.op("Exit", raised.output(0)))
        scope.data.extend(self.op("Exit", self.leaving(latch)) for latch in latches[1:])
        self.hang_on(scope, self.graph.add("Exit", latches[0].output(0)))

    def leaving(self, latch: Node) -> Output:
        return self.op("Neg", latch.output(0)) if self.draw.random() < 0.2 else latch.output(0)

    def variable(self, entered: Output) -> Node:
        """A Merge whose back edge is set later."""
        return self.graph.add("Merge", entered, entered)

    def close_back_edge(self, merge: Node, value: Output) -> None:
        self.graph.set_input(merge, 1, self.op("NextIteration", value))

    def bits(self, scope: _Scope, label: str = "bits") -> Output:
        """A predicate with a value of its own in each iteration."""
        counter = scope.counter
        assert counter is not None
        row = self.placeholder(self.graph.unique_name(label), dtypes.bool_, ITERATIONS + 1)
        for enter in scope.enters:
            row = enter(row)
        axis = self.const(np.int32(0), counter.node)
        return self.op("GatherV2", row, counter, axis, name=f"{label}_now")
