"""Random numbers that differ at each execution, drawn from the run's own generator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.ops.adjoint import Adjoint, Partials, reduced, stop
from cfgraph.ops.inference import InferenceContext
from cfgraph.ops.op import Kernel, Op, OpError
from cfgraph.ops.pointwise_gradients import in_full_width
from cfgraph.ops.stateless_random import (
    check_range,
    checked_shape,
)
from cfgraph.ops.step import Step

if TYPE_CHECKING:  # importing it takes as long as a fifth of all ops
    from numpy.random import Generator

_SEEDS = "seed: int = 0, seed2: int = 0, "
_FLOAT = "dtype: {float16, bfloat16, float32, float64}, T: {int32, int64}"


class Sampler(Op, abstract=True):
    """An op that draws: `draw(generator, node, *inputs)`."""

    stateful = True
    random = True
    traceable = False
    host_inputs: ClassVar[tuple[int, ...]] = (0,)
    constant_inputs: ClassVar[tuple[int, ...]] = (0,)
    draw: ClassVar[Callable[..., Any]]

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        seed, seed2, draw = node.attr("seed"), node.attr("seed2"), cls.draw

        def sample(step: Step, *inputs: Any) -> Any:
            return xp.asarray(draw(step.generator(seed, seed2), node, *inputs))

        return sample

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [context.shape_value(0)]


def below_one(values: Any, dtype: Any) -> Any:
    """Numbers in [0, 1) rounded to a type without reaching 1."""
    narrow = values.astype(dtype)
    return np.where(narrow >= 1, np.asarray(0, dtype), narrow)


def truncated(generator: Generator, shape: tuple[int, ...], low: Any, high: Any) -> Any:
    """Normals between two bounds, by the inverse of the distribution function."""
    from scipy.special import ndtr, ndtri

    # what lies right of zero is drawn mirrored, where doubles are denser
    flip = np.asarray(low > 0)
    start, stop = np.where(flip, -high, low), np.where(flip, -low, high)
    below, above = ndtr(start), ndtr(stop)
    drawn = ndtri(below + (above - below) * generator.random(shape))
    drawn = np.clip(drawn, start, stop)
    return np.where(flip, -drawn, drawn)


class RandomUniform(Sampler):
    """Uniform numbers in [0, 1)."""

    signature = "shape: T -> output: dtype"
    attrs = _SEEDS + _FLOAT

    @staticmethod
    def draw(generator: Generator, node: Node, shape: Any) -> Any:
        return below_one(generator.random(checked_shape(shape)), node.attr("dtype").numpy)


class RandomStandardNormal(Sampler):
    """Normal numbers of mean zero and variance one."""

    signature = "shape: T -> output: dtype"
    attrs = _SEEDS + _FLOAT

    @staticmethod
    def draw(generator: Generator, node: Node, shape: Any) -> Any:
        drawn = generator.standard_normal(checked_shape(shape))
        return np.asarray(drawn).astype(node.attr("dtype").numpy)


class TruncatedNormal(Sampler):
    """Normal numbers less than two from zero."""

    signature = "shape: T -> output: dtype"
    attrs = _SEEDS + _FLOAT

    @staticmethod
    def draw(generator: Generator, node: Node, shape: Any) -> Any:
        bound = np.float64(2)
        drawn = truncated(generator, checked_shape(shape), -bound, bound)
        return np.asarray(drawn).astype(node.attr("dtype").numpy)


class ParameterizedTruncatedNormal(Sampler):
    """Normal numbers between bounds, each batch with its own mean, deviation and bounds."""

    signature = (
        "shape: T, means: dtype, stdevs: dtype, minvals: dtype, maxvals: dtype -> output: dtype"
    )
    attrs = _SEEDS + _FLOAT
    gradient = staticmethod(stop)

    @staticmethod
    def draw(generator: Generator, node: Node, shape: Any, *parameters: Any) -> Any:
        sizes = checked_shape(shape)
        if not sizes:
            message = "Shape tensor must not be empty, got []"
            raise OpError(message)
        for parameter in parameters:
            if parameter.ndim > 1 or (parameter.size not in (1, sizes[0])):
                message = (
                    f"a parameter must hold 1 or {sizes[0]} numbers, got {list(parameter.shape)}"
                )
                raise OpError(message)
        columns = (-1, *(1,) * (len(sizes) - 1))
        mean, deviation, low, high = (
            np.asarray(p, np.float64).reshape(columns) for p in parameters
        )
        if not (np.all(deviation > 0) and np.all(np.isfinite(mean)) and np.all(low < high)):
            message = "Invalid parameters: stdev must be positive, and minval less than maxval"
            raise OpError(message)
        drawn = truncated(generator, sizes, (low - mean) / deviation, (high - mean) / deviation)
        drawn = np.clip(drawn * deviation + mean, low, high)
        return drawn.astype(node.attr("dtype").numpy)


class RandomUniformInt(Sampler):
    """Integers from `minval` up to but without `maxval`."""

    signature = "shape: T, minval: Tout, maxval: Tout -> output: Tout"
    attrs = _SEEDS + "Tout: {int32, int64}, T: {int32, int64}"
    host_inputs = (0, 1, 2)

    @staticmethod
    def draw(generator: Generator, node: Node, shape: Any, low: Any, high: Any) -> Any:
        sizes, dtype = checked_shape(shape), node.attr("Tout").numpy
        check_range(shape, low, high)
        if 0 in sizes:
            return np.zeros(sizes, dtype)
        return np.asarray(generator.integers(int(low), int(high), sizes, dtype=dtype))


class RandomShuffle(Sampler):
    """The rows in another order."""

    signature = "value: T -> output: T"
    attrs = "seed: int = 0, seed2: int = 0"
    host_inputs = ()
    constant_inputs = ()
    gradient = staticmethod(stop)

    @staticmethod
    def draw(generator: Generator, node: Node, value: Any) -> Any:
        return value if value.ndim == 0 else value[generator.permutation(len(value))]

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [context.inputs[0]]


class PerParameter(Sampler, abstract=True):
    """For each parameter so many samples as the shape says."""

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        each = context.shape_value(0)
        return [UNKNOWN_SHAPE if each.rank is None else each + context.inputs[1]]


class RandomGamma(PerParameter):
    """Numbers of the gamma distribution, for each of some shape parameters."""

    signature = "shape: S, alpha: T -> output: T"
    attrs = _SEEDS + "S: {int32, int64}, T: {float16, float32, float64}"

    @staticmethod
    def draw(generator: Generator, node: Node, shape: Any, alpha: Any) -> Any:
        sizes = (*checked_shape(shape), *alpha.shape)
        wide = np.asarray(alpha, np.float64)
        drawn = np.asarray(generator.standard_gamma(np.where(wide > 0, wide, 0), sizes))
        return np.where(wide >= 0, drawn, np.nan).astype(node.attr("T").numpy)

    @staticmethod
    def gradient(g: Adjoint, node: Node, dy: Output) -> Partials:
        alpha, sample = node.inputs[1], node.output()
        along = g.Mul(dy, in_full_width(g, "RandomGammaGrad", alpha, sample))
        return None, reduced(g, along, alpha, sample)


def poisson(generator: Generator, shape: Any, rate: Any, dtype: Any) -> Any:
    """Numbers of the Poisson distribution for each of some rates; NaN where a rate is none."""
    sizes, wide = (*checked_shape(shape), *rate.shape), np.asarray(rate, np.float64)
    valid = np.isfinite(wide) & (wide >= 0)
    drawn = np.asarray(generator.poisson(np.where(valid, wide, 0), sizes))
    if np.issubdtype(dtype, np.floating):
        drawn = np.where(valid, drawn, np.nan)
    return drawn.astype(dtype)


class RandomPoisson(PerParameter):
    """Numbers of the Poisson distribution, for each of some rates, in the rates' type."""

    signature = "shape: S, rate: dtype -> output: dtype"
    attrs = _SEEDS + "S: {int32, int64}, dtype: {float16, float32, float64}"

    @staticmethod
    def draw(generator: Generator, node: Node, shape: Any, rate: Any) -> Any:
        return poisson(generator, shape, rate, node.attr("dtype").numpy)


class RandomPoissonV2(PerParameter):
    """Numbers of the Poisson distribution, for each of some rates."""

    signature = "shape: S, rate: R -> output: dtype"
    attrs = (
        _SEEDS + "S: {int32, int64}, R: {float16, float32, float64, int32, int64} = float64, "
        "dtype: {float16, float32, float64, int32, int64} = int64"
    )

    @staticmethod
    def draw(generator: Generator, node: Node, shape: Any, rate: Any) -> Any:
        return poisson(generator, shape, rate, node.attr("dtype").numpy)
