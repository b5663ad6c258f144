"""Stateless samples of distributions by rejection, which draw as often as each sample needs.

Every sample has its own stretch of the random stream, so that all are drawn at once: `LaneStreams`
holds the position of each of them, and the loops continue with the samples rejected so far.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import Shape
from cfgraph.ops.families.stateless_random import check_shape, stream_of_key, stream_of_seed
from cfgraph.ops.opdef import philox
from cfgraph.ops.opdef.facts import CompilerSupport, HostPlacement, SideEffects
from cfgraph.ops.opdef.gradient_api import (
    GradientBuilder,
    InputGradients,
    add_in_float32,
    sum_to_shape,
)
from cfgraph.ops.opdef.op import Kernel, Op, OpError
from cfgraph.ops.opdef.philox import PhiloxStream
from cfgraph.ops.opdef.shape_functions import InferenceContext

# Philox samples that each output may use
_RESERVED = 256
_RESERVED_BY_INVERSION = 42
# samples that are computed at once for all lanes, and the most for one
_SAMPLES_AT_ONCE = 32
_MAX_AHEAD = 4
_TAIL = np.array(
    [
        math.lgamma(k + 2) - (k + 1.5) * math.log(k + 1) + k + 1 - 0.5 * math.log(2 * math.pi)
        for k in range(10)
    ]
)


class LaneStreams:
    """Streams that begin at offsets of one stream, each with its own buffers of doubles."""

    def __init__(self, stream: PhiloxStream, offsets: Any) -> None:
        self.stream = stream
        self.positions = np.asarray(offsets, np.uint64)
        self._buffers: dict[Callable[[Any], Any], tuple[Any, Any]] = {}

    def draw(self, lanes: Any, convert: Callable[[Any], Any]) -> Any:
        """The next number of some lanes; `convert` maps the words of a sample to numbers.

        The numbers of one Philox sample are used last to first.
        """
        if convert not in self._buffers:
            count = len(self.positions)
            self._buffers[convert] = np.empty((count, 2)), np.zeros(count, np.int64)
        values, left = self._buffers[convert]
        empty = lanes[left[lanes] == 0]
        if len(empty):
            values[empty] = convert(self.stream.words(self.positions[empty]))
            self.positions[empty] += np.uint64(1)
            left[empty] = 2
        left[lanes] -= 1
        return values[lanes, left[lanes]]

    def draw_ahead(self, lanes: Any, convert: Callable[[Any], Any]) -> Any:
        """The next numbers of some lanes, as rows: more of them for fewer lanes.

        They are computed from whole samples, and so these lanes are not drawn from in other ways.
        """
        samples = max(1, min(_MAX_AHEAD, _SAMPLES_AT_ONCE // len(lanes)))
        starts = self.positions[lanes]
        self.positions[lanes] = starts + np.uint64(samples)
        words = self.stream.words(starts[:, None] + np.arange(samples, dtype=np.uint64))
        return convert(words)[..., ::-1].reshape(len(lanes), -1)


def samples_per_parameter(sizes: Sequence[int], batch: Sequence[int]) -> tuple[int, int]:
    """Samples per parameter and parameters. Raises OpError unless the shape ends with theirs."""
    if tuple(sizes[len(sizes) - len(batch) :]) != tuple(batch) or len(batch) > len(sizes):
        message = (
            f"Shape passed in must end with broadcasted shape: {list(sizes)} does not end with "
            f"{list(batch)}"
        )
        raise OpError(message)
    count = math.prod(batch)
    return (math.prod(sizes) // count if count else 0), count


def draw_per_parameter(draw: Callable[..., Any], sizes: Sequence[int], *parameters: Any) -> Any:
    """Samples in the shape `sizes`: `draw(index, *parameters of each output)`, batch by batch."""
    parameters = tuple(np.broadcast_arrays(*parameters))
    samples, count = samples_per_parameter(sizes, parameters[0].shape)
    flat = (np.repeat(x.reshape(-1), samples) for x in parameters)
    drawn = draw(np.arange(samples * count, dtype=np.uint64), *flat)
    return drawn.reshape(count, samples).T.reshape(sizes)


def draw_gamma(stream: PhiloxStream, outputs: Any, alpha: Any) -> Any:
    """Gamma samples (Marsaglia and Tsang 2000); an exponential distribution for alpha 1."""
    alpha = alpha.astype(np.float64)
    lanes = LaneStreams(stream, outputs * np.uint64(_RESERVED))
    result = np.empty(len(outputs))
    todo = np.flatnonzero(alpha == 1)
    if len(todo):
        result[todo] = -np.log1p(-lanes.draw(todo, philox.unit_float64))
    below = alpha < 1
    d = alpha + np.where(below, 2.0 / 3, -1.0 / 3)
    c = 1.0 / 3 / np.sqrt(d)
    todo = np.flatnonzero(alpha != 1)
    while len(todo):
        x = lanes.draw(todo, philox.normal_float64)
        v = 1 + c[todo] * x
        valid = ~(v <= 0)
        rest, (rows, x, v) = todo[~valid], (todo[valid], x[valid], v[valid] ** 3)
        u = lanes.draw(rows, philox.unit_float64)
        squeezed = u < 1 - 0.0331 * (x * x) * (x * x)
        accepted = squeezed | (np.log(u) < 0.5 * x * x + d[rows] * (1 - v + np.log(v)))
        done = rows[accepted]
        result[done] = d[done] * v[accepted]
        small = done[below[done]]
        result[small] *= lanes.draw(small, philox.unit_float64) ** (1 / alpha[small])
        todo = np.concatenate([rest, rows[~accepted]])
        if not np.isfinite(d[todo]).any():
            result[todo] = np.nan
            break
    return result


def draw_poisson(stream: PhiloxStream, outputs: Any, rate: Any) -> Any:
    """Poisson samples: products of uniform numbers (Knuth) below rate 10, else Hörmann 1993."""
    rate = rate.astype(np.float64)
    lanes = LaneStreams(stream, outputs * np.uint64(_RESERVED))
    result = np.where(np.isfinite(rate) & (rate >= 0), 0.0, np.nan)
    _draw_by_products(lanes, np.flatnonzero((rate < 10) & (rate >= 0)), rate, result)
    _draw_by_ratios(lanes, np.flatnonzero((rate >= 10) & np.isfinite(rate)), rate, result)
    return result


def _draw_by_products(lanes: LaneStreams, todo: Any, rate: Any, result: Any) -> None:
    limit, product = np.exp(-rate), np.ones(len(rate))
    while len(todo):
        numbers = lanes.draw_ahead(todo, philox.unit_float64)
        numbers[:, 0] *= product[todo]
        products = np.multiply.accumulate(numbers, axis=1)
        above = products > limit[todo, None]
        result[todo] += np.add.reduce(above, axis=1)
        product[todo] = products[:, -1]
        todo = todo[above[:, -1]]


def _draw_by_ratios(lanes: LaneStreams, todo: Any, rate: Any, result: Any) -> None:
    while len(todo):
        u = lanes.draw(todo, philox.unit_float64) - 0.5
        v = lanes.draw(todo, philox.unit_float64)
        shifted = 0.5 - np.abs(u)
        mean = rate[todo]
        b = 0.931 + 2.53 * np.sqrt(mean)
        a = -0.059 + 0.02483 * b
        k = np.floor((2 * a / shifted + b) * u + mean + 0.43)
        inside = (shifted >= 0.07) & (v <= 0.9277 - 3.6224 / (b - 2))
        refused = (k < 0) | ((shifted < 0.013) & (v > shifted))
        inverse = 1.1239 + 1.1328 / (b - 3.4)
        s = np.log(v * inverse / (a / (shifted * shifted) + b))
        t = -mean + k * np.log(mean) - _log_gamma(k + 1)
        accepted = inside | (~refused & (s <= t))
        result[todo[accepted]] = k[accepted]
        todo = todo[~accepted]


def _log_gamma(x: Any) -> Any:
    from scipy.special import gammaln

    return gammaln(np.maximum(x, 1e-300))


def draw_binomial(stream: PhiloxStream, outputs: Any, counts: Any, probs: Any) -> Any:
    """Binomial samples: sums of geometric ones for small means, else Hörmann 1993."""
    flip = probs > 0.5
    likely = np.where(flip, 1 - probs, probs).astype(probs.dtype)
    many = counts * likely >= 10
    count, prob = counts.astype(np.float64), likely.astype(np.float64)
    varied = (count > 0) & np.isfinite(count) & (probs > 0) & (probs < 1)
    result = np.where(np.isnan(probs) | ~np.isfinite(count), np.nan, 0.0)
    rows = np.flatnonzero(varied & ~many)
    result[rows] = _draw_by_inversion(stream, outputs[rows], count[rows], prob[rows])
    rows = np.flatnonzero(varied & many)
    if len(rows):
        result[rows] = _draw_transformed(stream, outputs[rows], count[rows], prob[rows])
    result = np.where(varied & flip, count - result, result)
    return np.where((probs >= 1) & (count > 0), count, result)


def _draw_by_inversion(stream: PhiloxStream, outputs: Any, count: Any, prob: Any) -> Any:
    lanes = LaneStreams(stream, outputs * np.uint64(_RESERVED_BY_INVERSION))
    total, result = np.zeros(len(outputs)), np.zeros(len(outputs))
    todo = np.arange(len(outputs))
    while len(todo):
        u = lanes.draw_ahead(todo, philox.unit_float64)
        steps = np.ceil(np.log(u) / np.log1p(-prob[todo, None]))
        steps[:, 0] += total[todo]
        totals = np.add.accumulate(steps, axis=1)
        within = totals <= count[todo, None]
        result[todo] += np.add.reduce(within, axis=1)
        total[todo] = totals[:, -1]
        todo = todo[within[:, -1]]
    return result


def _draw_transformed(stream: PhiloxStream, outputs: Any, count: Any, prob: Any) -> Any:
    lanes = LaneStreams(stream, outputs * np.uint64(_RESERVED))
    result, todo = np.zeros(len(outputs)), np.arange(len(outputs))
    deviation = np.sqrt(count * prob * (1 - prob))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * prob
    alpha = (2.83 + 5.1 / b) * deviation
    ratio, mode = prob / (1 - prob), np.floor((count + 1) * prob)
    while len(todo):
        u = lanes.draw(todo, philox.unit_float64) - 0.5
        v = lanes.draw(todo, philox.unit_float64)
        n, m, r, a_, b_ = count[todo], mode[todo], ratio[todo], a[todo], b[todo]
        us = 0.5 - np.abs(u)
        k = np.floor((2 * a_ / us + b_) * u + n * prob[todo] + 0.5)
        inside = (us >= 0.07) & (v <= 0.92 - 4.2 / b_)
        refused = (k < 0) | (k > n)
        k_ = np.clip(k, 0, n)
        bound = (m + 0.5) * np.log((m + 1) / (r * (n - m + 1)))
        bound += (n + 1) * np.log((n - m + 1) / (n - k_ + 1))
        bound += (k_ + 0.5) * np.log(r * (n - k_ + 1) / (k_ + 1))
        bound += _stirling_tail(m) + _stirling_tail(n - m)
        bound -= _stirling_tail(k_) + _stirling_tail(n - k_)
        accepted = inside | (~refused & (np.log(v * alpha[todo] / (a_ / (us * us) + b_)) <= bound))
        result[todo[accepted]] = k[accepted]
        todo = todo[~accepted]
    return result


def _stirling_tail(k: Any) -> Any:
    """Remainder of Stirling's approximation of the logarithm of a factorial."""
    square = (k + 1) * (k + 1)
    series = (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1)
    return np.where(k <= 9, _TAIL[np.clip(k, 0, 9).astype(np.int64)], series)


class RejectionSampler(Op, abstract=True):
    """Stateless op that samples a distribution per parameter, in the shape of input 0."""

    effects = SideEffects(random=True)
    compilation = CompilerSupport(traceable=False, constant_inputs=(0,))
    placement = HostPlacement(host_inputs=(0, 1, 2, 3))
    draw: ClassVar[Callable[..., Any]]

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        draw, dtype = cls.draw, node.attr("dtype").numpy

        def sample(shape: Any, seed: Any, *parameters: Any) -> Any:
            stream, sizes = stream_of_seed(seed), check_shape(shape)
            return sample_parameters(draw, stream, sizes, dtype, parameters)

        return sample

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [context.shape_value(0)]


def sample_parameters(
    draw: Callable[..., Any],
    stream: PhiloxStream,
    sizes: tuple[int, ...],
    dtype: Any,
    parameters: Sequence[Any],
) -> Any:
    """Draw samples per parameter, cast to a dtype."""
    drawn = draw_per_parameter(
        lambda outputs, *flat: draw(stream, outputs, *flat), sizes, *map(np.asarray, parameters)
    )
    return drawn.astype(dtype)


def gamma_gradient(g: GradientBuilder, node: Node, dy: Output) -> InputGradients:
    """Gradient of gamma samples by their parameter, the last input."""
    alpha, sample = node.inputs[-1], node.output()
    product = g.Mul(dy, add_in_float32(g, "RandomGammaGrad", alpha, sample))
    return *([None] * (len(node.inputs) - 1)), lambda: sum_to_shape(g, product, alpha, sample)


class StatelessRandomGammaV2(RejectionSampler):
    """Samples of the gamma distribution per parameter `alpha`, from a seed."""

    signature = "shape: T, seed: Tseed, alpha: dtype -> output: dtype"
    attrs = "dtype: {float16, float32, float64}, T: {int32, int64}, Tseed: {int32, int64} = int64"
    placement = HostPlacement(host_inputs=(0, 1, 2))
    draw = staticmethod(draw_gamma)
    gradient = staticmethod(gamma_gradient)


class StatelessRandomGammaV3(RejectionSampler):
    """Samples of the gamma distribution per parameter `alpha`, from a key and a counter."""

    signature = (
        "shape: shape_dtype, key: uint64, counter: uint64, alg: int32, alpha: dtype "
        "-> output: dtype"
    )
    attrs = "dtype: {float16, float32, float64}, shape_dtype: {int32, int64} = int32"
    placement = HostPlacement(host_inputs=(0, 3, 4))
    gradient = staticmethod(gamma_gradient)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("dtype").numpy

        def sample(shape: Any, key: Any, counter: Any, alg: Any, alpha: Any) -> Any:
            stream, sizes = stream_of_key(key, counter, alg), check_shape(shape)
            return sample_parameters(draw_gamma, stream, sizes, dtype, [alpha])

        return sample


class StatelessRandomPoisson(RejectionSampler):
    """Samples of the Poisson distribution per rate, from a seed."""

    signature = "shape: T, seed: Tseed, lam: Rtype -> output: dtype"
    attrs = (
        "Rtype: {float16, float32, float64, int32, int64}, "
        "dtype: {float16, float32, float64, int32, int64}, T: {int32, int64}, "
        "Tseed: {int32, int64} = int64"
    )
    placement = HostPlacement(host_inputs=(0, 1, 2))
    draw = staticmethod(draw_poisson)


class StatelessRandomBinomial(RejectionSampler):
    """Samples of the binomial distribution per count and probability, from a seed."""

    signature = "shape: S, seed: Tseed, counts: T, probs: T -> output: dtype"
    attrs = (
        "S: {int32, int64}, Tseed: {int32, int64} = int64, "
        "T: {float16, float32, float64, int32, int64} = float64, "
        "dtype: {float16, float32, float64, int32, int64} = int64"
    )
    draw = staticmethod(draw_binomial)
