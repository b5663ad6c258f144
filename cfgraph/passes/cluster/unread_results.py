"""Drop the results of loops that nothing reads, and that others only wait for, in a run's graph.

    Exit a ▸ x ──▶ apply                     Exit a ▸ x ──▶ apply
          x ─ ─▶ NoOp ─ ─▶ apply   becomes        x ─ ─▶ NoOp ─ ─▶ apply
    Exit b ▸ y ─ ─┘

The gradient of a loop computes gradients of all that enters it, and a NoOp waits for all of them.
The last iteration that sets `a` sets `b`, so that the NoOp need not wait for `b` as well, unless
the loop has effects that outlast the run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from cfgraph.analysis.deadness.deadness import deadness
from cfgraph.analysis.effects import EffectAnalysis
from cfgraph.analysis.loops.frame import Frame
from cfgraph.ir.graph import CONTROL, Graph, Node
from cfgraph.ir.role import Role
from cfgraph.ir.traversal import ancestors
from cfgraph.ops.families.control_flow import NoOp
from cfgraph.ops.opdef.op import is_a, is_identity, role_of


def drop_unread_results(graph: Graph, roots: Collection[Node]) -> None:
    """Drop the results of loops of a lowered graph that a run of these nodes only waits for."""
    waiting = [node for node in graph if is_a(node, NoOp) and len(node.controls) > 1]
    exits = {node: _exits(node, roots) for node in waiting}
    if not any(exits.values()):
        return
    conditions, effects = deadness(graph, free_constants=True), EffectAnalysis()
    of_frame, equal = conditions.frames.of, conditions.solver.equal
    lasting: dict[Frame, bool] = {}
    dropped = False
    for node, sources in exits.items():
        groups: defaultdict[Frame, list[Node]] = defaultdict(list)
        for source, leaving in sources.items():
            groups[of_frame[leaving]].append(source)
        for frame, members in groups.items():
            if frame not in lasting:
                lasting[frame] = any(x.origin is None for x in effects.accesses(frame.nodes))
            kept = next((x for x in members if _is_read(x)), members[0])
            condition = conditions.of_output(kept.output())
            for source in members:
                is_equal = equal(conditions.of_output(source.output()), condition) is True
                if source is kept or _is_read(source) or lasting[frame] or not is_equal:
                    continue
                graph.remove_control(node, source)
                dropped = True
    if dropped:
        needed = {*ancestors(graph, roots)}
        graph.remove(*(node for node in graph if node not in needed))


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
