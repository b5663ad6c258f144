"""Groups of options that commands share: what they write, and the runs that they compare."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Annotated, Final

import typer

from cfgraph.cli import options
from cfgraph.cli.option_groups import OptionGroup, group_fields
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


class RunInputs(OptionGroup):
    """Inputs, limits, and tolerances of runs, as the user wrote them.

    Its sub-classes declare those that a command has. With `signature_outputs`, the fetches are by
    default the outputs of the default signature.
    """

    verify: bool = False
    fetch: Sequence[str] = ()
    target: Sequence[str] = ()
    feed: Sequence[str] = ()
    feeds: Sequence[str] = ()
    init: Sequence[str] = ()
    signature: str | None = None
    variables: str | None = None
    allow_io: bool = False
    size: Sequence[str] = ()
    cases: int | None = None
    seed: int | None = None
    rtol: float | None = None
    atol: float | None = None
    max_iterations: int | None = None
    signature_outputs: bool = False

    @property
    def is_set(self) -> bool:
        """True if any of the options but `verify` was used."""
        names = {*group_fields(RunInputs)} - {"verify", "signature_outputs"}
        values = [getattr(self, name) for name in names]
        return not all(value is None or value is False or value in ([], ()) for value in values)


class ModelInputs(RunInputs):
    """Initializers and variables of runs, and names of a signature."""

    init: options.Init = field(default_factory=list)
    signature: options.Signature = None
    variables: options.Variables = None
    allow_io: options.AllowIo = False


class CaseInputs(ModelInputs):
    """Inputs of `--verify`, in a command whose feeds name tensors for its pass."""

    verify: options.Verify = False
    size: options.Size = field(default_factory=list)
    cases: options.Cases = None

    def with_names(self, fetch: Iterable[str], feed: Iterable[str]) -> RunInputs:
        """Add the feeds of a pass that have values, and with `verify` its fetches."""
        names = options.split_names(fetch) if self.verify else []
        fetches = [name for name in names if name[:1] != "^"]
        targets = [name[1:] for name in names if name[:1] == "^"]
        feeds = [*self.feed, *(text for text in feed if "=" in text)]
        return self.replace(fetch=fetches, target=targets, feed=feeds)


class VerifyInputs(CaseInputs):
    """Inputs of `--verify`."""

    feed: options.Feed = field(default_factory=list)


class FreezeInputs(VerifyInputs):
    """Inputs of `freeze --verify`, which runs no initializers."""

    init: list[str] = field(default_factory=list)
    signature_outputs: bool = True


class PipelineInputs(VerifyInputs):
    """Inputs of `pipeline --verify-each`."""

    verify: bool = False


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


class ExplainInputs(ModelInputs):
    """Inputs of the run that `explain` describes."""

    feed: options.Feed = field(default_factory=list)
    feeds: options.Feeds = field(default_factory=list)


class ExtractInputs(ExplainInputs):
    """Inputs of the run whose values `extract` takes."""

    max_iterations: options.MaxIterations = None


class GradientInputs(ExtractInputs):
    """Inputs of `grad --check` and `--verify`."""

    verify: options.Verify = False
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
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            metavar="N",
            help="Seed of the random inputs of --check.",
            rich_help_panel=options.ADVANCED,
        ),
    ] = None


class ReducedInputs(PipelineInputs):
    """Inputs of the runs of two graphs that `reduce` compares."""

    fetch: options.Fetch = field(default_factory=list)
    target: options.Target = field(default_factory=list)
    feeds: options.Feeds = field(default_factory=list)
    rtol: options.Rtol = None
    atol: options.Atol = None
    max_iterations: options.MaxIterations = None


class ComparedInputs(ReducedInputs):
    """Inputs of the runs of two graphs that `diff` compares."""

    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            metavar="N",
            help="Seed of random inputs.",
            rich_help_panel=options.ADVANCED,
        ),
    ] = None
