"""Pipelines: passes that run one after another, with the options of their commands."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperOption

import cfgraph.ops  # noqa: F401 - fills the registry
from cfgraph.cli.command_files import COMMANDS, CommandFiles
from cfgraph.cli.option_groups import OptionGroup, group_fields
from cfgraph.cli.options import plain_message
from cfgraph.cli.pass_options import (
    ClusterOptions,
    ExtractOptions,
    FreezeOptions,
    FunctionalizeOptions,
    GradOptions,
    LowerOptions,
    OptimizeOptions,
    PartitionOptions,
)
from cfgraph.console.signatures import SignatureNames
from cfgraph.console.transforms.pipeline_text import (
    OptionText,
    PassText,
    PipelineTextError,
    parse_pipeline,
)
from cfgraph.console.transforms.transform import PassReport, PassResult
from cfgraph.errors import CfgraphError, UsageError
from cfgraph.ir.graph import Graph
from cfgraph.ir.names import did_you_mean
from cfgraph.limits import check_deadline
from cfgraph.passes.outcome import op_counts, unchanged_on_error

# a pass with its options, whose fields are named as parameters of its command, and its result
_PASSES: Final[dict[str, tuple[type[OptionGroup], str, str]]] = {
    "cluster": (ClusterOptions, "cfgraph.console.transforms.cluster", "ClusteredGraph"),
    "extract": (ExtractOptions, "cfgraph.console.transforms.extract", "ExtractedGraph"),
    "freeze": (FreezeOptions, "cfgraph.console.transforms.freeze", "FrozenGraph"),
    "functionalize": (
        FunctionalizeOptions,
        "cfgraph.console.transforms.functionalize",
        "FunctionalizedGraph",
    ),
    "grad": (GradOptions, "cfgraph.console.transforms.grad", "GraphWithGradients"),
    "lower": (LowerOptions, "cfgraph.console.transforms.lower", "Lowering"),
    "optimize": (OptimizeOptions, "cfgraph.console.transforms.optimize", "OptimizedGraph"),
    "partition": (PartitionOptions, "cfgraph.console.transforms.partition", "PartitionedGraph"),
}
PASS_NAMES: Final = tuple(_PASSES)
# fields for the command alone: requests of reports, files, and runs
_COMMAND_FIELDS: Final = frozenset(
    {"check", "dump_placement", "explain", "format", "iteration", "rtol", "strict", "what_if"}
)


@dataclass(frozen=True, slots=True)
class PassOutcome:
    """Outcome of one pass: its report, op counts before and after, and its time in seconds."""

    name: str
    report: PassReport
    before: dict[str, int]
    after: dict[str, int]
    seconds: float


@dataclass(frozen=True, slots=True)
class PipelineStep:
    """A pass with its options, its number from 1, and its column in the text of the pipeline."""

    number: int
    name: str
    options: OptionGroup
    column: int
    result_type: type[PassResult[Any, Any]]


class Pipeline:
    """Passes in the order of a text, with the options of the commands of the same names.

        cfgraph.Pipeline("lower, grad{ys=loss xs=w}, partition{devices=cpu:0,gpu:0}").run(graph)

    A space separates options, and a comma inside braces separates values. Raises UsageError, with
    the position in the text, for an unknown pass or option and an invalid value.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.steps = tuple(
            _parsed_step(text, number, written)
            for number, written in enumerate(parse_pipeline(text), 1)
        )

    def run(
        self,
        graph: Graph,
        *,
        before: Callable[[PipelineStep], None] | None = None,
        after: Callable[[PipelineStep, PassOutcome], None] | None = None,
        names: SignatureNames | None = None,
    ) -> tuple[PassOutcome, ...]:
        """Run the passes on a graph, in place; a graph that a pass rejects is left unchanged.

        Args:
            before: called before each pass.
            after: called after each pass, with its outcome.
            names: names of a signature that options may use.

        Returns the outcome of each pass. Raises what a pass raises, with a note that names it.
        """
        outcomes: list[PassOutcome] = []
        with unchanged_on_error(graph):
            for step in self.steps:
                check_deadline()
                if before is not None:
                    before(step)
                outcome = self._run_step(step, graph, names or SignatureNames(), outcomes)
                outcomes.append(outcome)
                if after is not None:
                    after(step, outcome)
        return tuple(outcomes)

    def _run_step(
        self,
        step: PipelineStep,
        graph: Graph,
        names: SignatureNames,
        done: Sequence[PassOutcome],
    ) -> PassOutcome:
        counts = op_counts(graph)
        start = time.perf_counter()
        try:
            report = step.result_type.apply(graph, step.options, names).report
        except CfgraphError as error:
            previous = f", after {', '.join(item.name for item in done)}" if done else ""
            error.add_note(f"in pass '{step.name}', column {step.column} of the pipeline{previous}")
            raise
        seconds = time.perf_counter() - start
        return PassOutcome(step.name, report, counts, op_counts(graph), seconds)

    def __repr__(self) -> str:
        return f"Pipeline({self.text!r})"


def _parsed_step(text: str, number: int, written: PassText) -> PipelineStep:
    """Resolve a pass and its options. Raises PipelineTextError."""
    if written.name not in _PASSES:
        hint = did_you_mean(written.name, _PASSES) or f"use {', '.join(_PASSES)}"
        raise PipelineTextError(f"unknown pass {written.name!r}", text, written.span, hint=hint)
    group, home, result_name = _PASSES[written.name]
    result_type = getattr(import_module(home), result_name)
    command = _pass_command(written.name)
    known = _pass_parameters(command, group)
    ctx = typer.Context(command, info_name=written.name)
    texts: dict[str, list[OptionText]] = {name: [] for name in known}
    for option in written.options:
        texts[_parameter_name(text, written, option, command, known)].append(option)
    values = {name: _value(text, ctx, written, known[name], texts[name]) for name in known}
    options = group(**values)
    return PipelineStep(number, written.name, options, written.span.start + 1, result_type)


@cache
def _pass_command(name: str) -> TyperCommand:
    """The command whose options a pass has."""
    return CommandFiles(COMMANDS)[name]


def _pass_parameters(command: TyperCommand, group: Any) -> dict[str, TyperOption]:
    """Return the options of a command that belong to its pass, by name."""
    names = group_fields(group).keys() - _COMMAND_FIELDS
    return {
        param.name: param
        for param in command.params
        if isinstance(param, TyperOption) and param.name in names
    }


def _parameter_name(
    text: str,
    written: PassText,
    option: OptionText,
    command: TyperCommand,
    known: dict[str, TyperOption],
) -> str:
    """Return the parameter that an option names. Raises PipelineTextError for an unknown one."""
    name = option.name.replace("-", "_")
    if name in known:
        return name
    span = option.name_span
    listed = ", ".join(_shown(item) for item in known)
    if any(param.name == name for param in command.params):
        message = f"{_shown(name)!r} is an option of the command `{written.name}`, not of the pass"
        raise PipelineTextError(message, text, span, hint=f"options of the pass: {listed}")
    hint = did_you_mean(_shown(name), map(_shown, known)) or f"options of the pass: {listed}"
    raise PipelineTextError(
        f"unknown option {option.name!r} of the pass {written.name!r}", text, span, hint=hint
    )


def _shown(name: str) -> str:
    return name.replace("_", "-")


def _value(
    text: str,
    ctx: typer.Context,
    pass_text: PassText,
    param: TyperOption,
    written: Sequence[OptionText],
) -> Any:
    """Convert the written values of an option as its command does. Raises PipelineTextError."""
    if not written and param.required:
        name = _shown(param.name or "")
        message = f"the pass {pass_text.name!r} lacks the option {name!r}"
        hint = f"write {pass_text.name}{{{name}={param.metavar or 'VALUE'}}}"
        raise PipelineTextError(message, text, pass_text.span, hint=hint)
    if not written:
        return param.process_value(ctx, param.get_default(ctx))
    last = written[-1]
    name = _shown(last.name)
    if len(written) > 1 and not param.multiple:
        raise PipelineTextError(f"the option {name!r} occurs twice", text, last.span)
    if last.value is None and not param.is_flag:
        hint = f"write {name}={param.metavar or 'VALUE'}"
        raise PipelineTextError(f"the option {name!r} has no value", text, last.span, hint=hint)
    raw: Any = True if last.value is None else last.unquoted
    if param.multiple:
        raw = [value for option in written for value in option.values()]
        if "" in raw:
            hint = "a comma separates values, a space separates options"
            message = f"the option {name!r} has an empty value"
            raise PipelineTextError(message, text, last.span, hint=hint)
    if param.is_flag and last.value not in (None, "true", "false"):
        hint = f"write {name} or {name}=false"
        raise PipelineTextError(f"{name!r} is true or false", text, last.span, hint=hint)
    try:
        return param.process_value(ctx, raw)
    except UsageError as error:
        raise PipelineTextError(error.message, text, last.span, hint=error.hint) from None
    except Exception as error:
        reason = getattr(error, "message", None)
        if reason is None:
            raise
        message = f"invalid value of {name!r}: {plain_message(reason).rstrip('.')}"
        raise PipelineTextError(message, text, last.span) from None
