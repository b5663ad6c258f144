"""Hash buckets of strings: FarmHash, SipHash, and the hash of TensorFlow's first versions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, ClassVar, Final

import numpy as np

from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import Shape
from cfgraph.ops.opdef.facts import HostPlacement
from cfgraph.ops.opdef.op import Op, OpError, SameShape
from cfgraph.ops.opdef.shape_functions import InferenceContext, require_rank_at_least

_MASK: Final = (1 << 64) - 1
_K0, _K1, _K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F
# texts of one length that are computed at once, and their greatest length
_MANY: Final = 8
_LONGEST: Final = 64
_MURMUR, _LEGACY_SEED = 0xC6A4A7935BD1E995, 0xDECAFCAFFE


def _rotate_right(value: Any, count: int) -> Any:
    value &= _MASK
    return (value >> count | value << (64 - count)) & _MASK


def _mix(value: Any) -> Any:
    return (value ^ value >> 47) & _MASK


class EqualTexts:
    """Texts of one length, of which a hash function computes all hashes at once.

    Bytes and words are arrays of uint64, a number per text, whose arithmetic drops what `_MASK`
    drops of integers.
    """

    def __init__(self, texts: list[bytes]) -> None:
        self._bytes = np.frombuffer(b"".join(texts), np.uint8).reshape(len(texts), -1)

    def __len__(self) -> int:
        return self._bytes.shape[1]

    def __getitem__(self, position: int) -> Any:
        return self._bytes[:, position].astype(np.uint64)

    def word(self, start: int, size: int) -> Any:
        """Up to eight bytes of each text as a number, the first one lowest."""
        part = self._bytes[:, start : start + size]
        words = np.zeros((len(part), 8), np.uint8)
        words[:, : part.shape[1]] = part
        return words.view("<u8")[:, 0].astype(np.uint64)


def _word(text: Any, start: int, size: int = 8) -> Any:
    if isinstance(text, EqualTexts):
        return text.word(start, size)
    return int.from_bytes(text[start : start + size], "little")


def _combine(u: Any, v: Any, factor: int) -> Any:
    a = _mix((u ^ v) * factor & _MASK)
    return _mix((v ^ a) * factor & _MASK) * factor & _MASK


def _weak(text: bytes, start: int, a: int, b: int) -> tuple[int, int]:
    """Mix 32 bytes with two seeds."""
    w, x, y, z = (_word(text, start + 8 * i) for i in range(4))
    a += w
    b = _rotate_right(b + a + z, 21)
    c = a
    a += x + y
    b += _rotate_right(a, 44)
    return (a + z) & _MASK, (b + c) & _MASK


def _short_hash(text: Any) -> Any:
    """Hash of up to 16 bytes."""
    size = len(text)
    if size >= 8:
        factor = _K2 + size * 2
        a, b = _word(text, 0) + _K2, _word(text, size - 8)
        c = _rotate_right(b, 37) * factor + a
        return _combine(c & _MASK, (_rotate_right(a, 25) + b) * factor & _MASK, factor)
    if size >= 4:
        head = size + (_word(text, 0, 4) << 3)
        return _combine(head & _MASK, _word(text, size - 4, 4), _K2 + size * 2)
    if size:
        y = text[0] + (text[size >> 1] << 8)
        z = size + (text[-1] << 2)
        return _mix((y * _K2 ^ z * _K0) & _MASK) * _K2 & _MASK
    return _K2


def _medium_hash(text: Any) -> Any:
    """Hash of 17 to 64 bytes."""
    size = len(text)
    factor = _K2 + size * 2
    first = _K1 if size <= 32 else _K2
    a, b = _word(text, 0) * first & _MASK, _word(text, 8)
    c, d = _word(text, size - 8) * factor & _MASK, _word(text, size - 16) * _K2
    y = (_rotate_right(a + b, 43) + _rotate_right(c, 30) + d) & _MASK
    z = _combine(y, (a + _rotate_right(b + _K2, 18) + c) & _MASK, factor)
    if size <= 32:
        return z
    e, f = _word(text, 16) * factor & _MASK, _word(text, 24)
    g = (y + _word(text, size - 32)) * factor & _MASK
    h = (z + _word(text, size - 24)) * factor & _MASK
    u = (_rotate_right(e + f, 43) + _rotate_right(g, 30) + h) & _MASK
    return _combine(u, (e + _rotate_right(f + a, 18) + g) & _MASK, factor)


def farm_hash(text: Any) -> Any:
    """FarmHash's 64-bit fingerprint."""
    size = len(text)
    if size <= 16:
        return _short_hash(text)
    if size <= 64:
        return _medium_hash(text)
    seed = 81
    x, y = seed, (seed * _K1 + 113) & _MASK
    z = _mix((y * _K2 + 113) & _MASK) * _K2 & _MASK
    v, w = (0, 0), (0, 0)
    x = (x * _K2 + _word(text, 0)) & _MASK
    end = (size - 1) // 64 * 64
    steps = [(start, False) for start in range(0, end, 64)]
    factor, scale = _K1, 1
    for start, is_last in (*steps, (size - 64, True)):
        if is_last:  # the last 64 bytes overlap those before
            factor, scale = (_K1 + ((z & 0xFF) << 1)) & _MASK, 9
            first = (w[0] + ((size - 1) & 63)) & _MASK
            v = ((v[0] + first) & _MASK, v[1])
            w = ((first + v[0]) & _MASK, w[1])
        x = _rotate_right(x + y + v[0] + _word(text, start + 8), 37) * factor & _MASK
        y = _rotate_right(y + v[1] + _word(text, start + 48), 42) * factor & _MASK
        x ^= w[1] * scale & _MASK
        y = (y + v[0] * scale + _word(text, start + 40)) & _MASK
        z = _rotate_right(z + w[0], 33) * factor & _MASK
        v = _weak(text, start, v[1] * factor, x + w[0])
        w = _weak(text, start + 32, z + w[1], y + _word(text, start + 16))
        z, x = x, z
    u = (_combine(v[0], w[0], factor) + _mix(y) * _K0 + z) & _MASK
    return _combine(u, (_combine(v[1], w[1], factor) + x) & _MASK, factor)


def sip_hash(text: Any, key: tuple[int, int]) -> Any:
    """SipHash-2-4 (Aumasson and Bernstein 2012)."""
    first, second = (word & _MASK for word in key)
    v = [
        first ^ 0x736F6D6570736575,
        second ^ 0x646F72616E646F6D,
        first ^ 0x6C7967656E657261,
        second ^ 0x7465646279746573,
    ]
    whole = len(text) // 8 * 8
    tail = _word(text, whole, 7) | (len(text) & 0xFF) << 56
    for word in (*(_word(text, i) for i in range(0, whole, 8)), tail):
        v[3] ^= word
        _sip_round(v, 2)
        v[0] ^= word
    v[2] ^= 0xFF
    _sip_round(v, 4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def _sip_round(v: list[Any], count: int) -> None:
    a, b, c, d = v
    for _ in range(count):
        a = (a + b) & _MASK
        b = _rotate_right(b, 51) ^ a
        a = _rotate_right(a, 32)
        c = (c + d) & _MASK
        d = _rotate_right(d, 48) ^ c
        a = (a + d) & _MASK
        d = _rotate_right(d, 43) ^ a
        c = (c + b) & _MASK
        b = _rotate_right(b, 47) ^ c
        c = _rotate_right(c, 32)
    v[:] = a, b, c, d


def legacy_hash(text: Any) -> Any:
    """MurmurHash64A with TensorFlow's seed."""
    result = _LEGACY_SEED ^ len(text) * _MURMUR & _MASK
    whole = len(text) // 8 * 8
    for start in range(0, whole, 8):
        word = _word(text, start) * _MURMUR & _MASK
        result = (result ^ (_mix(word) * _MURMUR & _MASK)) * _MURMUR & _MASK
    if whole < len(text):
        result = (result ^ _word(text, whole)) * _MURMUR & _MASK
    return _mix(_mix(result) * _MURMUR & _MASK)


def hashes_of_texts(compute: Callable[[Any], Any], texts: list[bytes]) -> Any:
    """The hash of each text; many texts of one length are computed at once."""
    result = np.empty(len(texts), np.uint64)
    by_length: dict[int, list[int]] = defaultdict(list)
    for position, text in enumerate(texts):
        by_length[len(text)].append(position)
    for length, positions in by_length.items():
        if len(positions) >= _MANY and 0 < length <= _LONGEST:
            result[positions] = compute(EqualTexts([texts[position] for position in positions]))
        else:
            result[positions] = [compute(texts[position]) for position in positions]
    return result


def joined_fingerprints(first: Any, second: Any) -> Any:
    """The fingerprint of two fingerprints in this order; each may be an array of uint64."""
    with np.errstate(over="ignore"):
        factor = np.uint64(_MURMUR)
        mixed = (first ^ factor ^ _mix(second * factor) * factor) * factor
        return _mix(_mix(mixed) * factor)


class HashBucket(SameShape, abstract=True):
    """A bucket number for each string, by a hash function."""

    signature = "input: string -> output: int64"
    attrs = "num_buckets: int >= 1"
    placement = HostPlacement(host_only=True)
    # from the node to the hash of one string
    hash_function: ClassVar[Callable[..., Any]]

    @staticmethod
    def kernel(xp: ModuleType, num_buckets: int, hash_function: Any, /, texts: Any) -> Any:
        numbers = hashes_of_texts(hash_function, texts.ravel().tolist()) % np.uint64(num_buckets)
        return numbers.astype(np.int64).reshape(texts.shape)


class StringToHashBucketFast(HashBucket):
    """Bucket of each string: its FarmHash fingerprint modulo their number."""

    hash_function = staticmethod(lambda node: farm_hash)


class StringToHashBucketStrong(HashBucket):
    """Buckets by SipHash with a key of two numbers."""

    attrs = "num_buckets: int >= 1, key: list(int)"

    @staticmethod
    def hash_function(node: Node) -> Callable[[Any], Any]:
        key = node.attr("key")
        if len(key) != 2:
            raise OpError(f"Key must have 2 elements, got {len(key)}")
        pair = int(key[0]), int(key[1])
        return lambda text: sip_hash(text, pair)


class StringToHashBucket(HashBucket):
    """Buckets by the hash of TensorFlow's first versions."""

    signature = "string_tensor: string -> output: int64"
    hash_function = staticmethod(lambda node: legacy_hash)


class Fingerprint(Op):
    """Fingerprints of the rows of a tensor, eight bytes of each."""

    signature = "data: T, method: string -> fingerprint: uint8"
    placement = HostPlacement(host_only=True)

    @staticmethod
    def kernel(xp: ModuleType, data: Any, method: Any) -> Any:
        if method.ndim or method[()] != b"farmhash64":
            raise OpError(f"method must be the scalar farmhash64, got {method.tolist()!r}")
        if not data.ndim:
            raise OpError("data must have at least one dimension")
        if data.dtype == object:
            data = _fingerprints(data.ravel().tolist()).reshape(data.shape)
            if data.size == len(data):
                return data.view(np.uint8).reshape(-1, 8)
        return _fingerprints([row.tobytes() for row in data]).view(np.uint8).reshape(-1, 8)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [require_rank_at_least(context.inputs[0], 1)[:1] + Shape((8,))]


def _fingerprints(texts: list[bytes]) -> Any:
    return hashes_of_texts(farm_hash, texts).astype("<u8")
