"""Stateless samples of distributions by rejection, which draw as often as each sample needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.ops.families import rejection_rules
from cfgraph.ops.families.rejection_lanes import Distributions, draw_samples
from cfgraph.ops.families.stateless_random import check_shape, keyed_stream, seeded_stream
from cfgraph.ops.kernels.array_namespace import defer_check
from cfgraph.ops.kernels.philox import RandomStream
from cfgraph.ops.opdef.facts import CompilerSupport, SideEffects
from cfgraph.ops.opdef.gradient_api import (
    GradientBuilder,
    InputGradients,
    add_in_float32,
    sum_to_shape,
)
from cfgraph.ops.opdef.op import Kernel, Op, OpError


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


class RejectionSampler(Op, abstract=True):
    """Stateless op that samples a distribution per parameter, in the shape of input 0."""

    effects = SideEffects(random=True)
    compilation = CompilerSupport(compiled=False)
    distribution: ClassVar[Distributions]

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
        drawn = draw_samples(cls.distribution, stream, samples, [x.reshape(-1) for x in batch])
        if np.issubdtype(dtype, np.integer):  # engines differ in what NaN is cast to
            defer_check(lambda: xp.isfinite(drawn))
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
    distribution = staticmethod(rejection_rules.gamma)
    gradient = staticmethod(gamma_gradient)


class StatelessRandomGammaV3(RejectionSampler):
    """Samples of the gamma distribution per parameter `alpha`, from a key and a counter."""

    signature = (
        "shape: const shape_dtype, key: uint64, counter: uint64, alg: const int32, "
        "alpha: host dtype -> output: dtype"
    )
    attrs = "dtype: {float16, float32, float64}, shape_dtype: {int32, int64} = int32"
    compilation = CompilerSupport(compiled=False)
    distribution = staticmethod(rejection_rules.gamma)
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
    distribution = staticmethod(rejection_rules.poisson)


class StatelessRandomBinomial(RejectionSampler):
    """Samples of the binomial distribution per count and probability, from a seed."""

    signature = "shape: const S, seed: host Tseed, counts: host T, probs: host T -> output: dtype"
    attrs = (
        "S: {int32, int64}, Tseed: {int32, int64} = int64, "
        "T: {float16, float32, float64, int32, int64} = float64, "
        "dtype: {float16, float32, float64, int32, int64} = int64"
    )
    distribution = staticmethod(rejection_rules.binomial)
