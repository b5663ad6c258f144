"""Graphs that `lower` refuses: `check` reports an error, and the graph is unchanged."""

from __future__ import annotations

import random

import cfgraph
from cfgraph.errors import CfgraphError, InvalidInput, RunTimeout, Unsupported
from tests.robustness.seed_graphs import seed_graphs
from tests.robustness.structure_mutations import mutate_structure

MUTATIONS = 500
# what `check` does not report as an error, and why
EXCEPTIONS = {
    "CFG134": "a note: recursion is valid in TensorFlow, and other commands accept it",
    "CFG137": "the limit of nodes, which depends on the context",
    "CFG410": "the device of a RemoteCall may be computed at run time",
    # lowering adds nodes of its own, which these do not fit
    "CFG113": "a For without the attribute T that its outputs do not need",
    "CFG301": "a reference that enters a loop",
}


def refusal(data: bytes) -> tuple[bool, CfgraphError | None]:
    """Whether check reports an error, and the error of lowering; the graph stays unchanged."""
    try:
        graph = cfgraph.loads(data)
        before = cfgraph.dumps(graph)
    except CfgraphError:
        return True, None
    refused: CfgraphError | None = None
    with cfgraph.limited(timeout=5, max_memory=256 << 20, max_nodes=5000):
        try:
            has_errors = bool(cfgraph.check(graph).count("error"))
            cfgraph.lower(graph)
        except (InvalidInput, Unsupported) as error:
            refused = error
        except RunTimeout:
            return True, None
    assert refused is None or cfgraph.dumps(graph) == before, refused
    return has_errors, refused


def test_check_reports_what_lower_refuses_in_fixtures() -> None:
    refused = 0
    for seed in seed_graphs():
        has_errors, error = refusal(seed.data)
        assert has_errors or error is None or error.code in EXCEPTIONS, (seed.name, error)
        refused += error is not None
    assert refused > 20


def test_check_reports_what_lower_refuses_in_mutated_graphs() -> None:
    seeds = seed_graphs()
    functional = [seed for seed in seeds if seed.proto.library.function]
    refused = 0
    for number in range(MUTATIONS):
        rng = random.Random(number)
        graph = mutate_structure(rng, rng.choice(functional).proto, rng.choice(seeds).proto)
        has_errors, error = refusal(graph.SerializeToString())
        assert has_errors or error is None or error.code in EXCEPTIONS, (number, error)
        refused += error is not None
    assert refused > MUTATIONS // 10
