"""Temporary files that a killed process left: the next write removes them, and no others."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cfgraph.errors import CfgraphError
from cfgraph.ir import file_io
from cfgraph.ir.file_io import StagedFiles, create_temporary_file, write_atomically

_STAGE = """
import sys, time
from cfgraph.ir.file_io import StagedFiles
files = StagedFiles()
files.open(sys.argv[1]).write(b"half")
print("staged", flush=True)
time.sleep(60)
"""


@pytest.fixture
def writer(tmp_path: Path) -> subprocess.Popen[str]:
    """A process that has begun to write `g.pb`."""
    command = [sys.executable, "-c", _STAGE, str(tmp_path / "g.pb")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "staged\n"
    return process


def leftovers(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.startswith(".cfgraph-")]


def age(path: Path, seconds: float) -> None:
    moment = time.time() - seconds
    os.utime(path, (moment, moment))


def test_the_file_of_a_killed_process_is_removed(
    writer: subprocess.Popen[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_atomically(tmp_path / "a.pb", b"a")
    assert len(leftovers(tmp_path)) == 1  # the process runs
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    # a later process started after the file was written
    monkeypatch.setattr(file_io, "_STARTED", time.time() + 1)
    write_atomically(tmp_path / "b.pb", b"b")
    assert sorted(os.listdir(tmp_path)) == ["a.pb", "b.pb"]


def test_a_locked_file_stays_though_its_process_is_unknown(
    writer: subprocess.Popen[str], tmp_path: Path
) -> None:
    # as seen from another container, where the number means nothing
    (name,) = leftovers(tmp_path)
    other = tmp_path / ".cfgraph-999999999-abcdefgh"
    (tmp_path / name).rename(other)
    age(other, 1e6)
    write_atomically(tmp_path / "a.pb", b"a")
    assert other.exists()
    writer.kill()
    writer.communicate()
    write_atomically(tmp_path / "a.pb", b"a")
    assert not other.exists()


def test_files_of_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running = tmp_path / f".cfgraph-{os.getppid()}-abcdefgh"
    young = tmp_path / ".cfgraph-999999999-younger_"
    plain = tmp_path / ".cfgraph-plain"
    config = tmp_path / "cfgraph-999999999-abcdefgh"
    for path in (running, young, plain, config):
        path.write_bytes(b"")
    (tmp_path / ".cfgraph-999999999-a_folder").mkdir()
    (tmp_path / ".cfgraph-999999999-link").symlink_to(config)
    os.mkfifo(tmp_path / ".cfgraph-999999999-pipe")
    age(running, 1e6)
    age(config, 1e6)
    before = sorted(os.listdir(tmp_path))
    monkeypatch.setattr(file_io, "_STARTED", 0)
    write_atomically(tmp_path / "a.pb", b"a")
    assert sorted(os.listdir(tmp_path)) == sorted([*before, "a.pb"])
    age(young, 100)
    age(plain, 1e6)
    write_atomically(tmp_path / "a.pb", b"a")
    assert sorted(set(before) - set(os.listdir(tmp_path))) == [young.name]
    age(config, 1e6)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    old = tmp_path / ".cfgraph-999999999-old_file"
    old.write_bytes(b"")
    age(old, 1e6)
    write_atomically(tmp_path / "a.pb", b"a")
    assert old.exists()


def test_a_file_is_locked_until_it_is_moved(tmp_path: Path) -> None:
    descriptor, name = create_temporary_file(tmp_path)
    again = os.open(name, os.O_RDWR)
    assert not file_io.lock_file(again)
    os.close(descriptor)
    assert file_io.lock_file(again)
    os.close(again)
    with StagedFiles() as files:
        files.open(tmp_path / "g.pb").close()
        (staged,) = set(leftovers(tmp_path)) - {Path(name).name}
        descriptor = os.open(tmp_path / staged, os.O_RDWR)
        assert not file_io.lock_file(descriptor)
        os.close(descriptor)


def test_without_a_free_descriptor_no_file_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "dup", full)
    with pytest.raises(CfgraphError, match="Too many open files"):
        write_atomically(tmp_path / "g.pb", b"data")
    assert not os.listdir(tmp_path)
