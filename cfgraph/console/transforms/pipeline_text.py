"""Text of a pipeline of passes, and errors that point into it.

    lower, grad{ys=loss xs=w}, partition{devices=cpu:0,gpu:0}

A space separates options and a comma inside braces separates values, as in MLIR. A value may
contain brackets and quoted texts, in which neither ends it; quotes around a whole value are
removed. An option without a value is a flag.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from cfgraph.errors import Location, UsageError

_NAME: Final = re.compile(r"[A-Za-z][\w-]*")
_SPACE: Final = re.compile(r"\s*")
_CLOSING: Final = {"(": ")", "[": "]", "{": "}"}
_QUOTES: Final = "\"'"
_GRAMMAR: Final = "write PASS{OPTION=VALUE OPTION=VALUE}, PASS"
# columns of a long line that an error shows on each side
_SHOWN: Final = 40


@dataclass(frozen=True, slots=True)
class TextSpan:
    """Part of a text, from `start` up to `end`."""

    start: int
    end: int


class PipelineTextError(UsageError):
    """A pipeline that cannot be parsed, with the part of its text that is wrong."""

    def __init__(self, message: str, text: str, span: TextSpan, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.line, self.column, self._shown = _excerpt(text, span)

    def where(self) -> str:
        """Show the line of the text, with carets below the wrong part."""
        line = f"line {self.line}, " if self.line > 1 else ""
        return f"{line}column {self.column} of the pipeline:\n{self._shown}"

    def location(self) -> Location:
        """Return what the error concerns, with line and column."""
        return replace(super().location(), line=self.line, column=self.column)


def _excerpt(text: str, span: TextSpan) -> tuple[int, int, str]:
    """Return line and column, from 1, and the line with carets, shortened on both sides."""
    begin = text.rfind("\n", 0, span.start) + 1
    end = text.find("\n", span.start)
    end = len(text) if end < 0 else end
    carets = max(1, min(span.end, end) - span.start)
    first = begin if span.start - begin <= _SHOWN else span.start - _SHOWN
    last = end if end - span.start - carets <= _SHOWN else span.start + carets + _SHOWN
    before, after = "…" * (first > begin), "…" * (last < end)
    shown = before + text[first:last].replace("\t", " ") + after
    pointer = " " * (len(before) + span.start - first) + "^" * carets
    column = span.start - begin + 1
    return text.count("\n", 0, span.start) + 1, column, f"    {shown}\n    {pointer}"


@dataclass(frozen=True, slots=True)
class OptionText:
    """An option of a pass as written: its value is None for a flag."""

    name: str
    value: str | None
    span: TextSpan

    @property
    def name_span(self) -> TextSpan:
        """The part of the text that is the name."""
        return TextSpan(self.span.start, self.span.start + len(self.name))

    @property
    def unquoted(self) -> str:
        """The value without quotes around it."""
        return _unquoted(self.value or "")

    def values(self) -> list[str]:
        """Split the value at commas that are not inside brackets or quotes."""
        text = self.value or ""
        ends = [*_separators(text, ","), len(text)]
        starts = [0, *(end + 1 for end in ends)]
        return [_unquoted(text[a:b].strip()) for a, b in zip(starts, ends, strict=False)]


@dataclass(frozen=True, slots=True)
class PassText:
    """A pass as written."""

    name: str
    span: TextSpan
    options: tuple[OptionText, ...] = ()


def parse_pipeline(text: str) -> tuple[PassText, ...]:
    """Parse the text of a pipeline. Raises PipelineTextError, a UsageError."""
    return tuple(_PipelineParser(text).passes())


class _PipelineParser:
    """The text and a position in it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def passes(self) -> Iterator[PassText]:
        """Yield the passes up to the end of the text."""
        self._skip_space()
        if self.position == len(self.text):
            span, hint = (
                TextSpan(self.position, self.position + 1),
                f"{_GRAMMAR}; for example lower, cluster",
            )
            raise PipelineTextError("the pipeline is empty", self.text, span, hint=hint)
        while True:
            start = self.position
            name = self._name("a pass")
            span = TextSpan(start, self.position)
            self._skip_space()
            options = tuple(self._options()) if self._accept("{") else ()
            yield PassText(name, span, options)
            self._skip_space()
            if self.position == len(self.text):
                return
            if not self._accept(","):
                raise self._error("expected a comma or the end of the pipeline")
            self._skip_space()

    def _options(self) -> Iterator[OptionText]:
        """Yield the options up to the closing brace."""
        opened = self.position - 1
        while True:
            self._skip_space()
            if self._accept("}"):
                return
            if self.position == len(self.text):
                span = TextSpan(opened, opened + 1)
                raise PipelineTextError("this brace is not closed", self.text, span, hint="add }")
            start = self.position
            name = self._name("an option")
            value = self._value() if self._accept("=") else None
            yield OptionText(name, value, TextSpan(start, self.position))

    def _name(self, what: str) -> str:
        match = _NAME.match(self.text, self.position)
        if match is None:
            raise self._error(f"expected the name of {what}")
        self.position = match.end()
        return match[0]

    def _value(self) -> str:
        """Read up to a space or the closing brace."""
        start = self.position
        rest = self.text[start:]
        length = next(_separators(rest, _ends_value), len(rest))
        self.position += length
        return rest[:length]

    def _skip_space(self) -> None:
        match = _SPACE.match(self.text, self.position)
        assert match is not None
        self.position = match.end()

    def _accept(self, char: str) -> bool:
        found = self.text.startswith(char, self.position)
        self.position += found
        return found

    def _error(self, message: str) -> PipelineTextError:
        found = self.text[self.position : self.position + 1]
        ending = f", found {found!r}" if found else ", found the end"
        span = TextSpan(self.position, self.position + 1)
        return PipelineTextError(message + ending, self.text, span, hint=_GRAMMAR)


def _ends_value(char: str) -> bool:
    return char.isspace() or char == "}"


def _separators(text: str, is_separator: str | Callable[[str], bool]) -> Iterator[int]:
    """Yield the positions of separators that are not inside brackets or quotes."""
    open_brackets: list[str] = []
    quote = ""
    for position, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in _QUOTES:
            quote = char
        elif open_brackets and char == open_brackets[-1]:
            open_brackets.pop()
        elif char in _CLOSING:
            open_brackets.append(_CLOSING[char])
        elif not open_brackets:
            matches = char == is_separator if isinstance(is_separator, str) else is_separator(char)
            if matches:
                yield position


def _unquoted(text: str) -> str:
    """Remove quotes around a whole text."""
    is_quoted = len(text) > 1 and text[0] in _QUOTES and text.find(text[0], 1) == len(text) - 1
    return text[1:-1] if is_quoted else text
