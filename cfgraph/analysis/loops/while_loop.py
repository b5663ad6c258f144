"""Recognizer of while loops: the LoopCond of a frame, its loop variables, and its trip count.

    Enter ──▶ Merge ──▶ Switch ──false──▶ Exit
                ▲          └────true───▶ body ──▶ NextIteration ─┐
                └────────────────────────────────────────────────┘

A loop variable is a two-input Merge of an Enter and a NextIteration, with the Exits that forward
its final value and the gradient of it; an Exit behind a StopGradient is not among them. Recognition
reports the parts of a loop and rejects nothing: a pass decides which irregular Merges, Enters, and
Exits it supports. The trip count of a loop whose bounds are constants is static.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import reduce
from operator import and_, or_
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from cfgraph.analysis.loops.frame import Frame
from cfgraph.ir.function_graph import FunctionGraph
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.role import Role
from cfgraph.ops.families.arithmetic import Add, AddV2, Sub
from cfgraph.ops.families.comparison import Greater, GreaterEqual, Less, LessEqual
from cfgraph.ops.families.constants import Const
from cfgraph.ops.opdef.op import (
    Op,
    is_a,
    lookup,
    role_of,
    strip_gradient_identities,
    strip_identities,
)
from cfgraph.ops.shape_inference import StaticShapes


@dataclass(frozen=True, slots=True)
class LoopVariable:
    """A value that a loop carries from one iteration to the next."""

    enter: Node
    merge: Node
    next_iteration: Node
    exits: tuple[Node, ...] = ()

    @property
    def initial(self) -> Output:
        """The value of the first iteration, in the parent frame."""
        return self.enter.inputs[0]

    @property
    def updated(self) -> Output:
        """The value that the body computes for the next iteration."""
        return self.next_iteration.inputs[0]

    def is_invariant(self, stops: Collection[Node] = ()) -> bool:
        """True if the body forwards the value and its gradient, which stops at some nodes."""
        if any(node in stops for node in (self.enter, self.merge, self.next_iteration)):
            return False
        return gradient_source_in_iteration(self.updated, stops) == self.merge.output()


@dataclass(frozen=True, slots=True)
class WhileLoop:
    """A frame with exactly one LoopCond. `invariants` are its constant Enters."""

    frame: Frame
    cond: Node
    variables: tuple[LoopVariable, ...]
    invariants: tuple[Node, ...]
    irregular_merges: tuple[Node, ...] = ()


class LoopPhase(IntEnum):
    """The iterations of a loop in which a node runs; the last is the one that ends the loop."""

    NEVER = 0
    BODY = 1
    END = 2
    ALWAYS = 3


class LoopPhases:
    """The phases of the nodes of a loop, in topological order, as far as its own test decides.

    A node runs in those iterations in which all that it waits for does, a Merge in those in which a
    forward input does.
    """

    def __init__(self, cond: Node, order: Iterable[Node]) -> None:
        self._tests = {strip_identities(cond.inputs[0]), cond.output()}
        self.of: dict[Node, int] = {}
        for node in order:
            self.of[node] = self._of_node(node)

    def of_output(self, tensor: Output) -> int:
        """The phase of a tensor; what is not a node of the loop is there in every iteration."""
        phase = self.of.get(tensor.node)
        if phase is None:
            return LoopPhase.ALWAYS
        is_tested = self.is_tested(tensor.node)
        return phase & (LoopPhase.END, LoopPhase.BODY)[tensor.port] if is_tested else phase

    def is_tested(self, node: Node) -> bool:
        """True for a Switch on the test of the loop."""
        is_switch = role_of(node) is Role.SWITCH
        return is_switch and strip_identities(node.inputs[1]) in self._tests

    def _of_node(self, node: Node) -> int:
        role = role_of(node)
        if role is Role.CONTROL_TRIGGER:
            return LoopPhase.ALWAYS
        if role is Role.MERGE:
            forward = [x for x in node.inputs if role_of(x.node) is not Role.NEXT_ITERATION]
            return reduce(or_, map(self.of_output, forward)) if forward else LoopPhase.ALWAYS
        phase = reduce(and_, map(self.of_output, node.inputs), int(LoopPhase.ALWAYS))
        for control in node.controls:
            phase &= self.of.get(control, LoopPhase.ALWAYS)
        return phase


def while_loop(frame: Frame) -> WhileLoop | None:
    """The loop of a frame, or None unless the frame has exactly one LoopCond."""
    cond = frame.loop_cond
    if cond is None:
        return None
    exits: dict[Node, list[Node]] = {merge: [] for merge in frame.merges}
    for node in frame.exits:
        switch = exit_switch(node)
        if switch is not None and is_loop_switch(switch, cond):
            exits.get(switch_data(switch), []).append(node)
    variables = {merge: loop_variable(merge, tuple(exits[merge])) for merge in frame.merges}
    return WhileLoop(
        frame,
        cond,
        tuple(variable for variable in variables.values() if variable is not None),
        tuple(frame.invariants),
        tuple(merge for merge, variable in variables.items() if variable is None),
    )


def final_exit(tensor: Output, frame: Frame) -> Output | None:
    """The Exit outside of all loops that carries the last value of a tensor in a loop, or None."""
    outer: Frame | None = frame
    while outer is not None and outer.parent is not None:
        loop = while_loop(outer)
        variables = [item for item in (loop.variables if loop else ()) if item.exits]
        carried = {strip_identities(item.updated): item for item in variables}
        carried |= {item.merge.output(): item for item in variables}
        variable = carried.get(strip_identities(tensor))
        if variable is None:
            return None
        tensor, outer = variable.exits[0].output(), outer.parent
    return tensor


def loop_variable(merge: Node, exits: tuple[Node, ...] = ()) -> LoopVariable | None:
    """The loop variable of a Merge, or None for any other node."""
    if role_of(merge) is not Role.MERGE or len(merge.inputs) != 2:
        return None
    sources = {role_of(source.node): source.node for source in merge.inputs}
    if set(sources) != {Role.ENTER, Role.NEXT_ITERATION}:
        return None
    return LoopVariable(sources[Role.ENTER], merge, sources[Role.NEXT_ITERATION], exits)


def is_loop_switch(switch: Node, cond: Node | None) -> bool:
    """True for a Switch whose predicate is the LoopCond `cond` itself."""
    return strip_identities(switch.inputs[1]).node is cond


def exit_switch(node: Node) -> Node | None:
    """The Switch whose false branch an Exit forwards, or None."""
    source = strip_gradient_identities(node.inputs[0])
    return source.node if role_of(source.node) is Role.SWITCH and source.port == 0 else None


def switch_data(switch: Node) -> Node:
    """The node whose value a Switch forwards."""
    return strip_gradient_identities(switch.inputs[0]).node


def value_in_iteration(x: Output) -> Output:
    """The origin of a tensor's value within an iteration, through identities and Switches."""
    origin = strip_identities(x)
    while role_of(origin.node) is Role.SWITCH:
        origin = strip_identities(origin.node.inputs[0])
    return origin


def gradient_source_in_iteration(x: Output, stops: Collection[Node] = ()) -> Output:
    """The origin of a tensor within an iteration that has the same value and gradient."""
    origin = strip_gradient_identities(x, stops)
    while role_of(origin.node) is Role.SWITCH and origin.node not in stops:
        origin = strip_gradient_identities(origin.node.inputs[0], stops)
    return origin


# additional iterations if both sides are equal, and the direction of counting
_COMPARISONS: Final[dict[type[Op], tuple[int, int]]] = {
    Less: (0, 1),
    LessEqual: (1, 1),
    Greater: (0, -1),
    GreaterEqual: (1, -1),
}


class InductionVariable(NamedTuple):
    """A loop variable with a constant integer start and step."""

    start: int
    step: int

    def after(self, count: int) -> int:
        """The value after a number of iterations."""
        return self.start + count * self.step

    def fits(self, count: int, dtype: Any) -> bool:
        """True if the value after a number of iterations is one of the NumPy dtype."""
        limits = np.iinfo(dtype)
        return int(limits.min) <= self.after(count) <= int(limits.max)


def static_trip_count(cond: Node, shapes: StaticShapes, *, exact: bool = False) -> int | None:
    """An upper bound on the iterations of a loop, or None if it is not static.

    With `exact` it is their number: no part of the condition may depend on data.
    """
    return _max_trip_count(cond.inputs[0], _FrameFacts(shapes), exact)


def call_trip_count(
    cond: FunctionGraph, body: FunctionGraph, initial: Sequence[Any], *, exact: bool = False
) -> int | None:
    """The same of a node that calls functions, with the `initial` values that are NumPy's."""
    return _max_trip_count(cond.returns[0], _CallFacts(cond, body, initial), exact)


def call_counters(
    cond: FunctionGraph, body: FunctionGraph, initial: Sequence[Any]
) -> dict[int, InductionVariable]:
    """The arguments of such a node that count, with `initial` values that are NumPy's."""
    facts = _CallFacts(cond, body, initial)
    known = [facts.induction_variable(argument.output()) for argument in body.arguments]
    return {index: counter for index, counter in enumerate(known) if counter is not None}


class _LoopFacts(Protocol):
    """The known integers of a loop."""

    def induction_variable(self, x: Output) -> InductionVariable | None:
        """The variable that a tensor reads, if its start and step are known."""

    def integer(self, x: Output) -> int | None:
        """The value of a static integer scalar, which a loop may carry unchanged, or None."""


class _CallFacts:
    """The integers of a loop of functions."""

    def __init__(self, cond: FunctionGraph, body: FunctionGraph, initial: Sequence[Any]) -> None:
        self._body, self._initial = body, initial
        self._arguments = {
            argument: index
            for function in (cond, body)
            for index, argument in enumerate(function.arguments)
        }

    def induction_variable(self, x: Output) -> InductionVariable | None:
        """The variable that a tensor reads, if its start and step are known."""
        index = self._arguments.get(strip_identities(x).node)
        if index is None:
            return None
        argument, after = self._body.arguments[index], self._body.returns[index]
        start = _integer_value(self._initial[index])
        step = _step_of(after, lambda y: strip_identities(y).node is argument, self)
        return None if start is None or step is None else InductionVariable(start, step)

    def integer(self, x: Output) -> int | None:
        """The value of a constant, or the initial value of a variable that stays the same."""
        node = strip_identities(x).node
        if is_a(node, Const):
            return _integer_value(node.attr("value").array)
        index = self._arguments.get(node)
        if index is None:
            return None
        stays = strip_identities(self._body.returns[index]).node is self._body.arguments[index]
        return _integer_value(self._initial[index]) if stays else None


class _FrameFacts:
    """The integers of a loop of primitives."""

    def __init__(self, shapes: StaticShapes) -> None:
        self._shapes = shapes

    def induction_variable(self, x: Output) -> InductionVariable | None:
        """The variable that a tensor reads, if its start and step are known."""
        variable = loop_variable(strip_identities(x).node)
        if variable is None:
            return None
        start = self.integer(variable.initial)
        step = _step_of(variable.updated, lambda y: _merge_of(y) is variable.merge, self)
        return None if start is None or step is None else InductionVariable(start, step)

    def integer(self, x: Output) -> int | None:
        """The value of a static integer scalar, which a loop may carry unchanged, or None."""
        variable = loop_variable(strip_identities(x).node)
        if variable is not None and value_in_iteration(variable.updated) == variable.merge.output():
            return self.integer(variable.initial)
        return _integer_value(self._shapes.value(x))


class AffineBound(NamedTuple):
    """Number of iterations as (sign * limit + offset) / step, rounded up."""

    limit: Output
    sign: int
    offset: int
    step: int


def affine_bound(cond: Node, shapes: StaticShapes) -> AffineBound | None:
    """An upper bound on the iterations that depends on a tensor of the loop, or None.

    A negative bound means no iteration.
    """
    todo, facts = [cond.inputs[0]], _FrameFacts(shapes)
    for pred in todo:
        node = strip_identities(pred).node
        op = lookup(node.op)
        if op is not None and op.algebra.boolean_semantics == "and":
            todo += node.inputs
        elif op in _COMPARISONS and (bound := _comparison_bound(node, _COMPARISONS[op], facts)):
            return bound
    return None


def _comparison_bound(
    node: Node, compared: tuple[int, int], facts: _LoopFacts
) -> AffineBound | None:
    equal, way = compared
    lhs, rhs = node.inputs
    for tensor, limit, sign in ((lhs, rhs, way), (rhs, lhs, -way)):
        counter = facts.induction_variable(tensor)
        if counter is not None and sign * counter.step > 0:
            return AffineBound(limit, sign, equal - sign * counter.start, sign * counter.step)
    return None


def _max_trip_count(pred: Output, facts: _LoopFacts, exact: bool) -> int | None:
    """An upper bound on how often a predicate holds before it first does not."""
    origin = strip_identities(pred)
    op = lookup(origin.node.op)
    if op is not None and op.algebra.boolean_semantics == "and":
        parts = [_max_trip_count(tensor, facts, exact) for tensor in origin.node.inputs]
        known = [count for count in parts if count is not None]
        return None if exact and len(known) < len(parts) else min(known, default=None)
    compared = None if op is None else _COMPARISONS.get(op)
    if compared is None:
        return None
    equal, way = compared
    lhs, rhs = origin.node.inputs
    for tensor, limit, sign in ((lhs, rhs, way), (rhs, lhs, -way)):
        counter, end = facts.induction_variable(tensor), facts.integer(limit)
        if counter is not None and end is not None:
            count = _iterations_to(counter, end, equal, sign)
            assert tensor.dtype is not None
            fits = count is not None and counter.fits(count, tensor.dtype.numpy)
            return count if fits else None
    return None


def _iterations_to(counter: InductionVariable, end: int, equal: int, sign: int) -> int | None:
    """The number of iterations until a counter reaches its end, or None if it never does."""
    distance = sign * (end - counter.start) + equal
    if distance <= 0:
        return 0
    step = sign * counter.step
    return None if step <= 0 else -(-distance // step)


def _step_of(after: Output, is_variable: Callable[[Output], bool], facts: _LoopFacts) -> int | None:
    """The constant that an iteration adds to a variable, or None."""
    node = strip_identities(after).node
    op = lookup(node.op)
    if op not in (Add, AddV2, Sub):
        return None
    lhs, rhs = node.inputs
    if is_variable(lhs):
        step = facts.integer(rhs)
        return -step if step is not None and op is Sub else step
    return facts.integer(lhs) if is_variable(rhs) and op is not Sub else None


def _merge_of(x: Output) -> Node:
    """The node that produces a value, ignoring Identity nodes and one Switch.

    For a loop variable that the body reads, this is the variable's Merge.
    """
    origin = strip_identities(x)
    if role_of(origin.node) is Role.SWITCH:
        origin = strip_identities(origin.node.inputs[0])
    return origin.node


def _integer_value(value: Any) -> int | None:
    """A known integer scalar, or None."""
    is_integer = isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "iu"
    return int(value) if is_integer and not value.ndim else None
