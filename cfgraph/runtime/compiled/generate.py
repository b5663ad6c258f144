"""Generation of one Python function from a plan.

A frame is a `for` loop over its iterations, with the loop variables as local variables; nodes of
one path condition stand under one `if`; a Merge is an assignment in each of its branches. Switch,
Enter, Exit, NextIteration, LoopCond, and Identity have no code: their outputs are the variables of
their inputs. Work that does not change in a loop precedes it.

    def run(step, feeds, iterations):
        v0, = feeds
        v1 = c0
        for i1 in iterations:
            v2 = v1 < v0
            if v2 is not TRUE and not test(v2):
                break
            v1 = v1 + c1
        else:
            raise exceeded(step, c2)
        return v1,
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Final

import numpy as np

from cfgraph.analysis.loops.branch_decisions import BranchDecision, BranchTest, PathCondition
from cfgraph.analysis.loops.frame import Frame
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.role import (
    CONTROL_TRIGGER,
    ENTER,
    EXIT,
    LOOP_COND,
    MERGE,
    NEXT_ITERATION,
    SWITCH,
)
from cfgraph.limits import check_deadline
from cfgraph.ops.families.constants import identity
from cfgraph.runtime.compiled.node_writer import FAST, CodeStyle, NodeWriter
from cfgraph.runtime.compiled.outlining import outline_regions
from cfgraph.runtime.compiled.plan_liveness import FrameInfo, PlanLiveness
from cfgraph.runtime.compiled.schedule import Item, LoopInvariants, Scheduler, WriterCoroutine
from cfgraph.runtime.engine.plan import NodePlan, Plan
from cfgraph.runtime.program import (
    Block,
    FirstIteration,
    NotCompiled,
    Program,
    Value,
)

PARAMETERS: Final = "step, feeds, iterations"
# items between two checks of the deadline, while they are made
_ITEMS_PER_CHECK: Final = 512


class CodeGenerator:
    """Writes the function of a plan. Raises NotCompiled where that is not possible.

    `transfers` are nodes whose input is on another worker; the program is divided before it is
    outlined.
    """

    def __init__(
        self,
        graph: Graph,
        plan: Plan,
        fetch_count: int,
        style: CodeStyle = FAST,
        transfers: Collection[Node] | None = None,
    ) -> None:
        self.plan = plan
        self.transfers = transfers
        self.style = style
        self.fetch_count = fetch_count
        self.liveness = PlanLiveness(graph, plan)
        self.frames = plan.frames
        self.program = Program(PARAMETERS, is_whole=True)
        self.writer = NodeWriter(self.liveness, self.program, style)
        # the item that assigns the outputs of a node, and all items of a frame
        self.items: dict[Node, Item] = {}
        self.items_of: dict[Frame, list[Item]] = {frame: [] for frame in self.frames.all}
        self.loop_items: dict[Frame, Item] = {}
        self.loop_merges: dict[Frame, list[Node]] = {frame: [] for frame in self.frames.all}
        self.test_items: dict[BranchTest, Item] = {}
        self.invariants = LoopInvariants(self.liveness, self.writer.values)
        self.last_block: Block | None = None
        self.may_be_dead: Node | None = None
        self.item_count = 0

    @np.errstate(all="ignore")
    def generate(self) -> Program:
        """Generate the code of the plan's function, and evaluate its constants."""
        program = self.program
        feeds = [self._feed(index) for index in range(len(self.plan.feeds))]
        is_straight = self.plan.is_straight_line
        if not is_straight:
            self._make_items()
        if feeds and self.style.unpacks_feeds:
            program.add("feeds" if len(feeds) > 1 else "feeds[0]", (), feeds)
        results: dict[int, Value] = {}
        if is_straight:
            self._write_in_order()
        else:
            results = self._fetch_items()
            _write_all(self._run(self.liveness.root))
        fields = ", ".join(["{}"] * self.fetch_count) + "," * (self.fetch_count == 1)
        returned = [results.get(index) for index in range(self.fetch_count)]
        outputs = [
            value if value is not None else self.writer.values[self.plan.fetches[index]]
            for index, value in enumerate(returned)
        ]
        program.add(f"return ({fields})", outputs)
        program.block.end = len(program.lines) - 1
        if program.is_too_deep and self.transfers is None:
            outline_regions(program)
        # items refer to the generator: without this they wait for the garbage collector
        for items in (self.items, self.items_of, self.loop_items, self.test_items):
            items.clear()
        return program

    def _feed(self, index: int) -> Value:
        value = self.program.variable(scalar=True)
        self.writer.values[self.plan.feeds[index]] = value
        return value

    def _write_in_order(self) -> None:
        """Write nodes without control flow in topological order, as a schedule would."""
        for number, node in enumerate(self.frames.order):
            if not number % _ITEMS_PER_CHECK:
                check_deadline()
            plan = self.plan.nodes[node]
            write, _ = self._write_function(plan)
            write(plan)

    def _fetch_items(self) -> dict[int, Value]:
        """Items that assign fetches which may be dead; their variables start as None."""
        results: dict[int, Value] = {}
        liveness, program = self.liveness, self.program
        for index, output in self.plan.fetches.items():
            if self.frames.of_outputs.get(output.node, self.frames.root) is not self.frames.root:
                raise NotCompiled("a fetch is inside a loop", output.node)
            live = liveness.of_output(output)
            if live is liveness.always:
                continue
            self.may_be_dead = output.node
            value = results[index] = program.variable(scalar=True)
            program.add("None", (), [value])
            if live is not liveness.never:
                item = self._item(self.frames.root, live, partial(self.writer.copy, output, value))
                item.needs(self._source(output))
        return results

    # -- items -----------------------------------------------------------------------------------

    def _item(
        self,
        frame: Frame,
        live: PathCondition,
        write: Callable[[], WriterCoroutine | None],
        *,
        silent: bool = False,
    ) -> Item:
        items = self.items_of[frame]
        self.item_count += 1
        if not self.item_count % _ITEMS_PER_CHECK:
            check_deadline()
        item = Item(self.item_count, live, write, silent=silent)
        items.append(item)
        return item

    def _source(self, output: Output) -> Item | None:
        """The item that computes an output; None if the output is known from the start."""
        return None if output in self.liveness.fed else self.items.get(output.node)

    def _make_items(self) -> None:
        liveness, nodes = self.liveness, self.plan.nodes
        for node in self.frames.order:
            info = liveness.info[self.frames.of[node]]
            live = liveness.live[node]
            if live is liveness.never:
                continue
            plan = nodes[node]
            role = plan.op.role
            if role is MERGE and liveness.is_loop_variable(node):
                self._loop_variable(node, info)
            elif role is MERGE:
                self._merge_items(plan, info, live)
            elif role is ENTER:
                self._enter_item(plan, info, live)
            else:
                self._node_item(plan, info, live)

    def _write_function(self, plan: NodePlan) -> tuple[Callable[[NodePlan], None], bool]:
        """The function that writes a node, and true if it writes no code."""
        role = plan.op.role
        if role is CONTROL_TRIGGER or _is_empty(plan):
            return _nothing, True
        if self.transfers and plan.node in self.transfers:
            return self.writer.transfer, False
        is_forwarding = role in (SWITCH, EXIT, NEXT_ITERATION, LOOP_COND) or not (
            plan.op.effects.stateful
        )
        if is_forwarding and plan.kernel is identity:
            self.writer.forward_constant(plan)
            return self.writer.forward, _only_forwards(plan)
        if not plan.op.effects.stateful and self.writer.constant(plan):
            return _nothing, True
        return self.writer.kernel, False

    def _node_item(self, plan: NodePlan, info: FrameInfo, live: PathCondition) -> None:
        node, role = plan.node, plan.op.role
        write, silent = self._write_function(plan)
        if info.is_loop and not plan.op.effects.stateful and not plan.deref_slots:
            live = self.invariants.section(plan, info, live, silent=silent)
        if write is _nothing and not node.inputs and not node.controls:
            return  # a constant, known from the start
        item = self._item(info.frame, live, partial(write, plan), silent=silent)
        self._need_inputs(item, plan)
        if role is SWITCH:
            item.needs(self._test_item(plan, info))
        self.items[node] = self._loop_item(info.frame) if role is EXIT else item

    def _need_inputs(self, item: Item, plan: NodePlan) -> None:
        items, fed, node = self.items, self.liveness.fed, plan.node
        for output in node.inputs:
            source = items.get(output[0])
            if source is not None and not (fed and output in fed):
                source.dependents.append(item)
                item.missing += 1
        for control in node.controls:
            item.needs(items.get(control))

    def _test_item(self, plan: NodePlan, info: FrameInfo) -> Item | None:
        """The item that computes the test of a Switch, None for the test of a loop."""
        test = self.liveness.test_of[plan.node]
        if test is info.loop_test:
            return None
        if 1 in plan.deref_slots:
            raise NotCompiled("a predicate is read through a reference", plan.node)
        item = self.test_items.get(test)
        if item is None:
            predicate, liveness = test.source, self.liveness
            live = liveness.always
            outer = predicate in liveness.fed and info is not liveness.root
            if not outer and self.frames.of_outputs.get(predicate.node) is info.frame:
                live = liveness.of_output(predicate)
            item = self.test_items[test] = self._item(
                info.frame, live, partial(self.writer.add_test, test, plan)
            )
            if self.frames.of_outputs.get(predicate.node) is info.frame:
                item.needs(self._source(predicate))
            data = plan.node.inputs[0]
            if liveness.of_output(data) is live:
                # an error of the data precedes that of a predicate with a shape
                item.needs(self._source(data))
        return item

    def _enter_item(self, plan: NodePlan, info: FrameInfo, live: PathCondition) -> None:
        node = plan.node
        write = partial(self.writer.forward, plan)
        item = self._item(info.frame, live, write, silent=_only_forwards(plan))
        self._need_inputs(item, plan)
        if node.attr("is_constant"):
            self.invariants.nodes.add(node)
            self.writer.forward_constant(plan)
        self._loop_item(self.frames.of_outputs[node]).needs(item)

    def _loop_item(self, frame: Frame) -> Item:
        item = self.loop_items.get(frame)
        if item is None:
            info = self.liveness.info[frame]
            assert frame.parent is not None
            assert info.entry is not None
            item = self.loop_items[frame] = self._item(
                frame.parent, info.entry, partial(self._loop, info)
            )
        return item

    def _loop_variable(self, merge: Node, info: FrameInfo) -> None:
        if self._reads_index(merge):
            raise NotCompiled("the index of the Merge of a loop variable is read", merge)
        self.loop_merges[info.frame].append(merge)
        self.writer.values[Output(merge, 0)] = self.program.variable()

    def _merge_items(self, plan: NodePlan, info: FrameInfo, live: PathCondition) -> None:
        """Items that assign the live inputs of a Merge, and that follow all of them."""
        node, liveness = plan.node, self.liveness
        value, flag = self.program.variable(scalar=True), liveness.flag_of.get(node)
        index = self.program.variable(scalar=True) if self._reads_index(node) else None
        value.is_incomplete = True
        done = self._item(info.frame, live, partial(_complete, value), silent=True)
        if flag is not None:
            variable = self.writer.tests[flag] = self.program.variable(scalar=True, prefix="f")
            # nothing precedes it, so that the predicates of a branch may not be known yet
            section = info.section(live) or liveness.always
            start = self._item(info.frame, section, partial(self.writer.unset, variable))
            done.needs(start)
        for slot, output in enumerate(node.inputs):
            current = liveness.of_output(output)
            if current is liveness.never:
                continue
            write = partial(self.writer.move, plan, slot, value, index, flag)
            move = self._item(info.frame, current, write)
            move.needs(self._source(output))
            if flag is not None:
                move.needs(start)
            done.needs(move)
        for control in node.controls:
            done.needs(self.items.get(control))
        self.writer.values[Output(node, 0)] = value
        if index is not None:
            self.writer.values[Output(node, 1)] = index
        self.items[node] = done

    def _reads_index(self, node: Node) -> bool:
        output = Output(node, 1)
        return bool(node.readers(1)) or output in self.plan.fetches.values()

    # -- code ------------------------------------------------------------------------------------

    def _scheduler(self, info: FrameInfo) -> Scheduler:
        return Scheduler(self._open_branch, self._open_else, self._close_branch, info.loop_test)

    def _run(self, info: FrameInfo) -> WriterCoroutine:
        """Write a frame without a loop."""
        items, scheduler = self.items_of[info.frame], self._scheduler(info)
        scheduler.start(items)
        yield from scheduler.run(self.liveness.always)
        if scheduler.done != len(items):
            raise NotCompiled("nodes outside of a loop wait for it, and it for them")

    def _open_branch(self, decision: BranchDecision) -> None:
        test, branch, _ = decision
        form = "if {}:" if branch or not test.branches else "if not {}:"
        if test.branches > 2:
            form = f"if {{}} == {branch}:"
        self.program.open(form, [self.writer.tests[test]])

    def _open_else(self) -> None:
        assert self.last_block is not None
        self.program.open_else(self.last_block)

    def _close_branch(self) -> None:
        self.last_block = self.program.block
        self.program.close()

    def _loop(self, info: FrameInfo) -> WriterCoroutine:
        """Write a frame into the current block."""
        frame, program, scheduler = info.frame, self.program, self._scheduler(info)
        if not info.is_loop:
            yield from self._run(info)
            return
        items = self.items_of[frame]
        merges = self.loop_merges[frame]
        for merge in merges:
            self.writer.initialize(merge)
        number = self.writer.numbers[frame]
        preheader = self.invariants.preheader.get(frame)
        first = self.invariants.first_iteration.get(frame)
        scheduler.start(items)
        if preheader is not None:
            program.hoisted, outer = number, program.hoisted
            yield from scheduler.run(preheader)
            program.hoisted = outer
        opening = FirstIteration(program) if first is not None else None
        program.open(self.style.loop.format(number), loop=number)
        # the place of a timeout, which the iterator raises
        program.lines[-1].plan = self.plan.nodes[frame.loop_conds[0]]
        loop_block = program.block
        yield from scheduler.run(self.liveness.always)
        yield from self._write_exit(info, scheduler)
        body_start = len(program.lines)
        if first is not None and opening is not None:
            opening.open()
            yield from scheduler.run(first)
            opening.close()
        assert info.body is not None
        yield from scheduler.run(info.body)
        if scheduler.done != len(items):
            raise NotCompiled("nodes outside of a loop wait for it, and it for them", merges[0])
        self.writer.advance(merges, number, body_start)
        if opening is not None:
            opening.declare()
        program.close()
        if not self.style.checks_limits:
            return
        program.open_else(loop_block)
        back = frame.next_iterations[0] if frame.next_iterations else None
        name = program.constant(frame.name)
        program.add("raise exceeded(step, {})", [name], (), self.plan.nodes[back] if back else None)
        program.close()

    def _write_exit(self, info: FrameInfo, scheduler: Scheduler) -> WriterCoroutine:
        """Test the condition of a loop, and write what runs once it is false."""
        program, cond = self.program, info.frame.loop_conds[0]
        test = info.loop_test
        assert test is not None
        switch = next(
            (node for node, known in self.liveness.test_of.items() if known is test), cond
        )
        condition = self.writer.values[Output(cond, 0)]
        program.open(self.style.exit_test, [condition])
        program.lines[-1].plan = self.plan.nodes[switch]
        assert info.exit is not None
        yield from scheduler.run(info.exit)
        program.add("break")
        program.close()


def _is_empty(plan: NodePlan) -> bool:
    """True for a node that computes nothing."""
    return not (plan.outputs or plan.node.inputs or plan.op.effects.stateful)


def _only_forwards(plan: NodePlan) -> bool:
    """True for a node that forwards its first input, without code."""
    return not plan.deref_slots and plan.move_of(0) is None


def _write_all(code: WriterCoroutine) -> None:
    """Write code and the loops in it, however deeply they are nested: a trampoline."""
    stack = [code]
    while stack:
        inner = next(stack[-1], None)
        if inner is None:
            stack.pop()
        else:
            stack.append(inner)


def _complete(value: Value) -> None:
    """Mark the variable of a Merge as assigned in all branches."""
    value.is_incomplete = False


def _nothing(*_: object) -> None:
    """Write no code."""
