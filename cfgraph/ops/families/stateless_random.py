"""Stateless random numbers, a function of a seed or of a key and counter, as in TensorFlow."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import SCALAR_SHAPE, Shape, vector_shape
from cfgraph.ops.opdef import philox
from cfgraph.ops.opdef.facts import CompilerSupport, HostPlacement, SideEffects
from cfgraph.ops.opdef.op import Kernel, Op, OpError
from cfgraph.ops.opdef.philox import PhiloxStream
from cfgraph.ops.opdef.shape_functions import InferenceContext

_FLOAT = "dtype: {float16, bfloat16, float32, float64} = float32, "
_SEEDED = "T: {int32, int64} = int32, Tseed: {int32, int64} = int64"
_KEYED = "Tshape: {int32, int64} = int32"
_PHILOX, _AUTO = 1, 3

DrawFunction = Callable[..., Any]


def check_shape(shape: Any) -> tuple[int, ...]:
    """The shape that a tensor says."""
    if shape.ndim != 1:
        message = f"shape must be a vector of {{int32,int64}}, got shape {list(shape.shape)}"
        raise OpError(message)
    sizes = tuple(int(n) for n in shape)
    if any(n < 0 for n in sizes):
        message = f"Dimension sizes must be non-negative, got {list(sizes)}"
        raise OpError(message)
    return sizes


def stream_of_seed(seed: Any) -> PhiloxStream:
    """The stream of a seed tensor."""
    if seed.shape != (2,):
        message = f"seed must have shape [2], not {list(seed.shape)}"
        raise OpError(message)
    return philox.stream_from_seed((int(seed[0]) & (1 << 64) - 1, int(seed[1]) & (1 << 64) - 1))


def stream_of_key(key: Any, counter: Any, alg: Any) -> PhiloxStream:
    """The stream of a key and a counter."""
    if int(alg) not in (_PHILOX, _AUTO):
        message = f"Unsupported algorithm id: {int(alg)}; known are 1 (Philox) and 3 (auto)"
        raise OpError(message)
    if key.shape != (1,):
        message = f"key must have shape [1], not {list(key.shape)}"
        raise OpError(message)
    if counter.ndim != 1 or len(counter) < 2:
        message = f"counter must hold at least 2 numbers, got shape {list(counter.shape)}"
        raise OpError(message)
    return PhiloxStream(int(key[0]), int(counter[0]), int(counter[1]))


def draw_in_shape(draw: DrawFunction, stream: PhiloxStream, shape: Any, *more: Any) -> Any:
    """So many numbers as a shape holds, in that shape."""
    sizes = check_shape(shape)
    return draw(stream, math.prod(sizes), *more).reshape(sizes)


class StatelessRandom(Op, abstract=True):
    """An op that draws from a stream of its own, in a shape that input 0 says."""

    compilation = CompilerSupport(traceable=False, constant_inputs=(0,))
    effects = SideEffects(random=True)
    placement = HostPlacement(host_inputs=(0, 1))
    draw: ClassVar[DrawFunction]

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [context.shape_value(0)]


class SeededRandom(StatelessRandom, abstract=True):
    """Drawn from a seed of two numbers."""

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        draw, dtype = cls.draw, node.attr("dtype").numpy
        return lambda shape, seed: draw_in_shape(draw, stream_of_seed(seed), shape, dtype)


class KeyedRandom(StatelessRandom, abstract=True):
    """Drawn from a key and a counter."""

    placement = HostPlacement(host_inputs=(0, 3))

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        draw, dtype = cls.draw, node.attr("dtype").numpy
        return lambda shape, key, counter, alg: draw_in_shape(
            draw, stream_of_key(key, counter, alg), shape, dtype
        )


class StatelessRandomUniform(SeededRandom):
    """Uniform numbers in [0, 1), from a seed."""

    signature = "shape: T, seed: Tseed -> output: dtype"
    attrs = _FLOAT + _SEEDED
    draw = staticmethod(philox.draw_uniform)


class StatelessRandomNormal(SeededRandom):
    """Normal numbers, from a seed."""

    signature = "shape: T, seed: Tseed -> output: dtype"
    attrs = _FLOAT + _SEEDED
    draw = staticmethod(philox.draw_normal)


class StatelessTruncatedNormal(SeededRandom):
    """Normal numbers less than two from zero, from a seed."""

    signature = "shape: T, seed: Tseed -> output: dtype"
    attrs = _FLOAT + _SEEDED
    draw = staticmethod(philox.draw_truncated_normal)


class StatelessRandomUniformFullInt(SeededRandom):
    """Integers over the whole range of their type, from a seed."""

    signature = "shape: T, seed: Tseed -> output: dtype"
    attrs = (
        "dtype: {int32, int64, uint32, uint64} = uint64, T: {int32, int64} = int32, "
        "Tseed: {int32, int64, uint32, uint64} = int64"
    )
    draw = staticmethod(philox.draw_full_range_integers)


class StatelessRandomUniformV2(KeyedRandom):
    """Uniform numbers in [0, 1), from a key and a counter."""

    signature = "shape: Tshape, key: uint64, counter: uint64, alg: int32 -> output: dtype"
    attrs = _FLOAT + _KEYED
    draw = staticmethod(philox.draw_uniform)


class StatelessRandomNormalV2(KeyedRandom):
    """Normal numbers, from a key and a counter."""

    signature = "shape: Tshape, key: uint64, counter: uint64, alg: int32 -> output: dtype"
    attrs = _FLOAT + _KEYED
    draw = staticmethod(philox.draw_normal)


class StatelessTruncatedNormalV2(KeyedRandom):
    """Normal numbers less than two from zero, from a key and a counter."""

    signature = "shape: Tshape, key: uint64, counter: uint64, alg: int32 -> output: dtype"
    attrs = _FLOAT + _KEYED
    draw = staticmethod(philox.draw_truncated_normal)


class StatelessRandomUniformFullIntV2(KeyedRandom):
    """Integers over the whole range of their type, from a key and a counter."""

    signature = "shape: Tshape, key: uint64, counter: uint64, alg: int32 -> output: dtype"
    attrs = "dtype: {int32, int64, uint32, uint64} = uint64, " + _KEYED
    draw = staticmethod(philox.draw_full_range_integers)


def draw_in_range(stream: PhiloxStream, shape: Any, low: Any, high: Any, dtype: Any) -> Any:
    """Integers from `low` up to `high`, in a shape."""
    check_integer_bounds(shape, low, high)
    return draw_in_shape(philox.draw_integers, stream, shape, low, high, dtype)


def check_integer_bounds(shape: Any, low: Any, high: Any) -> None:
    """Refuse bounds that are no scalars, or enclose nothing where something is wanted."""
    for name, bound in (("minval", low), ("maxval", high)):
        if bound.ndim:
            message = f"{name} must be 0-D, got shape {list(bound.shape)}"
            raise OpError(message)
    if low >= high and 0 not in shape:
        message = f"Need minval < maxval, got {low} >= {high}"
        raise OpError(message)


class StatelessRandomUniformInt(StatelessRandom):
    """Integers between two bounds, from a seed."""

    signature = "shape: T, seed: Tseed, minval: dtype, maxval: dtype -> output: dtype"
    attrs = "dtype: {int32, int64}, T: {int32, int64}, Tseed: {int32, int64} = int64"
    placement = HostPlacement(host_inputs=(0, 1, 2, 3))

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("dtype").numpy
        return lambda shape, seed, low, high: draw_in_range(
            stream_of_seed(seed), shape, low, high, dtype
        )


class StatelessRandomUniformIntV2(StatelessRandom):
    """Integers between two bounds, from a key and a counter."""

    signature = (
        "shape: Tshape, key: uint64, counter: uint64, alg: int32, minval: dtype, maxval: dtype"
        " -> output: dtype"
    )
    attrs = "dtype: {int32, int64, uint32, uint64}, " + _KEYED
    placement = HostPlacement(host_inputs=(0, 3, 4, 5))

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("dtype").numpy
        return lambda shape, key, counter, alg, low, high: draw_in_range(
            stream_of_key(key, counter, alg), shape, low, high, dtype
        )


class StatelessRandomGetKeyCounter(Op):
    """The key and the counter of a seed."""

    signature = "seed: Tseed -> key: uint64, counter: uint64"
    attrs = "Tseed: {int32, int64} = int64"
    compilation = CompilerSupport(traceable=False)
    placement = HostPlacement(host_inputs=(0,))

    @staticmethod
    def kernel(xp: ModuleType, seed: Any) -> Any:
        stream = stream_of_seed(seed)
        return np.array([stream.key], np.uint64), np.array([stream.low, stream.high], np.uint64)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [vector_shape(1), vector_shape(2)]


class StatelessRandomGetKeyCounterAlg(Op):
    """The key and the counter of a seed, and the number of the algorithm."""

    signature = "seed: Tseed -> key: uint64, counter: uint64, alg: int32"
    attrs = "Tseed: {int32, int64} = int64"
    compilation = CompilerSupport(traceable=False)
    placement = HostPlacement(host_inputs=(0,))

    @staticmethod
    def kernel(xp: ModuleType, seed: Any) -> Any:
        key, counter = StatelessRandomGetKeyCounter.kernel(xp, seed)
        return key, counter, np.int32(_PHILOX)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [vector_shape(1), vector_shape(2), SCALAR_SHAPE]


class StatelessRandomGetAlg(Op):
    """The number of the algorithm."""

    signature = "-> alg: int32"
    effects = SideEffects(stateful=True)

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        number = np.int32(_PHILOX)
        return lambda step: number

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [SCALAR_SHAPE]
