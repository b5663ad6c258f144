"""Liveness of the nodes of a plan: the liveness class of each node, in its frame.

One pass in topological order. What the classes cannot express raises NotCompiled; the exact
deadness analysis answers what the literals leave open, and is computed only then.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Final

from cfgraph.analysis.loops.frame import Frame
from cfgraph.ir import dtypes
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
from cfgraph.runtime.compiled.liveness_classes import BranchTest, FrameClasses, LivenessClass
from cfgraph.runtime.compiled.program import Constant, NotCompiled, Value
from cfgraph.runtime.engine.plan import NodePlan, Plan

# a Merge whose inputs are compared in pairs, and nodes that the exact analysis visits
_MAX_PAIRED: Final = 64
_MAX_ANALYZED: Final = 50_000

if TYPE_CHECKING:
    from cfgraph.analysis.deadness.deadness import Deadness


class FrameInfo:
    """The classes of a frame, and the class in its parent in which the frame is entered.

    `tests` has the tests by predicate and number of branches.
    """

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.classes = FrameClasses()
        self.entry: LivenessClass | None = None
        self.tests: dict[tuple[Output, int], BranchTest] = {}

    @property
    def is_loop(self) -> bool:
        """True for a frame with a LoopCond."""
        return self.classes.loop_test is not None


class PlanLiveness:
    """The liveness classes of a plan. `live` is the class in which each node runs.

    In the frame of the readers, `of_control` has the class of the control edges of a node, and of
    its outputs unless they are `switched`. `test_of` has the test of each Switch, `flag_of` that of
    a Merge whose class is no conjunction. Raises NotCompiled for a structure that generated code
    cannot represent.
    """

    def __init__(self, graph: Graph, plan: Plan) -> None:
        self.graph, self.plan = graph, plan
        self.frames = plan.frames
        self.fed = frozenset(plan.feeds.values())
        self.live: dict[Node, LivenessClass] = {}
        self.of_control: dict[Node, LivenessClass] = {}
        self.switched: dict[Output, LivenessClass] = {}
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

    def of(self, output: Output) -> LivenessClass:
        """The class of an output, in the frame of its readers."""
        if output in self.fed:
            return self.root.classes.always
        return self.switched.get(output) or self.of_control[output.node]

    def _divide_loops(self) -> None:
        for info in self.info.values():
            frame = info.frame
            if frame.loop_conds:
                if len(frame.loop_conds) > 1:
                    raise NotCompiled("the loop has several LoopConds", frame.loop_conds[1])
                cond = frame.loop_conds[0]
                predicate = self.stripped(cond.inputs[0])
                test = info.tests[predicate, 2] = BranchTest(predicate, 2, cond)
                info.classes.divide(test)
            elif frame.next_iterations:
                raise NotCompiled("the loop has no LoopCond", frame.next_iterations[0])

    def stripped(self, predicate: Output) -> Output:
        """The output that a predicate forwards unchanged."""
        nodes, fed = self.plan.nodes, self.fed
        while predicate not in fed:
            plan = nodes[predicate.node]
            role = plan.op.role
            forwards = role is LOOP_COND or (
                (role is None and plan.op.aliasing.is_identity)
                or (role is ENTER and bool(plan.node.attr("is_constant")))
            )
            if not forwards or plan.deref_slots or predicate.port:
                break
            predicate = plan.node.inputs[0]
        return predicate

    def _visit_all(self) -> None:
        frame_of, nodes, live = self.frames.of, self.plan.nodes, self.live
        always = self.root.classes.always
        of_control, switched, fed = self.of_control, self.switched, self.fed
        if self.plan.is_straight_line:
            self.live = self.of_control = dict.fromkeys(self.frames.order, always)
            return
        for node in self.frames.order:
            plan, info = nodes[node], self.info[frame_of[node]]
            role = plan.op.role
            if role is MERGE:
                current = self._merge(plan, info)
            elif role is CONTROL_TRIGGER:
                current = info.classes.always
            else:
                current, both = info.classes.always, info.classes.both
                for output in node.inputs:
                    source = switched.get(output) or (
                        always if fed and output in fed else of_control[output[0]]
                    )
                    if source is not current:
                        current = both(current, source)
                for control in node.controls:
                    source = of_control.get(control, always)
                    if source is not current:
                        current = both(current, source)
            live[node] = of_control[node] = current
            if role is not None:
                self._visit_role(plan, info, current)

    def _visit_role(self, plan: NodePlan, info: FrameInfo, current: LivenessClass) -> None:
        node, role = plan.node, plan.op.role
        if role is SWITCH:
            self._switch(plan, info, current)
        elif role is ENTER:
            self._enter(node, current)
        elif role is EXIT:
            self._exit(node, info, current)
        elif role is LOOP_COND:
            if current is not info.classes.always:
                raise NotCompiled("the LoopCond is not live in every iteration", node)
        elif role in (SEND, RECV):
            raise NotCompiled("the run has several devices", node)

    def _switch(self, plan: NodePlan, info: FrameInfo, current: LivenessClass) -> None:
        node = plan.node
        predicate = self.stripped(node.inputs[1])
        test = info.tests.get((predicate, plan.outputs))
        if test is None:
            test = BranchTest(predicate, plan.outputs, node)
            info.tests[predicate, plan.outputs] = test
        self.test_of[node] = test
        if current is info.classes.never:
            return
        for port in range(plan.outputs):
            output = Output(node, port)
            if output not in self.fed:
                branch = info.classes.child(current, (test, port))
                self.switched[output] = branch
                branch.source = branch.source or output

    def _enter(self, node: Node, current: LivenessClass) -> None:
        inner = self.info[self.frames.of_outputs[node]]
        self.of_control[node] = inner.classes.always
        classes = self.info[self.frames.of[node]].classes
        if inner.entry is None or (
            inner.entry is not current and classes.is_narrower(current, inner.entry)
        ):
            inner.entry = current

    def _exit(self, node: Node, info: FrameInfo, current: LivenessClass) -> None:
        expected = info.classes.exit if info.is_loop else info.classes.always
        if current is not expected:
            raise NotCompiled("an Exit does not follow the test of its loop", node)
        assert info.entry is not None
        self.of_control[node] = info.entry

    def _merge(self, plan: NodePlan, info: FrameInfo) -> LivenessClass:
        node, classes = plan.node, info.classes
        if any(map(self._is_back_edge, node.inputs)):
            self._require_loop_merge(node)
            return classes.always
        sources = {output: self.of(output) for output in node.inputs}
        if len(sources) < len(node.inputs):
            raise NotCompiled("a Merge has two live inputs", node)
        alive = {output: live for output, live in sources.items() if live is not classes.never}
        if not alive:
            return classes.never
        if len(alive) == 1:
            return next(iter(alive.values()))
        covered = classes.union(list(alive.values()))
        return covered or self._flagged(node, info, alive)

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
        self, node: Node, info: FrameInfo, alive: dict[Output, LivenessClass]
    ) -> LivenessClass:
        """The class of a Merge that is live where any of its inputs is."""
        classes, outputs = info.classes, list(alive)
        if len(outputs) > _MAX_PAIRED or len(self.plan.nodes) > _MAX_ANALYZED:
            raise NotCompiled("a Merge needs an analysis of too many nodes", node)
        for index, a in enumerate(outputs):
            for b in outputs[:index]:
                if classes.exclude_each_other(alive[a], alive[b]):
                    continue
                if self.deadness.can_both_live(a, b):
                    raise NotCompiled("a Merge may have two live inputs", node)
        common = classes.common(list(alive.values()))
        sections = {live.section for live in alive.values()}
        if len(sections) > 1:
            raise NotCompiled("a Merge joins both sides of the test of its loop", node)
        if self._is_always_live_in(node, common, info):
            return common
        test = self.flag_of[node] = BranchTest(None, 1, node)
        return classes.child(common, (test, 1))

    def _is_always_live_in(self, node: Node, live: LivenessClass, info: FrameInfo) -> bool:
        output = Output(node, 0)
        if live.source is not None:
            return self.deadness.implies(live.source, output)
        if live is not info.classes.always:
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
            for section in (info.classes.exit, info.classes.body):
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

    def _check_merged_sides(self, section: LivenessClass | None, info: FrameInfo) -> None:
        """A loop whose two sides are merged again has code that depends on both."""
        if section is None:
            return
        for node in info.frame.nodes:
            role = self.plan.nodes[node].op.role
            if role is MERGE and self.live[node].section is info.classes.always:
                for output in node.inputs:
                    if self._is_back_edge(output):
                        continue
                    if output not in self.fed and self.of(output).section is section:
                        message = "a Merge joins both sides of the test of its loop"
                        raise NotCompiled(message, node)

    def _check_entry(self, info: FrameInfo) -> None:
        """All that a loop computes is live where it is entered; some Enters may be live in more.

        Where only those are live, the LoopCond is dead, and with it the body and all Exits. The
        rest has no effect, and does not run.
        """
        frame, entry = info.frame, info.entry
        nodes = self.plan.nodes
        if entry is self.info[frame.parent or frame].classes.always:
            return
        partial = [node for node in frame.enters if self.live[node] is not entry]
        triggers = [node for node in frame.nodes if nodes[node].op.role is CONTROL_TRIGGER]
        if not partial and not triggers:
            return
        for node in partial:
            classes = self.info[self.frames.of[node]].classes
            if entry is None or not classes.is_narrower(entry, self.live[node]):
                raise NotCompiled("the Enters of a loop differ in liveness", node)
            if not node.attr("is_constant") and not self._ends_with(info):
                raise NotCompiled("the Enters of a loop differ in liveness", node)
        for inner in frame.nodes:
            if may_write(inner) and self.live[inner].section is info.classes.always:
                raise NotCompiled("an effect may precede the start of its loop", inner)

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
        current, body = self.live[node], info.classes.body
        if current is body:
            return
        if body is None or current.section is not body or body.source is None:
            raise NotCompiled("a loop variable is not updated in every iteration", node)
        if not self.deadness.implies(body.source, node.inputs[0]):
            raise NotCompiled("a loop variable is not updated in every iteration", node)


class LoopInvariants:
    """Loop-invariant nodes, and the sections that their code moves to.

    Work of every iteration precedes the loop, in its `preheader`. Work of the body, which may never
    run, and whose errors are those of an iteration, is in the `first_iteration`.
    """

    def __init__(self, liveness: PlanLiveness, values: Mapping[Output, Value]) -> None:
        self.nodes: set[Node] = set()
        self.preheader: dict[Frame, LivenessClass] = {}
        self.first_iteration: dict[Frame, LivenessClass] = {}
        self._liveness = liveness
        self._values = values
        self._early: set[Node] = set()  # nodes of a body that need nothing of it

    def section(
        self, plan: NodePlan, info: FrameInfo, live: LivenessClass, *, silent: bool
    ) -> LivenessClass:
        """The section for a pure node if it is invariant, else its class."""
        node, known = plan.node, self.nodes
        if live is info.classes.body:
            return self._section_of_body(plan, info, live, silent=silent)
        if (
            live is not info.classes.always
            or plan.op.role is not None
            or any(output.node not in known for output in node.inputs)
            or any(control not in known for control in node.controls)
        ):
            return live
        known.add(node)
        return self.preheader.setdefault(info.frame, LivenessClass(None, None))

    def _section_of_body(
        self, plan: NodePlan, info: FrameInfo, live: LivenessClass, *, silent: bool
    ) -> LivenessClass:
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
        return self.first_iteration.setdefault(info.frame, LivenessClass(None, None))

    def _is_early(self, node: Node, info: FrameInfo) -> bool:
        """True for a node that has run when the other work of a body begins."""
        if node in self.nodes or node in self._early:
            return True
        return self._liveness.of_control.get(node) is info.classes.always


def _is_array(output: Output) -> bool:
    """False for a value that kernels change in place while nothing else refers to it."""
    return output.dtype not in (None, dtypes.variant, dtypes.resource)
