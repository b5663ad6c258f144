"""Print how the runs of two graphs compare."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from cfgraph.compare.diff import diff
from cfgraph.compare.differences import Change
from cfgraph.compare.divergence import Divergence
from cfgraph.compare.equivalence import RunDiff, ValueMismatch
from cfgraph.console.diff_nodes import changes_json, print_parts
from cfgraph.console.page import Page
from cfgraph.console.values import summary_text, type_text, value_json, value_text
from cfgraph.ir.graph import Graph

MAX_GAPS: Final = 10
_MAX_FED: Final = 32


def print_runs(out: Page, found: RunDiff, graphs: Sequence[Graph], full: bool = False) -> None:
    """What differs, the first wrong node, and the inputs; or that nothing does."""
    if found.lowered:
        out.line("A was lowered to be run: not all of its functions can be run by calls", "yellow")
        out.line("  a mistake that lowering makes in both graphs is not seen")
    for name in found.missing:
        out.line(f"{name}: B does not have it", "red")
    if not found:
        out.line(f"no differences: {_told(found)}", "green")
        return
    if not found.gaps and not found.failure:
        out.line(f"all else is the same: {_told(found)}", "dim")
        return
    for gap in found.gaps if full else found.gaps[:MAX_GAPS]:
        _print_gap(out, gap)
    if len(found.gaps) > MAX_GAPS and not full:
        out.line(f"and {len(found.gaps) - MAX_GAPS} more; --full prints them", "dim")
    if found.failure is not None:
        out.line(f"B fails: {found.failure.message}", "red")
        if where := found.failure.where():
            out.line(f"  at {where}")
    print_first(out, found.first, graphs)
    inputs = "".join(f" --feed {shlex.quote(_feed(*item))}" for item in found.inputs.items())
    out.line(f"seen in case {found.cases}{inputs and ', with'}{inputs}", "dim")


def _told(found: RunDiff) -> str:
    count = len(found.fetches)
    what = f"{count} fetch{'es' * (count != 1)}" if count else "what is run"
    return f"{what} alike in {found.cases} case{'s' * (found.cases != 1)}"


def _print_gap(out: Page, gap: ValueMismatch) -> None:
    out.line(f"{gap.what}: {gap.message}", "red")
    _print_sides(out, gap.before, gap.after)


def _print_sides(out: Page, before: Any, after: Any) -> None:
    if before is not None or after is not None:
        sides = (f"{name} {run_side_text(value)}" for name, value in (("A", before), ("B", after)))
        out.line(f"  {', '.join(sides)}")


def run_side_text(value: Any) -> str:
    """A value that one of the graphs computed."""
    return "nothing" if value is None else summary_text(value)


def _feed(name: str, value: Any) -> str:
    """A feed to paste; a large one tells its type alone."""
    large = np.size(value) > _MAX_FED
    return f"{name.removesuffix(':0')}={type_text(value) if large else value_text(value)}"


def print_first(out: Page, first: Divergence | None, graphs: Sequence[Graph]) -> None:
    """The first wrong node, and what is different about it in the graphs."""
    if first is None:
        out.line("no node of both graphs differs on the way there", "dim")
        return
    port = "" if first.port is None else f", output {first.port}"
    out.spans([("first wrong node: ", "bold"), (f"{first.node} ({first.op}){_where(first)}", "")])
    out.line(f"  {first.message}{port}")
    _print_sides(out, first.before, first.after)
    print_parts(out, changes_of(first.node, graphs), "  ")


def _where(first: Divergence) -> str:
    inside = first.frame != "/"
    return f" in {first.frame}, iteration {first.iteration}" if inside else ""


def changes_of(name: str, graphs: Sequence[Graph]) -> tuple[Change, ...]:
    """What differs about the node of a name in the graphs themselves."""
    changed = diff(*graphs, ignore=["notes", "order", "devices"]).nodes.changed
    return next((item.changes for item in changed if item.before.name == name), ())


def runs_summary(found: RunDiff) -> dict[str, int]:
    """How much was compared, and how much differs."""
    differ = len(found.missing) + len(found.gaps) + (found.failure is not None)
    return {"fetches": len(found.fetches), "cases": found.cases, "differences": differ}


def runs_json(found: RunDiff, graphs: Sequence[Graph], full: bool = False) -> dict[str, Any]:
    """How the runs compare, as a member of a command's JSON document."""
    first = found.first
    return {
        "equal": not found,
        "cases": found.cases,
        "fetches": found.fetches,
        "not_in_b": found.missing,
        "lowered": found.lowered,
        "differences": [
            {
                "what": gap.what,
                "message": gap.message,
                "a": _side_json(gap.before, full),
                "b": _side_json(gap.after, full),
            }
            for gap in found.gaps
        ],
        "failure": found.failure.to_json() if found.failure else None,
        "first": None
        if first is None
        else {
            **first.to_json(),
            "a": _side_json(first.before, full),
            "b": _side_json(first.after, full),
            "changes": changes_json(changes_of(first.node, graphs)),
        },
        "inputs": {name: value_json(value, full) for name, value in found.inputs.items()},
    }


def _side_json(value: Any, full: bool) -> Any:
    return None if value is None else value_json(value, full)
