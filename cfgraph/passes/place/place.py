"""Assign a full device name to every node.

Nodes that share a handle, a reference, or a `_class` form one group, and a group is on one device.
The requests of its nodes decide first, then the device types that have kernels for all of them. If
several devices remain, the cost model chooses, or a random seed does.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

from cfgraph.analysis.cost import Costs
from cfgraph.analysis.verify.verify import require_valid
from cfgraph.errors import Unsupported, UsageError
from cfgraph.ir.devices import DeviceName, known_devices_hint, parse_devices
from cfgraph.ir.gc_pause import paused_gc
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.traversal import is_partitioned
from cfgraph.limits import check_deadline
from cfgraph.ops.opdef.op import is_functional
from cfgraph.passes.outcome import Report, op_counts, unchanged_on_error
from cfgraph.passes.place.constraints import ColocationGroups, DeviceConstraints, satisfies_request
from cfgraph.passes.place.device_scheduler import DeviceScheduler
from cfgraph.passes.place.op_placement import PlacementFacts
from cfgraph.passes.place.rules import (
    PLACEMENT_SCHEMA,
    PlacementRules,
    PlacementRulesLike,
    RuleMatches,
)
from cfgraph.stack_position import LOCATORS, pass_position

# late imports: few graphs on several devices need lowering


@dataclass(frozen=True, slots=True)
class Placement(Report):
    """Report of `place`: the devices, and the reason for the device of each node."""

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
    """Assign one of `devices` (`cpu:0,gpu:0-1`) to every node, in place, after lowering.

    `rules` (`{"while/*": "gpu:0"}`, or the result of `read_rules`) override the requests of nodes;
    the last rule that matches applies. With `soft_placement`, unsatisfiable requests are ignored
    with a warning. With `seed`, requests of nodes are ignored, and each group of nodes that must
    share a device gets a random one.

    Raises UsageError for invalid devices and rules; InvalidInput for an invalid graph, and for
    requests that conflict or name a device that does not exist; Unsupported if no device has a
    kernel, and for a partitioned graph. The graph is then unchanged.
    """
    names, parsed_rules = parse_devices(devices), PlacementRules.parse(rules)
    _require_rule_devices(parsed_rules, names, soft_placement)
    with paused_gc():
        _require_placeable(graph)
        return _place_valid_graph(graph, names, parsed_rules, seed, soft_placement)


LOCATORS[place.__code__] = pass_position


def chosen_devices(
    graph: Graph, devices: tuple[str, ...], rules: PlacementRules, *, soft_placement: bool
) -> dict[Node, str]:
    """The device that `place` assigns to each node of a lowered graph, which stays unchanged.

    Raises the errors of `place`.
    """
    _require_rule_devices(rules, devices, soft_placement)
    with paused_gc():
        _require_placeable(graph)
        return decide_devices(graph, devices, rules, None, soft_placement).devices


def _require_placeable(graph: Graph) -> None:
    """Raise InvalidInput for an invalid graph, and Unsupported for a partitioned one."""
    require_valid(graph)
    if is_partitioned(graph):
        message = "the graph is partitioned already"
        raise Unsupported(message, hint="place the graph before partitioning it", code="CFG411")


def _place_valid_graph(
    graph: Graph, devices: tuple[str, ...], rules: PlacementRules, seed: int | None, soft: bool
) -> Placement:
    # nothing else edits the graph before all devices are known
    with unchanged_on_error(graph) if is_functional(graph, graph) else nullcontext():
        lowered = _lowered(graph)
        decision = decide_devices(graph, devices, rules, seed, soft)
    reasons = {node.name: decision.reason(node) for node in graph}
    moved = _apply_devices(graph, decision.devices)
    return Placement(
        lowered.rewrites + moved,
        lowered.names,
        (*lowered.warnings, *decision.warnings),
        lowered.before,
        lowered.after,
        devices,
        reasons,
    )


def _lowered(graph: Graph) -> Report:
    """Lower a graph in place; the report of that."""
    if is_functional(graph, graph):
        from cfgraph.passes.lowering import lower

        return lower(graph)
    counts = op_counts(graph)
    return Report(before=counts, after=counts)


def _require_rule_devices(rules: PlacementRules, devices: Sequence[str], soft: bool) -> None:
    """Raise UsageError if a rule names a device that does not exist."""
    have = [DeviceName.parse(device) or DeviceName() for device in devices]
    texts = {rule.device: rule.label for rule in rules.rules if rule.hard or not soft}
    if rules.default and not soft:
        texts.setdefault(rules.default, "default")
    for text, label in texts.items():
        request = DeviceName.parse(text)
        if request is None or not any(satisfies_request(name, request) for name in have):
            message = f"no device {text!r} (of {label})"
            raise UsageError(message, hint=known_devices_hint(text, devices), code="CFG404")


def _apply_devices(graph: Graph, devices: Mapping[Node, str]) -> int:
    """Set the device of each node; return the number of changes."""
    moved = [(node, device) for node in graph if node.device != (device := devices[node])]
    for node, device in moved:
        graph.set_device(node, device)
    return len(moved)


AllowedDevices = Mapping[Node, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class PlacementDecision:
    """The device of each node, warnings, and the reason for the device of a node."""

    devices: dict[Node, str]
    warnings: tuple[str, ...]
    reason: Callable[[Node], str]


def decide_devices(
    graph: Graph, devices: tuple[str, ...], rules: PlacementRules, seed: int | None, soft: bool
) -> PlacementDecision:
    """Choose a device for every node; with a seed at random, ignoring requests of nodes.

    Raises the errors of `place` for unsatisfiable requests.
    """
    facts = PlacementFacts(graph)
    matches = RuleMatches(graph, rules)
    groups = ColocationGroups(graph, facts, matches.colocated)
    requests = _requested_devices(graph, matches, rules.default, use_own=seed is None)
    hard = [node for node, rule in matches.rule_of.items() if rule.hard]
    constraints = DeviceConstraints(groups, facts.host_only_nodes(), devices, requests, hard, soft)
    for edge in groups.preferences:
        check_deadline()
        constraints.merge_groups(edge.source, edge.reader)
    if seed is None:
        for edge in facts.loop_edges():
            constraints.merge_groups(edge.source, edge.reader)
    group_of = groups.representatives()
    allowed = {
        node: constraints.candidates(node) for node, group in group_of.items() if node is group
    }
    chosen = _choose_devices(graph, devices, group_of, allowed, seed)
    reasons = _PlacementReasons(group_of, constraints, matches, allowed, seed)
    return PlacementDecision(
        {node: chosen[group] for node, group in group_of.items()},
        (*matches.warnings, *constraints.warnings()),
        reasons.reason,
    )


def _requested_devices(
    graph: Graph, matches: RuleMatches, default: str, use_own: bool
) -> dict[Node, str]:
    """Return the requested device of each node: by rule, by the node itself, or by default."""
    if not matches.rule_of and not default:
        return {node: node.device for node in graph if node.device} if use_own else {}
    requests = {}
    for node in graph:
        check_deadline()
        rule = matches.rule_of.get(node)
        device = rule.device if rule else (node.device if use_own else "") or default
        if device:
            requests[node] = device
    return requests


def _choose_devices(
    graph: Graph,
    devices: tuple[str, ...],
    group_of: Mapping[Node, Node],
    allowed: AllowedDevices,
    seed: int | None,
) -> dict[Node, str]:
    """Choose one of the allowed devices for each group."""
    if seed is not None:
        generator = random.Random(seed)
        return {group: generator.choice(names) for group, names in allowed.items()}
    if all(len(names) == 1 for names in allowed.values()):
        return {group: names[0] for group, names in allowed.items()}
    numbers = DeviceScheduler(graph, devices, group_of, allowed, Costs()).run()
    return {group: devices[number] for group, number in numbers.items()}


class _PlacementReasons:
    """Explanations of the device chosen for each node."""

    def __init__(
        self,
        group_of: Mapping[Node, Node],
        constraints: DeviceConstraints,
        matches: RuleMatches,
        allowed: AllowedDevices,
        seed: int | None,
    ) -> None:
        self._group_of = group_of
        self._constraints = constraints
        self._rule_of = matches.rule_of
        self._allowed = allowed
        self._choice = "cost" if seed is None else f"seed {seed}"
        self._own = {text: f"asked for {text}" for text in set(constraints.requests.values())}

    def reason(self, node: Node) -> str:
        rule = self._rule_of.get(node)
        if rule is not None:
            return rule.label
        request = self._constraints.requests.get(node)
        if request is None:
            return self._group_reason(self._group_of[node])
        return self._own[request] if node.device == request else f"default {request}"

    def _group_reason(self, group: Node) -> str:
        """Describe what decided a group, for its nodes without a request."""
        constraints = self._constraints
        if len(constraints.devices) == 1:
            return "the only device"
        if len(self._allowed[group]) > 1:
            return self._choice
        requester = constraints.requester.get(group)
        if requester is not None:
            return f"beside {requester.name}"
        host = constraints.host_only_nodes.get(group)
        return f"only a CPU runs {host.op}" if host is not None else self._choice


def placement_toml(graph: Graph, placement: Placement) -> str:
    """Return a TOML file of rules that reproduce a placement."""
    return "".join(_toml_lines(graph, placement))


def _toml_lines(graph: Graph, placement: Placement) -> Iterator[str]:
    yield f"schema = {_toml_string(PLACEMENT_SCHEMA)}\n"
    for node in graph:
        check_deadline()
        reason = placement.decided.get(node.name)
        if reason is not None:
            yield "\n[[rule]]\n"
            yield f"node = {_toml_string(node.name)}\n"
            yield f"device = {_toml_string(node.device)}\n"
            yield f"by = {_toml_string(reason)}\n"


def _toml_string(text: str) -> str:
    """Quote a basic TOML string, which has the same escapes as JSON."""
    import json

    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
