"""Lexer of the text format: tokens of a line, names, strings, numbers, and full types."""

from __future__ import annotations

import base64
import binascii
import re
import struct
from collections.abc import Iterator
from itertools import count
from typing import Final

from cfgraph.errors import InvalidInput
from cfgraph.ir.names import NODE_NAME
from cfgraph.ir.serde.attrs import FullType, encode_full_type

# an unterminated string is also a token, so that scanning stays linear
_TOKEN: Final = re.compile(
    r"""
    "(?:[^"\\]++|\\.)*+"?      # a string
    | \#.*                     # a comment
    | -> | >=
    | [A-Za-z0-9_.+\-/>]+      # a name, a number
    | \S
    """,
    re.VERBOSE,
)
_STRING: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"').fullmatch
_WORD: Final = re.compile(r"[A-Za-z0-9_.+\-/>]").match
_ESCAPE: Final = re.compile(rb"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPES: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b'"': b'"', b"\\": b"\\"}
_MAX_QUOTED: Final = 40


class LineReader:
    """The tokens of one line, read from left to right."""

    __slots__ = ("index", "number", "text", "tokens")

    def __init__(self, text: str, number: int) -> None:
        self.text = text
        self.number = number
        self.index = 0
        self.tokens: list[str] = _TOKEN.findall(text)
        if self.tokens and self.tokens[-1][0] == "#":
            self.tokens.pop()
        self.tokens.append("")

    @property
    def token(self) -> str:
        """The next token, which is empty at the end."""
        return self.tokens[self.index]

    def next(self) -> str:
        """Read one token."""
        token = self.tokens[self.index]
        if token:
            self.index += 1
        return token

    def accept(self, token: str) -> bool:
        """Read this token if it is the next one."""
        if self.tokens[self.index] != token:
            return False
        self.index += 1
        return True

    def expect(self, token: str) -> None:
        """Read this token, or the end of the line for "". Raises InvalidInput for any other
        token.
        """
        if self.tokens[self.index] != token:
            raise self.error(f"{token!r} was expected" if token else "nothing more was expected")
        if token:
            self.index += 1

    def items(self, opening: str, closing: str) -> Iterator[int]:
        """Read a bracketed list; the caller reads one item per index."""
        self.expect(opening)
        if self.accept(closing):
            return
        yield 0
        for index in count(1):
            if self.accept(closing):
                return
            if self.tokens[self.index] != ",":
                raise self.error(f"',' or {closing!r} was expected")
            self.index += 1
            yield index

    def expecting(self, what: str, index: int, *args: object) -> _DecodingContext:
        """Report values that cannot be decoded or encoded as a syntax error at token `index`.

        `args` are formatted into `what` only for an error.
        """
        return _DecodingContext(self, what, index, args)

    def name(self, what: str) -> str:
        """Read a name, plain or quoted. Raises InvalidInput for any other token."""
        token = self.tokens[self.index]
        if token[:1] == '"':
            return self.string(what)
        if not _WORD(token):
            raise self.error(f"{what} was expected")
        self.index += 1
        return token

    def string(self, what: str) -> str:
        """Read a quoted string as text. Raises InvalidInput for any other token."""
        index = self.index
        try:
            return self.data(what).decode()
        except UnicodeDecodeError:
            self.index = index
            raise self.error(f"{what} must be UTF-8") from None

    def data(self, what: str) -> bytes:
        """Read a quoted string as bytes. Raises InvalidInput for any other token."""
        token = self.tokens[self.index]
        if token[:1] != '"':
            raise self.error(f"{what} was expected")
        if not _STRING(token):
            raise self.error("the string is not terminated")
        try:
            data = token[1:-1].encode()
        except UnicodeEncodeError:
            raise self.error("the string is not Unicode") from None
        if b"\\" in data:
            data = _ESCAPE.sub(self._escape, data)
        self.index += 1
        return data

    def _escape(self, match: re.Match[bytes]) -> bytes:
        code = match[1]
        if len(code) == 3:
            return bytes((int(code[1:], 16),))
        if code not in _ESCAPES:
            raise self.error(r"a valid escape was expected: \" \\ \n \r \t \x00")
        return _ESCAPES[code]

    def error(self, expected: str) -> InvalidInput:
        """Syntax error at the next token: its position, the expected and the actual token."""
        token, column = self.token, len(self.text) + 1
        for index, match in enumerate(_TOKEN.finditer(self.text)):
            if index == self.index:
                column = match.start() + 1
        actual = repr(token[:_MAX_QUOTED]) if token else "the end of the line"
        message = f"line {self.number}, column {column}: {expected}, found {actual}"
        return InvalidInput(message, code="CFG004")


class _DecodingContext:
    """Turns errors of values into syntax errors; faster than a generator."""

    __slots__ = ("args", "index", "line", "what")

    def __init__(self, line: LineReader, what: str, index: int, args: tuple[object, ...]) -> None:
        self.line, self.what, self.index, self.args = line, what, index, args

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if not isinstance(error, InvalidInput | OverflowError | TypeError | ValueError):
            return
        if isinstance(error, InvalidInput) and error.code == "CFG004":
            return
        self.line.index = self.index
        raise self.line.error(f"{self.what.format(*self.args)} expected ({error})") from None


def format_name(name: str) -> str:
    """Format a name: quoted unless it is plain."""
    return name if NODE_NAME(name) else format_string(name.encode())


def format_string(data: bytes) -> str:
    """Format bytes as a quoted string; unprintable characters are escaped."""
    text = data.decode(errors="surrogateescape")
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(map(_escape_char, text)) + '"'


def _escape_char(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    if char.isprintable():
        return char
    known = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}.get(char)
    data = char.encode(errors="surrogateescape")
    return known or "".join(f"\\x{byte:02x}" for byte in data)


INT64_RANGE: Final = range(-(1 << 63), 1 << 63)
_MAX_DIGITS: Final = 20
_FLOAT_PATTERN: Final = r"(?:inf|nan|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
INT_LITERAL: Final = re.compile(r"[+-]?\d+").fullmatch
FLOAT_LITERAL: Final = re.compile(rf"[+-]?{_FLOAT_PATTERN}").fullmatch
COMPLEX_LITERAL: Final = re.compile(
    rf"([+-]?{_FLOAT_PATTERN})(?:([+-]{_FLOAT_PATTERN})j)?"
).fullmatch


def parse_int(line: LineReader, allowed: range) -> int:
    """Read an integer in a range."""
    token = line.token
    if not INT_LITERAL(token):
        raise line.error("an integer was expected")
    if len(token) > _MAX_DIGITS or int(token) not in allowed:
        raise line.error(f"an integer from {allowed.start} to {allowed.stop - 1} was expected")
    line.next()
    return int(token)


def parse_raw(line: LineReader) -> bytes:
    """Read bytes in base64: `raw"…"`."""
    line.expect("raw")
    try:
        data = base64.b64decode(line.data("base64 in quotes"), validate=True)
    except binascii.Error:
        line.index -= 1
        raise line.error("base64 was expected") from None
    return data


def round_to_float32(value: float) -> float:
    """Round to single precision, as stored in a file."""
    try:
        rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return rounded


# more than a file can contain
_MAX_TYPE_DEPTH: Final = 100


def format_full_type(full: FullType) -> str:
    """Format a full type."""
    text = full.kind
    if isinstance(full.value, str):
        text += format_string(full.value.encode())
    elif full.value is not None:
        text += f"={full.value}"
    return f"{text}[{', '.join(map(format_full_type, full.args))}]" if full.args else text


def parse_full_type(line: LineReader) -> FullType:
    """Read a full type. Raises InvalidInput for an invalid one."""
    start = line.index
    full = _parse_type_tree(line, 0)
    try:
        encode_full_type(full)
    except ValueError:
        line.index = start
        raise line.error("a full type such as product[tensor[float]] was expected") from None
    return full


def _parse_type_tree(line: LineReader, depth: int) -> FullType:
    if depth > _MAX_TYPE_DEPTH:
        raise line.error(f"no more than {_MAX_TYPE_DEPTH} levels of nesting were expected")
    kind = line.name("the kind of a full type")
    value: str | int | None = None
    if line.token[:1] == '"':
        value = line.string("the name in a full type")
    elif line.accept("="):
        value = parse_int(line, INT64_RANGE)
    args: list[FullType] = []
    if line.token == "[":
        args = [_parse_type_tree(line, depth + 1) for _ in line.items("[", "]")]
        if not args:
            raise line.error("the kind of a full type was expected")
    return FullType(kind, tuple(args), value)
