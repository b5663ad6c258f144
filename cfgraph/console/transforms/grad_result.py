"""Results of `grad` in its JSON document."""

from __future__ import annotations

from collections.abc import Sequence

from cfgraph.console.documents import RunsReport, Warnings
from cfgraph.console.transforms.grad_check import CheckedGradient
from cfgraph.console.transforms.grad_report import GradientReport
from cfgraph.reports import Count, DocumentResult, Record


class GradSummary(Record):
    """The numbers of added nodes, accumulators, and loops."""

    nodes: Count
    accumulators: Count
    loops: Count


class GradResult(DocumentResult, command="grad", summary=GradSummary):
    """The gradients, and the comparison of each."""

    gradients: Sequence[GradientReport]
    check: Sequence[CheckedGradient] | None
    warnings: Warnings
    verify: RunsReport | None
