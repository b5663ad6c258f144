"""Golden outputs: `record` writes them, and `diff MODEL golden.npz` compares a model with them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

from cfgraph.cli.json_output import print_document
from cfgraph.cli.output import note, page
from cfgraph.cli.transform_options import ComparedRuns, FetchOptions, RunInputs
from cfgraph.comparison.diff import MATCH_MODES
from cfgraph.comparison.differences import RunDiff, run_findings
from cfgraph.comparison.equivalence import has_output
from cfgraph.comparison.golden import GoldenRuns, read_golden
from cfgraph.console.comparisons.diff import (
    Comparison,
    DiffOptions,
    DiffResult,
    print_diff_result,
    require_diff_options,
)
from cfgraph.console.comparisons.diff_run import (
    archive_bytes,
    print_runs,
    run_side_text,
    runs_report,
    runs_summary,
)
from cfgraph.console.comparisons.run_options import comparison_options
from cfgraph.console.comparisons.tensor_pairs import fetched_name, one_partner_each, pair_recorded
from cfgraph.console.graph_files import Source, artifact, read_graph, require_single_stdin
from cfgraph.console.signatures import SignatureNames, signature_names
from cfgraph.errors import UsageError
from cfgraph.ir.file_io import StagedFiles
from cfgraph.ir.graph import Graph
from cfgraph.ir.names import did_you_mean, first_names
from cfgraph.ir.units import format_byte_size, format_count
from cfgraph.reports import Count, DocumentResult, Record
from cfgraph.runtime.feeds.parse_feeds import SIGNATURES_HINT, read_bytes

SUFFIX = ".npz"
# names that a note lists
_MAX_LISTED = 6


class RecordSummary(Record):
    """The number of recorded cases."""

    cases: Count


class RecordResult(DocumentResult, command="record", summary=RecordSummary):
    """The names of the recorded inputs and outputs."""

    inputs: Sequence[str]
    outputs: Sequence[str]


def _names(source: Source, runs: ComparedRuns) -> SignatureNames:
    return signature_names(source, runs.inputs.signature, runs.inputs.variables)


def _golden_runs(source: Source, runs: ComparedRuns, names: SignatureNames) -> GoldenRuns:
    options = comparison_options(runs, source, names, by_signature=True)
    return GoldenRuns(source.graph, options, names.inputs, _fetched_names(runs, names.outputs))


def _fetched_names(runs: ComparedRuns, outputs: Mapping[str, str]) -> dict[str, str]:
    """The outputs by the names that the fetches use; other tensors have one name each."""
    fetched = {name: outputs[name] for name in runs.fetches.fetch if name in outputs}
    others = {tensor: name for name, tensor in outputs.items() if tensor not in fetched.values()}
    return fetched | {name: tensor for tensor, name in others.items()}


def _require_outputs(
    graph: Graph,
    own: Mapping[str, str],
    names: Mapping[str, str],
    recorded: Sequence[str],
    golden_path: str,
) -> None:
    """Raise UsageError for a recorded output that a model lacks; note those not recorded.

    `own` are the names of the model, `names` also those of paired outputs.
    """
    for name in recorded:
        if name not in names and not has_output(graph, name):
            message = f"the model has no output {name!r}, which {golden_path} has"
            known = f"its outputs: {', '.join(own)}" if own else SIGNATURES_HINT
            known += f"; --fetch {name}=OUTPUT compares another one"
            others = [each for each in own if each not in recorded]
            raise UsageError(message, hint=did_you_mean(name, others) or known)
    compared = {names[name] for name in recorded if name in names}
    if more := [name for name in names if names[name] not in compared]:
        note(f"note: not recorded, and not compared: {first_names(more, _MAX_LISTED)}")


def record(path: str, output: str, runs: ComparedRuns, *, json: bool) -> None:
    """Run a model, and write inputs and outputs. Raises UsageError for another type of file."""
    if not output.endswith(SUFFIX):
        hint = f"name a file such as golden{SUFFIX}"
        raise UsageError(f"golden outputs are an {SUFFIX} file", path=output, hint=hint)
    source = read_graph(path, quiet=True)
    require_single_stdin(source, runs.inputs.feed)
    golden_runs = _golden_runs(source, runs, _names(source, runs))
    golden = golden_runs.record()
    data = archive_bytes(golden.arrays())
    with StagedFiles() as files:
        files.write(output, data)
    if len(golden.cases) < golden_runs.options.cases:
        note("note: nothing is random here, so that all cases are equal: one is recorded")
    case = golden.cases[0]
    result = RecordResult([*case.inputs], [*case.outputs])
    if json:
        summary, written = RecordSummary(len(golden.cases)), [artifact("golden", output)]
        print_document(result, inputs=[source], summary=summary, artifacts=written)
        return
    count, size = format_count(len(golden.cases), "case"), format_byte_size(len(data))
    inputs, outputs = (first_names(names, _MAX_LISTED) for names in (result.inputs, result.outputs))
    note(f"recorded {count} in {output}, {size}: inputs {inputs}; outputs {outputs}")
    note(f"next: cfgraph diff {path} {output}")


def _require_only_outputs(options: DiffOptions) -> None:
    """Raise UsageError for an option that golden outputs leave no use for."""
    inputs = options.runs.inputs
    for name, is_set in (
        ("--by", options.by != MATCH_MODES[0]),
        ("--ignore", options.ignore),
        ("--html", options.write_page),
        ("--node-data", options.node_data),
        ("--feed", inputs.feed),
        ("--feeds", inputs.feeds),
        ("--cases", options.runs.cases.cases),
        ("--size", options.runs.cases.size),
        ("--variables-b", inputs.variables_b),
        ("--target", options.runs.fetches.target),
    ):
        if is_set:
            message = f"{name} has no use with golden outputs, which have inputs of their own"
            raise UsageError(message, hint=f"remove {name}")


def compare_golden(path: str, golden_path: str, options: DiffOptions) -> int:
    """Compare a model with golden outputs; returns the exit code, 1 if they differ."""
    _require_only_outputs(options)
    require_diff_options(DiffOptions(format=options.format))
    golden, source = read_golden(golden_path), read_graph(path, quiet=True)
    runs, fetches_of_b = options.runs.fetched_of_b()
    own = _names(source, runs)
    named = one_partner_each((name, fetched_name(source.graph, own, b)) for name, b in fetches_of_b)
    names, notices = pair_recorded(source.graph, own.with_names({}, named), golden)
    if not runs.fetches.fetch:
        recorded = [*golden.cases[0].outputs]
        _require_outputs(source.graph, own.outputs, names.outputs, recorded, golden_path)
        runs = replace(runs, fetches=FetchOptions(recorded))
    delta = _golden_runs(source, runs, names).compare(golden)
    delta = replace(delta, notices=(*delta.notices, *notices))
    renamed = dict(names.outputs.items() - own.outputs.items())
    fetches = [renamed.get(gap.what, gap.what) for gap in delta.gaps[:_MAX_LISTED]]
    graphs = [source.graph]
    archive = Source(Graph(), golden_path, "npz", read_bytes(golden_path))
    return print_diff_result(
        (archive, source),
        options,
        Comparison(
            differs=bool(delta),
            findings=run_findings(delta, run_side_text),
            document=lambda: (
                DiffResult(runs=runs_report(delta, graphs, options.full)),
                runs_summary(delta),
            ),
            text=lambda: _print(delta, (golden_path, source), options, fetches),
        ),
    )


def _print(
    delta: RunDiff, sides: tuple[str, Source], options: DiffOptions, fetches: Sequence[str]
) -> None:
    golden_path, source = sides
    out = page(options.color)
    if delta:
        out.heading("golden outputs", f"A is {golden_path}, B is {source.path}")
    command = _run_command(source.path, options.runs.inputs, fetches)
    print_runs(out, delta, [source.graph], options.full, command)


def _run_command(path: str, inputs: RunInputs, fetches: Sequence[str]) -> str:
    """The command that computes the outputs that differ, without the inputs of the case."""
    words = ["cfgraph", "run", path, *(f"--init={name}" for name in inputs.init)]
    words += [f"--signature={inputs.signature}"] * (inputs.signature is not None)
    words += [f"--variables={inputs.variables}"] * (inputs.variables is not None)
    words += ["--allow-io"] * inputs.allow_io
    return shlex.join([*words, *(f"--fetch={name}" for name in fetches)])
