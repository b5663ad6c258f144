"""The recorded sessions once more, with every token kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cfgraph.errors import CfgraphError
from cfgraph.runtime.engine.step import State
from cfgraph.runtime.session import Session
from tests.analysis.executor_run import ExecutorRun, observe_run
from tests.conformance import recorded


def observed_runs(case: dict[str, Any]) -> Iterator[ExecutorRun]:
    """The runs of a case that succeed."""
    state = State()
    for run in case["runs"]:
        tensors, feeds, targets = recorded.run_arguments(run)
        session = Session(recorded.graph(run["graph"]), state=state, soft_placement=True)
        try:
            yield observe_run(session, tensors, feeds, targets)
        except CfgraphError:
            continue
