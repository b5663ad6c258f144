"""Hooks of mkdocs: add the generated pages, and the pages outside of docs/."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from mkdocs.structure.files import File, Files

from cfgraph.analysis.findings import catalog, documentation_address
from cfgraph.cli.configuration import table_name
from website.code_pages import code_pages, code_sections
from website.command_pages import command_names, command_pages
from website.transcripts import ROOT

_CODES: Final = "cfgraph/analysis/codes.toml"
_API: Final = "api.md"
_API_ENTRY: Final = re.compile(r"^### (\w+)\n(?:(?!#).*\n)*", flags=re.MULTILINE)
# pages of the site by their sources, those of docs/ apart
_PAGES: Final = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "fixtures/graphs/README.md": "graphs.md",
    "fixtures/graphs": "graphs.md",
    _CODES: "errors/index.md",
    "docs/man": "commands/index.md",
}
_SOURCES: Final = {name: file for file, name in _PAGES.items() if file.endswith(".md")}


@cache
def _generated() -> dict[str, str]:
    """The text of each generated page by its path."""
    return dict(_all_pages())


def _all_pages() -> Iterator[tuple[str, str]]:
    yield from command_pages()
    yield from code_pages()
    for name, file in _SOURCES.items():
        yield name, (ROOT / file).read_text(encoding="utf-8")


def on_config(config: Any) -> Any:
    """Set the address of the site, and list the generated pages in the navigation."""
    config.site_url = documentation_address()
    config.nav = [_with_generated(entry) for entry in config.nav]
    return config


def _with_generated(entry: Any) -> Any:
    """Replace `FOLDER/*` by the pages of a folder."""
    if isinstance(entry, dict):
        return {title: _with_generated(value) for title, value in entry.items()}
    if not isinstance(entry, list):
        return entry
    pages: list[Any] = []
    for item in entry:
        if isinstance(item, str) and item in _FOLDERS:
            pages += _FOLDERS[item]()
        else:
            pages.append(_with_generated(item))
    return pages


def _commands() -> list[Any]:
    return [{name: f"commands/{table_name(name)}.md"} for name in command_names()]


def _messages() -> list[Any]:
    return [f"messages/{file.name}" for file in sorted((ROOT / "docs" / "messages").glob("[!R]*"))]


_FOLDERS: Final = {"commands/*": _commands, "errors/*": code_sections, "messages/*": _messages}


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages."""
    for path, text in _generated().items():
        files.append(File.generated(config, path, content=text))
    return files


_LINK: Final = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#:\s]+)(#[^)]*)?\)")


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Let links to files of the repository lead to their pages, or be plain text."""
    path = page.file.src_uri
    if path == _API:
        # the whole documentation of each name, in place of its summary
        markdown = _API_ENTRY.sub(r"::: cfgraph.\1\n\n", markdown)
    source = _SOURCES.get(path, f"docs/{path}")
    return _LINK.sub(lambda match: _redirected(match, source, path), markdown)


def _redirected(match: re.Match[str], source: str, page: str) -> str:
    """Rewrite one link of a page; `source` is the path of its text in the repository."""
    label, link, anchor = match[1], match[2], match[3] or ""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
    if not (ROOT / target).exists():
        return match[0]
    name = _PAGES.get(target)
    if target == _CODES and label in catalog():
        name = f"errors/{label}.md"
    if name is None:
        if not target.startswith("docs/"):
            return label
        name = target.removeprefix("docs/")
    return f"[{label}]({posixpath.relpath(name, posixpath.dirname(page) or '.')}{anchor})"
