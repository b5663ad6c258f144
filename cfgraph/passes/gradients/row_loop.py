"""A loop that repeats a part of a graph for each of many seeds, and stacks the results.

    seed ──▶ part ──▶ result      becomes      while i < rows: results[i] = part(seed of row i)

The part is what lies between the seed and the results, with all nodes of the loops in it; it is
copied into the loop, and everything else is computed once. Saved values that the part pops are kept
in lists, which each row reads from the start. Where the ops permit, an iteration computes several
rows, along a first axis.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np

from cfgraph.analysis.loops.branch_decisions import BranchDecision
from cfgraph.analysis.loops.frame import Frame, Frames
from cfgraph.analysis.loops.frames import FrameNames, valid_frames
from cfgraph.analysis.loops.regions import regions
from cfgraph.analysis.resource_handles import stacks
from cfgraph.errors import Unsupported
from cfgraph.ir import dtypes
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.role import Role
from cfgraph.ir.traversal import postorder, upstream
from cfgraph.ops.families.stacks import StackHandle, StackPopV2, StackPushV2
from cfgraph.ops.families.tensor_array_ops import TensorArrayOp
from cfgraph.ops.opdef.batching import NotBatchable
from cfgraph.ops.opdef.op import is_a, lookup, role_of
from cfgraph.ops.shape_inference import infer_shapes
from cfgraph.passes.gradients.repeatable_stacks import make_repeatable
from cfgraph.passes.gradients.row_batch import RowBatch
from cfgraph.passes.node_copier import NodeCopier
from cfgraph.passes.outcome import unchanged_on_error

_STACK_OPS: Final = (StackHandle, StackPushV2, StackPopV2)
# adds the seed of a row, or of some rows along a first axis, in the loop, from the numbers of the
# rows, how many they are if there is an axis, and tensors from outside made available
SeedOfRow = Callable[[Output, int | None, Callable[[Output], Output]], Output]


def stacked_rows(
    graph: Graph,
    seed: Output,
    results: Sequence[Output],
    shapes: Sequence[Output],
    rows: Output,
    seed_of_row: SeedOfRow,
    *,
    rows_in_flight: int,
    name: str,
    added: list[Node],
) -> list[Output]:
    """Add the loop; return each result with a first axis for the rows, in place.

    `shapes` are those of the results. The nodes that depended on the `seed` stay, unread; those
    that they got for lists are `added`.

    Raises Unsupported for a part that cannot run several times.
    """
    part = _repeatable_part(graph, seed, results, added)

    def run(loop: _RowLoop, at_once: int | None) -> list[Output]:
        row = loop.start(rows)
        loop.copier.tensors[seed] = seed_of_row(row, at_once, loop.enter)
        loop.copy_part()
        return [loop.stack(x, shape) for x, shape in zip(results, shapes, strict=True)]

    at_once = _rows_at_once(graph, rows, rows_in_flight)
    if at_once > 1:
        with suppress(NotBatchable), unchanged_on_error(graph):
            return run(_BatchLoop(graph, part, name, seed, at_once), at_once)
    return run(_RowLoop(graph, part, name, rows_in_flight), None)


def _rows_at_once(graph: Graph, rows: Output, limit: int) -> int:
    """The number of rows of an iteration: all if they are few, and static."""
    count = infer_shapes(graph).value(rows)
    return limit if count is None else min(limit, int(count))


# -- the part ----------------------------------------------------------------------------------


def _repeatable_part(
    graph: Graph, seed: Output, results: Sequence[Output], added: list[Node]
) -> dict[Node, None]:
    """The nodes that a row runs, in the order of the graph."""
    while True:
        accesses, frames = stacks(graph), valid_frames(graph)
        part = _part(graph, seed, results, frames)
        outside = [
            pop
            for pop, stack in accesses.items()
            if pop in part and pop in stack.pops and not part.keys() & set(stack.pushes)
        ]
        lists = make_repeatable(graph, outside)
        if not lists:
            break
        added += lists
    for node in part:
        problem = _problem_of_repetition(node)
        if problem:
            message = f"{node.op} {problem}: it would run again for each row of a Jacobian"
            hint = "request single gradients with --grad-ys, or stop gradients before it (--stop)"
            raise Unsupported(message, node=node, hint=hint, code="CFG511")
    return part


def _problem_of_repetition(node: Node) -> str:
    """The reason why a node cannot run several times, or nothing."""
    op = lookup(node.op)
    if op is None:
        return "is not registered"
    if op.effects.random:
        return "draws random numbers"
    if issubclass(op, TensorArrayOp):
        return "uses a gradient array that all rows would share"
    # each row has stacks of its own
    is_harmless = op.effects.reads_only or op.effects.only_checks or is_a(node, *_STACK_OPS)
    return "has an effect" if op.effects.stateful and not is_harmless else ""


def _part(
    graph: Graph, seed: Output, results: Sequence[Output], frames: Frames
) -> dict[Node, None]:
    needed = upstream(x.node for x in results)
    accesses = stacks(graph)
    members: dict[Node, None] = {}
    todo = [use.node for use in seed.node.readers(seed.port)]
    while todo:
        node = todo.pop()
        if node in members or node not in needed:
            continue
        members[node] = None
        todo += [use.node for use in node.uses]
        loops = [*frames.of[node].loops, *frames.of_outputs[node].loops]
        for frame in loops[:1]:
            inner = (each for each in frames.all if each.is_within(frame))
            todo += [item for each in inner for item in (*each.enters, *each.nodes, *each.exits)]
        stack = accesses.get(node)
        if stack is not None and node in stack.pushes:
            todo += [stack.handle, *stack.pops]
    return {node: None for node in graph if node in members}


# -- the loop ----------------------------------------------------------------------------------


class _PartCopier(NodeCopier):
    """Copies the part, with frames of its own."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.frame_names = FrameNames(graph)

    def new_frame_name(self, name: bytes) -> bytes:
        """A frame name that no other loop has."""
        return self.frame_names.unique(name)


class _RowLoop:
    """The loop over the rows, and what enters it."""

    def __init__(
        self,
        graph: Graph,
        part: dict[Node, None],
        name: str,
        parallel_iterations: int,
    ) -> None:
        self.graph = graph
        self.part = part
        self.name = name
        self.copier = _PartCopier(graph)
        frame = self.copier.frame_names.unique(name.encode())
        self._frame: dict[str, Any] = {
            "frame_name": frame,
            "parallel_iterations": parallel_iterations,
        }
        self._regions = regions(graph)
        self._frames = self._regions.frames
        self._entered: dict[Output, Output] = {}

    def add(self, op: str, *inputs: Output, controls: Iterable[Node] = (), **attrs: Any) -> Node:
        """Add a node of the loop."""
        name = f"{self.name}/{op}"
        return self.graph.add(op, *inputs, name=name, controls=controls, attrs=attrs)

    def constant(self, value: Any, *controls: Node) -> Output:
        """Add a constant, in the loop if it waits for a node there."""
        tensor = TensorValue(np.array(value, np.int32))
        return self.add("Const", controls=controls, dtype=dtypes.int32, value=tensor).output()

    def enter(self, x: Output) -> Output:
        """A tensor from outside, the same in all rows."""
        if x not in self._entered:
            self._entered[x] = self.add("Enter", x, is_constant=True, **self._frame).output()
        return self._entered[x]

    def start(self, rows: Output) -> Output:
        """Add the counter; return the number of the row."""
        self.rows = rows
        self.row = self._count(rows, 1)
        return self.row

    def _count(self, rows: Output, step: int) -> Output:
        """Add the counter; return its value."""
        merge = self._variable(self.constant(0))
        less = self.add("Less", merge.output(), self.enter(rows)).output()
        self.cond = self.add("LoopCond", less).output()
        switch = self.add("Switch", merge.output(), self.cond)
        self.pivot = self.add("Identity", switch.output(1))
        updated = self.add("AddV2", self.pivot.output(), self.constant(step, self.pivot))
        self._close(merge, updated.output())
        return self.pivot.output()

    def _variable(self, initial: Output) -> Node:
        enter = self.add("Enter", initial, is_constant=False, **self._frame)
        return self.add("Merge", enter.output(), enter.output())

    def _close(self, merge: Node, updated: Output) -> None:
        self.graph.set_input(merge, 1, self.add("NextIteration", updated).output())

    def stack(self, x: Output, shape: Output) -> Output:
        """Collect a result of each row; the tensor of all, outside of the loop."""
        return self._stacked(self._value(x), self.row, shape, self.rows)

    def _stacked(self, value: Output, place: Output, shape: Output, places: Output) -> Output:
        """Collect a value of each iteration at a place; the tensor of all, outside of the loop."""
        assert value.dtype is not None
        element: dict[str, Any] = {"element_dtype": value.dtype.base}
        merge = self._variable(self.add("TensorListReserve", shape, places, **element).output())
        switch = self.add("Switch", merge.output(), self.cond)
        inputs = switch.output(1), place, value
        self._close(merge, self.add("TensorListSetItem", *inputs, **element).output())
        filled = self.add("Exit", switch.output(0)).output()
        return self.add("TensorListStack", filled, shape, **element).output()

    def copy_part(self) -> None:
        """Copy the part into the loop."""
        copier = self.copier
        nodes = {node.name: node for node in self.part}
        connected = self._add_copies()
        for node in self.part:
            controls = [self._control(item) for item in node.controls]
            if self._is_outermost(node) and not self._depends_on_row(node):
                controls.append(self.pivot)  # else it runs when there are no more rows
            copy = copier.copies[node]
            inputs = copy.inputs if node in connected else self._inputs(node)
            self.graph.connect(copy, inputs, controls)
            copier.rename_groups(node, nodes)

    def _add_copies(self) -> Collection[Node]:
        """Add the copies; return the nodes whose copies have their inputs."""
        self._copy(self.part)
        return ()

    def _copy(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            self.copier.copy(node, f"{self.name}/{node.name}", node.attrs, node.device)

    def _inputs(self, node: Node) -> list[Output]:
        """The inputs of a copy."""
        inputs = [self._value(x) for x in node.inputs]
        if role_of(node) is Role.MERGE and self._is_outermost(node):
            return list(map(self._guarded, node.inputs, inputs))
        return inputs

    def _is_outermost(self, node: Node) -> bool:
        return self._frames.of[node] is self._frames.root

    def _value(self, x: Output) -> Output:
        if x.node in self.part or x in self.copier.tensors:
            return self.copier.output(x)
        return self.enter(x)

    def _guarded(self, x: Output, value: Output) -> Output:
        """The value of a tensor in the loop, for a Merge, which is dead if one of its Enters is.

        A tensor that may be dead enters with a zero on the other sides, and passes its Switches
        again in the loop.
        """
        decisions = self._regions.guards.of_output(x).decisions()
        is_number = x.dtype is not None and x.dtype.is_differentiable and not x.dtype.is_opaque
        if role_of(value.node) is not Role.ENTER or not is_number:
            return value
        if not all(decision.test.branches for decision in decisions):
            return value
        value = self.enter(self._live(x, decisions))
        for decision in decisions:
            value = self._switch(value, self._value(decision.pred), decision)
        return value

    def _live(self, x: Output, decisions: Sequence[BranchDecision]) -> Output:
        """A tensor with a zero on the sides where it is dead."""
        assert x.dtype is not None
        tensor = TensorValue(np.zeros((), x.dtype.base.numpy))
        zero, layers = self.add("Const", dtype=x.dtype.base, value=tensor).output(), []
        for decision in decisions:
            zero = self._switch(zero, decision.pred, decision)
            ports = [port for port in range(decision.test.branches) if port != zero.port]
            layers.append([zero.node.output(port) for port in ports])
        for others in reversed(layers):
            x = self.add("Merge", x, *others).output()
        return x

    def _switch(self, x: Output, pred: Output, decision: BranchDecision) -> Output:
        """The output of a new Switch on the side of a decision."""
        if pred.dtype is dtypes.bool_:
            return self.add("Switch", x, pred).output(decision.output.port)
        switch = self.add("_SwitchN", x, pred, num_outs=decision.test.branches)
        return switch.output(decision.output.port)

    def _control(self, node: Node) -> Node:
        if node in self.part:
            return self.copier.copies[node]
        return self.enter(self.constant(0, node)).node

    def _depends_on_row(self, node: Node) -> bool:
        is_known = self.part.keys() | {x.node for x in self.copier.tensors}
        return any(x.node in is_known for x in node.inputs) or any(
            item in self.part for item in node.controls
        )


class _BatchLoop(_RowLoop):
    """A loop that computes several rows in an iteration."""

    def __init__(
        self, graph: Graph, part: dict[Node, None], name: str, seed: Output, at_once: int
    ) -> None:
        super().__init__(graph, part, name, parallel_iterations=1)
        self.at_once = at_once
        self.batch = RowBatch(graph, part, seed, at_once, self._frames, self._enter_frame, name)
        self._entered_inner: dict[tuple[Output, Frame], Output] = {}

    def _enter_frame(self, x: Output, frame: Frame) -> Output:
        """A tensor from outside, the same in all iterations of the copy of an inner loop."""
        if frame.parent is None:
            return self.enter(x)
        key = x, frame
        if key not in self._entered_inner:
            outer = self._enter_frame(x, frame.parent)
            like = self.copier.copies[frame.enters[0]].attrs
            names = ("frame_name", "parallel_iterations")
            attrs = {name: like[name] for name in names if name in like}
            node = self.add("Enter", outer, is_constant=True, **attrs)
            self._entered_inner[key] = node.output()
        return self._entered_inner[key]

    def start(self, rows: Output) -> Output:
        """Add the counter; return the numbers of the rows of an iteration."""
        self.rows, count = rows, self.constant(self.at_once)
        first = self._count(rows, self.at_once)
        self.row = self.add("FloorDiv", first, self.enter(count)).output()
        rounded = self.add("AddV2", rows, self.constant(self.at_once - 1)).output()
        self.iterations = self.add("FloorDiv", rounded, count).output()
        offsets = self.enter(self.constant(range(self.at_once)))
        return self.add("AddV2", first, offsets).output()

    def stack(self, x: Output, shape: Output) -> Output:
        """Collect a result of each row; the tensor of all, outside of the loop."""
        count, value = self.constant([self.at_once]), self.batch.result(x, self._value(x))
        stacked = self._stacked(value, self.row, self._concat(count, shape), self.iterations)
        total = self.add("Mul", self.iterations, count).output()
        flat = self.add("Reshape", stacked, self._concat(total, shape)).output()
        # the last iteration has rows that do not exist
        end = self.add("Reshape", self.rows, self.constant([1])).output()
        return self.add("StridedSlice", flat, self.constant([0]), end, self.constant([1])).output()

    def _concat(self, first: Output, second: Output) -> Output:
        return self.add("ConcatV2", first, second, self.constant(0)).output()

    def _add_copies(self) -> Collection[Node]:
        computed = dict.fromkeys(filter(self.batch.is_computed, self.part))
        self._copy(node for node in self.part if node not in computed)
        sources = {node: [x.node for x in node.inputs if x.node in computed] for node in computed}
        done = set[Node]()
        for start in computed:
            for node in postorder(start, sources.__getitem__, done):
                values = list(map(self._value, node.inputs))
                self.copier.copies[node] = self.batch.compute(node, values)
                done.add(node)
        return computed

    def _inputs(self, node: Node) -> list[Output]:
        inputs = super()._inputs(node)
        return [
            self.batch.input_value(node, *pair) for pair in zip(node.inputs, inputs, strict=True)
        ]
