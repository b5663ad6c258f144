"""What a command knows of a SavedModel besides its graph: the values of its variables."""

from __future__ import annotations

from cfgraph.console.graphs import STDIN, Source
from cfgraph.ir.files import SavedVariables, saved_variables


def variables_of(source: Source) -> SavedVariables | None:
    """The variables beside the graph of a SavedModel; None where there are none."""
    if source.format not in ("saved_model", "pbtxt") or source.path == STDIN:
        return None
    return saved_variables(source.path, source.data)


def variables_note(source: Source) -> str:
    """What becomes of the variables in a run, and in one of a graph that is made of this one."""
    saved = variables_of(source)
    if saved is None:
        return "note: no values of variables are beside the graph"
    return (
        f"note: run begins with the variables from {saved.prefix}; of a graph made of this one,\n"
        f"  with --variables {source.path}"
    )
