"""Stateless random ops: results depend only on a seed, or on a key and a counter."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import SCALAR_SHAPE, vector_shape
from cfgraph.limits import reserve_array
from cfgraph.ops.kernels import philox
from cfgraph.ops.kernels.array_namespace import holds, is_tracing
from cfgraph.ops.kernels.philox import PhiloxStream, RandomStream, TracedStream
from cfgraph.ops.opdef.facts import CompilerSupport, SideEffects
from cfgraph.ops.opdef.op import Kernel, Op, OpError

_FLOAT = "dtype: {float16, bfloat16, float32, float64} = float32, "
_SEEDED = "T: {int32, int64} = int32, Tseed: {int32, int64} = int64"
_KEYED = "Tshape: {int32, int64} = int32"
_PHILOX, _AUTO = 1, 3
_SEEDED_SUPPORT = CompilerSupport(uncompiled_types="int64")

DrawFunction = Callable[..., Any]


def check_shape(shape: Any) -> tuple[int, ...]:
    """The shape described by a shape tensor. Raises OpError for negative sizes."""
    if shape.ndim != 1:
        raise OpError(f"shape must be a vector of {{int32,int64}}, got shape {list(shape.shape)}")
    sizes = tuple(shape.tolist())
    if sizes and min(sizes) < 0:
        raise OpError(f"Dimension sizes must be non-negative, got {list(sizes)}")
    reserve_array(sizes, 8)
    return sizes


def stream_of_seed(seed: Any) -> PhiloxStream:
    """The random stream of a seed tensor of two integers."""
    check_seed(seed)
    low, high = seed.tolist()
    return philox.stream_from_seed((low & (1 << 64) - 1, high & (1 << 64) - 1))


def check_seed(seed: Any) -> None:
    """Raise OpError unless a seed tensor has two elements."""
    if seed.shape != (2,):
        raise OpError(f"seed must have shape [2], not {list(seed.shape)}")


def seeded_stream(xp: ModuleType, seed: Any) -> RandomStream:
    """The random stream of a seed tensor, which may be traced."""
    if not is_tracing(xp):
        return stream_of_seed(seed)
    check_seed(seed)
    return TracedStream.from_seed(xp, xp.asarray(seed))


def stream_of_key(key: Any, counter: Any, alg: Any) -> PhiloxStream:
    """The random stream of a key and a counter."""
    check_key(key, counter, alg)
    low, high, *_ = counter.tolist()
    return PhiloxStream(key.item(), low, high)


def check_key(key: Any, counter: Any, alg: Any) -> None:
    """Raise OpError for an unknown algorithm, or a key or counter of another shape."""
    number = int(alg)
    if number not in (_PHILOX, _AUTO):
        raise OpError(f"Unsupported algorithm id: {number}; known are 1 (Philox) and 3 (auto)")
    if key.shape != (1,):
        raise OpError(f"key must have shape [1], not {list(key.shape)}")
    if counter.ndim != 1 or len(counter) < 2:
        raise OpError(f"counter must hold at least 2 numbers, got shape {list(counter.shape)}")


def keyed_stream(xp: ModuleType, key: Any, counter: Any, alg: Any) -> RandomStream:
    """The random stream of a key and a counter, which may be traced."""
    if not is_tracing(xp):
        return stream_of_key(key, counter, alg)
    check_key(key, counter, alg)
    return TracedStream(xp, xp.asarray(key)[0], *xp.asarray(counter)[:2])


def draw_in_shape(draw: DrawFunction, stream: RandomStream, shape: Any, *more: Any) -> Any:
    """Draw as many numbers as the shape has elements, in that shape."""
    sizes = check_shape(shape)
    return draw(stream, math.prod(sizes), *more).reshape(sizes)


class StatelessRandom(Op, abstract=True):
    """Op that draws from its own random stream, in the shape of input 0."""

    effects = SideEffects(random=True)
    draw: ClassVar[DrawFunction]
    shape = staticmethod(lambda context: [context.shape_value(0)])


class SeededRandom(StatelessRandom, abstract=True):
    """Random op whose stream is derived from a seed of two integers."""

    signature = "shape: const T, seed: host Tseed -> output: dtype"
    attrs = _FLOAT + _SEEDED
    compilation = _SEEDED_SUPPORT

    @classmethod
    def kernel(cls, xp: ModuleType, dtype: DType, /, shape: Any, seed: Any) -> Any:
        return draw_in_shape(cls.draw, seeded_stream(xp, seed), shape, dtype.numpy)


class KeyedRandom(StatelessRandom, abstract=True):
    """Random op whose stream is derived from a key and a counter."""

    signature = (
        "shape: const Tshape, key: uint64, counter: uint64, alg: const int32 -> output: dtype"
    )
    attrs = _FLOAT + _KEYED

    @classmethod
    def kernel(
        cls, xp: ModuleType, dtype: DType, /, shape: Any, key: Any, counter: Any, alg: Any
    ) -> Any:
        return draw_in_shape(cls.draw, keyed_stream(xp, key, counter, alg), shape, dtype.numpy)


class StatelessRandomUniform(SeededRandom):
    """Uniform distribution on [0, 1), from a seed."""

    draw = staticmethod(philox.draw_uniform)


class StatelessRandomNormal(SeededRandom):
    """Standard normal distribution, from a seed."""

    draw = staticmethod(philox.draw_normal)


class StatelessTruncatedNormal(SeededRandom):
    """Standard normal distribution truncated at two deviations, from a seed."""

    draw = staticmethod(philox.draw_truncated_normal)


class StatelessRandomUniformFullInt(SeededRandom):
    """Uniform distribution over all integers of the dtype, from a seed."""

    attrs = (
        "dtype: {int32, int64, uint32, uint64} = uint64, T: {int32, int64} = int32, "
        "Tseed: {int32, int64, uint32, uint64} = int64"
    )
    compilation = replace(_SEEDED_SUPPORT, uncompiled_types="int64, uint32, uint64")
    draw = staticmethod(philox.draw_full_range_integers)


class StatelessRandomUniformV2(KeyedRandom):
    """Uniform distribution on [0, 1), from a key and a counter."""

    draw = staticmethod(philox.draw_uniform)


class StatelessRandomNormalV2(KeyedRandom):
    """Standard normal distribution, from a key and a counter."""

    draw = staticmethod(philox.draw_normal)


class StatelessTruncatedNormalV2(KeyedRandom):
    """Standard normal distribution truncated at two deviations, from a key and a counter."""

    draw = staticmethod(philox.draw_truncated_normal)


class StatelessRandomUniformFullIntV2(KeyedRandom):
    """Uniform distribution over all integers of the dtype, from a key and a counter."""

    attrs = "dtype: {int32, int64, uint32, uint64} = uint64, " + _KEYED
    draw = staticmethod(philox.draw_full_range_integers)


def draw_in_range(stream: RandomStream, shape: Any, low: Any, high: Any, dtype: Any) -> Any:
    """Integers drawn uniformly from [low, high), in a shape."""
    check_integer_bounds(shape, low, high, stream.xp)
    return draw_in_shape(philox.draw_integers, stream, shape, low, high, dtype)


def check_integer_bounds(shape: Any, low: Any, high: Any, xp: ModuleType = np) -> None:
    """Raise OpError unless the bounds are scalars and, for a nonempty shape, low < high."""
    check_scalar_bounds(low, high)
    if 0 not in shape and not holds(xp, low < high):
        raise OpError(f"Need minval < maxval, got {low} >= {high}")


def check_scalar_bounds(low: Any, high: Any) -> None:
    """Raise OpError unless the bounds are scalars."""
    for name, bound in (("minval", low), ("maxval", high)):
        if bound.ndim:
            raise OpError(f"{name} must be 0-D, got shape {list(bound.shape)}")


class StatelessRandomUniformInt(StatelessRandom):
    """Uniform integers in [minval, maxval), from a seed."""

    signature = (
        "shape: const T, seed: host Tseed, minval: host dtype, maxval: host dtype -> output: dtype"
    )
    attrs = "dtype: {int32, int64}, T: {int32, int64}, Tseed: {int32, int64} = int64"
    compilation = _SEEDED_SUPPORT

    @staticmethod
    def kernel(xp: ModuleType, dtype: DType, /, shape: Any, seed: Any, low: Any, high: Any) -> Any:
        return draw_in_range(seeded_stream(xp, seed), shape, low, high, dtype.numpy)


class StatelessRandomUniformIntV2(StatelessRandom):
    """Uniform integers in [minval, maxval), from a key and a counter."""

    signature = (
        "shape: const Tshape, key: uint64, counter: uint64, alg: const int32, minval: host dtype, "
        "maxval: host dtype -> output: dtype"
    )
    attrs = "dtype: {int32, int64, uint32, uint64}, " + _KEYED

    @staticmethod
    def kernel(xp: ModuleType, dtype: DType, /, *inputs: Any) -> Any:
        shape, key, counter, alg, low, high = inputs
        return draw_in_range(keyed_stream(xp, key, counter, alg), shape, low, high, dtype.numpy)


class StatelessRandomGetKeyCounter(Op):
    """Key and counter derived from a seed."""

    signature = "seed: host Tseed -> key: uint64, counter: uint64"
    attrs = "Tseed: {int32, int64} = int64"

    @staticmethod
    def kernel(xp: ModuleType, seed: Any) -> Any:
        stream = seeded_stream(xp, seed)
        if isinstance(stream, TracedStream):
            return stream.key[None], xp.stack([stream.low, stream.high])
        numbers = np.array(stream, np.uint64)
        return numbers[:1], numbers[1:]

    shape = staticmethod(lambda context: [vector_shape(1), vector_shape(2)])


class StatelessRandomGetKeyCounterAlg(Op):
    """Key and counter derived from a seed, and the number of the algorithm."""

    signature = "seed: host Tseed -> key: uint64, counter: uint64, alg: int32"
    attrs = "Tseed: {int32, int64} = int64"

    @staticmethod
    def kernel(xp: ModuleType, seed: Any) -> Any:
        key, counter = StatelessRandomGetKeyCounter.kernel(xp, seed)
        return key, counter, np.int32(_PHILOX)

    shape = staticmethod(lambda context: [vector_shape(1), vector_shape(2), SCALAR_SHAPE])


class StatelessRandomGetAlg(Op):
    """Number of the random algorithm: 1, Philox."""

    signature = "-> alg: int32"
    effects = SideEffects(stateful=True)

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        number = np.int32(_PHILOX)
        return lambda step: number

    shape = staticmethod(lambda context: [SCALAR_SHAPE])
