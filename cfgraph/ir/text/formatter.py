"""Formatter of the text format: canonical statements, in the order of a file, with its comments.

#count up                        #count up
less=Less( i , n )  # until n    less = Less(i, n)  # until n
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from cfgraph.ir.text.lexer import LineReader, comment_of
from cfgraph.ir.text.parser import parse_graph
from cfgraph.ir.text.printer import print_graph
from cfgraph.limits import check_deadline

_INDENT: Final = "  "
# statements of which a scope has several, each of its own name
_NAMED: Final = ("attr", "control_return", "function", "gradient")

# the function, empty for the graph; the kind of statement; and its name if there are several
_Key = tuple[str, str, str]


class _StatementLine(NamedTuple):
    """A line of a text: its statement, None if it has none, its comment, and its scope."""

    key: _Key | None
    text: str
    comment: str
    opens_block: bool = False

    @property
    def function(self) -> str:
        """The name of the function that starts here, or an empty text."""
        return self.key[2] if self.key and self.key[:2] == ("", "function") else ""

    @property
    def indent(self) -> str:
        """The indentation of a comment that has a line of its own."""
        return _INDENT if self.key and self.key[0] else ""


def format_text(data: bytes) -> bytes:
    """Format a graph in the text format; comments, and single blank lines, stay where they are.

    Statements are printed as `print_graph` prints them. Raises like `parse_graph`.
    """
    canonical = print_graph(parse_graph(data))
    text = data.decode("utf-8-sig", "surrogatepass")
    lines = _without_repeated_blanks(_format(text, canonical))
    formatted = "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass")
    formatted = formatted or b"versions\n"  # an empty file is not a graph
    assert print_graph(parse_graph(formatted)) == canonical, "the formatted graph differs"
    return formatted


def _format(text: str, canonical: str) -> Iterator[str]:
    """The lines of a text with the statements of its canonical form."""
    scopes: dict[str, dict[_Key, list[str]]] = {}
    for line in _lines(canonical):
        if line.key is not None:
            scopes.setdefault(line.key[0], {}).setdefault(line.key, []).append(line.text)
    for line in _lines(text):
        check_deadline()
        printed = list(_printed(line, scopes)) if line.key is not None else []
        if printed and line.comment:
            printed[0] += f"  {line.comment}"
        elif line.comment:
            printed = [f"{line.indent}{line.comment}"]
        if printed or line.key is None:
            yield from printed or [""]


def _printed(line: _StatementLine, scopes: dict[str, dict[_Key, list[str]]]) -> Iterator[str]:
    """Take the canonical statements that are printed in place of a statement."""
    assert line.key is not None
    scope, kind, name = line.key
    statements = scopes.get(scope, {})
    if kind == "return" and not name:
        for key in [key for key in statements if key[1] == kind]:
            yield from statements.pop(key)
        return
    yield from statements.pop(line.key, ())
    if line.function and not line.opens_block:
        # base64, whose canonical form may be a block
        for lines in scopes.pop(name, {}).values():
            yield from lines


def _lines(text: str) -> Iterator[_StatementLine]:
    scope = ""
    for number, content in enumerate(text.split("\n"), 1):
        reader = LineReader(content, number)
        comment = comment_of(content).rstrip()
        if not reader.token:
            yield _StatementLine(
                (scope, "comment", str(number)) if comment and scope else None, "", comment
            )
            continue
        key = _statement_key(reader, scope)
        line = _StatementLine(key, content.rstrip(), comment, opens_block=reader.tokens[-2] == "{")
        yield line
        if line.function and line.opens_block:
            scope = line.function
        elif key[1] == "}":
            scope = ""


def _statement_key(line: LineReader, scope: str) -> _Key:
    if line.following == "=":
        return scope, "node", line.name("the name of a node")
    kind = line.token
    line.index = 1
    is_named = kind in _NAMED or (kind == "return" and line.following == "=")
    return scope, kind, line.name("a name") if is_named else ""


def _without_repeated_blanks(lines: Iterator[str]) -> Iterator[str]:
    """The lines with at most one blank line in a row, and none at the start and the end."""
    is_first, blank = True, False
    for line in lines:
        if not line:
            blank = not is_first
            continue
        if blank:
            yield ""
        yield line
        is_first, blank = False, False
