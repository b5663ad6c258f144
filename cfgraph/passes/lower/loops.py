"""Lower `While`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cfgraph.analysis.loops.frames import DEFAULT_PARALLEL_ITERATIONS
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.passes.lower.conditionals import as_bool
from cfgraph.passes.lower.inline import inline
from cfgraph.passes.lower.loop import Counter, Loop
from cfgraph.passes.lower.rewriter import Result, Rewriter
from cfgraph.passes.lower.scope import Site


def lower_while(work: Rewriter, site: Site) -> None:
    """Lower a While: one trip of the loop machine for each variable that the body changes."""
    condition, body = site.construct.functions
    passes = work.survey.facts[body].passes
    changed = [place for place, passed in enumerate(passes) if passed != place]
    read = work.survey.facts[condition].arguments(condition)
    lead = next((index for index, place in enumerate(changed) if place in read), 0)
    loop = Loop(work, site, parallel_iterations(site.node), lead)
    starts = {
        place: loop.enter(site.arguments[place], body.input_types[place]) for place in changed
    }
    counter = None if changed else Counter(loop)

    asked = inline(
        work, condition, arguments(loop, body.input_types, starts), loop.condition_scope(), 1
    )
    assert asked.returns[0] is not None
    going_on = as_bool(work, site, asked.returns[0], condition.output_types[0])
    waits = list(asked.waits(0))
    if work.survey.facts[body].last:
        waits.append(loop.merges[lead])
    values = loop.decide(going_on, waits)

    inside = dict(zip(changed, values, strict=False))
    outputs = sum(1 << place for place in changed)
    done = inline(work, body, arguments(loop, body.input_types, inside), loop.body_scope(), outputs)
    following = [item for place in changed if (item := done.returns[place]) is not None]
    effects = done.waits(changed[lead] if changed else 0)
    loop.close([counter.next(values[0])] if counter else following, effects)
    leave(work, site, loop, {place: index for index, place in enumerate(changed)})


def leave(work: Rewriter, site: Site, loop: Loop, variables: Mapping[int, int]) -> None:
    """Hand out the results: `variables` says which variable of the loop an output is.

    What the loop does not change is its own result. Where the loop has effects, or waits for some,
    a reader of it must wait for the loop.
    """
    types, arguments = site.construct.output_types, site.arguments
    if site.surface and len(types) == 1 and variables:
        loop.exit_as(site.node, variables[0])
        return
    outputs = work.needed(site, len(types))
    ordered = bool(site.controls) or any(
        work.survey.facts[function].last for function in site.construct.functions
    )
    ports = [port for port in range(len(types)) if outputs >> port & 1]
    exits = {port: loop.exit(variables[port]) for port in ports if port in variables}
    unchanged = [port for port in ports if port not in variables]
    over: list[Node] = list(exits.values())[:1]
    if not over and (site.surface or site.node.control_readers or (unchanged and ordered)):
        over = [loop.exit(loop.lead)]
    results: list[Result | None] = [None] * len(types)
    for port, node in exits.items():
        results[port] = Result(Output(node))
    for port in unchanged:
        results[port] = Result(arguments[port], tuple(over) if ordered else ())
    work.finish(site, results, over)


def arguments(
    loop: Loop, types: tuple[DType, ...], variables: Mapping[int, Output]
) -> Callable[[int], Output]:
    """The arguments of condition or body: a variable, or what the loop does not change."""

    def argument(place: int) -> Output:
        value = variables.get(place)
        if value is not None:
            return value
        return loop.constant(loop.site.arguments[place], types[place])

    return argument


def parallel_iterations(node: Node) -> int:
    """How many iterations of a functional loop may run at once."""
    said = node.attrs.get("parallel_iterations")
    return said if isinstance(said, int) else DEFAULT_PARALLEL_ITERATIONS
