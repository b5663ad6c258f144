"""Recognizer of while loops: the LoopCond of a frame, its loop variables, and its invariants.

    Enter ──▶ Merge ──▶ Switch ──false──▶ Exit
                ▲          └────true───▶ body ──▶ NextIteration ─┐
                └────────────────────────────────────────────────┘

A loop variable is a two-input Merge of an Enter and a NextIteration, with the Exits that forward
its final value and the gradient of it; an Exit behind a StopGradient is not among them. Recognition
reports the parts of a loop and rejects nothing: a pass decides which irregular Merges, Enters, and
Exits it supports.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from cfgraph.analysis.loops.frames import Frame
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.role import Role
from cfgraph.ops.opdef.op import role_of, strip_gradient_identities, strip_identities


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
