"""Explain a loop: which nodes keep its iterations from overlapping, before a run and in one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cfgraph.analysis.cost import CostEstimates, Costs
from cfgraph.analysis.loops.critical_cycle import CriticalCycle, Item, critical_cycle
from cfgraph.analysis.loops.frames import Frame, frames
from cfgraph.console.page import Page
from cfgraph.console.tables import Column, Table
from cfgraph.ir.devices import short_device_name
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.units import format_duration
from cfgraph.ops.op import role
from cfgraph.ops.shape_inference import infer_shapes
from cfgraph.runtime.iterations import Iterations

# shares of an iteration's work on the critical cycle
_ALL: Final = 0.9
_SOME: Final = 0.6
_NS: Final = 1e9


@dataclass(frozen=True, slots=True)
class LoopAnswer:
    """A loop's critical cycle with the seconds of each node, and a run in virtual time."""

    found: CriticalCycle
    cost: Callable[[Node], float]
    seen: Iterations | None

    def to_json(self) -> dict[str, Any]:
        """The member `loop` of the document; times are nanoseconds."""
        seen = self.seen
        return {
            "frame": self.found.frame.path,
            "critical_cycle": [
                {"name": name_of(item), "ns": round(self._seconds(item) * _NS)}
                for item in self.found.chain
            ],
            "iterations_of_the_cycle": self.found.rounds,
            "cycle_ns": round(self.found.per_iteration * _NS),
            "work_ns": round(self.found.work * _NS),
            "share": round(self.found.share, 4),
            "parallel_iterations": self.found.parallel,
            "verdict": self.verdict,
            "run": seen
            and {
                "iterations": len(seen.spans),
                "period_ns": seen.period and round(seen.period),
                "at_once": seen.at_once,
                "busiest": seen.busiest and {"device": seen.busiest[0], "share": seen.busiest[1]},
            },
        }

    @property
    def verdict(self) -> str:
        """Why iterations overlap no more than they do."""
        found = self.found
        if not found.chain:
            return "no iteration waits for the one before"
        if found.parallel == 1:
            return "iterations do not overlap: the loop's parallel_iterations is 1"
        if found.share >= _ALL:
            return "iterations do not overlap: nearly all of one waits for the one before"
        if found.share >= _SOME:
            return "iterations hardly overlap: most of one waits for the one before"
        times = min(1 / found.share, found.parallel)
        return f"iterations can overlap about {times:.1f} times, given enough devices"

    def _seconds(self, item: Item) -> float:
        return self.cost(item) if isinstance(item, Node) else sum(map(self._seconds, item.order))

    def print(self, out: Page) -> None:
        """The answer as text."""
        found = self.found
        out.heading(found.frame.path, f"a loop of {len(found.frame.nodes)} nodes")
        out.line(f"  {self.verdict}", "bold")
        columns = [Column("what", style="dim"), Column("which", style="cyan"), Column("more")]
        out.table(Table(columns, [*self._rows()], headings=False))
        if not found.chain:
            return
        out.heading("critical cycle", "each node waits for the one above, the first for the last")
        nodes = [Column("node", style="cyan"), Column("op"), Column("device"), Column("takes")]
        rows: list[Sequence[Any]] = [
            (name_of(item), *_about(item), format_duration(self._seconds(item) * _NS))
            for item in found.chain
        ]
        out.table(Table(nodes, rows))

    def _rows(self) -> list[tuple[str, str, str]]:
        found = self.found
        cycle, work = format_duration(found.per_iteration * _NS), format_duration(found.work * _NS)
        rounds = "" if found.rounds < 2 else f", over {found.rounds} iterations"
        rows = [
            (
                "the cycle takes",
                cycle,
                f"an iteration: {_percent(found.share)} of its work{rounds}",
            ),
            ("all of an iteration", work, "estimated from ops and shapes, on one device"),
            ("at most", str(found.parallel), "iterations at once, says parallel_iterations"),
        ]
        if self.seen is not None:
            rows += _seen(self.seen)
        return rows


def _seen(seen: Iterations) -> list[tuple[str, str, str]]:
    if seen.period is None:
        return [("in a run", str(len(seen.spans)), "iterations: too few to tell")]
    rows = [
        ("in a run", format_duration(seen.period), f"an iteration, of {len(seen.spans)}"),
        ("", str(seen.at_once), "at once"),
    ]
    if seen.busiest:
        device, share = seen.busiest
        rows.append(("", _percent(share), f"of the time {device} works, the busiest device"))
    return rows


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def answer_loop(
    graph: Graph,
    path: str,
    iterations: Callable[[Frame], Iterations] | None = None,
) -> LoopAnswer:
    """Find a loop's critical cycle; `iterations` tells of those in a run in virtual time.

    Raises UsageError where there is no such loop, and what a run raises.
    """
    found = frames(graph)
    estimates, costs = CostEstimates(infer_shapes(graph), found), Costs()

    def cost(node: Node) -> float:
        kind = costs.kind_of(node.device)
        waits = costs.link.seconds(estimates.size(Output(node))) if role(node) == "recv" else 0.0
        return costs.seconds(kind, *estimates.work(node)) + waits

    answer = critical_cycle(graph, path, cost)
    return LoopAnswer(answer, cost, iterations and iterations(answer.frame))


def name_of(item: Item) -> str:
    """The name of a node, or the path of a loop."""
    return item.name if isinstance(item, Node) else item.frame.path


def _about(item: Item) -> tuple[str, str]:
    return (item.op, short_device_name(item.device)) if isinstance(item, Node) else ("a loop", "")
