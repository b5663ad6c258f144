"""Edits that a failing pass takes back."""

from __future__ import annotations

import pytest

from cfgraph.analysis.verify.verify import require_valid
from cfgraph.errors import InvalidInput
from cfgraph.ir.graph import Graph
from cfgraph.passes.outcome import unchanged_on_error
from tests.analysis.graph_text import graph


def test_findings_on_edits_that_are_taken_back_are_not_those_of_the_graph() -> None:
    found = graph("""
        x = Placeholder() {dtype=float32, shape=[]}
        n = Placeholder() {dtype=int32, shape=[]}
        y = Neg(x)
    """)
    require_valid(found)
    with pytest.raises(InvalidInput, match="expects float32"):
        edit(found)
    require_valid(found)


def edit(found: Graph) -> None:
    with unchanged_on_error(found):
        found.set_inputs(found["y"], [found["n"].output()])
        require_valid(found)
