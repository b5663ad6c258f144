"""Stateless truncated normal samples with parameters per batch entry, and shuffling."""

from __future__ import annotations

import math
from functools import cached_property
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir.graph import Node, Output
from cfgraph.ops.families.normal_interval import draw_intervals
from cfgraph.ops.families.rejection_samplers import broadcast_parameters, samples_per_parameter
from cfgraph.ops.families.stateless_random import check_shape, keyed_stream, seeded_stream
from cfgraph.ops.kernels.array_namespace import defer_check
from cfgraph.ops.kernels.philox import RandomStream, TracedStream
from cfgraph.ops.opdef.facts import CompilerSupport, SideEffects
from cfgraph.ops.opdef.gradient_api import (
    GradientBuilder,
    InputGradients,
    constant_like,
    sum_to_shape,
)
from cfgraph.ops.opdef.op import Op, OpError, SameShape


class TruncatedNormalGradient:
    """Gradient of truncated normal samples by their parameters.

    By implicit reparameterization (Figurnov et al. 2018): a sample moves so that its quantile stays
    the same.
    """

    def __init__(self, g: GradientBuilder, node: Node, dy: Output) -> None:
        self.g, self.dy, self.sample = g, dy, node.output()
        self.mean, self.deviation, self.low, self.high = node.inputs[2:]

    def by_parameter(self, parameter: Output, slope: Output | None = None) -> Output:
        """The gradient of a parameter by the slope of each sample, 1 if there is none."""
        dz = self.dy if slope is None else self.g.Mul(self.dy, slope)
        return sum_to_shape(self.g, dz, parameter, self.sample)

    @cached_property
    def standard(self) -> Output:
        """The samples in deviations from the mean."""
        return self._standardized(self.sample)

    @cached_property
    def _bounds(self) -> tuple[Output, Output]:
        return self._standardized(self.low), self._standardized(self.high)

    def low_slope(self) -> Output:
        """The change of the samples with the lower bound."""
        return self._bound_slope(self._bounds[0], self.g.Log1p(self.g.Neg(self._quantile)))

    def high_slope(self) -> Output:
        """The change of the samples with the upper bound."""
        return self._bound_slope(self._bounds[1], self.g.Log(self._quantile))

    def _bound_slope(self, bound: Output, log_probability: Output) -> Output:
        g = self.g
        squares = g.Sub(g.Square(self.standard), g.Square(bound))
        return g.Exp(g.AddV2(g.Mul(squares, self._constant(0.5)), log_probability))

    @cached_property
    def _quantile(self) -> Output:
        g = self.g
        low, high = (self._cumulative(bound) for bound in self._bounds)
        quantile = g.RealDiv(g.Sub(self._cumulative(self.standard), low), g.Sub(high, low))
        assert self.sample.dtype is not None
        info = np.finfo(self.sample.dtype.numpy)
        return g.ClipByValue(quantile, self._constant(info.tiny), self._constant(1 - info.eps))

    def _cumulative(self, x: Output) -> Output:
        """The normal distribution function, with the relative precision of erfc in its tails."""
        g, root, one = self.g, self._constant(math.sqrt(0.5)), self._constant(1.0)
        w = g.Mul(x, root)
        z = g.Abs(w)
        tail = g.Erfc(z)
        upper = g.SelectV2(
            g.Greater(w, self._constant(0.0)), g.Sub(self._constant(2.0), tail), tail
        )
        y = g.SelectV2(g.Less(z, root), g.AddV2(one, g.Erf(w)), upper)
        return g.Mul(y, self._constant(0.5))

    def _standardized(self, x: Output) -> Output:
        return self.g.RealDiv(self.g.Sub(x, self.mean), self.deviation)

    def _constant(self, value: float) -> Output:
        return constant_like(self.g, value, self.sample)


class StatelessParameterizedTruncatedNormal(Op):
    """Truncated normal samples; mean, deviation, and bounds broadcast per batch entry."""

    signature = (
        "shape: const S, seed: host Tseed, means: dtype, stddevs: dtype, minvals: dtype, "
        "maxvals: dtype -> output: dtype"
    )
    attrs = "S: {int32, int64}, Tseed: {int32, int64} = int64, dtype: {float16, float32, float64}"
    effects = SideEffects(random=True)
    compilation = CompilerSupport(uncompiled_types="int64")

    @staticmethod
    def kernel(xp: ModuleType, shape: Any, seed: Any, *parameters: Any) -> Any:
        sizes, stream = check_shape(shape), seeded_stream(xp, seed)
        if not isinstance(stream, TracedStream):
            parameters = tuple(map(getattr(xp, "asnumpy", np.asarray), parameters))
        batch = broadcast_parameters(stream.xp, parameters)
        samples, count = samples_per_parameter(sizes, batch[0].shape)
        flat = [x.reshape(-1) for x in batch]
        if not samples or not count:
            return xp.zeros(sizes, flat[0].dtype)
        rows, has_samples, is_valid = draw_intervals(stream, samples, *flat)
        message = "Invalid parameters: stddev must be positive, and minval less than maxval"
        _require(stream, has_samples, message)
        message = "TruncatedNormal rejection sampler failed to accept a sample."
        _require(stream, is_valid, message)
        return xp.asarray(stream.xp.asarray(rows).T.reshape(sizes))

    shape = staticmethod(lambda context: [context.shape_value(0)])

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dy: Output) -> InputGradients:
        parts = TruncatedNormalGradient(g, node, dy)
        return (
            None,
            None,
            lambda: parts.by_parameter(parts.mean),
            lambda: parts.by_parameter(parts.deviation, parts.standard),
            lambda: parts.by_parameter(parts.low, parts.low_slope()),
            lambda: parts.by_parameter(parts.high, parts.high_slope()),
        )


def _require(stream: RandomStream, conditions: Any, message: str) -> None:
    """Raise OpError unless all conditions hold; traced ones are checked later."""
    if isinstance(stream, TracedStream):
        defer_check(lambda: conditions)
    elif not all(conditions):
        raise OpError(message)


class StatelessShuffle(SameShape):
    """A permutation of the rows of a tensor, determined by a key and a counter."""

    signature = "value: T, key: host uint64, counter: host uint64, alg: const int32 -> output: T"
    effects = SideEffects(random=True)
    compilation = CompilerSupport(compiled=False)

    @staticmethod
    def kernel(xp: ModuleType, value: Any, key: Any, counter: Any, alg: Any) -> Any:
        stream = keyed_stream(xp, key, counter, alg)
        if value.ndim == 0 or len(value) < 2:
            return value
        if isinstance(stream, TracedStream):
            return value[_traced_order(stream, len(value))]
        return value[shuffled_indices(stream, len(value))]


def _traced_order(stream: TracedStream, count: int) -> Any:
    """The order of `shuffled_indices`, from a traced stream."""
    from jax import lax

    words = stream.sequence(count - 1).astype(np.int64)
    targets = stream.xp.arange(count - 1) + words % stream.xp.arange(count, 1, -1)

    def exchange(index: Any, order: Any) -> Any:
        target = targets[index]
        return order.at[index].set(order[target]).at[target].set(order[index])

    return lax.fori_loop(0, count - 1, exchange, stream.xp.arange(count))


def shuffled_indices(stream: RandomStream, count: int) -> Any:
    """The order of a Fisher-Yates shuffle, drawing one word per element but the last."""
    words = stream.sequence(count - 1).astype(np.int64)
    targets = (np.arange(count - 1) + words % np.arange(count, 1, -1)).tolist()
    order = list(range(count))
    for index, target in enumerate(targets):
        order[index], order[target] = order[target], order[index]
    return np.array(order, np.int64)
