"""Structure of a loop for differentiation: its active variables, invariants, and LoopCond.

Enter ──▶ Merge ──▶ Switch ──false──▶ Exit
            ▲          └────true───▶ … ──▶ NextIteration ─┐
            └─────────────────────────────────────────────┘
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cfgraph.analysis.loops.regions import Region
from cfgraph.errors import Unsupported
from cfgraph.ir.graph import Node, Output
from cfgraph.ops.opdef.op import back_edge_of, role_of, strip_identities

IsActive = Callable[[Output], bool]


@dataclass(frozen=True, slots=True)
class GradientLoopVariable:
    """What a loop changes: how it comes in, the Merge, what comes around, and how it leaves."""

    enter: Node
    merge: Node
    back: Node
    exits: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class GradientLoop:
    """A loop whose gradient is wanted, with those of its variables and invariants that matter."""

    region: Region
    cond: Node
    variables: tuple[GradientLoopVariable, ...]
    invariants: tuple[Node, ...]


def recognize_gradient_loop(region: Region, wanted: IsActive) -> GradientLoop:
    """Read a loop. Raises Unsupported, naming the node, where it has not the usual form."""
    frame = region.frame
    if region.loop_cond is None:
        message = f"the loop {frame.path} has {len(frame.loop_conds)} LoopConds"
        raise Unsupported(message, node=frame.enters[0], frame=frame.path, code="CFG504")
    merges = [
        node for node in frame.merges if back_edge_of(node) is not None and wanted(node.output())
    ]
    exits: dict[Node, list[Node]] = {merge: [] for merge in merges}
    for node in frame.exits:
        merge = _exit_merge(node, region)
        if merge in exits:
            exits[merge].append(node)
        elif wanted(node.output()):
            raise _unsupported_form(
                region, node, "does not hand out what a loop variable is at the end"
            )
    invariants = tuple(node for node in frame.invariants if wanted(node.output()))
    variables = tuple(_read_variable(region, merge, exits[merge]) for merge in merges)
    _require_known_enters(region, wanted, invariants, variables)
    return GradientLoop(region, region.loop_cond, variables, invariants)


def enter_and_back_edge(merge: Node) -> tuple[Node, Node]:
    """The two nodes that a Merge joins, one that comes around last."""
    first, second = (item.node for item in merge.inputs[:2])
    return (second, first) if role_of(first) == "next_iteration" else (first, second)


def _read_variable(region: Region, merge: Node, exits: list[Node]) -> GradientLoopVariable:
    enter, back = enter_and_back_edge(merge)
    if len(merge.inputs) != 2 or (role_of(enter), role_of(back)) != ("enter", "next_iteration"):
        raise _unsupported_form(
            region, merge, "joins something else than an Enter and a NextIteration"
        )
    return GradientLoopVariable(enter, merge, back, tuple(exits))


def _exit_merge(leaving: Node, region: Region) -> Node | None:
    """The Merge whose last value an Exit hands out."""
    switch = strip_identities(leaving.inputs[0])
    if (
        role_of(switch.node) != "switch"
        or switch.port != 0
        or not is_loop_switch(region, switch.node)
    ):
        return None
    return strip_identities(switch.node.inputs[0]).node


def is_loop_switch(region: Region, switch: Node) -> bool:
    """True for a Switch on the loop's own LoopCond."""
    return strip_identities(switch.inputs[1]).node is region.loop_cond


def _require_known_enters(
    region: Region,
    wanted: IsActive,
    invariants: tuple[Node, ...],
    variables: tuple[GradientLoopVariable, ...],
) -> None:
    """Every Enter that matters must be an invariant, or the beginning of a variable."""
    known = {*invariants, *(variable.enter for variable in variables)}
    for enter in region.frame.enters:
        if wanted(enter.output()) and enter not in known:
            raise _unsupported_form(region, enter, "comes in for the first iteration alone")


def _unsupported_form(region: Region, node: Node, what: str) -> Unsupported:
    message = f"{node.op} in the loop {region.frame.path} {what}"
    hint = "the loop cannot be run backwards"
    return Unsupported(message, node=node, frame=region.frame.path, hint=hint, code="CFG504")
