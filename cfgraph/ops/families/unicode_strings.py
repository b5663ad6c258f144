"""Unicode strings as code points, and conversions between their encodings."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, Final, NamedTuple

import numpy as np

from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node
from cfgraph.ir.names import decode_text
from cfgraph.ir.shapes import Shape, vector_shape
from cfgraph.ops.families.ragged import check_splits
from cfgraph.ops.opdef.facts import HostPlacement
from cfgraph.ops.opdef.op import Kernel, Op, OpError, SameShape
from cfgraph.ops.opdef.shape_functions import InferenceContext, dims_product

# stand for an invalid sequence and for each of its bytes but the first: no decoder returns these
_INVALID, _INVALID_REST = "\ud800", "\udc00"
_LAST_CONTROL: Final = 0x1F
_ERRORS: Final = (
    "errors: {'strict', 'replace', 'ignore'} = 'replace', replacement_char: int = 65533, "
    "replace_control_characters: bool = false"
)


def _mark_invalid(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return _INVALID + _INVALID_REST * (error.end - error.start - 1), error.end


# encodings whose byte order a mark at the start of a text determines; without it, big-endian
_BYTE_ORDERS: Final = {
    "utf-16": {
        codecs.BOM_UTF16_LE: "utf-16-le",
        codecs.BOM_UTF16_BE: "utf-16-be",
        b"": "utf-16-be",
    },
    "utf-32": {
        codecs.BOM_UTF32_LE: "utf-32-le",
        codecs.BOM_UTF32_BE: "utf-32-be",
        b"": "utf-32-be",
    },
}

codecs.register_error("cfgraph.mark_invalid", _mark_invalid)


class Character(NamedTuple):
    """A code point and the position of its first byte."""

    code: int
    start: int


class UnicodeReader:
    """Decoding of strings by the attributes of a node."""

    def __init__(self, node: Node) -> None:
        self.encoding = _codec_name(decode_text(node.attr("input_encoding")))
        self.errors = decode_text(node.attr("errors"))
        self.replacement = int(node.attr("replacement_char"))
        self.replaces_controls = bool(node.attr("replace_control_characters"))
        check_code_point(self.replacement)

    def valid_characters(self, texts: list[bytes]) -> tuple[Any, Any, Any] | None:
        """Number of characters per text, code points, and first bytes of valid UTF-8; else None."""
        if self.encoding != "utf-8":
            return None
        data = np.frombuffer(b"".join(texts), np.uint8)
        is_first = data & 0xC0 != 0x80
        sizes = np.array([len(text) for text in texts], np.int64)
        ends = np.cumsum(sizes)
        begins = ends - sizes
        # a character must not reach from one text to the next
        if not is_first[begins[sizes > 0]].all():
            return None
        try:
            codes = np.frombuffer(data.tobytes().decode().encode("utf-32-le"), "<i4")
        except UnicodeDecodeError:
            return None
        if self.replaces_controls and (codes <= _LAST_CONTROL).any():
            return None
        first_bytes = np.flatnonzero(is_first)
        counts = np.searchsorted(first_bytes, ends) - np.searchsorted(first_bytes, begins)
        return counts, codes.astype(np.int32), first_bytes - np.repeat(begins, counts)

    def characters(self, text: bytes) -> Iterator[Character]:
        """The characters of one string. Raises OpError for an invalid one in strict mode."""
        mark, encoding = b"", self.encoding
        if encoding in _BYTE_ORDERS:
            orders = _BYTE_ORDERS[encoding]
            mark, encoding = next((b, name) for b, name in orders.items() if text.startswith(b))
        start = len(mark)
        for char in text[start:].decode(encoding, "cfgraph.mark_invalid"):
            # the first character includes the mark
            code, position = ord(char), 0 if start == len(mark) else start
            if char == _INVALID_REST:
                start += 1
                continue
            start += 1 if char == _INVALID else len(char.encode(encoding))
            invalid = char == _INVALID
            if invalid and self.errors == "strict":
                raise OpError("Invalid formatting on input string")
            if invalid or (self.replaces_controls and code <= _LAST_CONTROL):
                if self.errors == "ignore":
                    continue
                code = self.replacement
            yield Character(code, position)


def _codec_name(name: str) -> str:
    """The name of Python's codec. Raises OpError unless it is a known codec of text."""
    try:
        info = codecs.lookup(name)
        b"a".decode(info.name, "cfgraph.mark_invalid")
    except (LookupError, UnicodeError) as error:
        raise OpError(f"Could not create converter for input encoding: {name}") from error
    return info.name


def check_code_point(code: int) -> None:
    """Raise OpError for a number that is no code point."""
    if not 0 <= code <= 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise OpError(f"replacement_char out of unicode codepoint range: {code}")


class UnicodeDecodeWithOffsets(Op):
    """Code points of strings as ragged rows, and the first byte of each."""

    signature = (
        "input: string -> row_splits: Tsplits, char_values: int32, char_to_byte_starts: int64"
    )
    attrs = f"input_encoding: string, {_ERRORS}, Tsplits: {{int32, int64}} = int64"
    placement = HostPlacement(host_only=True)
    reader = UnicodeReader

    @classmethod
    def kernel(cls, xp: ModuleType, reader: UnicodeReader, Tsplits: DType, /, texts: Any) -> Any:
        outputs = 3 if cls is UnicodeDecodeWithOffsets else 2
        strings = texts.ravel().tolist()
        decoded = reader.valid_characters(strings)
        if decoded is not None:
            counts, codes, starts = decoded
            splits = np.concatenate([[0], np.cumsum(counts)]).astype(Tsplits.numpy)
            return (splits, codes, starts)[:outputs]
        rows = [list(reader.characters(text)) for text in strings]
        splits = np.cumsum([0, *map(len, rows)]).astype(Tsplits.numpy)
        codes = np.array([char.code for row in rows for char in row], np.int32)
        starts = np.array([char.start for row in rows for char in row], np.int64)
        return (splits, codes, starts)[:outputs]

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        dims = context.inputs[0].dims
        count = None if dims is None else dims_product(dims)
        rows = vector_shape(None if count is None else count + 1)
        return [rows, vector_shape(None), vector_shape(None)][: context.output_count]


class UnicodeDecode(UnicodeDecodeWithOffsets):
    """Code points of strings as ragged rows."""

    signature = "input: string -> row_splits: Tsplits, char_values: int32"


def _encode(codes: Sequence[int], encoding: str, errors: str, replacement: int) -> bytes:
    chars = []
    for code in codes:
        valid = 0 <= code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF
        if not valid and errors == "strict":
            raise OpError(f"Code point is out of range for Unicode, or a noncharacter: {code}")
        if valid or errors != "ignore":
            chars.append(chr(code if valid else replacement))
    return "".join(chars).encode(encoding)


class UnicodeEncode(Op):
    """Strings from ragged rows of code points."""

    signature = "input_values: int32, input_splits: Tsplits -> output: string"
    attrs = (
        "errors: {'ignore', 'replace', 'strict'} = 'replace', "
        "output_encoding: {'UTF-8', 'UTF-16-BE', 'UTF-32-BE'}, replacement_char: int = 65533, "
        "Tsplits: {int32, int64} = int64"
    )
    placement = HostPlacement(host_only=True)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        encoding, errors = (
            decode_text(node.attr("output_encoding")),
            decode_text(node.attr("errors")),
        )
        replacement = int(node.attr("replacement_char"))
        check_code_point(replacement)

        def encode(codes: Any, splits: Any) -> Any:
            check_splits(splits, len(codes))
            values, bounds = codes.tolist(), splits.tolist()
            result = np.empty(len(bounds) - 1, object)
            for row in range(len(result)):
                part = values[bounds[row] : bounds[row + 1]]
                result[row] = _encode(part, encoding, errors, replacement)
            return result

        return encode

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        splits = context.inputs[1].merge(vector_shape(None))
        assert splits.dims is not None
        count = splits.dims[0]
        return [vector_shape(None if count is None else count - 1)]


class UnicodeTranscode(SameShape):
    """Strings in another encoding."""

    signature = "input: string -> output: string"
    attrs = (
        "input_encoding: string, output_encoding: {'UTF-8', 'UTF-16-BE', 'UTF-32-BE'}, " + _ERRORS
    )
    placement = HostPlacement(host_only=True)
    reader = UnicodeReader

    @staticmethod
    def kernel(xp: ModuleType, reader: UnicodeReader, output_encoding: bytes, /, texts: Any) -> Any:
        encoding = decode_text(output_encoding)
        result, strings = np.empty(texts.size, object), texts.ravel().tolist()
        if reader.valid_characters(strings) is not None:
            result[:] = [text.decode().encode(encoding) for text in strings]
            return result.reshape(texts.shape)
        for position, text in enumerate(strings):
            codes = "".join(chr(char.code) for char in reader.characters(text))
            result[position] = codes.encode(encoding)
        return result.reshape(texts.shape)
