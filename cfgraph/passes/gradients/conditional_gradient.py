"""Gradients of conditionals: a Merge becomes Switches, a Switch a Merge.

    Switch(x, p): dx = Merge(d false, d true)        Merge(a, b): da = Switch(dz, p):0, db = …:1

The gradient of a live tensor is live, and the gradient of a dead tensor is dead. If only one side
of a Switch is used, the other side contributes zeros that are live on that side alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from cfgraph.analysis.loops.branch_decisions import BranchDecision
from cfgraph.analysis.loops.path_conditions import PathConditions
from cfgraph.errors import Unsupported
from cfgraph.ir.graph import Node, Output
from cfgraph.passes.gradients.scope import GradientScope

_BINARY: Final = 2


def switch_gradient(
    scope: GradientScope,
    guards: PathConditions,
    node: Node,
    output_gradients: Sequence[Output | None],
) -> Output | None:
    """The gradient of a Switch's data, from the gradients of its outputs."""
    if not any(output_gradients):
        return None
    sides = list(output_gradients)
    missing = [port for port, dx in enumerate(sides) if dx is None]
    if len(sides) == _BINARY and scope is scope.top and not _is_resource(node.inputs[0]):
        for port in missing:
            sides[port] = scope.zeros_like(node.output(port))
    elif missing:
        # all sides share the zeros that one Switch forwards
        zeros = scope.zeros_like(node.inputs[0])
        chosen = scope.guarded_by(zeros, [guards.decision(node.output(missing[0]))]).node
        for port in missing:
            sides[port] = chosen.output(port)
    return scope.add("Merge", sides, "Merge", {})


def merge_gradient(
    scope: GradientScope, guards: PathConditions, node: Node, slot: int, dz: Output
) -> Output:
    """The gradient of one input of a Merge."""
    inner, outer = guards.of_output(node.inputs[slot]), guards.shared_by_inputs(node)
    is_decided = inner.is_decided_beyond(outer)
    if is_decided and inner is not outer and guards.alone(node, slot):
        return scope.guarded_within(dz, inner, outer)
    chosen = scope.add("Equal", (node.output(1), slot), "chosen", {})
    dx = scope.add("Switch", (dz, chosen), "Switch", {}).node.output(1)
    if not is_decided:
        return dx
    # the Merge may take another input although this one is live
    zeros = scope.add("Switch", (scope.zeros_like(node.inputs[slot]), chosen), "Switch", {})
    return scope.add("Merge", (zeros, dx), "Merge", {})


def merge_with_zeros(
    scope: GradientScope, x: Output, dx: Output, decisions: Iterable[BranchDecision]
) -> Output:
    """Extend a gradient that is live only under these decisions with zeros elsewhere."""
    zeros, layers = scope.zeros_like(x), []
    for decision in decisions:
        if not decision.test.branches:
            message = f"no predicate determines whether the reader of {x.name} is live"
            raise Unsupported(message, node=decision.output.node, code="CFG505")
        other_ports = [
            port for port in range(decision.test.branches) if port != decision.output.port
        ]
        chosen = scope.guarded_by(zeros, [decision])
        layers.append([Output(chosen.node, port) for port in other_ports])
        zeros = chosen
    for other_zeros in reversed(layers):
        dx = scope.add("Merge", [dx, *other_zeros], "Merge", {})
    return dx


def _is_resource(x: Output) -> bool:
    return x.dtype is not None and x.dtype.kind == "resource"
