"""Test of a reduction: graphs for which a mode of TensorFlow still differs in the same way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from cfgraph.analysis.check import check
from cfgraph.analysis.feeds_and_fetches import must_be_fed
from cfgraph.analysis.resource_handles import is_variable
from cfgraph.analysis.summary import sinks, without_io_nodes
from cfgraph.comparison.differences import RunDiff
from cfgraph.comparison.equivalence import ComparisonRunOptions
from cfgraph.comparison.reduce.subject import Subject
from cfgraph.errors import CfgraphError
from cfgraph.integrations.tensorflow.mode_comparison import ModeFailed, compare_modes
from cfgraph.integrations.tensorflow.modes import Mode
from cfgraph.integrations.tensorflow.processes import ModePool
from cfgraph.ir.graph import Graph
from cfgraph.ir.node import node_name
from cfgraph.ir.role import Role
from cfgraph.limits import check_deadline
from cfgraph.ops.opdef.op import role_of

_RACE: Final = "CFG220"

# of a fault that is not deterministic
_MAX_RUNS: Final = 5


def difference_kind(delta: RunDiff, mode: Mode) -> tuple[str, ...]:
    """Return what a smaller graph must have in common with a difference, empty without one.

    For a failure its signature, else `empty` (or dead), `type`, `shape`, or `value`.
    """
    if isinstance(delta.failure, ModeFailed):
        return delta.failure.signature
    if not delta.gaps:
        return ()
    gap = delta.gaps[0]
    before, after = np.asarray(gap.before), np.asarray(gap.after)
    if "dead" in gap.message or (mode.has_dead_values and after.shape == (0,) != before.shape):
        return ("empty",)
    if before.dtype != after.dtype:
        return ("type",)
    return ("value",) if before.shape == after.shape else ("shape",)


def has_race(graph: Graph) -> bool:
    """Return true if the inputs of a Merge may be live at once, so that either may win."""
    if not any(role_of(node) is Role.MERGE for node in graph):
        return False
    return any(finding.code == _RACE for finding in check(graph).findings)


@dataclass(slots=True)
class ModeOracle:
    """Comparison of a candidate in a mode.

    `feeds` are values for its placeholders by name, `without` optimizers that are disabled. Unless
    `allow_races`, a graph with a Merge of two live inputs, either of which may arrive first, does
    not count.
    """

    pool: ModePool
    mode: Mode
    against: Mode | None
    options: ComparisonRunOptions
    kind: tuple[str, ...]
    feeds: Mapping[str, Any]
    without: tuple[str, ...] = ()
    allow_races: bool = False
    width: int = 1

    def first_interesting(self, candidates: Sequence[Subject]) -> int | None:
        """Return the index of the first graph that differs in the same way."""
        return next((n for n, item in enumerate(candidates) if self.is_interesting(item)), None)

    def is_interesting(self, subject: Subject) -> bool:
        """Return true if a mode still differs."""
        graph = subject.graphs[0]
        try:
            if not self.allow_races and has_race(graph):
                return False
            delta = self.compare(graph)
        except CfgraphError:
            check_deadline()
            return False
        return difference_kind(delta, self.mode) == self.kind

    def compare(self, graph: Graph, *, locate: bool = False) -> RunDiff:
        """Compare the outputs of a graph."""
        options = replace(self.options_for(graph), locate=locate)
        return compare_modes(self.pool, graph, self.mode, self.against, options, self.without)

    def reproduced(self, graph: Graph) -> RunDiff:
        """Return the difference of a graph with its first wrong node.

        It is empty if no one of several runs differs: the fault is not deterministic.
        """
        delta = RunDiff(())
        for _ in range(_MAX_RUNS):
            delta = self.compare(graph, locate=True)
            if difference_kind(delta, self.mode) == self.kind:
                break
        return delta

    def options_for(self, graph: Graph) -> ComparisonRunOptions:
        """Return the options with the names that a graph contains."""
        setting = self.options.setting
        inputs = {f"{node.name}:0" for node in graph if must_be_fed(node) or is_variable(node)}
        feeds = {name: value for name, value in self.feeds.items() if name in inputs}
        inits = [name for name in setting.inits if node_name(name) in graph.nodes]
        targets = [name for name in self.options.targets if node_name(name) in graph.nodes]
        # without targets, these are the default
        fetched = sinks(graph) if targets and self.options.fetches else []
        return replace(
            self.options,
            setting=replace(setting, feeds=feeds, inits=inits),
            fetches=tuple(item.name for item in without_io_nodes(graph, fetched)),
            targets=targets,
            cases=1,
        )
