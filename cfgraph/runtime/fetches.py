"""Resolution of fetch names: globs, operations, and tensors inside loops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase

from cfgraph.analysis.feeds_and_fetches import fetched_tensor
from cfgraph.analysis.loops.frame import Frame, Frames
from cfgraph.analysis.loops.frames import frames
from cfgraph.analysis.summary import function_results, node_outputs, sinks, without_io_nodes
from cfgraph.analysis.verify.verify import require_valid_nodes
from cfgraph.errors import UsageError
from cfgraph.ir.function_graph import OutputPorts
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.library import calls_of
from cfgraph.ir.names import did_you_mean, first_names
from cfgraph.ir.node import node_name, split_tensor_name
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import Role
from cfgraph.ir.traversal import ancestors

# late imports: only an error names the Exit of a loop

MAX_EXITS = 3
_MAX_OMITTED = 4
_MAX_SIMILAR = 5


class Fetches:
    """The tensors to fetch and the nodes to run, without duplicates, in the given order.

    The names are complete. `names` are those of the signature, with the tensors to fetch if nothing
    is named. `notes` report what a glob omits.
    """

    def __init__(self, graph: Graph, names: Mapping[str, str] | None = None) -> None:
        self.graph = graph
        self.names = {} if names is None else names
        self.tensors: dict[Output, None] = {}
        self.targets: dict[Node, None] = {}
        self.notes: list[str] = []
        self._frames: Frames | None = None

    @property
    def frames(self) -> Frames:
        """The frames of the graph, computed on first use."""
        if self._frames is None:
            self._frames = frames(self.graph)
        return self._frames

    def fetch(self, name: str) -> None:
        """Add a fetch: a tensor, `^node`, or a glob for all matching tensors outside of loops.

        Raises UsageError for an unknown name, and for a tensor inside a loop, which has many
        values.
        """
        if name.startswith("^"):
            self.target(name)
        elif is_glob(name):
            self.tensors.update(dict.fromkeys(self._matching(name)))
        else:
            self.tensors[self.outside_loops(name)] = None

    def target(self, name: str) -> None:
        """Add a node to run for its effects. Raises UsageError for an unknown one."""
        if is_glob(name):
            self.targets.update(dict.fromkeys(matching_nodes(self.graph, name)))
        else:
            self.targets[self.graph[name.removeprefix("^")]] = None

    def in_copy(self, graph: Graph) -> Fetches:
        """The same fetches in a copy of the graph."""
        copy = Fetches(graph, self.names)
        copy.tensors = {graph.tensor(tensor.name): None for tensor in self.tensors}
        copy.targets = {graph[node.name]: None for node in self.targets}
        copy.notes = self.notes
        return copy

    def outside_loops(self, name: str) -> Output:
        """The tensor of a name. Raises UsageError for one inside a loop, which has many values."""
        output = self._tensor(name)
        frame = self.frames.of_outputs.get(output.node)
        if frame is not None and frame is not self.frames.root:
            # a fault of the node says more than the loop that it was assigned to
            require_valid_nodes(self.graph, ancestors(self.graph, [output.node]))
            raise _inner_tensor_error(output, self.frames, frame)
        return output

    def _tensor(self, name: str) -> Output:
        try:
            return fetched_tensor(self.graph, name)
        except UsageError as error:
            hint = did_you_mean(name, self.names) or _body_node_hint(self.graph, name)
            if not hint and self.names and node_name(name) not in self.graph:
                outputs = first_names([*self.names], _MAX_OMITTED)
                hint = f"outputs of the signature: {outputs}; {error.hint}"
            error.hint = hint or error.hint
            node = self.graph.nodes.get(error.node or "")
            if node is not None and node.output_count == 0:
                error.hint = f"run it with --target {node.name}, or first with --init {node.name}"
            raise

    def default(self) -> None:
        """Add the named tensors, else the outputs of nodes outside of loops without consumers.

        Nodes that save and restore variables are excluded.
        """
        if self.names:
            self.tensors.update((self.outside_loops(name), None) for name in self.names.values())
            return
        unread = without_io_nodes(self.graph, sinks(self.graph, self.frames))
        outputs = function_results(unread)
        if len(outputs) < len(unread):
            omitted = [tensor.name for tensor in unread if tensor not in outputs]
            names = first_names(omitted, _MAX_OMITTED)
            self.notes.append(f"the results of the function are fetched; nothing reads {names}")
        if not outputs:
            hint = "name a tensor with --fetch, or a node with --target"
            if sent := [*self._sent()]:
                names = first_names(sent, _MAX_OMITTED)
                hint = f"it is a part: name the folder that contains all parts, or fetch {names}"
            raise UsageError("nothing to fetch: the graph has no outputs", hint=hint)
        self.tensors.update(dict.fromkeys(outputs))

    def _sent(self) -> Iterator[str]:
        """The tensors that a part of a partitioned graph sends outside of loops."""
        for node in self.graph:
            is_send = ROLES[node.op] is Role.SEND and node.inputs
            if is_send and self.frames.of.get(node) is self.frames.root:
                yield node.inputs[0].name

    def _matching(self, pattern: str) -> Iterable[Output]:
        base, port = split_tensor_name(pattern)
        explicit = pattern != base
        ports = OutputPorts(self.graph.functions)
        matching = [
            output
            for node in matching_nodes(self.graph, base)
            for output in node_outputs(node, ports)
            if not explicit or output.port == port
        ]
        root = self.frames.root
        outputs = [output for output in matching if self.frames.of_outputs.get(output.node) is root]
        omitted_count = len(matching) - len(outputs)
        if outputs and omitted_count:
            omitted = f"{omitted_count} tensor{'s' * (omitted_count > 1)} inside loops"
            self.notes.append(f"--fetch {pattern} omits {omitted}; --tap {base!r} shows them")
        if not outputs:
            raise UsageError(
                f"--fetch {pattern} matches only tensors inside loops, or nodes without outputs",
                hint=f"--tap {base} shows values inside loops",
            )
        return outputs


def is_glob(name: str) -> bool:
    """True for a pattern; node names cannot contain its special characters."""
    return any(sign in name for sign in "*?[")


def matching_nodes(graph: Graph, pattern: str) -> list[Node]:
    """The nodes whose names match a glob. Raises UsageError if there are none."""
    if not is_glob(pattern):
        return [graph[pattern]]
    nodes = [node for node in graph if fnmatchcase(node.name, pattern)]
    if not nodes:
        raise UsageError(f"no node matches {pattern!r}", hint=_glob_hint(graph, pattern))
    return nodes


def _glob_hint(graph: Graph, pattern: str) -> str | None:
    """Hint with similar names, of which a glob may mean the end; those of functions also count."""
    names = [*graph.nodes]
    for name, function in graph.functions.items():
        names += [f"{name}/{node.name}" for node in function.definition.nodes]
    ends = [part for name in names for part in (name, name.rpartition("/")[2])]
    base = pattern.strip("*?")
    if similar := did_you_mean(base, ends):
        return similar
    stem = base.rpartition("/")[2].rstrip("0123456789_")
    parts = [end for end in dict.fromkeys(ends) if stem and end.startswith(stem)]
    return f"similar names: {first_names(parts, _MAX_SIMILAR)}" if parts else None


def _body_node_hint(graph: Graph, name: str) -> str | None:
    """Hint for a node of a function, named by the function, or by the node that calls it."""
    first, _, inner = name.partition("/")
    if inner and first in graph.functions:
        return f"it is in the function {first}: --tap '*/{inner}' prints its values in all calls"
    caller = calling_node(graph, name)
    if caller is None:
        return None
    return f"a node inside {caller.name} has a value per iteration or call: --tap {name} prints it"


def calling_node(graph: Graph, name: str) -> Node | None:
    """The node that calls the function of a node with this name in a run, or None."""
    parts = name.split("/")
    callers = ("/".join(parts[:count]) for count in range(len(parts) - 1, 0, -1))
    caller = next((graph.nodes[caller] for caller in callers if caller in graph), None)
    return caller if caller is not None and any(calls_of(caller)) else None


def _inner_tensor_error(output: Output, graph_frames: Frames, frame: Frame) -> UsageError:
    """Create the error for a tensor inside a loop."""
    message = f"{output.name} is inside the loop {frame.path} and has one value per iteration"
    hint = _fetch_hint(output, graph_frames, frame)
    enters_from_root = frame.parent is not None and frame.parent.parent is None
    if enters_from_root and ROLES[output.node.op] is Role.ENTER and output.node.inputs:
        message = f"{output.name} is inside the loop {frame.path}, which it enters"
        hint = f"fetch its input, {output.node.inputs[0].name}"
    return UsageError(message, node=output.node, hint=hint, code="CFG703")


def _fetch_hint(output: Output, graph_frames: Frames, frame: Frame) -> str:
    from cfgraph.analysis.fetch_hints import fetch_hint, joined_tensor
    from cfgraph.analysis.loops.while_loop import final_exit

    tap = f"print all of them with --tap {output.node.name}"
    if final_exit(output, frame) is not None:
        return f"{fetch_hint(output, frame)}; or {tap}"
    joined = joined_tensor(output, graph_frames)
    if joined is not None and final_exit(joined, frame) is not None:
        return f"{fetch_hint(joined, frame)}, which joins the branches; or {tap}"
    exits = [f"{node.name}:0" for node in frame.exits[:MAX_EXITS]]
    if not exits:
        return tap
    more = ", …" if len(frame.exits) > MAX_EXITS else ""
    return f"fetch an Exit of the loop, {', '.join(exits)}{more}; or {tap}"
