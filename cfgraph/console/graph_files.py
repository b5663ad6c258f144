"""Graphs that commands read and write: files, folders, SavedModels, standard streams."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import cfgraph.ops  # noqa: F401 - fills the registry
from cfgraph.cli.json_output import Artifact, InputFile, add_member, render_json
from cfgraph.cli.output import detail, note
from cfgraph.cli.transform_options import STDIN
from cfgraph.errors import InvalidInput, UsageError
from cfgraph.ir.file_io import MANIFEST, SAVED_MODELS, StagedFiles, read_stream
from cfgraph.ir.files import (
    FORMATS,
    decode_graph,
    dropped_field_bytes,
    dumps,
    format_for_path,
    located_error,
    open_graph,
    stage_graph,
    unknown_suffix,
)
from cfgraph.ir.graph import Graph
from cfgraph.ir.node import node_name
from cfgraph.ir.partition_folder import is_partition_folder
from cfgraph.ir.serde.file_contents import file_pieces, file_size, read_graph_file
from cfgraph.ir.serde.saved_model import (
    SavedModelContents,
    SavedSignature,
    StateSources,
    read_contents,
    saved_state,
)
from cfgraph.ir.serde.saved_model_writer import SavedModelOrigin, stage_saved_model
from cfgraph.ir.units import format_byte_size

# late imports: only documents and folders of parts have digests, and the latter manifests
_SAVED_MODEL_FORMATS: Final = ("saved_model", "pbtxt")


@dataclass(frozen=True, slots=True)
class Source:
    """A graph with the path that it was read from, its format, and its bytes."""

    graph: Graph
    path: str
    format: str
    data: bytes

    def sha256(self) -> str:
        """The digest of the file."""
        import hashlib

        digest = hashlib.sha256()
        for piece in file_pieces(self.data):
            digest.update(piece)
        return digest.hexdigest()

    def to_json(self) -> InputFile:
        """Return the entry among the inputs of a document."""
        return InputFile(self.path, self.format, self.sha256(), len(self.graph))


def require_single_stdin(source: Source, texts: Iterable[str]) -> None:
    """Raise UsageError if a graph and `NAME=VALUE` texts read standard input more than once."""
    readers = sum(text.partition("=")[2].strip() == "@-" for text in texts)
    if readers + (source.path == STDIN) > 1:
        raise UsageError("standard input can be read only once", hint="use a file for the other")


def read_graph(path: str, format: str | None = None, quiet: bool = False) -> Source:
    """Read a graph from a file, a SavedModel folder, a folder of partitions, or standard input.

    Raises InvalidInput if there is no graph, UsageError for an empty name or a terminal.
    """
    if not path:
        message = "the name of the graph is empty"
        raise UsageError(message, hint="GRAPH is a file, a folder, or - for standard input")
    start = time.perf_counter()
    in_parts = path != STDIN and is_partition_folder(path)
    data = b"" if in_parts else _read_stdin() if path == STDIN else read_graph_file(path)
    try:
        loaded = open_graph(path, format) if in_parts else decode_graph(data, format)
        data = _bytes_of_parts(Path(path)) if in_parts else data
    except InvalidInput as error:
        raise located_error(error, "standard input" if path == STDIN else path) from None
    if loaded.format in _WRAPPER_MESSAGES:
        note(f"note: {path} is a {_WRAPPER_MESSAGES[loaded.format]}; using the graph in it", quiet)
    source = Source(loaded.graph, path, loaded.format, data)
    add_member("inputs", source)
    size, elapsed = format_byte_size(file_size(data)), (time.perf_counter() - start) * 1e3
    detail(f"read {path}: {loaded.format}, {len(source.graph)} nodes, {size}, {elapsed:.1f} ms")
    return source


_WRAPPER_MESSAGES: Final = {"meta": "MetaGraphDef", "saved_model": "SavedModel"}


def _read_stdin() -> bytes:
    if sys.stdin is None or sys.stdin.isatty():
        hint = "pipe a graph in, or name a file"
        raise UsageError("standard input is a terminal, not a graph", hint=hint)
    return read_stream(sys.stdin.buffer)


def require_distinct_paths(output: str | None, second: str | None, what: str) -> None:
    """Raise UsageError if a graph and a second output would be written to one file."""
    if output and second and Path(output).resolve() == Path(second).resolve():
        raise UsageError(f"the graph and the {what} would be written to the same file", path=second)


def write_graph(
    graph: Graph,
    output: str | None,
    to: str | None,
    files: StagedFiles | None = None,
    source: Source | None = None,
    signatures: Sequence[SavedSignature] = (),
) -> str | None:
    """Write a graph to a file, a folder, or standard output; returns the path.

    A graph derived from the SavedModel `source` is written as one if the output is a folder, with
    changed or added `signatures`. All files appear atomically, or together with `files`; a note
    reports a suffix that names no format. Raises UsageError if a binary graph would be written to a
    terminal.
    """
    if to is not None and to not in FORMATS:
        raise UsageError(f"unknown format {to!r}", hint=f"use one of {', '.join(FORMATS)}")
    if output is not None and source is not None and is_saved_model_output(output, source):
        with StagedFiles() if files is None else nullcontext(files) as staged:
            _stage_saved_model(graph, output, to, staged, source, signatures)
        return output
    if lost := dropped_field_bytes(graph, output_format(output, to)):
        hint = "pb and graph preserve them"
        note(f"note: pbtxt has no form for {lost} bytes of unknown fields; {hint}")
    if output is not None and output != STDIN:
        start = time.perf_counter()
        with StagedFiles() if files is None else nullcontext(files) as staged:
            stage_graph(graph, output, staged, to or format_for_path(output))
        elapsed = (time.perf_counter() - start) * 1e3
        detail(
            f"write {output}: {to or format_for_path(output)}, {len(graph)} nodes, {elapsed:.1f} ms"
        )
        suffix = None if to else unknown_suffix(output)
        if suffix is not None:
            named = "; use .pb, .pbtxt, .graph, or --to"
            note(f"note: {output} is written as binary pb: unknown suffix {suffix}{named}")
        return output
    kind = to or "pb"
    if sys.stdout is None:
        raise UsageError("standard output is closed", hint="write the graph to a file: -o FILE")
    if kind == "pb" and output is None and sys.stdout.isatty():
        hint = "use -o FILE, --to graph for readable text, or -o - to write it anyway"
        raise UsageError("refusing to write a binary graph to the terminal", hint=hint)
    sys.stdout.buffer.write(dumps(graph, kind))
    sys.stdout.buffer.flush()
    return None


def is_saved_model_output(output: str, source: Source) -> bool:
    """True if the output is a folder, and its source a SavedModel: the output is one too."""
    is_folder = output.endswith(("/", os.sep)) or os.path.isdir(output)
    is_saved_model = source.format in _SAVED_MODEL_FORMATS and saved_model_contents(source)
    return bool(is_folder and is_saved_model and not is_partition_folder(output))


def _stage_saved_model(
    graph: Graph,
    folder: str,
    to: str | None,
    files: StagedFiles,
    source: Source,
    signatures: Sequence[SavedSignature],
) -> None:
    if to not in (None, "pb"):
        message = f"a SavedModel is not written as {to}"
        raise UsageError(message, hint=f"omit --to; or name a file: -o FILE.{to}")
    origin = SavedModelOrigin(source.data, saved_model_folder(source))
    omitted = stage_saved_model(graph, folder, origin, files, signatures=signatures)
    for name in omitted:
        note(f"note: signature {name!r} is omitted: the graph lacks one of its tensors")


def json_bytes(value: Any) -> bytes:
    """The content of a JSON file."""
    return f"{render_json(value)}\n".encode()


def output_format(output: str | None, to: str | None) -> str:
    """Return the format that a graph is written in."""
    return to or (format_for_path(output) if output not in (None, STDIN) else "pb")


def artifact(kind: str, path: str) -> Artifact:
    """Return the entry of a written file in a document."""
    return Artifact(kind, path, _file_digest(path))


def output_artifacts(graph: str | None, kind: str, second: str | None) -> list[Artifact]:
    """Return the artifacts of a written graph and a second file; a path of None is omitted."""
    artifacts = [artifact("graph", graph)] if graph else []
    return artifacts + ([artifact(kind, second)] if second else [])


def _file_digest(path: str) -> str:
    """Return the digest of a file or SavedModel, or of the manifest and parts of a folder."""
    import hashlib

    folder = Path(path)
    if is_partition_folder(folder):
        return hashlib.sha256(_bytes_of_parts(folder)).hexdigest()
    with open(folder / SAVED_MODELS[0] if folder.is_dir() else folder, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _bytes_of_parts(folder: Path) -> bytes:
    import json

    manifest = (folder / MANIFEST).read_bytes()
    names = [entry["file"] for entry in json.loads(manifest)["parts"]]
    return manifest + b"".join((folder / name).read_bytes() for name in names)


def saved_model_contents(source: Source) -> SavedModelContents | None:
    """Return signatures, saver, and initializer of a SavedModel, or None for any other graph."""
    return read_contents(source.data) if source.format in _SAVED_MODEL_FORMATS else None


def saved_model_state_of(source: Source) -> StateSources | None:
    """Return the sources of the state of a SavedModel, or None if there are none."""
    if source.path == STDIN:
        return None
    return saved_state(source.path, saved_model_contents(source))


def saved_model_folder(source: Source) -> str | None:
    """Return the folder of a SavedModel, or None for any other graph."""
    path = Path(source.path)
    if source.format not in _SAVED_MODEL_FORMATS or source.path == STDIN:
        return None
    if path.is_dir():
        return source.path
    return str(path.parent) if path.name.removesuffix(".gz") in SAVED_MODELS else None


def saved_model_assets(source: Source) -> dict[str, str]:
    """Return the paths of the assets of a SavedModel by the nodes that are fed with them.

    A file outside of its folder of assets, or of a name that no file can have, is none.
    """
    contents, folder = saved_model_contents(source), saved_model_folder(source)
    if contents is None or folder is None:
        return {}
    assets = Path(folder, "assets")
    paths = {
        node_name(asset.tensor): assets / asset.filename
        for asset in contents.assets
        if "\0" not in asset.filename
    }
    inside = assets.resolve()
    return {name: str(path) for name, path in paths.items() if inside in path.resolve().parents}


def saved_variables_note(source: Source) -> str:
    """Describe how a run, and runs of derived graphs, get their variables."""
    saved = saved_model_state_of(source)
    if saved is None or saved.saver is None:
        return "note: the SavedModel contains no variable values"
    return (
        f"note: a run restores the variables from {saved.origin};\n"
        f"  for graphs derived from this one use --variables {source.path}"
    )
