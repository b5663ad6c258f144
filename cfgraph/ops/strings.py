"""Strings: their length, case, whitespace and parts."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import Shape
from cfgraph.ops.inference import InferenceContext
from cfgraph.ops.op import Kernel, Op, OpError
from cfgraph.ops.pointwise import SameShape
from cfgraph.ops.text_arrays import EachText, text_array

WHITESPACE = b" \t\n\v\f\r"


def starts(text: bytes) -> list[int]:
    """Where the characters of a UTF-8 string begin."""
    return [place for place, byte in enumerate(text) if byte & 0xC0 != 0x80]


class StringLength(SameShape):
    """Number of bytes, or of UTF-8 characters."""

    signature = "input: string -> output: int32"
    attrs = "unit: {'BYTE', 'UTF8_CHAR'} = 'BYTE'"
    traceable = False

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        length = len if node.attr("unit") == b"BYTE" else lambda text: len(starts(text))

        def lengths(texts: Any) -> Any:
            counted = [length(text) for text in texts.ravel().tolist()]
            return np.array(counted, np.int32).reshape(texts.shape)

        return lengths


class Cased(EachText, abstract=True):
    """Strings in another case: ASCII letters only, or the whole of Unicode."""

    attrs = "encoding: string = ''"

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        encoding = node.attr("encoding")
        if encoding not in (b"", b"utf-8"):
            message = (
                "only utf-8 or '' (no encoding) is supported, "
                f"received {encoding.decode(errors='replace')}"
            )
            raise OpError(message)
        return super().bind(node, xp)


def unicode(text: bytes) -> str:
    """A string as characters, up to the first null, where TensorFlow's conversion ends."""
    return text.partition(b"\0")[0].decode(errors="replace")


class StringUpper(Cased):
    """Upper case."""

    @staticmethod
    def change(node: Node, text: bytes) -> bytes:
        if node.attr("encoding"):
            return unicode(text).upper().encode()
        return text.upper()


class StringLower(Cased):
    """Lower case."""

    @staticmethod
    def change(node: Node, text: bytes) -> bytes:
        if node.attr("encoding"):
            return unicode(text).lower().encode()
        return text.lower()


class StringStrip(EachText):
    """Without whitespace at both ends."""

    @staticmethod
    def change(node: Node, text: bytes) -> bytes:
        return text.strip(WHITESPACE)


class Substr(Op):
    """So many bytes or characters from a position on; a negative one counts from the end."""

    signature = "input: string, pos: T, len: T -> output: string"
    attrs = "T: {int32, int64}, unit: {'BYTE', 'UTF8_CHAR'} = 'BYTE'"
    traceable = False

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        by_byte = node.attr("unit") == b"BYTE"

        def cut(texts: Any, pos: Any, count: Any) -> Any:
            if pos.shape != count.shape:
                message = (
                    "pos and len should have the same shape, "
                    f"got: {list(pos.shape)} vs. {list(count.shape)}"
                )
                raise OpError(message)
            shape = np.broadcast_shapes(texts.shape, pos.shape)
            if pos.shape not in (texts.shape, ()) and len(shape) > 2:
                message = f"Substr broadcast not implemented for {len(shape)} dimensions"
                raise OpError(message)
            given = (np.broadcast_to(v, shape).ravel().tolist() for v in (texts, pos, count))
            return text_array(
                (
                    part(text, place, size, by_byte, index)
                    for index, (text, place, size) in enumerate(zip(*given, strict=True))
                ),
                shape,
            )

        return cut

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        text, pos, count = context.inputs
        return [text.broadcast(pos.merge(count))]


def part(text: bytes, place: int, count: int, by_byte: bool, index: int) -> bytes:
    """A part of one string. Raises OpError where it begins outside."""
    edges = range(len(text)) if by_byte else starts(text)
    wild = place < 0 and count < 0 and not by_byte
    if wild or not -len(edges) <= place <= len(edges):
        shown = f" {text!s}" if by_byte else ""
        message = f"pos {place} out of range for string{shown} at index {index}"
        raise OpError(message)
    first = place + len(edges) if place < 0 else place
    if count < 0:
        # a negative count is a huge one for bytes, and none for characters
        return text[first:] if by_byte else b""
    stop = first + count
    begin = edges[first] if first < len(edges) else len(text)
    return text[begin : edges[stop] if stop < len(edges) else len(text)]
