"""Functional nodes: their kind and functions, and the call site and scope to lower them in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cfgraph.ir.attrs import Func
from cfgraph.ir.dtypes import DType
from cfgraph.ir.function_graph import FunctionGraph, FunctionInstances
from cfgraph.ir.graph import Node, Output
from cfgraph.ops.opdef.op import function_calls


@dataclass(frozen=True, slots=True, eq=False)
class FunctionalNode:
    """A functional node read: `kind` is the op's own word, inputs from `first` on are arguments.

    The functions of a conditional stand in the order of its Switch's outputs: false, true.
    """

    kind: str
    functions: tuple[FunctionGraph, ...]
    first: int

    @property
    def output_types(self) -> tuple[DType, ...]:
        """The types of the node's outputs: those of a branch, or of a loop's body."""
        return self.functions[-1].output_types

    def passes(self, port: int, known: dict[FunctionGraph, tuple[int | None, ...]]) -> int | None:
        """The input that this output always is, unchanged; None if it may be something else.

        `known` says for each function which argument each output is.
        """
        if self.kind in ("while", "for"):
            body = self.functions[-1]
            index = 1 if self.kind == "for" else 0
            return port + self.first if known[body][port] == port + index else None
        places = {known[function][port] for function in self.functions}
        place = places.pop()
        return None if places or place is None else place + self.first


def functional_kind(op: str, instances: FunctionInstances) -> str:
    """What nodes of an op are: `if`, `case`, `while`, `for`, `call`, …; `` if not functional."""
    if op in instances.library:
        return "call"
    return function_calls(op).kind


def read_functional_node(node: Node, instances: FunctionInstances) -> FunctionalNode:
    """Read a functional node.

    TensorFlow calls the functions of a conditional or loop, and runs all of their stateful nodes;
    but one that says that it is to be lowered keeps no more of them than what its functions'
    outputs and control outputs need.

    Raises InvalidInput where a function does not exist or does not fit together.
    """
    if node.op in instances.library:
        return FunctionalNode("call", (instances.get(node.op, node.attrs),), 0)
    calls = function_calls(node.op)
    spare = calls.kind != "call" and bool(node.attrs.get("_lower_using_switch_merge"))
    functions = [
        instances.get(func.name, func.attrs, spare=spare)
        for key in calls.functions
        for func in _as_functions(node.attr(key))
    ]
    if calls.kind == "if":
        functions.reverse()
    return FunctionalNode(calls.kind, tuple(functions), calls.first_argument)


def _as_functions(value: Any) -> tuple[Func, ...]:
    return value if isinstance(value, tuple) else (value,)


@dataclass(frozen=True, slots=True, eq=False)
class InlineScope:
    """The surroundings of inlined nodes: the graph itself, a branch, one side of a loop, a call.

    `pivot` gives the node that is live exactly when the scope runs, None where that is always.
    `loose` nodes are live even in the iteration that a loop's body does not run in: its constant
    Enters. What reads nothing but them hangs on the pivot. `hold` goes before every node of the
    scope. In an `ordered` scope the effects, too, wait for the pivot.
    """

    prefix: str = ""
    device: str = ""
    pivot: Callable[[], Node | None] = lambda: None
    loose: frozenset[Node] | set[Node] = frozenset()
    hold: Sequence[Node] = ()
    ordered: bool = False


@dataclass(slots=True, eq=False)
class CallSite:
    """A functional node about to be lowered: what it reads and waits for, and where it stands.

    On the `surface`, in the graph itself, its name must live on. A `guarded` site stands behind
    primitives, so that only its own inputs tell when it runs.
    """

    node: Node
    functional_node: FunctionalNode
    scope: InlineScope
    surface: bool
    guarded: bool
    inputs: tuple[Output, ...] = ()
    controls: tuple[Node, ...] = ()
    ordering_inputs: tuple[Node, ...] = ()
    gate: Node | None = field(default=None)

    @property
    def arguments(self) -> tuple[Output, ...]:
        """What the functions are given."""
        return self.inputs[self.functional_node.first :]

    def pivot(self) -> Node | None:
        """The node that is live exactly when this one would run, None where that is always."""
        return self.gate or self.scope.pivot()

    @property
    def loose(self) -> frozenset[Node] | set[Node]:
        """The nodes that are live even when this one would not run."""
        return frozenset() if self.gate else self.scope.loose

    def held(self, *inputs: Output) -> tuple[Node, ...]:
        """The control inputs that a node needs which reads `inputs` at the site's edge."""
        if self.controls or not all(item.node in self.loose for item in inputs):
            return self.controls
        pivot = self.pivot()
        return () if pivot is None else (pivot,)
