"""Inline a function body into the graph, and lower calls with it.

    x ──▶ Call(f) ──▶ y          x ──▶ [body of f] ──▶ y

Control edges into the call delay the nodes of the body that would run first. Nodes that wait for
the call wait for the side effects of the body, and so do readers of outputs that do not follow
these effects.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from cfgraph.ir.devices import merge_device_names
from cfgraph.ir.function_graph import ARG_OP, FunctionGraph
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import Role
from cfgraph.passes.lower.functional_node import CallSite, InlineScope
from cfgraph.passes.lower.plan import remote_target
from cfgraph.passes.lower.rewriter import LoweredOutput, Rewriter
from cfgraph.passes.node_copier import NodeCopier

_merged_device = lru_cache(maxsize=4096)(merge_device_names)


class InlinedEffect(NamedTuple):
    """A node that follows effects, and the outputs (bits) that follow these effects anyway."""

    node: Node
    ordered_outputs: int


class InlinedBody(NamedTuple):
    """A copy of a function: its outputs, None for those not requested, and its effects.

    A node that waits for the function waits for all `effects`.
    """

    returns: tuple[Output | None, ...]
    effects: tuple[InlinedEffect, ...]

    def awaited_effects(self, port: int) -> tuple[Node, ...]:
        """The effects that an output does not follow yet."""
        return tuple(e.node for e in self.effects if not e.ordered_outputs >> port & 1)

    def pending_effects(self, outputs: int) -> tuple[Node, ...]:
        """The effects that not all of these outputs (bits) follow."""
        return tuple(
            e.node for e in self.effects if e.ordered_outputs & outputs != outputs or not outputs
        )


def inline_body(
    rewriter: Rewriter,
    function: FunctionGraph,
    argument: Callable[[int], Output],
    scope: InlineScope,
    outputs: int,
) -> InlinedBody:
    """Copy the nodes that these outputs (bits) and the effects depend on.

    `argument` returns the tensor that replaces an argument; it is called for used arguments only.
    """
    return _BodyCopier(rewriter, function, argument, scope).copy_body(outputs)


class _BodyCopier(NodeCopier):
    """Copies a function once."""

    def __init__(
        self,
        rewriter: Rewriter,
        function: FunctionGraph,
        argument: Callable[[int], Output],
        scope: InlineScope,
    ) -> None:
        super().__init__(rewriter.graph, rewriter.added)
        self.rewriter = rewriter
        self.function = function
        self.summary = rewriter.plan.summaries[function]
        self.argument = argument
        self.scope = scope

    def copy_body(self, outputs: int) -> InlinedBody:
        """Copy nodes, then edges; push functional nodes as call sites to lower next."""
        members = self.rewriter.plan.members(self.function, outputs)
        for node in members:
            self.copy_member(node)
        for node in members:
            self.connect(node, self.copies[node])
        self.rewriter.push(
            CallSite(
                self.copies[node],
                functional_node,
                self.scope,
                False,
                node in self.summary.guarded_nodes,
            )
            for node in members
            if (functional_node := self.summary.functional_nodes.get(node)) is not None
        )
        returns = tuple(
            self.output(x) if outputs >> port & 1 else None
            for port, x in enumerate(self.function.returns)
        )
        return InlinedBody(returns, self.effects())

    def copy_member(self, node: Node) -> None:
        """Copy a node without its edges."""
        attrs, depth = node.attrs, self.summary.drawing.get(node)
        if depth is not None:
            attrs = {**attrs, **self.scope.streams.annotations(node, depth)}
        device = _merged_device(node.device, self.scope.device)
        self.copy(node, f"{self.scope.prefix}/{node.name}", attrs, device)

    def new_frame_name(self, name: bytes) -> bytes:
        """A frame name of the call site that no other loop has."""
        shown = name.decode("utf-8", "backslashreplace")
        return self.rewriter.unique_frame_name(f"{self.scope.prefix}/{shown}")

    def connect(self, node: Node, copy: Node) -> None:
        """Connect a copy, to the pivot of the scope if to nothing else in it."""
        inputs = [self.output(x) for x in node.inputs]
        awaited = self.summary.awaited_inputs.get(node, ())
        controls = [self.copies[control] for control in (*node.controls, *awaited)]
        self.rename_groups(node, self.function.graph.nodes)
        has_inner_source = bool(controls) or any(x.node in self.copies for x in node.inputs)
        # a node that is lowered later does not wait for its inputs
        if not controls and (not has_inner_source or node in self.summary.functional_nodes):
            controls.extend(self.scope.start_after)
        always_live = [x for x in inputs if x.node in self.scope.always_live]
        if always_live and ROLES[node.op] is Role.MERGE:
            pivot = self.pivot()
            inputs = [self.rewriter.with_pivot(x, pivot) if x in always_live else x for x in inputs]
        elif (not has_inner_source and not controls and len(always_live) == len(inputs)) or (
            self.scope.orders_effects and node in self.summary.initial_effects
        ):
            self.add_pivot(controls)
        self.graph.connect(copy, inputs, controls)

    def add_pivot(self, controls: list[Node]) -> None:
        """Add the pivot of the scope, if it has one."""
        pivot = self.scope.pivot()
        if pivot is not None:
            controls.append(pivot)

    def pivot(self) -> Node:
        """The pivot of a scope with always-live nodes; such a scope has one."""
        pivot = self.scope.pivot()
        assert pivot is not None
        return pivot

    def output(self, tensor: Output) -> Output:
        """A tensor of the body in this copy."""
        if tensor.node.op == ARG_OP:
            return self.argument(tensor.node.attrs["index"])
        return super().output(tensor)

    def copied_name(self, node: Node | None) -> str | None:
        """The name of the copy of a node, or of the source of an argument."""
        if node is not None and node.op == ARG_OP:
            return self.output(node.output()).node.name
        return super().copied_name(node)

    def effects(self) -> tuple[InlinedEffect, ...]:
        """The effects that a node which waits for the function has to wait for.

        An effect downstream of a Switch may be dead; a ControlTrigger waits for it even then.
        """
        effects = tuple(
            InlinedEffect(self.copies[node], outputs)
            for node, outputs in self.summary.final_effects
        )
        if not self.summary.may_be_dead:
            return effects
        name = f"{self.scope.prefix}/done"
        nodes = [effect.node for effect in effects]
        trigger = self.rewriter.add(name, "ControlTrigger", (), nodes, self.scope.device)
        return (InlinedEffect(trigger, 0),)


def lower_call(rewriter: Rewriter, site: CallSite) -> None:
    """Lower a call: inline the function."""
    node, function = site.node, site.functional_node.functions[0]
    count = len(function.returns)
    outputs = rewriter.needed_outputs(site, count)
    scope = InlineScope(
        node.name,
        _call_device(site),
        site.pivot,
        site.always_live,
        site.controls,
        streams=site.streams(),
    )
    inlined = inline_body(rewriter, function, site.arguments.__getitem__, scope, outputs)
    if site.is_top_level:
        completed = inlined.pending_effects(outputs)
    else:
        completed = tuple(effect.node for effect in inlined.effects)
    gathered = _gather_effects(rewriter, site, inlined, outputs)
    results = [_call_result(site, function, inlined, port, gathered) for port in range(count)]
    rewriter.replace(site, results, completed)


def _gather_effects(
    rewriter: Rewriter, site: CallSite, inlined: InlinedBody, outputs: int
) -> tuple[Node, ...]:
    """A single node for all effects, if several outputs would each wait for several."""
    pending = inlined.pending_effects(outputs)
    if site.is_top_level or len(pending) < 2 or outputs & (outputs - 1) == 0:
        return ()
    return (rewriter.add(f"{site.node.name}/done", "NoOp", (), pending, site.node.device),)


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
    awaited = inlined.awaited_effects(port)
    awaited = gathered or awaited if awaited else ()
    if function.returns[port].node.op == ARG_OP:
        awaited = (*awaited, *site.controls)
    return LoweredOutput(output, awaited)


def _call_device(site: CallSite) -> str:
    """The device of the body; a RemoteCall names it in its first input."""
    if not site.functional_node.first_argument:
        return site.node.device
    target = remote_target(site.node)
    assert target is not None
    return merge_device_names(target, site.node.device)
