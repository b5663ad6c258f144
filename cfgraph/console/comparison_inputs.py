"""Fetches, inputs, and initial variables of the runs that a command makes or compares."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cfgraph.analysis.tables import required_tables, table_initializers
from cfgraph.cli.output import note, warn
from cfgraph.cli.transform_options import FetchOptions, RunInputs
from cfgraph.console.graph_files import Source, saved_model_folder, saved_model_state_of
from cfgraph.console.signatures import SignatureNames, names_tensors
from cfgraph.errors import Unsupported, UsageError
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.names import first_names
from cfgraph.runtime.cost_model import CostModel
from cfgraph.runtime.engine.propagate import DEFAULT_MAX_ITERATIONS
from cfgraph.runtime.engine.step import State
from cfgraph.runtime.feeds.case_files import read_case
from cfgraph.runtime.feeds.parse_feeds import FeedArchive, read_feeds
from cfgraph.runtime.fetches import Fetches
from cfgraph.runtime.io_policy import FORBIDDEN_FILE_CODE, IoPolicy
from cfgraph.runtime.restore import (
    RequiredState,
    required_state,
    restore_for_graph,
    saved_model_state,
    state_with_values,
)
from cfgraph.runtime.session import Session

_MAX_NAMES = 4


@dataclass(frozen=True, slots=True)
class VariableSource:
    """Source of variables: `path` if it is set, else the SavedModel that is run.

    Variables that it has no values of may be in the `archives` of a case.
    """

    path: str | None = None
    allow_io: bool = False
    archives: Sequence[FeedArchive] = ()

    def io_policy(self, source: Source) -> IoPolicy:
        """Return what the graph may do with files: read the SavedModel, and `path`."""
        folder = saved_model_folder(source)
        roots = [root for root in (folder, self.path) if root is not None]
        return IoPolicy(self.allow_io).with_roots(*roots)

    def state(
        self,
        source: Source,
        wanted: Collection[Node] | None = None,
        *,
        with_other_variables: bool = False,
    ) -> State | None:
        """Return a graph's variables, or those that `wanted` needs; a note names their origin.

        `with_other_variables` adds the other variables. Returns None if there are none. Raises
        UsageError if `path` contains none of them.
        """
        stored = self._stored(source, wanted, with_other_variables)
        values = read_case(self.archives).variables
        return state_with_values(source.graph, stored, values) if values else stored

    def _stored(
        self, source: Source, wanted: Collection[Node] | None, with_other_variables: bool
    ) -> State | None:
        """Return the variables of the path, or of the SavedModel."""
        required = RequiredState(None, tables=True)
        if wanted is not None:
            required = required_state(source.graph, wanted)
        if self.path is not None:
            io, others = self.io_policy(source), with_other_variables
            if required.is_empty and not others and names_tensors(self.path, source.graph):
                return None  # it provides the names alone
            origin, state = self.path, _restore_from(source.graph, self.path, wanted, io, others)
        else:
            saved = saved_model_state_of(source)
            if with_other_variables:
                required = RequiredState(None, required.tables)
            if saved is None or required.is_empty:
                return None
            try:
                state = saved_model_state(source.graph, saved, required, self.io_policy(source))
                origin = saved.origin
            except Unsupported as error:
                if error.code == FORBIDDEN_FILE_CODE:
                    raise
                warn(f"the variables are not restored: {error.message}")
                return None
        note(f"note: restored {_contents_text(state)} from {origin}")
        return state


def requested_fetches(graph: Graph, fetches: FetchOptions, names: SignatureNames) -> Fetches:
    """Resolve the fetches and targets; a signature may name them."""
    names.require_selected(fetches.fetch)
    request = Fetches(graph, names.outputs)
    for name in fetches.fetch:
        request.fetch(names.outputs.get(name, name))
    for name in fetches.target:
        request.target(names.outputs.get(name, name))
    return request


@dataclass(frozen=True, slots=True)
class PreparedInputs:
    """A graph with what its runs receive."""

    graph: Graph
    feeds: Mapping[str, Any]
    inits: Sequence[str]
    max_iterations: int
    seed: int
    state: State | None
    io: IoPolicy

    def session(
        self, state: State | None, devices: str = "", costs: CostModel | None = None
    ) -> Session:
        """Create a session with some variables."""
        return Session(
            self.graph,
            devices or None,
            state,
            soft_placement=True,
            seed=self.seed,
            costs=costs,
            allow_io=self.io,
            blas_threads="auto",
        )

    def initial_state(self) -> State:
        """Run the initializers on the variables, and return the resulting ones."""
        session = self.session(self.state)
        for name in self.inits:
            session.run([], self.feeds, [name], max_iterations=self.max_iterations)
        return session.state


def prepare_inputs(
    inputs: RunInputs,
    source: Source,
    names: SignatureNames,
    needed: Iterable[Node] | None,
    fed: Graph | None = None,
    skipped_feed: Callable[[str], bool] = lambda name: False,
) -> PreparedInputs:
    """Read the feeds, and the variables that `needed` nodes and the initializers need, or all.

    Feeds are those of the graph `fed`, by default of the source, except for a `skipped_feed`.
    Raises UsageError for inputs that do not fit.
    """
    graph = source.graph
    inits = [graph[name.removeprefix("^")] for name in inputs.init]
    seed = inputs.seed or read_case(inputs.feeds).seed or 0
    fed = fed or graph
    feeds = read_feeds(fed, inputs.feed, inputs.feeds, seed, names.inputs, skipped_feed)
    variables = VariableSource(inputs.variables, inputs.allow_io, inputs.feeds)
    nodes = [*graph] if needed is None else [*needed]
    state = variables.state(source, None if needed is None else [*nodes, *inits])
    inits += needed_initializers(graph, nodes, inits, state, {fed.tensor(name) for name in feeds})
    return PreparedInputs(
        graph,
        feeds,
        [node.name for node in inits],
        DEFAULT_MAX_ITERATIONS if inputs.max_iterations is None else inputs.max_iterations,
        seed,
        state,
        variables.io_policy(source),
    )


def needed_initializers(
    graph: Graph,
    nodes: Collection[Node],
    inits: Collection[Node],
    state: State | None,
    fed: Collection[Output],
) -> list[Node]:
    """The nodes that fill the tables which `nodes` need; a note names them.

    Tables of `state` are filled, and those that `inits` fill. A warning names a table that no node
    fills.
    """
    filled = () if state is None else state.filled_tables()
    tables = required_tables(graph, nodes, inits, filled)
    found = table_initializers(graph, tables, fed)
    for node, table in found.items():
        note(f"note: {node.name} fills the table {table.name} first")
    for table in tables:
        if table.initializers and table not in found.values():
            warn(f"{table.initializers[0].name}, which fills the table {table.name}, needs a feed")
        elif not table.initializers and not table.may_be_filled_elsewhere:
            warn(f"no node of the graph fills the table {table.name}")
    return [*found]


def _contents_text(state: State) -> str:
    """Return the number of variables, and of other resources if there are any."""
    variables = sum(1 for _ in state.variables())
    resources = len(state) - variables
    parts = [f"{variables} variable{'s' * (variables != 1)}"] if variables or not resources else []
    parts += [f"{resources} table{'s' * (resources != 1)}"] if resources else []
    return " and ".join(parts)


def _restore_from(
    graph: Graph, path: str, wanted: Collection[Node] | None, io: IoPolicy, others: bool
) -> State:
    """Restore the state of a graph from a path, with variables that are not needed if `others`.

    Raises UsageError if it contains none of the required variables.
    """
    required = required_state(graph, tuple(graph) if wanted is None else wanted)
    if required.is_empty and not others:
        message = "--variables is given, but no variable is needed"
        raise UsageError(message, path=path, hint="remove --variables")
    restored = RequiredState(None, required.tables) if others else required
    state = restore_for_graph(graph, path, restored, io)
    require_restored(state, required, path)
    return state


def require_restored(state: State, required: RequiredState, path: str) -> None:
    """Raise UsageError if a path contains none of the required variables."""
    if required.variables and not len(state):
        names = first_names([name for _, name in sorted(required.variables)], _MAX_NAMES)
        message = f"contains none of the required variables: {names}"
        hint = "a checkpoint of a SavedModel uses other names: pass the folder of the SavedModel"
        raise UsageError(message, path=path, hint=hint)
