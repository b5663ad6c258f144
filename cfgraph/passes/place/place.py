"""Give every node a full device name.

Nodes that share a handle, a reference or a class are one set, and a set is on one device. What its
nodes ask for decides, then what kind of device has the kernels; where that leaves several, the
cost model chooses, or chance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cfgraph.analysis.transfers import is_partitioned
from cfgraph.analysis.verify.verify import require_valid
from cfgraph.errors import Unsupported, UsageError
from cfgraph.ir.collector import without_collector
from cfgraph.ir.copy import copy_of
from cfgraph.ir.device_name import DeviceName
from cfgraph.ir.device_set import closest, device_set
from cfgraph.ir.graph import Graph
from cfgraph.ops.functional import is_functional
from cfgraph.passes.lower.lower import lower
from cfgraph.passes.place.decide import Decision, decide
from cfgraph.passes.place.rules import GivenRules, Rules
from cfgraph.passes.place.wishes import fits
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
    rules: GivenRules | None = None,
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
    names, wanted = device_set(devices), Rules.of(rules)
    _require_devices(wanted, names, soft_placement)
    with without_collector():
        require_valid(graph)
        if is_partitioned(graph):
            message = "the graph is partitioned already"
            raise Unsupported(message, hint="place it before it is partitioned", code="CFG411")
        return _place(graph, names, wanted, seed, soft_placement)


def _place(
    graph: Graph, devices: tuple[str, ...], rules: Rules, seed: int | None, soft: bool
) -> Placement:
    trial, lowered = _lowered(graph)
    found = decide(trial, devices, rules, seed, soft)
    if trial is not graph:
        lower(graph)
    moved = _apply(graph, found)
    return Placement(
        lowered.rewrites + moved,
        lowered.names,
        (*lowered.warnings, *found.warnings),
        lowered.before,
        lowered.after,
        devices,
        found.why,
    )


def _lowered(graph: Graph) -> tuple[Graph, Report]:
    """The graph lowered, as a copy, so that it stays as it is where placement is refused."""
    if not is_functional(graph, graph):
        counts = op_counts(graph)
        return graph, Report(before=counts, after=counts)
    copy = copy_of(graph)
    return copy, lower(copy)


def _require_devices(rules: Rules, devices: Sequence[str], soft: bool) -> None:
    """Every device that a rule names is there. Raises UsageError."""
    have = [DeviceName.parse(device) or DeviceName() for device in devices]
    texts = {rule.device: rule.label for rule in rules.rules if rule.hard or not soft}
    if rules.default and not soft:
        texts.setdefault(rules.default, "default")
    for text, label in texts.items():
        wanted = DeviceName.parse(text)
        if wanted is None or not any(fits(parts, wanted) for parts in have):
            message = f"no device {text!r} (of {label})"
            raise UsageError(message, hint=closest(text, devices), code="CFG404")


def _apply(graph: Graph, found: Decision) -> int:
    """Write the devices down; returns how many nodes had another one."""
    moved = [(node, device) for node in graph if node.device != (device := found.where[node.name])]
    for node, device in moved:
        graph.set_device(node, device)
    return len(moved)
