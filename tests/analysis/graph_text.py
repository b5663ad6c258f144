"""Graphs from text."""

from __future__ import annotations

import textwrap

import cfgraph
from cfgraph.analysis.check import check, report_load_error
from cfgraph.analysis.findings import Finding

# a loop `loop` over x, guarded by the placeholder p; its body is an Identity
LOOP = """
    x = Placeholder() {dtype=float32}
    p = Placeholder() {dtype=bool}
    e = Enter(x) {frame_name="loop", parallel_iterations=4}
    bound = Enter(p) {frame_name="loop", is_constant=true, parallel_iterations=4}
    m = Merge(e, n) {T=float32, N=2}
    c = LoopCond(bound)
    s = Switch(m, c)
    body = Identity(s:1)
    n = NextIteration(body)
    out = Exit(s)
    y = Neg(out)
"""


def graph(*texts: str) -> cfgraph.Graph:
    """The graph of an indented text."""
    whole = "\n".join(textwrap.dedent(text) for text in texts)
    return cfgraph.loads(whole.encode(), format="graph")


def findings(text: str) -> tuple[Finding, ...]:
    """The findings of `check` on a text, or those of a rejected load."""
    try:
        return check(graph(text)).findings
    except cfgraph.InvalidInput as error:
        return report_load_error(error).findings


def codes_and_nodes(found: tuple[Finding, ...]) -> list[tuple[str, str | None]]:
    """Code and node of each finding."""
    return [(finding.code, finding.node) for finding in found]
