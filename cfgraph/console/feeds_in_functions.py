"""Graphs that are lowered where a run feeds tensors inside of their functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from cfgraph.cli.output import note
from cfgraph.cli.transform_options import RunInputs
from cfgraph.console.graph_files import Source
from cfgraph.console.signatures import SignatureNames
from cfgraph.ir.graph import Graph
from cfgraph.ir.names import first_names

# late imports: few graphs have functions

_MAX_NAMES: Final = 4


class FedSource(NamedTuple):
    """A graph to run, whose names of inputs are those of feeds, too.

    `replaced` are the tensors of functions that are fed, by the placeholders in their place.
    """

    source: Source
    names: SignatureNames
    replaced: Mapping[str, str]


def with_inner_feeds(
    source: Source,
    names: SignatureNames,
    inputs: RunInputs,
    others: Mapping[str, Sequence[str]] | None = None,
) -> FedSource:
    """The graph, which is lowered if tensors of functions are fed: those of `others`, too."""
    tensors = {**(others or {}), **fed_in_functions(source.graph, names, inputs)}
    if not tensors:
        return FedSource(source, names, {})
    from cfgraph.runtime.preparation.inner_feeds import remove_unread, replace_by_inputs

    if source.graph.functions:
        note(f"note: {source.path} is lowered to feed {first_names([*tensors], _MAX_NAMES)}")
    graph, placeholders, unread = replace_by_inputs(source.graph, tensors)
    remove_unread(graph, [tensor.node for tensor in unread], source.graph)
    inputs_by_name = {name: item.name for name, item in placeholders.items()}
    replaced = {
        item: tensors[name][0] if len(tensors[name]) == 1 else name
        for name, item in inputs_by_name.items()
    }
    return FedSource(replace(source, graph=graph), names.with_names(inputs_by_name), replaced)


def fed_in_functions(
    graph: Graph, names: SignatureNames, inputs: RunInputs
) -> dict[str, Sequence[str]]:
    """The tensors of functions that are fed, as they are named in a run, by the names of feeds."""
    if not graph.functions:
        return {}
    from cfgraph.runtime.feeds.parse_feeds import feed_names
    from cfgraph.runtime.preparation.inner_feeds import function_tensors

    fed = {name: names.inputs.get(name, name) for name in feed_names(inputs.feed, inputs.feeds)}
    tensors = function_tensors(graph, fed.values())
    return {name: tensors[full] for name, full in fed.items() if full in tensors}
