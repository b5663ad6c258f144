"""Inline a function body into the graph, and lower calls with it.

    x ──▶ Call(f) ──▶ y          x ──▶ [body of f] ──▶ y

Control edges into the call delay the nodes of the body that would run first. Nodes that wait for
the call wait for the side effects of the body, and so do readers of outputs that do not follow
these effects.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple

from cfgraph.ir.devices import merge_device_names
from cfgraph.ir.function_graph import ARG_OP, FunctionGraph
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.role import Role
from cfgraph.passes.lower.functional_node import CallSite, InlineScope
from cfgraph.passes.lower.plan import remote_target
from cfgraph.passes.lower.rewriter import LoweredOutput, Rewriter

COLOCATION_PREFIX: Final = b"loc:@"
_merged_device = lru_cache(maxsize=4096)(merge_device_names)


class InlinedEffect(NamedTuple):
    """A node that waits for effects, and the outputs (bits) that come after them anyway."""

    node: Node
    before: int


class InlinedBody(NamedTuple):
    """What a copy of a function gives: its outputs, None for those not asked for, and effects.

    Who waits for the function waits for all `effects`.
    """

    returns: tuple[Output | None, ...]
    effects: tuple[InlinedEffect, ...]

    def waits(self, port: int) -> tuple[Node, ...]:
        """The effects that this output does not come after yet."""
        return tuple(e.node for e in self.effects if not e.before >> port & 1)

    def pending_effects(self, outputs: int) -> tuple[Node, ...]:
        """The effects that do not come before all of these outputs (bits)."""
        return tuple(e.node for e in self.effects if e.before & outputs != outputs or not outputs)


def inline_body(
    work: Rewriter,
    function: FunctionGraph,
    argument: Callable[[int], Output],
    scope: InlineScope,
    outputs: int,
) -> InlinedBody:
    """Copy what these outputs (bits) and the effects need.

    `argument` gives the tensor that an argument is; it is asked only for those that are read.
    """
    return _BodyCopier(work, function, argument, scope).copy(outputs)


class _BodyCopier:
    """Makes one copy."""

    def __init__(
        self,
        work: Rewriter,
        function: FunctionGraph,
        argument: Callable[[int], Output],
        scope: InlineScope,
    ) -> None:
        self.work = work
        self.function = function
        self.facts = work.plan.facts[function]
        self.argument = argument
        self.scope = scope
        self.copies: dict[Node, Node] = {}
        self.frames: dict[Any, bytes] = {}

    def copy(self, outputs: int) -> InlinedBody:
        """Copy nodes, then edges; leave the functional ones as sites to lower next."""
        members = self.work.plan.members(self.function, outputs)
        for node in members:
            self.copies[node] = self.node(node)
        for node in members:
            self.connect(node, self.copies[node])
        self.work.push(
            CallSite(self.copies[node], construct, self.scope, False, node in self.facts.guarded)
            for node in members
            if (construct := self.facts.functional_nodes.get(node)) is not None
        )
        returns = tuple(
            self.output(item) if outputs >> port & 1 else None
            for port, item in enumerate(self.function.returns)
        )
        return InlinedBody(returns, self.effects())

    def node(self, node: Node) -> Node:
        """A node's copy, without edges."""
        attrs = dict(node.attrs)
        if self.facts.guarded and self.work.roles[node.op] is Role.ENTER:
            attrs["frame_name"] = self.frame(attrs.get("frame_name", b""))
        device = _merged_device(node.device, self.scope.device)
        name = f"{self.scope.prefix}/{node.name}"
        copy = self.work.create(name, node.op, attrs, device=device)
        copy.origin = node.origin
        return copy

    def frame(self, name: bytes) -> bytes:
        """The name of one of the body's own frames in this copy."""
        if name not in self.frames:
            shown = name.decode("utf-8", "backslashreplace")
            self.frames[name] = self.work.frame(f"{self.scope.prefix}/{shown}")
        return self.frames[name]

    def connect(self, node: Node, copy: Node) -> None:
        """Set the edges into a copy, and tie it to the scope if no edge does."""
        inputs = [self.output(item) for item in node.inputs]
        held = self.facts.held.get(node, ())
        controls = [self.copies[control] for control in (*node.controls, *held)]
        if "_class" in copy.attrs:
            copy.attrs["_class"] = self.renamed_colocation(copy.attrs["_class"])
        inside = bool(controls) or any(item.node in self.copies for item in node.inputs)
        # what is lowered later does not wait for its inputs: it must be held itself
        if not controls and (not inside or node in self.facts.functional_nodes):
            controls.extend(self.scope.hold)
        loose = [item for item in inputs if item.node in self.scope.loose]
        if loose and self.work.roles[node.op] is Role.MERGE:
            pivot = self.pivot()
            inputs = [self.work.tied(item, pivot) if item in loose else item for item in inputs]
        elif (not inside and not controls and len(loose) == len(inputs)) or (
            self.scope.ordered and node in self.facts.initial_effects
        ):
            self.tie(controls)
        self.work.graph.connect(copy, inputs, controls)

    def tie(self, controls: list[Node]) -> None:
        """Add the scope's pivot, if it has one."""
        pivot = self.scope.pivot()
        if pivot is not None:
            controls.append(pivot)

    def pivot(self) -> Node:
        """The pivot of a scope that has loose nodes, and so has one."""
        pivot = self.scope.pivot()
        assert pivot is not None
        return pivot

    def output(self, item: Output) -> Output:
        """A tensor of the body in this copy."""
        if item.node.op == ARG_OP:
            return self.argument(item.node.attrs["index"])
        return Output(self.copies[item.node], item.port)

    def renamed_colocation(self, groups: Any) -> Any:
        """The nodes to be beside, by the names that they have in this copy."""
        if not isinstance(groups, tuple):
            return groups
        return tuple(self.renamed(group) for group in groups)

    def renamed(self, group: Any) -> Any:
        """One of those names."""
        if not isinstance(group, bytes) or not group.startswith(COLOCATION_PREFIX):
            return group
        name = group[len(COLOCATION_PREFIX) :].decode("utf-8", "replace")
        node = self.function.graph.nodes.get(name)
        if node is None or (node.op != ARG_OP and node not in self.copies):
            return group
        beside = self.output(Output(node)).node if node.op == ARG_OP else self.copies[node]
        return COLOCATION_PREFIX + beside.name.encode()

    def effects(self) -> tuple[InlinedEffect, ...]:
        """What whoever waits for the function has to wait for.

        A node behind a Switch of the body may be dead; a ControlTrigger waits for it all the same.
        """
        found = tuple(InlinedEffect(self.copies[node], before) for node, before in self.facts.last)
        if not self.facts.may_be_dead:
            return found
        name = f"{self.scope.prefix}/done"
        nodes = [effect.node for effect in found]
        trigger = self.work.add(name, "ControlTrigger", (), nodes, self.scope.device)
        return (InlinedEffect(trigger, 0),)


def lower_call(work: Rewriter, site: CallSite) -> None:
    """Lower a call."""
    node, function = site.node, site.functional_node.functions[0]
    count = len(function.returns)
    outputs = work.needed(site, count)
    scope = InlineScope(node.name, _call_device(site), site.pivot, site.loose, site.controls)
    inlined = inline_body(work, function, site.arguments.__getitem__, scope, outputs)
    if site.surface:
        done = inlined.pending_effects(outputs)
    else:
        done = tuple(effect.node for effect in inlined.effects)
    waits = _gather_effects(work, site, inlined, outputs)
    results = [_call_result(site, function, inlined, port, waits) for port in range(count)]
    work.finish(site, results, done)


def _gather_effects(
    work: Rewriter, site: CallSite, inlined: InlinedBody, outputs: int
) -> tuple[Node, ...]:
    """One node for all effects, where several outputs would each wait for several."""
    unsettled = inlined.pending_effects(outputs)
    if site.surface or len(unsettled) < 2 or outputs & (outputs - 1) == 0:
        return ()
    return (work.add(f"{site.node.name}/done", "NoOp", (), unsettled, site.node.device),)


def _call_result(
    site: CallSite,
    function: FunctionGraph,
    inlined: InlinedBody,
    port: int,
    gathered: tuple[Node, ...],
) -> LoweredOutput | None:
    output = inlined.returns[port]
    if output is None:
        return None
    waits = inlined.waits(port)
    waits = gathered or waits if waits else ()
    if function.returns[port].node.op == ARG_OP:
        waits = (*waits, *site.controls)
    return LoweredOutput(output, waits)


def _call_device(site: CallSite) -> str:
    """Where the body runs: for a RemoteCall where its first input says."""
    if not site.functional_node.first:
        return site.node.device
    target = remote_target(site.node)
    assert target is not None
    return merge_device_names(target, site.node.device)
