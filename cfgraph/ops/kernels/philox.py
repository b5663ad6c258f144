"""The Philox 4x32-10 generator (Salmon et al. 2011), vectorized, with TensorFlow's distributions.

A sample consists of four 32-bit words. Sample n depends only on key and counter + n. A stream of
traced values (`TracedStream`) has the same words; distributions take either.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import accumulate, cycle
from types import ModuleType
from typing import Any, Final, NamedTuple

import numpy as np

from cfgraph.ops.kernels.array_namespace import defer_check

_FACTORS = 0xD2511F53, 0xCD9E8D57
_MULTIPLIERS = np.array(_FACTORS, np.uint64)[:, None]
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_MANTISSA_BITS = 0xFFFFF
_MANTISSA = np.uint64(_MANTISSA_BITS)
_ROUNDS = 10
_MASK = 0xFFFFFFFF
# one sample as an integer of Python: its words a and c at bits 0 and 64. The product with the
# factors at bits 128 and 0 has that of c at bit 64 and that of a at bit 128: each in the place
# of the word that it becomes, 64 bits higher
_FOUR_WORDS = 1 << 96 | 1 << 64 | 1 << 32 | 1
_BOTH = _MASK << 64 | _MASK
_BOTH_FACTORS = _FACTORS[0] << 128 | _FACTORS[1]
_BOTH_STEPS = _WEYL[1] << 64 | _WEYL[0]
# the bits of a float32 in [1, 2)
_FRACTION, _ONE = 0x7FFFFF, 127 << 23
# of an array of 64-bit words, as pairs of 32-bit words
_LOWER, _UPPER = (0, 1) if np.little_endian else (1, 0)
_SEED_KEY: Final = 0x02461E29 << 32 | 0x3EC8F720
# samples of which the words of all rounds stay in the cache
_BLOCK: Final = 1 << 13
# up to this many samples, integers of Python are faster than arrays
_FEW = 100
_PACKED_ONES = tuple(accumulate((1 << 64 * lane for lane in range(_FEW)), initial=0))
_PACKED_STEPS = tuple(accumulate((lane << 64 * lane for lane in range(_FEW)), initial=0))
# numbers of which a traced group of truncated normal numbers accepts: too few in 1 of 1e14 groups
_CANDIDATES: Final = 16


class PhiloxStream(NamedTuple):
    """State of a generator: a 64-bit key, and a counter of two 64-bit words."""

    key: int
    low: int
    high: int

    @property
    def xp(self) -> ModuleType:
        """The namespace of the drawn arrays."""
        return np

    def skip(self, samples: int) -> PhiloxStream:
        """Advance the counter by a number of samples."""
        whole = (self.high << 64 | self.low) + int(samples)
        return PhiloxStream(self.key, whole & (1 << 64) - 1, whole >> 64 & (1 << 64) - 1)

    def words(self, starts: Any) -> Any:
        """The samples at these offsets, as rows of four 32-bit words."""
        starts = np.asarray(starts, np.uint64)
        low = starts + np.uint64(self.low)
        high = np.uint64(self.high) + (low < starts)
        if starts.size <= _FEW:
            counters = int.from_bytes(low, "little"), int.from_bytes(high, "little")
            return _few_words(*counters, self.key, starts.size).reshape((*starts.shape, 4))
        words = np.empty((low.size, 4), np.uint32)
        low, high, keys = low.reshape(-1), high.reshape(-1), _key_arrays(self.key)
        for start in range(0, low.size, _BLOCK):
            rows = slice(start, start + _BLOCK)
            _fill_words(words[rows], low[rows], high[rows], keys)
        return words.reshape((*starts.shape, 4))

    def unit_numbers(self, starts: list[int]) -> Any:
        """The numbers in [0, 1) with 52 bits of a few samples, last to first of each.

        The offsets of the samples rise.
        """
        if self.low + starts[-1] >> 64:
            return unit_float64(self.words(starts))[:, ::-1].reshape(-1).tolist()
        unit = _PACKED_ONES[len(starts)]
        lows = int.from_bytes(np.array(starts, "<u8").tobytes(), "little") + self.low * unit
        a, b, c, d = _packed_rounds(lows, self.high * unit, self.key, unit)
        mantissas, size = _MANTISSA_BITS * unit, 8 * len(starts)
        first, second = (a & mantissas) << 32 | b, (c & mantissas) << 32 | d
        bits = second.to_bytes(size, "little") + first.to_bytes(size, "little")
        numbers = np.frombuffer(bits, "<u8").reshape(2, -1) * 2.0**-52
        return numbers.T.reshape(-1).tolist()

    def sequence(self, count: int, start: int = 0, mask: int = _MASK, bits: int = 0) -> Any:
        """Consecutive 32-bit words from the sample at `start`, `& mask | bits`."""
        samples, low = -(-count // 4), self.low + start
        if samples <= _FEW and low + samples <= 1 << 64:
            ones = _PACKED_ONES[samples]
            lows = low * ones + _PACKED_STEPS[samples]
            return _few_words(lows, self.high * ones, self.key, samples, mask, bits)[:count]
        words = self.words(np.arange(start, start + samples, dtype=np.uint64)).reshape(-1)[:count]
        if bits:
            words &= np.uint32(mask)
            words |= np.uint32(bits)
        return words

    def unit_float32(self, count: int) -> Any:
        """Consecutive float32 in [0, 1), as the function of this name makes them of words."""
        numbers = self.sequence(count, 0, _FRACTION, _ONE).view(np.float32)
        numbers -= np.float32(1)
        return numbers


@lru_cache(maxsize=64)
def _key_arrays(key: int) -> list[Any]:
    """The two words of the key in each round, as the rows of a column."""
    words = key & _MASK, key >> 32
    rounds = [
        [w + n * step & _MASK for w, step in zip(words, _WEYL, strict=True)] for n in range(_ROUNDS)
    ]
    return list(np.array(rounds, np.uint32)[:, :, None])


def _few_words(low: int, high: int, key: int, count: int, mask: int = _MASK, bits: int = 0) -> Any:
    """The words of a few packed counters, `& mask | bits`, as `_fill_words` computes many.

    All samples are in one integer of Python, 64 bits each, in which no product of words overflows.
    """
    if count == 1:
        sample = _sample(low, high, key) & mask * _FOUR_WORDS | bits * _FOUR_WORDS
        drawn = np.frombuffer(bytearray(sample.to_bytes(16, "little")), "<u4")
        return drawn.astype(np.uint32, copy=False)
    unit, size = _PACKED_ONES[count], 8 * count
    a, b, c, d = _packed_rounds(low, high, key, unit)
    kept, added = (mask << 32 | mask) * unit, (bits << 32 | bits) * unit
    words = ((a | b << 32) & kept | added).to_bytes(size, "little")
    words += ((c | d << 32) & kept | added).to_bytes(size, "little")
    halves = np.frombuffer(words, "<u4").reshape(2, count, 2)
    return halves.swapaxes(0, 1).astype(np.uint32, "C").reshape(-1)


def _packed_rounds(low: int, high: int, key: int, unit: int) -> tuple[int, int, int, int]:
    """Apply ten rounds to packed counters; `unit` has a 1 for each.

    Each round cuts off the upper halves of products and keys last.
    """
    mask, left_factor, right_factor = _MASK * unit, *_FACTORS
    first, second = (key & _MASK) * unit, (key >> 32) * unit
    first_step, second_step = _WEYL[0] * unit, _WEYL[1] * unit
    a, right, c, left = low & mask, low >> 32, high & mask, high >> 32
    for _ in range(_ROUNDS):
        b, d = right, left
        left, right = a * left_factor, c * right_factor
        a = (right >> 32 ^ b ^ first) & mask
        c = (left >> 32 ^ d ^ second) & mask
        first += first_step
        second += second_step
    return a, right & mask, c, left & mask


def _sample(low: int, high: int, key: int) -> int:
    """Apply ten rounds to one counter: a sample of four words, the first lowest."""
    words, others = high << 64 | low, high >> 32 << 64 | low >> 32
    words, key = words & _BOTH, key >> 32 << 64 | key & _MASK
    for _ in range(_ROUNDS):
        products = words * _BOTH_FACTORS >> 64
        words = (products >> 32 ^ others ^ key) & _BOTH
        others = products
        key += _BOTH_STEPS
    return (others & _BOTH) << 32 | words


@lru_cache(maxsize=64)
def stream_from_seed(seed: tuple[int, int]) -> PhiloxStream:
    """The stream of a seed of two numbers, mixed so that every bit matters."""
    mixed = _sample(*seed, _SEED_KEY)
    return PhiloxStream(mixed & (1 << 64) - 1, 0, mixed >> 64)


def _fill_words(words: Any, low: Any, high: Any, keys: list[Any]) -> None:
    """Apply ten rounds to counters; a row of `words` gets the sample of each.

    The two halves of a round are rows of one array, which halves the number of operations. Rounds
    write their products to two arrays in turn.
    """
    shape = (2, len(low), 2)
    counters = np.stack([low, high])
    words_of_counter = counters.view(np.uint32).reshape(shape)
    factors, others = words_of_counter[..., _LOWER].copy(), words_of_counter[..., _UPPER]
    products = []
    for product in (np.empty_like(counters), counters):
        halves = product.view(np.uint32).reshape(shape)[::-1]
        products.append((product, halves[..., _UPPER], halves[..., _LOWER]))
    for pair, (product, upper, lower) in zip(keys, cycle(products), strict=False):
        np.multiply(factors, _MULTIPLIERS, out=product, dtype=np.uint64)
        np.bitwise_xor(upper, others, out=factors)
        factors ^= pair
        others = lower
    words[:, 0], words[:, 2] = factors
    words[:, 1], words[:, 3] = others


class TracedStream(NamedTuple):
    """State of a generator whose key and counter are traced: scalars of type uint64."""

    xp: ModuleType
    key: Any
    low: Any
    high: Any

    @classmethod
    def from_seed(cls, xp: ModuleType, seed: Any) -> TracedStream:
        """The stream of a traced seed, as `stream_from_seed` returns."""
        numbers = seed.astype(np.int64).astype(np.uint64)
        mixed = cls(xp, xp.uint64(_SEED_KEY), numbers[0], numbers[1]).words(xp.uint64(0))
        first, second = words_to_uint64(mixed)
        return cls(xp, first, xp.uint64(0), second)

    def skip(self, samples: Any) -> TracedStream:
        """Advance the counter by a number of samples."""
        low = self.low + samples.astype(np.uint64)
        return self._replace(low=low, high=self.high + (low < self.low).astype(np.uint64))

    def words(self, starts: Any) -> Any:
        """The samples at these offsets, as rows of four 32-bit words."""
        starts = starts.astype(np.uint64)
        low = starts + self.low
        high = self.high + (low < starts).astype(np.uint64)
        return self.xp.stack(_traced_rounds(self.xp, low, high, self.key), axis=-1)

    def sequence(self, count: int, start: int = 0) -> Any:
        """Consecutive 32-bit words from the sample at `start`."""
        offsets = self.xp.arange(start, start - (-count // 4), dtype=np.uint64)
        return self.words(offsets).reshape(-1)[:count]

    def unit_float32(self, count: int) -> Any:
        """Consecutive float32 in [0, 1)."""
        return unit_float32(self.sequence(count))


def _traced_rounds(xp: ModuleType, low: Any, high: Any, key: Any) -> tuple[Any, ...]:
    """Apply ten rounds to traced counters, in a loop: XLA compiles it faster than ten copies."""
    from jax import lax

    def one_round(_: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
        a, b, c, d, first, second = state
        left, right = a * np.uint64(_FACTORS[0]), c * np.uint64(_FACTORS[1])
        return (
            _upper(right) ^ b ^ first,
            right & _LOW,
            _upper(left) ^ d ^ second,
            left & _LOW,
            first + np.uint64(_WEYL[0]) & _LOW,
            second + np.uint64(_WEYL[1]) & _LOW,
        )

    state = low & _LOW, _upper(low), high & _LOW, _upper(high), key & _LOW, _upper(key)
    words = lax.fori_loop(0, _ROUNDS, one_round, state)[:4]
    return tuple(word.astype(np.uint32) for word in words)


def _upper(value: Any) -> Any:
    return value >> _HALF


RandomStream = PhiloxStream | TracedStream


def words_to_uint64(words: Any) -> Any:
    """Join pairs of 32-bit words to 64-bit words, lower half first."""
    return words.astype("<u4", copy=False).view("<u8").astype(np.uint64, copy=False)


def unit_float32(words: Any) -> Any:
    """float32 in [0, 1) from the low 23 bits of each word."""
    bits = words & np.uint32(_FRACTION)
    bits |= np.uint32(_ONE)
    numbers = bits.view(np.float32)
    numbers -= np.float32(1)
    return numbers


def unit_float64(words: Any) -> Any:
    """float64 in [0, 1) from 52 bits of each pair of words, upper half first."""
    bits = words[..., ::2].astype(np.uint64)
    bits &= _MANTISSA
    bits <<= _HALF
    bits |= words[..., 1::2]
    bits |= np.uint64(1023 << 52)
    numbers = bits.view(np.float64)
    numbers -= 1.0
    return numbers


def unit_numbers(words: Any, dtype: Any) -> Any:
    """Numbers in [0, 1) of a floating type."""
    if dtype == np.float64:
        return unit_float64(words)
    if dtype == np.float32:
        return unit_float32(words)
    half = words.astype(np.uint16)
    if dtype == np.float16:
        bits = (half & np.uint16(0x3FF)) | np.uint16(15 << 10)
    else:
        bits = (half & np.uint16(0x7F)) | np.uint16(127 << 7)
    return (bits.view(dtype).astype(np.float32) - np.float32(1)).astype(dtype)


def normal_float32(words: Any, xp: ModuleType = np) -> Any:
    """Normal float32, one per word, by the Box-Muller transform."""
    return _normal_of_uniform(unit_float32(words), xp)


def _normal_of_uniform(uniform: Any, xp: ModuleType) -> Any:
    radius = xp.maximum(uniform[..., ::2], np.float32(1e-7))
    angle = 2.0 * np.pi * uniform[..., 1::2]
    return _box_muller(xp, xp.sqrt(np.float32(-2) * xp.log(radius)), angle)


def normal_float64(words: Any, xp: ModuleType = np) -> Any:
    """Normal float64, one per pair of words."""
    uniform = unit_float64(words)
    radius = xp.maximum(uniform[..., ::2], 1.0e-7)
    return _box_muller(xp, xp.sqrt(-2.0 * xp.log(radius)), 2.0 * np.pi * uniform[..., 1::2])


def _box_muller(xp: ModuleType, length: Any, angle: Any) -> Any:
    if xp is not np:
        both = xp.stack([xp.sin(angle) * length, xp.cos(angle) * length], axis=-1)
        return both.reshape((*length.shape[:-1], 2 * length.shape[-1]))
    both = np.empty((*length.shape, 2), length.dtype)
    np.multiply(np.sin(angle), length, out=both[..., 0])
    np.multiply(np.cos(angle), length, out=both[..., 1])
    return both.reshape((*length.shape[:-1], 2 * length.shape[-1]))


def words_per_number(dtype: Any) -> int:
    """The number of words per number of a type."""
    return 2 if np.dtype(dtype).itemsize == 8 else 1


def draw_uniform(stream: RandomStream, count: int, dtype: Any) -> Any:
    """Draw uniform numbers in [0, 1)."""
    if dtype == np.float32:
        return stream.unit_float32(count)
    return unit_numbers(stream.sequence(count * words_per_number(dtype)), dtype)


def draw_normal(stream: RandomStream, count: int, dtype: Any) -> Any:
    """Draw normal numbers."""
    size = -(-count * words_per_number(dtype) // 4) * 4
    if dtype == np.float64:
        drawn = normal_float64(stream.sequence(size), stream.xp)
    else:
        drawn = _normal_of_uniform(stream.unit_float32(size), stream.xp)
    return drawn[:count].astype(dtype, copy=False)


def draw_truncated_normal(stream: RandomStream, count: int, dtype: Any) -> Any:
    """Draw normal numbers within two standard deviations.

    Numbers are drawn in groups of one sample; each group rejects within its own range of 256 words
    per number.
    """
    double = dtype == np.float64
    size, draw = (2, normal_float64) if double else (4, normal_float32)
    groups = -(-count // size)
    starts = np.arange(groups, dtype=np.uint64) * np.uint64(size * 64)
    if isinstance(stream, TracedStream):
        return _traced_truncated_normal(stream, starts, size, draw)[:count].astype(dtype)
    result = draw(stream.words(starts))
    rows = np.flatnonzero((np.abs(result) >= 2).any(axis=1))
    drawn, first, blocks = result[rows], 1, 1
    while len(rows):
        offsets = starts[rows, None] + np.arange(first, first + blocks, dtype=np.uint64)
        further = draw(stream.words(offsets).reshape(len(rows), -1))
        drawn = np.concatenate([drawn, further], axis=1)
        accepted = np.abs(drawn) < 2
        done = accepted.sum(axis=1) >= size
        order = np.argsort(~accepted, axis=1, kind="stable")[:, :size]
        result[rows[done]] = np.take_along_axis(drawn, order, axis=1)[done]
        rows, drawn, first, blocks = rows[~done], drawn[~done], first + blocks, blocks * 2
    return result.reshape(-1)[:count].astype(dtype)


def _traced_truncated_normal(
    stream: TracedStream, starts: Any, size: int, draw: Callable[..., Any]
) -> Any:
    """The numbers of each group of `size`, checked to be among a few candidates."""
    xp = stream.xp
    offsets = starts[:, None] + np.arange(_CANDIDATES // size, dtype=np.uint64)
    words = stream.words(xp.asarray(offsets)).reshape(len(starts), 4 * offsets.shape[1])
    drawn = draw(words, xp)
    ranks = xp.cumsum(xp.abs(drawn) < 2, axis=1)
    defer_check(lambda: ranks[:, -1] >= size)
    places = (ranks[:, None, :] <= np.arange(size)[:, None]).sum(axis=2)
    return xp.take_along_axis(drawn, places, axis=1).reshape(-1)


def draw_full_range_integers(stream: RandomStream, count: int, dtype: Any) -> Any:
    """Draw integers over the full range of a type."""
    words = stream.sequence(count * words_per_number(dtype))
    return (words_to_uint64(words) if words_per_number(dtype) == 2 else words).view(dtype)


def draw_integers(stream: RandomStream, count: int, low: Any, high: Any, dtype: Any) -> Any:
    """Draw integers in [low, high)."""
    unsigned = np.uint64 if words_per_number(dtype) == 2 else np.uint32
    raw = draw_full_range_integers(stream, count, unsigned)
    if isinstance(stream, TracedStream):
        first, end = (stream.xp.asarray(bound).astype(unsigned) for bound in (low, high))
        return (raw % (end - first) + first).view(dtype)
    span = (int(high) - int(low)) & np.iinfo(unsigned).max
    start = np.asarray(low, dtype).astype(unsigned)
    return (raw % unsigned(span) + start).astype(unsigned).view(dtype)
