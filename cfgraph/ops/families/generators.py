"""Random generators whose state is a variable: a counter of 128 bits and a key, as int64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, ClassVar, Final

import numpy as np

from cfgraph.ir.dtypes import DType
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape, vector_shape
from cfgraph.ops.families.random_sampling import Sampler
from cfgraph.ops.families.rejection_samplers import StatelessRandomBinomial, samples_per_parameter
from cfgraph.ops.families.stateless_random import (
    check_integer_bounds,
    check_shape,
    draw_in_range,
    draw_in_shape,
    keyed_stream,
)
from cfgraph.ops.families.variables import Variable
from cfgraph.ops.kernels import philox
from cfgraph.ops.kernels.array_namespace import is_tracing
from cfgraph.ops.kernels.philox import RandomStream
from cfgraph.ops.opdef.facts import CompilerSupport, SideEffects
from cfgraph.ops.opdef.op import Op, OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext

_PHILOX: Final = 1
_STATE_SIZE: Final = 3
# Philox samples that each number reserves
_RESERVED: Final = 256


def reserve_numbers(
    xp: ModuleType, cell: Variable, algorithm: Any, count: int, start: int = 0
) -> RandomStream:
    """The stream of a generator, which then advances past `count` numbers.

    The state begins at element `start` of the variable, whose value may be traced.
    """
    if algorithm.ndim:
        raise OpError(f"algorithm must be of shape [], not {list(algorithm.shape)}")
    if int(algorithm) != _PHILOX:
        raise OpError(f"Unsupported algorithm id: {int(algorithm)}; known is 1 (Philox)")
    state = cell.read()
    if state.dtype != np.int64 or state.ndim != 1:
        raise OpError(f"RNG state must be a vector of int64, not {state.dtype}{list(state.shape)}")
    if len(state) < start + _STATE_SIZE:
        raise OpError(f"the RNG state must hold at least {start + _STATE_SIZE} numbers")
    end = start + _STATE_SIZE
    numbers = state[start:end].astype(np.uint64)
    skipped = divmod(count * _RESERVED, 1 << 64)[::-1]
    low, high = (numbers[at : at + 1] + np.uint64(x) for at, x in enumerate(skipped))
    high = high + (low < np.uint64(skipped[0]))
    after = [part.astype(np.int64) for part in (low, high)]
    joined = (xp if is_tracing(xp) else np).concatenate
    cell.value = joined([state[:start], *after, state[start + 2 :]])
    return keyed_stream(xp, numbers[2:], numbers[:2], np.int32(_PHILOX))


class RngReadAndSkip(Op):
    """State of a generator, which then advances past `delta` numbers."""

    signature = "resource: resource, alg: host int32, delta: host uint64 -> value: int64"
    effects = SideEffects(stateful=True)
    compilation = CompilerSupport(compiled=True)

    @staticmethod
    def kernel(xp: ModuleType, step: Any, cell: Variable, algorithm: Any, delta: Any) -> Any:
        before = cell.read()
        reserve_numbers(xp, cell, algorithm, int(delta))
        return before[:_STATE_SIZE]

    shape = staticmethod(lambda context: [vector_shape(None)])


class RngSkip(Op):
    """Advance a generator past `delta` numbers."""

    signature = "resource: resource, algorithm: host int64, delta: host int64 ->"
    effects = SideEffects(stateful=True)
    compilation = CompilerSupport(compiled=True)

    @staticmethod
    def kernel(xp: ModuleType, step: Any, cell: Variable, algorithm: Any, delta: Any) -> None:
        reserve_numbers(xp, cell, algorithm, int(delta))


class GeneratorOp(Op, abstract=True):
    """Op that draws from a generator, in the shape of input 2."""

    effects = SideEffects(stateful=True)
    compilation = CompilerSupport(compiled=True)
    shape = staticmethod(lambda context: [context.shape_value(2)])


class GeneratorSampler(GeneratorOp, abstract=True):
    """Op that draws from a distribution without parameters, from a generator."""

    signature = (
        "resource: resource, algorithm: host int64, shape: const shape_dtype -> output: dtype"
    )
    attrs = "dtype: type = float32, shape_dtype: type = int64"
    draw: ClassVar[Callable[..., Any]]

    @classmethod
    def kernel(
        cls, xp: ModuleType, dtype: DType, /, step: Any, cell: Variable, algorithm: Any, shape: Any
    ) -> Any:
        count = int(np.prod(check_shape(shape), dtype=object))
        stream = reserve_numbers(xp, cell, algorithm, count)
        return xp.asarray(draw_in_shape(cls.draw, stream, shape, dtype.numpy))


_NOT_FLOAT: Final = (
    "bool, complex64, complex128, int8, int16, int32, int64, uint8, uint16, uint32, uint64"
)
_FLOAT_SUPPORT: Final = CompilerSupport(compiled=True, uncompiled_types=_NOT_FLOAT)
_INTEGER_SUPPORT: Final = CompilerSupport(
    compiled=True,
    uncompiled_types="bfloat16, bool, complex64, complex128, float16, float32, float64, int8, "
    "int16, uint8, uint16",
)


class StatefulUniform(GeneratorSampler):
    """Uniform distribution on [0, 1), from a generator."""

    compilation = _FLOAT_SUPPORT
    draw = staticmethod(philox.draw_uniform)


class StatefulStandardNormalV2(GeneratorSampler):
    """Standard normal distribution, from a generator."""

    compilation = _FLOAT_SUPPORT
    draw = staticmethod(philox.draw_normal)


class StatefulTruncatedNormal(GeneratorSampler):
    """Standard normal distribution truncated at two deviations, from a generator."""

    compilation = _FLOAT_SUPPORT
    draw = staticmethod(philox.draw_truncated_normal)


class StatefulUniformFullInt(GeneratorSampler):
    """Uniform distribution over all integers of the dtype, from a generator."""

    attrs = "dtype: type = uint64, shape_dtype: type = int64"
    compilation = _INTEGER_SUPPORT
    draw = staticmethod(philox.draw_full_range_integers)


class StatefulStandardNormal(GeneratorOp):
    """Standard normal distribution, from a generator whose state begins with its algorithm."""

    signature = "resource: resource, shape: const shape_dtype -> output: dtype"
    attrs = "dtype: type = float32, shape_dtype: type = int64"
    compilation = CompilerSupport(compiled=False)

    @staticmethod
    def kernel(xp: ModuleType, dtype: DType, /, step: Any, cell: Variable, shape: Any) -> Any:
        state = cell.read()
        if not state.size:
            raise OpError("Size of tensor must be at least 1")
        count = int(np.prod(check_shape(shape), dtype=object))
        stream = reserve_numbers(xp, cell, state.reshape(-1)[0], count, 1)
        return xp.asarray(draw_in_shape(philox.draw_normal, stream, shape, dtype.numpy))

    shape = staticmethod(lambda context: [context.shape_value(1)])


class StatefulUniformInt(GeneratorOp):
    """Uniform integers in [minval, maxval), from a generator."""

    signature = (
        "resource: resource, algorithm: host int64, shape: const shape_dtype, minval: host dtype, "
        "maxval: host dtype -> output: dtype"
    )
    attrs = "dtype: type = int64, shape_dtype: type = int64"
    compilation = _INTEGER_SUPPORT

    @staticmethod
    def kernel(xp: ModuleType, dtype: DType, /, step: Any, cell: Variable, *inputs: Any) -> Any:
        algorithm, shape, low, high = inputs
        if not is_tracing(xp):
            check_integer_bounds(np.ones(1), low, high)
        count = int(np.prod(check_shape(shape), dtype=object))
        stream = reserve_numbers(xp, cell, algorithm, count)
        return xp.asarray(draw_in_range(stream, shape, low, high, dtype.numpy))


class StatefulRandomBinomial(GeneratorOp):
    """Samples of the binomial distribution per count and probability, from a generator."""

    signature = (
        "resource: resource, algorithm: host int64, shape: host S, counts: host T, probs: host T "
        "-> output: dtype"
    )
    attrs = (
        "S: {int32, int64}, T: {float16, float32, float64, int32, int64} = float64, "
        "dtype: {float16, float32, float64, int32, int64} = int64"
    )
    compilation = CompilerSupport(compiled=False)

    @staticmethod
    def kernel(xp: ModuleType, dtype: DType, /, step: Any, cell: Variable, *inputs: Any) -> Any:
        algorithm, shape, *parameters = inputs
        sizes = check_shape(shape)
        batch = np.broadcast_shapes(*(parameter.shape for parameter in parameters))
        samples, batches = samples_per_parameter(sizes, batch)
        # an estimate of TensorFlow's, not what is drawn
        reserved = batches * 200 * (samples + 3) // 4
        stream = reserve_numbers(xp, cell, algorithm, reserved)
        return StatelessRandomBinomial.sample_parameters(stream, sizes, dtype.numpy, parameters)


class NonDeterministicInts(Op):
    """Integers that no seed determines; here those of the run's generators."""

    signature = "shape: const shape_dtype -> output: dtype"
    attrs = "dtype: type = int64, shape_dtype: type = int64"
    effects = Sampler.effects

    @staticmethod
    def kernel(xp: ModuleType, dtype: DType, /, step: Any, shape: Any) -> Any:
        limits, sizes = np.iinfo(dtype.numpy), check_shape(shape)
        draw = step.generator(0, 0).integers
        return draw(limits.min, limits.max, sizes, dtype=dtype.numpy, endpoint=True)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        shape = context.shape_value(0)
        return [UNKNOWN_SHAPE if shape.rank is None else shape]
