"""Assignments to a part of a variable."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import Shape
from cfgraph.ops.inference import InferenceContext
from cfgraph.ops.op import Kernel, Op
from cfgraph.ops.slicing import Masks, cached_index
from cfgraph.ops.strided_slice import MASKS, with_slice
from cfgraph.ops.variables import Variable


class SliceAssign(Op, abstract=True):
    """Write a value to the part of a variable that a strided slice would take."""

    stateful = True
    host_inputs = (1, 2, 3)

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        index, returns = cached_index(Masks(node.attr)), bool(cls.parsed().outputs)

        def assign(
            step: Any, cell: Variable, begin: Any, end: Any, strides: Any, value: Any
        ) -> Any:
            cell.value = with_slice(xp, cell.read(), index(begin, end, strides), value)
            return cell if returns else None

        return assign


class StridedSliceAssign(SliceAssign):
    """Write a value to a part of a variable; hands the reference on."""

    signature = (
        "ref: Ref(T), begin: Index, end: Index, strides: Index, value: T -> output_ref: Ref(T)"
    )
    attrs = f"Index: {{int32, int64}}, {MASKS}"

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [context.inputs[0]]


class ResourceStridedSliceAssign(SliceAssign):
    """Write a value to a part of a variable behind a resource handle."""

    signature = "ref: resource, begin: Index, end: Index, strides: Index, value: T ->"
    attrs = f"Index: {{int32, int64}}, {MASKS}"
