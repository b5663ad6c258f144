"""The Philox 4x32-10 generator (Salmon et al. 2011), vectorized, with TensorFlow's distributions.

A sample consists of four 32-bit words. Sample n depends only on key and counter + n.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

_MULTIPLIERS = np.array([0xD2511F53, 0xCD9E8D57], np.uint64)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_MANTISSA = np.uint64(0xFFFFF)
_ROUNDS = 10
_MASK = 0xFFFFFFFF
_KEY_STEPS = tuple((n * _WEYL[0], n * _WEYL[1]) for n in range(_ROUNDS))
# up to this many samples, integers of Python are faster than arrays
_FEW = 100
_PACKED_ONES = tuple(accumulate((1 << 64 * lane for lane in range(_FEW)), initial=0))
_PACKED_STEPS = tuple(accumulate((lane << 64 * lane for lane in range(_FEW)), initial=0))


class PhiloxStream(NamedTuple):
    """State of a generator: a 64-bit key, and a counter of two 64-bit words."""

    key: int
    low: int
    high: int

    def skip(self, samples: int) -> PhiloxStream:
        """Advance the counter by a number of samples."""
        whole = (self.high << 64 | self.low) + samples
        return PhiloxStream(self.key, whole & (1 << 64) - 1, whole >> 64 & (1 << 64) - 1)

    def words(self, starts: Any) -> Any:
        """The samples at these offsets, as rows of four 32-bit words."""
        starts = np.asarray(starts, np.uint64)
        low = starts + np.uint64(self.low)
        high = np.uint64(self.high) + (low < starts)
        if starts.size <= _FEW:
            counters = int.from_bytes(low, "little"), int.from_bytes(high, "little")
            return _packed_words(*counters, self.key, starts.size).reshape((*starts.shape, 4))
        return philox_rounds((low & _LOW, low >> _HALF, high & _LOW, high >> _HALF), self.key)

    def sequence(self, count: int, start: int = 0) -> Any:
        """Consecutive 32-bit words from the sample at `start`."""
        samples, low = -(-count // 4), self.low + start
        if samples <= _FEW and low + samples <= 1 << 64:
            ones = _PACKED_ONES[samples]
            lows = low * ones + _PACKED_STEPS[samples]
            return _packed_words(lows, self.high * ones, self.key, samples).reshape(-1)[:count]
        return self.words(np.arange(start, start + samples, dtype=np.uint64)).reshape(-1)[:count]


def _round_keys(key: int) -> list[tuple[int, int]]:
    """The two words of the key in each round."""
    first, second = key & _MASK, key >> 32
    return [((first + one) & _MASK, (second + two) & _MASK) for one, two in _KEY_STEPS]


def _packed_words(low: int, high: int, key: int, count: int) -> Any:
    """The samples of a few packed counters, as `philox_rounds` computes them of many.

    All samples are in one integer of Python, 64 bits each, in which no product of words overflows.
    """
    a, b, c, d = _packed_rounds(low, high, _round_keys(key), _PACKED_ONES[count])
    size = 8 * count
    words = (a | b << 32).to_bytes(size, "little") + (c | d << 32).to_bytes(size, "little")
    halves = np.frombuffer(words, "<u4").reshape(2, count, 2)
    return halves.swapaxes(0, 1).astype(np.uint32, "C")


def _packed_rounds(
    low: int, high: int, keys: list[tuple[int, int]], unit: int
) -> tuple[int, int, int, int]:
    """Apply ten rounds to packed counters; `unit` has a 1 for each."""
    mask = _MASK * unit
    a, b, c, d = low & mask, low >> 32 & mask, high & mask, high >> 32 & mask
    for first, second in keys:
        left, right = a * 0xD2511F53, c * 0xCD9E8D57
        a, b = right >> 32 & mask ^ b ^ first * unit, right & mask
        c, d = left >> 32 & mask ^ d ^ second * unit, left & mask
    return a, b, c, d


_SEED_KEYS = _round_keys(0x02461E29 << 32 | 0x3EC8F720)


def philox_rounds(counter: tuple[Any, Any, Any, Any], key: int) -> Any:
    """Apply ten rounds to counters; the last dimension holds the words.

    The two halves of a round are rows of one array, which halves the number of operations.
    """
    a, b, c, d = np.broadcast_arrays(*counter)
    factors, others = np.stack([a, c]), np.stack([b, d])
    column = (2, *[1] * a.ndim)
    multipliers = _MULTIPLIERS.reshape(column)
    product = np.empty_like(factors)
    for keys in np.array(_round_keys(key), np.uint64).reshape((_ROUNDS, *column)):
        np.multiply(factors, multipliers, out=product)
        np.right_shift(product[::-1], _HALF, out=factors)
        factors ^= others
        factors ^= keys
        np.bitwise_and(product[::-1], _LOW, out=others)
    words = np.empty((*a.shape, 4), np.uint32)
    words[..., 0], words[..., 2] = factors
    words[..., 1], words[..., 3] = others
    return words


def stream_from_seed(seed: tuple[int, int]) -> PhiloxStream:
    """The stream of a seed of two numbers, mixed so that every bit matters."""
    a, b, c, d = _packed_rounds(*seed, _SEED_KEYS, 1)
    return PhiloxStream(b << 32 | a, 0, d << 32 | c)


def words_to_uint64(words: Any) -> Any:
    """Join pairs of 32-bit words to 64-bit words, lower half first."""
    return words.astype("<u4", copy=False).view("<u8").astype(np.uint64, copy=False)


def unit_float32(words: Any) -> Any:
    """float32 in [0, 1) from the low 23 bits of each word."""
    bits = (words & np.uint32(0x7FFFFF)) | np.uint32(127 << 23)
    return bits.view(np.float32) - np.float32(1)


def unit_float64(words: Any) -> Any:
    """float64 in [0, 1) from 52 bits of each pair of words, upper half first."""
    mantissa = words[..., 1::2] | (words[..., ::2].astype(np.uint64) & _MANTISSA) << _HALF
    return (mantissa | np.uint64(1023 << 52)).view(np.float64) - 1.0


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


def normal_float32(words: Any) -> Any:
    """Normal float32, one per word, by the Box-Muller transform."""
    radius = np.maximum(unit_float32(words[..., ::2]), np.float32(1e-7))
    angle = (2.0 * np.pi * unit_float32(words[..., 1::2])).astype(np.float32)
    return _box_muller(np.sqrt(np.float32(-2) * np.log(radius)), angle)


def normal_float64(words: Any) -> Any:
    """Normal float64, one per pair of words."""
    uniform = unit_float64(words)
    radius = np.maximum(uniform[..., ::2], 1.0e-7)
    return _box_muller(np.sqrt(-2.0 * np.log(radius)), 2.0 * np.pi * uniform[..., 1::2])


def _box_muller(length: Any, angle: Any) -> Any:
    both = np.empty((*length.shape, 2), length.dtype)
    np.multiply(np.sin(angle), length, out=both[..., 0])
    np.multiply(np.cos(angle), length, out=both[..., 1])
    return both.reshape((*both.shape[:-2], -1))


def words_per_number(dtype: Any) -> int:
    """The number of words per number of a type."""
    return 2 if np.dtype(dtype).itemsize == 8 else 1


def draw_uniform(stream: PhiloxStream, count: int, dtype: Any) -> Any:
    """Draw uniform numbers in [0, 1)."""
    return unit_numbers(stream.sequence(count * words_per_number(dtype)), dtype)


def draw_normal(stream: PhiloxStream, count: int, dtype: Any) -> Any:
    """Draw normal numbers."""
    words = stream.sequence(-(-count * words_per_number(dtype) // 4) * 4)
    drawn = normal_float64(words) if dtype == np.float64 else normal_float32(words)
    return drawn[:count].astype(dtype)


def draw_truncated_normal(stream: PhiloxStream, count: int, dtype: Any) -> Any:
    """Draw normal numbers within two standard deviations.

    Numbers are drawn in groups of one sample; each group rejects within its own range of 256 words
    per number.
    """
    double = dtype == np.float64
    size, draw = (2, normal_float64) if double else (4, normal_float32)
    groups = -(-count // size)
    starts = np.arange(groups, dtype=np.uint64) * np.uint64(size * 64)
    result = np.empty((groups, size), np.float64 if double else np.float32)
    rows, blocks = np.arange(groups), 4
    while len(rows):
        offsets = starts[rows, None] + np.arange(blocks, dtype=np.uint64)
        drawn = draw(stream.words(offsets).reshape(len(rows), -1))
        accepted = np.abs(drawn) < 2
        done = accepted.sum(axis=1) >= size
        order = np.argsort(~accepted, axis=1, kind="stable")[:, :size]
        result[rows[done]] = drawn[np.arange(len(rows))[:, None], order][done]
        rows, blocks = rows[~done], blocks * 2
    return result.reshape(-1)[:count].astype(dtype)


def draw_full_range_integers(stream: PhiloxStream, count: int, dtype: Any) -> Any:
    """Draw integers over the full range of a type."""
    words = stream.sequence(count * words_per_number(dtype))
    return (words_to_uint64(words) if words_per_number(dtype) == 2 else words).view(dtype)


def draw_integers(stream: PhiloxStream, count: int, low: Any, high: Any, dtype: Any) -> Any:
    """Draw integers in [low, high)."""
    unsigned = np.uint64 if words_per_number(dtype) == 2 else np.uint32
    raw = draw_full_range_integers(stream, count, unsigned)
    span = (int(high) - int(low)) & np.iinfo(unsigned).max
    start = np.asarray(low, dtype).astype(unsigned)
    return (raw % unsigned(span) + start).astype(unsigned).view(dtype)
