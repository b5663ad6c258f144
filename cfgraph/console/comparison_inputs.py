"""Inputs and initial variables of the runs that a command compares."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from cfgraph.console.graph_files import Source, saved_model_folder, saved_model_variables
from cfgraph.console.output import note
from cfgraph.errors import Unsupported, UsageError
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.names import first_names
from cfgraph.runtime.engine.step import State
from cfgraph.runtime.io_policy import FORBIDDEN_FILE_CODE, IoPolicy
from cfgraph.runtime.restore import required_variables, restore_for_graph, saved_model_state

_MAX_NAMES = 4


@dataclass(frozen=True, slots=True)
class VariableSource:
    """Source of variables: `path` if it is set, else the SavedModel that is run."""

    path: str | None = None
    quiet: bool = False
    allow_io: bool = False

    def io_policy(self, source: Source) -> IoPolicy:
        """Return what the graph may do with files: read the SavedModel, and `path`."""
        folder = saved_model_folder(source)
        roots = [root for root in (folder, self.path) if root is not None]
        return IoPolicy(self.allow_io).with_roots(*roots)

    def state(self, source: Source, wanted: Collection[Node] | None = None) -> State | None:
        """Return a graph's variables, or only the ones that `wanted` needs; a note names their
        origin.

        Returns None if there are none. Raises UsageError if `path` contains none of them.
        """
        keys = None if wanted is None else required_variables(source.graph, wanted)
        if self.path is not None:
            io = self.io_policy(source)
            origin, state = self.path, _restore_from(source.graph, self.path, keys, io)
        else:
            saved = saved_model_variables(source)
            if saved is None or keys == set():
                return None
            try:
                state = saved_model_state(source.graph, saved, keys, self.io_policy(source))
                origin = saved.prefix
            except Unsupported as error:
                if error.code == FORBIDDEN_FILE_CODE:
                    raise
                note(f"warning: the variables are not restored: {error.message}")
                return None
        count = "1 variable" if len(state) == 1 else f"{len(state)} variables"
        note(f"note: restored {count} from {origin}", self.quiet)
        return state


def _restore_from(
    graph: Graph, path: str, keys: Collection[tuple[str, str]] | None, io: IoPolicy
) -> State:
    """Restore the variables of a graph from a path.

    Raises UsageError if it contains none of them.
    """
    if keys is None:
        keys = required_variables(graph, tuple(graph))
    if keys == set():
        message = "--variables is given, but no variable is needed"
        raise UsageError(message, path=path, hint="remove --variables")
    state = restore_for_graph(graph, path, keys, io)
    if keys and not len(state):
        wanted = first_names([name for _, name in sorted(keys)], _MAX_NAMES)
        message = f"contains none of the required variables: {wanted}"
        hint = "a checkpoint of a SavedModel uses other names: pass the folder of the SavedModel"
        raise UsageError(message, path=path, hint=hint)
    return state


@dataclass(frozen=True, slots=True)
class RunInputs:
    """Feeds, fetches, number of cases, limits, and tolerances; all as the user wrote them."""

    fetches: Sequence[str] = ()
    targets: Sequence[str] = ()
    feeds: Sequence[str] = ()
    archives: Sequence[str] = ()
    inits: Sequence[str] = ()
    sizes: Sequence[str] = ()
    cases: int | None = None
    seed: int | None = None
    rtol: float | None = None
    atol: float | None = None
    max_iterations: int | None = None
    variables: str | None = None
    allow_io: bool = False

    @property
    def is_set(self) -> bool:
        """True if any of the options was used."""
        lists = (self.fetches, self.targets, self.feeds, self.archives, self.inits, self.sizes)
        scalars = (
            self.cases,
            self.seed,
            self.rtol,
            self.atol,
            self.max_iterations,
            self.variables,
        )
        return self.allow_io or any(lists) or any(value is not None for value in scalars)
