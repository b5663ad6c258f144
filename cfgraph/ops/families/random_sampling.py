"""Stateful random sampling: new numbers from the run's generators at each execution."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape, vector_shape
from cfgraph.ops.families.stateless_random import check_integer_bounds, check_shape, seeded_stream
from cfgraph.ops.kernels import philox
from cfgraph.ops.opdef.facts import CompilerSupport, SideEffects
from cfgraph.ops.opdef.gradient_api import (
    GradientBuilder,
    InputGradients,
    add_in_float32,
    no_gradient,
    sum_to_shape,
)
from cfgraph.ops.opdef.op import Op, OpError
from cfgraph.ops.opdef.resources import Step
from cfgraph.ops.opdef.shape_functions import InferenceContext

if TYPE_CHECKING:
    from numpy.random import Generator


_SEEDS = "seed: int = 0, seed2: int = 0, "
# uniform numbers of a block: an even number, as pairs of them become normal ones
_BLOCK = 1 << 13
# up to this many comparisons per row, all of them cost less than a search
_FEW_COMPARISONS = 1000
_FLOAT = "dtype: {float16, bfloat16, float32, float64}, T: {int32, int64}"


# a generator that may be traced: it has the methods `random` and `integers`
_TRACED = CompilerSupport(traces_effects=True)


class Sampler(Op, abstract=True):
    """A stateful sampler that draws with `draw(generator, node, *inputs)`."""

    effects = SideEffects(stateful=True, random=True)
    draw: ClassVar[Callable[..., Any]]

    @classmethod
    def kernel(
        cls, xp: ModuleType, node: Node, seed: int, seed2: int, /, step: Step, *inputs: Any
    ) -> Any:
        return xp.asarray(cls.draw(step.generator(seed, seed2), node, *inputs))

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [context.shape_value(0)]


def namespace_of(generator: Any) -> Any:
    """The namespace of the arrays that a generator returns: NumPy, unless it is traced."""
    return getattr(generator, "xp", np)


def round_below_one(xp: ModuleType, values: Any, dtype: Any) -> Any:
    """Cast numbers in [0, 1) to a dtype, replacing values that round to 1 by 0."""
    narrow = values.astype(dtype)
    return xp.where(narrow >= 1, np.asarray(0, dtype), narrow)


def draw_in_blocks(
    generator: Any, shape: tuple[int, ...], dtype: Any, transform: Callable[[Any, Any], Any]
) -> Any:
    """Numbers of a dtype that `transform(xp, uniform)` makes of as many uniform ones.

    It gets them in blocks, whose temporary arrays stay in the cache, or all if they are traced.
    """
    xp, count = namespace_of(generator), math.prod(shape)
    if xp is not np:
        drawn = transform(xp, generator.random((count + count % 2,)))
        return drawn[:count].astype(dtype).reshape(shape)
    result = np.empty(shape, dtype)
    numbers = result.reshape(-1)
    for start in range(0, count, _BLOCK):
        block = numbers[start : start + _BLOCK]
        block[...] = transform(xp, generator.random(block.size + block.size % 2))[: block.size]
    return result


def standard_normal(xp: ModuleType, uniform: Any) -> Any:
    """Standard normal numbers, two of two uniform ones, by the transform of Box and Muller.

    Sine and cosine of an angle are computed from the tangent of half of it, in one call.
    """
    length = xp.sqrt(-2 * xp.log(1 - uniform[::2]))
    tangent = xp.tan(np.pi * uniform[1::2])
    scaled = 2 * length / (1 + tangent * tangent)
    return xp.stack([scaled - length, scaled * tangent], axis=1).reshape(-1)


def truncated_normal(xp: ModuleType, uniform: Any, low: Any, high: Any) -> Any:
    """Standard normal numbers within bounds, by inverse transform sampling."""
    if xp is np:
        from scipy.special import ndtr, ndtri
    else:
        from jax.scipy.special import ndtr, ndtri

    # an interval above zero is mirrored to where doubles of the distribution function are denser
    flip = np.asarray(low > 0)
    start, stop = np.where(flip, -high, low), np.where(flip, -low, high)
    below, above = ndtr(start), ndtr(stop)
    drawn = xp.clip(ndtri(below + (above - below) * uniform), start, stop)
    return xp.where(flip, -drawn, drawn)


class RandomUniform(Sampler):
    """Uniform random numbers in [0, 1)."""

    signature = "shape: const T -> output: dtype"
    attrs = _SEEDS + _FLOAT
    compilation = _TRACED

    @staticmethod
    def draw(generator: Generator, node: Node, shape: Any) -> Any:
        dtype = node.attr("dtype").numpy
        rounded = partial(round_below_one, dtype=dtype)
        return draw_in_blocks(generator, check_shape(shape), dtype, rounded)


class RandomStandardNormal(Sampler):
    """Normal random numbers with mean 0 and variance 1."""

    signature = "shape: const T -> output: dtype"
    attrs = _SEEDS + _FLOAT
    compilation = _TRACED

    @staticmethod
    def draw(generator: Generator, node: Node, shape: Any) -> Any:
        dtype = node.attr("dtype").numpy
        return draw_in_blocks(generator, check_shape(shape), dtype, standard_normal)


class TruncatedNormal(Sampler):
    """Standard normal random numbers, truncated to [-2, 2]."""

    signature = "shape: const T -> output: dtype"
    attrs = _SEEDS + _FLOAT
    compilation = _TRACED

    @staticmethod
    def draw(generator: Generator, node: Node, shape: Any) -> Any:
        bound, dtype = np.float64(2), node.attr("dtype").numpy
        truncated = partial(truncated_normal, low=-bound, high=bound)
        return draw_in_blocks(generator, check_shape(shape), dtype, truncated)


class ParameterizedTruncatedNormal(Sampler):
    """Truncated normal random numbers; mean, deviation, and bounds per batch entry."""

    signature = (
        "shape: const T, means: dtype, stdevs: dtype, minvals: dtype, maxvals: dtype "
        "-> output: dtype"
    )
    attrs = _SEEDS + _FLOAT
    gradient = staticmethod(no_gradient)

    @staticmethod
    def draw(generator: Generator, node: Node, shape: Any, *parameters: Any) -> Any:
        sizes = check_shape(shape)
        if not sizes:
            raise OpError("Shape tensor must not be empty, got []")
        for parameter in parameters:
            if parameter.ndim > 1 or (parameter.size not in (1, sizes[0])):
                raise OpError(
                    f"a parameter must hold 1 or {sizes[0]} numbers, got {list(parameter.shape)}"
                )
        columns = (-1, *(1,) * (len(sizes) - 1))
        mean, deviation, low, high = (
            np.asarray(p, np.float64).reshape(columns) for p in parameters
        )
        if not (np.all(deviation > 0) and np.all(np.isfinite(mean)) and np.all(low < high)):
            raise OpError("Invalid parameters: stdev must be positive, and minval less than maxval")
        bounds = (low - mean) / deviation, (high - mean) / deviation
        drawn = truncated_normal(np, generator.random(sizes), *bounds)
        drawn = np.clip(drawn * deviation + mean, low, high)
        return drawn.astype(node.attr("dtype").numpy)


class RandomUniformInt(Sampler):
    """Uniform random integers in [minval, maxval)."""

    signature = "shape: const T, minval: host Tout, maxval: host Tout -> output: Tout"
    attrs = _SEEDS + "Tout: {int32, int64}, T: {int32, int64}"
    compilation = _TRACED

    @staticmethod
    def draw(generator: Generator, node: Node, shape: Any, low: Any, high: Any) -> Any:
        sizes, dtype = check_shape(shape), node.attr("Tout").numpy
        check_integer_bounds(shape, low, high, namespace_of(generator))
        if 0 in sizes:
            return np.zeros(sizes, dtype)
        return generator.integers(low, high, sizes, dtype=dtype)


class RandomShuffle(Sampler):
    """A random permutation of the rows of a tensor."""

    signature = "value: T -> output: T"
    attrs = "seed: int = 0, seed2: int = 0"
    gradient = staticmethod(no_gradient)

    @staticmethod
    def draw(generator: Generator, node: Node, value: Any) -> Any:
        return value if value.ndim == 0 else value[generator.permutation(len(value))]

    shape = staticmethod(lambda context: [context.inputs[0]])


class PerParameterSampler(Sampler, abstract=True):
    """Samples of the requested shape for each element of a parameter tensor."""

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        samples = context.shape_value(0)
        return [UNKNOWN_SHAPE if samples.rank is None else samples + context.inputs[1]]


class RandomGamma(PerParameterSampler):
    """Samples of the gamma distribution per shape parameter `alpha`."""

    signature = "shape: const S, alpha: T -> output: T"
    attrs = _SEEDS + "S: {int32, int64}, T: {float16, float32, float64}"

    @staticmethod
    def draw(generator: Generator, node: Node, shape: Any, alpha: Any) -> Any:
        sizes = (*check_shape(shape), *alpha.shape)
        alpha64 = np.asarray(alpha, np.float64)
        drawn = np.asarray(generator.standard_gamma(np.where(alpha64 > 0, alpha64, 0), sizes))
        return np.where(alpha64 >= 0, drawn, np.nan).astype(node.attr("T").numpy)

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dy: Output) -> InputGradients:
        alpha, sample = node.inputs[1], node.output()
        product = g.Mul(dy, add_in_float32(g, "RandomGammaGrad", alpha, sample))
        return None, sum_to_shape(g, product, alpha, sample)


def draw_poisson(generator: Generator, shape: Any, rate: Any, dtype: Any) -> Any:
    """Samples of the Poisson distribution per rate; NaN (floats only) for an invalid rate."""
    sizes, rate64 = (*check_shape(shape), *rate.shape), np.asarray(rate, np.float64)
    valid = np.isfinite(rate64) & (rate64 >= 0)
    drawn = np.asarray(generator.poisson(np.where(valid, rate64, 0), sizes))
    if np.issubdtype(dtype, np.floating):
        drawn = np.where(valid, drawn, np.nan)
    return drawn.astype(dtype)


class RandomPoisson(PerParameterSampler):
    """Samples of the Poisson distribution per rate, in the dtype of the rates."""

    signature = "shape: const S, rate: dtype -> output: dtype"
    attrs = _SEEDS + "S: {int32, int64}, dtype: {float16, float32, float64}"

    @staticmethod
    def draw(generator: Generator, node: Node, shape: Any, rate: Any) -> Any:
        return draw_poisson(generator, shape, rate, node.attr("dtype").numpy)


class RandomPoissonV2(PerParameterSampler):
    """Samples of the Poisson distribution per rate, in the dtype of attribute `dtype`."""

    signature = "shape: const S, rate: R -> output: dtype"
    attrs = (
        _SEEDS + "S: {int32, int64}, R: {float16, float32, float64, int32, int64} = float64, "
        "dtype: {float16, float32, float64, int32, int64} = int64"
    )

    @staticmethod
    def draw(generator: Generator, node: Node, shape: Any, rate: Any) -> Any:
        return draw_poisson(generator, shape, rate, node.attr("dtype").numpy)


class Multinomial(Sampler):
    """Classes sampled per row of unnormalized log-probabilities."""

    signature = "logits: T, num_samples: const int32 -> output: output_dtype"
    attrs = (
        "seed: int = 0, seed2: int = 0, "
        "T: {float32, float64, int32, uint8, int16, int8, int64, bfloat16, uint16, "
        "float16, uint32, uint64}, output_dtype: {int32, int64} = int64"
    )
    compilation = _TRACED

    @staticmethod
    def draw(generator: Any, node: Node, logits: Any, count: Any) -> Any:
        check_logits(logits, count)
        points = generator.random((len(logits), int(count)))
        return sample_classes(
            namespace_of(generator), logits, points, node.attr("output_dtype").numpy
        )

    shape = staticmethod(lambda context: [sample_shape(context)])


class StatelessMultinomial(Op):
    """Classes sampled per row of unnormalized log-probabilities, determined by a seed."""

    signature = "logits: T, num_samples: const int32, seed: host Tseed -> output: output_dtype"
    attrs = (
        "T: {float32, float64, int32, uint8, int16, int8, int64, bfloat16, uint16, float16, "
        "uint32, uint64}, Tseed: {int32, int64} = int64, output_dtype: {int32, int64} = int64"
    )
    compilation = CompilerSupport(
        uncompiled_types="float16, int8, int16, int32, int64, uint8, uint16, uint32, uint64"
    )
    effects = SideEffects(random=True)

    @staticmethod
    def kernel(xp: ModuleType, output_dtype: DType, /, logits: Any, count: Any, seed: Any) -> Any:
        check_logits(logits, count)
        stream, shape = seeded_stream(xp, seed), (len(logits), int(count))
        points = philox.unit_float64(stream.sequence(2 * math.prod(shape))).reshape(shape)
        return sample_classes(stream.xp, logits, points, output_dtype.numpy)

    shape = staticmethod(lambda context: [sample_shape(context)])


def sample_shape(context: InferenceContext) -> Shape:
    """The static shape of samples: rows of logits by samples per row."""
    logits, count = context.inputs[0], context.value(1)
    rows = logits[:1] if logits.rank == 2 else UNKNOWN_SHAPE
    rows = Shape((None,)) if rows.rank is None else rows
    return rows + vector_shape(None if count is None or count < 0 else int(count))


def check_logits(logits: Any, count: Any) -> None:
    """Raise OpError for logits or a number of samples of invalid shape or value."""
    if logits.ndim != 2:
        raise OpError(f"logits should be a matrix, got shape {list(logits.shape)}")
    if count.ndim:
        raise OpError(f"num_samples should be a scalar, got shape {list(count.shape)}")
    if count < 0:
        raise OpError(f"num_samples should be nonnegative, got {count}")
    if logits.shape[1] == 0:
        raise OpError(f"num_classes should be positive, got {logits.shape[1]}")


def sample_classes(xp: ModuleType, logits: Any, points: Any, dtype: Any) -> Any:
    """The class at each point of its row's cumulative distribution; points are in [0, 1)."""
    logits64 = logits.astype(np.float64)
    finite = xp.isfinite(logits64)
    maxima = xp.max(xp.where(finite, logits64, -np.inf), axis=1, keepdims=True)
    weights = xp.where(finite, xp.exp(logits64 - xp.where(xp.isfinite(maxima), maxima, 0)), 0)
    totals = xp.cumsum(weights, axis=1)
    reached = points * totals[:, -1:]
    if xp is not np or points.shape[1] * totals.shape[1] <= _FEW_COMPARISONS:
        below = totals[:, None, :] <= reached[:, :, None]
        return below.sum(axis=2, dtype=np.int64).astype(dtype)
    classes = np.empty(points.shape, dtype)
    for row, sums, targets in zip(classes, totals, reached, strict=True):
        row[:] = sums.searchsorted(targets, side="right")
    return classes
