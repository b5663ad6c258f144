"""Check a graph: what verification finds, and what else a person should know before running it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from cfgraph.analysis.bodies import body_of
from cfgraph.analysis.check_liveness import liveness_findings
from cfgraph.analysis.findings import LEVELS, Finding
from cfgraph.analysis.signatures import Signatures
from cfgraph.analysis.verify import verify
from cfgraph.errors import InvalidInput
from cfgraph.ir import registry
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.names import split_tensor_name
from cfgraph.ops.shape_inference import infer_shapes


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The findings on a graph, errors first, otherwise in the order in which they were found."""

    findings: tuple[Finding, ...]

    def count(self, level: str) -> int:
        """How many findings have this level."""
        return sum(finding.level == level for finding in self.findings)

    @property
    def is_valid(self) -> bool:
        """True if there are no errors; the graph may still have warnings."""
        return not self.count("error")

    def reaches(self, level: str) -> bool:
        """True if there is a finding of this level, or of a worse one."""
        bad = LEVELS[: LEVELS.index(level) + 1]
        return any(finding.level in bad for finding in self.findings)

    def only(self, select: Iterable[str] = (), ignore: Iterable[str] = ()) -> CheckReport:
        """The report on codes that match a pattern of `select` (`CFG2*`) and none of `ignore`."""
        wanted, unwanted = tuple(select) or ("*",), tuple(ignore)
        return CheckReport(
            tuple(
                finding
                for finding in self.findings
                if _matches(finding.code, wanted) and not _matches(finding.code, unwanted)
            )
        )


def _matches(code: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(code, pattern.upper()) for pattern in patterns)


def check(graph: Graph, fetches: Iterable[str] = ()) -> CheckReport:
    """Check a graph; it is not changed.

    `fetches` are tensors or nodes that are to be fetched together. Raises UsageError where one is
    none.
    """
    wanted = [_fetched(graph, name) for name in fetches]
    found = list(verify(graph))
    if all(finding.level != "error" for finding in found):
        bodies = _bodies(graph)
        found.extend(_shapes(graph, bodies))
        found.extend(liveness_findings(graph, bodies, wanted))
    return CheckReport(tuple(sorted(found, key=lambda finding: LEVELS.index(finding.level))))


def _fetched(graph: Graph, name: str) -> Output | Node:
    """A tensor, or a node that has none."""
    base, port = split_tensor_name(name)
    node = graph[base]
    return node if not port and registry.output_count(node) == 0 else graph.tensor(name)


def report_on(error: InvalidInput) -> CheckReport:
    """The report on a file that makes no graph: what `load` raised, as findings."""
    parts = error.findings or (error,)
    return CheckReport(
        tuple(part if isinstance(part, Finding) else Finding.of_error(part) for part in parts)
    )


def _bodies(graph: Graph) -> dict[str, Graph]:
    """The bodies of the functions, by name."""
    signatures = Signatures(graph.functions)
    return {
        function.name: body_of(function, signatures).subject.graph
        for function in graph.functions.values()
    }


def _shapes(graph: Graph, bodies: Mapping[str, Graph]) -> Iterator[Finding]:
    """Static shapes fit each other, in the graph and in its functions."""
    yield from _shape_errors(graph)
    for name, body in bodies.items():
        for finding in _shape_errors(body):
            yield replace(finding, node=f"{name}/{finding.node}")


def _shape_errors(graph: Graph) -> Iterator[Finding]:
    for node, message in infer_shapes(graph).errors:
        text = f"the shapes of its inputs do not fit: {message}"
        yield Finding("CFG303", "warning", text, node.name)
