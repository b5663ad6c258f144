"""A loop as it can be called: variables, invariants, the condition, and what it hands out.

    Enter ──▶ Merge ──▶ condition ──▶ LoopCond
                ▲  └──▶ Switch ──false──▶ Exit
                │         └────true────▶ body ──▶ NextIteration ─┐
                └────────────────────────────────────────────────┘

Each node of the loop runs in every iteration, or in those in which the condition holds, or in the
last; what mixes these never runs, and no such loop is raised.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cfgraph.analysis.loops.frames import Frame, Frames
from cfgraph.ir.graph import Node, Output
from cfgraph.ops.op import behind_identities, role
from cfgraph.passes.lift.refused import refused

ALWAYS: Final = "always"
BODY: Final = "body"
END: Final = "end"
NEVER: Final = "never"


@dataclass(frozen=True, slots=True)
class Variable:
    """What a loop changes: the value that comes in, its Merge, and what comes around."""

    start: Output
    merge: Node
    back: Output


@dataclass(frozen=True, slots=True)
class LoopForm:
    """A loop that can be called. `exits` say of which Merge or Enter they hand out the value."""

    frame: Frame
    cond: Node
    variables: tuple[Variable, ...]
    invariants: tuple[Node, ...]
    exits: tuple[tuple[Node, Node], ...]


def loop_form(frame: Frame, found: Frames) -> LoopForm:
    """Read a loop. Raises Refused where it has another form."""
    if len(frame.loop_conds) != 1:
        raise refused("form", f"it has {len(frame.loop_conds)} LoopConds")
    cond = frame.loop_conds[0]
    phases = _phases(frame, found, cond)
    variables = tuple(_variables(frame))
    for node, phase in phases.items():
        _require_phase(node, phase)
    exits = tuple((node, _handed_out(node, variables)) for node in frame.exits)
    return LoopForm(frame, cond, variables, tuple(frame.invariants), exits)


def through(form: LoopForm, item: Output) -> Output:
    """What a tensor of the loop is while an iteration runs: a Switch hands on what it reads."""
    while role(item.node) == "switch":
        item = item.node.inputs[0]
    return item


def _variables(frame: Frame) -> Iterator[Variable]:
    starts = set()
    for merge in frame.merges:
        ends = {role(item.node): item for item in merge.inputs}
        if len(merge.inputs) != 2 or set(ends) != {"enter", "next_iteration"}:
            raise refused("form", f"{merge.name} joins something else than a loop", node=merge.name)
        if merge.readers(1):
            raise refused("form", f"the index that {merge.name} gives is read", node=merge.name)
        enter, back = ends["enter"].node, ends["next_iteration"].node
        if enter.attr("is_constant"):
            raise refused("form", f"{enter.name} is constant, and begins a variable")
        starts.add(enter)
        yield Variable(enter.inputs[0], merge, back.inputs[0])
    for enter in frame.enters:
        if enter.attr("is_constant"):
            continue
        others = [use.node for use in enter.uses if role(use.node) != "merge"]
        if others:
            text = f"{others[0].name} reads {enter.name}, which comes in the first iteration alone"
            raise refused("form", text, node=others[0].name)


def _phases(frame: Frame, found: Frames, cond: Node) -> dict[Node, str]:
    """In which iterations each node of a loop runs."""
    inside = set(frame.nodes)
    holds = {behind_identities(cond.inputs[0]), cond.output()}
    phases: dict[Node, str] = {}

    def of_output(item: Output) -> str:
        if item.node not in inside:
            return ALWAYS
        phase = phases.get(item.node, ALWAYS)
        return _both(phase, (END, BODY)[item.port]) if role(item.node) == "switch" else phase

    for node in found.order:
        if node not in inside:
            continue
        kind = role(node)
        if kind in ("merge", "trigger"):
            phases[node] = ALWAYS
            continue
        if kind == "switch" and not (
            len(node.inputs) == 2 and behind_identities(node.inputs[1]) in holds
        ):
            raise refused("conditional", f"{node.name} branches in it", node=node.name)
        phase = ALWAYS
        for item in node.inputs:
            phase = _both(phase, of_output(item))
        for control in node.controls:
            phase = _both(phase, phases.get(control, ALWAYS))
        phases[node] = phase
    return phases


def _both(one: str, other: str) -> str:
    if ALWAYS in (one, other):
        return other if one == ALWAYS else one
    return one if one == other else NEVER


_WANTED: Final = {"next_iteration": BODY, "exit": END, "loop_cond": ALWAYS}


def _require_phase(node: Node, phase: str) -> None:
    wanted = _WANTED.get(role(node), phase)
    if phase != wanted or phase == NEVER:
        text = f"{node.name} does not run when it should"
        raise refused("form", text, node=node.name, runs=phase)


def _handed_out(leaving: Node, variables: tuple[Variable, ...]) -> Node:
    """The Merge or constant Enter whose value an Exit hands out."""
    item = behind_identities(leaving.inputs[0])
    if role(item.node) == "switch":
        item = behind_identities(item.node.inputs[0])
        source = item.node
        if role(source) == "enter" or any(source is variable.merge for variable in variables):
            return source
    text = f"{leaving.name} hands out what is computed when the loop has ended"
    raise refused("form", text, node=leaving.name)
