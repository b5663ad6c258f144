"""The `grad` command: added gradients, and their check against finite differences."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from cfgraph.analysis.constant_sums import normalizing_node
from cfgraph.analysis.gradient_paths import default_xs
from cfgraph.analysis.summary import sinks
from cfgraph.cli.option_groups import extended_group
from cfgraph.cli.options import split_names
from cfgraph.cli.output import Page, is_quiet, page
from cfgraph.cli.pass_options import GradOptions
from cfgraph.cli.transform_options import ComparedRuns, OutputOptions
from cfgraph.console.graph_files import Source, json_bytes, require_single_stdin
from cfgraph.console.signatures import SignatureNames
from cfgraph.console.transforms.grad_products import added_products, requested_kind
from cfgraph.console.transforms.grad_report import (
    AddedGradients,
    added_gradients,
    print_gradients,
)
from cfgraph.console.transforms.sliced_tensors import named_tensor
from cfgraph.console.transforms.transform import PassResult
from cfgraph.errors import UsageError
from cfgraph.ir.graph import Graph, Output
from cfgraph.ir.library import custom_gradient_name
from cfgraph.ir.node import split_tensor_name
from cfgraph.ir.serde.saved_model import SavedSignature
from cfgraph.ir.traversal import upstream
from cfgraph.ir.units import format_count
from cfgraph.passes.derivatives import UNCONNECTED, DerivativeRequest, derivatives
from cfgraph.passes.gradients.checkpointing import AUTO

# late imports: only --check compares gradients, and only a document has parts

if TYPE_CHECKING:
    from cfgraph.console.documents import RunsReport
    from cfgraph.console.transforms.grad_check import Comparisons, FiniteDifferenceCheck
    from cfgraph.console.transforms.grad_result import GradResult, GradSummary


class PreparedGradients(GradOptions):
    """Options of which names are resolved, and the check for which the graph was copied."""

    request: DerivativeRequest | None = None
    comparison: FiniteDifferenceCheck | None = None


def _request(graph: Graph, options: GradOptions, names: SignatureNames) -> DerivativeRequest:
    """Resolve the options. Raises UsageError for names that do not fit the graph."""
    ys, xs = _ys_and_xs(graph, options, names)
    return DerivativeRequest(
        [y.name for y in ys],
        [x.name for x in xs],
        options.order,
        _weights(graph, ys, options.grad_ys, "upstream gradients (--grad-ys)", "y") or None,
        _stops(graph, options, names),
        options.unconnected,
        options.swap_memory,
        options.ignore_custom,
        _recompute_interval(options.recompute),
    )


def _products(
    graph: Graph, kind: str, options: GradOptions, names: SignatureNames
) -> AddedGradients:
    """Add Jacobians or products. Raises UsageError for names and values that do not fit."""
    ys, xs = _ys_and_xs(graph, options, names)
    values = _weights(graph, xs, options.jvp or options.hvp, f"values of --{kind}", "x")
    stops = _stops(graph, options, names)
    return added_products(
        graph, kind, [y.name for y in ys], [x.name for x in xs], values, options, stops
    )


def _stops(graph: Graph, options: GradOptions, names: SignatureNames) -> list[str]:
    """The tensors that no gradient passes."""
    return [graph.tensor(names.inputs.get(name, name)).name for name in split_names(options.stop)]


def _recompute_interval(text: str | None) -> int | str | None:
    """Iterations between saved loop states. Raises UsageError for an invalid number."""
    if text is None or text == AUTO:
        return text
    if not text.isdecimal() or int(text) < 1:
        message = f"invalid --recompute {text!r}"
        raise UsageError(message, hint=f"expected a number of iterations (1 or more) or {AUTO}")
    return int(text)


def _require_valid(options: GradOptions) -> None:
    """Raise UsageError for an unknown gradient of unconnected xs, or options that disagree."""
    requested_kind(options)
    if options.unconnected not in UNCONNECTED:
        message = f"invalid --unconnected {options.unconnected!r}"
        raise UsageError(message, hint=f"use one of {', '.join(UNCONNECTED)}")


# reasons that a note lists
_MAX_LISTED: Final = 8


def split_values(texts: Iterable[str]) -> list[str]:
    """Split repeated lists of values; commas inside brackets and quotes belong to a value."""
    values: list[str] = []
    for text in texts:
        depth, quoted, start = 0, False, 0
        for index, char in enumerate(text):
            quoted ^= char == '"'
            depth += (char in "[(") - (char in ")]") if not quoted else 0
            if char == "," and not depth and not quoted:
                values.append(text[start:index].strip())
                start = index + 1
        values.append(text[start:].strip())
    return values


@dataclass(slots=True)
class GraphWithGradients(PassResult[GradOptions, AddedGradients]):
    """A graph with gradients, and their comparison with finite differences if requested."""

    comparison: FiniteDifferenceCheck | None
    comparisons: Comparisons

    @classmethod
    def require_valid(cls, options: GradOptions, outputs: OutputOptions) -> None:
        """Check the options before the graph is read. Raises UsageError."""
        outputs.require_separate_json()
        _require_valid(options)

    @classmethod
    def require_used(cls, options: GradOptions, runs: ComparedRuns) -> None:
        """Raise UsageError for inputs of runs, unless gradients are compared."""
        inputs = runs.inputs.replace(signature=None)
        is_set = options.rtol is not None or inputs.is_set or runs.cases.is_set
        if is_set and not options.check:
            message = "feeds and other run options require --check or --verify"
            raise UsageError(message, hint="add --check; or `cfgraph run` the graph with gradients")

    @classmethod
    def prepare(
        cls,
        source: Source,
        options: GradOptions,
        names: SignatureNames,
        runs: ComparedRuns,
    ) -> GradOptions:
        """Resolve the options, and copy the graph for the comparison."""
        inputs, cases = runs.inputs, runs.cases
        # the comparison reads feeds again, in double precision
        feeds = [*inputs.feed] * (options.check + cases.verify)
        values = [*options.grad_ys, *options.jvp, *options.hvp]
        require_single_stdin(source, [*feeds, *(f"={text}" for text in values)])
        if requested_kind(options):
            return options
        request = _request(source.graph, options, names)
        check = None
        if options.check:
            from cfgraph.console.transforms.grad_check import FiniteDifferenceCheck

            check = FiniteDifferenceCheck.prepare(
                source, request, inputs, names, cases.cases or 1, options.rtol
            )
        return extended_group(PreparedGradients, options, request=request, comparison=check)

    @classmethod
    def apply(cls, graph: Graph, options: GradOptions, names: SignatureNames) -> Self:
        """Add the gradients to a graph. Raises UsageError for names that do not fit it."""
        _require_valid(options)
        kind = requested_kind(options)
        if kind is not None:
            return cls(graph, options, _products(graph, kind, options, names), None, [])
        comparison, request = None, None
        if isinstance(options, PreparedGradients):
            comparison, request = options.comparison, options.request
        request = request or _request(graph, options, names)
        added = added_gradients(graph, derivatives(graph, request))
        return cls(graph, options, added, comparison, [])

    def notes(self) -> Sequence[str]:
        """The requested xs without a gradient; all xs if there is no gradient at all."""
        added = self.report
        if not added.has_gradients:
            reasons = added.warnings[:_MAX_LISTED]
            more = len(added.warnings) - len(reasons)
            listed = [*reasons, f"{more} more xs have no gradient"] if more > 0 else reasons
            found = "no x has a gradient: nothing is written (--unconnected zero writes zeros)"
            return [f"warning: {text}" for text in [*listed, found]]
        warnings = [f"warning: {text}" for text in added.warnings] if self.options.xs else []
        return [*warnings, *self._constant_sums(), *self._ignored()]

    def _constant_sums(self) -> Iterator[str]:
        """The ys whose sum is constant, so that its gradient is zero."""
        if self.options.grad_ys or requested_kind(self.options) in ("jacobian", "jvp"):
            return
        for name in self.report.ys:
            node = normalizing_node(self.graph.tensor(name))
            if node is not None:
                base = name.removesuffix(":0")
                yield (
                    f"warning: the elements of {name} have a constant sum ({node.op} {node.name}), "
                    f"whose gradient is zero; select one (--ys '{base}[:, 0]'), weight them "
                    "(--grad-ys), or add --jacobian"
                )

    def _ignored(self) -> Iterator[str]:
        """The custom gradients that were replaced by those of the ops."""
        if self.options.ignore_custom:
            ys = [self.graph.tensor(name).node for name in self.report.ys]
            count = sum(custom_gradient_name(node) is not None for node in upstream(ys))
            if count:
                yield f"custom gradients of {format_count(count, 'node')} ignored"

    def check(self) -> bool:
        """Require a gradient, and compare the gradients with finite differences if requested."""
        if self.comparison is None:
            return self.report.has_gradients
        from cfgraph.console.transforms.grad_check import gradients_agree

        self.comparisons = self.comparison.compare()
        return gradients_agree(self.comparisons)

    def is_written(self, outputs: OutputOptions) -> bool:
        """False on a terminal if only the comparison was requested."""
        is_terminal = sys.stdout is not None and sys.stdout.isatty()
        to_terminal = outputs.output is None and outputs.to is None and is_terminal
        return not (self.options.check and to_terminal)

    def signatures(self, names: SignatureNames) -> Sequence[SavedSignature]:
        """The selected signature with the gradients."""
        return () if names.selected is None else (self.report.extend(names.selected),)

    def companion_data(self) -> bytes:
        """A map from each x to its gradients."""
        return json_bytes(self.report.names())

    def summary(self) -> GradSummary:
        """The numbers of added nodes, accumulators, and loops."""
        from cfgraph.console.transforms.grad_result import GradSummary

        return GradSummary.from_attributes(self.report)

    def result(self, verify: RunsReport | None) -> GradResult:
        """The gradients, and the comparison of each."""
        from cfgraph.console.transforms.grad_check import checked_gradients
        from cfgraph.console.transforms.grad_result import GradResult

        check = checked_gradients(self.comparisons) if self.options.check else None
        return GradResult(self.report.reports(), check, self.report.warnings, verify)

    def show(self, out: Page) -> None:
        """Print the gradients."""
        print_gradients(out, self.report, xs_are_defaults=not self.options.xs)

    def print(self, outputs: OutputOptions, passed: bool) -> None:
        """Print the gradients, and their comparison also with `--quiet` if it failed."""
        if not is_quiet():
            self.show(page(stream=sys.stderr))
        if self.comparisons:
            from cfgraph.console.transforms.grad_check import print_check

            print_check(self.comparisons, hidden=is_quiet() and passed)


def _ys_and_xs(
    graph: Graph, request: GradOptions, names: SignatureNames
) -> tuple[list[Output], list[Output]]:
    """Resolve the ys and the xs. Raises UsageError if there are none."""
    ys = _tensors(graph, request.ys, names.outputs)
    if not ys:
        likely = ", ".join([*names.outputs] or [item.name for item in sinks(graph)[:3]])
        hint = f"use --ys; outputs of the graph: {likely}" if likely else None
        raise UsageError("nothing to differentiate", hint=hint)
    sliced = next((text for text in request.xs if "[" in text), None)
    if sliced is not None:
        message = f"--xs {sliced!r} names a slice, on which no y depends"
        raise UsageError(message, hint="name the tensor, and slice its gradient")
    xs = _tensors(graph, request.xs, names.inputs) or default_xs(graph)
    if not xs:
        message = (
            "the graph has neither variables nor float inputs to differentiate with respect to"
        )
        raise UsageError(message, hint="name tensors with --xs")
    return ys, xs


def _tensors(graph: Graph, texts: Sequence[str], names: Mapping[str, str]) -> list[Output]:
    """Resolve lists of names, which may be those of a signature, and have an index."""
    parts = [text.partition("[") for text in dict.fromkeys(split_values(texts)) if text]
    return [
        named_tensor(graph, names.get(name, name), bracket + index)
        for name, bracket, index in parts
    ]


def _weights(graph: Graph, xs: list[Output], lists: list[str], what: str, each: str) -> list[Any]:
    """Return a tensor name or an array per tensor, or none. Raises UsageError for some."""
    texts = split_values(lists)
    if texts and len(texts) != len(xs):
        message = f"{len(texts)} {what} for {len(xs)} {each}s"
        raise UsageError(message, hint=f"give one per {each}, in the same order")
    return [_weight(graph, x, text) for x, text in zip(xs, texts, strict=bool(texts))]


def _weight(graph: Graph, x: Output, text: str) -> Any:
    if split_tensor_name(text)[0] in graph:
        return graph.tensor(text).name
    from cfgraph.runtime.feeds.parse_feeds import read_value

    try:
        return read_value(text, graph, x, f"the factor of {x.name}")
    except UsageError as error:
        error.hint = error.hint or "use a tensor name or a --feed value"
        raise
