"""Strings matched against regular expressions and rewritten by them."""

from __future__ import annotations

import re
from functools import lru_cache
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from cfgraph.ir.graph import Node
from cfgraph.ops.families.regular_expression import compile_pattern
from cfgraph.ops.families.strings import map_strings
from cfgraph.ops.opdef.elementwise import SameShape
from cfgraph.ops.opdef.facts import CompilerSupport
from cfgraph.ops.opdef.op import Kernel, OpError


def decode_text(text: bytes) -> str:
    """Text in which a byte that is no UTF-8 is a character of its own."""
    return text.decode(errors="surrogateescape")


def encode_text(text: str) -> bytes:
    """The inverse of `decoded`."""
    return text.encode(errors="surrogateescape")


def full_matches(texts: Any, pattern: bytes) -> Any:
    """Which of the strings match as a whole."""
    expression = compile_pattern(pattern)
    found = [expression.fullmatch(decode_text(text)) is not None for text in texts.ravel().tolist()]
    return np.array(found, np.bool_).reshape(texts.shape)


class RegexRewrite(NamedTuple):
    """A replacement: literal text and numbers of groups; `whole` is false if it ends ill."""

    parts: tuple[str | int, ...]
    whole: bool

    @property
    def groups(self) -> int:
        """The greatest group that it names."""
        return max((part for part in self.parts if isinstance(part, int)), default=0)

    def of(self, found: re.Match[str]) -> str:
        """What stands in the place of a match."""
        return "".join(part if isinstance(part, str) else found[part] or "" for part in self.parts)


@lru_cache(maxsize=256)
def parse_rewrite(text: bytes) -> RegexRewrite:
    """A replacement, read; after an ill escape nothing more is read."""
    parts: list[str | int] = []
    pieces = re.split(r"(\\.?)", decode_text(text), flags=re.DOTALL)
    for piece in pieces:
        if not piece.startswith("\\"):
            parts.append(piece)
        elif piece[1:].isdigit() and piece[1:].isascii():
            parts.append(int(piece[1:]))
        elif piece == "\\\\":
            parts.append("\\")
        else:
            return RegexRewrite(tuple(parts), False)
    return RegexRewrite(tuple(parts), True)


def replace_matches(pattern: bytes, rewrite: bytes, text: bytes, everywhere: bool) -> bytes:
    """A string with its matches rewritten; no match is empty where the one before it ended."""
    expression, template = compile_pattern(pattern), parse_rewrite(rewrite)
    if template.groups > expression.groups:
        return text
    source, out, place, last = decode_text(text), [], 0, -1
    if not everywhere:
        found = expression.search(source)
        if not found or not template.whole:
            return text
        return encode_text(source[: found.start()] + template.of(found) + source[found.end() :])
    while place <= len(source) and (found := expression.search(source, place)):
        out.append(source[place : found.start()])
        if found.start() == found.end() == last:
            out.append(source[last : last + 1])
            place = last + 1
            continue
        out.append(template.of(found))
        place = last = found.end()
    return encode_text("".join(out) + source[place:])


class RegexFullMatch(SameShape):
    """Whether each string matches a pattern as a whole."""

    signature = "input: string, pattern: string -> output: bool"
    compilation = CompilerSupport(traceable=False)

    @staticmethod
    def kernel(xp: ModuleType, texts: Any, pattern: Any) -> Any:
        return full_matches(texts, scalar_string(pattern, "Pattern"))


class StaticRegexFullMatch(SameShape):
    """Whether each string matches a pattern, known beforehand, as a whole."""

    signature = "input: string -> output: bool"
    attrs = "pattern: string"
    compilation = CompilerSupport(traceable=False)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        pattern = node.attr("pattern")
        compile_pattern(pattern)
        return lambda texts: full_matches(texts, pattern)


class RegexReplace(SameShape):
    """Each string with what matches a pattern rewritten."""

    signature = "input: string, pattern: string, rewrite: string -> output: string"
    attrs = "replace_global: bool = true"
    compilation = CompilerSupport(traceable=False)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        everywhere = node.attr("replace_global")

        def replace(texts: Any, pattern: Any, rewrite: Any) -> Any:
            old, new = scalar_string(pattern, "Pattern"), scalar_string(rewrite, "Rewrite")
            compile_pattern(old)
            return map_strings(lambda text: replace_matches(old, new, text, everywhere), texts)

        return replace


class StaticRegexReplace(SameShape):
    """Each string with what matches a pattern, known beforehand, rewritten."""

    signature = "input: string -> output: string"
    attrs = "pattern: string, rewrite: string, replace_global: bool = true"
    compilation = CompilerSupport(traceable=False)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        old, new = node.attr("pattern"), node.attr("rewrite")
        everywhere = node.attr("replace_global")
        compile_pattern(old)
        return lambda texts: map_strings(
            lambda text: replace_matches(old, new, text, everywhere), texts
        )


def scalar_string(value: Any, what: str) -> bytes:
    """The string of a scalar. Raises OpError where it is none."""
    if value.ndim:
        message = f"{what} must be scalar, but received {list(value.shape)}"
        raise OpError(message)
    text: bytes = value.item()
    return text
