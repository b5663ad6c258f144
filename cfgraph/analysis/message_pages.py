"""Pages about error texts of TensorFlow, found by the text; they are those of the documentation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cfgraph.analysis.findings import documentation_address

# late imports: only a text that is no code is looked up

_INDEX: Final = "README.md"
_WORD: Final = re.compile(r"[a-z]{2,}")
_LINK: Final = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])+)\]\([^)]*\)")
# a part of a text, with this share of the words of a title, is about it
_LEAST_SHARE: Final = 0.8
# words that identify a page, of a text that is no part of it
_LEAST_WORDS: Final = 3


@dataclass(frozen=True, slots=True)
class MessagePage:
    """A page about an error text: its title, its address, and its content in Markdown."""

    title: str
    page: str
    text: str

    def blocks(self) -> Iterator[tuple[str, bool]]:
        """Paragraphs, each in one line, and all other lines; true for a paragraph."""
        paragraph, is_code = list[str](), False
        for line in [*self.text.split("\n"), ""]:
            is_fence = line.startswith("```")
            if not (is_code or is_fence or line[:1] in ("", "#", "|", "-")):
                paragraph.append(line)
                continue
            if paragraph:
                yield " ".join(paragraph), True
            paragraph, is_code = [], is_code != is_fence
            yield line, False


def find_message_page(message: str) -> MessagePage | None:
    """The page about an error text, or about a part of it; None if there is none."""
    wanted = _words(message)
    best, found = (0.0, 0), None
    for page, head in _pages():
        titles = [_words(text) for text in (page.title, *re.findall(r"`([^`]+)`", head))]
        if len(wanted) >= _LEAST_WORDS:
            parts = (page.title, head)
            titles += [wanted for part in parts if " ".join(wanted) in " ".join(_words(part))]
        match = max((_share(set(title), set(wanted)) for title in titles if title), default=best)
        if match > best:
            best, found = match, page
    return found if best[0] >= _LEAST_SHARE else None


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _share(title: set[str], wanted: set[str]) -> tuple[float, int]:
    """The share of the words of a title that a text has, and their number."""
    common = len(title & wanted)
    return (common / len(title) if common >= min(_LEAST_WORDS, len(title)) else 0.0), common


def _pages() -> Iterator[tuple[MessagePage, str]]:
    """The pages, each with what it says before its cause."""
    from importlib import resources

    folder = resources.files("cfgraph.analysis").joinpath("messages")
    for file in sorted(folder.iterdir(), key=lambda item: item.name):
        if file.name.endswith(".md") and file.name != _INDEX:
            content = file.read_text("utf-8")
            title, _, rest = content.removeprefix("# ").partition("\n")
            address = f"{documentation_address()}messages/{file.name.removesuffix('.md')}/"
            page = MessagePage(title, address, _LINK.sub(r"\1", rest).replace("**", "").strip())
            yield page, rest.partition("**Cause.**")[0]
