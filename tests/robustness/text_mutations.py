"""Mutations of text: `.graph` and `.pbtxt` files, JSON, TOML, feed literals, and options."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")
_WORDS = (
    "",
    "0",
    "-1",
    "1e999",
    "nan",
    "NaN",
    "Infinity",
    "-Infinity",
    "18446744073709551616",
    "9" * 30,
    "0x10",
    "1.5",
    "true",
    "null",
    "x",
    '"',
    "'",
    "\\",
    "\\x",
    "\\u202e",
    "\\ud800",
    "{",
    "}",
    "[",
    "]",
    "[" * 50,
    "{" * 50,
    "(",
    ")",
    "()",
    "<",
    ">",
    ",",
    ":",
    "=",
    "->",
    "^",
    "@",
    "#",
    "*",
    "?",
    "!",
    "\n",
    "\t",
    "\0",
    "\x1b",
    "é",
    "\u2028",
    "\ufeff",
    "float32",
    "int32",
    "string",
    "bool",
    "f32[2,3]:",
    "zeros",
    "arange",
    "uniform(",
    "shape",
    "node",
    "attr",
    "function",
    "return",
    "%s",
    "{0}",
    "../..",
    "cpu:0",
    "gpu:0",
    "a" * 1000,
)


def mutate_text(rng: random.Random, text: str, other: str = "") -> str:
    """Apply one to three mutations; `other` is a text to take lines and tokens from."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        text = rng.choice(_MUTATIONS)(rng, text, other or text)
    return text


def _change_token(rng: random.Random, text: str, other: str) -> str:
    return _edit_tokens(rng, text, lambda tokens, at: [*tokens[:at], rng.choice(_WORDS)])


def _insert_token(rng: random.Random, text: str, other: str) -> str:
    return _edit_tokens(rng, text, lambda tokens, at: [*tokens[: at + 1], rng.choice(_WORDS)])


def _drop_token(rng: random.Random, text: str, other: str) -> str:
    return _edit_tokens(rng, text, lambda tokens, at: tokens[:at])


def _repeat_token(rng: random.Random, text: str, other: str) -> str:
    count = rng.choice((1, 1, 2, 100))
    return _edit_tokens(
        rng, text, lambda tokens, at: tokens[: at + 1] + tokens[at : at + 1] * count
    )


def _lend_token(rng: random.Random, text: str, other: str) -> str:
    words = _TOKEN.findall(other) or ["x"]
    return _edit_tokens(rng, text, lambda tokens, at: [*tokens[:at], rng.choice(words)])


def _edit_tokens(rng: random.Random, text: str, edit: Callable[[list[str], int], list[str]]) -> str:
    """Replace the tokens up to a random one by those that `edit` returns."""
    tokens = _TOKEN.findall(text) or [""]
    at = rng.randrange(len(tokens))
    return "".join(edit(tokens, at) + tokens[at + 1 :])


def _drop_line(rng: random.Random, text: str, other: str) -> str:
    lines = text.splitlines(keepends=True) or [""]
    del lines[rng.randrange(len(lines))]
    return "".join(lines)


def _lend_line(rng: random.Random, text: str, other: str) -> str:
    lines = text.splitlines(keepends=True)
    lines.insert(rng.randrange(len(lines) + 1), rng.choice(other.splitlines(keepends=True) or [""]))
    return "".join(lines)


def _swap_lines(rng: random.Random, text: str, other: str) -> str:
    lines = text.splitlines(keepends=True) or [""]
    first, second = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[first], lines[second] = lines[second], lines[first]
    return "".join(lines)


def _cut(rng: random.Random, text: str, other: str) -> str:
    return text[: rng.randrange(len(text) + 1)]


def _change_letter(rng: random.Random, text: str, other: str) -> str:
    at = rng.randrange(len(text) + 1)
    return (
        text[:at] + chr(rng.choice((rng.randrange(32, 127), rng.randrange(256)))) + text[at + 1 :]
    )


_MUTATIONS: tuple[Callable[[random.Random, str, str], str], ...] = (
    _change_token,
    _change_token,
    _insert_token,
    _drop_token,
    _repeat_token,
    _lend_token,
    _lend_token,
    _drop_line,
    _lend_line,
    _swap_lines,
    _cut,
    _change_letter,
)
