"""Comparison of two graphs by running both: inputs, report, and the `diff --run` command."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from cfgraph.analysis.findings import Finding
from cfgraph.cli.options import split_list
from cfgraph.cli.output import Page, page
from cfgraph.cli.transform_options import ComparedRuns
from cfgraph.compare.diff import diff
from cfgraph.compare.differences import Change, Divergence, RunDiff, ValueMismatch, run_findings
from cfgraph.compare.equivalence import (
    DEFAULT_CASES,
    ComparisonRunOptions,
    compare_runs,
    first_race,
)
from cfgraph.compare.sample_point import DimensionSizes, SampleOptions
from cfgraph.console.comparison_inputs import VariableSource, prepare_inputs, requested_fetches
from cfgraph.console.comparisons.diff import (
    DiffOptions,
    DiffResult,
    SourcePair,
    changes_json,
    print_changes,
    print_diff_result,
)
from cfgraph.console.graph_files import Source, require_single_stdin, saved_model_folder
from cfgraph.console.signatures import SignatureNames, signature_names
from cfgraph.console.values import summary_text, type_text, value_json, value_text
from cfgraph.errors import UsageError
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.names import first_names
from cfgraph.ir.node import node_name

_MAX_SIZE_DIGITS: Final = 10


def comparison_options(
    runs: ComparedRuns,
    source: Source,
    names: SignatureNames | None = None,
    *,
    by_signature: bool = False,
) -> ComparisonRunOptions:
    """Resolve runs for a graph. Raises UsageError for options that do not fit it.

    With `by_signature`, or a signature that is named, the default fetches are its outputs.
    """
    graph, inputs, cases = source.graph, runs.inputs, runs.cases
    names = names or signature_names(source, inputs.signature, inputs.variables)
    request = requested_fetches(graph, runs.fetches, names)
    if (by_signature or inputs.signature is not None) and not runs.fetches.is_set:
        request.default()
    named = [*(item.node for item in request.tensors), *request.targets]
    prepared = prepare_inputs(inputs, source, names, named or None)
    setting = SampleOptions(
        prepared.feeds,
        prepared.inits,
        read_sizes(graph, cases.size, names.inputs),
        prepared.max_iterations,
        state=prepared.state,
        io=prepared.io,
    )
    return ComparisonRunOptions(
        setting,
        tuple(item.name for item in request.tensors),
        tuple(node.name for node in request.targets),
        DEFAULT_CASES if cases.cases is None else cases.cases,
        prepared.seed,
        cases.rtol,
        cases.atol,
    )


def read_sizes(
    graph: Graph, texts: Iterable[str], names: Mapping[str, str] | None = None
) -> DimensionSizes:
    """Parse sizes of unknown dimensions: `4` for all, `x=4` or `x=4,8` for one tensor.

    `names` are further names of tensors, which take precedence.

    Raises UsageError for malformed text, and for two texts of a tensor or of all.
    """
    names, first = names or {}, dict[str, str]()
    by_name: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, sign, numbers = text.rpartition("=")
        sizes = tuple(_parse_size(text, number) for number in split_list(numbers))
        if not sizes or not (sign or len(sizes) == 1):
            raise _size_error(text)
        subject = graph.tensor(names.get(name, name)).name if sign else ""
        if subject in by_name:
            message = f"two values of --size: {first[subject]} and {text}"
            raise UsageError(message, hint="remove one of them")
        by_name[subject], first[subject] = sizes, text
    (default,) = by_name.pop("", (DimensionSizes().default,))
    return DimensionSizes(default, by_name)


def _parse_size(text: str, number: str) -> int:
    if not (number.isascii() and number.isdigit() and len(number) < _MAX_SIZE_DIGITS):
        raise _size_error(text)
    return int(number)


def _size_error(text: str) -> UsageError:
    return UsageError(f"invalid --size {text}", hint="write --size 4 or --size x=4,8")


MAX_DIFFERENCES: Final = 10
_MAX_FEED_ELEMENTS: Final = 32
_MAX_LISTED: Final = 4


def print_runs(out: Page, delta: RunDiff, graphs: Sequence[Graph], full: bool = False) -> None:
    """Print the differences, the first diverging node, and the inputs, or report equality."""
    if delta.lowered:
        out.line(
            "A was lowered before the run: not all of its functions can be called directly",
            "yellow",
        )
        out.line("  mistakes of lowering itself are therefore not detected")
    _print_races(out, delta.races)
    for name in delta.missing:
        out.line(f"{name}: missing in B", "red")
    if not delta:
        out.line(f"no differences: {_agreement_text(delta)}", "green")
        return
    if not delta.gaps and not delta.failure:
        out.line(f"everything else agrees: {_agreement_text(delta)}", "dim")
        return
    for gap in delta.gaps if full else delta.gaps[:MAX_DIFFERENCES]:
        _print_difference(out, gap)
    if len(delta.gaps) > MAX_DIFFERENCES and not full:
        out.line(f"and {len(delta.gaps) - MAX_DIFFERENCES} more; --full prints them", "dim")
    if delta.failure is not None:
        out.line(out.wrapped(f"B fails: {delta.failure.message}"), "red")
        if where := delta.failure.where():
            out.line(f"  at {where}")
        for line in (delta.failure.hint or "").splitlines():
            out.line(f"  {line}", "dim")
    print_first_divergence(out, delta.first, graphs)
    inputs = "".join(f" --feed {shlex.quote(_feed_text(*item))}" for item in delta.inputs.items())
    out.line(f"found in case {delta.cases}{inputs and ', with'}{inputs}", "dim")


def _print_races(out: Page, races: Mapping[str, Finding]) -> None:
    if races:
        names = first_names([name.removeprefix("^") for name in races], _MAX_LISTED)
        text = f"not compared: {names}; two runs of A itself may differ: {first_race(races)}"
        out.spans([(out.wrapped(text), "yellow")])


def _agreement_text(delta: RunDiff) -> str:
    count = len(delta.fetches)
    what = f"{count} fetch{'es' * (count != 1)}" if count else "the runs"
    verb = "agrees" if count == 1 else "agree"
    return f"{what} {verb} in {delta.cases} case{'s' * (delta.cases != 1)}"


def _print_difference(out: Page, gap: ValueMismatch) -> None:
    out.line(f"{gap.what}: {gap.message}", "red")
    _print_sides(out, gap.before, gap.after)


def _print_sides(out: Page, before: Any, after: Any) -> None:
    if before is not None or after is not None:
        sides = (f"{name} {run_side_text(value)}" for name, value in (("A", before), ("B", after)))
        out.line(f"  {', '.join(sides)}")


def run_side_text(value: Any) -> str:
    """Format a value that one of the graphs computed."""
    return "no value" if value is None else summary_text(value)


def _feed_text(name: str, value: Any) -> str:
    """Return a feed to paste; a large value is replaced by its type."""
    large = np.size(value) > _MAX_FEED_ELEMENTS
    return f"{name.removesuffix(':0')}={type_text(value) if large else value_text(value)}"


def print_first_divergence(out: Page, first: Divergence | None, graphs: Sequence[Graph]) -> None:
    """Print the first diverging node, and how it differs between the graphs."""
    if first is None:
        out.line("no earlier node that both graphs contain diverges", "dim")
        return
    port = "" if first.port is None else f", output {first.port}"
    out.spans(
        [
            ("first diverging node: ", "bold"),
            (f"{first.node} ({first.op}){_divergence_location(first)}", ""),
        ]
    )
    out.line(f"  {first.message}{port}")
    _print_sides(out, first.before, first.after)
    print_changes(out, node_changes(first.node, graphs), "  ")


def _divergence_location(first: Divergence) -> str:
    inside = first.frame != "/"
    return f" in {first.frame}, iteration {first.iteration}" if inside else ""


def node_changes(name: str, graphs: Sequence[Graph]) -> tuple[Change, ...]:
    """Return the structural differences of a node that both graphs contain."""
    changed = diff(*graphs, ignore=["notes", "order", "devices"]).nodes.changed
    return next((item.changes for item in changed if item.before.name == name), ())


def runs_summary(delta: RunDiff) -> dict[str, int]:
    """Return the number of fetches, cases, and differences."""
    differ = len(delta.missing) + len(delta.gaps) + (delta.failure is not None)
    return {"fetches": len(delta.fetches), "cases": delta.cases, "differences": differ}


def runs_json(delta: RunDiff, graphs: Sequence[Graph], full: bool = False) -> dict[str, Any]:
    """Return the comparison as a member of a JSON document."""
    first = delta.first
    return {
        "equal": not delta,
        "cases": delta.cases,
        "fetches": delta.fetches,
        "not_in_b": delta.missing,
        "not_compared": list(delta.races),
        "lowered": delta.lowered,
        "differences": [
            {
                "what": gap.what,
                "message": gap.message,
                "a": _run_side_json(gap.before, full),
                "b": _run_side_json(gap.after, full),
            }
            for gap in delta.gaps
        ],
        "failure": delta.failure.to_json() if delta.failure else None,
        "first": None
        if first is None
        else {
            **first.to_json(),
            "a": _run_side_json(first.before, full),
            "b": _run_side_json(first.after, full),
            "changes": changes_json(node_changes(first.node, graphs)),
        },
        "inputs": {name: value_json(value, full) for name, value in delta.inputs.items()},
    }


def _run_side_json(value: Any, full: bool) -> Any:
    return None if value is None else value_json(value, full)


def compare_by_run(sources: SourcePair, options: DiffOptions) -> int:
    """Compare the values that two graphs compute."""
    for source in sources:
        require_single_stdin(source, options.runs.inputs.feed)
    graphs = sources[0].graph, sources[1].graph
    delta = compare_runs(*graphs, _pair_options(sources, options))
    if options.node_data:
        options.node_data.write_runs(sources, delta)
    return print_diff_result(
        sources,
        options,
        DiffResult(
            differs=bool(delta),
            findings=run_findings(delta, run_side_text),
            document=lambda: {
                "summary": runs_summary(delta),
                "result": {"structure": None, "runs": runs_json(delta, graphs, options.full)},
            },
            text=lambda: print_runs(page(options.color), delta, graphs, options.full),
        ),
    )


def _pair_options(sources: SourcePair, options: DiffOptions) -> ComparisonRunOptions:
    """Resolve the options; variables stored with only one graph are used for both."""
    first = comparison_options(options.runs, sources[0])
    io = first.setting.io.with_roots(*filter(None, [saved_model_folder(sources[1])]))
    first = replace(first, setting=replace(first.setting, io=io))
    if options.runs.inputs.variables is not None:
        return first
    graph = sources[1].graph
    second = VariableSource(allow_io=options.runs.inputs.allow_io).state(
        sources[1], _requested_nodes(graph, first)
    )
    if first.setting.state is None:
        return replace(first, setting=replace(first.setting, state=second))
    return replace(first, state_of_b=second)


def _requested_nodes(graph: Graph, request: ComparisonRunOptions) -> list[Node] | None:
    """Return the nodes that a request names, or None if it names no fetch or target."""
    names = [*request.fetches, *request.targets, *request.setting.inits]
    nodes = [graph.nodes.get(node_name(name)) for name in names]
    restricted = request.fetches or request.targets
    return [node for node in nodes if node is not None] if restricted else None
