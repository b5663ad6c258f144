"""Planning of a run for XLA, in place of the generated code that a session repeats."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from cfgraph.analysis.resource_handles import is_variable, variable_key
from cfgraph.errors import Unsupported
from cfgraph.ir.traversal import is_partitioned
from cfgraph.runtime.cluster_runner import ClusterRunner
from cfgraph.runtime.engine.plan import RunSpec
from cfgraph.runtime.engine.step import State
from cfgraph.runtime.prepare import PlannedRun, plan_run
from cfgraph.runtime.run_config import RunConfig
from cfgraph.runtime.run_names import InlinedClusters

# fraction of the nodes of a run that may remain outside of clusters for XLA
_MOST_REMAINING: Final = 0.5


def plan_xla_run(
    spec: RunSpec,
    opened: InlinedClusters,
    config: RunConfig,
    generated: PlannedRun,
    state: State,
) -> tuple[PlannedRun, ClusterRunner]:
    """Plan a run of generated code again, with clusters that XLA compiles, and their runner.

    Its errors are explained by the same token executor. Raises Unsupported with the reason if XLA
    compiles too little of it, or a variable has no value: clusters may read it although the run
    does not.
    """
    if is_partitioned(spec.graph):
        message = "the graph is partitioned"
        raise Unsupported(message)
    valued = {key for key, variable in state.variables() if variable.initialized}
    for node in filter(is_variable, generated.plans[0].nodes):
        if variable_key(node) not in valued:
            message = f"the variable {node.name} has no value"
            raise Unsupported(message)
    clusters = ClusterRunner("xla", prefixes_errors=False)
    run = plan_run(spec, opened, replace(config, jit="xla", regions=True), clusters, "")
    remaining, count = len(run.plans[0].nodes), len(generated.plans[0].nodes)
    compiled, original = run.compiled, generated.compiled
    if compiled is None or original is None:
        raise Unsupported(run.fallback)
    if remaining > _MOST_REMAINING * count:
        message = f"{remaining} of {count} nodes remain outside of clusters"
        raise Unsupported(message)
    repeatable = original.is_repeatable
    needs_tokens = compiled.code.may_be_dead and not repeatable
    compiled = replace(compiled, is_repeatable=repeatable, needs_tokens_for_dead=needs_tokens)
    return replace(run, compiled=compiled, executor=generated.executor), clusters
