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

from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.ops.families.rejection_rules import (
    RESERVED,
    RESERVED_BY_INVERSION,
    BinomialConstants,
    accepts_gamma,
    binomial_candidates,
    gamma_parameters,
    poisson_candidates,
)
from cfgraph.ops.families.scalar_rejection import (
    ScalarDistribution,
    few_at,
    few_samples,
    scalar_binomial,
    scalar_gamma,
    scalar_poisson,
)
from cfgraph.ops.families.stateless_random import check_shape, keyed_stream, seeded_stream
from cfgraph.ops.families.traced_rejection import (
    traced_binomial,
    traced_gamma,
    traced_inversion,
    traced_products,
    traced_ratios,
)
from cfgraph.ops.opdef import philox
from cfgraph.ops.opdef.array_namespace import defer_check
from cfgraph.ops.opdef.facts import CompilerSupport, SideEffects
from cfgraph.ops.opdef.gradient_api import (
    GradientBuilder,
    InputGradients,
    add_in_float32,
    sum_to_shape,
)
from cfgraph.ops.opdef.op import Kernel, Op, OpError
from cfgraph.ops.opdef.philox import PhiloxStream, RandomStream, TracedStream

# samples that are computed at once for all lanes, and the most for one
_SAMPLES_AT_ONCE = 4096
_MAX_AHEAD = 8
# candidates that are computed at once for all lanes, and the most for one
_CANDIDATES_AT_ONCE = 512
_MAX_CANDIDATES = 3
# numbers that lanes probably need after those that were expected
_EXPECTED_LATER = 5.0
# up to this many lanes, a second turn costs more than numbers that are not used
_FEW_LANES = 256


class LaneStreams:
    """Streams of outputs, a range of one stream each, with their own buffers of doubles."""

    def __init__(self, stream: PhiloxStream, outputs: Any, reserved: int) -> None:
        self.stream = stream
        self.positions = outputs * np.uint64(reserved)
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

    def draw_ahead(self, lanes: Any, convert: Callable[[Any], Any], expected: float) -> Any:
        """The next numbers of some lanes, a row for each turn: about as many as expected.

        They are computed from whole samples, and so these lanes are not drawn from in other ways.
        """
        most = min(_MAX_AHEAD, _SAMPLES_AT_ONCE // len(lanes))
        samples = max(1, min(most, round(expected / 2)))
        numbers = convert(self._next_words(lanes, samples))[..., ::-1]
        return numbers.swapaxes(1, 2).reshape(2 * samples, len(lanes))

    def draw_pairs(self, lanes: Any, convert: Callable[[Any], Any]) -> tuple[Any, Any]:
        """The next pairs of numbers of some lanes, which are not drawn from in other ways.

        A row has a pair for each lane; there are more rows for fewer lanes.
        """
        samples = max(1, min(_MAX_CANDIDATES, _CANDIDATES_AT_ONCE // len(lanes)))
        numbers = convert(self._next_words(lanes, samples))
        return numbers[..., 1], numbers[..., 0]

    def _next_words(self, lanes: Any, samples: int) -> Any:
        starts = self.positions[lanes]
        self.positions[lanes] = starts + np.uint64(samples)
        return self.stream.words(starts + np.arange(samples, dtype=np.uint64)[:, None])


def samples_per_parameter(sizes: Sequence[int], batch: Sequence[int]) -> tuple[int, int]:
    """Samples per parameter and parameters. Raises OpError unless the shape ends with theirs."""
    if tuple(sizes[len(sizes) - len(batch) :]) != tuple(batch) or len(batch) > len(sizes):
        raise OpError(
            f"Shape passed in must end with broadcasted shape: {list(sizes)} does not end with "
            f"{list(batch)}"
        )
    count = math.prod(batch)
    return (math.prod(sizes) // count if count else 0), count


def broadcast_parameters(xp: ModuleType, parameters: Sequence[Any]) -> list[Any]:
    """Arrays of one shape."""
    arrays = [xp.asarray(x) for x in parameters]
    if all(x.shape == arrays[0].shape for x in arrays):
        return arrays
    return list(xp.broadcast_arrays(*arrays))


def draw_gamma(stream: RandomStream, outputs: Any, alpha: Any) -> Any:
    """Gamma samples (Marsaglia and Tsang 2000); an exponential distribution for alpha 1."""
    alpha = alpha.astype(np.float64)
    if isinstance(stream, TracedStream):
        return traced_gamma(stream, outputs * np.uint64(RESERVED), alpha)
    result = np.empty(len(outputs))
    todo = np.flatnonzero(alpha == 1)
    if len(todo):
        lanes = LaneStreams(stream, outputs[todo], RESERVED)
        drawn = lanes.draw(np.arange(len(todo)), philox.unit_float64)
        result[todo] = -np.log1p(-drawn)
    todo = np.flatnonzero(alpha != 1)
    if len(todo):
        accepted, numbers = _first_gammas(stream, outputs[todo], alpha[todo])
        result[todo] = numbers
        todo = todo[~accepted]
    if len(todo):
        starts = (outputs[todo] * np.uint64(RESERVED)).tolist()
        few = few_at(scalar_gamma, stream, starts, alpha[todo].tolist())
        rest = _repeated_gammas(stream, outputs[todo], alpha[todo]) if few is None else few
        result[todo] = rest
    return result


def _first_gammas(stream: PhiloxStream, outputs: Any, alpha: Any) -> tuple[Any, Any]:
    """The candidates of the first two samples of each output, and which are accepted.

    The second candidate is left out where the first was negative, and so drew no uniform number,
    or where an accepted one takes another uniform number.
    """
    d, c = gamma_parameters(np, alpha)
    starts = outputs * np.uint64(RESERVED)
    numbers = philox.unit_float64(stream.words(np.stack([starts, starts + np.uint64(1)])))
    (radii, turns), (last, first) = numbers[0].T, numbers[1].T
    length = np.sqrt(-2.0 * np.log(np.maximum(radii, 1.0e-7)))
    angle = 2.0 * np.pi * turns
    accepted, result = _gamma_candidates(np.cos(angle) * length, first, d, c)
    below = alpha < 1
    if below.any():
        small = np.flatnonzero(accepted & below)
        result[small] *= last[small] ** (1 / alpha[small])
    again = np.flatnonzero(~accepted & ~below & (result > 0))
    if len(again):
        x = np.sin(angle[again]) * length[again]
        accepted[again], result[again] = _gamma_candidates(x, last[again], d[again], c[again])
    return accepted, result


def _gamma_candidates(x: Any, u: Any, d: Any, c: Any) -> tuple[Any, Any]:
    """A mask of the accepted candidates, and all candidates; rejected ones may be negative."""
    v = 1 + c * x
    positive = v > 0
    v = v**3
    accepted = accepts_gamma(np, x, np.where(positive, v, 1.0), u, d)
    accepted &= positive
    return accepted, d * v


def _repeated_gammas(stream: PhiloxStream, outputs: Any, alpha: Any) -> Any:
    """Gamma samples of outputs whose numbers are drawn turn by turn."""
    lanes, result = LaneStreams(stream, outputs, RESERVED), np.empty(len(outputs))
    below, todo = alpha < 1, np.arange(len(outputs))
    d, c = gamma_parameters(np, alpha)
    while len(todo):
        x = lanes.draw(todo, philox.normal_float64)
        v = 1 + c[todo] * x
        valid = ~(v <= 0)
        rest, (rows, x, v) = todo[~valid], (todo[valid], x[valid], v[valid] ** 3)
        u = lanes.draw(rows, philox.unit_float64)
        accepted = accepts_gamma(np, x, v, u, d[rows])
        done = rows[accepted]
        result[done] = d[done] * v[accepted]
        small = done[below[done]]
        result[small] *= lanes.draw(small, philox.unit_float64) ** (1 / alpha[small])
        todo = np.concatenate([rest, rows[~accepted]])
        if not np.isfinite(d[todo]).any():
            result[todo] = np.nan
            break
    return result


def draw_poisson(stream: RandomStream, outputs: Any, rate: Any) -> Any:
    """Poisson samples: products of uniform numbers (Knuth) below rate 10, else Hörmann 1993."""
    rate, xp = rate.astype(np.float64), stream.xp
    few, many = (rate < 10) & (rate >= 0), (rate >= 10) & xp.isfinite(rate)
    result = xp.where(xp.isfinite(rate) & (rate >= 0), 0.0, np.nan)
    if isinstance(stream, TracedStream):
        starts = outputs * np.uint64(RESERVED)
        result = xp.where(few, traced_products(stream, starts, few, rate), result)
        return xp.where(many, traced_ratios(stream, starts, many, rate), result)
    lanes = LaneStreams(stream, outputs, RESERVED)
    _draw_by_products(lanes, np.flatnonzero(few), rate, result)
    _draw_by_ratios(lanes, np.flatnonzero(many), rate, result)
    return result


def _draw_by_products(lanes: LaneStreams, todo: Any, rate: Any, result: Any) -> None:
    limit, product = np.exp(-rate), np.ones(len(rate))
    expected = _expected_numbers(rate[todo])
    while len(todo):
        numbers = lanes.draw_ahead(todo, philox.unit_float64, expected)
        numbers[0] *= product[todo]
        products = np.multiply.accumulate(numbers, axis=0)
        above = products > limit[todo]
        result[todo] += np.add.reduce(above, axis=0)
        product[todo] = products[-1]
        todo, expected = todo[above[-1]], _EXPECTED_LATER


def _expected_numbers(means: Any) -> float:
    """Numbers that suffice for most lanes that draw about one more than a mean."""
    mean = float(means.mean()) if len(means) else 0.0
    return 1 + mean + (2 if len(means) <= _FEW_LANES else 1) * math.sqrt(mean)


def _draw_by_ratios(lanes: LaneStreams, todo: Any, rate: Any, result: Any) -> None:
    while len(todo):
        u, v = lanes.draw_pairs(todo, philox.unit_float64)
        todo = _store_accepted(result, todo, *poisson_candidates(np, u, v, rate[todo]))


def _store_accepted(result: Any, todo: Any, candidates: Any, accepted: Any) -> Any:
    """Store the first accepted candidate of each column; return the columns without one."""
    done = accepted.any(axis=0)
    columns = np.flatnonzero(done)
    result[todo[columns]] = candidates[accepted.argmax(axis=0)[columns], columns]
    return todo[~done]


def draw_binomial(stream: RandomStream, outputs: Any, counts: Any, probs: Any) -> Any:
    """Binomial samples: sums of geometric ones for small means, else Hörmann 1993."""
    xp = stream.xp
    flip = probs > 0.5
    likely = xp.where(flip, 1 - probs, probs).astype(probs.dtype)
    many = counts * likely >= 10
    count, prob = counts.astype(np.float64), likely.astype(np.float64)
    varied = (count > 0) & xp.isfinite(count) & (probs > 0) & (probs < 1)
    result = xp.where(xp.isnan(probs) | ~xp.isfinite(count), np.nan, 0.0)
    few, many = varied & ~many, varied & many
    if isinstance(stream, TracedStream):
        inverted = outputs * np.uint64(RESERVED_BY_INVERSION)
        transformed = outputs * np.uint64(RESERVED)
        result = xp.where(few, traced_inversion(stream, inverted, few, count, prob), result)
        result = xp.where(many, traced_binomial(stream, transformed, many, count, prob), result)
    else:
        for mask, draw, reserved in (
            (few, _draw_by_inversion, RESERVED_BY_INVERSION),
            (many, _draw_transformed, RESERVED),
        ):
            rows = np.flatnonzero(mask)
            if len(rows):
                lanes = LaneStreams(stream, outputs[rows], reserved)
                result[rows] = draw(lanes, count[rows], prob[rows])
    result = xp.where(varied & flip, count - result, result)
    return xp.where((probs >= 1) & (count > 0), count, result)


def _draw_by_inversion(lanes: LaneStreams, count: Any, prob: Any) -> Any:
    total, result = np.zeros(len(count)), np.zeros(len(count))
    todo, expected = np.arange(len(count)), _expected_numbers(count * prob)
    while len(todo):
        u = lanes.draw_ahead(todo, philox.unit_float64, expected)
        steps = np.ceil(np.log(u) / np.log1p(-prob[todo]))
        steps[0] += total[todo]
        totals = np.add.accumulate(steps, axis=0)
        within = totals <= count[todo]
        result[todo] += np.add.reduce(within, axis=0)
        total[todo] = totals[-1]
        todo, expected = todo[within[-1]], _EXPECTED_LATER
    return result


def _draw_transformed(lanes: LaneStreams, count: Any, prob: Any) -> Any:
    result, todo = np.zeros(len(count)), np.arange(len(count))
    constants = BinomialConstants.from_parameters(np, count, prob)
    while len(todo):
        u, v = lanes.draw_pairs(todo, philox.unit_float64)
        rows = BinomialConstants(*(numbers[todo] for numbers in constants))
        todo = _store_accepted(result, todo, *binomial_candidates(np, u, v, rows))
    return result


class RejectionSampler(Op, abstract=True):
    """Stateless op that samples a distribution per parameter, in the shape of input 0."""

    effects = SideEffects(random=True)
    compilation = CompilerSupport(compiled=False)
    draw: ClassVar[Callable[..., Any]]
    distribution: ClassVar[Callable[..., ScalarDistribution]]

    @classmethod
    def kernel(
        cls, xp: ModuleType, dtype: DType, /, shape: Any, seed: Any, *parameters: Any
    ) -> Any:
        stream, sizes = seeded_stream(xp, seed), check_shape(shape)
        return cls.sample_parameters(stream, sizes, dtype.numpy, parameters)

    @classmethod
    def sample_parameters(
        cls, stream: RandomStream, sizes: tuple[int, ...], dtype: Any, parameters: Sequence[Any]
    ) -> Any:
        """Draw samples per parameter, cast to a dtype."""
        xp = stream.xp
        batch = broadcast_parameters(xp, parameters)
        samples, count = samples_per_parameter(sizes, batch[0].shape)
        few = None
        if isinstance(stream, PhiloxStream):
            rows = (x.reshape(-1) for x in batch)
            few = few_samples(cls.distribution, stream, samples, *rows)
        if few is None:
            flat = (xp.repeat(x.reshape(-1), samples) for x in batch)
            drawn = cls.draw(stream, xp.arange(samples * count, dtype=np.uint64), *flat)
            if np.issubdtype(dtype, np.integer):  # engines differ in what NaN is cast to
                defer_check(lambda: xp.isfinite(drawn))
        else:
            drawn = np.array(few)
        return drawn.reshape(count, samples).T.reshape(sizes).astype(dtype)

    shape = staticmethod(lambda context: [context.shape_value(0)])


def gamma_gradient(g: GradientBuilder, node: Node, dy: Output) -> InputGradients:
    """Gradient of gamma samples by their parameter, the last input."""
    alpha, sample = node.inputs[-1], node.output()
    product = g.Mul(dy, add_in_float32(g, "RandomGammaGrad", alpha, sample))
    return *([None] * (len(node.inputs) - 1)), lambda: sum_to_shape(g, product, alpha, sample)


class StatelessRandomGammaV2(RejectionSampler):
    """Samples of the gamma distribution per parameter `alpha`, from a seed."""

    signature = "shape: const T, seed: host Tseed, alpha: host dtype -> output: dtype"
    attrs = "dtype: {float16, float32, float64}, T: {int32, int64}, Tseed: {int32, int64} = int64"
    draw = staticmethod(draw_gamma)
    distribution = staticmethod(scalar_gamma)
    gradient = staticmethod(gamma_gradient)


class StatelessRandomGammaV3(RejectionSampler):
    """Samples of the gamma distribution per parameter `alpha`, from a key and a counter."""

    signature = (
        "shape: const shape_dtype, key: uint64, counter: uint64, alg: const int32, "
        "alpha: host dtype -> output: dtype"
    )
    attrs = "dtype: {float16, float32, float64}, shape_dtype: {int32, int64} = int32"
    compilation = CompilerSupport(compiled=False)
    draw = staticmethod(draw_gamma)
    distribution = staticmethod(scalar_gamma)
    gradient = staticmethod(gamma_gradient)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("dtype").numpy

        def sample(shape: Any, key: Any, counter: Any, alg: Any, alpha: Any) -> Any:
            stream, sizes = keyed_stream(xp, key, counter, alg), check_shape(shape)
            return cls.sample_parameters(stream, sizes, dtype, [alpha])

        return sample


class StatelessRandomPoisson(RejectionSampler):
    """Samples of the Poisson distribution per rate, from a seed."""

    signature = "shape: const T, seed: host Tseed, lam: host Rtype -> output: dtype"
    attrs = (
        "Rtype: {float16, float32, float64, int32, int64}, "
        "dtype: {float16, float32, float64, int32, int64}, T: {int32, int64}, "
        "Tseed: {int32, int64} = int64"
    )
    draw = staticmethod(draw_poisson)
    distribution = staticmethod(scalar_poisson)


class StatelessRandomBinomial(RejectionSampler):
    """Samples of the binomial distribution per count and probability, from a seed."""

    signature = "shape: const S, seed: host Tseed, counts: host T, probs: host T -> output: dtype"
    attrs = (
        "S: {int32, int64}, Tseed: {int32, int64} = int64, "
        "T: {float16, float32, float64, int32, int64} = float64, "
        "dtype: {float16, float32, float64, int32, int64} = int64"
    )
    draw = staticmethod(draw_binomial)
    distribution = staticmethod(scalar_binomial)
