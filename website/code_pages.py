"""One page per error code: a graph that has the fault, its meaning, and how to mend it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

from cfgraph.analysis.findings import Code, catalog
from website.transcripts import (
    ROOT,
    Transcript,
    copy_graph,
    empty_folder,
    in_parallel,
    transcript,
)

SECTIONS: Final = {
    "0": "Input",
    "1": "Structure",
    "2": "Control flow",
    "3": "Types and shapes",
    "4": "Devices",
    "5": "Gradients",
    "6": "Clusters",
    "7": "Runs",
    "8": "Comparisons",
}
_FOLDER: Final = ROOT / "fixtures" / "errors"


def code_pages() -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each page."""
    yield "errors/index.md", _index()
    files = sample_files()
    checked = dict(zip(_all(files), in_parallel(checked_sample, _all(files)), strict=True))
    for code, entry in catalog().items():
        samples = [(file, *checked[file]) for file in files.get(code, [])]
        yield f"errors/{code}.md", _page(entry, samples)


def code_paths() -> list[str]:
    """The paths of the pages."""
    return ["errors/index.md", *(f"errors/{code}.md" for code in catalog())]


def _all(files: Mapping[str, Sequence[Path]]) -> list[Path]:
    return [file for group in files.values() for file in group]


def sample_files() -> dict[str, list[Path]]:
    """Graphs that have a fault, by its code."""
    found: dict[str, list[Path]] = defaultdict(list)
    for file in sorted(_FOLDER.iterdir()):
        found[file.name[: len("CFG000")]].append(file)
    return found


def code_sections() -> list[dict[str, list[dict[str, str]]]]:
    """The navigation: the pages of each section."""
    return [
        {title: [{f"{x.code} {x.title}": f"errors/{x.code}.md"} for x in entries]}
        for title, entries in _sections().items()
    ]


def _sections() -> dict[str, list[Code]]:
    groups = groupby(catalog().values(), lambda entry: entry.code[len("CFG")])
    return {SECTIONS[digit]: list(entries) for digit, entries in groups}


def _index() -> str:
    parts = [
        "# Error codes\n",
        "Every code that cfgraph reports has a page, which SARIF reports link to.",
        "`cfgraph explain CODE` prints it in short.\n",
    ]
    for title, entries in _sections().items():
        parts.append(f"\n## {title}\n\n| code | meaning | level |\n| --- | --- | --- |")
        parts += [f"| [{x.code}]({x.code}.md) | {x.title} | {x.level} |" for x in entries]
    return "\n".join(parts) + "\n"


def _page(entry: Code, samples: Sequence[tuple[Path, str, Transcript]]) -> str:
    parts = [
        f'---\ndescription: "{entry.code}: {entry.title}"\n---\n',
        f"# {entry.code}: {entry.title}\n",
        f"**{entry.level.capitalize()}.** {entry.explanation}\n",
        f"## How to mend it\n\n{entry.fix}\n",
    ]
    if samples:
        start = "Graphs that have" if len(samples) > 1 else "A graph that has"
        parts.append(f"## {start} the fault\n")
    for file, text, check in samples:
        parts.append(f'```text title="{file.name}"\n{text.rstrip()}\n```\n')
        parts.append(f"{check.as_markdown()}\n")
    return "\n".join(parts)


def checked_sample(file: Path) -> tuple[str, Transcript]:
    """The text of a sample graph, and the transcript of its check."""
    with empty_folder() as folder:
        text = copy_graph(file, folder)
        return text, transcript(f"cfgraph check {file.name}", folder)
