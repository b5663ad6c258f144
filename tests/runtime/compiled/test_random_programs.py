"""Random structured programs have the same values and errors under both engines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.ir.graph import Node
from tests.build.test_programs import written
from tests.runtime.compiled.agreement import Pair, disagreement
from tests.runtime.compiled.random_programs import random_program
from tests.sampled import sampled

_DTYPES = {"i": np.int32, "j": np.int32, "x": np.float64, "y": np.float64}
# programs per test
_CHUNK = 20


def assert_both_agree(seed: int) -> None:
    """Run a program plainly, with an iteration limit, and with arrays that do not fit."""
    program, start = random_program(seed)
    b, fetches = written(program, None)
    initializer, names = [b.initializer().name], [fetch.name for fetch in fetches]
    graph = b.graph
    cfgraph.lower(graph)
    pair = Pair(lambda: graph)
    feeds: dict[str, Any] = {f"{name}:0": _DTYPES[name](value) for name, value in start.items()}
    shaped = {**feeds, "x:0": np.full(2, start["x"]), "y:0": np.full(3, start["y"])}
    for values, limit in ((feeds, None), (feeds, 1), (feeds, 2), (shaped, None)):
        pair.run([], targets=initializer)
        tokens, compiled, *_ = pair.outcomes(names, values, max_iterations=limit)
        assert not pair.fallback
        if disagreement(tokens, compiled):
            # of several failures without an order, either may be first in a run with effects
            assert isinstance(tokens, tuple), disagreement(tokens, compiled)
            assert isinstance(compiled, tuple), disagreement(tokens, compiled)
            assert not precedes(graph[tokens[3]], graph[compiled[3]])


def precedes(node: Node, later: Node) -> bool:
    """True if a node precedes another in an iteration."""
    worklist, seen = [later], {later}
    while worklist:
        current = worklist.pop()
        for source in (*(output.node for output in current.inputs), *current.controls):
            if source not in seen and source.op != "NextIteration":
                seen.add(source)
                worklist.append(source)
    return node in seen and node is not later


@pytest.mark.parametrize("chunk", sampled([str(number) for number in range(500)], 200))
def test_both_engines_agree(chunk: str) -> None:
    for seed in range(int(chunk) * _CHUNK, (int(chunk) + 1) * _CHUNK):
        assert_both_agree(seed)
