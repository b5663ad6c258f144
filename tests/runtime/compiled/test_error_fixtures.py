"""Graphs with errors fail with the same code, node, frame, and iteration under both engines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.analysis.loops.frames import frames
from cfgraph.errors import CfgraphError
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Graph
from cfgraph.ir.shapes import Shape
from cfgraph.limits import limited
from tests.runtime.compiled.agreement import ENGINES, described, disagreement
from tests.sampled import in_sweep, sampled

FIXTURES = Path(__file__).parents[3] / "fixtures"
FILES = sorted(
    str(file.relative_to(FIXTURES))
    for folder in ("errors", "hostile", "robustness", "graphs")
    for file in (FIXTURES / folder).iterdir()
    if file.suffix in (".graph", ".pb", ".gz")
)
SMALL = [name for name in FILES if not name.endswith(".gz")]
LARGE = [pytest.param(name, marks=pytest.mark.slow) for name in FILES if name not in SMALL]
_FED = ("bool", "int", "uint", "float", "complex")
_MAX_MEMORY = 64 << 20
_LIMITS: dict[str, Any] = {"max_iterations": 5, "timeout": 60}


def outcome(file: Path, engine: str, count: int) -> Any:
    """The values of all that no node reads, or the description of the first error."""
    try:
        graph = cfgraph.load(file)
        session = cfgraph.Session(graph, engine=engine, soft_placement=True)
        targets = [node.name for node in graph if not node.readers(0)]
        frame_of = frames(graph).of_outputs
        fetches = [
            f"{name}:0"
            for name in targets
            if graph[name].output().dtype and frame_of[graph[name]].parent is None
        ]
        feeds = placeholders(graph, count)
        return session.run(fetches, feeds, targets, allow_dead=True, **_LIMITS)
    except CfgraphError as error:
        return described(error)


def placeholders(graph: Graph, count: int) -> dict[str, Any]:
    """Small values for the placeholders of a graph."""
    feeds: dict[str, Any] = {}
    for node in graph:
        dtype, shape = node.attrs.get("dtype"), node.attrs.get("shape")
        if node.op == "Placeholder" and isinstance(dtype, DType) and dtype.kind in _FED:
            sizes = (shape.dims if isinstance(shape, Shape) else None) or ()
            array = np.full([3 if size is None else size for size in sizes], count)
            feeds[f"{node.name}:0"] = array.astype(dtype.numpy)
    return feeds


@pytest.mark.parametrize("name", sampled(SMALL, 3) + in_sweep(LARGE))
def test_both_engines_agree(name: str) -> None:
    with limited(max_memory=_MAX_MEMORY):
        for count in (1, 3):
            tokens, compiled = (outcome(FIXTURES / name, engine, count) for engine in ENGINES)
            assert not disagreement(tokens, compiled)
