"""Loops by name: frames of a graph, and nodes that call functions for each iteration."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from cfgraph.analysis.loops.frame import Frame
from cfgraph.analysis.loops.loop_condition import loop_condition
from cfgraph.analysis.loops.loop_state import (
    VARIABLE_COLUMNS,
    LoopStateVariable,
    call_variables,
    carried_tensors,
    frame_variables,
)
from cfgraph.cli.output import Page, report_table
from cfgraph.console.node_names import NodeNames
from cfgraph.console.signatures import SignatureNames
from cfgraph.console.views.selection import GraphView, NodeSelection, find_node
from cfgraph.errors import UsageError
from cfgraph.ir.names import did_you_mean, first_names
from cfgraph.ops.opdef.op import function_calls

# late imports: only a loop of a node that calls functions is lowered as in a run
_MAX_PATHS = 4


@dataclass(frozen=True, slots=True)
class LoopView:
    """A frame, in the graph or in its lowered form for a node that calls functions, the `call`."""

    view: GraphView
    frame: Frame
    call: NodeSelection | None = None

    @property
    def title(self) -> str | None:
        """The name of the node that calls functions, if it is one."""
        return None if self.call is None else self.call.view.title(self.call.nodes[0])

    @property
    def nodes(self) -> NodeSelection:
        """The nodes of the loop with those of inner loops, in graph order."""
        graph_frames = self.view.frames
        nodes = [node for node in self.view.graph if self._has(graph_frames.of[node])]
        return NodeSelection(self.view, [*self.frame.enters, *nodes])

    def _has(self, frame: Frame) -> bool:
        return frame.is_within(self.frame)

    @property
    def variables(self) -> list[LoopStateVariable]:
        """The variables of the loop; those of a call in the order of its inputs."""
        if self.call is None:
            return frame_variables(self.frame, self.view.shapes)
        view = self.call.view
        variables = call_variables(self.call.nodes[0], view.caller or view.graph)
        return self._with_handles(variables)

    @property
    def condition(self) -> str | None:
        """The condition with which the loop goes on, as an expression of its variables."""
        state = list(self.state.values())
        invariants = frame_variables(self.frame, self.view.shapes)[len(state) :]
        return loop_condition(self.frame, [*state, *invariants])

    def _with_handles(self, variables: Sequence[LoopStateVariable]) -> list[LoopStateVariable]:
        """Name handles, which a function has as arguments, by what the lowered loop receives."""
        lowered = [
            item for item in frame_variables(self.frame, self.view.shapes) if _is_handle(item)
        ]
        handles = list(filter(_is_handle, variables))
        if len(lowered) != len(handles):
            return [*variables]
        named = {
            item.index: replace(item, name=other.name, initial=other.initial)
            for item, other in zip(handles, lowered, strict=True)
        }
        return [named.get(item.index, item) for item in variables]

    @property
    def state(self) -> dict[str, LoopStateVariable]:
        """The variables that an iteration may change, by the tensors that it reads."""
        names = [tensor.name for tensor in carried_tensors(self.frame)]
        found = frame_variables(self.frame, self.view.shapes)[: len(names)]
        if self.call is not None:
            rest = iter(self.variables)
            matches = [next((x for x in rest if x.name == item.name), None) for item in found]
            named = [item for item in matches if item is not None]
            found = named if len(named) == len(found) else found
        return dict(zip(names, found, strict=True))


def print_loop(out: Page, loop: LoopView) -> None:
    """Print the condition and the variables of a loop."""
    if loop.condition is not None:
        out.heading("goes on while", loop.condition)
        out.line()
    out.heading("variables", "as an iteration reads and returns them")
    out.table(report_table(LoopStateVariable, loop.variables, *VARIABLE_COLUMNS))
    out.line()


def _is_handle(variable: LoopStateVariable) -> bool:
    return variable.type.startswith("resource")


def called_loop(names: NodeNames, selection: NodeSelection) -> LoopView | None:
    """The loop of a node that calls functions for each iteration, where it is called first.

    None for another node, and if nothing calls the function that has the node.
    """
    node = selection.nodes[0]
    calls = function_calls(node.op)
    name = names.first_call(selection.view.name, node.name) if calls.is_loop else None
    if name is None:
        return None
    from cfgraph.runtime.preparation.run_passes import lowered_graph

    lowered = GraphView(lowered_graph(names.graph))
    frame = next((frame for frame in lowered.frames.all if frame.name == name), None)
    return None if frame is None else LoopView(lowered, frame, selection)


def find_loop(names: SignatureNames, subject: str) -> LoopView:
    """The loop of a name. Raises UsageError for any other name."""
    graph = names.nodes.graph
    complete, view = names.subject(subject), GraphView(graph)
    named = [frame for frame in view.frames.all[1:] if frame.has_name(complete)]
    if len(named) == 1:
        return LoopView(view, named[0])
    if not named and not complete.startswith("/"):
        found = called_loop(names.nodes, find_node(view, complete, names.nodes))
        if found is not None:
            return found
        raise UsageError(f"{complete!r} is not a loop", hint="`show` lists loops")
    paths = [frame.path for frame in view.frames.all[1:]]
    hint = did_you_mean(complete, paths) or f"loops of the graph: {first_names(paths, _MAX_PATHS)}"
    raise UsageError(f"no loop {complete!r} in the graph", hint=hint if paths else None)


def loop_states(names: SignatureNames, loops: Iterable[str]) -> list[dict[str, str]]:
    """The variables of loops: index and name by the tensors that an iteration reads.

    Raises UsageError for a name of no loop.
    """
    return [
        {
            tensor: f"{variable.index} {variable.name}"
            for tensor, variable in find_loop(names, name).state.items()
        }
        for name in loops
    ]
