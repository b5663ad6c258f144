"""Transcripts: shell lines, run in a folder with the sample graphs, and their output."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from tests.shell import run

ROOT: Final = Path(__file__).parent.parent
_ENVIRONMENT: Final = {"CFGRAPH_CACHE": "/dev/null"}

Item = TypeVar("Item")
Result = TypeVar("Result")


class Transcript(NamedTuple):
    """A shell line, its output (of both streams), and its exit status."""

    line: str
    output: str
    status: int

    def lines(self, most: int = 60) -> Iterator[str]:
        """Yield the line after a prompt and its output, of which the middle may be left out."""
        yield f"$ {self.line}"
        rows = self.output.rstrip().splitlines()
        if len(rows) <= most:
            yield from rows
            return
        yield from rows[: most - 10]
        yield f"… {len(rows) - most} more lines …"
        yield from rows[-10:]

    def as_markdown(self) -> str:
        """Format the transcript as a block of code."""
        return "\n".join(["```console", *self.lines(), "```"])


@cache
def _samples() -> Path:
    """A folder with the files of `cfgraph examples`, of which each transcript has a copy."""
    folder = Path(tempfile.mkdtemp(prefix="cfgraph-samples-"))
    atexit.register(shutil.rmtree, folder)
    done = run(["cfgraph", "examples", "."], folder)
    assert done.returncode == 0, done.stderr
    return folder


@contextmanager
def sample_folder() -> Iterator[Path]:
    """A temporary folder with the files of `cfgraph examples` and the fixtures."""
    with tempfile.TemporaryDirectory(prefix="cfgraph-site-") as name:
        folder = Path(name)
        shutil.copytree(_samples(), folder, dirs_exist_ok=True)
        (folder / "fixtures").symlink_to(ROOT / "fixtures")
        yield folder


@contextmanager
def message_folder() -> Iterator[Path]:
    """A sample folder with the graphs of the pages of error texts, too."""
    with sample_folder() as folder:
        for file in (ROOT / "fixtures" / "messages").iterdir():
            (folder / file.name).symlink_to(file)
        yield folder


def transcript(line: str, folder: Path, *, color: bool = False) -> Transcript:
    """Run a line of bash in a folder."""
    words = ["bash", "-o", "pipefail", "-c", f"({line}) 2>&1"]
    terminal = {"COLUMNS": "88", "FORCE_COLOR": "1"} if color else {"NO_COLOR": "1"}
    done = run(words, folder, {**_ENVIRONMENT, **terminal})
    return Transcript(line, done.stdout.replace(f"{folder}/", ""), done.returncode)


def transcripts(lines: Iterable[str]) -> list[Transcript]:
    """Run lines one after the other in one new folder."""
    with sample_folder() as folder:
        return [transcript(line, folder) for line in lines]


def in_parallel(function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Call a function that waits for transcripts on each item, on all cores."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(function, items))
