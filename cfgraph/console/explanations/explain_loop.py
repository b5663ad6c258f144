"""The explanation of a loop: its critical cycle, its variables, and its iterations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cfgraph.analysis.cost import CostEstimates, Costs
from cfgraph.analysis.loops.critical_cycle import CriticalCycle, Item, critical_cycle, item_cost
from cfgraph.analysis.loops.frame import Frame
from cfgraph.analysis.loops.frames import frames
from cfgraph.analysis.loops.loop_condition import loop_condition
from cfgraph.analysis.loops.loop_state import VARIABLE_COLUMNS, LoopStateVariable, frame_variables
from cfgraph.analysis.loops.while_loop import static_trip_count
from cfgraph.cli.output import OutputTable, Page, report_table
from cfgraph.console.explanations.answers import (
    BusiestDevice,
    CycleItem,
    IterationsReport,
    LoopReport,
)
from cfgraph.ir.devices import short_device_name
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.role import Role
from cfgraph.ir.units import format_duration
from cfgraph.ops.opdef.op import role_of
from cfgraph.ops.shape_inference import StaticShapes, infer_shapes
from cfgraph.reports import Column
from cfgraph.runtime.trace.summary import IterationTimes

# thresholds for the critical cycle's share of the work of an iteration
_NEARLY_ALL: Final = 0.9
_MOST: Final = 0.6
_NS_PER_SECOND: Final = 1e9


def _iterations_report(measured: IterationTimes) -> IterationsReport:
    period = measured.period and round(measured.period)
    busiest = measured.busiest and BusiestDevice(*measured.busiest)
    return IterationsReport(len(measured.spans), period, measured.at_once, busiest)


@dataclass(frozen=True, slots=True)
class LoopExplanation:
    """A loop's critical cycle, the seconds of each node, and measurements of a virtual run."""

    cycle: CriticalCycle
    cost: Callable[[Node], float]
    measured: IterationTimes | None
    variables: Sequence[LoopStateVariable]
    trips: tuple[int, bool] | None
    condition: str | None
    node: str | None = None

    def report(self) -> LoopReport:
        """Return the member `loop` of the document; times are nanoseconds."""
        cycle = self.cycle
        return LoopReport(
            frame=cycle.frame.path,
            critical_cycle=[
                CycleItem(item_name(item), round(self._seconds(item) * _NS_PER_SECOND))
                for item in cycle.chain
            ],
            iterations_of_the_cycle=cycle.rounds,
            cycle_ns=round(cycle.per_iteration * _NS_PER_SECOND),
            work_ns=round(cycle.work * _NS_PER_SECOND),
            share=round(cycle.share, 4),
            parallel_iterations=cycle.parallel,
            verdict=self.verdict,
            run=None if self.measured is None else _iterations_report(self.measured),
            node=self.node,
            condition=self.condition,
            trip_count=None if self.trips is None else self.trips[0],
            trip_count_is_exact=None if self.trips is None else self.trips[1],
            variables=self.variables,
        )

    @property
    def verdict(self) -> str:
        """The limit on the overlap of iterations."""
        cycle = self.cycle
        if not cycle.chain:
            return "iterations do not depend on each other"
        if cycle.parallel == 1:
            return "iterations do not overlap: the loop's parallel_iterations is 1"
        if cycle.share >= _NEARLY_ALL:
            return "iterations do not overlap: nearly all work of one depends on the previous one"
        if cycle.share >= _MOST:
            return "iterations barely overlap: most work of one depends on the previous one"
        times = min(1 / cycle.share, cycle.parallel)
        return f"about {times:.1f} iterations can overlap, given enough devices"

    def _seconds(self, item: Item) -> float:
        return item_cost(item, self.cost)

    def print(self, out: Page) -> None:
        """Print the explanation as text."""
        cycle = self.cycle
        out.heading(cycle.frame.path, f"loop with {len(cycle.frame.nodes)} nodes")
        out.line(f"  {self.verdict}", "bold")
        if self.condition is not None:
            out.line(f"  it goes on while {self.condition}")
        out.facts(self._rows())
        if self.variables:
            out.line()
            out.heading("variables", "as an iteration reads and returns them")
            out.table(report_table(LoopStateVariable, self.variables, *VARIABLE_COLUMNS))
        if not cycle.chain:
            return
        out.line()
        out.heading("critical cycle", "each node depends on the one above, the first on the last")
        node = Column("node", style="cyan", scoped=True)
        nodes = [node, Column("op"), Column("device"), Column("time")]
        rows: list[Sequence[Any]] = [
            (
                item_name(item),
                *_op_and_device(item),
                format_duration(self._seconds(item) * _NS_PER_SECOND),
            )
            for item in cycle.chain
        ]
        out.table(OutputTable(nodes, rows))

    def _rows(self) -> list[tuple[str, str, str]]:
        cycle = self.cycle
        cycle_time = format_duration(cycle.per_iteration * _NS_PER_SECOND)
        work_time = format_duration(cycle.work * _NS_PER_SECOND)
        rounds = "" if cycle.rounds < 2 else f", spanning {cycle.rounds} iterations"
        share = f"per iteration (estimated): {_percent(cycle.share)} of its work{rounds}"
        rows = [
            ("iterations", *self._trip_count()),
            ("critical cycle", cycle_time, share),
            ("whole iteration", work_time, "estimated from ops and shapes, on one device"),
            ("in flight", str(cycle.parallel), "iterations at most (parallel_iterations)"),
        ]
        if self.measured is not None:
            rows += _iteration_rows(self.measured)
        return rows

    def _trip_count(self) -> tuple[str, str]:
        if self.trips is None:
            return "?", "a run decides"
        count, is_exact = self.trips
        return (str(count), "") if is_exact else (f"≤ {count}", "a run may end the loop earlier")


def _iteration_rows(measured: IterationTimes) -> list[tuple[str, str, str]]:
    if measured.period is None:
        return [("in a run", str(len(measured.spans)), "iterations, too few to measure a period")]
    rows = [
        (
            "in a run",
            format_duration(measured.period),
            f"per iteration in virtual time, over {len(measured.spans)} iterations",
        ),
        ("", str(measured.at_once), "iterations in flight at most"),
    ]
    if measured.busiest:
        device, share = measured.busiest
        rows.append(("", _percent(share), f"utilization of {device}, the busiest device"))
    return rows


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def explain_loop(
    graph: Graph,
    path: str,
    iterations: Callable[[Frame], IterationTimes] | None = None,
) -> LoopExplanation:
    """Find a loop's critical cycle; `iterations` measures a run in virtual time.

    Raises UsageError if there is no such loop, and the errors of a run.
    """
    loop_frames, shapes = frames(graph), infer_shapes(graph)
    estimates, costs = CostEstimates(shapes, loop_frames), Costs()

    def cost(node: Node) -> float:
        kind = costs.kind_of(node.device)
        waits = (
            costs.link.seconds(estimates.size(Output(node))) if role_of(node) is Role.RECV else 0.0
        )
        return costs.seconds(kind, *estimates.work(node)) + waits

    answer = critical_cycle(graph, path, cost)
    measured = iterations and iterations(answer.frame)
    variables = frame_variables(answer.frame, shapes)
    condition = loop_condition(answer.frame, variables)
    trips = _trips(answer.frame, shapes)
    return LoopExplanation(answer, cost, measured, variables, trips, condition)


def _trips(frame: Frame, shapes: StaticShapes) -> tuple[int, bool] | None:
    """The iterations of a loop, and whether they are exact; None if they are not static."""
    cond = frame.loop_cond
    count = None if cond is None else static_trip_count(cond, shapes)
    if cond is None or count is None:
        return None
    return count, static_trip_count(cond, shapes, exact=True) == count


def item_name(item: Item) -> str:
    """Return the name of a node, or the path of a loop."""
    return item.name if isinstance(item, Node) else item.frame.path


def _op_and_device(item: Item) -> tuple[str, str]:
    return (item.op, short_device_name(item.device)) if isinstance(item, Node) else ("a loop", "")
