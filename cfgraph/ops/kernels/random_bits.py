"""Random bits as XLA draws them: by Philox 4x32 or ThreeFry 2x32 (Salmon et al. 2011)."""

from __future__ import annotations

from math import prod
from types import ModuleType
from typing import Any, Final

import numpy as np

from cfgraph.ops.kernels.philox import PhiloxStream, TracedStream

_ROTATIONS: Final = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY: Final = np.uint32(0x1BD11BDA)
_HALF: Final = np.uint64(32)


def philox_bits(
    xp: ModuleType, state: Any, shape: tuple[int, ...], *, wide: bool
) -> tuple[Any, Any]:
    """The state (a key and a counter of two words) after the bits, and the bits."""
    stream: Any = PhiloxStream(*map(int, state)) if xp is np else TracedStream(xp, *state)
    count = prod(shape)
    samples = -(-count // (2 if wide else 4))
    words = stream.words(xp.arange(samples, dtype=np.uint64))
    bits = _joined(words[:, ::2], words[:, 1::2]) if wide else words
    after = stream.skip(np.uint64(samples))
    return (
        xp.asarray([after.key, after.low, after.high], np.uint64),
        bits.reshape(-1)[:count].reshape(shape),
    )


def three_fry_bits(
    xp: ModuleType, state: Any, shape: tuple[int, ...], *, wide: bool
) -> tuple[Any, Any]:
    """The state (a key and a counter) after the bits, and the bits.

    A sample is a wide number, or two neighbors in the first even dimension, or in the largest one.
    """
    axis = _paired_axis(shape)
    drawn = list(shape)
    if not wide:
        drawn = [-(-size // 2) if i == axis else size for i, size in enumerate(shape)]
    samples = prod(drawn)
    counters = state[1] + xp.arange(samples, dtype=np.uint64).reshape(drawn)
    low, high = _three_fry(state[0], counters)
    after = xp.stack([state[0], state[1] + np.uint64(samples)])
    if wide:
        return after, _joined(low, high)
    if not shape:
        return after, low
    pairs = xp.stack((low, high), axis + 1)
    whole = pairs.reshape((*shape[:axis], drawn[axis] * 2, *shape[axis + 1 :]))
    return after, whole[(*(slice(None),) * axis, slice(shape[axis]))]


def _paired_axis(shape: tuple[int, ...]) -> int:
    even = (axis for axis, size in enumerate(shape) if size % 2 == 0)
    return next(even, shape.index(max(shape)) if shape else 0)


def _joined(low: Any, high: Any) -> Any:
    """The 64-bit numbers of two 32-bit words each."""
    return low.astype(np.uint64) | high.astype(np.uint64) << _HALF


def _three_fry(key: Any, counters: Any) -> tuple[Any, Any]:
    """The words of ThreeFry 2x32 in 20 rounds for counters, low ones first."""
    first, second = (
        (key & np.uint64(0xFFFFFFFF)).astype(np.uint32),
        (key >> _HALF).astype(np.uint32),
    )
    keys = first, second, first ^ second ^ _PARITY
    with np.errstate(over="ignore"):
        x = counters.astype(np.uint32) + keys[0]
        y = (counters >> _HALF).astype(np.uint32) + keys[1]
        for step in range(5):
            for bits in _ROTATIONS[step % 2]:
                x = x + y
                y = (y << np.uint32(bits) | y >> np.uint32(32 - bits)) ^ x
            x = x + keys[(step + 1) % 3]
            y = y + keys[(step + 2) % 3] + np.uint32(step + 1)
    return x, y
