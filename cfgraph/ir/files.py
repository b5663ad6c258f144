"""Load and save graphs: the format is found from the content, and writes are atomic."""

from __future__ import annotations

import gzip
import io
import os
import re
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cfgraph.errors import InvalidInput, UsageError
from cfgraph.ir import serde, serde_formats, text
from cfgraph.ir.graph import Graph, did_you_mean

FORMATS: Final = ("pb", "pbtxt", "graph")
MAX_BYTES: Final = 2 << 30
_GZIP: Final = b"\x1f\x8b"
_PBTXT: Final = re.compile(rb"\s*(#[^\n]*\n\s*)*[A-Za-z_]\w*\s*[:{<]")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A graph with what its file was: `pb`, `pbtxt`, `graph`, `meta` or `saved_model`."""

    graph: Graph
    format: str
    size: int


def load(path: str | os.PathLike[str]) -> Graph:
    """Read a graph from a file, or from the folder of a SavedModel.

    Raises InvalidInput where the file is missing, unreadable or holds no graph.
    """
    return open_graph(path).graph


def loads(data: bytes, format: str | None = None) -> Graph:
    """Read a graph from bytes; the format is found from them unless it is given.

    Raises InvalidInput where they hold no graph.
    """
    return decode(data, format).graph


def open_graph(path: str | os.PathLike[str], format: str | None = None) -> Loaded:
    """Read a graph, and say what kind of file it was. Raises like `load`."""
    try:
        return decode(read_file(path), format)
    except InvalidInput as error:
        error.path = error.path or str(path)
        raise


def read_file(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a graph file, or of the graph in a SavedModel's folder. Raises InvalidInput."""
    path = Path(path)
    if path.is_dir():
        path = path / "saved_model.pb"
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise InvalidInput(f"the file has {size} bytes, at most {MAX_BYTES}", code="CFG002")
        return path.read_bytes()
    except FileNotFoundError:
        hint = _similar(path)
        raise InvalidInput("no such file", path=path, hint=hint, code="CFG001") from None
    except OSError as error:
        message = f"the file cannot be read: {error.strerror}"
        raise InvalidInput(message, path=path, code="CFG001") from None


def _similar(path: Path) -> str | None:
    if not path.parent.is_dir():
        return None
    return did_you_mean(path.name, (item.name for item in path.parent.iterdir()))


def decode(data: bytes, format: str | None = None) -> Loaded:
    """Read a graph from bytes, and say what kind they were. Raises like `loads`."""
    size = len(data)
    if data[:2] == _GZIP:
        data = _decompress(data)
    if not data:
        raise InvalidInput("the file is empty", code="CFG002")
    if format is not None and format not in FORMATS:
        message = f"unknown format {format!r}"
        raise UsageError(message, hint=f"one of {', '.join(FORMATS)}")
    kind = format or _text_format(data)
    if kind in ("pbtxt", "graph"):
        return Loaded(_from_text(data, kind), kind, size)
    proto, kind = serde_formats.from_binary(data)
    return Loaded(serde.graph_from_proto(proto), kind, size)


def _decompress(data: bytes) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidInput(f"the gzip data is damaged: {error}", code="CFG003") from None
    if len(content) > MAX_BYTES:
        message = f"the file unpacks to more than {MAX_BYTES} bytes"
        raise InvalidInput(message, code="CFG002")
    return content


def _text_format(data: bytes) -> str | None:
    """`pbtxt` or `graph` where the data is text, else None."""
    head = data[:4096]
    if any(byte < 32 and byte not in b"\t\n\r\f" for byte in head):
        return None
    return "pbtxt" if _PBTXT.match(data[:65536]) else "graph"


def _from_text(data: bytes, kind: str) -> Graph:
    try:
        content = data.decode()
    except UnicodeDecodeError as error:
        message = f"the text is not UTF-8: byte {error.start} is {data[error.start]:#04x}"
        raise InvalidInput(message, code="CFG004") from None
    if kind == "graph":
        return text.parse_graph(content)
    return serde.graph_from_proto(serde_formats.from_pbtxt(content))


def format_of(path: str | os.PathLike[str]) -> str:
    """The format that a file's name asks for when it is written: `pb` unless it says otherwise."""
    name = str(path).removesuffix(".gz")
    if name.endswith((".pbtxt", ".pb.txt")):
        return "pbtxt"
    return "graph" if name.endswith(".graph") else "pb"


def dumps(graph: Graph, format: str = "pb") -> bytes:
    """The bytes of a graph as `pb`, `pbtxt` or `graph`. Raises UsageError for another format."""
    if format == "pb":
        return serde.graph_to_bytes(graph)
    if format == "pbtxt":
        return serde_formats.to_pbtxt(serde.graph_to_proto(graph))
    if format == "graph":
        return text.print_graph(graph).encode()
    message = f"unknown format {format!r}"
    raise UsageError(message, hint=f"one of {', '.join(FORMATS)}")


def save(graph: Graph, path: str | os.PathLike[str], format: str | None = None) -> None:
    """Write a graph; the suffix says the format, `.gz` compresses. The file is whole or not there.

    Raises UsageError where the file cannot be written.
    """
    data = dumps(graph, format or format_of(path))
    if str(path).endswith(".gz"):
        data = gzip.compress(data, mtime=0)
    write_atomically(path, data)


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file whole or not at all. Raises UsageError where that is not possible."""
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        target.write_bytes(data)
        return
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise UsageError(f"cannot write: {error.strerror}", path=path) from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.chmod(name, _mode(target))
        os.replace(name, target)
    except BaseException as error:
        os.unlink(name)
        if isinstance(error, OSError):
            raise UsageError(f"cannot write: {error.strerror}", path=path) from None
        raise


def _mode(target: Path) -> int:
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
