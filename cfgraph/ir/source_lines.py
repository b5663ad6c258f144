"""Lines of a text file, decoded one by one; blank lines and comments are skipped at once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from cfgraph.errors import InvalidInput

_BLANK_LINES: Final = re.compile(rb"(?:[ \t\r\f\v]*+(?:#[^\n\x80-\xff]*+)?+(?:\n|\Z))*+")


def source_lines(data: bytes, errors: str = "strict") -> Iterator[tuple[int, str]]:
    """The number and the content of each line that is neither blank nor only a comment.

    Raises InvalidInput, with the number of the line, for bytes that are not UTF-8.
    """
    blank_lines, start, number = _BLANK_LINES.match, 0, 1
    while True:
        blank = blank_lines(data, start)
        if blank is not None and blank.end() > start:
            number += data.count(b"\n", start, blank.end())
            start = blank.end()
        if start >= len(data):
            return
        end = data.find(b"\n", start)
        content = data[start:] if end < 0 else data[start:end]
        try:
            text = content.decode(errors=errors)
        except UnicodeDecodeError as error:
            message = f"line {number} is not UTF-8: it has the byte {content[error.start]:#04x}"
            raise InvalidInput(message, code="CFG004") from None
        yield number, text
        if end < 0:
            return
        start, number = end + 1, number + 1
