"""Sums of many tensors."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import reduce
from types import ModuleType
from typing import Any

from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import Shape
from cfgraph.ops.adjoint import Adjoint, Partials
from cfgraph.ops.elements import sum_of
from cfgraph.ops.inference import InferenceContext
from cfgraph.ops.op import Kernel, Op, OpError
from cfgraph.ops.type_sets import ALL_NUMBERS, one_of


class AddN(Op):
    """The sum of tensors of one shape, or of variants."""

    signature = "inputs: N*T -> sum: T"
    attrs = one_of(ALL_NUMBERS, "variant")
    commutes = True

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        if node.attr("T").is_object:
            return lambda *values: reduce(sum_of, values)
        return _pair if len(node.inputs) == 2 else _total

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [reduce(Shape.merge, context.inputs)]

    @staticmethod
    def gradient(g: Adjoint, node: Node, dz: Output) -> Partials:
        return [dz] * len(node.inputs)


def _pair(one: Any, other: Any) -> Any:
    return one + other if one.shape == other.shape else _misfit((one, other))


def _total(*values: Any) -> Any:
    shape = values[0].shape
    if any(value.shape != shape for value in values):
        _misfit(values)
    return reduce(operator.add, values)


def _misfit(values: Sequence[Any]) -> None:
    shapes = ", ".join(str(list(value.shape)) for value in values)
    message = f"Inputs to operation must have the same size and shape: {shapes}"
    raise OpError(message)


class AccumulateNV2(AddN):
    """The sum of tensors of one shape."""

    attrs = f"{one_of(ALL_NUMBERS)}, shape: shape"
    compiled = False

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [reduce(Shape.merge, context.inputs, context.attr("shape"))]
