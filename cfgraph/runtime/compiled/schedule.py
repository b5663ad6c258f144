"""Order of the generated code: a schedule that opens few conditionals.

The code of a path condition is in nested conditionals, one for each of its decisions. A frame with
a LoopCond has three sections, which the schedule writes one after the other: before the test, the
exit, and the body. The decision of the test is the first of the last two, and has no conditional.

The items of a frame are its nodes, its tests, the inputs of its Merges, and its child frames. An
item is ready once everything that it needs has been written. Ready items of the open conditional
come first, in the topological order of the graph, then those in its branches; a branch is left when
nothing in it is ready.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from heapq import heappop, heappush
from typing import Final

from cfgraph.analysis.loops.branch_decisions import BranchDecision, BranchTest, PathCondition
from cfgraph.analysis.loops.frame import Frame
from cfgraph.ir import dtypes
from cfgraph.ir.graph import Node, Output
from cfgraph.runtime.compiled.plan_liveness import FrameInfo, PlanLiveness
from cfgraph.runtime.engine.plan import NodePlan
from cfgraph.runtime.program import Constant, Value

_BINARY: Final = 2
# code of a loop, which is written without recursion: it yields the code of its inner loops
WriterCoroutine = Generator["WriterCoroutine", None, None]


class Item:
    """A piece of generated code, and the items that need it first.

    A silent item has no code and is done once it is ready, whatever branch is open.
    """

    __slots__ = ("dependents", "index", "live", "missing", "silent", "write")

    def __init__(
        self,
        index: int,
        live: PathCondition,
        write: Callable[[], WriterCoroutine | None],
        *,
        silent: bool = False,
    ) -> None:
        self.index = index
        self.live = live
        self.write = write
        self.silent = silent
        self.missing = 0
        self.dependents: list[Item] = []

    def __lt__(self, other: Item) -> bool:
        return self.index < other.index

    def needs(self, source: Item | None) -> None:
        """Schedule this item after another one, if there is one."""
        if source is not None:
            source.dependents.append(self)
            self.missing += 1


class BranchQueue:
    """The ready items of a path condition, and the inner branches that have some, in order.

    `outer` is None for a section.
    """

    __slots__ = ("active", "condition", "is_open", "outer", "ready")

    def __init__(self, condition: PathCondition, outer: BranchQueue | None) -> None:
        self.condition = condition
        self.outer = outer
        self.is_open = False
        self.ready: list[Item] = []
        self.active: dict[tuple[BranchTest, int], BranchQueue] = {}

    @property
    def decision(self) -> BranchDecision:
        """The decision that leads to this branch."""
        assert self.condition.decision is not None
        return self.condition.decision

    def push(self, item: Item) -> None:
        """Add a ready item, and this branch to the active ones of each outer branch."""
        heappush(self.ready, item)
        branch = self
        while branch.outer is not None and not branch.is_open:
            key = branch.decision[:2]
            if key in branch.outer.active:
                return
            branch.outer.active[key] = branch
            branch = branch.outer

    def pop(self, last: BranchDecision | None) -> BranchQueue | None:
        """Remove the branch to open next: the opposite of the last one, or the first."""
        if last is not None and last.test.branches == _BINARY:
            opposite = self.active.pop((last.test, 1 - last.branch), None)
            if opposite is not None:
                return opposite
        return self.active.pop(next(iter(self.active))) if self.active else None


class Scheduler:
    """The branches of one frame. `open_branch` and `close_branch` write headers.

    The decision of the test of a loop has no conditional.
    """

    def __init__(
        self,
        open_branch: Callable[[BranchDecision], None],
        other_branch: Callable[[], None],
        close_branch: Callable[[], None],
        loop_test: BranchTest | None,
    ) -> None:
        self.open_branch = open_branch
        self.other_branch = other_branch
        self.close_branch = close_branch
        self.loop_test = loop_test
        self.done = 0
        self._branches: dict[PathCondition, BranchQueue] = {}

    def start(self, items: Iterable[Item]) -> None:
        """Queue the items that need nothing."""
        self.release([item for item in items if not item.missing])

    def release(self, ready: list[Item]) -> None:
        """Queue items that have become ready; write silent ones at once."""
        while ready:
            item = ready.pop()
            if item.silent:
                item.write()
                self._finish(item, ready)
            else:
                self._branch(item.live).push(item)

    def _branch(self, condition: PathCondition) -> BranchQueue:
        branches, missing = self._branches, list[PathCondition]()
        current: PathCondition | None = condition
        while current is not None and current not in branches:
            missing.append(current)
            decision = current.decision
            is_section = decision is None or decision.test is self.loop_test
            current = None if is_section else current.outer
        branch = branches[current] if current is not None else None
        for inner in reversed(missing):
            branch = branches[inner] = BranchQueue(inner, branch)
        return branches[condition]

    def _finish(self, item: Item, ready: list[Item]) -> None:
        self.done += 1
        for dependent in item.dependents:
            dependent.missing -= 1
            if not dependent.missing:
                ready.append(dependent)

    def run(self, section: PathCondition) -> WriterCoroutine:
        """Write everything in a section that becomes ready."""
        # of each open branch, the one inside it that an `else` may follow
        trail, previous = [self._branch(section)], list[BranchDecision | None]([None])
        ready: list[Item] = []
        while trail:
            branch = trail[-1]
            queue = branch.ready
            while queue:
                item = heappop(queue)
                inner = item.write()
                if inner is not None:
                    yield inner
                self._finish(item, ready)
                if ready:
                    self.release(ready)
                if not item.silent:
                    previous[-1] = None
            last = previous[-1]
            following = branch.pop(last)
            if following is not None:
                decision = following.decision
                if last is not None and _are_opposite(last, decision):
                    self.other_branch()
                    previous[-1] = None
                else:
                    self.open_branch(decision)
                    previous[-1] = decision
                following.is_open = True
                trail.append(following)
                previous.append(None)
                continue
            trail.pop().is_open = False
            previous.pop()
            if trail:
                self.close_branch()


def _are_opposite(a: BranchDecision, b: BranchDecision) -> bool:
    """True if exactly one of two branches is taken."""
    return a.test is b.test and a.branch != b.branch and a.test.branches == _BINARY


class LoopInvariants:
    """Loop-invariant nodes, and the sections that their code moves to.

    Work of every iteration precedes the loop, in its `preheader`. Work of the body, which may never
    run, and whose errors are those of an iteration, is in the `first_iteration`.
    """

    def __init__(self, liveness: PlanLiveness, values: Mapping[Output, Value]) -> None:
        self.nodes: set[Node] = set()
        self.preheader: dict[Frame, PathCondition] = {}
        self.first_iteration: dict[Frame, PathCondition] = {}
        self._liveness = liveness
        self._values = values
        self._early: set[Node] = set()  # nodes of a body that need nothing of it

    def section(
        self, plan: NodePlan, info: FrameInfo, live: PathCondition, *, silent: bool
    ) -> PathCondition:
        """The section for a pure node if it is invariant, else its condition."""
        node, known = plan.node, self.nodes
        if live is info.body:
            return self._section_of_body(plan, info, live, silent=silent)
        if (
            live is not self._liveness.always
            or plan.op.role is not None
            or any(output.node not in known for output in node.inputs)
            or any(control not in known for control in node.controls)
        ):
            return live
        known.add(node)
        return self.preheader.setdefault(info.frame, PathCondition())

    def _section_of_body(
        self, plan: NodePlan, info: FrameInfo, live: PathCondition, *, silent: bool
    ) -> PathCondition:
        node, known, values = plan.node, self.nodes, self._values
        if not all(self._is_early(control, info) for control in node.controls):
            return live
        if silent and all(self._is_early(output.node, info) for output in node.inputs):
            self._early.add(node)
        is_invariant = plan.op.role is None and all(
            output.node in known
            or (isinstance(values.get(output), Constant) and self._is_early(output.node, info))
            for output in node.inputs
        )
        if not is_invariant or not (
            silent or all(map(_is_array, map(node.output, range(plan.outputs))))
        ):
            return live
        known.add(node)
        if silent:
            return live
        return self.first_iteration.setdefault(info.frame, PathCondition())

    def _is_early(self, node: Node, info: FrameInfo) -> bool:
        """True for a node that has run when the other work of a body begins."""
        if node in self.nodes or node in self._early:
            return True
        return self._liveness.of_control.get(node) is self._liveness.always


def _is_array(output: Output) -> bool:
    """False for a value that kernels change in place while nothing else refers to it."""
    return output.dtype not in (None, dtypes.variant, dtypes.resource)
