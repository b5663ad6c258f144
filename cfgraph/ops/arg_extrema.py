"""Where along a dimension the largest or smallest value is."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, ClassVar

from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.ops.dims import any_of_rank, runtime_axis, static_axis, static_int
from cfgraph.ops.inference import InferenceContext
from cfgraph.ops.op import Kernel, Op, OpError
from cfgraph.ops.type_sets import QUANTIZED, REAL, one_of


class ArgExtreme(Op, abstract=True):
    """The first place of an extreme along one dimension; `function` finds it."""

    signature = "input: T, dimension: Tidx -> output: output_type"
    host_inputs = (1,)
    constant_inputs = (1,)
    function: ClassVar[str]
    worst: ClassVar[float]

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        function, wanted = getattr(xp, cls.function), node.attr("output_type").numpy
        floats = node.attr("T").is_floating
        worst = node.attr("T").numpy.type(cls.worst) if floats else None

        def place(value: Any, dimension: Any) -> Any:
            if dimension.ndim:
                message = f"dim must be a scalar, but received tensor of shape: {dimension.shape}"
                raise OpError(message)
            axis = runtime_axis(dimension, value.ndim, "Expected dimension")
            if value.shape[axis] == 0:
                message = f"Reduction axis {axis} is empty in shape {list(value.shape)}"
                raise OpError(message)
            if floats:  # NaN is never the extreme
                value = xp.where(xp.isnan(value), worst, value)
            return function(value, axis=axis).astype(wanted)

        return place

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        dims, axis = context.inputs[0].dims, static_int(context, 1)
        if dims is None:
            return [UNKNOWN_SHAPE]
        if axis is None:
            return [any_of_rank(len(dims) - 1)] if dims else [UNKNOWN_SHAPE]
        place = static_axis(axis, len(dims))
        return [Shape(dims[:place] + dims[place + 1 :])]


class ArgMax(ArgExtreme):
    """The place of the largest."""

    attrs = (
        f"{one_of(REAL, QUANTIZED, 'bool')}, Tidx: {{int16, int32, int64}} = int32, "
        "output_type: {int16, uint16, int32, int64} = int64"
    )
    function = "argmax"
    worst = -float("inf")


class ArgMin(ArgExtreme):
    """The place of the smallest."""

    attrs = (
        f"{one_of(REAL, QUANTIZED, 'bool')}, Tidx: {{int32, int64}} = int32, "
        "output_type: {int32, int64} = int64"
    )
    function = "argmin"
    worst = float("inf")
