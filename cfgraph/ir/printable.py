"""Text that a terminal or a viewer cannot mistake for commands: control characters are escaped.

A graph chooses its names and strings. Raw, an escape sequence moves the cursor or retitles the
terminal, and a bidirectional override shows text in another order than it has.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

# Unicode categories Cc, Cf, Cs, Zl, and Zp: controls, invisible format characters, surrogates
# (bytes that are not UTF-8), line separators
_NEITHER_TAB_NOR_NEWLINE: Final = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f"
    "\u2028-\u202e\u2060-\u2064\u2066-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000110bd\U000110cd"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001"
    "\U000e0020-\U000e007f"
)
_MARKDOWN_SYNTAX: Final = re.compile(r"[\\`*_\[\]<>|~&#]")
_LATIN_1: Final = 0xFF
_BASIC_PLANE: Final = 0xFFFF


@cache
def _unsafe(more: str) -> re.Pattern[str]:
    """The characters to escape, which are these and `more`; a short command escapes none."""
    return re.compile(f"[{more}{_NEITHER_TAB_NOR_NEWLINE}]")


def clean(text: str) -> str:
    """Escape control and invisible format characters."""
    return text if text.isprintable() else _unsafe("\t\n").sub(_escape, text)


def clean_lines(text: str) -> str:
    """Escape control and invisible format characters other than line breaks."""
    return text if text.isprintable() else _unsafe("\t").sub(_escape, text)


def clean_layout(text: str) -> str:
    """Escape control and invisible format characters other than line breaks and tabs."""
    return text if text.isprintable() else _unsafe("").sub(_escape, text)


def clean_markdown(text: str) -> str:
    """Escape these characters and Markdown, also in a cell of a table."""
    return _MARKDOWN_SYNTAX.sub(r"\\\g<0>", clean_lines(text)).replace("\n", "<br>")


def clean_json(text: str) -> str:
    """Escape these characters in the strings of a JSON document, which keeps its values."""
    return _unsafe("\t").sub(_json_escape, text)


def clean_pbtxt(text: str) -> str:
    """Escape these characters in the strings of a text proto, which keeps its values."""
    return _unsafe("\t").sub(_octal_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code <= _LATIN_1:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= _BASIC_PLANE else f"\\U{code:08x}"


def _json_escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def _octal_escape(match: re.Match[str]) -> str:
    return "".join(f"\\{byte:03o}" for byte in match[0].encode(errors="surrogatepass"))
