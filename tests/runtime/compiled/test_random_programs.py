"""Random structured programs have the same values and errors under both engines."""

from __future__ import annotations

import numpy as np
import pytest

import cfgraph
from cfgraph.ir.graph import Node
from tests.passes.random_programs import random_program
from tests.runtime.compiled.agreement import Pair, disagreement
from tests.sampled import sampled

# programs per test
_CHUNK = 20


def assert_both_agree(seed: int) -> None:
    """Run a program plainly, with an iteration limit, and with other inputs, where it may fail."""
    program = random_program(seed, "half", "divide", "test")
    graph = program.graph
    cfgraph.lower(graph)
    pair = Pair(lambda: graph)
    zeros = dict.fromkeys(program.feeds, np.int32(0))
    for feeds, limit in ((program.feeds, None), (program.feeds, 1), (zeros, 2), (zeros, None)):
        pair.run([], targets=["init"])
        tokens, compiled, *_ = pair.outcomes(
            program.fetches, feeds, program.targets, max_iterations=limit
        )
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
