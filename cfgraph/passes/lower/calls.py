"""Lower calls: the body of the function takes the place of the call.

    x ──▶ Call(f) ──▶ y          x ──▶ [body of f] ──▶ y

Control edges into the call hold back what of the body would run first; who waits for the call
waits for the body's side effects, and so does who reads an output that they do not precede.
"""

from __future__ import annotations

from cfgraph.ir.device_name import merge
from cfgraph.ir.function_graph import ARGUMENT, FunctionGraph
from cfgraph.ir.graph import Node
from cfgraph.passes.lower.inline import Inlined, inline
from cfgraph.passes.lower.rewriter import Result, Rewriter
from cfgraph.passes.lower.scope import Scope, Site
from cfgraph.passes.lower.survey import target_of


def lower_call(work: Rewriter, site: Site) -> None:
    """Lower a call."""
    node, function = site.node, site.construct.functions[0]
    count = len(function.returns)
    outputs = work.needed(site, count)
    scope = Scope(node.name, _device(site), site.pivot, site.loose, site.controls)
    inlined = inline(work, function, site.arguments.__getitem__, scope, outputs)
    if site.surface:
        done = inlined.unsettled(outputs)
    else:
        done = tuple(effect.node for effect in inlined.effects)
    waits = _gathered(work, site, inlined, outputs)
    results = [_result(site, function, inlined, port, waits) for port in range(count)]
    work.finish(site, results, done)


def _gathered(work: Rewriter, site: Site, inlined: Inlined, outputs: int) -> tuple[Node, ...]:
    """One node for all effects, where several outputs would each wait for several."""
    unsettled = inlined.unsettled(outputs)
    if site.surface or len(unsettled) < 2 or outputs & (outputs - 1) == 0:
        return ()
    return (work.add(f"{site.node.name}/done", "NoOp", (), unsettled, site.node.device),)


def _result(
    site: Site, function: FunctionGraph, inlined: Inlined, port: int, gathered: tuple[Node, ...]
) -> Result | None:
    output = inlined.returns[port]
    if output is None:
        return None
    waits = inlined.waits(port)
    waits = gathered or waits if waits else ()
    if function.returns[port].node.op == ARGUMENT:
        waits = (*waits, *site.controls)
    return Result(output, waits)


def _device(site: Site) -> str:
    """Where the body runs: for a RemoteCall where its first input says."""
    if not site.construct.first:
        return site.node.device
    target = target_of(site.node)
    assert target is not None
    return merge(target, site.node.device)
