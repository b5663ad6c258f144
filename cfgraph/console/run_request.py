"""The request of a `run`: resolved fetches and feeds, and output files."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Final, Protocol

import numpy as np

from cfgraph.analysis.feeds_and_fetches import require_feeds
from cfgraph.cli.run_options import FeedFetchOptions
from cfgraph.console.graph_files import Source, require_single_stdin
from cfgraph.console.signatures import signature_names
from cfgraph.console.values import summary_text
from cfgraph.errors import UsageError
from cfgraph.ir.file_io import StagedFiles
from cfgraph.ir.graph import Node, Output
from cfgraph.runtime.engine.plan import RunSpec
from cfgraph.runtime.feeds.conversion import feed_value
from cfgraph.runtime.feeds.parse_feeds import (
    read_feeds,
    read_value,
    repeated_value_error,
    split_feed,
)
from cfgraph.runtime.fetches import Fetches
from cfgraph.runtime.run_names import ClusterMembers
from cfgraph.runtime.trace.events import TraceEvent
from cfgraph.runtime.trace.export import ChromeWriter, JsonlWriter


class TraceWriter(Protocol):
    """An observer that must be closed."""

    def event(self, event: TraceEvent) -> None:
        """Write one event."""

    def close(self) -> None:
        """Complete the trace: write pending events and the end of the document."""


_TRACE_WRITERS: Final[dict[str, Callable[[IO[bytes], Callable[[Any], str]], TraceWriter]]] = {
    ".json": ChromeWriter,
    ".jsonl": JsonlWriter,
}


class TraceFile:
    """A trace file under construction; the suffix selects the format, `.gz` compresses.

    Raises UsageError for an unknown suffix, and for a file that another output uses.
    """

    deferred = True

    def __init__(self, path: str, other_files: Iterable[str] = ()) -> None:
        self.path = path
        kind = Path(path.removesuffix(".gz")).suffix
        if kind not in _TRACE_WRITERS:
            hint = "use FILE.json (Perfetto, Chrome) or FILE.jsonl, optionally with .gz"
            raise UsageError(f"unknown trace format: {path!r}", hint=hint)
        if os.path.realpath(path) in map(os.path.realpath, other_files):
            raise UsageError("two outputs have the same path", path=path)
        self._files = StagedFiles()
        file = self._files.open(path)
        self._gzip: gzip.GzipFile | None = None
        target: Any = file
        if path.endswith(".gz"):
            self._gzip = target = gzip.GzipFile("", "wb", 6, file, mtime=0)
        self._writer = _TRACE_WRITERS[kind](target, summary_text)
        self._target, self._head = target, target.tell()
        self.event = self._writer.event

    def close(self) -> None:
        """Finish the file and make it visible."""
        with self._files:
            self._writer.close()
            if self._gzip is not None:
                self._gzip.close()

    def flush_partial(self) -> bool:
        """Close the trace of a failed run; returns False, and writes nothing, without events."""
        if self._target.tell() == self._head:
            self._files.discard()
            return False
        self.close()
        return True


def output_paths(outputs: Iterable[str], tensor: Callable[[str], Output]) -> dict[Output, str]:
    """Parse `--out NAME=@FILE.npy` into files per tensor. Raises UsageError for malformed text."""
    paths: dict[Output, str] = {}
    for item, text in options_by_tensor(outputs, tensor, "--out").items():
        name, value = split_feed(text)
        if not value.startswith("@") or not value.endswith(".npy"):
            raise UsageError(f"invalid --out {text!r}", hint=f"write {name}=@{name}.npy")
        paths[item] = value[1:]
    return paths


def options_by_tensor(
    options: Iterable[str], tensor: Callable[[str], Output], subject: str
) -> dict[Output, str]:
    """Group options `NAME=VALUE` by tensor. Raises UsageError for two of one tensor."""
    texts: dict[Output, str] = {}
    for text in options:
        item = tensor(split_feed(text, subject)[0])
        if item in texts:
            raise repeated_value_error(subject, item, texts[item], text)
        texts[item] = text
    return texts


def folder_paths(
    folder: str, tensors: Iterable[Output], labels: Mapping[Output, str] | None = None
) -> dict[Output, str]:
    """Name one file per tensor in a folder: `a_b.npy` for `a/b:0`, `a_b_1.npy` for `a/b:1`.

    A tensor with a label is named by it.
    """
    labels = labels or {}
    used: dict[str, Output] = {}
    for item in tensors:
        # no node name may lead out of the folder
        full = labels.get(item) or item.node.name + (f"_{item.port}" if item.port else "")
        name = base = full.replace("/", "_")
        number = 1
        while name in used:
            number += 1
            name = f"{base}_{number}"
        used[name] = item
    return {item: str(Path(folder) / f"{name}.npy") for name, item in used.items()}


def write_array(file: IO[bytes], item: Output, value: Any) -> None:
    """Write an array as .npy, strings as bytes. Raises UsageError for resources and variants."""
    array = np.asarray(value)
    if array.dtype == object:
        if not all(isinstance(entry, bytes) for entry in array.flat):
            raise UsageError(f"{item.name} cannot be stored in a file")
        array = _bytes_array(array)
    elif array.dtype.kind == "V" or array.dtype.name.startswith("float8"):
        # the .npy format has no name for these types
        array = array.view(f"V{array.dtype.itemsize}")
    np.save(file, array, allow_pickle=False)


def _bytes_array(array: Any) -> Any:
    """Convert strings to fixed length; rejects trailing zero bytes, which NumPy drops."""
    fixed = array.astype(np.bytes_) if array.size else np.zeros(array.shape, "S1")
    if any(have != want for have, want in zip(fixed.flat, array.flat, strict=True)):
        message = "a string that ends in zero bytes cannot be stored in .npy"
        raise UsageError(message, hint="print it with --json")
    return fixed


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A resolved run, the arrays of its feeds, expected values, and output files.

    `inits` run first, one after the other; `notes` describe how names were resolved; `labels` are
    the names that a signature gives to tensors. If nothing is named, the outputs of the signature
    or the graph are fetched, and a dead output is not an error.
    """

    spec: RunSpec
    inits: tuple[RunSpec, ...]
    arrays: tuple[Any, ...]
    expected: dict[Output, Any]
    output_files: dict[Output, str]
    allow_dead: bool
    notes: tuple[str, ...] = ()
    labels: Mapping[Output, str] = field(default_factory=dict)

    @property
    def nodes(self) -> list[Node]:
        """The nodes that it runs for their values or effects."""
        return [*self.spec.roots, *(node for init in self.inits for node in init.targets)]

    def feeds(self) -> list[Any]:
        """The values that one run receives; it may assign to those of variables."""
        graph, fed = self.spec.graph, zip(self.spec.feeds, self.arrays, strict=True)
        return [feed_value(graph, tensor, array) for tensor, array in fed]


def resolve_request(
    source: Source, wanted: FeedFetchOptions, expectations: Sequence[str], seed: int
) -> RunRequest:
    """Resolve the options. Raises UsageError if they do not fit the graph."""
    require_single_stdin(source, [*wanted.feed, *expectations])
    graph, groups = ClusterMembers(source.graph).resolve(_requested_names(wanted, expectations))
    names = signature_names(replace(source, graph=graph), wanted.signature, wanted.variables)
    fed_names = [split_feed(text)[0] for text in wanted.feed if not text.startswith("@")]
    names.require_selected(graph, [*wanted.fetch, *fed_names])
    labels = names.labels(graph)
    resolved = Fetches(graph, names.outputs)
    for name in wanted.fetch:
        resolved.fetch(name)
    for name in wanted.target:
        resolved.target(name)
    output_files = output_paths(wanted.out, resolved.outside_loops)
    compared = options_by_tensor(expectations, resolved.outside_loops, "expected value")
    resolved.tensors.update(dict.fromkeys((*output_files, *compared)))
    _require_arrays([*output_files, *compared])
    nothing_named = not (resolved.tensors or resolved.targets)
    if nothing_named:
        resolved.default()
    if wanted.out_dir is not None:
        folder_files = folder_paths(wanted.out_dir, resolved.tensors, labels)
        output_files = {**folder_files, **output_files}
    arrays = read_feeds(graph, wanted.feed, wanted.feeds, seed, names.inputs)
    fed = dict.fromkeys(map(graph.tensor, arrays))
    require_feeds(graph, resolved.tensors, resolved.targets, fed.keys(), names.inputs)
    expected = {
        item: read_value(split_feed(text)[1], graph, item, f"expected value of {item.name}", seed)
        for item, text in compared.items()
    }
    fetches, targets = tuple(resolved.tensors), tuple(resolved.targets)
    spec = RunSpec(graph, fetches, targets, tuple(fed), groups=groups)
    nodes = [graph[name.removeprefix("^")] for name in wanted.init]
    return RunRequest(
        spec,
        tuple(replace(spec, fetches=(), targets=(node,)) for node in nodes),
        tuple(arrays.values()),
        expected,
        output_files,
        allow_dead=nothing_named,
        notes=tuple(resolved.notes),
        labels=labels,
    )


def _requested_names(wanted: FeedFetchOptions, expectations: Sequence[str]) -> list[str]:
    """Return all names of tensors and nodes in the options."""
    texts = [*wanted.feed, *wanted.out, *expectations]
    return [
        *(text.partition("=")[0] for text in texts),
        *wanted.fetch,
        *wanted.target,
        *wanted.init,
    ]


def _require_arrays(tensors: list[Output]) -> None:
    for item in tensors:
        if item.dtype is not None and item.dtype.kind in ("resource", "variant"):
            message = f"{item.name} is a {item.dtype}, which can be neither written nor compared"
            hint = "name a tensor that is computed from it"
            raise UsageError(message, node=item.node, hint=hint, code="CFG034")
