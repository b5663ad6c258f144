"""Scattered updates at index vectors: ScatterNd and the TensorScatter ops."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, ClassVar

from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import Shape
from cfgraph.ops.families.gather import index_vectors, widen_indices
from cfgraph.ops.opdef.array_namespace import accumulated_at, updated_at
from cfgraph.ops.opdef.facts import CompilerSupport, HostPlacement
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradients, int32_constant
from cfgraph.ops.opdef.op import Kernel, Op, OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext, require_rank, require_rank_at_least

_BAD_INDICES_ATTR = "bad_indices_policy: string = ''"


def scatter_updates(
    xp: ModuleType, array: Any, indices: Any, updates: Any, combiner: str, *, ignore: bool
) -> Any:
    """A copy of `array` with updates at index vectors. Raises OpError if the shapes do not fit.

    `combiner` is `set`, `add`, `subtract`, `min`, or `max`; `ignore` drops updates out of bounds.
    """
    if not indices.ndim or not updates.ndim:
        message = "indices and updates must have rank at least one"
        raise OpError(message)
    fits = updates.shape == indices.shape[:-1] + array.shape[indices.shape[-1] :]
    if indices.ndim == 1:
        # a vector must fit both as one index vector and as a list of indices
        indices = indices[:, None]
    if not fits or updates.shape != indices.shape[:-1] + array.shape[indices.shape[-1] :]:
        message = (
            "Dimensions of updates must be those of indices and of the slices: "
            f"indices {list(indices.shape)}, updates {list(updates.shape)}, "
            f"output {list(array.shape)}"
        )
        raise OpError(message)
    if not updates.size:
        return array
    if not indices.size or not array.size:
        message = "Indices and updates specified for empty output shape"
        raise OpError(message)
    index, bad = index_vectors(xp, indices, array.shape, check=not ignore)
    if bad is not None and hasattr(array, "at"):
        # JAX drops updates out of bounds
        index = (xp.where(bad, array.shape[0], index[0]), *index[1:])
    elif bad is not None:
        index, updates = tuple(component[~bad] for component in index), updates[~bad]
    if combiner == "set":
        return updated_at(array, index, updates)
    if combiner in ("min", "max") and array.dtype.kind not in "iu":
        # a NaN update leaves the old element, as comparisons with NaN are false
        neutral = array.dtype.type(float("inf") if combiner == "min" else float("-inf"))
        updates = xp.where(xp.isnan(updates), neutral, updates)
    return accumulated_at(xp, array, index, updates, combiner)


def _check_static_shapes(tensor: Shape, indices: Shape, updates: Shape) -> None:
    require_rank_at_least(indices, 1)
    require_rank_at_least(updates, 1)
    depth = None if indices.dims is None else indices.dims[-1]
    if depth is None or tensor.dims is None:
        return
    if depth > len(tensor.dims):
        message = f"index vectors of length {depth} do not fit a tensor of shape {tensor}"
        raise ValueError(message)
    updates.merge(indices[:-1] + tensor[depth:])


class ScatterNd(Op):
    """A tensor of zeros with updates added at index vectors."""

    signature = "indices: Tindices, updates: T, shape: Tindices -> output: T"
    attrs = f"Tindices: {{int16, int32, int64}}, {_BAD_INDICES_ATTR}"
    placement = HostPlacement(host_inputs=(2,))
    compilation = CompilerSupport(constant_inputs=(2,))

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        ignore = node.attr("bad_indices_policy") == b"IGNORE"
        dtype = node.attr("T")
        fill = b"" if dtype.is_object else 0

        def scatter_nd(indices: Any, updates: Any, shape: Any) -> Any:
            sizes = shape.tolist()
            if shape.ndim != 1:
                message = f"Shape must be a vector, got shape {list(shape.shape)}"
                raise OpError(message)
            if any(size < 0 for size in sizes):
                message = f"the shape {sizes} has negative sizes"
                raise OpError(message)
            zeros = xp.full(sizes, fill, dtype.numpy)
            return scatter_updates(xp, zeros, indices, updates, "add", ignore=ignore)

        return scatter_nd

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        require_rank(context.inputs[2], 1)
        result = context.shape_value(2)
        _check_static_shapes(result, *context.inputs[:2])
        return [result]

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        return None, _gathered_gradient(g, node, dz, node.inputs[0]), None


def _gathered_gradient(g: GradientBuilder, node: Node, dz: Output, indices: Output) -> Output:
    """The gradient of the updates: `dz` gathered at their index vectors."""
    if g.known_shape(indices).rank == 1:
        indices = g.ExpandDims(indices, int32_constant(g, 1))
    return g.GatherNd(
        dz, widen_indices(g, indices), bad_indices_policy=node.attr("bad_indices_policy")
    )


class TensorScatterOp(Op, abstract=True):
    """A tensor with updates at index vectors, combined with the old elements by `combiner`."""

    combiner: ClassVar[str]

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        combiner, ignore = cls.combiner, node.attr("bad_indices_policy") == b"IGNORE"
        return lambda tensor, indices, updates: scatter_updates(
            xp, tensor, indices, updates, combiner, ignore=ignore
        )

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        tensor, indices, updates = context.inputs
        _check_static_shapes(tensor, indices, updates)
        return [tensor]


class TensorScatterUpdate(TensorScatterOp):
    """A tensor with elements replaced at index vectors; the last of duplicates wins."""

    signature = "tensor: T, indices: Tindices, updates: T -> output: T"
    attrs = f"Tindices: {{int16, int32, int64, uint16}}, {_BAD_INDICES_ATTR}"
    combiner = "set"

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        _, indices, updates = node.inputs

        def tensor_gradient() -> Output:
            policy = node.attr("bad_indices_policy")
            zeros = g.zeros_like(updates)
            return g.TensorScatterUpdate(dz, indices, zeros, bad_indices_policy=policy)

        return tensor_gradient, None, lambda: _gathered_gradient(g, node, dz, indices)


class TensorScatterAdd(TensorScatterOp):
    """A tensor with updates added at index vectors."""

    signature = "tensor: T, indices: Tindices, updates: T -> output: T"
    attrs = f"Tindices: {{int32, int64}}, {_BAD_INDICES_ATTR}"
    combiner = "add"

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        return dz, None, lambda: _gathered_gradient(g, node, dz, node.inputs[1])


class TensorScatterSub(TensorScatterOp):
    """A tensor with updates subtracted at index vectors."""

    signature = "tensor: T, indices: Tindices, updates: T -> output: T"
    attrs = f"Tindices: {{int32, int64}}, {_BAD_INDICES_ATTR}"
    combiner = "subtract"

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        return dz, None, lambda: g.Neg(_gathered_gradient(g, node, dz, node.inputs[1]))


class TensorScatterExtreme(TensorScatterOp, abstract=True):
    """The elementwise extreme of a tensor and updates; equal extremes share the gradient."""

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        x, indices, updates = node.inputs
        unchanged = g.Cast(g.Equal(x, node.output()), DstT=x.dtype)
        chosen = g.Cast(
            g.Equal(updates, _gathered_gradient(g, node, node.output(), indices)), DstT=x.dtype
        )
        policy = node.attr("bad_indices_policy")
        count = g.TensorScatterAdd(unchanged, indices, chosen, bad_indices_policy=policy)
        share = g.RealDiv(dz, count)
        return (
            lambda: g.Mul(unchanged, share),
            None,
            lambda: g.Mul(chosen, _gathered_gradient(g, node, share, indices)),
        )


class TensorScatterMin(TensorScatterExtreme):
    """Elementwise minimum of a tensor and the updates at index vectors."""

    signature = "tensor: T, indices: Tindices, updates: T -> output: T"
    attrs = f"Tindices: {{int32, int64}}, {_BAD_INDICES_ATTR}"
    combiner = "min"


class TensorScatterMax(TensorScatterExtreme):
    """Elementwise maximum of a tensor and the updates at index vectors."""

    signature = "tensor: T, indices: Tindices, updates: T -> output: T"
    attrs = f"Tindices: {{int32, int64}}, {_BAD_INDICES_ATTR}"
    combiner = "max"


class ScatterNdNonAliasingAdd(TensorScatterOp):
    """A tensor with updates added at index vectors; the older form of TensorScatterAdd."""

    signature = "input: T, indices: Tindices, updates: T -> output: T"
    attrs = (
        "T: {float32, float64, int32, uint8, int16, int8, complex64, int64, qint8, quint8, "
        "qint32, bfloat16, qint16, quint16, uint16, complex128, float16, uint32, uint64, bool}, "
        f"Tindices: {{int32, int64}}, {_BAD_INDICES_ATTR}"
    )
    compilation = CompilerSupport(compiled=False)
    combiner = "add"

    gradient = TensorScatterAdd.gradient
