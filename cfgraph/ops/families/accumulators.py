"""Conditional accumulators: sums or means of gradients, taken once there are enough of them.

A gradient with a step before that of the accumulator is stale and dropped. Taking one waits, as
taking from a queue does.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, ClassVar, Final

import numpy as np

from cfgraph.ir.dtypes import DType, float16, float32, float64
from cfgraph.ir.graph import Node
from cfgraph.ir.names import decode_key, decode_text
from cfgraph.ir.shapes import SCALAR_SHAPE, UNKNOWN_SHAPE, Shape, vector_shape
from cfgraph.ops.opdef.blocking import Blocked
from cfgraph.ops.opdef.facts import HostPlacement, SideEffects
from cfgraph.ops.opdef.op import ALL_NUMBERS, Kernel, Op, OpError, define_op, one_of
from cfgraph.ops.opdef.resources import Resource
from cfgraph.ops.opdef.shape_functions import InferenceContext


class Accumulator(Resource):
    """A sum of dense gradients, how many there are, and the step; `version` counts changes."""

    __slots__ = ("count", "dtype", "element_shape", "is_mean", "name", "step", "total", "version")
    namespace = "accumulators"
    shape = ()
    ndim = 0

    def __init__(self, name: str, dtype: DType, shape: Shape, *, is_mean: bool) -> None:
        self.name, self.dtype, self.element_shape = name, dtype, shape
        self.is_mean = is_mean
        self.count = self.step = self.version = 0
        self.total: Any = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self.count} gradients>"

    def apply(self, step: int, dtype: DType, *gradient: Any) -> None:
        """Add a gradient, unless it is stale."""
        if dtype is not self.dtype:
            raise OpError(f"the gradient has type {dtype}, the accumulator {self.dtype}")
        if step < self.step:
            return
        self.check(*gradient)
        self.add(*gradient)
        self.count += 1
        self.version += 1

    def take(self, required: int, dtype: DType) -> Any:
        """Remove the sum or mean of at least as many gradients. Raises Blocked to wait."""
        if required <= 0:
            raise OpError(f"Argument num_required must be positive, got {required}")
        if dtype is not self.dtype:
            raise OpError(f"type {dtype} is requested, the accumulator has {self.dtype}")
        if self.count < required:
            raise Blocked(self, "for gradients")
        result = self.result()
        self.count, self.total = 0, None
        self.advance(self.step + 1)
        return result

    def advance(self, step: int) -> None:
        """Set the step."""
        self.step = step
        self.version += 1

    def withdraw(self, key: Any) -> None:
        """Forget a node that waits no longer, which has taken nothing."""

    def check(self, gradient: Any) -> None:
        """Raise OpError for a gradient of another shape."""
        expected = Shape(self.total.shape) if self.count else self.element_shape
        if not expected.accepts(gradient.shape) or not self.element_shape.accepts(gradient.shape):
            got = list(gradient.shape)
            raise OpError(f"Shape mismatch: expected compatible with {expected}, got {got}")

    def add(self, gradient: Any) -> None:
        """Add a gradient that fits."""
        self.total = self.total + gradient if self.count else gradient

    def result(self) -> Any:
        """The sum or mean."""
        return _divided(self.total, self.count) if self.is_mean else self.total


def _divided(total: Any, count: Any) -> Any:
    """The quotient in the type of the total."""
    return total / np.asarray(count).astype(total.dtype)


class SparseAccumulator(Accumulator):
    """A sum of slices, in the order of their indices; a mean counts the gradients of each slice."""

    __slots__ = ("counts", "indices")

    def check(self, indices: Any, values: Any, shape: Any, is_known: Any) -> None:  # type: ignore[override]
        """Raise OpError for slices that do not fit."""
        if indices.ndim != 1:
            got = list(indices.shape)
            raise OpError(f"Input indices should be vector but received shape: {got}")
        if not values.ndim:
            raise OpError("Values cannot be 0-dimensional.")
        if len(indices) != len(values):
            raise OpError(f"Expected {len(indices)} non-empty input values, got {len(values)}")
        dims = self.element_shape.dims or ()
        rank = len(dims)
        if is_known and not self.element_shape.accepts(shape[:rank].tolist()):
            raise OpError(
                f"Shape mismatch: expected shape {self.element_shape}, got {shape.tolist()}"
            )
        if rank and dims[0] is not None and (indices >= dims[0]).any():
            raise OpError(f"Shape mismatch: an index exceeds limits of shape {self.element_shape}")
        expected = Shape(self.total.shape[1:]) if self.count else Shape(dims[1:])
        inner = values.shape[1:]
        if not expected.accepts(inner if self.count else inner[: max(rank - 1, 0)]):
            raise OpError(f"Shape mismatch: expected slices {expected}, got {list(inner)}")

    def add(self, indices: Any, values: Any, *shape: Any) -> None:  # type: ignore[override]
        """Merge sorted slices into those that are there."""
        ones = np.ones(len(indices), np.int64)
        if not self.count:
            self.indices, self.total, self.counts = indices, values, ones
            return
        merged = np.union1d(self.indices, indices)
        total = np.zeros((len(merged), *values.shape[1:]), values.dtype)
        counts = np.zeros(len(merged), np.int64)
        for at, rows, numbers in ((self.indices, self.total, self.counts), (indices, values, ones)):
            places = np.searchsorted(merged, at)
            np.add.at(total, places, rows)
            np.add.at(counts, places, numbers)
        self.indices, self.total, self.counts = merged, total, counts

    def result(self) -> Any:
        """Indices, values, and shape, whose size is unknown unless the accumulator has one."""
        counts = self.counts.reshape(-1, *[1] * (self.total.ndim - 1))
        values = _divided(self.total, counts) if self.is_mean else self.total
        size = (self.element_shape.dims or (None,))[0]
        shape = [-1 if size is None else size, *values.shape[1:]]
        return self.indices, values, np.array(shape, np.int64)


# -- ops --------------------------------------------------------------------------------------

_DTYPE: Final = one_of(ALL_NUMBERS, attr="dtype")


class _AccumulatorOp(Op, abstract=True):
    """An op on accumulators."""

    effects = SideEffects(stateful=True, blocking=True)
    placement = HostPlacement(host_only=True)


class ResourceConditionalAccumulator(_AccumulatorOp):
    """Handle of an accumulator of dense gradients."""

    signature = "-> handle: resource"
    attrs = (
        f"{_DTYPE}, shape: shape, container: string = '', shared_name: string = '', "
        "reduction_type: {'MEAN', 'SUM'} = 'MEAN'"
    )
    effects = SideEffects(stateful=True)
    kind: ClassVar[type[Accumulator]] = Accumulator

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        container = decode_key(node.attr("container"))
        name = decode_key(node.attr("shared_name")) or node.name
        dtype, shape = node.attr("dtype"), node.attr("shape")
        if dtype not in (float16, float32, float64):
            raise OpError(f"accumulators are of float16, float32, or float64, not of {dtype}")
        is_mean = decode_text(node.attr("reduction_type")) == "MEAN"

        def make() -> Accumulator:
            return cls.kind(name, dtype, shape, is_mean=is_mean)

        def handle(step: Any) -> Any:
            found = step.resource(container, name, make, Accumulator.namespace)
            if found.__class__ is not cls.kind or found.dtype is not dtype:
                raise OpError(f"Shared accumulator {name!r} is {found!r} of {found.dtype}")
            return found

        return handle

    shape = staticmethod(lambda context: [SCALAR_SHAPE])


class ResourceAccumulatorApplyGradient(_AccumulatorOp):
    """Add a gradient of a step to an accumulator, unless it is stale."""

    signature = "handle: resource, local_step: int64, gradient: dtype"
    attrs = _DTYPE

    @classmethod
    def run(cls, step: Any, node: Node, *inputs: Any) -> Any:
        accumulator, local_step, *gradient = inputs
        accumulator.apply(_scalar(local_step, "local_step"), node.attr("dtype"), *gradient)


class ResourceAccumulatorTakeGradient(_AccumulatorOp):
    """Remove the sum or mean of as many gradients at least; wait for them."""

    signature = "handle: resource, num_required: int32 -> average: dtype"
    attrs = _DTYPE

    @classmethod
    def run(cls, step: Any, node: Node, *inputs: Any) -> Any:
        accumulator, required = inputs
        return accumulator.take(_scalar(required, "num_required"), node.attr("dtype"))


class ResourceAccumulatorSetGlobalStep(_AccumulatorOp):
    """Set the step of an accumulator."""

    signature = "handle: resource, new_global_step: int64"

    @classmethod
    def run(cls, step: Any, node: Node, *inputs: Any) -> Any:
        inputs[0].advance(_scalar(inputs[1], "new_global_step"))


class ResourceAccumulatorNumAccumulated(_AccumulatorOp):
    """The number of gradients in an accumulator."""

    signature = "handle: resource -> num_accumulated: int32"
    effects = SideEffects(stateful=True, reads_only=True)
    kernel = staticmethod(lambda xp, step, accumulator: np.int32(accumulator.count))
    shape = staticmethod(lambda context: [SCALAR_SHAPE])


def _scalar(value: Any, name: str) -> int:
    if np.ndim(value):
        raise OpError(f"Argument {name} must be scalar, but got shape {list(np.shape(value))}")
    return int(value)


for _op in (
    ResourceConditionalAccumulator,
    ResourceAccumulatorApplyGradient,
    ResourceAccumulatorTakeGradient,
    ResourceAccumulatorSetGlobalStep,
    ResourceAccumulatorNumAccumulated,
):
    define_op(
        __name__,
        _op.name.removeprefix("Resource"),
        _op,
        f"{(_op.__doc__ or '').removesuffix('.')} (older string handle).",
        signature=_op.signature.replace("resource", "Ref(string)"),
    )


class SparseConditionalAccumulator(ResourceConditionalAccumulator):
    """Handle of an accumulator of slices."""

    signature = "-> handle: Ref(string)"
    kind = SparseAccumulator


class SparseAccumulatorApplyGradient(ResourceAccumulatorApplyGradient):
    """Add slices of a step to an accumulator, unless they are stale."""

    signature = (
        "handle: Ref(string), local_step: int64, gradient_indices: int64, "
        "gradient_values: dtype, gradient_shape: int64"
    )
    attrs = f"{_DTYPE}, has_known_shape: bool"

    @classmethod
    def run(cls, step: Any, node: Node, *inputs: Any) -> Any:
        super().run(step, node, *inputs, node.attr("has_known_shape"))


class SparseAccumulatorTakeGradient(ResourceAccumulatorTakeGradient):
    """Remove the sum or mean of slices of as many gradients at least; wait for them."""

    signature = (
        "handle: Ref(string), num_required: int32 -> indices: int64, values: dtype, shape: int64"
    )

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [vector_shape(), UNKNOWN_SHAPE, vector_shape()]
