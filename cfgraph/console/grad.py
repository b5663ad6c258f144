"""Add gradients to a graph from a file, compare them if asked, write it, and say what was added."""

from __future__ import annotations

import sys
from typing import Any

from cfgraph.analysis.summary import sinks
from cfgraph.analysis.trainable_inputs import default_xs
from cfgraph.console.answer import print_document
from cfgraph.console.given import NOT_ASKED
from cfgraph.console.grad_check import check_table, checked_copy, print_check
from cfgraph.console.grad_options import Asked, Checked, Written, names_in, values_in
from cfgraph.console.grad_report import Added, added_to, print_added
from cfgraph.console.graphs import (
    STDIN,
    Source,
    artifact,
    read_graph,
    require_apart,
    require_one_stdin,
    write_graph,
)
from cfgraph.console.page import note
from cfgraph.console.verify import Verified
from cfgraph.document import render
from cfgraph.errors import UsageError
from cfgraph.ir.file_io import StagedFiles
from cfgraph.ir.graph import Graph, Output
from cfgraph.ir.names import split_tensor_name
from cfgraph.passes.derivatives import UNCONNECTED, derivatives
from cfgraph.runtime.feeds import read_value


def grad_file(path: str, asked: Asked, checked: Checked, written: Written) -> int:
    """Read a graph, add gradients and write it; returns the exit code.

    That is 1, and nothing is written, where gradients do not agree with finite differences or none
    could be compared, and where the result was to be verified and computes something else.
    Raises UsageError for options that do not fit each other or the graph.
    """
    _require_sense(asked, checked, written)
    source = read_graph(path, quiet=written.quiet)
    feeds = [*checked.feeds] * (checked.wanted + checked.verify)  # the check reads wider numbers
    require_one_stdin(source, [*feeds, *(f"={text}" for text in asked.grad_ys)])
    inputs, graph = [source.to_json()], source.graph
    ys, xs = _tensors(graph, asked)
    wish: dict[str, Any] = {
        "ys": [y.name for y in ys],
        "xs": [x.name for x in xs],
        "grad_ys": _weights(graph, ys, values_in(asked.grad_ys)),
        "stop_gradients": [graph.tensor(name).name for name in names_in(asked.stops)],
        "order": asked.order,
        "unconnected": asked.unconnected,
        "swap_memory": asked.swap_memory,
        "ignore_custom": asked.ignore_custom,
        "recompute": asked.interval,
    }
    copy = checked_copy(source, wish, checked, written.quiet) if checked.wanted else None
    verification = Verified(checked.given) if checked.verify else NOT_ASKED
    verification.before(source, written.quiet)
    before = set(graph.nodes)
    added = added_to(graph, before, derivatives(graph, **wish))
    for text in added.warnings() if asked.xs else ():
        note(f"warning: {text}", written.quiet)
    verdict = verification.after(graph, written.quiet)
    comparisons = copy.compare() if copy is not None else []
    compared = [item for row in comparisons for item in row.values()]
    told = copy is None or any(not item.skipped for item in compared)
    fine = told and all(item.agrees for item in compared) and (verdict is None or bool(verdict))
    files = _write(source, added, written, checked) if fine else []
    if not written.quiet:
        print_added(added)
    print_check(comparisons, written.quiet and fine)
    if written.json:
        print_document(
            "grad",
            inputs=inputs,
            summary=added.summary(),
            result={
                "gradients": added.to_json(),
                "check": check_table(comparisons).to_json() if checked.wanted else None,
                "verify": verdict,
                "warnings": added.warnings(),
            },
            artifacts=files,
            exit_code=int(not fine),
        )
    return int(not fine)


def _require_sense(asked: Asked, checked: Checked, written: Written) -> None:
    if written.json and written.output in (None, STDIN):
        message = "the JSON answer takes standard output"
        raise UsageError(message, hint="say where the graph goes: -o FILE")
    require_apart(written.output, written.map_out, "names")
    if asked.unconnected not in UNCONNECTED:
        message = f"--unconnected is {asked.unconnected!r}"
        raise UsageError(message, hint=f"one of {', '.join(UNCONNECTED)}")
    if checked.is_idle:
        message = "feeds and other inputs are for --check, which is not asked for"
        raise UsageError(message, hint="add --check; or `cfgraph run` the graph with gradients")


def _tensors(graph: Graph, asked: Asked) -> tuple[list[Output], list[Output]]:
    """The ys and the xs. Raises UsageError where there are none."""
    ys = [graph.tensor(name) for name in dict.fromkeys(names_in(asked.ys))]
    if not ys:
        likely = ", ".join(item.name for item in sinks(graph)[:3])
        hint = f"name it with --ys; outputs of the graph are {likely}" if likely else None
        raise UsageError("nothing to differentiate", hint=hint)
    xs = [graph.tensor(name) for name in dict.fromkeys(names_in(asked.xs))] or default_xs(graph)
    if not xs:
        message = "the graph has no variables and no inputs of floats to differentiate by"
        raise UsageError(message, hint="name tensors with --xs")
    return ys, xs


def _weights(graph: Graph, ys: list[Output], texts: list[str]) -> list[Any] | None:
    """A tensor's name or an array for each y. Raises UsageError where their numbers differ."""
    if not texts:
        return None
    if len(texts) != len(ys):
        message = f"{len(texts)} weights (--grad-ys) for {len(ys)} ys"
        raise UsageError(message, hint="one for each y, in their order")
    return [_weight(graph, y, text) for y, text in zip(ys, texts, strict=True)]


def _weight(graph: Graph, y: Output, text: str) -> Any:
    if split_tensor_name(text)[0] in graph:
        return graph.tensor(text).name
    try:
        return read_value(text, graph, y, f"the weight of {y.name}")
    except UsageError as error:
        error.hint = error.hint or "name a tensor of the graph, or write a value as for --feed"
        raise


def _write(
    source: Source, added: Added, written: Written, checked: Checked
) -> list[dict[str, Any]]:
    """Write the graph and the names; the artifacts of the answer."""
    to_terminal = written.output is None and written.to is None and sys.stdout.isatty()
    if checked.wanted and to_terminal:
        return []  # the check was the question
    with StagedFiles() as files:
        if written.map_out is not None:
            files.write(written.map_out, f"{render(added.names())}\n".encode())
        path = write_graph(source.graph, written.output, written.to, files, written.quiet)
    artifacts = [artifact("graph", path)] if path else []
    return artifacts + ([artifact("names", written.map_out)] if written.map_out else [])
