"""Pooling over regions whose sizes differ by one and are drawn at random, and its gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, ClassVar, NamedTuple

import numpy as np

from cfgraph.ir.dtypes import int64
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import Shape, ShapeError, vector_shape
from cfgraph.limits import reserve_array
from cfgraph.ops.families.division import truncated_quotient
from cfgraph.ops.families.max_pooling import lowest_finite
from cfgraph.ops.families.pooling import check_pooled_shape
from cfgraph.ops.families.truncated_sampling import shuffled_indices
from cfgraph.ops.kernels.array_namespace import accumulated_at
from cfgraph.ops.kernels.philox import PhiloxStream, unit_float64
from cfgraph.ops.opdef.facts import HostPlacement, SideEffects
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradients, same_attrs
from cfgraph.ops.opdef.op import Op, OpError
from cfgraph.ops.opdef.resources import Step
from cfgraph.ops.opdef.shape_functions import InferenceContext, require_rank

_RANK = 4
_TYPES = "T: {float32, float64, int32, int64}"
_WORD = (1 << 64) - 1


def _pseudo_random_sizes(stream: PhiloxStream, size: int, count: int) -> Any:
    """The sizes of regions that start at the multiples of the ratio after one random offset."""
    ratio, least = size / count, size // count
    limit = min((least + 2) / ratio - 1, (size + 1 - least) / ratio - (count - 1))
    offset = unit_float64(stream.sequence(2))[0] * limit
    starts = np.ceil(ratio * (np.arange(1, count) + offset)).astype(np.int64)
    return np.diff(starts, prepend=1, append=size + 1)


def _random_sizes(stream: PhiloxStream, size: int, count: int) -> Any:
    """The two sizes of regions in random order."""
    least, larger = divmod(size, count)
    return least + (shuffled_indices(stream, count) < larger)


class PooledAxis(NamedTuple):
    """The regions of one dimension: the elements of each, one region after the other."""

    lengths: Any
    elements: Any

    @classmethod
    def from_sequence(cls, name: str, sequence: Any, size: int, overlapping: bool) -> PooledAxis:
        """The regions between the numbers of a pooling sequence."""
        starts, ends = sequence[:-1], np.minimum(sequence[1:] + overlapping, size)
        if (starts < 0).any() or (ends < 1).any():
            raise OpError(f"{name} sequence tensor values must not be negative, got {sequence}")
        lengths = np.maximum(ends - starts, 0)
        # a float, since the sum of integers may overflow
        reserve_array([int(lengths.sum(dtype=np.float64))], 8)
        shifts = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
        return cls(lengths, np.arange(len(shifts)) + shifts)

    @property
    def firsts(self) -> Any:
        """The positions in `elements` of the first element of each region."""
        return np.cumsum(self.lengths) - self.lengths


class PooledImage:
    """The regions of an image of a shape, by the rows and columns that pooling sequences list."""

    def __init__(self, shape: Sequence[int], *sequences: Any, overlapping: bool) -> None:
        reserve_array(shape, 8)
        self.shape = shape
        self.rows, self.columns = (
            PooledAxis.from_sequence(name, sequence.ravel(), size, overlapping)
            for name, sequence, size in zip(("Row", "Column"), sequences, shape[1:3], strict=True)
        )
        sizes = (shape[0], len(self.rows.elements), len(self.columns.elements), shape[3])
        reserve_array(sizes, 8, "the elements of the regions of a pool")

    @property
    def pooled_shape(self) -> tuple[int, ...]:
        """The shape of an image with one value per region."""
        batch, _, _, depth = self.shape
        return (batch, len(self.rows.lengths), len(self.columns.lengths), depth)

    @property
    def counts(self) -> Any:
        """The number of elements in each region, shaped to broadcast."""
        return self.rows.lengths[:, None, None] * self.columns.lengths[:, None]

    @property
    def positions(self) -> Any:
        """The flat positions of the elements in the image."""
        batch, height, width, depth = self.shape
        rows = np.arange(batch)[:, None] * height + self.rows.elements
        cells = rows[..., None] * width + self.columns.elements
        return cells[..., None] * depth + np.arange(depth)

    def elements(self, image: Any) -> Any:
        """The elements of all regions."""
        return image[:, self.rows.elements][:, :, self.columns.elements]

    def firsts(self, elements: Any) -> Any:
        """The first element of each region."""
        return elements[:, self.rows.firsts][:, :, self.columns.firsts]

    def reduce(self, ufunc: Any, elements: Any) -> Any:
        """Reduce the elements of each region to one value."""
        dtype = elements.dtype
        reduced = ufunc.reduceat(elements, self.rows.firsts, 1, dtype)
        return ufunc.reduceat(reduced, self.columns.firsts, 2, dtype)

    def repeat(self, values: Any) -> Any:
        """Repeat the value of each region for its elements."""
        return values.repeat(self.rows.lengths, 1).repeat(self.columns.lengths, 2)


class FractionalPooling(Op, abstract=True):
    """A reduction of regions of an image: `pool(image, x)` reduces the values of `x`.

    Seeds determine the regions as in TensorFlow; without any, each execution draws others.
    """

    signature = "value: T -> output: T, row_pooling_sequence: int64, col_pooling_sequence: int64"
    attrs = (
        "pooling_ratio: list(float) >= 4, pseudo_random: bool = false, overlapping: bool = false, "
        f"deterministic: bool = false, seed: int = 0, seed2: int = 0, {_TYPES}"
    )
    effects = SideEffects(stateful=True, random=True)
    placement = HostPlacement(host_only=True)
    pool: ClassVar[Callable[..., Any]]

    @classmethod
    def ratios(cls, node: Node) -> Any:
        """The ratio of each dimension. Raises OpError unless the image can be pooled by them."""
        ratios = node.attr("pooling_ratio")
        if len(ratios) != _RANK:
            raise OpError("pooling_ratio field must specify 4 dimensions")
        if not all(ratio >= 1 for ratio in ratios):
            raise OpError(f"pooling_ratio cannot be smaller than 1, got: {ratios}")
        if ratios[0] != 1 or ratios[3] != 1:
            raise OpError(f"{cls.name} does not pool the batch nor channel dimension")
        return np.array(ratios, np.float32)

    @classmethod
    def kernel(
        cls,
        xp: ModuleType,
        node: Node,
        ratios: Any,
        pseudo_random: bool,
        overlapping: bool,
        /,
        step: Step,
        x: Any,
    ) -> Any:
        if x.ndim != _RANK:
            raise OpError("tensor_in must be 4-dimensional")
        if (x.shape < ratios).any():
            raise OpError(
                f"Pooling ratio is higher than input dimension size: {ratios}, {list(x.shape)}"
            )
        draw = _pseudo_random_sizes if pseudo_random else _random_sizes
        stream, sequences = cls.stream(node, step), []
        for size, ratio in zip(x.shape[1:3], ratios[1:3], strict=True):
            count = _pooled_size(size, ratio)
            sequences.append(np.cumsum([0, *draw(stream, size, count)]))
            stream = stream.skip(1 if pseudo_random else -(-count // 4))
        rows, columns = sequences
        image = PooledImage(x.shape, rows, columns, overlapping=overlapping)
        return cls.pool(image, x), rows, columns

    @staticmethod
    def stream(node: Node, step: Step) -> PhiloxStream:
        """The random numbers of the seeds, or new ones."""
        seeds = [node.attr("seed"), node.attr("seed2")]
        if not any(seeds):
            seeds = step.generator(0, 0).integers(1 << 63, size=2).tolist()
        elif not node.attr("deterministic"):
            raise OpError("Both seed and seed2 should be 0 if deterministic is false.")
        key, counter = (seed & _WORD for seed in seeds)
        return PhiloxStream(key, 0, counter)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        ratios = np.array(context.attr("pooling_ratio"), np.float32)
        if len(ratios) != _RANK:
            raise ShapeError("pooling_ratio field must specify 4 dimensions")
        sizes = [
            None if size is None or not ratio >= 1 else _pooled_size(size, ratio)
            for size, ratio in zip(require_rank(context.inputs[0], _RANK), ratios, strict=True)
        ]
        return [Shape(sizes), vector_shape(None), vector_shape(None)]


def _pooled_size(size: int, ratio: Any) -> int:
    return int(np.float32(size) / ratio)


class FractionalMaxPool(FractionalPooling):
    """Maximum of each region."""

    @staticmethod
    def pool(image: PooledImage, x: Any) -> Any:
        """The maximum of each region, and at least the lowest finite number; NaN is ignored."""
        return np.fmax(image.reduce(np.fmax, image.elements(x)), lowest_finite(x.dtype))

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dy: Output, *_: Output | None) -> InputGradients:
        y, *sequences = (node.output(port) for port in range(3))
        return [same_attrs(g, "FractionalMaxPoolGrad", node, node.inputs[0], y, dy, *sequences)]


class FractionalAvgPool(FractionalPooling):
    """Mean of each region."""

    @staticmethod
    def pool(image: PooledImage, x: Any) -> Any:
        """The mean of each region; that of integers is rounded towards zero."""
        counts = image.counts.astype(x.dtype)
        total = image.reduce(np.add, image.elements(x))
        return truncated_quotient(total, counts) if x.dtype.kind == "i" else total / counts

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dy: Output, *_: Output | None) -> InputGradients:
        shape, sequences = g.shape(node.inputs[0], int64), (node.output(1), node.output(2))
        return [same_attrs(g, "FractionalAvgPoolGrad", node, shape, dy, *sequences)]


class FractionalMaxPoolGrad(Op):
    """Gradient of FractionalMaxPool: each region's gradient goes to its first maximum."""

    signature = (
        "orig_input: T, orig_output: T, out_backprop: T, row_pooling_sequence: int64, "
        "col_pooling_sequence: int64 -> output: T"
    )
    attrs = f"overlapping: bool = false, {_TYPES}"
    placement = HostPlacement(host_only=True)

    @staticmethod
    def kernel(
        xp: ModuleType, overlapping: bool, /, x: Any, y: Any, dy: Any, rows: Any, columns: Any
    ) -> Any:
        for name, array in (("orig_input", x), ("orig_output", y)):
            if array.ndim != _RANK or not array.size:
                raise OpError(
                    f"{name} must be a non-empty tensor of rank 4, got {list(array.shape)}"
                )
        if rows.size * columns.size > x.size:
            raise OpError(
                "Pooling region has more elements than the input tensor: the sequences have "
                f"{rows.size} and {columns.size}"
            )
        image = PooledImage(x.shape, rows, columns, overlapping=overlapping)
        check_pooled_shape("orig_output", y, image.pooled_shape)
        check_pooled_shape("out_backprop", dy, y.shape)
        if not image.counts.all():
            raise OpError(f"a region is empty: rows {rows}, columns {columns}")
        elements = image.elements(x)
        maxima = image.reduce(np.fmax, elements)
        if np.isnan(image.firsts(elements)).any() or (maxima != y).any():
            raise OpError("orig_output does not contain the maxima of orig_input")
        where = np.where(elements == image.repeat(y), image.positions, x.size)
        firsts = image.reduce(np.minimum, where)
        zeros = np.zeros(x.size, x.dtype)
        return accumulated_at(np, zeros, firsts.ravel(), dy.ravel(), "add").reshape(x.shape)

    shape = staticmethod(lambda context: [require_rank(context.inputs[0], _RANK)])


class FractionalAvgPoolGrad(Op):
    """Gradient of FractionalAvgPool: each region's gradient, spread evenly over its elements."""

    signature = (
        "orig_input_tensor_shape: int64, out_backprop: T, row_pooling_sequence: int64, "
        "col_pooling_sequence: int64 -> output: T"
    )
    attrs = f"overlapping: bool = false, {_TYPES}"
    placement = HostPlacement(host_only=True)

    @staticmethod
    def kernel(
        xp: ModuleType, overlapping: bool, /, sizes: Any, dy: Any, rows: Any, columns: Any
    ) -> Any:
        if sizes.shape != (_RANK,) or (sizes < 1).any() or dy.ndim != _RANK or not dy.size:
            raise OpError(
                "orig_input_tensor_shape must hold 4 positive numbers, and out_backprop must be a "
                f"non-empty tensor of rank 4: {sizes}, {list(dy.shape)}"
            )
        shape = tuple(sizes.tolist())
        sequences = (rows.ravel()[: dy.shape[1] + 1], columns.ravel()[: dy.shape[2] + 1])
        image = PooledImage(shape, *sequences, overlapping=overlapping)
        check_pooled_shape("out_backprop", dy, image.pooled_shape)
        shares = image.repeat(dy / np.maximum(image.counts, 1))
        total = np.bincount(image.positions.ravel(), shares.ravel(), math.prod(shape))
        return total.reshape(shape).astype(dy.dtype)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [require_rank(context.shape_value(0), _RANK)]
