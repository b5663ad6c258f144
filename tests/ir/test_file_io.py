from __future__ import annotations

import gzip
import os
import resource
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cfgraph.errors import InvalidInput, UsageError
from cfgraph.ir import file_io
from cfgraph.ir.file_io import read_file, read_stream, write_atomically
from cfgraph.ir.files import dumps, load, save
from cfgraph.ir.graph import Graph
from cfgraph.ir.text.parser import parse_graph


@pytest.fixture
def graph() -> Graph:
    return parse_graph("x = Placeholder() {dtype=float32}\ny = Identity(x, ^x) {T=float32}\n")


def names(graph: Graph) -> list[str]:
    return list(graph.nodes)


def test_a_new_file_has_the_usual_rights(graph: Graph, tmp_path: Path) -> None:
    save(graph, tmp_path / "g.pb")
    (tmp_path / "other").touch()
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("g.pb", "other")]
    assert modes[0] == modes[1]


def test_a_file_that_is_replaced_keeps_its_rights(graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "g.pb"
    path.write_bytes(b"old")
    path.chmod(0o640)
    save(graph, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert path.read_bytes() == dumps(graph)


def test_a_link_stays_a_link(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "real.pb").touch()
    (tmp_path / "link.pb").symlink_to("real.pb")
    save(graph, tmp_path / "link.pb")
    assert (tmp_path / "link.pb").is_symlink()
    assert (tmp_path / "real.pb").read_bytes() == dumps(graph)


def test_a_name_of_the_greatest_length_can_be_written(graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / ("g" * 252 + ".pb")
    save(graph, path)
    assert names(load(path)) == ["x", "y"]


@contextmanager
def full_disk() -> Iterator[None]:
    """Make every write fail. Not a fixture, because pytest may write its output meanwhile."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_leaves_no_file(tmp_path: Path) -> None:
    message = "the file cannot be written: File too large"
    with full_disk(), pytest.raises(UsageError, match=message) as caught:
        write_atomically(tmp_path / "g.pb", b"new")
    assert caught.value.path == str(tmp_path / "g.pb")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("step", ["chmod", "replace"])
def test_a_write_that_fails_at_its_end_leaves_everything_as_it_was(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(1, "Operation not permitted")

    (tmp_path / "g.pb").write_bytes(b"old")
    monkeypatch.setattr(os, step, refuse)
    with pytest.raises(UsageError, match="the file cannot be written: Operation not permitted"):
        write_atomically(tmp_path / "g.pb", b"new")
    assert os.listdir(tmp_path) == ["g.pb"]
    assert (tmp_path / "g.pb").read_bytes() == b"old"


def test_an_interrupted_write_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "g.pb", b"new")
    assert os.listdir(tmp_path) == []


def test_a_graph_that_cannot_be_encoded_writes_nothing(tmp_path: Path) -> None:
    broken = Graph()
    broken.create("x", "A", attrs={"a": object()})
    for name in ("g.pb", "g.pbtxt", "g.graph"):
        with pytest.raises(InvalidInput, match="is not an attribute value"):
            save(broken, tmp_path / name)
    assert os.listdir(tmp_path) == []


def test_a_folder_that_cannot_be_written_to_is_an_error(graph: Graph, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        folder = Path("/proc")  # read-only even for root
    else:
        folder = tmp_path / "read-only"
        folder.mkdir(mode=0o500)
    with pytest.raises(UsageError, match="the file cannot be written") as caught:
        save(graph, folder / "g.pb")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("name", ["missing/g.pb", "folder", "file/g.pb", "a\0b"])
def test_a_place_where_no_file_can_be_is_an_error(name: str, graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="the file cannot be written"):
        save(graph, tmp_path / name)
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


def test_a_pipe_is_written_to_as_it_is(graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(path.read_bytes()))
    reader.start()
    save(graph, path)
    reader.join(timeout=10)
    assert got == [dumps(graph)]
    assert stat.S_ISFIFO(path.stat().st_mode)


# -- sources of graphs ---------------------------------------------------------------------------


def test_a_folder_without_a_saved_model_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"the folder contains no saved_model\.pb") as caught:
        load(tmp_path)
    assert caught.value.hint is None
    assert caught.value.path == str(tmp_path)
    (tmp_path / "g.pb.gz").touch()
    with pytest.raises(InvalidInput) as caught:
        load(tmp_path)
    assert caught.value.hint == f"name a file in it, such as {tmp_path / 'g.pb.gz'}"


@pytest.mark.parametrize(
    ("requested", "meant"),
    [
        ("nested.pbtxt", "nested.pb"),
        ("Nested.pb", "nested.pb"),
        ("deadness.pb", "deadness_mismatch.pb"),
        ("lstm_grd.pb", "lstm_grad.pb"),
        ("graph.pb", None),
        ("nosuch.pb", None),
        ("x.pb", None),
    ],
)
def test_a_suffix_alone_makes_no_name_similar(
    requested: str, meant: str | None, tmp_path: Path
) -> None:
    for name in ("nested.pb", "deadness_mismatch.pb", "lstm_grad.pb", ".x.pb"):
        (tmp_path / name).touch()
    with pytest.raises(InvalidInput, match="no such file") as caught:
        load(tmp_path / requested)
    assert caught.value.hint == (meant and f"did you mean {meant!r}?")


def test_a_missing_file_names_one_of_a_similar_name(tmp_path: Path) -> None:
    (tmp_path / "counter.pb").touch()
    with pytest.raises(InvalidInput, match="no such file") as caught:
        load(tmp_path / "countre.pb")
    assert caught.value.hint == "did you mean 'counter.pb'?"
    assert caught.value.path == str(tmp_path / "countre.pb")
    assert caught.value.code == "CFG001"
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("name", ["missing/g.pb", "file/g.pb", "n" * 300, "a\0b", "loop"])
def test_a_path_that_leads_nowhere_is_an_error(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(InvalidInput) as caught:
        load(tmp_path / name)
    assert caught.value.code == "CFG001"
    assert caught.value.path == str(tmp_path / name)


def test_a_file_without_the_right_to_read_it_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "g.pb").write_bytes(b"x")
    monkeypatch.setattr(Path, "open", denied)  # root may read everything
    with pytest.raises(InvalidInput, match="cannot be read: Permission denied") as caught:
        load(tmp_path / "g.pb")
    assert caught.value.code == "CFG001"


def test_a_folder_without_the_right_to_list_it_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "listdir", denied)
    with pytest.raises(InvalidInput, match="cannot be read: Permission denied"):
        load(tmp_path)
    with pytest.raises(InvalidInput, match="no such file") as caught:
        load(tmp_path / "g.pb")
    assert caught.value.hint is None


def test_a_pipe_is_read(graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(dumps(graph),))
    writer.start()
    assert names(load(path)) == ["x", "y"]
    writer.join(timeout=10)


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null", "/dev/urandom"])
def test_a_device_is_refused(device: str) -> None:
    if not Path(device).exists():
        pytest.skip(f"no {device} here")
    with pytest.raises(InvalidInput, match="the path is a device, expected a file or folder"):
        load(device)


class Endless:
    def read(self, size: int) -> bytes:
        return b"\0" * size


def test_an_endless_stream_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_io, "MAX_BYTES", 10 << 20)
    with pytest.raises(InvalidInput, match="the input exceeds 10485760 bytes") as caught:
        read_stream(Endless())  # type: ignore[arg-type]
    assert caught.value.code == "CFG002"


def test_the_bytes_of_a_file_are_read_as_they_are(graph: Graph, tmp_path: Path) -> None:
    data = gzip.compress(dumps(graph))
    (tmp_path / "g.pb").write_bytes(data)
    assert read_file(tmp_path / "g.pb") == data
