"""One page per error code: a graph that has the fault, its meaning, and how to mend it."""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

from cfgraph.analysis.findings import Code, catalog
from website.transcripts import (
    ROOT,
    Transcript,
    in_parallel,
    message_folder,
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
_FIXTURES: Final = ROOT / "fixtures"
_TABLE: Final = ROOT / "website" / "code_examples.toml"
_EXPECTATION: Final = re.compile(r"^# expect .*\n", flags=re.MULTILINE)


class Sample(NamedTuple):
    """A graph that has a fault, by the name of its file, and the commands that report it."""

    name: str
    text: str
    commands: tuple[str, ...]


def code_pages() -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each page."""
    yield "errors/index.md", _index()
    groups = samples()
    every = [sample for group in groups.values() for sample in group]
    shown = dict(zip(every, in_parallel(reported, every), strict=True))
    for code, entry in catalog().items():
        pairs = [(sample, shown[sample]) for sample in groups.get(code, [])]
        yield f"errors/{code}.md", _page(entry, pairs)


def samples() -> dict[str, list[Sample]]:
    """The samples of each code: the graphs of fixtures/errors/, and the table next to this file."""
    found: dict[str, list[Sample]] = defaultdict(list)
    for file in sorted((_FIXTURES / "errors").iterdir()):
        text = _EXPECTATION.sub("", file.read_text(encoding="utf-8"))
        found[file.name[: len("CFG000")]].append(
            Sample(file.name, text, (f"cfgraph check {file.name}",))
        )
    for code, entry in tomllib.loads(_TABLE.read_text(encoding="utf-8")).items():
        text = entry.get("graph", "").lstrip()
        found[code].append(Sample(f"{code}.graph", text, tuple(entry["run"])))
    return found


def reported(
    sample: Sample, run: Callable[[str, Path], Transcript] = transcript
) -> list[Transcript]:
    """Run the commands of a sample in a folder that has its graph, and other samples."""
    with message_folder() as folder:
        if sample.text:
            (folder / sample.name).write_text(sample.text, encoding="utf-8")
        return [run(line, folder) for line in sample.commands]


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


def _page(entry: Code, pairs: Sequence[tuple[Sample, Sequence[Transcript]]]) -> str:
    parts = [
        f'---\ndescription: "{entry.code}: {entry.title}"\n---\n',
        f"# {entry.code}: {entry.title}\n",
        f"**{entry.level.capitalize()}.** {entry.explanation}\n",
        f"## How to mend it\n\n{entry.fix}\n",
    ]
    if pairs:
        parts.append(f"## {'Examples' if len(pairs) > 1 else 'Example'}\n")
    for sample, shown in pairs:
        if sample.text:
            parts.append(f'```text title="{sample.name}"\n{sample.text.rstrip()}\n```\n')
        parts += [f"{line.as_markdown()}\n" for line in shown]
    return "\n".join(parts)
