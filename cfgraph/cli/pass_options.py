"""Groups of options of passes: the options of a pass in its command and in `pipeline`."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated

import typer

from cfgraph.cli import options
from cfgraph.cli.option_groups import OptionGroup
from cfgraph.cli.options import ADVANCED, node_data_option, repeatable


class LowerOptions(OptionGroup):
    """Options of `lower`."""

    function: Annotated[
        list[str],
        repeatable("--function", "NAME", "Lower only nodes that run this function."),
    ] = field(default_factory=list)
    keep_calls: Annotated[
        bool, typer.Option("--keep-calls", help="Do not inline function calls.")
    ] = False
    unfuse: Annotated[
        bool,
        typer.Option(
            "--unfuse", help="Replace fused ops, such as _FusedMatMul, by what they stand for."
        ),
    ] = False


class OptimizeOptions(OptionGroup):
    """Options of `optimize`."""

    only: Annotated[
        list[str],
        repeatable(
            "--only",
            "RULES",
            "Apply only these rules: prune, fold, arithmetic, branches, cse, licm. Default: all.",
        ),
    ] = field(default_factory=list)
    skip: Annotated[list[str], repeatable("--skip", "RULES", "Do not apply these rules.")] = field(
        default_factory=list
    )
    fetch: Annotated[
        list[str],
        repeatable(
            "--fetch",
            "NAME[:PORT]",
            "Keep this tensor or ^NODE, and remove nodes that no fetch needs. Default: keep all "
            "outputs of the graph.",
        ),
    ] = field(default_factory=list)
    feed: Annotated[
        list[str],
        repeatable(
            "--feed",
            "NAME[=VALUE]",
            "Assume nothing about the value of a fed tensor, and keep it; VALUE is for --verify. "
            "Placeholders need not be named.",
        ),
    ] = field(default_factory=list)
    keep: Annotated[
        list[str],
        repeatable("--keep", "LIST", "Keep these nodes and what they need."),
    ] = field(default_factory=list)
    unroll: Annotated[
        int | None,
        typer.Option(
            "--unroll",
            metavar="N",
            min=0,
            help="Replace loops by straight lines whose number of iterations is known and at most "
            "N. Default: no loop.",
        ),
    ] = None


class PartitionOptions(OptionGroup):
    """Devices, placement rules from a file and from the command line, and fan-out."""

    devices: options.Devices = field(default_factory=list)
    place: options.PlaceRules = field(default_factory=list)
    rules: options.RulesFile = None
    dump_placement: Annotated[
        str | None,
        typer.Option(
            "--dump-placement",
            metavar="FILE.toml",
            help="Write the placement as rules, with the reason for each device.",
            rich_help_panel=ADVANCED,
        ),
    ] = None
    soft: options.Soft = False
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            metavar="N",
            help="Place at random and ignore device requests; for tests.",
            rich_help_panel=ADVANCED,
        ),
    ] = None
    fan_out: Annotated[
        int | None,
        typer.Option(
            "--fan-out",
            metavar="N",
            min=1,
            help="Send the predicate of a loop to at most N devices from each device that has it; "
            "for loops over many devices. Default: to all from one.",
            rich_help_panel=ADVANCED,
        ),
    ] = None


class FreezeOptions(OptionGroup):
    """Options of `freeze`; the command also declares the last three for its runs."""

    fetch: Annotated[
        list[str],
        repeatable(
            "--fetch",
            "NAME[:PORT]",
            "Keep this tensor or ^NODE, and remove what no fetch needs. Default: the outputs of "
            "the signature.",
        ),
    ] = field(default_factory=list)
    set: Annotated[
        list[str],
        repeatable(
            "--set",
            "NAME=VALUE",
            "Replace an input by a constant (same syntax as --feed), such as is_training=false.",
        ),
    ] = field(default_factory=list)
    keep_variables: Annotated[
        list[str],
        repeatable("--keep-variables", "LIST", "Variables that stay variables."),
    ] = field(default_factory=list)
    drop_updates: Annotated[
        bool,
        typer.Option(
            "--drop-updates",
            help="Drop updates of variables that a fetch waits for, but does not read.",
        ),
    ] = False
    constant_tables: Annotated[
        bool,
        typer.Option(
            "--constant-tables",
            help="Turn lookups in tables that are filled once into lookups in constants.",
        ),
    ] = False
    variables: str | None = None
    allow_io: bool = False
    feeds: list[str] = field(default_factory=list)


class FunctionalizeOptions(OptionGroup):
    """Options of `functionalize`."""

    fetch: Annotated[
        list[str],
        repeatable(
            "--fetch",
            "NAME[:PORT]",
            "Keep this tensor or ^NODE, and remove nodes that no fetch needs. Default: keep all "
            "tensors outside of regions that are live in every run.",
        ),
    ] = field(default_factory=list)
    tensor_arrays: Annotated[
        str,
        typer.Option(
            "--tensor-arrays",
            metavar="MODE",
            help="Stacks and TensorArrays: lists (TensorLists where that is exact) or keep.",
        ),
    ] = "lists"
    dead_as: Annotated[
        str | None,
        typer.Option(
            "--dead-as",
            metavar="VALUE",
            help="Value of a fetch that is dead: zeros. Default: such a region keeps its form.",
        ),
    ] = None
    target: Annotated[
        str,
        typer.Option(
            "--target",
            metavar="READER",
            help="Form of the result: tensorflow, or converter (for Lite and ONNX: loops that "
            "count as in TensorFlow 2, If instead of Case, arguments with shapes).",
        ),
    ] = "tensorflow"
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="List each region that keeps its form, with the reason.",
        ),
    ] = False
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with status 1 if a region keeps its form.")
    ] = False


class ClusterOptions(OptionGroup):
    """Options of `cluster`, and the requested reports."""

    deadness: Annotated[
        str,
        typer.Option(
            "--deadness",
            metavar="MODE",
            help="Test of equal liveness: exact, inputs, or off.",
        ),
    ] = "exact"
    min_size: Annotated[
        int,
        typer.Option(
            "--min-size",
            metavar="N",
            min=1,
            help="Minimum number of nodes per cluster, not counting trivial ones.",
        ),
    ] = 2
    max_size: Annotated[
        int | None,
        typer.Option("--max-size", metavar="N", min=1, help="Maximum number of nodes per cluster."),
    ] = None
    only_ops: Annotated[list[str], repeatable("--only-ops", "LIST", "Cluster only these ops.")] = (
        field(default_factory=list)
    )
    exclude_ops: Annotated[
        list[str],
        repeatable("--exclude-ops", "LIST", "Do not cluster these ops."),
    ] = field(default_factory=list)
    fetch: Annotated[
        list[str],
        repeatable(
            "--fetch",
            "NAME[:PORT]",
            "Cluster only what this tensor needs, and keep its name. Default: the outputs of the "
            "graph.",
        ),
    ] = field(default_factory=list)
    feed: Annotated[
        list[str],
        repeatable(
            "--feed", "NAME[=VALUE]", "Keep a fed tensor out of clusters; VALUE is for --verify."
        ),
    ] = field(default_factory=list)
    regions: Annotated[
        bool,
        typer.Option("--regions", help="Also cluster whole loops and conditionals."),
    ] = False
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", help="Report, for each node and edge outside of clusters, why it is."
        ),
    ] = False
    what_if: Annotated[
        list[str],
        repeatable(
            "--what-if",
            "LIST",
            "Report what would be clustered if these ops compiled.",
            advanced=True,
        ),
    ] = field(default_factory=list)
    format: Annotated[
        str,
        typer.Option("--format", metavar="FORMAT", help="Format of the report: text, json or dot."),
    ] = "text"
    node_data: Annotated[str | None, node_data_option("cluster, or why in none")] = None


class ExtractOptions(OptionGroup):
    """Tensors between which the graph is extracted."""

    outputs: Annotated[
        list[str],
        repeatable(
            "--outputs", "LIST", "Tensors to compute, or nodes as ^NODE, separated by commas."
        ),
    ]
    inputs: Annotated[
        list[str],
        repeatable(
            "--inputs",
            "LIST",
            "Tensors to cut at. Default: none, or the variables of the loop of the outputs.",
        ),
    ] = field(default_factory=list)
    iteration: Annotated[
        str | None,
        typer.Option(
            "--iteration",
            metavar="N",
            help="Run the graph, and take the values of this iteration of the loop of the outputs; "
            "OUTER,INNER for nested loops. Default with feeds: 0.",
        ),
    ] = None


class GradOptions(OptionGroup):
    """Requested gradients, and their check."""

    ys: Annotated[
        list[str],
        repeatable(
            "--ys",
            "LIST",
            "Tensors to differentiate, separated by commas; NAME[INDEX], such as logits[:, 3], "
            "for a slice.",
        ),
    ] = field(default_factory=list)
    xs: Annotated[
        list[str],
        repeatable(
            "--xs",
            "LIST",
            "Tensors to differentiate with respect to. Default: all variables and float inputs.",
        ),
    ] = field(default_factory=list)
    grad_ys: Annotated[
        list[str],
        repeatable(
            "--grad-ys",
            "LIST",
            "Upstream gradient for each y: a tensor name or a --feed value.",
            advanced=True,
        ),
    ] = field(default_factory=list)
    stop: Annotated[
        list[str],
        repeatable(
            "--stop", "LIST", "Treat these tensors as constants (stop_gradients).", advanced=True
        ),
    ] = field(default_factory=list)
    unconnected: Annotated[
        str,
        typer.Option(
            metavar="none|zero",
            help="Gradient of an x that no y depends on.",
            rich_help_panel=ADVANCED,
        ),
    ] = "none"
    order: Annotated[
        int,
        typer.Option(
            metavar="K",
            min=1,
            help="Order of the derivative. Above 1: differentiate the sum of the gradients again, "
            "K-1 times.",
        ),
    ] = 1
    jacobian: Annotated[
        bool,
        typer.Option(
            "--jacobian",
            help="Add the Jacobian of each y with respect to each x, of shape y.shape + x.shape.",
        ),
    ] = False
    hessian: Annotated[
        bool,
        typer.Option(
            "--hessian",
            help="Add the Jacobian of the gradients of the sum of the ys, for each pair of xs.",
        ),
    ] = False
    jvp: Annotated[
        list[str],
        repeatable(
            "--jvp",
            "LIST",
            "Add the Jacobians times tangents: a tensor name or a --feed value for each x.",
        ),
    ] = field(default_factory=list)
    hvp: Annotated[
        list[str],
        repeatable(
            "--hvp",
            "LIST",
            "Add the Hessian times vectors: a tensor name or a --feed value for each x.",
        ),
    ] = field(default_factory=list)
    mode: Annotated[
        str,
        typer.Option(
            metavar="auto|forward|reverse",
            help="Passes of --jacobian and --hessian: one per element of the xs, or of the ys. "
            "auto: the smaller number.",
            rich_help_panel=ADVANCED,
        ),
    ] = "auto"
    per_example: Annotated[
        bool,
        typer.Option(
            "--per-example",
            help="Assume that each example of a y depends on that of an x alone: a Jacobian of "
            "shape y.shape + x.shape[1:].",
        ),
    ] = False
    rows_in_flight: Annotated[
        int,
        typer.Option(
            "--rows-in-flight",
            metavar="N",
            min=1,
            help="Passes of --jacobian and --hessian that run at the same time.",
            rich_help_panel=ADVANCED,
        ),
    ] = 10
    swap_memory: Annotated[
        bool,
        typer.Option(
            "--swap-memory",
            help="Allow devices to swap values saved by loops to host memory.",
            rich_help_panel=ADVANCED,
        ),
    ] = False
    recompute: Annotated[
        str | None,
        typer.Option(
            metavar="K|auto",
            help="Gradient checkpointing: save loop state every K iterations and "
            "recompute the rest.",
        ),
    ] = None
    ignore_custom: Annotated[
        bool,
        typer.Option(
            "--ignore-custom",
            help="Use the gradients of the ops for nodes that name a custom one. Default: "
            "the custom gradient, which must be in the file.",
            rich_help_panel=ADVANCED,
        ),
    ] = False
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Compare with finite differences; exit with status 1 and write nothing if they "
            "differ.",
        ),
    ] = False
    rtol: Annotated[
        float | None,
        typer.Option(
            "--rtol",
            metavar="R",
            min=0,
            callback=options.reject_nan,
            help="Relative tolerance of --check, added to the estimated rounding error.",
            rich_help_panel=ADVANCED,
        ),
    ] = None
