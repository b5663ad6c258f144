"""String length, case, whitespace, substrings, base64, and raw bytes."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape, vector_shape
from cfgraph.ops.opdef.facts import AlgebraicFacts
from cfgraph.ops.opdef.op import Kernel, Op, OpError, SameShape
from cfgraph.ops.opdef.shape_functions import InferenceContext


def string_array(texts: Iterable[bytes], shape: Sequence[int]) -> Any:
    """An array of strings in a shape."""
    flat = list(texts)
    array = np.empty(len(flat), object)
    array[:] = flat
    return array.reshape(shape)


def map_strings(function: Callable[[bytes], bytes], texts: Any) -> Any:
    """Apply a function to each string."""
    return string_array(map(function, texts.ravel().tolist()), texts.shape)


class StringwiseOp(SameShape, abstract=True):
    """Elementwise op on strings; `change(node, text)` computes one element."""

    signature = "input: string -> output: string"
    change: ClassVar[Callable[..., bytes]]

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        change = partial(cls.change, node)
        return lambda texts: map_strings(change, texts)


ASCII_WHITESPACE = b" \t\n\v\f\r"


def character_starts(text: bytes) -> list[int]:
    """Byte offsets of the characters of a UTF-8 string."""
    return [position for position, byte in enumerate(text) if byte & 0xC0 != 0x80]


class StringLength(SameShape):
    """Number of bytes or of UTF-8 characters in each string."""

    signature = "input: string -> output: int32"
    attrs = "unit: {'BYTE', 'UTF8_CHAR'} = 'BYTE'"

    @staticmethod
    def kernel(xp: ModuleType, unit: bytes, /, texts: Any) -> Any:
        length = len if unit == b"BYTE" else lambda text: len(character_starts(text))
        counted = [length(text) for text in texts.ravel().tolist()]
        return np.array(counted, np.int32).reshape(texts.shape)


class CaseConversion(StringwiseOp, abstract=True):
    """Case conversion of strings: ASCII letters only, or all of Unicode."""

    attrs = "encoding: string = ''"

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        encoding = node.attr("encoding")
        if encoding not in (b"", b"utf-8"):
            raise OpError(
                "only utf-8 or '' (no encoding) is supported, "
                f"received {encoding.decode(errors='replace')}"
            )
        return super().bind(node, xp)


def decode_unicode(text: bytes) -> str:
    """Decode UTF-8 up to the first null, where TensorFlow's conversion stops."""
    return text.partition(b"\0")[0].decode(errors="replace")


class StringUpper(CaseConversion):
    """Upper-case form of each string."""

    @staticmethod
    def change(node: Node, text: bytes) -> bytes:
        if node.attr("encoding"):
            return decode_unicode(text).upper().encode()
        return text.upper()


class StringLower(CaseConversion):
    """Lower-case form of each string."""

    @staticmethod
    def change(node: Node, text: bytes) -> bytes:
        if node.attr("encoding"):
            return decode_unicode(text).lower().encode()
        return text.lower()


class StringStrip(StringwiseOp):
    """Each string without leading and trailing whitespace."""

    @staticmethod
    def change(node: Node, text: bytes) -> bytes:
        return text.strip(ASCII_WHITESPACE)


class Substr(Op):
    """Substrings by position and length, in bytes or characters; negative positions allowed."""

    signature = "input: string, pos: T, len: T -> output: string"
    attrs = "T: {int32, int64}, unit: {'BYTE', 'UTF8_CHAR'} = 'BYTE'"

    @staticmethod
    def kernel(xp: ModuleType, unit: bytes, /, texts: Any, pos: Any, count: Any) -> Any:
        by_byte = unit == b"BYTE"
        if pos.shape != count.shape:
            raise OpError(
                "pos and len should have the same shape, "
                f"got: {list(pos.shape)} vs. {list(count.shape)}"
            )
        first, size = (pos.item(), count.item()) if not pos.ndim else (-1, -1)
        if by_byte and first >= 0 and size >= 0:
            flat = texts.ravel().tolist()
            if not first or min(map(len, flat), default=first) >= first:
                return string_array([text[first : first + size] for text in flat], texts.shape)
        shape = np.broadcast_shapes(texts.shape, pos.shape)
        if pos.shape not in (texts.shape, ()) and len(shape) > 2:
            raise OpError(f"Substr broadcast not implemented for {len(shape)} dimensions")
        columns = (np.broadcast_to(v, shape).ravel().tolist() for v in (texts, pos, count))
        return string_array(
            (
                substring(text, position, size, by_byte, index)
                for index, (text, position, size) in enumerate(zip(*columns, strict=True))
            ),
            shape,
        )

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        text, pos, count = context.inputs
        return [text.broadcast(pos.merge(count))]


def substring(text: bytes, position: int, count: int, by_byte: bool, index: int) -> bytes:
    """A substring of one string. Raises OpError if it starts out of range."""
    edges = range(len(text)) if by_byte else character_starts(text)
    wild = position < 0 and count < 0 and not by_byte
    if wild or not -len(edges) <= position <= len(edges):
        shown = f" {text!s}" if by_byte else ""
        raise OpError(f"pos {position} out of range for string{shown} at index {index}")
    first = position + len(edges) if position < 0 else position
    if count < 0:
        # TensorFlow converts a negative length to a huge one for bytes, and to 0 for characters
        return text[first:] if by_byte else b""
    stop = first + count
    begin = edges[first] if first < len(edges) else len(text)
    return text[begin : edges[stop] if stop < len(edges) else len(text)]


_ALPHABET = re.compile(rb"[A-Za-z0-9_-]*")


class EncodeBase64(StringwiseOp):
    """URL-safe base64 encoding, with or without padding."""

    attrs = "pad: bool = false"

    @staticmethod
    def change(node: Node, text: bytes) -> bytes:
        encoded = base64.urlsafe_b64encode(text)
        return encoded if node.attr("pad") else encoded.rstrip(b"=")


class DecodeBase64(StringwiseOp):
    """Inverse of EncodeBase64."""

    @staticmethod
    def change(node: Node, text: bytes) -> bytes:
        padding = len(text) - len(text.rstrip(b"="))
        body = text[: len(text) - padding]
        if len(text) % 4 == 1:
            raise OpError("Base64 string length cannot be 1 modulo 4.")
        if (padding and (len(text) % 4 or padding > 2)) or not _ALPHABET.fullmatch(body):
            raise OpError("Invalid character found in base64.")
        try:
            return base64.urlsafe_b64decode(body + b"=" * (-len(body) % 4))
        except binascii.Error as error:
            raise OpError(f"Invalid base64: {error}") from None


def elements_from_bytes(data: bytes, dtype: Any, little: bool) -> Any:
    """Reinterpret bytes as numbers; the parts of complex numbers are byte-swapped separately."""
    dtype = np.dtype(dtype)
    if dtype == np.bool_:
        return np.frombuffer(data, np.uint8) != 0
    width = dtype.itemsize // (2 if dtype.kind == "c" else 1)
    raw = np.frombuffer(data, np.uint8)
    if not little and width > 1:
        raw = raw.reshape((-1, width))[:, ::-1].reshape(-1)
    return np.ascontiguousarray(raw).view(dtype)


class DecodeRaw(Op):
    """Bytes of each string reinterpreted as numbers; all strings must have the same length."""

    signature = "bytes: string -> output: out_type"
    attrs = (
        "out_type: {float16, float32, float64, int32, uint16, uint8, int16, int8, int64, "
        "complex64, complex128, bool, bfloat16}, little_endian: bool = true"
    )
    algebra = AlgebraicFacts(bitwise=True)

    @staticmethod
    def kernel(xp: ModuleType, out_type: DType, little_endian: bool, /, texts: Any) -> Any:
        dtype = out_type.numpy
        flat = texts.ravel().tolist()
        size = len(flat[0]) if flat else 0
        for position, text in enumerate(flat):
            if len(text) != size:
                raise OpError(
                    "DecodeRaw requires input strings to all be the same size, "
                    f"but element {position} has size {size} != {len(text)}"
                )
        if size % dtype.itemsize:
            raise OpError(
                f"Input to DecodeRaw has length {size} that is not a multiple of "
                f"{dtype.itemsize}, the size of {out_type.name}"
            )
        decoded = elements_from_bytes(b"".join(flat), dtype, little_endian)
        return decoded.reshape((*texts.shape, size // dtype.itemsize))

    shape = staticmethod(lambda context: [context.inputs[0] + vector_shape()])


class DecodePaddedRaw(Op):
    """Bytes of each string, truncated or zero-padded to a length, reinterpreted as numbers."""

    signature = "input_bytes: string, fixed_length: host int32 -> output: out_type"
    attrs = (
        "out_type: {float16, float32, float64, int32, uint16, uint8, int16, int8, int64, "
        "bfloat16}, little_endian: bool = true"
    )
    algebra = AlgebraicFacts(bitwise=True)

    @staticmethod
    def kernel(
        xp: ModuleType, out_type: DType, little_endian: bool, /, texts: Any, length: Any
    ) -> Any:
        dtype = out_type.numpy
        size = int(length)
        if size <= 0:
            raise OpError(f"fixed_length ({size}) must be greater than zero.")
        if size % dtype.itemsize:
            raise OpError(
                f"fixed_length ({size}) must be a multiple of the size of out_type "
                f"({dtype.itemsize})"
            )
        flat = [text[:size].ljust(size, b"\0") for text in texts.ravel().tolist()]
        decoded = elements_from_bytes(b"".join(flat), dtype, little_endian)
        return decoded.reshape((*texts.shape, size // dtype.itemsize))

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        texts, length = context.inputs[0], context.value(1)
        if texts.rank is None:
            return [UNKNOWN_SHAPE]
        width = context.attr("out_type").numpy.itemsize
        return [texts + vector_shape(None if length is None else int(length) // width)]
