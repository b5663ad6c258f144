"""Options of compared runs, for one graph or for two files with signatures and variables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cfgraph.analysis.feeds_and_fetches import fed_tensor, is_input
from cfgraph.analysis.inner_nodes import find_inner_node
from cfgraph.cli.options import split_list
from cfgraph.cli.transform_options import ComparedRuns
from cfgraph.comparison.differences import RunDiff
from cfgraph.comparison.equivalence import (
    DEFAULT_CASES,
    ComparisonRunOptions,
    compare_runs,
    existing_in_b,
    has_output,
)
from cfgraph.comparison.sample_point import DimensionSizes, SampleOptions
from cfgraph.console.comparison_inputs import (
    VariableSource,
    prepare_inputs,
    requested_fetches,
)
from cfgraph.console.comparisons.tensor_pairs import GraphPair, TensorPairs
from cfgraph.console.feeds_in_functions import fed_in_functions, with_inner_feeds
from cfgraph.console.graph_files import Source, saved_model_contents
from cfgraph.console.signatures import SignatureNames, signature_names
from cfgraph.errors import UsageError
from cfgraph.ir.graph import Graph
from cfgraph.ir.node import node_name
from cfgraph.runtime.feeds.parse_feeds import read_feeds

_MAX_SIZE_DIGITS: Final = 10


def comparison_options(
    runs: ComparedRuns,
    source: Source,
    names: SignatureNames | None = None,
    *,
    by_signature: bool = False,
    skipped_feed: Callable[[str], bool] = lambda name: False,
) -> ComparisonRunOptions:
    """Resolve runs for a graph. Raises UsageError for options that do not fit it.

    With `by_signature`, or a signature that is named, the default fetches are its outputs. Feeds of
    a `skipped_feed` are those of another graph.
    """
    graph, inputs, cases = source.graph, runs.inputs, runs.cases
    names = names or signature_names(source, inputs.signature, inputs.variables)
    request = requested_fetches(graph, runs.fetches, names)
    if (by_signature or inputs.signature is not None) and not runs.fetches.is_set:
        request.default()
    named = [*(item.node for item in request.tensors), *request.targets]
    prepared = prepare_inputs(inputs, source, names, named or None, skipped_feed=skipped_feed)
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
        cases=DEFAULT_CASES if cases.cases is None else cases.cases,
        seed=prepared.seed,
        rtol=cases.rtol,
        atol=cases.atol,
    )


def require_no_second_graph(runs: ComparedRuns) -> None:
    """Raise UsageError for variables of a second graph."""
    if runs.inputs.variables_b is not None:
        message = "--variables-b is for the second of two graphs"
        raise UsageError(message, hint="write --variables for a single graph")


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


SourcePair = tuple[Source, Source]


@dataclass(frozen=True, slots=True)
class PairedRuns:
    """Runs of two files to compare, which are lowered if tensors of their functions are fed.

    `replaced` are these tensors, by the placeholders that are fed in their place.
    """

    sources: SourcePair
    options: ComparisonRunOptions
    replaced: Mapping[str, str]

    @property
    def graphs(self) -> GraphPair:
        """The graphs that run."""
        return self.sources[0].graph, self.sources[1].graph

    def compare(self) -> RunDiff:
        """Run both graphs and compare the results; raises the errors of `compare_runs`."""
        delta = compare_runs(*self.graphs, self.options)
        fed = {self.replaced.get(name, name): value for name, value in delta.inputs.items()}
        return replace(delta, inputs=fed)


def pair_runs(sources: SourcePair, runs: ComparedRuns) -> PairedRuns:
    """Resolve the runs of two files. Raises UsageError for options that fit neither."""
    a, b = sources
    runs, fetches_of_b = runs.fetched_of_b()
    names_a, names_b, pairs = _paired_signatures(a, b, runs)
    inner_a = fed_in_functions(a.graph, names_a, runs.inputs)
    inner_b = fed_in_functions(b.graph, names_b, runs.inputs)
    a, names_a, replaced = with_inner_feeds(a, names_a, runs.inputs, _common(a.graph, inner_b))
    b, names_b, _ = with_inner_feeds(b, names_b, runs.inputs, _common(b.graph, inner_a))
    pairs.add_fetches(fetches_of_b, (a.graph, b.graph), (names_a, names_b))
    knows_a, knows_b = _feed_names(a.graph, names_a), _feed_names(b.graph, names_b)
    options = comparison_options(
        runs,
        a,
        names_a,
        by_signature=bool(names_a.outputs),
        skipped_feed=lambda name: not knows_a(name) and knows_b(name),
    )
    feeds_of_b = read_feeds(
        b.graph,
        runs.inputs.feed,
        runs.inputs.feeds,
        options.seed,
        names_b.inputs,
        lambda name: knows_a(name) or not knows_b(name),
    )
    options = replace(
        options,
        missing=tuple(name for name in options.fetches if name in pairs.missing),
        names_of_b=pairs.names_of_b,
        feeds_of_b=feeds_of_b,
        notices=tuple(pairs.notices),
        independent=True,
    )
    _require_in_both(a.graph, b.graph, options, replaced)
    if replaced:  # what only the fed tensors needed is no output
        options = existing_in_b(sources[0].graph, b.graph, options)
    return PairedRuns((a, b), _with_variables_of_b(b, runs, options), replaced)


def _require_in_both(
    a: Graph, b: Graph, options: ComparisonRunOptions, replaced: Mapping[str, str]
) -> None:
    """Raise UsageError if a tensor that is no input can be fed in one graph alone."""
    shared = set(map(options.name_of_b, options.setting.feeds))
    of_a = ((name, a, b, "A", "B") for name in options.setting.feeds)
    of_b = ((name, b, a, "B", "A") for name in options.feeds_of_b if name not in shared)
    for name, graph, other, has, lacks in (*of_a, *of_b):
        is_inner = name in replaced or not is_input(graph.tensor(name).node)
        if is_inner and not has_output(other, options.name_of_b(name) if other is b else name):
            shown = replaced.get(name, name)
            message = f"{shown} cannot be fed in both graphs: {has} has it, {lacks} does not"
            raise UsageError(message, hint="feed tensors that both have, or inputs")


def _common(graph: Graph, tensors: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    """Return the tensors of functions of another graph that this one has, inside or outside."""

    def has_all(names: Iterable[str]) -> bool:
        nodes = map(node_name, names)
        return all(node in graph or find_inner_node(graph, node) for node in nodes)

    return {name: listed for name, listed in tensors.items() if has_all(listed)}


def _with_variables_of_b(
    b: Source, runs: ComparedRuns, options: ComparisonRunOptions
) -> ComparisonRunOptions:
    """Restore the variables of the second graph; those of --variables are for both."""
    inputs, setting = runs.inputs, options.setting
    own = VariableSource(inputs.variables_b, inputs.allow_io, inputs.feeds)
    io = setting.io.with_roots(*own.io_policy(b).roots)
    options = replace(options, setting=replace(setting, io=io))
    if inputs.variables is not None and inputs.variables_b is None:
        return replace(options, state_of_b=setting.state)
    names = map(options.name_of_b, options.fetches)
    nodes = [b.graph.nodes.get(node_name(name)) for name in (*names, *options.targets)]
    nodes += [b.graph.nodes.get(node_name(name)) for name in setting.inits] if nodes else []
    wanted = [node for node in nodes if node is not None]
    return replace(options, state_of_b=own.state(b, wanted if nodes else None))


def _feed_names(graph: Graph, names: SignatureNames) -> Callable[[str], bool]:
    """Return a test of names that a graph can be fed."""

    def is_known(name: str) -> bool:
        try:
            fed_tensor(graph, names.inputs.get(name, name))
        except UsageError:
            return False
        return True

    return is_known


def _paired_signatures(
    a: Source, b: Source, runs: ComparedRuns
) -> tuple[SignatureNames, SignatureNames, TensorPairs]:
    """Return the names of both graphs, and the pairs of the requested or default signatures.

    Without a default signature these are all that have one name. A graph without signatures has
    the tensors of the other's, or outputs of the same types. A fetch that no signature names has no
    other name in the second graph.
    """
    contents = saved_model_contents(a), saved_model_contents(b)
    known = [item.signatures if item else {} for item in contents]
    inputs = runs.inputs
    requested = inputs.signature
    if not known[0] and known[1] and (requested is not None or inputs.variables is None):
        names_b = signature_names(b, requested)
        names_a = names_b.in_graph(a.graph)
    else:
        names_a = signature_names(a, requested, inputs.variables)
        default = names_a.selected.name if names_a.selected else None
        chosen = requested or (default if default in known[1] else None)
        names_b = signature_names(b, chosen) if known[1] else names_a.in_graph(b.graph)
    pairs, graphs = TensorPairs(), (a.graph, b.graph)
    if names_a.selected is not None:
        pairs.add(names_a.selected, names_b.selected, graphs)
    elif known[0] and names_b.selected is None:
        names_a = SignatureNames.of_all(a.graph, known[0].values())
        for name, signature in known[0].items():
            pairs.add(signature, known[1].get(name), graphs)
    elif names_b.selected is not None or not runs.fetches.is_set:
        pairs.add_outputs(graphs, names_b.selected)
    pairs.add_placeholders(names_a, names_b, graphs)
    return names_a, names_b, pairs
