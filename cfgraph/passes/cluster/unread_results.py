"""Drop the results of loops that nothing reads, and that others only wait for, in a run's graph.

    Exit a ▸ x ──▶ apply                     Exit a ▸ x ──▶ apply
          x ─ ─▶ NoOp ─ ─▶ apply   becomes        x ─ ─▶ NoOp ─ ─▶ apply
    Exit b ▸ y ─ ─┘

The gradient of a loop computes gradients of all that enters it, and a NoOp waits for all of them.
The last iteration that sets `a` sets `b`, so that the NoOp need not wait for `b` as well, unless
the loop uses what outlasts the run. What only `b` needed is dropped if it has no effects.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from cfgraph.analysis.deadness.deadness import Deadness, deadness
from cfgraph.analysis.effects import EffectAnalysis, has_flow
from cfgraph.analysis.loops.frame import Frame
from cfgraph.ir.graph import CONTROL, Graph, Node
from cfgraph.ir.role import Role
from cfgraph.ir.traversal import ancestors
from cfgraph.ops.families.control_flow import NoOp
from cfgraph.ops.opdef.op import is_a, is_identity, lookup, may_write, role_of


def drop_unread_results(graph: Graph, roots: Collection[Node]) -> None:
    """Drop the results of loops of a lowered graph that a run of these nodes only waits for."""
    waiting = [node for node in graph if is_a(node, NoOp) and len(node.controls) > 1]
    exits = {node: _exits(node, roots) for node in waiting}
    if not any(exits.values()):
        return
    conditions, effects = deadness(graph, free_constants=True), EffectAnalysis()
    dropped = [
        (node, source)
        for node, sources in exits.items()
        for source in _implied(sources, conditions, effects)
    ]
    for node, source in dropped:
        graph.remove_control(node, source)
    needed = {*ancestors(graph, roots)} if dropped else {*graph}
    unneeded = [node for node in graph if node not in needed]
    if any(_has_effect(node, effects) for node in unneeded):
        for node, source in dropped:
            graph.add_control(node, source)
    else:
        graph.remove(*unneeded)


def _implied(
    sources: Mapping[Node, Node], conditions: Deadness, effects: EffectAnalysis
) -> Iterator[Node]:
    """Yield the results that are there whenever another of their loop is, and that nothing reads.

    `sources` has the Exit of each result.
    """
    by_loop: defaultdict[Frame, list[Node]] = defaultdict(list)
    for source, leaving in sources.items():
        by_loop[conditions.frames.of[leaving]].append(source)
    for frame, members in by_loop.items():
        if any(access.origin is None for access in effects.accesses(frame.nodes)):
            continue
        kept = next(filter(_is_read, members), members[0])
        condition = conditions.of_output(kept.output())
        for source in members:
            is_equal = conditions.solver.equal(conditions.of_output(source.output()), condition)
            if source is not kept and not _is_read(source) and is_equal is True:
                yield source


def _has_effect(node: Node, effects: EffectAnalysis) -> bool:
    """True if a run that lacks a node differs from one that has it, in more than its values."""
    op = lookup(node.op)
    if op is None or op.effects.only_checks or (op.aliasing.is_identity and op.can_fail(node)):
        return op is None or not op.role
    if not may_write(node) or op.effects.random or op.placement.swap_role or has_flow(op):
        return False
    if accesses := [*effects.accesses([node])]:
        return any(access.writes and access.origin is None for access in accesses)
    return not any(dtype.is_handle for dtype in node.output_types or ())


def _exits(node: Node, roots: Collection[Node]) -> dict[Node, Node]:
    """The control inputs of a node that forward a result of a loop, with its Exit; two or more."""
    found = {}
    for source in node.controls:
        leaving = source
        while is_identity(leaving) and len(leaving.inputs) == 1 and not leaving.controls:
            leaving = leaving.inputs[0].node
        if role_of(leaving) is Role.EXIT and source not in roots:
            found[source] = leaving
    return found if len(found) > 1 else {}


def _is_read(node: Node) -> bool:
    """True if a node reads the value of another; all others only wait for it."""
    return any(use.slot != CONTROL for use in node.uses)
