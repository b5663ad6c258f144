"""Updates put where index vectors say: ScatterNd and the TensorScatter ops."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, ClassVar

from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import Shape
from cfgraph.ops.adjoint import Adjoint, Partials, index
from cfgraph.ops.dims import want_rank, want_rank_at_least
from cfgraph.ops.gather import index_vectors
from cfgraph.ops.gather_gradients import wide
from cfgraph.ops.inference import InferenceContext
from cfgraph.ops.op import Kernel, Op, OpError
from cfgraph.ops.writes import accumulated, written

_POLICY = "bad_indices_policy: string = ''"


def scattered(
    xp: ModuleType, array: Any, indices: Any, updates: Any, how: str, *, ignore: bool
) -> Any:
    """A copy of `array` with updates at index vectors; OpError where they do not fit.

    `how` is `set`, `add`, `subtract`, `min` or `max`; `ignore` drops updates that point outside.
    """
    if not indices.ndim or not updates.ndim:
        message = "indices and updates must have rank at least one"
        raise OpError(message)
    fits = updates.shape == indices.shape[:-1] + array.shape[indices.shape[-1] :]
    if indices.ndim == 1:
        # a vector must fit as one index vector and as so many indices: nothing but zeros are left
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
    where, bad = index_vectors(xp, indices, array.shape, check=not ignore)
    if bad is not None and hasattr(array, "at"):
        # what is written outside of a traced array is dropped
        where = (xp.where(bad, array.shape[0], where[0]), *where[1:])
    elif bad is not None:
        where, updates = tuple(part[~bad] for part in where), updates[~bad]
    if how == "set":
        return written(array, where, updates)
    if how in ("min", "max") and array.dtype.kind not in "iu":
        # what is there stays where it is compared with NaN
        never = array.dtype.type(float("inf") if how == "min" else float("-inf"))
        updates = xp.where(xp.isnan(updates), never, updates)
    return accumulated(xp, array, where, updates, how)


def _check_static(tensor: Shape, indices: Shape, updates: Shape) -> None:
    want_rank_at_least(indices, 1)
    want_rank_at_least(updates, 1)
    depth = None if indices.dims is None else indices.dims[-1]
    if depth is None or tensor.dims is None:
        return
    if depth > len(tensor.dims):
        message = f"index vectors of {depth} for a tensor of shape {tensor}"
        raise ValueError(message)
    updates.merge(indices[:-1] + tensor[depth:])


class ScatterNd(Op):
    """Zeros of a shape, with updates added at index vectors."""

    signature = "indices: Tindices, updates: T, shape: Tindices -> output: T"
    attrs = f"Tindices: {{int16, int32, int64}}, {_POLICY}"
    host_inputs = (2,)
    constant_inputs = (2,)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        ignore = node.attr("bad_indices_policy") == b"IGNORE"
        dtype = node.attr("T")
        fill = b"" if dtype.is_object else 0

        def scatter_nd(indices: Any, updates: Any, shape: Any) -> Any:
            sizes = shape.tolist()
            if shape.ndim != 1:
                message = f"Shape must be a vector, it has the shape {list(shape.shape)}"
                raise OpError(message)
            if any(size < 0 for size in sizes):
                message = f"the shape {sizes} must not have negative sizes"
                raise OpError(message)
            zeros = xp.full(sizes, fill, dtype.numpy)
            return scattered(xp, zeros, indices, updates, "add", ignore=ignore)

        return scatter_nd

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        want_rank(context.inputs[2], 1)
        result = context.shape_value(2)
        _check_static(result, *context.inputs[:2])
        return [result]

    @staticmethod
    def gradient(g: Adjoint, node: Node, dz: Output) -> Partials:
        return None, _picked(g, node, dz, node.inputs[0]), None


def _picked(g: Adjoint, node: Node, dz: Output, indices: Output) -> Output:
    """What an update has become: the gradient at its index vector."""
    if g.known_shape(indices).rank == 1:
        indices = g.ExpandDims(indices, index(g, 1))
    return g.GatherNd(dz, wide(g, indices), bad_indices_policy=node.attr("bad_indices_policy"))


class TensorScatter(Op, abstract=True):
    """A tensor with updates at index vectors, combined with what is there as `how` says."""

    how: ClassVar[str]

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        how, ignore = cls.how, node.attr("bad_indices_policy") == b"IGNORE"
        return lambda tensor, indices, updates: scattered(
            xp, tensor, indices, updates, how, ignore=ignore
        )

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        tensor, indices, updates = context.inputs
        _check_static(tensor, indices, updates)
        return [tensor]


class TensorScatterUpdate(TensorScatter):
    """The tensor with other values at index vectors; the last one stays."""

    signature = "tensor: T, indices: Tindices, updates: T -> output: T"
    attrs = f"Tindices: {{int16, int32, int64, uint16}}, {_POLICY}"
    how = "set"

    @staticmethod
    def gradient(g: Adjoint, node: Node, dz: Output) -> Partials:
        _, indices, updates = node.inputs

        def of_rest() -> Output:
            policy = node.attr("bad_indices_policy")
            zeros = g.zeros_like(updates)
            return g.TensorScatterUpdate(dz, indices, zeros, bad_indices_policy=policy)

        return of_rest, None, lambda: _picked(g, node, dz, indices)


class TensorScatterAdd(TensorScatter):
    """The tensor with updates added at index vectors."""

    signature = "tensor: T, indices: Tindices, updates: T -> output: T"
    attrs = f"Tindices: {{int32, int64}}, {_POLICY}"
    how = "add"

    @staticmethod
    def gradient(g: Adjoint, node: Node, dz: Output) -> Partials:
        return dz, None, lambda: _picked(g, node, dz, node.inputs[1])


class TensorScatterSub(TensorScatter):
    """The tensor with updates subtracted at index vectors."""

    signature = "tensor: T, indices: Tindices, updates: T -> output: T"
    attrs = f"Tindices: {{int32, int64}}, {_POLICY}"
    how = "subtract"

    @staticmethod
    def gradient(g: Adjoint, node: Node, dz: Output) -> Partials:
        return dz, None, lambda: g.Neg(_picked(g, node, dz, node.inputs[1]))


class TensorScatterExtreme(TensorScatter, abstract=True):
    """The tensor with the extreme of itself and the updates; those that are it share a gradient."""

    @staticmethod
    def gradient(g: Adjoint, node: Node, dz: Output) -> Partials:
        x, indices, updates = node.inputs
        kept = g.Cast(g.Equal(x, node.output()), DstT=x.dtype)
        chosen = g.Cast(g.Equal(updates, _picked(g, node, node.output(), indices)), DstT=x.dtype)
        policy = node.attr("bad_indices_policy")
        count = g.TensorScatterAdd(kept, indices, chosen, bad_indices_policy=policy)
        share = g.RealDiv(dz, count)
        return (
            lambda: g.Mul(kept, share),
            None,
            lambda: g.Mul(chosen, _picked(g, node, share, indices)),
        )


class TensorScatterMin(TensorScatterExtreme):
    """The tensor with the minimum of itself and the updates at index vectors."""

    signature = "tensor: T, indices: Tindices, updates: T -> output: T"
    attrs = f"Tindices: {{int32, int64}}, {_POLICY}"
    how = "min"


class TensorScatterMax(TensorScatterExtreme):
    """The tensor with the maximum of itself and the updates at index vectors."""

    signature = "tensor: T, indices: Tindices, updates: T -> output: T"
    attrs = f"Tindices: {{int32, int64}}, {_POLICY}"
    how = "max"


class ScatterNdNonAliasingAdd(TensorScatter):
    """The tensor with updates added at index vectors; the older form of TensorScatterAdd."""

    signature = "input: T, indices: Tindices, updates: T -> output: T"
    attrs = (
        "T: {float32, float64, int32, uint8, int16, int8, complex64, int64, qint8, quint8, "
        "qint32, bfloat16, qint16, quint16, uint16, complex128, float16, uint32, uint64, bool}, "
        f"Tindices: {{int32, int64}}, {_POLICY}"
    )
    compiled = False
    how = "add"

    gradient = TensorScatterAdd.gradient
