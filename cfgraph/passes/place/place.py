"""Assign a full device name to every node.

Nodes that share a handle, a reference or a `_class` form one group, and a group is on one device.
The requests of its nodes decide first, then the device types that have kernels for all of them. If
several devices remain, the cost model chooses, or a random seed does."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cfgraph.analysis.cost import Costs
from cfgraph.analysis.transfers import is_partitioned
from cfgraph.analysis.verify.verify import require_valid
from cfgraph.errors import Unsupported, UsageError
from cfgraph.ir.devices import DeviceName, known_devices_hint, parse_devices
from cfgraph.ir.gc_pause import paused_gc
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.library import copy_graph
from cfgraph.ops.families.functional import is_functional
from cfgraph.passes.lower.lower import lower
from cfgraph.passes.place.colocation_groups import ColocationGroups
from cfgraph.passes.place.constraints import DeviceConstraints, satisfies_request
from cfgraph.passes.place.op_placement import PlacementFacts
from cfgraph.passes.place.rules import (
    PLACEMENT_SCHEMA,
    PlacementRules,
    PlacementRulesLike,
    RuleMatches,
)
from cfgraph.passes.place.schedule import DeviceScheduler
from cfgraph.passes.report import Report, op_counts


@dataclass(frozen=True, slots=True)
class Placement(Report):
    """A report with the devices that there are, and what decided on the device of each node."""

    devices: tuple[str, ...] = ()
    decided: Mapping[str, str] = field(default_factory=dict)


def place(
    graph: Graph,
    *,
    devices: str | Iterable[str],
    rules: PlacementRulesLike | None = None,
    seed: int | None = None,
    soft_placement: bool = False,
) -> Placement:
    """Give every node one of `devices` (`cpu:0,gpu:0-1`), in place; what is functional is lowered.

    `rules` (`{"while/*": "gpu:0"}`, or what `read_rules` gives) outweigh what nodes ask for; the
    last that matches counts. With `soft_placement` a request that cannot be met is let go of, with
    a warning. With `seed` the nodes' own requests are ignored, and every set of nodes that must be
    together goes to a device by chance.

    Raises UsageError for devices and rules that are none; InvalidInput for a graph that is not
    valid, and for requests that conflict or are not there; Unsupported where no device has a
    kernel, and for a graph that is partitioned already. The graph is unchanged then.
    """
    names, wanted = parse_devices(devices), PlacementRules.of(rules)
    _require_rule_devices(wanted, names, soft_placement)
    with paused_gc():
        require_valid(graph)
        if is_partitioned(graph):
            message = "the graph is partitioned already"
            raise Unsupported(message, hint="place it before it is partitioned", code="CFG411")
        return _place_valid_graph(graph, names, wanted, seed, soft_placement)


def _place_valid_graph(
    graph: Graph, devices: tuple[str, ...], rules: PlacementRules, seed: int | None, soft: bool
) -> Placement:
    trial, lowered = _lowered_copy(graph)
    found = decide_devices(trial, devices, rules, seed, soft)
    if trial is not graph:
        lower(graph)
    moved = _apply_devices(graph, found)
    return Placement(
        lowered.rewrites + moved,
        lowered.names,
        (*lowered.warnings, *found.warnings),
        lowered.before,
        lowered.after,
        devices,
        found.why,
    )


def _lowered_copy(graph: Graph) -> tuple[Graph, Report]:
    """The graph lowered, as a copy, so that it stays as it is where placement is refused."""
    if not is_functional(graph, graph):
        counts = op_counts(graph)
        return graph, Report(before=counts, after=counts)
    copy = copy_graph(graph)
    return copy, lower(copy)


def _require_rule_devices(rules: PlacementRules, devices: Sequence[str], soft: bool) -> None:
    """Every device that a rule names is there. Raises UsageError."""
    have = [DeviceName.parse(device) or DeviceName() for device in devices]
    texts = {rule.device: rule.label for rule in rules.rules if rule.hard or not soft}
    if rules.default and not soft:
        texts.setdefault(rules.default, "default")
    for text, label in texts.items():
        wanted = DeviceName.parse(text)
        if wanted is None or not any(satisfies_request(parts, wanted) for parts in have):
            message = f"no device {text!r} (of {label})"
            raise UsageError(message, hint=known_devices_hint(text, devices), code="CFG404")


def _apply_devices(graph: Graph, found: PlacementDecision) -> int:
    """Write the devices down; returns how many nodes had another one."""
    moved = [(node, device) for node in graph if node.device != (device := found.where[node.name])]
    for node, device in moved:
        graph.set_device(node, device)
    return len(moved)


AllowedDevices = Mapping[Node, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class PlacementDecision:
    """The device of each node, what decided on it, and warnings."""

    where: Mapping[str, str]
    why: Mapping[str, str]
    warnings: tuple[str, ...]


def decide_devices(
    graph: Graph, devices: tuple[str, ...], rules: PlacementRules, seed: int | None, soft: bool
) -> PlacementDecision:
    """Find a device for every node; with a seed, by chance, with no regard to what nodes ask for.

    Raises what `place` raises for requests that cannot be met.
    """
    facts = PlacementFacts(graph)
    matched = RuleMatches(graph, rules)
    groups = ColocationGroups(graph, facts, matched.together)
    asked = _requested_devices(graph, matched, rules.default, use_requests=seed is None)
    hard = [node for node, rule in matched.by.items() if rule.hard]
    wishes = DeviceConstraints(groups, facts.on_host(), devices, asked, hard, soft)
    for tie in groups.loose:
        wishes.join(tie.source, tie.reader)
    if seed is None:
        for tie in facts.loop_edges():
            wishes.join(tie.source, tie.reader)
    first_of = groups.firsts()
    allowed = {node: wishes.candidates(node) for node, first in first_of.items() if node is first}
    chosen = _choose_devices(graph, devices, first_of, allowed, seed)
    where = {node.name: chosen[first] for node, first in first_of.items()}
    reasons = _PlacementReasons(first_of, wishes, matched, allowed, seed)
    why = {node.name: reasons.of(node) for node in graph}
    return PlacementDecision(where, why, (*matched.warnings, *wishes.warnings()))


def _requested_devices(
    graph: Graph, matched: RuleMatches, default: str, use_requests: bool
) -> dict[Node, str]:
    """What is asked of each node's device: by a rule, by the node, or for all others."""
    if not matched.by and not default:
        return {node: node.device for node in graph if node.device} if use_requests else {}
    asked = {}
    for node in graph:
        rule = matched.by.get(node)
        text = rule.device if rule else (node.device if use_requests else "") or default
        if text:
            asked[node] = text
    return asked


def _choose_devices(
    graph: Graph,
    devices: tuple[str, ...],
    first_of: Mapping[Node, Node],
    allowed: AllowedDevices,
    seed: int | None,
) -> dict[Node, str]:
    """One of the devices that each set may be on."""
    if seed is not None:
        chance = random.Random(seed)
        return {first: chance.choice(found) for first, found in allowed.items()}
    if all(len(found) == 1 for found in allowed.values()):
        return {first: found[0] for first, found in allowed.items()}
    numbers = DeviceScheduler(graph, devices, first_of, allowed, Costs()).run()
    return {first: devices[number] for first, number in numbers.items()}


class _PlacementReasons:
    """What decided on a node, as a text."""

    def __init__(
        self,
        first_of: Mapping[Node, Node],
        constraints: DeviceConstraints,
        matched: RuleMatches,
        allowed: AllowedDevices,
        seed: int | None,
    ) -> None:
        self._first_of = first_of
        self._constraints = constraints
        self._rules = matched.by
        self._allowed = allowed
        self._chance = "cost" if seed is None else f"seed {seed}"
        self._own = {text: f"asked for {text}" for text in set(constraints.asked.values())}

    def of(self, node: Node) -> str:
        rule = self._rules.get(node)
        if rule is not None:
            return rule.label
        asked = self._constraints.asked.get(node)
        if asked is None:
            return self._of_set(self._first_of[node])
        return self._own[asked] if node.device == asked else f"default {asked}"

    def _of_set(self, first: Node) -> str:
        """What decided on a set of nodes, for those that ask for nothing themselves."""
        wishes = self._constraints
        if len(wishes.devices) == 1:
            return "the only device"
        if len(self._allowed[first]) > 1:
            return self._chance
        asker = wishes.requester.get(first)
        if asker is not None:
            return f"beside {asker.name}"
        host = wishes.host_only_nodes.get(first)
        return f"only a CPU runs {host.op}" if host is not None else self._chance


def placement_toml(graph: Graph, placement: Placement) -> str:
    """The device of every node that was placed, as rules in TOML that place the graph alike."""
    return "".join(_toml_lines(graph, placement))


def _toml_lines(graph: Graph, placement: Placement) -> Iterator[str]:
    yield f"schema = {_toml_string(PLACEMENT_SCHEMA)}\n"
    for node in graph:
        why = placement.decided.get(node.name)
        if why is not None:
            yield "\n[[rule]]\n"
            yield f"node = {_toml_string(node.name)}\n"
            yield f"device = {_toml_string(node.device)}\n"
            yield f"by = {_toml_string(why)}\n"


def _toml_string(text: str) -> str:
    """A basic string of TOML, whose escapes are those of JSON."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
