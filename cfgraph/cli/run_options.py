"""Groups of options of `run`, and what each of them makes."""

from __future__ import annotations

import sys
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Any, Final, TextIO

import typer

from cfgraph.cli import options
from cfgraph.cli.option_groups import OptionGroup, group_fields, including
from cfgraph.cli.options import ADVANCED, Color, reject_nan, repeatable
from cfgraph.errors import UsageError
from cfgraph.extensions import OPTIONS, WORKERS, engine_names, extension, extension_names
from cfgraph.ir.units import parse_byte_size

# late imports: a help page loads nothing that a group of options makes

if TYPE_CHECKING:
    from cfgraph.passes.place.rules import PlacementRules
    from cfgraph.runtime.cost_model import CostModel
    from cfgraph.runtime.preparation.engines import Engine

CLOCKS: Final = ("real", "virtual")
# digits of a number of threads
_MAX_DIGITS: Final = 5


class FeedOptions(OptionGroup):
    """Values of fed tensors."""

    feed: options.Feed = field(default_factory=list)
    feeds: options.Feeds = field(default_factory=list)


class ModelOptions(OptionGroup):
    """Initializers, variables, and the signature of a model."""

    init: options.Init = field(default_factory=list)
    signature: options.Signature = None
    variables: options.Variables = None
    save_variables: options.SaveVariables = None


class ResultOptions(OptionGroup):
    """Files for fetched arrays, and expected values with tolerances."""

    out: options.Out = field(default_factory=list)
    out_dir: options.OutDir = None
    expect: options.Expect = field(default_factory=list)
    rtol: options.Rtol = None
    atol: options.Atol = None

    @property
    def names(self) -> list[str]:
        """The names of the tensors with a file or an expected value."""
        return [_name(text) for text in (*self.out, *self.expect)]


def _name(text: str) -> str:
    """The name in `NAME=VALUE`."""
    return text.partition("=")[0].strip()


class ObserverOptions(OptionGroup):
    """Views of the run, and files about it."""

    PANEL = "Observers"

    tap: Annotated[
        list[str],
        repeatable(
            "--tap",
            "GLOB",
            "Print every value of matching nodes, inside loops too. Accepts NODE:PORT and op:GLOB"
            " as well; NODE[13] is iteration 13 alone.",
        ),
    ] = field(default_factory=list)
    tap_state: Annotated[
        list[str],
        repeatable(
            "--tap-state",
            "LOOP",
            "Print the variables of a loop as each iteration reads them.",
        ),
    ] = field(default_factory=list)
    tap_nonfinite: Annotated[
        bool,
        typer.Option(
            "--tap-nonfinite",
            help="Report the first values with NaN or Inf: node, frame, iteration.",
        ),
    ] = False
    trace: Annotated[
        bool,
        typer.Option(
            "--trace", help="Print one line per executed node, then totals by op, node and loop."
        ),
    ] = False
    trace_out: Annotated[
        str | None,
        typer.Option(
            "--trace-out",
            metavar="FILE",
            help="Save the trace, also of a failed run: .json (Perfetto) or .jsonl, optionally "
            ".gz.",
        ),
    ] = None
    timeline: Annotated[
        bool,
        typer.Option(
            "--timeline", help="Draw the activity of each device over time, and messages."
        ),
    ] = False
    repeat: Annotated[
        int | None,
        typer.Option(
            "--repeat",
            metavar="N",
            min=1,
            help="Run N times with the same feeds, and print the time of the first run, and the "
            "median and spread of the others. Variables go on from run to run.",
        ),
    ] = None
    html: options.Html = None
    node_data: Annotated[
        str | None,
        options.node_data_option("time in ms, or iterations or device with KIND="),
    ] = None


class LimitOptions(OptionGroup):
    """Limit of iterations, seeds, schedule, and permission to use files."""

    max_iterations: options.MaxIterations = None
    seed: options.Seed = 0
    schedule: Annotated[
        str,
        typer.Option(
            "--schedule",
            metavar="fifo|random",
            help="Order in which ready nodes run.",
            rich_help_panel=ADVANCED,
        ),
    ] = "fifo"
    schedule_seed: Annotated[
        int,
        typer.Option(
            "--schedule-seed",
            metavar="N",
            help="Seed of --schedule random.",
            rich_help_panel=ADVANCED,
        ),
    ] = 0
    allow_io: options.AllowIo = False


class DeviceOptions(OptionGroup):
    """Devices, placement rules, memory limits, and the kind of GPUs."""

    PANEL = "Devices"

    devices: options.Devices = field(default_factory=list)
    place: options.PlaceRules = field(default_factory=list)
    rules: options.RulesFile = None
    soft: options.Soft = False
    memory: Annotated[
        list[str],
        repeatable(
            "--memory",
            "DEVICE[=LIMIT]",
            "Account for memory and copies, optionally with a limit: gpu:0=4GiB.",
        ),
    ] = field(default_factory=list)
    swap_above: Annotated[
        float | None,
        typer.Option(
            "--swap-above",
            metavar="FRACTION",
            help="Start swapping stacks to host memory above this fraction of the limit (0-1). "
            "Default: 0.7.",
        ),
    ] = None
    gpu: Annotated[
        str | None,
        typer.Option(
            "--gpu",
            metavar="real|simulated",
            help="Run GPUs as `real` (CuPy) or `simulated` (NumPy). Default: real if a GPU is "
            "present.",
        ),
    ] = None

    def placement_rules(self) -> PlacementRules:
        """The rules of both options. Raises UsageError for invalid ones."""
        from cfgraph.passes.place.rules import combined_rules

        return combined_rules(self.rules, self.place)

    def memory_limits(self) -> dict[str, int | None] | None:
        """Bytes by device, such as `gpu:0=4GiB` or `gpu:0-3=1GiB`; None for one without a limit.

        Returns None if nothing is counted. Raises UsageError for an invalid device or size.
        """
        if self.swap_above is not None and not any("=" in text for text in self.memory):
            message = "--swap-above requires a memory limit"
            raise UsageError(message, hint="add --memory gpu:0=4GiB")
        from cfgraph.ir.devices import parse_devices, short_device_name

        limits: dict[str, int | None] = {}
        for text in self.memory:
            devices, equals, size = text.partition("=")
            if not devices.strip() or (equals and not size.strip()):
                hint = "write DEVICE=SIZE, such as gpu:0=4GiB, or DEVICE to count only"
                raise UsageError(f"invalid memory limit {text!r}", hint=hint)
            for name in map(short_device_name, parse_devices(devices)):
                if name in limits:
                    raise UsageError(f"--memory is given twice for {name}")
                limits[name] = parse_byte_size(size) if equals else None
        return limits if self.memory else None


class RemoteOptions(OptionGroup):
    """Workers, and what starts them."""

    PANEL = "Workers"

    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            metavar="N",
            min=1,
            help="Divide the devices among N worker processes. Default: one per task of the "
            "devices.",
        ),
    ] = None
    ray: Annotated[
        str | None,
        typer.Option(
            "--ray",
            metavar="local|auto|ADDRESS",
            help="Start the workers on Ray: on this machine, or on a cluster (auto: $RAY_ADDRESS).",
        ),
    ] = None
    lost_after: Annotated[
        float | None,
        typer.Option(
            "--lost-after",
            metavar="SECONDS",
            callback=reject_nan,
            help="Fail when a worker is silent for this long. Default: 10.",
        ),
    ] = None
    retries: Annotated[
        int | None,
        typer.Option(
            "--retries",
            metavar="N",
            min=0,
            help="Restore --variables and run again, at most N times, if a worker is lost. "
            "Default: 0.",
        ),
    ] = None
    spread: Annotated[
        str | None,
        typer.Option(
            "--spread",
            metavar="hosts",
            help="Place each Ray worker on another host: --ray auto --spread hosts.",
        ),
    ] = None

    @property
    def starter(self) -> str | None:
        """The option that starts workers, or None for a run in this process."""
        return "--workers" if self.workers else "--ray" if self.ray else None

    def make(self) -> Any:
        """The workers of a session, or None for a run in this process."""
        if self.workers is None and self.ray is None:
            for option, value in (
                ("--lost-after", self.lost_after),
                ("--spread", self.spread),
                ("--retries", self.retries),
            ):
                if value is not None:
                    raise UsageError(f"{option} requires workers", hint="add --workers or --ray")
            return None
        named = {} if self.lost_after is None else {"lost_after": self.lost_after}
        if self.ray is None:
            if self.spread is not None:
                raise UsageError("--spread requires --ray", hint="add --ray auto")
            return extension(WORKERS, "processes")(self.workers, **named)
        return extension(WORKERS, "ray")(self.ray, self.workers, spread=self.spread or "", **named)


class ClockOptions(OptionGroup):
    """Clock, cost model, early end, and the file for measured costs."""

    PANEL = "Clock"

    clock: Annotated[
        str,
        typer.Option(
            "--clock",
            metavar="real|virtual",
            help="Use the real clock, or predict times with a cost model.",
        ),
    ] = "real"
    costs: Annotated[
        str | None,
        typer.Option(
            "--costs",
            metavar="FILE.toml|CARD",
            help="Cost model (devices, links, kernels) for the virtual clock: a file "
            "(`cfgraph explain CFG037` documents it), or a100, h100, l4, or v100.",
        ),
    ] = None
    until_iteration: Annotated[
        int | None,
        typer.Option(
            "--until-iteration",
            metavar="N",
            min=1,
            help="Virtual clock only: stop once the outermost loops have started iteration N.",
        ),
    ] = None
    no_values: Annotated[
        bool,
        typer.Option(
            "--no-values",
            help="Virtual clock only: evaluate only values that affect control flow; propagate "
            "shapes "
            "for the rest.",
        ),
    ] = False
    calibrate: Annotated[
        str | None,
        typer.Option(
            "--calibrate",
            metavar="FILE.toml",
            help="Write the measured kernel times as a cost model for --costs.",
        ),
    ] = None

    @property
    def virtual(self) -> bool:
        """True for the virtual clock. Raises UsageError for options that need the other clock."""
        if self.clock not in CLOCKS:
            message = f"unknown clock {self.clock!r}"
            raise UsageError(message, hint=f"use one of {', '.join(CLOCKS)}")
        virtual = self.clock == "virtual"
        for option, value, needs_virtual in (
            ("--costs", self.costs, True),
            ("--until-iteration", self.until_iteration, True),
            ("--no-values", self.no_values or None, True),
            ("--calibrate", self.calibrate, False),
        ):
            if value is not None and virtual is not needs_virtual:
                hint = "add --clock virtual" if needs_virtual else "remove --clock virtual"
                raise UsageError(f"{option} requires the {CLOCKS[needs_virtual]} clock", hint=hint)
        return virtual

    def cost_model(self) -> CostModel | None:
        """The cost model of the virtual clock, or None for the real clock."""
        if not self.virtual:
            return None
        from cfgraph.runtime.cost_model import CostModel, read_costs

        return read_costs(self.costs) if self.costs else CostModel()


@including(*(extension(OPTIONS, name) for name in extension_names(OPTIONS)))
class EngineOptions(OptionGroup):
    """The engine of the run, its threads, and its cache; options of engines that backends add."""

    PANEL = "Engine"

    engine: Annotated[
        str,
        typer.Option(
            "--engine",
            metavar="|".join(engine_names()),
            help="Engine of the run. compiled: Python code where possible; tokens: the token "
            "executor; "
            "xla: XLA for loops, conditionals, and clusters of nodes, within tolerance. "
            "Default: auto, which is compiled.",
            show_default=False,
        ),
    ] = "auto"
    explain_engine: Annotated[
        bool,
        typer.Option("--explain-engine", help="Print the engine that ran the graph, and why."),
    ] = False
    lazy: Annotated[
        bool,
        typer.Option(
            "--lazy", help="Compile a cluster only when an input signature is seen a second time."
        ),
    ] = False
    blas_threads: Annotated[
        str,
        typer.Option(
            "--blas-threads",
            metavar="N|auto",
            help="Threads for a product of matrices; auto uses one unless products are large.",
        ),
    ] = "auto"
    no_cache: Annotated[
        bool,
        typer.Option(
            "--no-cache",
            help="Neither read nor write the user's cache of generated code and XLA executables "
            "($CFGRAPH_CACHE, else ~/.cache/cfgraph).",
        ),
    ] = False

    @property
    def threads(self) -> int | str:
        """The number of threads, or a text that the session interprets."""
        digits, text = self.blas_threads.lstrip("0"), self.blas_threads
        is_number = digits.isascii() and digits.isdecimal() and len(digits) <= _MAX_DIGITS
        return int(text) if is_number else text

    @property
    def requested(self) -> str | Engine:
        """The name of the engine, or the engine that its own options describe.

        Raises UsageError for an option of an engine that is not requested.
        """
        for name in extension_names(OPTIONS):
            for member, default in group_fields(extension(OPTIONS, name)).items():
                if name != self.engine and getattr(self, member) != default:
                    option = member.replace("_", "-")
                    message = f"--{option} requires the engine {name}"
                    raise UsageError(message, hint=f"add --engine {name}")
        if self.engine not in extension_names(OPTIONS):
            return self.engine
        engine: Engine = extension(OPTIONS, self.engine).make_engine(self)
        return engine


class PrintOptions(OptionGroup):
    """Options of the printed report."""

    full: options.Full = False
    format: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="Output format: text, json, or for --expect github, sarif, junit or markdown.",
        ),
    ] = "text"
    json: options.Json = False
    color: options.ColorChoice = Color.auto

    @property
    def is_json(self) -> bool:
        """True if the report is a JSON document."""
        return self.json or self.format == "json"

    @property
    def values_stream(self) -> TextIO | None:
        """The stream of tapped values, or None if standard output has a document."""
        return sys.stdout if not self.json and self.format == "text" else None

    @property
    def ci_format(self) -> str | None:
        """The format of a CI service, if one is requested."""
        return None if self.json or self.format in ("text", "json") else self.format
