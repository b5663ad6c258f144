"""Archives of a SavedModel or a graph are read, and what they must not contain is refused."""

from __future__ import annotations

import errno
import gzip
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Mapping
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import cfgraph
from cfgraph.errors import ExecutionError, InvalidInput, UsageError
from cfgraph.ir import file_io, temporary_folders
from cfgraph.ir.files import load, loads, open_graph
from cfgraph.ir.serde import archives
from cfgraph.limits import limited
from tests.ir.hostile import memory_limit, time_limit

GRAPH = b"x = NoOp()\n"
Pack = Callable[[Mapping[str, bytes]], bytes]


def zipped(files: Mapping[str, bytes]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return data.getvalue()


def tarred(files: Mapping[str, bytes], infos: Iterable[tarfile.TarInfo] = ()) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        for info in infos:
            archive.addfile(info)
    return data.getvalue()


def tar_gz(files: Mapping[str, bytes]) -> bytes:
    return gzip.compress(tarred(files))


every_kind = pytest.mark.parametrize("pack", [zipped, tarred, tar_gz])


def tree(folder: Path, prefix: str = "") -> dict[str, bytes]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {f"{prefix}{path.relative_to(folder)}": path.read_bytes() for path in files}


def rejection(data: bytes) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        loads(data)
    return caught.value


@every_kind
@pytest.mark.parametrize("prefix", ["", "./", "a/model/"])
def test_the_only_saved_model_is_read(
    fixtures: Path, tmp_path: Path, pack: Pack, prefix: str
) -> None:
    saved = fixtures / "saved_model"
    path = tmp_path / "hub.archive"
    path.write_bytes(
        pack({**tree(saved, prefix), "__MACOSX/._saved_model.pb": b"\0", "README": b""})
    )
    opened = open_graph(path)
    assert opened.format == "saved_model"
    assert list(opened.graph.nodes) == list(load(saved).nodes)
    assert list(loads(path.read_bytes()).nodes) == list(load(saved).nodes)
    state = cfgraph.restore(path)
    assert [key for key, _ in state.variables()] == [
        key for key, _ in cfgraph.restore(saved).variables()
    ]


@every_kind
def test_a_path_continues_into_an_archive(tmp_path: Path, pack: Pack) -> None:
    path = tmp_path / "graphs"
    path.write_bytes(pack({"a/one.graph": GRAPH, "b/two.graph": GRAPH + b"y = NoOp()\n"}))
    error = rejection(path.read_bytes())
    assert error.message == (
        "the archive contains 2 graphs and no SavedModel: a/one.graph, b/two.graph"
    )
    assert error.hint == "choose one by its path: ARCHIVE/a/one.graph"
    assert list(load(path / "b").nodes) == ["x", "y"]
    assert list(load(path / "a" / "one.graph").nodes) == ["x"]
    with pytest.raises(InvalidInput, match="the archive has no 'c'") as caught:
        load(path / "c")
    assert (caught.value.path, caught.value.hint) == (str(path / "c"), "it contains a, b")


def test_several_saved_models_are_to_be_chosen_from(fixtures: Path, tmp_path: Path) -> None:
    saved = fixtures / "saved_model"
    path = tmp_path / "models.zip"
    path.write_bytes(zipped({**tree(saved), **tree(saved, "b/")}))
    with pytest.raises(InvalidInput, match=r"the archive contains 2 SavedModels: \., b") as caught:
        load(path)
    assert caught.value.hint == f"choose one by its path: {path}/b"
    assert len(load(path / "b")) == len(load(path / "saved_model.pb")) == len(load(saved))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["config.json", "model.weights.h5", "metadata.json"], "this is a Keras model, not a"),
        (["archive/data.pkl"], "this is a PyTorch model, not a graph"),
        (["x.npy", "y.npy"], r"this is an \.npz archive of arrays, not a graph"),
        (["word/document.xml"], "this is a zip archive without a graph"),
        ([], "this is a zip archive without a graph"),
    ],
)
def test_an_archive_without_a_graph_is_named(names: list[str], message: str) -> None:
    error = rejection(zipped(dict.fromkeys(names, b"data")))
    assert error.code == "CFG003"
    assert error.hint
    with pytest.raises(InvalidInput, match=message):
        raise error


@every_kind
@pytest.mark.parametrize("name", ["../x.graph", "/x.graph", "a/../../x.graph", "..\\x.graph", "."])
def test_names_outside_of_an_archive_are_refused(pack: Pack, name: str) -> None:
    error = rejection(pack({"y.graph": GRAPH, name: GRAPH}))
    assert error.message.startswith("the archive names a file outside of it")


def test_links_and_devices_are_refused() -> None:
    link, hard, device = (tarfile.TarInfo(name) for name in ("l", "h", "d"))
    link.type, link.linkname = tarfile.SYMTYPE, "/etc"
    hard.type, hard.linkname = tarfile.LNKTYPE, "x.graph"
    device.type = tarfile.CHRTYPE
    for info, kind in ((link, "a link"), (hard, "a link"), (device, "a device or pipe")):
        error = rejection(tarred({"x.graph": GRAPH}, [info]))
        assert error.message == f"the archive contains {kind}, {info.name!r}"
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        member = zipfile.ZipInfo("x.graph")
        member.external_attr = 0o120777 << 16
        archive.writestr(member, "/etc/passwd")
    assert rejection(data.getvalue()).message == "the archive contains a link, 'x.graph'"


def extension(kind: bytes, data: bytes) -> bytes:
    """An extension header of a tar archive, before the header that it extends."""
    info = tarfile.TarInfo("extension")
    info.type, info.size = kind, len(data)
    return info.tobuf(tarfile.USTAR_FORMAT) + data + bytes(-len(data) % 512)


_LONG_NAMES = [f"{'d' * 90}/{'n' * 90}.graph", "é.graph", f"{'long' * 60}.graph"]


@pytest.mark.parametrize(
    ("form", "name"),
    [
        *product((tarfile.GNU_FORMAT, tarfile.PAX_FORMAT), _LONG_NAMES),
        *product((tarfile.USTAR_FORMAT,), _LONG_NAMES[:2]),
    ],
)
def test_long_names_of_a_tar_archive_are_read(form: int, name: str) -> None:
    data = io.BytesIO()
    headers = {"comment": "a" * 3000, "mtime": "1.5"} if form == tarfile.PAX_FORMAT else {}
    with tarfile.open(fileobj=data, mode="w", format=form, pax_headers=headers) as archive:
        info = tarfile.TarInfo(name)
        info.size, info.mtime = len(GRAPH), 1.5
        archive.addfile(info, io.BytesIO(GRAPH))
    found = archives.archive_of_bytes(data.getvalue())
    assert found is not None
    assert found.names == (name,)
    assert found.read_graph() == GRAPH


def test_a_size_in_an_extension_header_is_that_of_the_next_member() -> None:
    data = tarred({"x.graph": GRAPH, "y": b"y"})
    size = b"%d" % len(GRAPH)
    record = b"%d size=%s\n" % (len(size) + 9, size)
    header = tarfile.TarInfo("x.graph").tobuf()  # of size 0
    assert len(loads(extension(b"x", record) + header + data[512:])) == len(loads(GRAPH))


@pytest.mark.parametrize("kind", [b"x", b"g", b"X", b"L", b"K"])
def test_extension_headers_are_read_in_linear_time_up_to_a_limit(kind: bytes) -> None:
    data, limit = tarred({"x.graph": GRAPH}), 64 << 10
    digits = b"%d a=%s\n" % (limit, b"1" * (limit - 9))
    with time_limit():
        if kind in b"xgX":
            assert loads(extension(kind, digits) * 200 + data)
        assert code_of_rejection(extension(kind, b"1" * limit) * 20 + data)
    error = rejection(extension(kind, bytes(limit + 1)) + data)
    assert error.code == "CFG002"
    assert error.message == "an extension header of 65537 bytes; the limit is 65536"


@pytest.mark.parametrize(
    "record", [b"0 a=b\n", b"-1 a=b\n", b"7 ab\n", b"9 a=b\n", b"a=b", b"12 size=-512\n"]
)
def test_a_damaged_extension_header_is_an_error(record: bytes) -> None:
    error = rejection(extension(b"x", record) + tarred({"x.graph": GRAPH}))
    assert error.code == "CFG003"
    assert error.message.startswith("the tar archive is truncated or corrupt: ")


def test_sparse_files_are_refused() -> None:
    data = tarred({"x.graph": GRAPH})
    sparse = tarfile.TarInfo("s")
    sparse.type = tarfile.GNUTYPE_SPARSE
    for archive in (tarred({}, [sparse]), extension(b"x", b"22 GNU.sparse.major=1\n") + data):
        assert rejection(archive).message.startswith("the archive contains a sparse file, ")


def code_of_rejection(data: bytes) -> str | None:
    """The code of the error for damaged data; any text for data that are a graph after all."""
    try:
        loads(data)
    except InvalidInput as error:
        return error.code
    return "accepted"


@every_kind
def test_every_cut_of_an_archive_is_an_error_with_a_code(pack: Pack) -> None:
    data = pack({"x.graph": GRAPH, "y.bin": bytes(3000)})
    codes = {code_of_rejection(data[:end]) for end in range(1, len(data), 97)}
    assert codes <= {"CFG003", "CFG004", "accepted"}
    assert "CFG003" in codes


@every_kind
def test_changed_bytes_never_end_in_another_error(pack: Pack) -> None:
    data, random = pack({"m/x.graph": GRAPH, "y": b"abc"}), np.random.default_rng(7)
    for _ in range(200):
        changed = bytearray(data)
        for position in random.integers(0, len(data), 3):
            changed[position] = random.integers(0, 256)
        assert code_of_rejection(bytes(changed))


@pytest.mark.parametrize("pack", [zipped, tar_gz])
def test_contents_are_bounded(
    fixtures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: Pack
) -> None:
    monkeypatch.setattr(file_io, "MAX_TRUSTED_BYTES", 1 << 20)
    bomb = pack({"x.graph": b"\n" * (40 << 20)})
    with time_limit(), memory_limit(16 << 20):
        error = rejection(bomb)
    assert (error.code, "unpack to more than" in error.message) == ("CFG002", True)
    saved = tree(fixtures / "saved_model")
    path = tmp_path / "bomb"
    path.write_bytes(pack({**saved, "assets/zeros": bytes(40 << 20)}))
    with pytest.raises(InvalidInput, match="unpack to more than"):
        cfgraph.restore(path)
    monkeypatch.undo()
    with limited(max_memory=1 << 20), pytest.raises(ExecutionError, match="the limit is"):
        loads(pack({"x.graph": GRAPH + b"# text\n" * 500_000}))


def test_many_files_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "_MAX_FILES", 50)
    files = {f"{index}": b"" for index in range(51)}
    for pack in (zipped, tar_gz):
        assert rejection(pack(files)).message == "the archive contains more than 50 files"


def test_a_file_that_is_in_it_twice_is_not_overwritten(fixtures: Path, tmp_path: Path) -> None:
    saved = tree(fixtures / "saved_model")
    path = tmp_path / "twice.tar"
    double = tarfile.TarInfo("variables/variables.index")
    path.write_bytes(tarred(saved, [double]))
    with pytest.raises(InvalidInput, match=r"'variables/variables\.index' is in it twice"):
        cfgraph.restore(path)


def test_a_damaged_archive_is_not_taken_for_a_full_disk(fixtures: Path, tmp_path: Path) -> None:
    path = tmp_path / "hub.tar.gz"
    files = {**tree(fixtures / "saved_model"), "z": bytes(200_000)}
    data = bytearray(gzip.compress(tarred(files)[:-100_000]))
    data[-8] ^= 1  # the checksum, which follows the half of a file
    path.write_bytes(data)
    with pytest.raises(InvalidInput, match=r"the tar\.gz archive is truncated or corrupt: CRC"):
        cfgraph.restore(path)


def test_an_encrypted_archive_says_so() -> None:
    data = bytearray(zipped({"x.graph": GRAPH}))
    entry = data.index(b"PK\x01\x02")
    data[6] |= 1
    data[entry + 8] |= 1
    assert rejection(bytes(data)).message == "the archive is encrypted"


@pytest.mark.parametrize("name", ["mkdtemp", "create_temporary_file"])
def test_a_full_disk_for_temporary_files_is_an_error_with_a_hint(
    fixtures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "hub.tar"
    path.write_bytes(tarred(tree(fixtures / "saved_model")))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    owner = tempfile if name == "mkdtemp" else temporary_folders
    monkeypatch.setattr(owner, name, fail)
    with pytest.raises(UsageError, match="cannot be created: No space left") as caught:
        cfgraph.restore(path)
    assert "$TMPDIR" in str(caught.value.hint)
    assert os.listdir(tmp_path) == ["hub.tar"]


def test_what_is_unpacked_is_removed_at_exit(fixtures: Path, tmp_path: Path) -> None:
    path = tmp_path / "hub.tar.gz"
    path.write_bytes(tar_gz(tree(fixtures / "saved_model")))
    script = "import cfgraph, os, sys; cfgraph.restore(sys.argv[1]); print(os.listdir(sys.argv[2]))"
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    killed = temporary / ".cfgraph-999999999-abcdefgh"
    (killed / "content").mkdir(parents=True)
    os.utime(killed, (0, 0))
    done = subprocess.run(
        [sys.executable, "-c", script, path, temporary],
        env={**os.environ, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ".cfgraph-" in done.stdout
    assert killed.name not in done.stdout
    assert os.listdir(temporary) == []


def test_folders_of_running_processes_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    first = temporary_folders.create_temporary_folder()
    os.utime(first.parent, (0, 0))
    second = temporary_folders.create_temporary_folder()
    assert first.is_dir()
    assert second.is_dir()
    temporary_folders.remove_temporary_folders()
    assert os.listdir(tmp_path) == []
