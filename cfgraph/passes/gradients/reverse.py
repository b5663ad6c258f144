"""Reverse mode over a region: visit its items in reverse order and sum the partial gradients.

Each item passes the gradients of its outputs to its inputs; the gradient of a tensor is the sum of
the partial gradients from its readers. In conditionals a Merge becomes Switches, a Switch a Merge:

    Switch(x, p): dx = Merge(d false, d true)        Merge(a, b): da = Switch(dz, p):0, db = …:1

The gradient of a live tensor is live, that of a dead one dead. If only one side of a Switch is
used, the other side contributes zeros that are live on that side alone. If a tensor is read by a
node that runs less often than the tensor is live, the partial gradient is merged with zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from cfgraph.analysis.loops.path_conditions import BranchDecision, PathCondition, PathConditions
from cfgraph.analysis.loops.regions import Region, Regions
from cfgraph.analysis.loops.while_loop import is_loop_switch
from cfgraph.errors import Unsupported
from cfgraph.ir import registry
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.role import Role
from cfgraph.ops.opdef.gradient_api import InputGradient
from cfgraph.ops.opdef.op import back_edge_of, lookup, role_of
from cfgraph.passes.gradients.activity import ActivityAnalysis
from cfgraph.passes.gradients.gradient_stacks import GradientStacks
from cfgraph.passes.gradients.scope import GradientScope


def switch_gradient(
    site: GradientScope, guards: PathConditions, node: Node, arrived: list[Output | None]
) -> Output | None:
    """The gradient of a Switch's data, from those of its outputs."""
    if not any(arrived):
        return None
    sides: list[Output] = []
    for port, dx in enumerate(arrived):
        sides.append(dx if dx is not None else _side_zeros(site, guards, node.output(port)))
    return site.add("Merge", sides, "Merge", {})


def _side_zeros(site: GradientScope, guards: PathConditions, side: Output) -> Output:
    """Zeros that are live where this side of a Switch is."""
    if site is site.top and not _is_resource(side):
        return site.zeros_like(side)
    return site.under(site.zeros_like(side.node.inputs[0]), [guards.decision(side)])


def merge_gradient(
    site: GradientScope, guards: PathConditions, node: Node, slot: int, dz: Output
) -> Output:
    """The gradient of one input of a Merge."""
    rest = guards.rest(node, slot)
    told = all(item.sides for item in rest)
    if rest and told and guards.alone(node, slot):
        return site.under(dz, rest)
    chosen = site.add("Equal", (node.output(1), slot), "chosen", {})
    dx = site.add("Switch", (dz, chosen), "Switch", {}).node.output(1)
    if not told:
        return dx
    # the Merge may take another input although this one is live
    zeros = site.add("Switch", (site.zeros_like(node.inputs[slot]), chosen), "Switch", {})
    return site.add("Merge", (zeros, dx), "Merge", {})


def merge_with_zeros(
    site: GradientScope, x: Output, dx: Output, decisions: Iterable[BranchDecision]
) -> Output:
    """A gradient that is live only where these decisions fall, with zeros elsewhere."""
    zeros, layers = site.zeros_like(x), []
    for item in decisions:
        if not item.sides:
            message = f"what reads {x.name} is live under conditions that no predicate tells"
            raise Unsupported(message, node=item.pred.node, code="CFG505")
        others = [port for port in range(item.sides) if port != item.port]
        chosen = site.under(zeros, [item])
        layers.append([Output(chosen.node, port) for port in others])
        zeros = chosen
    for others_zeros in reversed(layers):
        dx = site.add("Merge", [dx, *others_zeros], "Merge", {})
    return dx


def _is_resource(x: Output) -> bool:
    return x.dtype is not None and x.dtype.kind == "resource"


# the note by which TensorFlow finds a gradient that a program registered
CUSTOM_GRADIENT_ATTR: Final = "_gradient_op_type"


class ReverseMode:
    """The gradients of one region: what has arrived for each tensor so far."""

    def __init__(
        self,
        site: GradientScope,
        region: Region,
        found: Regions,
        active: ActivityAnalysis,
        stacks: GradientStacks,
    ) -> None:
        self.site = site
        self.region = region
        self.regions = found
        self.stacks = stacks
        self.active = active
        self.wanted = active.wants
        self._parts: dict[Output, list[Output]] = {}

    def accumulate(self, x: Output, dx: Output, guard: PathCondition) -> None:
        """Add to the gradient of a tensor something that is live under a guard."""
        if self.wanted(x):
            self._keep(x, dx, guard)

    def _keep(self, x: Output, dx: Output, guard: PathCondition) -> None:
        if guard is not self.regions.guards.none:
            rest = guard.beyond(self.regions.guards.of(x))
            if rest and (rest := self.site.residual_decisions(rest)):
                dx = merge_with_zeros(self.site, x, dx, rest)
        parts = self._parts.get(x)
        if parts is None:
            self._parts[x] = [dx]
        else:
            parts.append(dx)

    def parts(self, x: Output) -> list[Output]:
        """What arrived for a tensor and goes on to what it is computed from."""
        return [] if x.node in self.active.stops else self._parts.get(x, [])

    def total(self, x: Output) -> Output | None:
        """The gradient of a tensor: the sum of what arrived, or None."""
        parts = self._parts.get(x)
        if parts is None:
            return None
        if len(parts) > 1:
            parts[:] = [self.site.new("AddN", parts, "AddN").output()]
            self.site.work.known.tell(parts[0], self.site.known_shape(x))
        return parts[0]

    def run(self, reverse_loop: Callable[[ReverseMode, Region], None]) -> None:
        """Go over the region, last items first."""
        for item in reversed(self.region.order):
            if isinstance(item, Region):
                reverse_loop(self, item)
                continue
            kind = role_of(item)
            if kind is Role.SWITCH:
                self._switch(item)
            elif kind is Role.MERGE:
                self._merge(item)
            elif not kind:
                self._ordinary(item)

    def arrived(self, node: Node) -> list[Output | None]:
        """The gradients of a node's outputs that go on to its inputs."""
        count = registry.output_count(node) or 0
        if node in self.active.stops:
            return [None] * count
        total = self.total
        return [total(node.output(port)) for port in range(count)]

    def _stack(self, node: Node) -> None:
        """Save the gradient of what was popped; hand on what was saved to what was pushed."""
        dx = self.arrived(node)[0]
        self.site.work.at(node)
        if node in self.stacks.of[node].pops:
            if dx is not None:
                self.stacks.push(self.site, node, dx, self.regions.frames.of)
            return
        value = node.inputs[1]
        if not self.wanted(value):
            return
        for part in (dx, self.stacks.pop(self.site, node)):
            if part is not None:
                self.accumulate(value, part, self.regions.guards.of_node(node))

    def _switch(self, node: Node) -> None:
        data = node.inputs[0]
        arrived = self.arrived(node)
        if not any(arrived) or not self.wanted(data):
            return
        guards = self.regions.guards
        self.site.work.at(node)
        if is_loop_switch(node, self.region.frame.loop_cond):
            # of a loop's own Switch, only the side of the body is in an iteration
            dx = arrived[1]
        else:
            dx = switch_gradient(self.site, guards, node, arrived)
        if dx is not None:
            self.accumulate(data, dx, guards.of_node(node))

    def _merge(self, node: Node) -> None:
        if back_edge_of(node) is not None:
            return
        dz = self.arrived(node)[0]
        if dz is None:
            return
        guards = self.regions.guards
        self.site.work.at(node)
        for slot, item in enumerate(node.inputs):
            if self.wanted(item):
                dx = merge_gradient(self.site, guards, node, slot, dz)
                self.accumulate(item, dx, guards.of(item))

    def _ordinary(self, node: Node) -> None:
        """Ask the op. Raises Unsupported for one that has no gradient."""
        if node in self.stacks.of:
            self._stack(node)
            return
        arrived = self.arrived(node)
        if not any(arrived):
            return
        inputs, work = node.inputs, self.site.work
        wanted = self.active.wanted(inputs)
        if True not in wanted:
            return
        _require_known_types(node)
        work.at(node)
        hook = work.call_gradient(node) or _gradient_hook(node, ignore_custom=work.ignore_custom)
        partials: Sequence[InputGradient] = hook(self.site, node, *arrived)
        if len(partials) != len(inputs):
            message = f"{len(partials)} gradients for the {len(inputs)} inputs of {node!r}"
            raise AssertionError(message)
        guard = self.regions.guards.of_node(node)
        for item, partial, is_wanted in zip(inputs, partials, wanted, strict=True):
            if partial is None or not is_wanted:
                continue
            made = partial if isinstance(partial, Output) else partial()
            if made is not None:
                self._keep(item, made, guard)


def _require_known_types(node: Node) -> None:
    for item in node.inputs:
        # the type of what a known op gives is known: the graph is valid
        if lookup(item[0].op) is not None or item.dtype is not None:
            continue
        message = f"{node.op} reads {item.name}, whose type is not known"
        hint = f"nothing is known of the op {item.node.op}"
        raise Unsupported(message, node=node, hint=hint, code="CFG502")


def _gradient_hook(node: Node, *, ignore_custom: bool) -> Callable[..., Any]:
    op = lookup(node.op)
    if node.attrs.get(CUSTOM_GRADIENT_ATTR) and not ignore_custom:
        message = f"{node.op} has a gradient of its own that is not in the file"
        hint = "--ignore-custom takes that of the op"
        raise Unsupported(message, node=node, hint=hint, code="CFG507")
    if op is None or op.gradient is None:
        message = f"{node.op} has no gradient"
        hint = "stop gradients before it (--stop), or write it with ops that have one"
        raise Unsupported(message, node=node, hint=hint, code="CFG502")
    return op.gradient
