"""Run command lines in this process, with streams that may pretend to be a terminal."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cfgraph.cli import command_line as cli


class Stream(io.TextIOWrapper):
    """A text stream over bytes in memory."""

    def __init__(self, data: bytes = b"", terminal: bool = False) -> None:
        super().__init__(io.BytesIO(data), encoding="utf-8", write_through=True)
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal

    def bytes(self) -> bytes:
        self.flush()
        content: bytes = self.buffer.getvalue()  # type: ignore[attr-defined]
        return content


class Done(NamedTuple):
    """The result of a command line."""

    code: int
    data: bytes
    err: str

    @property
    def out(self) -> str:
        return self.data.decode()

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Command = Callable[..., Done]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run `cfgraph ARGS`; `stdin` are bytes, `terminal` says whether stdout and stderr are one."""
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "CFGRAPH_DEBUG", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")

    def run(*args: str | Path, stdin: bytes | None = None, terminal: bool = False) -> Done:
        out, err = Stream(terminal=terminal), Stream(terminal=terminal)
        monkeypatch.setattr(sys, "stdin", Stream(stdin or b"", terminal=stdin is None))
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", err)
        code = cli.run([str(arg) for arg in args])
        return Done(code, out.bytes(), err.bytes().decode())

    return run


@pytest.fixture
def graphs(fixtures: Path) -> Path:
    """The folder of readable graphs."""
    return fixtures / "graphs"


@pytest.fixture
def counter(graphs: Path) -> Path:
    """The loop that counts to n."""
    return graphs / "counter.pb"


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """A file without content."""
    path = tmp_path / "empty.pb"
    path.touch()
    return path


@pytest.fixture(scope="session")
def lstm(fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SavedModel of Keras whose loop is in a function that another function calls."""
    folder = tmp_path_factory.mktemp("models")
    shutil.unpack_archive(fixtures / "verdicts" / "lstm.zip", folder)
    return folder / "lstm"
