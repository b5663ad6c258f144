"""Why a fetch has no value: the Switch that killed it, or the inputs that never came."""

from __future__ import annotations

from collections.abc import Iterator

from cfgraph.errors import ExecutionError
from cfgraph.ir.graph import Node, Output
from cfgraph.runtime.executor import Executor
from cfgraph.runtime.frame_state import DEAD, MASK, Iteration
from cfgraph.runtime.plan import NodePlan

MAX_LISTED = 5


def dead_fetch(executor: Executor, item: Output) -> ExecutionError:
    """The error of a fetch that is dead, naming what killed it."""
    assert executor.root is not None
    cause = _Search(executor).killer(item, executor.root.newest)
    return ExecutionError(
        f"{item.name} is dead: {cause}",
        node=item.node,
        device=executor.device,
        hint="fetch the Merge behind both branches, or feed the predicate otherwise",
        code="CFG702",
    )


def starved_fetch(executor: Executor, item: Output) -> ExecutionError:
    """The error of a fetch that nothing computed although the run came to rest."""
    missing = list(_Search(executor).missing(item.node))
    listed = "; ".join(missing[:MAX_LISTED])
    more = f"; and {len(missing) - MAX_LISTED} more" if len(missing) > MAX_LISTED else ""
    reason = listed + more if listed else "no token reached it"
    return ExecutionError(
        f"{item.name} got no value: nothing is left to run, and {reason}",
        node=item.node,
        device=executor.device,
        hint="`cfgraph check` tells what is wrong with a graph that starves",
        code="CFG707",
    )


class _Search:
    """Walks back over what a run left in the counters of the iterations that still exist."""

    def __init__(self, executor: Executor) -> None:
        self.plans = executor.plan.nodes

    def killer(self, item: Output, iteration: Iteration) -> str:
        """What made an output dead, followed through dead inputs to a Switch that ran."""
        seen: set[Node] = set()
        while item.node not in seen and (plan := self.plans.get(item.node)):
            seen.add(item.node)
            where = self._iteration(plan, iteration)
            if where is None:
                return self._loop(plan)
            if plan.op.role == "switch" and not self._is_dead(plan, where):
                return self._switch(plan, item.port, where)
            source = self._dead_input(plan, where)
            if source is None:
                return f"{item.node.name!r} ({item.node.op}) handed on nothing"
            item = source
        return "its inputs are dead"

    def _iteration(self, plan: NodePlan, root: Iteration) -> Iteration | None:
        """The iteration that a node ran in, where there is only one such and it is still there."""
        return root if plan.frame is root.frame.plan else None

    def _is_dead(self, plan: NodePlan, where: Iteration) -> bool:
        return where.pending[plan.counter] >= DEAD

    def _switch(self, plan: NodePlan, port: int, where: Iteration) -> str:
        index = where.values[plan.base + 1]
        predicate = plan.node.inputs[1].name
        taken = str(index).lower() if plan.outputs == 2 else str(index)
        return (
            f"{plan.node.op} {plan.node.name!r} hands nothing to output {port},"
            f" as {predicate} is {taken}"
        )

    def _dead_input(self, plan: NodePlan, where: Iteration) -> Output | None:
        """A source of a dead node that was dead itself; for a loop's Exit, what its Enters got."""
        node = plan.node
        candidates = [*node.inputs, *(Output(source, 0) for source in node.controls)]
        if plan.op.role == "merge":
            return node.inputs[0]
        for item in candidates:
            source = self.plans.get(item.node)
            if source is None:
                continue
            if source.op.role == "exit" or source.frame is not where.frame.plan:
                entered = self._entered_dead(source, where)
                if entered is not None:
                    return entered
            elif self._is_dead(source, where) or self._untaken(source, item, where):
                return item
        return None

    def _untaken(self, source: NodePlan, item: Output, where: Iteration) -> bool:
        if source.op.role != "switch" or item in ():
            return False
        index = where.values[source.base + 1]
        return index is not None and int(index) != item.port

    def _entered_dead(self, plan: NodePlan, where: Iteration) -> Output | None:
        """A dead input of an Enter of the loop that `plan` leaves."""
        for other in self.plans.values():
            if other.child is plan.frame and other.frame is where.frame.plan:
                if self._is_dead(other, where):
                    return Output(other.node, 0)
        return None

    def _loop(self, plan: NodePlan) -> str:
        return f"the loop {plan.frame.name!r} never handed it out"

    def missing(self, node: Node) -> Iterator[str]:
        """For each node before `node` that waits while nothing before it does: what it waits for."""
        seen, queue = {node}, [node]
        while queue:
            here = queue.pop()
            plan = self.plans.get(here)
            if plan is None:
                continue
            sources = [item.node for item in here.inputs] + list(here.controls)
            for source in sources:
                if source not in seen:
                    seen.add(source)
                    queue.append(source)
            if plan.op.role == "exit":
                name = plan.frame.name
                yield f"{here.name!r} was live in no iteration of the loop {name!r}"
