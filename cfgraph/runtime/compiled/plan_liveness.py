"""Liveness of the nodes of a plan: the path condition of each node, in its frame.

One pass in topological order. In a loop, the decision of its LoopCond is the first one. What path
conditions cannot express raises NotCompiled; the exact deadness analysis answers what the decisions
leave open, and is computed only then.
"""

from __future__ import annotations

from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Final

from cfgraph.analysis.loops.alternatives import Alternatives, whole
from cfgraph.analysis.loops.branch_decisions import BranchDecision, BranchTest, PathCondition
from cfgraph.analysis.loops.frame import Frame
from cfgraph.analysis.loops.path_conditions import forwarded_input
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.role import (
    CONTROL_TRIGGER,
    ENTER,
    EXIT,
    LOOP_COND,
    MERGE,
    NEXT_ITERATION,
    RECV,
    SEND,
    SWITCH,
)
from cfgraph.ops.opdef.op import may_write
from cfgraph.runtime.engine.plan import NodePlan, Plan
from cfgraph.runtime.program import NotCompiled

# late imports: few runs need the exact analysis, which loads in 20 ms

# a Merge whose inputs are compared in pairs, and nodes that the exact analysis visits
_MAX_PAIRED: Final = 64
_MAX_ANALYZED: Final = 50_000

if TYPE_CHECKING:
    from cfgraph.analysis.deadness.deadness import Deadness


class FrameInfo:
    """The sections of a loop, and the condition in the parent under which the frame is entered.

    `tests` has the tests by predicate and number of branches.
    """

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.loop_test: BranchTest | None = None
        self.body: PathCondition | None = None
        self.exit: PathCondition | None = None
        self.entry: PathCondition | None = None
        self.tests: dict[tuple[Output, int], BranchTest] = {}

    @property
    def is_loop(self) -> bool:
        """True for a frame with a LoopCond."""
        return self.loop_test is not None

    def divide(self, test: BranchTest, always: PathCondition) -> None:
        """Make the body and the exit of a loop with this test."""
        self.loop_test = test
        self.exit, self.body = (
            always.also(BranchDecision(test, branch, test.source)) for branch in range(2)
        )

    def section(self, live: PathCondition) -> PathCondition | None:
        """The body or the exit of a loop if a condition is in it, None if it is before the test."""
        first = live.first(1)
        return first if first in (self.body, self.exit) else None


class PlanLiveness:
    """The path conditions of a plan. `live` is the one under which each node runs.

    `always` is true in each iteration of a frame, `never` stands for all that are contradictory.
    In the frame of the readers, `of_control` has the condition of the control edges of a node, and
    of its outputs unless they are `switched`. `test_of` has the test of each Switch, `flag_of` that
    of a Merge whose condition is no conjunction. Raises NotCompiled for a structure that generated
    code cannot represent.
    """

    def __init__(self, graph: Graph, plan: Plan) -> None:
        self.graph, self.plan = graph, plan
        self.frames = plan.frames
        self.fed = frozenset(plan.feeds.values())
        self.always: Final = PathCondition()
        self.never: Final = PathCondition()
        self.live: dict[Node, PathCondition] = {}
        self.of_control: dict[Node, PathCondition] = {}
        self.switched: dict[Output, PathCondition] = {}
        # an output of each condition
        self.witness: dict[PathCondition, Output] = {}
        self.info = {frame: FrameInfo(frame) for frame in self.frames.all}
        self.root = self.info[self.frames.root]
        self.flag_of: dict[Node, BranchTest] = {}
        self.test_of: dict[Node, BranchTest] = {}
        if self.frames.cycles:
            raise NotCompiled("nodes wait for each other in a cycle", self.frames.cycles[0][0])
        self._divide_loops()
        self._visit_all()
        self._check_frames()

    @cached_property
    def deadness(self) -> Deadness:
        """The exact analysis of the nodes of the plan."""
        from cfgraph.analysis.deadness.deadness import deadness

        return deadness(self.graph, list(self.plan.nodes), self.fed)

    def of_output(self, output: Output) -> PathCondition:
        """The condition of an output, in the frame of its readers."""
        if output in self.fed:
            return self.always
        return self.switched.get(output) or self.of_control[output.node]

    def both(self, a: PathCondition, b: PathCondition, info: FrameInfo) -> PathCondition:
        """The condition of what needs two conditions; the section of a loop remains first."""
        if a is self.never or b is self.never:
            return self.never
        if info.is_loop and info.section(b) is not None:
            a, b = b, a
        union = a.union(b)
        return self.never if union.is_contradictory else union

    def _is_narrower(self, a: PathCondition, b: PathCondition) -> bool:
        """True if a condition has all decisions of another, and more; the narrowest is `never`."""
        if a is self.never or b is self.never:
            return b is not self.never
        return a is not b and a.implies(b)

    def _divide_loops(self) -> None:
        for info in self.info.values():
            frame = info.frame
            if frame.loop_conds:
                if len(frame.loop_conds) > 1:
                    raise NotCompiled("the loop has several LoopConds", frame.loop_conds[1])
                cond = frame.loop_conds[0]
                predicate = self.stripped(cond.inputs[0])
                test = info.tests[predicate, 2] = BranchTest(predicate, 2)
                info.divide(test, self.always)
            elif frame.next_iterations:
                raise NotCompiled("the loop has no LoopCond", frame.next_iterations[0])

    def stripped(self, predicate: Output) -> Output:
        """The output that a predicate forwards unchanged."""
        nodes, fed = self.plan.nodes, self.fed
        while predicate not in fed and not nodes[predicate.node].deref_slots:
            source = forwarded_input(predicate)
            if source is None:
                break
            predicate = source
        return predicate

    def _visit_all(self) -> None:
        frame_of, nodes, live = self.frames.of, self.plan.nodes, self.live
        always, both = self.always, self.both
        of_control, switched, fed = self.of_control, self.switched, self.fed
        if self.plan.is_straight_line:
            self.live = self.of_control = dict.fromkeys(self.frames.order, always)
            return
        for node in self.frames.order:
            plan, info = nodes[node], self.info[frame_of[node]]
            role = plan.op.role
            current = always
            if role is MERGE:
                current = self._merge(plan, info)
            elif role is not CONTROL_TRIGGER:
                for output in node.inputs:
                    source = switched.get(output) or (
                        always if fed and output in fed else of_control[output[0]]
                    )
                    if source is not current and source is not always:
                        current = source if current is always else both(current, source, info)
                for control in node.controls:
                    source = of_control.get(control, always)
                    if source is not current and source is not always:
                        current = source if current is always else both(current, source, info)
            live[node] = of_control[node] = current
            if role is not None:
                self._visit_role(plan, info, current)

    def _visit_role(self, plan: NodePlan, info: FrameInfo, current: PathCondition) -> None:
        node, role = plan.node, plan.op.role
        if role is SWITCH:
            self._switch(plan, info, current)
        elif role is ENTER:
            self._enter(node, current)
        elif role is EXIT:
            self._exit(node, info, current)
        elif role is LOOP_COND:
            if current is not self.always:
                raise NotCompiled("the LoopCond is not live in every iteration", node)
        elif role in (SEND, RECV):
            raise NotCompiled("the run has several devices", node)

    def _switch(self, plan: NodePlan, info: FrameInfo, current: PathCondition) -> None:
        node = plan.node
        predicate = self.stripped(node.inputs[1])
        test = info.tests.get((predicate, plan.outputs))
        if test is None:
            test = info.tests[predicate, plan.outputs] = BranchTest(predicate, plan.outputs)
        self.test_of[node] = test
        if current is self.never:
            return
        for port in range(plan.outputs):
            output = Output(node, port)
            if output not in self.fed:
                branch = self._branch(info, current, BranchDecision(test, port, output))
                self.switched[output] = branch
                if branch is not self.always:
                    self.witness.setdefault(branch, output)

    def _branch(
        self, info: FrameInfo, current: PathCondition, decision: BranchDecision
    ) -> PathCondition:
        """The condition of a Switch's output."""
        if decision.test is info.loop_test:
            return self.both(current, self.always.also(decision), info)
        branch = current.also(decision)
        return self.never if branch.is_contradictory else branch

    def _enter(self, node: Node, current: PathCondition) -> None:
        inner = self.info[self.frames.of_outputs[node]]
        self.of_control[node] = self.always
        if inner.entry is None or self._is_narrower(current, inner.entry):
            inner.entry = current

    def _exit(self, node: Node, info: FrameInfo, current: PathCondition) -> None:
        expected = info.exit if info.is_loop else self.always
        if current is not expected:
            raise NotCompiled("an Exit does not follow the test of its loop", node)
        assert info.entry is not None
        self.of_control[node] = info.entry

    def _merge(self, plan: NodePlan, info: FrameInfo) -> PathCondition:
        node, never = plan.node, self.never
        if any(map(self._is_back_edge, node.inputs)):
            self._require_loop_merge(node)
            return self.always
        sources = {output: self.of_output(output) for output in node.inputs}
        if len(sources) < len(node.inputs):
            raise NotCompiled("a Merge has two live inputs", node)
        alive = {output: live for output, live in sources.items() if live is not never}
        if not alive:
            return never
        if len(alive) == 1:
            return next(iter(alive.values()))
        outer = whole(list(alive.values()))
        if outer is not None:
            return outer
        inputs = Alternatives(list(alive.values()))
        if inputs.is_exhaustive and inputs.are_exclusive():
            return inputs.common
        return self._flagged(node, info, alive, inputs.common)

    def _is_back_edge(self, output: Output) -> bool:
        return output not in self.fed and self.plan.nodes[output.node].op.role is NEXT_ITERATION

    def is_loop_variable(self, node: Node) -> bool:
        """True for a Merge with a back edge."""
        return self.plan.nodes[node].op.role is MERGE and any(map(self._is_back_edge, node.inputs))

    def _require_loop_merge(self, node: Node) -> None:
        if len(node.inputs) != 2 or node.controls:
            raise NotCompiled("a loop variable has more than two sources", node)
        roles = [self.plan.nodes[output.node].op.role for output in node.inputs]
        if roles.count(ENTER) != 1:
            raise NotCompiled("a loop variable has no Enter", node)
        entering = node.inputs[roles.index(ENTER)].node
        if entering.attr("is_constant"):
            raise NotCompiled("a loop variable enters as a constant", node)

    def _flagged(
        self,
        node: Node,
        info: FrameInfo,
        alive: dict[Output, PathCondition],
        common: PathCondition,
    ) -> PathCondition:
        """The condition of a Merge that is live where any of its inputs is."""
        if len(alive) > _MAX_PAIRED or len(self.plan.nodes) > _MAX_ANALYZED:
            raise NotCompiled("a Merge needs an analysis of too many nodes", node)
        for a, b in combinations(alive, 2):
            if not alive[a].excludes(alive[b]) and self.deadness.can_both_live(a, b):
                raise NotCompiled("a Merge may have two live inputs", node)
        if len({info.section(live) for live in alive.values()}) > 1:
            raise NotCompiled("a Merge joins both sides of the test of its loop", node)
        if self._is_always_live_in(node, common, info):
            return common
        test = self.flag_of[node] = BranchTest(Output(node, 0), 0)
        return common.also(BranchDecision(test, 0, test.source))

    def _is_always_live_in(self, node: Node, live: PathCondition, info: FrameInfo) -> bool:
        output = Output(node, 0)
        if live in self.witness:
            return self.deadness.implies(self.witness[live], output)
        if live is not self.always:
            return False
        if info is self.root:
            return self.deadness.always_live(output)
        conds = info.frame.loop_conds
        return bool(conds) and self.deadness.implies(Output(conds[0], 0), output)

    def _check_frames(self) -> None:
        for info in self.info.values():
            if info is self.root:
                continue
            self._check_entry(info)
            self._check_variables(info)
            for node in info.frame.next_iterations:
                self._check_back_edge(node, info)
            for section in (info.exit, info.body):
                self._check_merged_sides(section, info)

    def _check_variables(self, info: FrameInfo) -> None:
        """A loop variable is a Merge; other nodes have its inputs in some iterations only."""
        if not info.is_loop:
            return
        frame, nodes = info.frame, self.plan.nodes
        for node in (*frame.enters, *frame.next_iterations):
            if nodes[node].op.role is ENTER and node.attr("is_constant"):
                continue
            for use in node.uses:
                if use.node in nodes and not self.is_loop_variable(use.node):
                    message = "a node reads the initial or the next value of a loop variable"
                    raise NotCompiled(message, use.node)

    def _check_merged_sides(self, section: PathCondition | None, info: FrameInfo) -> None:
        """A loop whose two sides are merged again has code that depends on both."""
        if section is None:
            return
        for node in info.frame.nodes:
            role = self.plan.nodes[node].op.role
            if role is MERGE and info.section(self.live[node]) is None:
                for output in node.inputs:
                    if self._is_back_edge(output):
                        continue
                    if output not in self.fed and info.section(self.of_output(output)) is section:
                        message = "a Merge joins both sides of the test of its loop"
                        raise NotCompiled(message, node)

    def _check_entry(self, info: FrameInfo) -> None:
        """All that a loop computes is live where it is entered; some Enters may be live in more.

        Where only those are live, the LoopCond is dead, and with it the body and all Exits. The
        rest has no effect, and does not run.
        """
        frame, entry = info.frame, info.entry
        nodes = self.plan.nodes
        if entry is self.always:
            return
        partial = [node for node in frame.enters if self.live[node] is not entry]
        triggers = [node for node in frame.nodes if nodes[node].op.role is CONTROL_TRIGGER]
        if not partial and not triggers:
            return
        for node in partial:
            if entry is None or not self._is_narrower(entry, self.live[node]):
                raise NotCompiled("the Enters of a loop differ in liveness", node)
            if not node.attr("is_constant") and not self._ends_with(info):
                raise NotCompiled("the Enters of a loop differ in liveness", node)
        for inner in frame.nodes:
            if may_write(inner) and self._is_before_test(inner, info):
                raise NotCompiled("an effect may precede the start of its loop", inner)

    def _is_before_test(self, node: Node, info: FrameInfo) -> bool:
        live = self.live[node]
        return live is not self.never and info.section(live) is None

    def _ends_with(self, info: FrameInfo) -> bool:
        """True if the LoopCond of a loop is live only where the loop is entered."""
        worklist, seen = list(info.frame.loop_conds), set(info.frame.loop_conds)
        while worklist:
            node = worklist.pop()
            for source in node.predecessors:
                if source not in seen and source in self.live:
                    seen.add(source)
                    role = self.plan.nodes[source].op.role
                    if role is ENTER and self.live[source] is info.entry:
                        return True
                    if role not in (ENTER, NEXT_ITERATION):
                        worklist.append(source)
        return False

    def _check_back_edge(self, node: Node, info: FrameInfo) -> None:
        current, body = self.live[node], info.body
        if current is body:
            return
        if body is None or info.section(current) is not body or body not in self.witness:
            raise NotCompiled("a loop variable is not updated in every iteration", node)
        if not self.deadness.implies(self.witness[body], node.inputs[0]):
            raise NotCompiled("a loop variable is not updated in every iteration", node)
