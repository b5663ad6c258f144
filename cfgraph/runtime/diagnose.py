"""Why a fetch has no value: the Switch that killed it, or the inputs that never came.

Both answers are read off the counters that the run left.
"""

from __future__ import annotations

from itertools import islice

from cfgraph.analysis.transfers import rendezvous_key
from cfgraph.errors import ExecutionError
from cfgraph.ir.graph import Node, Output
from cfgraph.runtime.at_rest import AtRest, Instance
from cfgraph.runtime.plan import NodePlan

MAX_LISTED = 5


def dead_fetch(rest: AtRest, item: Output) -> ExecutionError:
    """The error of a fetch that is dead, naming what killed it."""
    return ExecutionError(
        f"{item.name} is dead: {_Killer(rest, item.node).of(item)}",
        node=item.node,
        device=rest.homes[item.node].device,
        hint="fetch the Merge behind both branches, or feed the predicate otherwise",
        code="CFG702",
    )


def starved_fetch(rest: AtRest, item: Output) -> ExecutionError:
    """The error of a fetch that nothing computed although the run came to rest."""
    here, plan = rest.root(item.node), rest.plan(item.node)
    assert plan is not None
    if plan.frame is here.frame:
        found = list(islice(rest.missing(here, plan), 2 * MAX_LISTED))
    else:
        found = list(islice(rest.handed_out(here, plan), 2 * MAX_LISTED))
    more = f"; and {len(found) - MAX_LISTED} more" if len(found) > MAX_LISTED else ""
    reason = "; ".join(found[:MAX_LISTED]) + more if found else "no token reached it"
    return ExecutionError(
        f"{item.name} got no value, and nothing is left to run: {reason}",
        node=item.node,
        device=here.executor.device,
        hint="`cfgraph check` tells what makes a graph starve",
        code="CFG707",
    )


class _Killer:
    """Follows the deadness of a tensor outside of loops to where it began."""

    def __init__(self, rest: AtRest, node: Node) -> None:
        self.rest = rest
        self.here = rest.root(node)

    def of(self, item: Output) -> str:
        """What made an output dead, followed through dead inputs to a Switch that ran."""
        seen: set[Node] = set()
        while item.node not in seen:
            seen.add(item.node)
            plan = self.rest.plan(item.node)
            if plan is None:
                break
            if plan.frame is not self.here.frame:
                entered = [one for one in self.rest.enters(plan.frame) if self.here.died(one)]
                if not entered:
                    return f"{item.node.name!r} was live in no iteration of {plan.frame.name!r}"
                item = Output(entered[0].node, 0)
            elif plan.op.role == "switch" and not self.here.died(plan):
                return _switch(self.here, plan, item.port)
            else:
                item = self._sent(plan) or self._dead_input(plan) or item
        return f"{item.node.name!r} ({item.node.op}) handed on nothing"

    def _sent(self, plan: NodePlan) -> Output | None:
        """What the Send of a Recv read, on the other device; None for what is no Recv."""
        if plan.op.role != "recv" or self.here.died(plan):
            return None
        send = self.rest.sends.get(rendezvous_key(plan.node))
        if send is None:
            return None
        self.here = self.rest.root(send.node)
        return send.node.inputs[0]

    def _dead_input(self, plan: NodePlan) -> Output | None:
        """The first source that gave a node a dead token; an Exit where no other did."""
        sources = [*plan.node.inputs, *(Output(node, -1) for node in plan.node.controls)]
        loops: list[Output] = []
        for item in sources:
            source = self.rest.plan(item.node)
            if source is None:
                continue
            if source.frame is not self.here.frame:
                loops.append(item)
            elif self._is_dead(self.here, source, item.port):
                return item
        return loops[0] if loops else None

    def _is_dead(self, here: Instance, source: NodePlan, port: int) -> bool:
        """True if an output (-1: the control edges) was dead; of an Exit nobody knows."""
        if here.died(source) or port < 0:
            return here.died(source)
        if source.op.role == "switch":
            index = int(here.iteration.values[source.base + 1])
            last = source.outputs - 1
            return port != (index if 0 <= index <= last else last)
        send = (
            self.rest.sends.get(rendezvous_key(source.node)) if source.op.role == "recv" else None
        )
        if send is None:
            return False
        there, item = self.rest.root(send.node), send.node.inputs[0]
        sent = self.rest.plan(item.node)
        return sent is not None and (
            sent.frame is not there.frame or self._is_dead(there, sent, item.port)
        )


def _switch(here: Instance, plan: NodePlan, port: int) -> str:
    index = here.iteration.values[plan.base + 1]
    taken = str(bool(index)).lower() if plan.outputs == 2 else str(index)
    predicate = plan.node.inputs[1].name
    return (
        f"{plan.node.op} {plan.node.name!r} hands nothing to output {port},"
        f" as {predicate} is {taken}"
    )
