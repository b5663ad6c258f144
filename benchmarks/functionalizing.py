"""The share of recorded conditionals and loops that become functional nodes, and all rejections."""

from __future__ import annotations

import json
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

import cfgraph
from benchmarks.coverage import RECORDED
from benchmarks.measurement import Row
from benchmarks.tensorflow_functionalizer import Source, errors
from cfgraph.errors import CfgraphError
from cfgraph.ir.graph import Graph
from cfgraph.ir.role import Role
from cfgraph.ops.opdef.op import role_of
from cfgraph.passes.functionalize.report import RegionReport

_PRIMITIVES: Final = (Role.SWITCH, Role.MERGE, Role.ENTER)
_TINY: Final = 40
_WIDTH: Final = 64
# what differs in a message of TensorFlow from graph to graph, and what follows the reason
_NAMES: Final = re.compile(r"\{+[^{}]*\}+|\S*/\S*")
_REST: Final = re.compile(r" (?:Failed to functionalize|; NodeDef|for node) .*")


@dataclass(frozen=True, slots=True)
class Result:
    """The regions of a graph, and what TensorFlow's functionalizer needs to measure it."""

    source: Source
    regions: tuple[RegionReport, ...]
    has_primitives: bool


def measure(tf: ModuleType | None, *, tiny: bool) -> Iterator[Row]:
    """A row per kind of region, one for whole graphs, and one per kind of rejection.

    TensorFlow functionalizes a graph as a whole: all its regions, or none.
    """
    results = list(_functionalized(tiny=tiny))
    messages = None if tf is None else errors(result.source for result in results)
    accepted = [r for r in results if messages is not None and not messages[r.source]]
    rejected = [r for result in results for r in result.regions if r.replacement is None]
    for kind in ("conditional", "loop"):
        total = _count(kind, results)
        left = sum(region.kind == kind for region in rejected)
        peer = None if messages is None else _share(_count(kind, accepted), total)
        yield Row(f"{kind}s of {total} functionalized", _share(total - left, total), "%", peer)
    whole = sum(not result.has_primitives for result in results)
    peer = None if messages is None else _share(len(accepted), len(results))
    work = f"graphs of {len(results)} without Switch, Merge, Enter"
    yield Row(work, _share(whole, len(results)), "%", peer)
    yield from _messages(results, messages or {})
    counts = Counter((region.code or "", region.name, _text(region)) for region in rejected)
    for (code, name, text), count in sorted(counts.items()):
        yield Row(f"{code} {name}: {text}", count, "rejected")


def _functionalized(*, tiny: bool) -> Iterator[Result]:
    for data, graph, fetches in graphs(tiny=tiny):
        outputs = tuple((name, _type_number(graph, name)) for name in fetches)
        try:
            regions = cfgraph.functionalize(graph, fetches).regions
        except CfgraphError:
            continue  # not valid on purpose
        yield Result((data, outputs), regions, _has_primitives(graph))


def _messages(results: Sequence[Result], messages: Mapping[Source, str]) -> Iterator[Row]:
    """A row per kind of error of TensorFlow: how many of these graphs keep primitives here."""
    by_kind: dict[str, list[Result]] = {}
    for result in results:
        if error := messages.get(result.source):
            by_kind.setdefault(_kind(error), []).append(result)
    for kind, of_kind in sorted(by_kind.items()):
        rejected = sum(result.has_primitives for result in of_kind)
        yield Row(f"TensorFlow: {kind}", rejected, "graphs", len(of_kind))


def _kind(error: str) -> str:
    """The reason in an error, without the names in it."""
    return _NAMES.sub("…", _REST.sub("", error))[:_WIDTH]


def _count(kind: str, results: Sequence[Result]) -> int:
    return sum(region.kind == kind for result in results for region in result.regions)


def _share(count: int, total: int) -> float:
    return 100 * count / max(total, 1)


def _type_number(graph: Graph, fetch: str) -> int:
    """The number of the type of a fetch without its reference, 0 for a target."""
    dtype = None if fetch[:1] == "^" else graph.tensor(fetch).dtype
    return dtype.base.number if dtype else 0


def _has_primitives(graph: Graph) -> bool:
    return any(role_of(node) in _PRIMITIVES for node in graph)


def _text(region: RegionReport) -> str:
    return "" if region.reason is None else region.reason.text


def graphs(*, tiny: bool) -> Iterator[tuple[bytes, Graph, list[str]]]:
    """Each recorded graph with primitives and its text, for each set of fetches."""
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
                data = archive.read(f"graphs/{name}.pb")
                graph = cfgraph.loads(data)
                if _has_primitives(graph):
                    yield data, graph, fetches


def _runs(case: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """The graphs of a case, and the fetches as `functionalize` takes them."""
    if case["kind"] == "gradient":
        yield case["graph"], case["ys"]
        return
    for run in case["runs"]:
        if not run.get("error"):
            yield run["graph"], [f if ":" in f else f"^{f}" for f in run["fetches"]]
