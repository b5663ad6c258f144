"""Groups of options that commands share: what they write, and the runs that they compare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final, Self

import typer

from cfgraph.cli import options
from cfgraph.cli.option_groups import OptionGroup
from cfgraph.errors import UsageError

STDIN: Final = "-"


class OutputOptions(OptionGroup):
    """Destination of a graph and of a second file about it, and the format of the report."""

    output: options.Output = None
    to: options.To = None
    map_out: options.MapOut = None
    json: options.Json = False

    def require_separate_json(self) -> None:
        """Raise UsageError if the graph and the JSON document would share standard output."""
        if self.json and self.output in (None, STDIN):
            message = "the JSON document is written to standard output"
            raise UsageError(message, hint="write the graph to a file: -o FILE")


class FolderOutput(OutputOptions):
    """Destination of a graph that may be a folder of partitions."""

    output: options.OutputOrFolder = None
    map_out: str | None = None


class GradientOutput(OutputOptions):
    """Destination of a graph with gradients, and of a map of their names."""

    map_out: Annotated[
        str | None,
        typer.Option(
            "--map-out",
            metavar="FILE",
            help="Write a JSON map from each x to its gradients.",
            rich_help_panel=options.ADVANCED,
        ),
    ] = None


class ReducedOutput(OutputOptions):
    """Destination of a reduced graph."""

    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write the smallest graph so far to FILE, each time that there is a smaller one.",
        ),
    ] = None
    map_out: str | None = None


class FetchOptions(OptionGroup):
    """Tensors to fetch, and nodes to run."""

    fetch: options.Fetch = field(default_factory=list)
    target: options.Target = field(default_factory=list)


class PairFetchOptions(FetchOptions):
    """Tensors to fetch from two graphs, and nodes to run."""

    fetch: options.FetchPair = field(default_factory=list)


class RunInputs(OptionGroup):
    """Inputs, variables, and limits of a run, as the user wrote them.

    Its sub-classes declare those that a command has.
    """

    feed: Sequence[str] = ()
    feeds: Sequence[str | Mapping[str, Any]] = ()
    init: Sequence[str] = ()
    signature: str | None = None
    variables: str | None = None
    variables_b: str | None = None
    allow_io: bool = False
    seed: int | None = None
    max_iterations: int | None = None


class ModelInputs(RunInputs):
    """Initializers and variables of runs, arrays to feed, and names of a signature."""

    init: options.Init = field(default_factory=list)
    signature: options.Signature = None
    variables: options.Variables = None
    allow_io: options.AllowIo = False
    feeds: options.Feeds = field(default_factory=list)


class FedInputs(ModelInputs):
    """Inputs of runs in a command whose pass feeds no tensors."""

    feed: options.Feed = field(default_factory=list)


class LimitedInputs(FedInputs):
    """Inputs of the runs of `extract` and `reduce`."""

    max_iterations: options.MaxIterations = None


class ExplainInputs(LimitedInputs):
    """Inputs of the run that `explain` describes."""

    seed: options.Seed = 0


class SeededInputs(LimitedInputs):
    """Inputs of the runs of `diff`, and of those of `grad` that are compared."""

    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            metavar="N",
            help="Seed of random inputs.",
            rich_help_panel=options.ADVANCED,
        ),
    ] = None


class PairInputs(SeededInputs):
    """Inputs of the runs of `diff`: the second graph may have other variables."""

    variables_b: options.VariablesOfB = None


class ReduceInputs(LimitedInputs):
    """Inputs of the runs of `reduce pair`: the second graph may have other variables."""

    variables_b: options.VariablesOfB = None


class CaseOptions(OptionGroup):
    """Comparison of runs: sizes of random inputs, their number, and tolerances."""

    verify: bool = False
    size: options.Size = field(default_factory=list)
    cases: options.Cases = None
    rtol: float | None = None
    atol: float | None = None


class VerifyOptions(CaseOptions):
    """Comparison of runs if requested."""

    verify: options.Verify = False


class SizeOptions(CaseOptions):
    """Sizes of the inputs of one run."""

    cases: int | None = None


class GradientCases(VerifyOptions):
    """Comparison of `grad --check` and `--verify`."""

    size: list[str] = field(default_factory=list)
    cases: Annotated[
        int | None,
        typer.Option(
            "--cases",
            metavar="N",
            min=1,
            help="Number of random inputs for --check. Default: 1.",
            rich_help_panel=options.ADVANCED,
        ),
    ] = None


class ToleranceOptions(CaseOptions):
    """Comparison of runs within tolerances."""

    rtol: options.Rtol = None
    atol: options.Atol = None


@dataclass(frozen=True, slots=True)
class ComparedRuns:
    """Runs that are compared: what they receive, how they are compared, and what they compute."""

    inputs: RunInputs = field(default_factory=RunInputs)
    cases: CaseOptions = field(default_factory=CaseOptions)
    fetches: FetchOptions = field(default_factory=FetchOptions)

    @property
    def is_set(self) -> bool:
        """True if any of the options was used."""
        return self.inputs.is_set or self.cases.is_set or self.fetches.is_set

    def fetched_of_b(self) -> tuple[ComparedRuns, list[tuple[str, str]]]:
        """The runs of the first graph, and the fetches with another name in the second one."""
        items = [text.partition("=") for text in self.fetches.fetch]
        fetches = self.fetches.replace(fetch=[name for name, _, _ in items])
        return replace(self, fetches=fetches), [(name, b) for name, sign, b in items if sign]

    @classmethod
    def of_pass(
        cls, inputs: RunInputs, cases: CaseOptions, fetch: Iterable[str], feed: Iterable[str] = ()
    ) -> Self:
        """Runs of the fetches of a pass, or `^node`, with those of its feeds that have values."""
        names = options.split_names(fetch)
        fetches = [name for name in names if name[:1] != "^"]
        targets = [name[1:] for name in names if name[:1] == "^"]
        feeds = [*inputs.feed, *(text for text in feed if "=" in text)]
        return cls(inputs.replace(feed=feeds), cases, FetchOptions(fetches, targets))


class PipelineOptions(OptionGroup):
    """Options of `pipeline`: printed, saved, and verified graphs."""

    print_after: Annotated[
        list[str],
        options.repeatable(
            "--print-after",
            "all|PASS",
            "Print the graph as text on stderr after each pass, or after one.",
        ),
    ] = field(default_factory=list)
    dump_dir: Annotated[
        str | None,
        typer.Option(
            "--dump-dir",
            metavar="FOLDER",
            help="Save the input, and the graph after each pass, as NN-PASS.graph.",
        ),
    ] = None
    time_passes: Annotated[
        bool, typer.Option("--time-passes", help="Report the time that each pass takes.")
    ] = False
    verify_each: Annotated[
        bool,
        typer.Option(
            "--verify-each",
            help="Run the graph before and after each pass, and compare; exit with status 1 and "
            "write nothing if a pass changes a value.",
        ),
    ] = False
