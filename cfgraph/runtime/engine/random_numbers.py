"""Random numbers of stateful nodes, by key and counter of Philox.

Neither the schedule, nor the engine, nor the form of a graph changes them: functional, lowered,
inlined, clustered, unrolled, or partitioned.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import numpy as np

_WORDS: Final = 4
_MASK: Final = 2**64 - 1
# 2**64 by the golden ratio: its multiples by small numbers are far apart
ITERATION_MULTIPLIER: Final = 0x9E3779B97F4A7C15
_EMPTY_BUFFER: Final = np.zeros(_WORDS, np.uint64)
Seeds = tuple[int, int, int, int]


def stream_key(seeds: Seeds, stream: str) -> Any:
    """The key of the numbers that a random node, or a queue, draws in a run.

    `seeds` are the seed of the session, both seeds of the node, and the number of the run in the
    session. `stream` is the path of call sites with the name of the node, as
    `cfgraph/ops/opdef/random_streams.py` defines it. Names of frames are not in the key, and the
    numbers of iterations are in the counter, so that compiled code can compute it.
    """
    text = repr((*map(int, seeds), stream))
    digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
    return np.frombuffer(digest, "<u8").astype(np.uint64)


def stream_counter(iterations: tuple[int, ...]) -> Any:
    """The counter at which an execution in these iterations, outermost first, starts to draw.

    Word 0 counts what it draws. Words 1 and 2 are the numbers of the two innermost iterations,
    word 3 combines those of all other loops.
    """
    *outer, second, first = (0, 0, *iterations)
    third = 0
    for number in outer:
        third = (third * ITERATION_MULTIPLIER + number) & _MASK
    return np.array([0, first & _MASK, second & _MASK, third], np.uint64)


class RandomStreams:
    """The streams of one run at a time. One generator moves to where an execution draws."""

    def __init__(self) -> None:
        self._keys: dict[tuple[Seeds, str], Any] = {}
        self._bits: Any = None
        self._generator: Any = None

    def clear(self) -> None:
        """Forget the keys of a run."""
        self._keys.clear()

    def key(self, seeds: Seeds, stream: str) -> Any:
        """The key of a stream, which is computed once in a run."""
        key = self._keys.get((seeds, stream))
        if key is None:
            key = self._keys[seeds, stream] = stream_key(seeds, stream)
        return key

    def generator(
        self, seeds: Seeds, stream: str, iterations: tuple[int, ...]
    ) -> np.random.Generator:
        """The numbers of an execution, until the next call."""
        key = self.key(seeds, stream)
        if self._bits is None:
            self._bits = np.random.Philox(key=key)
            self._generator = np.random.Generator(self._bits)
        self._bits.state = {
            "bit_generator": "Philox",
            "state": {"counter": stream_counter(iterations), "key": key},
            "buffer": _EMPTY_BUFFER,
            "buffer_pos": _WORDS,
            "has_uint32": 0,
            "uinteger": 0,
        }
        return self._generator  # type: ignore[no-any-return]
