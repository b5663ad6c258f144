"""Nodes that compute several rows of a Jacobian at once, along a first axis.

    seed: [y]      becomes      seed: [rows, y]

What depends on the seed has this axis; the rest of a part is shared by all rows, predicates
included. Ops say how they compute with it (`cfgraph/ops/opdef/batching.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from cfgraph.analysis.loops.frame import Frame, Frames
from cfgraph.analysis.resource_handles import StackAccesses, popped_values, stacks
from cfgraph.ir import dtypes
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.role import Role
from cfgraph.ops.opdef.batching import NotBatchable
from cfgraph.ops.opdef.op import lookup, role_of
from cfgraph.ops.shape_inference import infer_shapes

_LOOP_EDGES: Final = (Role.ENTER, Role.NEXT_ITERATION)
# the output has rows if a reader needs them, or another input has them
_JOINING: Final = (*_LOOP_EDGES, Role.MERGE)


class RowBatch:
    """The tensors of a part that differ between rows, and nodes that compute them.

    `enter` makes a tensor from outside available in the copy of a frame of the part.
    """

    def __init__(
        self,
        graph: Graph,
        part: dict[Node, None],
        seed: Output,
        rows: int,
        frames: Frames,
        enter: Callable[[Output, Frame], Output],
        prefix: str,
    ) -> None:
        self.graph, self.rows, self.frames = graph, rows, frames
        self.prefix = prefix
        self.shapes = infer_shapes(graph, received=popped_values(graph))
        self.varying = _varying(part, seed, stacks(graph))
        self._enter = enter
        self._constants: dict[tuple[bytes, tuple[int, ...], DType], Output] = {}

    def is_computed(self, node: Node) -> bool:
        """True for an ordinary node whose copy is made by the rule of its op."""
        return role_of(node) is None and node.output(0) in self.varying

    def constant(self, value: Any, dtype: DType, frame: Frame) -> Output:
        """A constant, available in the copy of a frame."""
        array = np.array(value, dtype.numpy)
        key = array.tobytes(), array.shape, dtype
        if key not in self._constants:
            attrs = {"dtype": dtype, "value": TensorValue(array)}
            node = self.graph.add("Const", name=f"{self.prefix}/Const", attrs=attrs)
            self._constants[key] = node.output()
        return self._enter(self._constants[key], frame)

    def compute(self, node: Node, values: Sequence[Output]) -> Node:
        """Add the nodes that compute a node from the values of its inputs; return the last.

        Raises NotBatchable without a rule that fits.
        """
        op = lookup(node.op)
        if op is None or op.batching is None:
            raise NotBatchable
        result: Output = op.batching(_NodeBatch(self, node, values), node)
        return result.node

    def input_value(self, node: Node, x: Output, value: Output) -> Output:
        """The value that the copy of a node reads: repeated where other inputs have rows.

        A node that depends on a shape alone reads one row.
        """
        builder = _NodeBatch(self, node, ())
        if x in self.varying:
            return value if role_of(node) is not None else builder.first_row(value)
        joins = role_of(node) in _JOINING and node.output(0) in self.varying
        return builder.repeat(x, value) if joins else value

    def result(self, x: Output, value: Output) -> Output:
        """A result of the part, with rows."""
        return value if x in self.varying else _NodeBatch(self, x.node, ()).repeat(x, value)


def _varying(
    part: dict[Node, None], seed: Output, accesses: Mapping[Node, StackAccesses]
) -> set[Output]:
    """The tensors that differ between rows. Raises NotBatchable if a predicate does."""
    found, todo = set[Output](), [seed]
    while todo:
        x = todo.pop()
        if x in found:
            continue
        found.add(x)
        if x.node is not seed.node and role_of(x.node) is Role.MERGE:
            # a loop variable has rows from the start
            todo += [source for source in x.node.inputs if role_of(source.node) in _LOOP_EDGES]
        for node, slot in x.node.readers(x.port):
            if node in part:
                todo += _varying_outputs(node, slot)
                stack = accesses.get(node)
                if stack is not None:
                    if len(stack.pushes) > 1:
                        raise NotBatchable
                    todo += [pop.output() for pop in stack.pops]
    return found


def _varying_outputs(node: Node, slot: int) -> list[Output]:
    role, op = role_of(node), lookup(node.op)
    if role is Role.LOOP_COND or (role is Role.SWITCH and slot):
        raise NotBatchable
    if role is Role.MERGE:
        return [node.output(0)]
    if op is not None and op.algebra.shape_only:
        return []
    return node.outputs


class _NodeBatch:
    """A BatchBuilder of one node, whose inputs have these values in the loop over rows."""

    def __init__(self, batch: RowBatch, node: Node, values: Sequence[Output]) -> None:
        self._batch, self._node, self._values = batch, node, values
        self.rows = batch.rows
        self._frame = batch.frames.of[node]

    def __getattr__(self, op: str) -> Callable[..., Output]:
        return lambda *inputs, **attrs: self._add(op, inputs, attrs, f"{self._node.name}/{op}")

    def copy(self, node: Node, *inputs: Output, **attrs: Any) -> Output:
        """Add a node with the attributes of another, of which some are changed."""
        kept = {name: value for name, value in node.attrs.items() if name[0] != "_"}
        return self._add(node.op, inputs, kept | attrs, node.name)

    def _add(self, op: str, inputs: Sequence[Output], attrs: dict[str, Any], name: str) -> Output:
        graph, name = self._batch.graph, f"{self._batch.prefix}/{name}"
        return graph.add(op, *inputs, name=name, device=self._node.device, attrs=attrs).output()

    def const(self, value: Any, like: Output | None = None) -> Output:
        """Add a constant of the type of a tensor, by default int32."""
        dtype = dtypes.int32 if like is None else like.dtype
        assert dtype is not None
        return self._batch.constant(value, dtype, self._frame)

    def sizes(self, x: Output) -> Sequence[int | None]:
        """The static sizes of an input or output of the node. Raises NotBatchable without rank."""
        dims = self._batch.shapes[x].dims
        if dims is None:
            raise NotBatchable
        return dims

    def rank(self, x: Output) -> int:
        """The static rank of an input or output of the node. Raises NotBatchable without one."""
        return len(self.sizes(x))

    def value(self, slot: int) -> Output:
        """An input, with an axis of rows or without."""
        return self._values[slot]

    def shared(self, slot: int) -> Output:
        """An input that is the same in all rows. Raises NotBatchable for others."""
        if self.has_rows(slot):
            raise NotBatchable
        return self._values[slot]

    def aligned(self, slot: int, rank: int) -> Output:
        """An input that broadcasts to a rank: with axes of size 1 after that of its rows."""
        value = self._values[slot]
        if not self.has_rows(slot):
            return value
        dims = self._batch.shapes[self._node.inputs[slot]].dims
        if dims is None:
            return self._aligned_at_run_time(value, rank)
        for _ in range(rank - len(dims)):
            value = self.ExpandDims(value, self.const(1))
        return value

    def _aligned_at_run_time(self, value: Output, rank: int) -> Output:
        shape, one = self.Shape(value), self.const(1)
        missing = self.Sub(self.const([rank + 1]), self.Size(shape))
        sizes = self.Slice(shape, self.const([1]), self.const([-1]))
        ones = self.Fill(missing, one)
        return self.Reshape(
            value, self.ConcatV2(self.const([self.rows]), ones, sizes, self.const(0))
        )

    def repeated(self, slot: int) -> Output:
        """An input with an axis of rows, which one that all rows share is repeated along."""
        value = self._values[slot]
        return value if self.has_rows(slot) else self.repeat(self._node.inputs[slot], value)

    def prefixed(self, slot: int, *first: int) -> Output:
        """A vector that all rows share after some numbers, by default the number of rows."""
        value, numbers = self.shared(slot), list(first) or [self.rows]
        known = self._batch.shapes.value(self._node.inputs[slot])
        if known is not None:
            return self.const([*numbers, *known.tolist()], value)
        return self.ConcatV2(self.const(numbers, value), value, self.const(0))

    def next_axes(self, slot: int) -> Output:
        """Axes that all rows share, as axes of a tensor with rows."""
        axes = self.shared(slot)
        known = self._batch.shapes.value(self._node.inputs[slot])
        if known is not None:
            return self.const(np.where(known < 0, known, known + 1), axes)
        is_from_end = self.Less(axes, self.const(0, axes))
        return self.SelectV2(is_from_end, axes, self.AddV2(axes, self.const(1, axes)))

    def repeat(self, x: Output, value: Output) -> Output:
        """The value of a tensor of the original graph, repeated in each row."""
        if x.dtype is None or x.dtype.is_opaque:
            raise NotBatchable
        shape, rows = self._batch.shapes[x], self.rows
        if shape.dims is not None and shape.is_full:
            sizes = self.const([rows, *shape.dims])
        else:
            sizes = self.ConcatV2(self.const([rows]), self.Shape(value), self.const(0))
        return self.BroadcastTo(value, sizes)

    def first_row(self, value: Output) -> Output:
        """The value in the first row, of which a node needs the shape alone."""
        bounds = self.const([0]), self.const([1]), self.const([1])
        return self.StridedSlice(value, *bounds, shrink_axis_mask=1)

    def has_rows(self, slot: int) -> bool:
        """True for an input with an axis of rows."""
        return self._node.inputs[slot] in self._batch.varying
