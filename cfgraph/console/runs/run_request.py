"""The request of a `run`: resolved fetches and feeds, and output files."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Final, Protocol

from cfgraph.analysis.feeds_and_fetches import are_inputs, require_feeds
from cfgraph.cli.run_options import (
    ClockOptions,
    FeedOptions,
    LimitOptions,
    ModelOptions,
    ResultOptions,
)
from cfgraph.cli.transform_options import FetchOptions
from cfgraph.comparison.value_difference import ValueDifference, value_difference
from cfgraph.console.comparison_inputs import (
    VariableSource,
    needed_initializers,
    requested_fetches,
)
from cfgraph.console.graph_files import Source, require_single_stdin
from cfgraph.console.signatures import SignatureNames, signature_names
from cfgraph.console.values import summary_text
from cfgraph.errors import UsageError
from cfgraph.ir.file_io import StagedFiles
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.node import node_name
from cfgraph.runtime.engine.plan import RunSpec
from cfgraph.runtime.engine.step import State
from cfgraph.runtime.feeds.case_files import read_case
from cfgraph.runtime.feeds.conversion import feed_value
from cfgraph.runtime.feeds.parse_feeds import (
    feed_names,
    read_feeds,
    read_value,
    repeated_value_error,
    split_feed,
)
from cfgraph.runtime.fetches import Fetches, calling_node, is_glob
from cfgraph.runtime.preparation.run_config import StepOptions
from cfgraph.runtime.preparation.run_names import ClusterMembers, nodes_of_groups
from cfgraph.runtime.trace.events import TraceEvent
from cfgraph.runtime.trace.export import ChromeWriter, JsonlWriter


class TraceWriter(Protocol):
    """An observer that must be closed."""

    def event(self, event: TraceEvent) -> None:
        """Write one event."""

    def close(self) -> None:
        """Complete the trace: write pending events and the end of the document."""


# late imports: few runs feed other tensors than inputs
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

    def discard(self) -> None:
        """Delete the file under construction."""
        self._files.discard()

    def flush_partial(self) -> bool:
        """Close the trace of a failed run; returns False, and writes nothing, without events."""
        if self._target.tell() == self._head:
            self.discard()
            return False
        self.close()
        return True


def output_paths(outputs: Iterable[str], tensor: Callable[[str], Output]) -> dict[Output, str]:
    """Parse `--out NAME=@FILE.npy` into files per tensor. Raises UsageError for malformed text."""
    paths: dict[Output, str] = {}
    for item, text in options_by_tensor(outputs, tensor, "--out").items():
        paths[item] = _array_path(text)
    return paths


def _array_path(text: str) -> str:
    """The file in `NAME=@FILE.npy`. Raises UsageError for other text."""
    name, value = split_feed(text)
    if not value.startswith("@") or not value.endswith(".npy"):
        raise UsageError(f"invalid --out {text!r}", hint=f"write {name}=@{name}.npy")
    return value[1:]


def _is_tap(resolved: Fetches, name: str) -> bool:
    """True for the name of a tensor inside of a loop or function, or of a pattern."""
    base = node_name(resolved.names.get(name, name))
    if is_glob(base):
        return True
    node = resolved.graph.nodes.get(base)
    if node is None:
        return calling_node(resolved.graph, base) is not None
    return resolved.frames.of_outputs.get(node) not in (None, resolved.frames.root)


def _tap(names: SignatureNames, text: str) -> str:
    """The pattern of one tensor in `TAP=@FILE.npy`."""
    name = split_feed(text)[0]
    complete = names.outputs.get(name, name)
    return complete if complete != node_name(complete) else f"{complete}:0"


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


@dataclass(frozen=True, slots=True)
class ExpectedValues:
    """The values that fetches must have, within tolerances."""

    values: dict[Output, Any]
    rtol: float | None
    atol: float | None

    def differences(self, values: Mapping[Output, Any]) -> dict[Output, ValueDifference]:
        """The fetches with another value."""
        gaps = {
            item: value_difference(values[item], want, self.rtol, self.atol)
            for item, want in self.values.items()
        }
        return {item: gap for item, gap in gaps.items() if gap}


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A resolved run, the arrays of its feeds, expected values, and output files.

    `inits` run first, one after the other; `notes` describe how names were resolved; `labels` are
    the names that a signature gives to tensors, `replaced` tensors of loops and functions that are
    fed. If nothing is named, the outputs of the signature or the graph are fetched, and a dead
    output is not an error.
    """

    spec: RunSpec
    inits: tuple[RunSpec, ...]
    arrays: tuple[Any, ...]
    step: StepOptions
    variables: VariableSource
    expected: ExpectedValues
    output_files: dict[Output, str]
    folder: str | None
    saved_to: str | None
    notes: tuple[str, ...]
    labels: Mapping[Output, str]
    seed: int
    names: SignatureNames
    tap_files: Mapping[str, str]
    replaced: tuple[Output, ...]

    @property
    def nodes(self) -> list[Node]:
        """The nodes that it runs for their values or effects."""
        return [*self.spec.roots, *(node for init in self.inits for node in init.targets)]

    def with_tables(self, state: State | None) -> RunRequest:
        """The request that first fills the tables that it needs, and that `state` has not."""
        spec, roots = self.spec, self.spec.roots
        inits = [node for init in self.inits for node in init.targets]
        nodes = needed_initializers(spec.graph, roots, inits, state, spec.feeds)
        more = [replace(spec, fetches=(), targets=(node,)) for node in nodes]
        return replace(self, inits=(*self.inits, *more))

    def feeds(self) -> list[Any]:
        """The values that one run receives; it may assign to those of variables."""
        graph, fed = self.spec.graph, zip(self.spec.feeds, self.arrays, strict=True)
        return [feed_value(graph, tensor, array) for tensor, array in fed]

    def open_files(self, files: StagedFiles) -> dict[Output, IO[bytes]]:
        """Open the file of each fetch that is written."""
        if self.folder is not None:
            files.make_folder(self.folder)
        return {item: files.open(path) for item, path in self.output_files.items()}

    def state(self, source: Source) -> State | None:
        """The variables before the run that it needs; all of the source if they are saved."""
        # a checkpoint without them could not replace its source
        others, graph = self.saved_to is not None, source.graph
        nodes = [graph.nodes.get(node.name, node) for node in self.nodes]
        return self.variables.state(source, nodes, with_other_variables=others)


def request_seed(feeds: FeedOptions, limits: LimitOptions) -> int:
    """The seed of a run: that of the options, else of a case among the feeds."""
    return limits.seed or read_case(feeds.feeds).seed or 0


@dataclass(frozen=True, slots=True)
class _Outputs:
    """The fetches of a run, and the files and expected values of some."""

    fetches: Fetches
    files: dict[Output, str]
    texts: dict[Output, str]  # of expected values
    tap_files: dict[str, str]
    is_default: bool  # nothing is named

    def in_copy(self, graph: Graph) -> _Outputs:
        """The same outputs of a copy of the graph."""
        files = {graph.tensor(item.name): path for item, path in self.files.items()}
        texts = {graph.tensor(item.name): text for item, text in self.texts.items()}
        return replace(self, fetches=self.fetches.in_copy(graph), files=files, texts=texts)


def _resolve_outputs(
    graph: Graph, fetches: FetchOptions, results: ResultOptions, names: SignatureNames
) -> _Outputs:
    """Resolve the names of outputs; those to write and to compare are fetched, too."""
    resolved = requested_fetches(graph, fetches, names)
    tapped = [text for text in results.out if _is_tap(resolved, split_feed(text)[0])]
    fetched = [text for text in results.out if text not in tapped]
    tap_files = {_tap(names, text): _array_path(text) for text in tapped}

    def tensor(name: str) -> Output:
        return resolved.outside_loops(names.outputs.get(name, name))

    files = output_paths(fetched, tensor)
    texts = options_by_tensor(results.expect, tensor, "expected value")
    resolved.tensors.update(dict.fromkeys((*files, *texts)))
    _require_arrays([*files, *texts])
    is_default = not (resolved.tensors or resolved.targets)
    if is_default:
        resolved.default()
    return _Outputs(resolved, files, texts, tap_files, is_default)


def _with_placeholders(
    graph: Graph, names: SignatureNames, fed_by: Iterable[str]
) -> tuple[Graph, Mapping[str, str], tuple[Output, ...]]:
    """The graph with placeholders for inner feeds, the tensor of each name, what is replaced."""
    full_names = {name: names.inputs.get(name, name) for name in fed_by}
    inner = None
    if not are_inputs(graph, [*full_names.values()]):
        from cfgraph.runtime.preparation.inner_feeds import inner_feeds

        inner = inner_feeds(graph, [*full_names.values()])
    if inner is None:
        return graph, names.inputs, ()
    fed_inside = {name: full for name, full in full_names.items() if full in inner.placeholders}
    placeholders = {name: inner.placeholders[full].name for name, full in fed_inside.items()}
    return inner.graph, names.with_names(placeholders).inputs, inner.replaced


def resolve_request(
    source: Source,
    feeds: FeedOptions,
    fetches: FetchOptions,
    model: ModelOptions,
    results: ResultOptions,
    limits: LimitOptions,
    clock: ClockOptions,
) -> RunRequest:
    """Resolve the options. Raises UsageError if they do not fit the graph."""
    require_single_stdin(source, [*feeds.feed, *results.expect])
    seed, fed_by = request_seed(feeds, limits), feed_names(feeds.feed, feeds.feeds)
    requested = [*fed_by, *results.names, *fetches.fetch, *fetches.target, *model.init]
    graph, groups = ClusterMembers(source.graph).resolve(requested)
    names = signature_names(replace(source, graph=graph), model.signature, model.variables)
    names.require_selected(fed_by)
    outputs = _resolve_outputs(graph, fetches, results, names)
    graph, inputs, replaced = _with_placeholders(graph, names, fed_by)
    if replaced:
        groups, outputs = nodes_of_groups(groups, graph), outputs.in_copy(graph)
    labels, resolved, files = names.labels(graph), outputs.fetches, outputs.files
    if results.out_dir is not None:
        files = {**folder_paths(results.out_dir, resolved.tensors, labels), **files}
    if clock.no_values and (files or outputs.texts):
        message = "--no-values computes no values to write or compare"
        raise UsageError(message, hint="remove --no-values, or --out and --expect")
    arrays = read_feeds(graph, feeds.feed, feeds.feeds, seed, inputs)
    fed = dict.fromkeys(map(graph.tensor, arrays))
    require_feeds(graph, resolved.tensors, resolved.targets, fed.keys(), names.inputs)
    spec = RunSpec(graph, (*resolved.tensors,), (*resolved.targets,), (*fed,), groups=groups)
    init_nodes = [graph[name.removeprefix("^")] for name in model.init]
    return RunRequest(
        spec,
        (*(replace(spec, fetches=(), targets=(node,)) for node in init_nodes),),
        (*arrays.values(),),
        StepOptions(
            max_iterations=limits.max_iterations,
            allow_dead=outputs.is_default,
            until_iteration=clock.until_iteration,
            without_values=clock.no_values,
        ),
        VariableSource(model.variables, limits.allow_io, feeds.feeds),
        _expected_values(graph, outputs.texts, results, seed),
        files,
        results.out_dir,
        model.save_variables,
        tuple(resolved.notes),
        labels,
        seed,
        names,
        outputs.tap_files,
        replaced,
    )


def _expected_values(
    graph: Graph, texts: Mapping[Output, str], results: ResultOptions, seed: int
) -> ExpectedValues:
    """Read the values that `--expect` compares. Raises UsageError if one does not fit."""
    values = {
        item: read_value(split_feed(text)[1], graph, item, f"expected value of {item.name}", seed)
        for item, text in texts.items()
    }
    return ExpectedValues(values, results.rtol, results.atol)


def _require_arrays(tensors: list[Output]) -> None:
    for item in tensors:
        if item.dtype is not None and item.dtype.kind in ("resource", "variant"):
            message = f"{item.name} is a {item.dtype}, which can be neither written nor compared"
            hint = "name a tensor that is computed from it"
            raise UsageError(message, node=item.node, hint=hint, code="CFG034")
