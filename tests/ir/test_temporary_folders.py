"""Temporary folders are removed by the process that made them, or by the next one."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from cfgraph.errors import UsageError
from cfgraph.ir import temporary_folders


@pytest.mark.parametrize("name", ["mkdtemp", "create_temporary_file"])
def test_a_full_disk_for_temporary_files_is_an_error_with_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    owner = tempfile if name == "mkdtemp" else temporary_folders
    monkeypatch.setattr(owner, name, fail)
    with pytest.raises(UsageError, match="cannot be created: No space left") as caught:
        temporary_folders.create_temporary_folder()
    assert "$TMPDIR" in str(caught.value.hint)
    assert os.listdir(tmp_path) == []


def test_a_folder_is_removed_at_exit(tmp_path: Path) -> None:
    script = "from cfgraph.ir.temporary_folders import *; print(create_temporary_folder())"
    killed = tmp_path / ".cfgraph-999999999-abcdefgh"
    (killed / "content").mkdir(parents=True)
    os.utime(killed, (0, 0))
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"{tmp_path}/.cfgraph-" in done.stdout
    assert os.listdir(tmp_path) == []


def test_folders_of_running_processes_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    first = temporary_folders.create_temporary_folder()
    os.utime(first.parent, (0, 0))
    second = temporary_folders.create_temporary_folder()
    assert first.is_dir()
    assert second.is_dir()
    temporary_folders.remove_temporary_folders()
    assert os.listdir(tmp_path) == []
