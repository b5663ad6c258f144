"""Functional nodes: their kind and functions, and the call site and scope to lower them in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cfgraph.ir.attrs import Func
from cfgraph.ir.dtypes import DType
from cfgraph.ir.function_graph import FunctionGraph, FunctionInstances
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.implementations import select_implementation
from cfgraph.ops.opdef.facts import FunctionCalls
from cfgraph.ops.opdef.op import function_calls


@dataclass(frozen=True, slots=True, eq=False)
class FunctionalNode:
    """The functions of a functional node; inputs from `first_argument` on are their arguments.

    The functions of a conditional are in the order of its Switch's outputs: false, true.
    """

    kind: str
    functions: tuple[FunctionGraph, ...]
    first_argument: int

    @property
    def output_types(self) -> tuple[DType, ...]:
        """The types of the node's outputs, according to a branch or a loop's body."""
        return self.functions[-1].output_types

    def forwarded_input(
        self, port: int, forwarded: dict[FunctionGraph, tuple[int | None, ...]]
    ) -> int | None:
        """The input that an output always forwards unchanged, or None.

        `forwarded` maps each function to the arguments that its outputs forward.
        """
        if self.kind in ("while", "for"):
            body = self.functions[-1]
            offset = 1 if self.kind == "for" else 0
            return port + self.first_argument if forwarded[body][port] == port + offset else None
        indices = {forwarded[function][port] for function in self.functions}
        index = indices.pop()
        return None if indices or index is None else index + self.first_argument


def functional_kind(op: str, instances: FunctionInstances) -> str:
    """Kind of a functional op (`if`, `case`, `while`, `for`, `call`, …), or "" for other ops."""
    if op in instances.library:
        return "call"
    return function_calls(op).kind


def read_functional_node(node: Node, instances: FunctionInstances) -> FunctionalNode:
    """Read a functional node.

    TensorFlow calls the functions of a conditional or loop, and runs all of their stateful nodes.
    If the node is marked for lowering, it runs only the stateful nodes that outputs and control
    outputs of the functions depend on.

    Raises InvalidInput if a function does not exist or its signature does not match.
    """
    if node.op in instances.library:
        name = select_implementation(instances.library, node.op, node.device)
        return FunctionalNode("call", (instances.get(name, node.attrs),), 0)
    calls = function_calls(node.op)
    spare = calls.kind != "call" and bool(node.attrs.get("_lower_using_switch_merge"))
    functions = [
        instances.get(_selected(node, calls, func, instances), func.attrs, spare=spare)
        for key in calls.functions
        for func in _as_functions(node.attr(key))
    ]
    if calls.kind == "if":
        functions.reverse()
    return FunctionalNode(calls.kind, tuple(functions), calls.first_argument)


def _selected(node: Node, calls: FunctionCalls, func: Func, instances: FunctionInstances) -> str:
    """The function to run: TensorFlow selects an implementation for calls only."""
    if calls.kind != "call":
        return func.name
    return select_implementation(instances.library, func.name, node.device)


def _as_functions(value: Any) -> tuple[Func, ...]:
    return value if isinstance(value, tuple) else (value,)


@dataclass(frozen=True, slots=True, eq=False)
class InlineScope:
    """Scope of inlined nodes: the graph itself, a branch, the condition or body of a loop, a call.

    pivot: returns the node that is live exactly when the scope runs, or None if it always runs.
    always_live: nodes that are live even in the iteration in which a loop's body does not run, its
        constant Enters. A node that reads nothing else depends on the pivot.
    start_after: control inputs of the nodes of the scope without inner sources.
    orders_effects: initial effects also depend on the pivot.
    """

    prefix: str = ""
    device: str = ""
    pivot: Callable[[], Node | None] = lambda: None
    always_live: frozenset[Node] | set[Node] = frozenset()
    start_after: Sequence[Node] = ()
    orders_effects: bool = False


@dataclass(slots=True, eq=False)
class CallSite:
    """A functional node to be lowered, with its inputs, its control inputs, and its scope.

    is_top_level: the node is in the graph itself, where its name must continue to exist.
    is_guarded: the node is downstream of primitives, so that only its inputs decide when it runs.
    ordering_inputs: inputs that control-dependent readers of the node have to wait for.
    gate: a node that all inputs pass, live exactly when the functional node would be.
    """

    node: Node
    functional_node: FunctionalNode
    scope: InlineScope
    is_top_level: bool
    is_guarded: bool
    inputs: tuple[Output, ...] = ()
    controls: tuple[Node, ...] = ()
    ordering_inputs: tuple[Node, ...] = ()
    gate: Node | None = field(default=None)

    @property
    def arguments(self) -> tuple[Output, ...]:
        """The inputs that are arguments of the functions."""
        return self.inputs[self.functional_node.first_argument :]

    def pivot(self) -> Node | None:
        """The node that is live exactly when this one would run, or None if it always runs."""
        return self.gate or self.scope.pivot()

    @property
    def always_live(self) -> frozenset[Node] | set[Node]:
        """The nodes that are live even when this one would not run."""
        return frozenset() if self.gate else self.scope.always_live

    def edge_controls(self, *inputs: Output) -> tuple[Node, ...]:
        """Control inputs of a node at the edge of the site, which reads `inputs` from outside."""
        if self.controls or not all(x.node in self.always_live for x in inputs):
            return self.controls
        pivot = self.pivot()
        return () if pivot is None else (pivot,)
