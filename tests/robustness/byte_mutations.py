"""Mutations of files as bytes: bits, lengths, cuts, splices, and compression."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable

from tests.ir.wire import varint

_NUMBERS = (0, 1, 2, 127, 128, 255, 256, 0x7FFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 63)


def mutate_bytes(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Apply one to four mutations; `other` is a file to splice from."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        data = rng.choice(_MUTATIONS)(rng, data, other)
    if rng.random() < 0.03:
        data = _compressed(rng, data)
    return data


def _flip_bits(rng: random.Random, data: bytes, other: bytes) -> bytes:
    changed = bytearray(data or b"\0")
    for _ in range(rng.choice((1, 1, 2, 8))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _set_byte(rng: random.Random, data: bytes, other: bytes) -> bytes:
    start = rng.randrange(len(data) + 1)
    return data[:start] + bytes([rng.choice((0, 1, 8, 10, 18, 127, 128, 255))]) + data[start + 1 :]


def _set_length(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Overwrite a byte, which may be the length of a message, by the varint of a number."""
    start = rng.randrange(len(data) + 1)
    return data[:start] + varint(rng.choice(_NUMBERS)) + data[start + 1 :]


def _delete(rng: random.Random, data: bytes, other: bytes) -> bytes:
    start, end = _range(rng, data)
    return data[:start] + data[end:]


def _repeat(rng: random.Random, data: bytes, other: bytes) -> bytes:
    start, end = _range(rng, data)
    return data[:end] + data[start:end] * rng.choice((1, 1, 2, 30)) + data[end:]


def _truncate(rng: random.Random, data: bytes, other: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _insert(rng: random.Random, data: bytes, other: bytes) -> bytes:
    start = rng.randrange(len(data) + 1)
    return data[:start] + rng.randbytes(rng.choice((1, 2, 4, 16))) + data[start:]


def _splice(rng: random.Random, data: bytes, other: bytes) -> bytes:
    start, end = _range(rng, data)
    first, last = _range(rng, other)
    return data[:start] + other[first:last] + data[end:]


def _concatenate(rng: random.Random, data: bytes, other: bytes) -> bytes:
    return data + other


def _overwrite(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Replace bytes by as many others, so that lengths stay true."""
    start, end = _range(rng, data)
    first = rng.randrange(len(other) + 1)
    return data[:start] + other[first : first + end - start].ljust(end - start, b"a") + data[end:]


_MUTATIONS: tuple[Callable[[random.Random, bytes, bytes], bytes], ...] = (
    _flip_bits,
    _flip_bits,
    _flip_bits,
    _overwrite,
    _overwrite,
    _flip_bits,
    _set_byte,
    _set_length,
    _set_length,
    _delete,
    _repeat,
    _truncate,
    _insert,
    _splice,
    _concatenate,
)


def _range(rng: random.Random, data: bytes) -> tuple[int, int]:
    start = rng.randrange(len(data) + 1)
    return start, min(len(data), start + rng.choice((1, 2, 4, 8, 32, 128)))


def _compressed(rng: random.Random, data: bytes) -> bytes:
    packed = gzip.compress(data, mtime=0)
    return packed if rng.random() < 0.3 else _flip_bits(rng, packed, b"")
