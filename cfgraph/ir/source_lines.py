"""Lines of a text file, decoded one by one; blank lines and comments are skipped at once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from cfgraph.errors import InvalidInput
from cfgraph.limits import check_deadline

# the start of a line with content; a comment that is not ASCII is decoded too
_CONTENT: Final = re.compile(
    rb"^[ \t\r\f\v]*+(?:[^ \t\r\f\v\n#]|#[^\n\x80-\xff]*+[\x80-\xff])", re.MULTILINE
)
_CHECK_INTERVAL: Final = 1024


def source_lines(data: bytes, errors: str = "strict") -> Iterator[tuple[int, str]]:
    """The number and the content of each line that is neither blank nor only a comment.

    Raises InvalidInput, with the number of the line, for bytes that are not UTF-8.
    """
    find_content, start, number, lines = _CONTENT.search, 0, 1, 0
    while (found := find_content(data, start)) is not None:
        if found.start() > start:
            number += data.count(b"\n", start, found.start())
            start = found.start()
        end = data.find(b"\n", start)
        content = data[start:] if end < 0 else data[start:end]
        try:
            text = content.decode(errors=errors)
        except UnicodeDecodeError as error:
            message = f"line {number} is not UTF-8: it has the byte {content[error.start]:#04x}"
            raise InvalidInput(message, code="CFG004") from None
        yield number, text
        lines += 1
        if not lines % _CHECK_INTERVAL:
            check_deadline()
        if end < 0:
            return
        start, number = end + 1, number + 1
