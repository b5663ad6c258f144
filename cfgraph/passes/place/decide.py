"""Decide on the device of every node of a lowered graph, and tell what decided."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from cfgraph.analysis.cost import Costs
from cfgraph.ir.graph import Graph, Node
from cfgraph.passes.place.facts import Facts
from cfgraph.passes.place.groups import Groups
from cfgraph.passes.place.matching import Matched
from cfgraph.passes.place.rules import Rules
from cfgraph.passes.place.schedule import Scheduler
from cfgraph.passes.place.wishes import Wishes

Allowed = Mapping[Node, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Decision:
    """The device of each node, what decided on it, and warnings."""

    where: Mapping[str, str]
    why: Mapping[str, str]
    warnings: tuple[str, ...]


def decide(
    graph: Graph, devices: tuple[str, ...], rules: Rules, seed: int | None, soft: bool
) -> Decision:
    """Find a device for every node; with a seed, by chance, with no regard to what nodes ask for.

    Raises what `place` raises for requests that cannot be met.
    """
    facts = Facts(graph)
    matched = Matched(graph, rules)
    groups = Groups(graph, facts, matched.together)
    asked = _asked(graph, matched, rules.default, heed=seed is None)
    hard = [node for node, rule in matched.by.items() if rule.hard]
    wishes = Wishes(groups, facts.on_host(), devices, asked, hard, soft)
    for tie in groups.loose:
        wishes.join(tie.source, tie.reader)
    if seed is None:
        for tie in facts.loop_ties():
            wishes.join(tie.source, tie.reader)
    first_of = groups.firsts()
    allowed = {node: wishes.candidates(node) for node, first in first_of.items() if node is first}
    chosen = _chosen(graph, devices, first_of, allowed, seed)
    where = {node.name: chosen[first] for node, first in first_of.items()}
    reasons = _Reasons(first_of, wishes, matched, allowed, seed)
    why = {node.name: reasons.of(node) for node in graph}
    return Decision(where, why, (*matched.warnings, *wishes.warnings()))


def _asked(graph: Graph, matched: Matched, default: str, heed: bool) -> dict[Node, str]:
    """What is asked of each node's device: by a rule, by the node, or for all others."""
    if not matched.by and not default:
        return {node: node.device for node in graph if node.device} if heed else {}
    asked = {}
    for node in graph:
        rule = matched.by.get(node)
        text = rule.device if rule else (node.device if heed else "") or default
        if text:
            asked[node] = text
    return asked


def _chosen(
    graph: Graph,
    devices: tuple[str, ...],
    first_of: Mapping[Node, Node],
    allowed: Allowed,
    seed: int | None,
) -> dict[Node, str]:
    """One of the devices that each set may be on."""
    if seed is not None:
        chance = random.Random(seed)
        return {first: chance.choice(found) for first, found in allowed.items()}
    if all(len(found) == 1 for found in allowed.values()):
        return {first: found[0] for first, found in allowed.items()}
    numbers = Scheduler(graph, devices, first_of, allowed, Costs()).run()
    return {first: devices[number] for first, number in numbers.items()}


class _Reasons:
    """What decided on a node, as a text."""

    def __init__(
        self,
        first_of: Mapping[Node, Node],
        wishes: Wishes,
        matched: Matched,
        allowed: Allowed,
        seed: int | None,
    ) -> None:
        self._first_of = first_of
        self._wishes = wishes
        self._rules = matched.by
        self._allowed = allowed
        self._chance = "cost" if seed is None else f"seed {seed}"
        self._own = {text: f"asked for {text}" for text in set(wishes.asked.values())}

    def of(self, node: Node) -> str:
        rule = self._rules.get(node)
        if rule is not None:
            return rule.label
        asked = self._wishes.asked.get(node)
        if asked is None:
            return self._of_set(self._first_of[node])
        return self._own[asked] if node.device == asked else f"default {asked}"

    def _of_set(self, first: Node) -> str:
        """What decided on a set of nodes, for those that ask for nothing themselves."""
        wishes = self._wishes
        if len(wishes.devices) == 1:
            return "the only device"
        if len(self._allowed[first]) > 1:
            return self._chance
        asker = wishes.asker.get(first)
        if asker is not None:
            return f"beside {asker.name}"
        host = wishes.hosted.get(first)
        return f"only a CPU runs {host.op}" if host is not None else self._chance
