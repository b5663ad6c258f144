"""A run of a SavedModel begins with the values of its variables."""

from __future__ import annotations

from cfgraph.console.graphs import Source
from cfgraph.console.page import note
from cfgraph.console.saved_model import variables_of
from cfgraph.errors import Unsupported
from cfgraph.runtime.restore import restored_state
from cfgraph.runtime.state import State


def restored(source: Source, quiet: bool) -> State | None:
    """The variables of a SavedModel, with a note that says so; None where there are none."""
    saved = variables_of(source)
    if saved is None:
        return None
    try:
        state = restored_state(source.graph, saved)
    except Unsupported as error:
        note(f"warning: the variables are not restored: {error.message}")
        return None
    told = "a variable" if len(state) == 1 else f"{len(state)} variables"
    note(f"note: begins with {told} from {saved.prefix}", quiet)
    return state
