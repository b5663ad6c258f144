"""Regular expressions in RE2 syntax: full matches and replacements."""

from __future__ import annotations

import re
from functools import lru_cache
from types import ModuleType
from typing import Any, Final, NamedTuple

import numpy as np

from cfgraph.ir.graph import Node
from cfgraph.ops.families.strings import map_strings
from cfgraph.ops.opdef.op import Kernel, OpError, SameShape

# text in which the named group matched below is literal: quotes, escapes, and brackets
_PATTERN_TOKENS: Final = re.compile(
    rb"\\Q.*?(?:\\E|\Z)|\\.|\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^]\\])*\]|\(\?<", flags=re.DOTALL
)


# patterns whose matches in ASCII text Python finds as RE2 does, in linear time: characters,
# classes, groups, and alternatives without assertions or repetitions, but for a `+` at the end
_CLASS: Final = rb"\\[dDwW]|\\[!-/:-@\[-`{-~]"
_SIMPLE_PATTERN: Final = re.compile(
    rb"(?:[^][\\^$.|?*+(){}\x80-\xff]|" + _CLASS + rb"|\((?!\?)|\)|\||\."
    rb"|\[\^?(?:(?!--|&&|~~|\|\|)(?:[^][\\\x80-\xff]|" + _CLASS + rb"))+\])+\+?"
)


@lru_cache(maxsize=256)
def _simple_replacement(pattern: bytes, rewrite: bytes) -> tuple[re.Pattern[bytes], bytes] | None:
    """Python's expression and template for a simple pattern that matches no empty text, or None."""
    template = parse_rewrite(rewrite)
    if not template.is_valid or not _SIMPLE_PATTERN.fullmatch(pattern):
        return None
    if b"|" in pattern and b"(" in pattern:
        return None  # Python tries all combinations of alternatives
    if pattern.endswith((b")+", b"|+")) or template.groups > compile_pattern(pattern).groups:
        return None
    try:
        expression = re.compile(pattern)
    except re.error:
        return None
    if expression.fullmatch(b""):
        return None
    parts = (
        piece.replace(b"\\", b"\\\\") if isinstance(piece, bytes) else b"\\g<%d>" % piece
        for piece in template.parts
    )
    return expression, b"".join(parts)


@lru_cache(maxsize=256)
def compile_pattern(pattern: bytes) -> Any:
    """The compiled pattern. Raises OpError if RE2 rejects it."""
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        # RE2 has (?<name>…) since 2023; TensorFlow contains an older version
        if any(match[0] == b"(?<" for match in _PATTERN_TOKENS.finditer(pattern)):
            raise re2.error("invalid perl operator: (?<")
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0]
        if isinstance(reason, bytes):
            reason = reason.decode(errors="replace")
        message = f"Invalid pattern: {pattern.decode(errors='replace')}, error: {reason}"
        raise OpError(message) from None


def full_matches(texts: Any, pattern: bytes) -> Any:
    """True for each string that matches from start to end."""
    expression = compile_pattern(pattern)
    matches = [expression.fullmatch(text) is not None for text in texts.ravel().tolist()]
    return np.array(matches, np.bool_).reshape(texts.shape)


class RegexRewrite(NamedTuple):
    """A parsed replacement: literal text and group numbers, up to the first invalid escape."""

    parts: tuple[bytes | int, ...]
    is_valid: bool
    groups: int  # the largest group number, also after an invalid escape

    def expand(self, match: Any) -> bytes:
        """The replacement of one match; a group that did not participate is empty."""
        return b"".join(
            piece if type(piece) is bytes else match[piece] or b"" for piece in self.parts
        )


@lru_cache(maxsize=256)
def parse_rewrite(text: bytes) -> RegexRewrite:
    """Parse a replacement with `\\0` to `\\9` for groups and `\\\\` for a backslash."""
    parts: list[bytes | int] = []
    pieces = re.split(rb"(\\.?)", text, flags=re.DOTALL)
    groups = max((int(piece[1:]) for piece in pieces[1::2] if piece[1:].isdigit()), default=0)
    for piece in pieces:
        if not piece.startswith(b"\\"):
            parts.append(piece)
        elif piece[1:].isdigit():
            parts.append(int(piece[1:]))
        elif piece == b"\\\\":
            parts.append(b"\\")
        else:
            return RegexRewrite(tuple(parts), False, groups)
    return RegexRewrite(tuple(parts), True, groups)


def replace_matches(pattern: bytes, rewrite: bytes, text: bytes, replace_all: bool) -> bytes:
    """Replace the first match or all matches, as RE2's Replace and GlobalReplace.

    An empty match directly after another match is skipped.
    """
    simple = _simple_replacement(pattern, rewrite) if text.isascii() else None
    if simple:
        return simple[0].sub(simple[1], text, count=0 if replace_all else 1)
    expression, template = compile_pattern(pattern), parse_rewrite(rewrite)
    if template.groups > expression.groups:
        return text
    if not replace_all:
        match = expression.search(text)
        if not match or not template.is_valid:
            return text
        return text[: match.start()] + template.expand(match) + text[match.end() :]
    out: list[bytes] = []
    position, last_end = 0, -1
    while position <= len(text) and (match := expression.search(text, position)):
        out.append(text[position : match.start()])
        if match.start() == match.end() == last_end:
            position = last_end + _character_size(text, last_end)
            out.append(text[last_end:position])
            continue
        out.append(template.expand(match))
        position = last_end = match.end()
    return b"".join(out) + text[position:]


def _character_size(text: bytes, start: int) -> int:
    """Number of bytes of a UTF-8 character; 1 if the text is not valid UTF-8."""
    for size in range(1, 5):
        try:
            text[start : start + size].decode()
        except UnicodeDecodeError:
            continue
        return size
    return 1


class RegexFullMatch(SameShape):
    """True for each string that matches a pattern from start to end."""

    signature = "input: string, pattern: string -> output: bool"

    @staticmethod
    def kernel(xp: ModuleType, texts: Any, pattern: Any) -> Any:
        return full_matches(texts, scalar_string(pattern, "Pattern"))


class StaticRegexFullMatch(SameShape):
    """True for each string that matches a constant pattern from start to end."""

    signature = "input: string -> output: bool"
    attrs = "pattern: string"

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        pattern = node.attr("pattern")
        compile_pattern(pattern)
        return lambda texts: full_matches(texts, pattern)


class RegexReplace(SameShape):
    """Each string with the matches of a pattern replaced."""

    signature = "input: string, pattern: string, rewrite: string -> output: string"
    attrs = "replace_global: bool = true"

    @staticmethod
    def kernel(
        xp: ModuleType, replace_global: bool, /, texts: Any, pattern: Any, rewrite: Any
    ) -> Any:
        expression, replacement = (
            scalar_string(pattern, "Pattern"),
            scalar_string(rewrite, "Rewrite"),
        )
        compile_pattern(expression)
        return map_strings(
            lambda text: replace_matches(expression, replacement, text, replace_global), texts
        )


class StaticRegexReplace(SameShape):
    """Each string with the matches of a constant pattern replaced."""

    signature = "input: string -> output: string"
    attrs = "pattern: string, rewrite: string, replace_global: bool = true"

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        expression, replacement = node.attr("pattern"), node.attr("rewrite")
        replace_all = node.attr("replace_global")
        compile_pattern(expression)
        return lambda texts: map_strings(
            lambda text: replace_matches(expression, replacement, text, replace_all), texts
        )


def scalar_string(value: Any, name: str) -> bytes:
    """The string of a scalar. Raises OpError for any other shape."""
    if value.ndim:
        raise OpError(f"{name} must be scalar, but received {list(value.shape)}")
    text: bytes = value.item()
    return text
