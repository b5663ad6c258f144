"""Random numbers of stateful nodes in compiled code: those of tokens, by key and counter of Philox.

The caller computes the keys of a run, and passes them with the counter of the iterations around the
function. Compiled code counts the iterations of its own loops.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod, sqrt
from types import ModuleType
from typing import Any, Final, NoReturn

import numpy as np

from cfgraph.errors import Unsupported
from cfgraph.ir.function_graph import FunctionGraph, FunctionInstances
from cfgraph.ir.graph import Node
from cfgraph.ops.kernels.array_namespace import defer_check
from cfgraph.ops.opdef.function_bodies import called_functions, execution_order
from cfgraph.ops.opdef.op import lookup
from cfgraph.ops.opdef.random_streams import (
    GRAPH,
    StreamScope,
    call_labels,
    iterations_of,
    stream_name,
)
from cfgraph.runtime.engine.random_numbers import ITERATION_MULTIPLIER
from cfgraph.runtime.straight_line import is_known

# both seeds of a random node, and its stream from the function of the cluster
Draw = tuple[int, int, str]

# Philox 4x64-10 (Salmon et al. 2011)
_ROUNDS: Final = 10
_FACTORS: Final = np.array([[0xD2E7470EE14C6C93], [0xCA5A826395121157]], np.uint64)
_WEYL: Final = np.array([0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B], np.uint64)
_WORDS: Final = 4
_HALF: Final = np.uint64(32)
_LOW: Final = np.uint64(0xFFFFFFFF)
_UNUSED_BITS: Final = np.uint64(11)


def drawn_streams(
    function: FunctionGraph, instances: FunctionInstances, scope: StreamScope = GRAPH
) -> Iterator[Draw]:
    """The streams of the random nodes in a function, and in those that it calls."""
    for node in execution_order(function):
        op = lookup(node.op)
        assert op is not None
        if op.compilation.traces_effects and op.effects.random:
            yield node.attr("seed"), node.attr("seed2"), scope.path + stream_name(node)
        inner = called_functions(node, op, instances)
        for label, body in zip(call_labels(op.calls.kind, len(inner)), inner, strict=True):
            yield from drawn_streams(body, instances, scope.inside(node, label))


@dataclass(frozen=True)
class TracingStep:
    """The step of a trace, of which kernels may use random numbers alone.

    `words` are the keys of the `draws`, and the counter of the iterations around the function.
    """

    xp: Any = None
    draws: Sequence[Draw] = ()
    words: Any = None
    scope: StreamScope = GRAPH
    node: Node | None = None

    @classmethod
    def start(cls, xp: ModuleType, draws: Sequence[Draw], words: Any) -> TracingStep:
        """The step of a function that starts."""
        outer = words[len(draws) :].reshape(-1)
        return cls(xp, draws, words, StreamScope("", (outer[0], outer[1], outer[2])))

    def inside(self, call: Node, label: str, iteration: Any = None) -> TracingStep:
        """The step of a function that a call calls."""
        scope = self.scope.inside(call, label, iteration)
        return TracingStep(self.xp, self.draws, self.words, scope)

    def of(self, node: Node) -> TracingStep:
        """The step of a random node."""
        return TracingStep(self.xp, self.draws, self.words, self.scope, node)

    def generator(self, seed: int, seed2: int) -> TracedGenerator:
        """The random numbers of the node."""
        draw = seed, seed2, self.scope.path + stream_name(self.node) if self.node else ""
        if self.node is None or draw not in self.draws:
            self._reject()
        key = self.words[self.draws.index(draw)]
        return TracedGenerator(self.xp, key, iterations_of(self.node, self.scope.iterations))

    def __getattr__(self, name: str) -> NoReturn:
        self._reject()

    def _reject(self) -> NoReturn:
        message = "it depends on the state of the run"
        raise Unsupported(message)


class TracedGenerator:
    """The numbers of `numpy.random.Generator` over Philox from the start of an execution, traced.

    Each method draws from there.
    """

    def __init__(self, xp: Any, key: Any, iterations: Sequence[Any]) -> None:
        self.xp, self._key = xp, key
        *outer, second, first = (0, 0, *(xp.asarray(x).astype(np.uint64) for x in iterations))
        third = xp.uint64(0)
        for number in outer:
            third = third * np.uint64(ITERATION_MULTIPLIER) + xp.asarray(number, np.uint64)
        self._counter = first, second, third

    def random(self, shape: tuple[int, ...]) -> Any:
        """Uniform float64 in [0, 1)."""
        words = self._words(prod(shape)) >> _UNUSED_BITS
        return (words.astype(np.float64) * 2.0**-53).reshape(shape)

    def integers(self, low: Any, high: Any, shape: tuple[int, ...], dtype: Any) -> Any:
        """Uniform integers in [low, high), by the method of Lemire (2019) with its rejections."""
        known = is_known(low) and is_known(high)
        first, last = (np if known else self.xp).asarray([low, high], np.int64)
        span = (last - 1 - first).astype(np.uint64)
        drawn = self._below(span, prod(shape), 32, known)
        if np.dtype(dtype).itemsize == 8:
            wide = self._below(span, prod(shape), 64, known)
            drawn = self.xp.where(span > _LOW, wide, drawn)
        return (drawn + first.astype(np.uint64)).astype(np.int64).astype(dtype).reshape(shape)

    def _below(self, most: Any, count: int, bits: int, known: bool) -> Any:
        """As many numbers up to `most`, each of a word of `bits` that is not rejected."""
        xp, limit = self.xp, np.uint64(2**bits - 1)
        span = (most & limit) + np.uint64(1)
        threshold = (limit - (most & limit)) % span
        share = float(threshold) / 2.0**bits if known else 0.5
        rejected = count * share / (1 - share)
        words = self._words_of(count + int(rejected + 10 * sqrt(rejected + 1)) + 16, bits)
        upper, lower = _product(words, span, bits)
        accepted = lower >= threshold
        defer_check(lambda: accepted.sum() >= count)
        (places,) = xp.nonzero(accepted, size=count, fill_value=0)
        return upper[places]

    def _words_of(self, count: int, bits: int) -> Any:
        """Words of 64 bits, or of 32, lower halves first."""
        if bits == 64:
            return self._words(count)
        words = self._words(-(-count // 2))
        return self.xp.stack([words & _LOW, words >> _HALF], axis=-1).reshape(-1)

    def _words(self, count: int) -> Any:
        """Consecutive words: a block of four for each value of the counter."""
        from jax import lax

        xp = self.xp
        blocks = xp.arange(1, 1 - (-count // _WORDS), dtype=np.uint64)
        first, second, third = (xp.broadcast_to(word, blocks.shape) for word in self._counter)

        def one_round(_: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
            factors, others, key = state
            upper, lower = _product(factors, _FACTORS, 64)
            return upper[::-1] ^ others ^ key[:, None], lower[::-1], key + _WEYL

        state = xp.stack([blocks, second]), xp.stack([first, third]), self._key
        even, odd, _ = lax.fori_loop(0, _ROUNDS, one_round, state)
        return xp.stack([even[0], odd[0], even[1], odd[1]], axis=-1).reshape(-1)[:count]


def _product(x: Any, y: Any, bits: int) -> tuple[Any, Any]:
    """The upper and lower words of products of words of 64 or 32 bits."""
    if bits == 32:
        whole = x * y
        return whole >> _HALF, whole & _LOW
    x0, x1, y0, y1 = x & _LOW, x >> _HALF, y & _LOW, y >> _HALF
    middle = x1 * y0 + (x0 * y0 >> _HALF)
    other = x0 * y1 + (middle & _LOW)
    return x1 * y1 + (middle >> _HALF) + (other >> _HALF), x * y
