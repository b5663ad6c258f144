"""Fetched values and differences as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cfgraph.compare.values import Difference
from cfgraph.console.page import Page
from cfgraph.console.tables import pad, width
from cfgraph.console.values import type_text, value_text
from cfgraph.ir.graph import Output


def print_values(
    out: Page, values: Mapping[Output, Any], places: Mapping[Output, str], full: bool
) -> None:
    """Print `name  type  = value` for each fetched tensor, or the file that it went to."""
    kinds = {item: "" if value is None else type_text(value) for item, value in values.items()}
    names = max((width(item.name) for item in values), default=0)
    types = max(map(width, kinds.values()), default=0)
    for item, value in values.items():
        head = [(pad(item.name, names), "cyan"), ("  " + pad(kinds[item], types) + "  ", "dim")]
        if value is None:
            out.spans([*head, ("dead", "dim")])
        elif item in places:
            out.spans([*head, ("-> ", "dim"), (places[item], "")])
        else:
            text = value_text(value, full)
            out.spans([*head, ("=\n" if "\n" in text else "= ", "dim"), (text, "")])


def print_differences(
    out: Page, differences: Mapping[Output, Difference], expected: Mapping[Output, Any]
) -> None:
    """Print how each value differs from the expected one."""
    for item, gap in differences.items():
        out.line(f"{item.name}: {gap.message}", "red")
        if gap.index is None:
            continue
        out.line(f"  expected {value_text(gap.expected)}, got {value_text(gap.actual)}")
        if gap.max_abs is not None:
            limits = f"rtol {gap.rtol:g}, atol {gap.atol:g}"
            out.line(f"  largest gap {gap.max_abs:g}, relative {gap.max_rel:g} ({limits})")
