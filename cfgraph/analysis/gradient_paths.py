"""Paths from an x to a y along which gradients flow, and the nodes that cut them.

A gradient flows against the data, from a y back to an x, through tensors of real or complex type
(or of a type that may contain such tensors). It does not flow through integers and Booleans, nor
through nodes that stop gradients. A tensor on such a path is active: its gradient is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from cfgraph.analysis.feeds_and_fetches import is_input
from cfgraph.analysis.resource_handles import is_same_variable, is_variable, variable_of_handle
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.traversal import downstream
from cfgraph.ops.opdef.gradient_api import no_gradient
from cfgraph.ops.opdef.op import lookup
from cfgraph.reports import Column

_MAX_PATH_NODES: Final = 7
_MAX_LISTED: Final = 3


@dataclass(frozen=True, slots=True)
class GradientCut:
    """Reason for a missing gradient: the nodes at which all paths end, nearest to x first.

    `kind` is `type` (outputs of other types), `stop` (nodes that stop gradients), `zero` (nodes
    whose gradient with respect to the input is zero or undefined), `state` (writes
    to state that the y reads), `handle` (other handles of the variable), `control` (only control
    edges lead on), or `none` (nothing does); `reason` explains it.
    """

    x: Output
    kind: str
    nodes: tuple[Node, ...]
    reason: Annotated[str, Column(optional=True)]


class GradientFlow:
    """The inputs of nodes at which a gradient ended, as a gradient pass has decided.

    `without_gradient` are the xs that no gradient reached; theirs is None, or zeros.
    """

    def __init__(self) -> None:
        self.without_gradient: set[Output] = set()
        self._passes: dict[tuple[Node, Output], bool] = {}

    def record(self, node: Node, x: Output, *, passes: bool) -> None:
        """Record the gradient that a node with a gradient passes to an input, or passes not."""
        self._passes[node, x] = passes or self._passes.get((node, x), False)

    def ends_at(self, node: Node, x: Output) -> bool:
        """True if a node received a gradient, and passed none to this input."""
        return not self._passes.get((node, x), True)


def default_xs(graph: Graph) -> list[Output]:
    """Default tensors to differentiate with respect to, in graph order.

    These are the variables (handles or references, fed or not) and the inputs of floating-point or
    complex type. All variables are included because a graph does not say which ones are trained.
    """
    tensors = []
    for node in graph:
        dtype = node.attrs.get("dtype") if is_variable(node) else None
        if is_input(node):
            dtype = node.output().dtype
        if dtype is not None and dtype.kind == "resource":
            dtype, _ = variable_of_handle(graph, node.output())
        if dtype is not None and (dtype.is_floating or dtype.is_complex):
            tensors.append(node.output())
    return tensors


def find_gradient_cut(
    ys: Iterable[Output],
    x: Output,
    stops: Iterable[Output] = (),
    flow: GradientFlow | None = None,
) -> GradientCut | None:
    """The cut of all gradient paths from an x to the ys, or None if a path remains.

    `stops` are additional tensors that stop gradients, and `flow` has the decisions of the pass
    that added the gradients. The graph should be lowered, because functional nodes are opaque.
    """
    targets, stopped = list(ys), {tensor.node for tensor in stops}
    if not carries_gradient(x):
        return GradientCut(
            x, "type", (x.node,), f"{x.name} has dtype {x.dtype}, which has no gradient"
        )
    reached = _breadth_first([x], lambda tensor: _gradient_successors(tensor, stopped, flow))
    if any(y in reached for y in targets):
        return None
    before = _breadth_first(targets, _data_predecessors)
    ends = [tensor for tensor in _frontier(reached) if tensor in before]
    if ends:
        return _cut_at_nodes(x, ends, stopped, flow)
    return _cut_without_data_path(targets, x, before)


def gradient_path_through(
    xs: Iterable[Output], node: Node, ys: Iterable[Output], stops: Iterable[Output] = ()
) -> tuple[Node, ...]:
    """A shortest gradient path from an x through a node to a y, or () if there is none."""
    stopped, targets = {tensor.node for tensor in stops}, set(ys)
    reached = _breadth_first(xs, lambda tensor: _gradient_successors(tensor, stopped))
    heads = [tensor for tensor in reached if tensor.node is node or tensor in node.inputs]
    if not heads:
        return ()
    head = [before for before in _path_to(reached, heads[0]) if before is not node]
    onward = _breadth_first(node.outputs, lambda tensor: _gradient_successors(tensor, stopped))
    end = next((tensor for tensor in onward if tensor in targets), None)
    return (*head, *(_path_to(onward, end) if end else [node]))


def stopping_tensors(
    xs: Iterable[Output], ys: Iterable[Output], stops: Iterable[Output] = ()
) -> list[Output]:
    """The float tensors that stop gradients on data paths from xs to ys, in order."""
    stopped = {tensor.node for tensor in stops}
    before = _breadth_first(ys, _data_predecessors)
    after = _breadth_first(xs, _data_successors)
    return [
        tensor
        for tensor in after
        if tensor in before
        and _holds_floats(tensor)
        and _stops(tensor.node, stopped)
        and not after.keys().isdisjoint(tensor.node.inputs)
    ]


def format_path(nodes: Collection[Node]) -> str:
    """A path as `x → a → … → y`; the middle of a long one is omitted."""
    names = [node.name for node in nodes]
    if len(names) > _MAX_PATH_NODES:
        half = _MAX_PATH_NODES // 2
        left_out = len(names) - 2 * half
        names[half:-half] = [f"… {left_out} more …"]
    return " → ".join(names)


def carries_gradient(x: Output) -> bool:
    """True for a tensor whose type has gradients."""
    dtype = x.dtype
    return dtype is not None and dtype.is_differentiable


def stops_gradients(op: str) -> bool:
    """True for an op that stops gradients."""
    definition = lookup(op)
    return definition is not None and definition.gradient is no_gradient


# the tensor that each one was reached from; None for a start
Predecessors = dict[Output, Output | None]


def _breadth_first(
    starts: Iterable[Output], step: Callable[[Output], Iterator[Output]]
) -> Predecessors:
    """The tensors that are reachable from the starts, nearest first."""
    reached: Predecessors = dict.fromkeys(starts)
    queue = list(reached)
    for tensor in queue:
        for successor in step(tensor):
            if successor not in reached:
                reached[successor] = tensor
                queue.append(successor)
    return reached


def _gradient_successors(
    tensor: Output, stopped: Collection[Node], flow: GradientFlow | None = None
) -> Iterator[Output]:
    """The tensors whose gradients flow to this one."""
    for node in _readers(tensor):
        if not _stops(node, stopped) and not (flow and flow.ends_at(node, tensor)):
            yield from filter(carries_gradient, node.outputs)


def _holds_floats(tensor: Output) -> bool:
    return carries_gradient(tensor) and tensor.dtype is not None and not tensor.dtype.is_object


def _data_successors(tensor: Output) -> Iterator[Output]:
    """The tensors that are computed from this one."""
    return (output for node in _readers(tensor) for output in node.outputs)


def _data_predecessors(tensor: Output) -> Iterator[Output]:
    """The tensors that this one is computed from."""
    return iter(tensor.node.inputs)


def _readers(tensor: Output) -> Iterator[Node]:
    return (use.node for use in tensor.node.readers(tensor.port))


def _stops(node: Node, stopped: Collection[Node]) -> bool:
    return node in stopped or stops_gradients(node.op)


def _frontier(reached: Predecessors) -> Iterator[Output]:
    """The successors of reached tensors that are not reached themselves."""
    successors = (successors for tensor in reached for successors in _data_successors(tensor))
    return iter(dict.fromkeys(tensor for tensor in successors if tensor not in reached))


def _path_to(reached: Predecessors, tensor: Output | None) -> list[Node]:
    """The nodes on the path from a start to a tensor."""
    nodes: list[Node] = []
    while tensor is not None:
        nodes.append(tensor.node)
        tensor = reached[tensor]
    return nodes[::-1]


def _cut_at_nodes(
    x: Output, ends: list[Output], stopped: Collection[Node], flow: GradientFlow | None
) -> GradientCut:
    """The cut at nodes without a gradient."""
    nodes = dict.fromkeys(tensor.node for tensor in ends)
    ended = {
        node: [y.name for y in node.inputs if flow is not None and flow.ends_at(node, y)]
        for node in nodes
    }
    clauses = []
    for tensor in ends[:_MAX_LISTED]:
        node, dtype = tensor.node, tensor.dtype or "an unknown type"
        verb = "stops gradients" if _stops(node, stopped) else f"outputs {dtype}"
        if ended[node]:
            verb = f"passes no gradient to {ended[node][0]}"
        clauses.append(f"{node.name} ({node.op}) {verb}")
    more = f"; and {len(ends) - _MAX_LISTED} more" if len(ends) > _MAX_LISTED else ""
    kind = "stop" if any(_stops(node, stopped) for node in nodes) else "type"
    kind = "zero" if any(ended.values()) else kind
    return GradientCut(x, kind, tuple(nodes), f"{'; '.join(clauses)}{more}")


def _cut_without_data_path(ys: list[Output], x: Output, before: Predecessors) -> GradientCut:
    """The cut for an x without a data path to any y."""
    after = _breadth_first([x], _data_successors)
    writers = tuple(
        dict.fromkeys(node for tensor in after for node in _state_writers(tensor, before))
    )
    if writers:
        node = writers[0]
        reason = (
            f"{node.name} ({node.op}) writes it to state that is read later; state has no gradient"
        )
        return GradientCut(x, "state", writers, reason)
    handles = tuple(tensor.node for tensor in before if is_same_variable(tensor.node, x.node))
    if handles:
        reason = f"the variable is read through another handle, {handles[0].name}"
        return GradientCut(x, "handle", handles, reason)
    names = ", ".join(y.name for y in ys[:_MAX_LISTED]) + (", …" if len(ys) > _MAX_LISTED else "")
    if _has_any_path(x.node, {y.node for y in ys}):
        return GradientCut(x, "control", (), f"only control edges lead to {names}")
    return GradientCut(x, "none", (), f"no path leads to {names}")


def _state_writers(tensor: Output, before: Predecessors) -> Iterator[Node]:
    """The readers of a tensor that access state which a y depends on."""
    for node in _readers(tensor):
        if any(source in before and _is_state(source) for source in node.inputs):
            yield node


def _is_state(tensor: Output) -> bool:
    dtype = tensor.dtype
    return dtype is not None and dtype.is_handle


def _has_any_path(start: Node, ends: Collection[Node]) -> bool:
    """True if data or control edges lead from a node to one of the ends."""
    return not downstream([start]).keys().isdisjoint(ends)


class ActivityAnalysis:
    """The active tensors, which lie on a path from an x to a y.

    Paths follow tensors that are numbers, resources or variants, and end at the nodes of `stops`,
    which receive a gradient and pass none on. `links` maps a node, such as a pop, to the nodes that
    write what it reads without an edge.
    """

    def __init__(
        self,
        ys: Iterable[Output],
        xs: Iterable[Output],
        stops: Iterable[Output] = (),
        links: Mapping[Node, Iterable[Node]] | None = None,
    ) -> None:
        self.stops = {stop.node for stop in stops}
        self._writers = links or {}
        # nodes may have the same writers, such as all Exits of a loop
        groups: dict[int, tuple[Iterable[Node], list[Node]]] = {}
        for reader, writers in self._writers.items():
            groups.setdefault(id(writers), (writers, []))[1].append(reader)
        self._readers: dict[Node, list[list[Node]]] = {}
        for writers, readers in groups.values():
            for writer in writers:
                self._readers.setdefault(writer, []).append(readers)
        self._active = self._ancestors(ys, self._descendants(xs))

    def is_active(self, x: Output) -> bool:
        """True if the gradient of a tensor is needed."""
        return x in self._active

    def are_active(self, tensors: Iterable[Output]) -> list[bool]:
        """One Boolean per tensor: true if its gradient is needed."""
        active = self._active
        return [x in active for x in tensors]

    def mark_active(self, tensors: Iterable[Output]) -> None:
        """Count further tensors, such as those that a gradient pass has added, as active."""
        self._active.update(tensors)

    def add_clones(self, clones: Mapping[Node, Node]) -> None:
        """Mark the outputs of clones as active if the original outputs are."""
        self.stops |= {clone for node, clone in clones.items() if node in self.stops}
        for node, clone in clones.items():
            self.mark_active(clone.output(x.port) for x in node.outputs if self.is_active(x))

    def _descendants(self, xs: Iterable[Output]) -> set[Output]:
        """The xs and all tensors that depend on one."""
        reached = {x for x in xs if carries_gradient(x)}
        todo = list(reached)
        visited: set[Node] = set(self.stops)
        seen: set[int] = set()
        readers_of: dict[Node, dict[int, list[Node]]] = {}
        while todo:
            source, port = todo.pop()
            if source.output_count == 1:
                readers = [reader for reader, slot in source.uses if slot >= 0]
            else:
                if source not in readers_of:
                    readers_of[source] = _readers_by_port(source)
                readers = readers_of[source].pop(port, [])
            if self._readers:
                for group in [group for node in readers for group in self._readers.get(node, ())]:
                    if id(group) not in seen:
                        seen.add(id(group))
                        readers += group
            for node in readers:
                if node in visited:
                    continue
                visited.add(node)
                if stops_gradients(node.op):
                    continue
                if node.output_count is None:
                    new = _outputs_read_of_unknown_op(node)
                else:
                    new = [x for x in node.outputs if carries_gradient(x) and x not in reached]
                reached.update(new)
                todo += new
        return reached

    def _ancestors(self, ys: Iterable[Output], reached: set[Output]) -> set[Output]:
        """The reached tensors that a y depends on."""
        active = {y for y in ys if y in reached}
        visited, seen = set(self.stops), set[int]()
        todo = [y.node for y in active if y.node not in visited]
        visited.update(todo)
        while todo:
            node = todo.pop()
            inputs = node.inputs
            writers = self._writers.get(node, ())
            if id(writers) not in seen:
                seen.add(id(writers))
                inputs += tuple(x for writer in writers for x in writer.inputs)
            for x in inputs:
                if x not in reached:
                    continue
                active.add(x)
                source = x[0]
                if source not in visited:
                    visited.add(source)
                    todo.append(source)
        return active


def _readers_by_port(node: Node) -> dict[int, list[Node]]:
    """The nodes that read each output."""
    readers: dict[int, list[Node]] = {}
    for reader, slot in node.uses:
        if slot >= 0:
            readers.setdefault(reader.inputs[slot].port, []).append(reader)
    return readers


def _outputs_read_of_unknown_op(node: Node) -> list[Output]:
    """The used outputs of an unknown op: a gradient that reaches them must be rejected."""
    return [use.node.inputs[use.slot] for use in node.uses if use.slot >= 0]
