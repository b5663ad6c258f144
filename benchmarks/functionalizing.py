"""The share of recorded conditionals and loops that become functional nodes, and all rejections."""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from collections.abc import Iterator
from types import ModuleType
from typing import Any, Final

import cfgraph
from benchmarks.coverage import RECORDED
from benchmarks.measurement import Row
from cfgraph.errors import CfgraphError
from cfgraph.ir.role import Role
from cfgraph.ops.opdef.op import role_of
from cfgraph.passes.functionalize.report import RegionReport

_PRIMITIVES: Final = (Role.SWITCH, Role.MERGE, Role.ENTER)
_TINY: Final = 40


def measure(tf: ModuleType | None, *, tiny: bool) -> Iterator[Row]:
    """A row per kind of region, and a row per region that keeps its form, sorted by code."""
    regions = [region for graph in graphs(tiny=tiny) for region in graph]
    rejected = [region for region in regions if region.replacement is None]
    for kind in ("conditional", "loop"):
        total = sum(region.kind == kind for region in regions)
        left = sum(region.kind == kind for region in rejected)
        yield Row(f"{kind}s of {total} functionalized", 100 * (total - left) / max(total, 1), "%")
    counts = Counter((region.code or "", region.name, _text(region)) for region in rejected)
    for (code, name, text), count in sorted(counts.items()):
        yield Row(f"{code} {name}: {text}", count, "rejected")


def _text(region: RegionReport) -> str:
    return "" if region.reason is None else region.reason.text


def graphs(*, tiny: bool) -> Iterator[tuple[RegionReport, ...]]:
    """The regions of each recorded graph with primitives, for each set of fetches."""
    with zipfile.ZipFile(RECORDED) as archive:
        lines = archive.read("cases.jsonl").decode().splitlines()
        cases = [json.loads(line) for line in lines]
        seen: set[tuple[str, ...]] = set()
        for case in cases[::_TINY] if tiny else cases:
            if "host" in case["tags"]:
                continue
            for name, fetches in _runs(case):
                if (key := (name, *fetches)) in seen:
                    continue
                seen.add(key)
                graph = cfgraph.loads(archive.read(f"graphs/{name}.pb"))
                if not any(role_of(node) in _PRIMITIVES for node in graph):
                    continue
                try:
                    yield cfgraph.functionalize(graph, fetches).regions
                except CfgraphError:
                    continue  # not valid on purpose


def _runs(case: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """The graphs of a case, and the fetches as `functionalize` takes them."""
    if case["kind"] == "gradient":
        yield case["graph"], case["ys"]
        return
    for run in case["runs"]:
        if not run.get("error"):
            yield run["graph"], [f if ":" in f else f"^{f}" for f in run["fetches"]]
