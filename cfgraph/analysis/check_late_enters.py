"""Loops that deadlock, or run few iterations only, since an Enter waits for an Exit of the loop.

No iteration ends before all Enters have arrived. If one waits for an Exit, which the last
iteration sends, then all iterations are in flight at once, and `parallel_iterations` bounds them.
"""

from __future__ import annotations

from collections.abc import Iterator

from cfgraph.analysis.findings import Finding
from cfgraph.analysis.loops.cycle_graph import CycleGraph
from cfgraph.analysis.loops.frame import Frame, Frames
from cfgraph.analysis.loops.late_enters import LateEnter
from cfgraph.analysis.loops.while_loop import static_trip_count
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.traversal import upstream
from cfgraph.ops.shape_inference import infer_shapes


def late_enter_findings(graph_frames: Frames) -> Iterator[Finding]:
    """The finding on each loop with an Enter that waits for one of its Exits."""
    if not any(len(frame.enters) > 1 and frame.exits for frame in graph_frames.all):
        return
    by_loop: dict[Frame, LateEnter] = {}
    for late in CycleGraph(graph_frames).late_enters:
        if late.frame not in by_loop or (late.own_exit and not by_loop[late.frame].own_exit):
            by_loop[late.frame] = late
    for late in by_loop.values():
        own_exit = late.own_exit
        yield from _limited_loop(late) if own_exit is None else _self_wait(late, own_exit)


def needed_parallel_iterations(cond: Node) -> int | None:
    """The `parallel_iterations` with which all iterations of a loop can be in flight at once.

    None if the trip count is not static.
    """
    scratch = Graph()
    copies = scratch.add_copies(upstream([cond]))
    count = static_trip_count(copies[cond], infer_shapes(scratch), exact=True)
    return None if count is None else count + 1


def _self_wait(late: LateEnter, own_exit: Node) -> Iterator[Finding]:
    message = (
        f"the loop {late.frame.name!r} deadlocks unless its first test ends it: its Enter "
        f"{late.enter.name!r} waits for its Exit {own_exit.name!r}, which waits for the Enter"
    )
    yield _finding(late, "warning", message, "move what reads the Enter to a second loop")


def _limited_loop(late: LateEnter) -> Iterator[Finding]:
    """The finding on a loop that may need more iterations in flight than it permits."""
    limit, cond = late.frame.parallel_iterations, late.frame.loop_cond
    needed = None if cond is None else needed_parallel_iterations(cond)
    if needed is not None and needed <= limit:
        return
    name = late.frame.name
    waits = f"its Enter {late.enter.name!r} waits for its Exit {late.exits[0].name!r}"
    if needed is None and limit > 1:
        message = (
            f"the loop {name!r} deadlocks if it runs more than {limit - 1} iterations: {waits}"
        )
        level = "note"
    else:
        message = f"the loop {name!r} deadlocks with parallel_iterations={limit}: {waits}"
        level = "warning"
    value = f"to {needed}" if needed else "above the number of iterations"
    hint = f"set parallel_iterations {value}, or move what reads the Enter to a second loop"
    yield _finding(late, level, message, hint)


def _finding(late: LateEnter, level: str, message: str, hint: str) -> Finding:
    exit_name = (late.own_exit or late.exits[0]).name
    return Finding("CFG227", level, message, late.enter.name, hint, (exit_name,), str(late.frame))
