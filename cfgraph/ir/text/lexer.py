"""Lexer of the text format: the tokens of a line, names, strings, integers, and base64."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, islice
from typing import Final

from cfgraph.errors import InvalidInput

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

INT64_RANGE: Final = range(-(1 << 63), 1 << 63)
_MAX_DIGITS: Final = 20
INT_LITERAL: Final = re.compile(r"[+-]?\d+").fullmatch


def comment_of(text: str) -> str:
    """The comment at the end of a line, or an empty text."""
    tokens = _TOKEN.findall(text)
    return tokens[-1] if tokens and tokens[-1][0] == "#" else ""


class LineReader:
    """The tokens of one line, read from left to right.

    Each method that reads a kind of token raises InvalidInput for any other token.
    """

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

    @property
    def following(self) -> str:
        """The token after the next one, which is empty at the end."""
        return self.tokens[self.index + 1] if self.tokens[self.index] else ""

    def accept(self, token: str) -> bool:
        """Read this token if it is the next one."""
        if self.tokens[self.index] != token:
            return False
        self.index += 1
        return True

    def expect(self, token: str) -> None:
        """Read this token, or the end of the line for ""."""
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
            if not self.accept(","):
                raise self.error(f"',' or {closing!r} was expected")
            yield index

    @contextmanager
    def expecting(self, what: str, index: int, *args: object) -> Iterator[None]:
        """Report values that cannot be decoded or encoded as a syntax error at token `index`.

        `args` are formatted into `what` only for an error.
        """
        try:
            yield
        except (InvalidInput, OverflowError, TypeError, ValueError) as error:
            if isinstance(error, InvalidInput) and error.code == "CFG004":
                raise
            self.index = index
            raise self.error(f"{what.format(*args)} expected ({error})") from None

    def name(self, what: str) -> str:
        """Read a name, plain or quoted."""
        token = self.tokens[self.index]
        if token[:1] == '"':
            return self.string(what)
        if not _WORD(token):
            raise self.error(f"{what} was expected")
        self.index += 1
        return token

    def string(self, what: str) -> str:
        """Read a quoted string as text."""
        index = self.index
        try:
            return self.data(what).decode()
        except UnicodeDecodeError:
            self.index = index
            raise self.error(f"{what} must be UTF-8") from None

    def data(self, what: str) -> bytes:
        """Read a quoted string as bytes."""
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

    def integer(self, allowed: range) -> int:
        """Read an integer in a range."""
        token = self.tokens[self.index]
        if not INT_LITERAL(token):
            raise self.error("an integer was expected")
        if len(token) > _MAX_DIGITS or int(token) not in allowed:
            raise self.error(f"an integer from {allowed.start} to {allowed.stop - 1} was expected")
        self.index += 1
        return int(token)

    def raw(self) -> bytes:
        """Read bytes in base64: `raw"…"`."""
        self.expect("raw")
        try:
            return base64.b64decode(self.data("base64 in quotes"), validate=True)
        except binascii.Error:
            self.index -= 1
            raise self.error("base64 was expected") from None

    def error(self, expected: str) -> InvalidInput:
        """Syntax error at the next token: its position, the expected and the actual token."""
        token = self.token
        match = next(islice(_TOKEN.finditer(self.text), self.index, None), None)
        column = match.start() + 1 if match else len(self.text) + 1
        actual = repr(token[:_MAX_QUOTED]) if token else "the end of the line"
        message = f"line {self.number}, column {column}: {expected}, found {actual}"
        return InvalidInput(message, code="CFG004")
