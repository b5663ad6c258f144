"""Frames of a graph: the loop in which each node runs, the nesting of loops, and their faults.

An Enter runs in the parent frame and its output is in the child; an Exit runs in the child and
its output is in the parent; every other node runs in the frame of its inputs, or in the root frame
if it has none. A frame is identified by (parent, name): one name under two parents is two frames.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final
from weakref import WeakKeyDictionary

from cfgraph.analysis.findings import PARTITION_HINT, Finding, require_no_findings
from cfgraph.analysis.loops.frame import Frame, Frames
from cfgraph.analysis.loops.frame_crossings import FrameCrossing, crossings_into
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import ENTER, EXIT, LOOP_COND, MERGE, NEXT_ITERATION, SEND, Role
from cfgraph.ir.traversal import NO_SENDERS, topological_order

_NO_CUT: Final[frozenset[Output]] = frozenset()
_cache: WeakKeyDictionary[Graph, tuple[tuple[int, int], Frames]] = WeakKeyDictionary()


def frames(
    graph: Graph, nodes: Iterable[Node] | None = None, cut: Collection[Output] = _NO_CUT
) -> Frames:
    """Find the frame of every node.

    `nodes` restricts the analysis; a reader of a `cut` output (a fed one) reads from the root
    frame. The frames of a whole graph are cached until it changes in more than devices.
    """
    if nodes is not None or cut:
        return frames_of(list(graph if nodes is None else nodes), cut)
    state = graph.edits - graph.moves, len(graph)
    known = _cache.get(graph)
    if known is None or known[0] != state:
        known = _cache[graph] = (state, frames_of(list(graph)))
    return known[1]


def valid_frames(
    graph: Graph, nodes: Iterable[Node] | None = None, cut: Collection[Output] = _NO_CUT
) -> Frames:
    """Find the frame of every node, as `frames` does.

    Raises InvalidInput for cycles without a NextIteration and for loops that are not well nested.
    """
    result = frames(graph, nodes, cut)
    if result.cycles:
        require_no_findings([*cycle_findings(result.cycles, graph)])
    result.require_valid()
    return result


class FrameNames:
    """The names of the frames of a graph, to which new ones are added."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._names = {node.attrs.get("frame_name") for node in nodes if ROLES[node.op] is ENTER}

    def unique(self, name: bytes) -> bytes:
        """A frame name that no other loop has, derived from `name`."""
        frame, number = name, 0
        while frame in self._names:
            number += 1
            frame = name + f"_{number}".encode()
        self._names.add(frame)
        return frame


def frames_of(
    chosen: list[Node],
    cut: Collection[Output] = _NO_CUT,
    senders: Mapping[Node, Node] = NO_SENDERS,
) -> Frames:
    """The frames of nodes; in their order, a Recv follows its Send in `senders`."""
    result = Frames(topological_order(chosen, cut, senders))
    if not any(ROLES[op] in LOOP_ROLES for op in {node.op for node in chosen}):
        result.of = dict.fromkeys(result.order, result.root)
        result.of_outputs = dict(result.of)
        result.root.nodes = chosen
        return result
    finder = _FrameFinder(result, cut)
    finder.assign_frames()
    finder.list_members(chosen)
    result.faults = tuple(verify_frames(result, chosen, cut, finder.mixed))
    return result


class _FrameFinder:
    """Finds the frames in one pass over the nodes in topological order."""

    def __init__(self, result: Frames, cut: Collection[Output]) -> None:
        self.result = result
        self.cut = cut
        self.mixed: set[Node] = set()
        self.children: dict[tuple[Frame, bytes | None], Frame] = {}

    def assign_frames(self) -> None:
        """Assign every node the deepest frame of its inputs."""
        result, cut = self.result, self.cut
        runs, outputs, root, frame_of = (
            result.of,
            result.of_outputs,
            result.root,
            result.of_outputs.get,
        )
        for node in result.order:
            role = ROLES[node.op]
            sources = node.inputs if role is not MERGE else self.forward(node)
            frame: Frame | None = None
            for tensor in sources:
                have = root if cut and tensor in cut else frame_of(tensor[0])
                if have is not frame and have is not None:
                    frame = have if frame is None else self.deeper(node, frame, have)
            for control in node.controls:
                have = frame_of(control)
                if have is not frame and have is not None:
                    frame = have if frame is None else self.deeper(node, frame, have)
            if frame is None:
                lost = role is MERGE and node.inputs and not sources
                frame = self.child(root, None, "?") if lost else root
            runs[node] = frame
            if role is ENTER:
                frame = self.entered(node, frame)
            elif role is EXIT:
                frame = frame.parent or root
            outputs[node] = frame

    def forward(self, merge: Node) -> tuple[Output, ...]:
        """The inputs of a Merge without its back edges."""
        cut = self.cut
        return tuple(
            tensor
            for tensor in merge.inputs
            if ROLES[tensor[0].op] is not NEXT_ITERATION or (cut and tensor in cut)
        )

    def deeper(self, node: Node, a: Frame, b: Frame) -> Frame:
        """Record that the inputs of a node disagree, and return the deeper frame."""
        self.mixed.add(node)
        return b if b.depth > a.depth else a

    def entered(self, enter: Node, parent: Frame) -> Frame:
        """The frame that an Enter leads into."""
        frame_name = enter.attrs.get("frame_name")
        key = frame_name if isinstance(frame_name, bytes) else b""
        return self.child(parent, key, key.decode("utf-8", "backslashreplace"))

    def child(self, parent: Frame, key: bytes | None, name: str) -> Frame:
        """The child frame of a key, added if it is new."""
        frame = self.children.get((parent, key))
        if frame is None:
            frame = self.children[parent, key] = Frame(name, parent, parent.depth + 1)
            self.result.all.append(frame)
        return frame

    def list_members(self, nodes: Iterable[Node]) -> None:
        """Add the nodes to the lists of their frames, in graph order."""
        runs, outputs = self.result.of, self.result.of_outputs
        for node in nodes:
            frame = runs[node]
            frame.nodes.append(node)
            role = ROLES[node.op]
            if role is ENTER:
                outputs[node].enters.append(node)
            elif role and role in _MEMBER_LISTS:
                getattr(frame, _MEMBER_LISTS[role]).append(node)


_MEMBER_LISTS: Final = {
    EXIT: "exits",
    MERGE: "merges",
    NEXT_ITERATION: "next_iterations",
    LOOP_COND: "loop_conds",
}
# a graph without them has only the root frame
LOOP_ROLES: Final = frozenset({ENTER, *_MEMBER_LISTS})


_SHOWN: Final = 8


def cycle_findings(cycles: Sequence[tuple[Node, ...]], nodes: Iterable[Node]) -> Iterator[Finding]:
    """One finding per cycle, ordered by the positions of `nodes`."""
    if not cycles:
        return
    places = {node: position for position, node in enumerate(nodes)}
    for cycle in sorted(cycles, key=lambda cycle: min(places[node] for node in cycle)):
        names, (first, *related) = describe_cycle(cycle, places)
        message = f"nodes wait for each other in a cycle: {names}"
        hint = "a loop closes through a NextIteration that feeds a Merge directly"
        if any(ROLES[node.op] is SEND for node in places):
            hint = PARTITION_HINT
        yield Finding("CFG109", "error", message, first, hint, tuple(related))


def describe_cycle(
    cycle: Sequence[Node], places: Mapping[Node, int]
) -> tuple[str, tuple[str, ...]]:
    """The text of a cycle, its middle omitted, and its names from the first node in graph order."""
    first = min(range(len(cycle)), key=lambda position: places[cycle[position]])
    nodes = (*cycle[first:], *cycle[:first])
    shown = [repr(node.name) for node in (*nodes, nodes[0])]
    if len(shown) > _SHOWN:
        shown[_SHOWN - 2 : -1] = [f"… {len(shown) - _SHOWN} more …"]
    return " -> ".join(shown), tuple(node.name for node in nodes)


# the tensor to read is looked for in the first faults only, each of which may search the graph
_MAX_NAMED: Final = 20
_MIXED_HINT: Final = (
    "forward a value from outside the loop by a constant Enter, and read an Exit of the loop "
    "instead of a tensor inside"
)
_CLOSING_HINT: Final = "forward the value through the inner loop's Exit first"
# TensorFlow exempts the nodes of its own gradient library
_EXEMPT_NAME = "LoopCounter"


def verify_frames(
    graph_frames: Frames, nodes: Iterable[Node], cut: Collection[Output], mixed: Collection[Node]
) -> Iterator[Finding]:
    """Findings on the frames, in graph order; `mixed` are the nodes whose inputs disagree."""
    conditions: dict[Frame, Node] = {}
    named = 0
    for node in nodes:
        with_names = named < _MAX_NAMED and not cut
        if node in mixed:
            yield _mixed_frames(graph_frames, node, cut, with_names=with_names)
            named += 1
        role = ROLES[node.op]
        if not role:
            continue
        if role is Role.ENTER:
            yield from _unnamed_frame(node)
        elif role is Role.MERGE:
            faults = [*_merge_faults(graph_frames, node, cut, with_names=with_names)]
            yield from faults
            named += len(faults)
        elif role in _IN_ROOT and graph_frames.of[node] is graph_frames.root:
            yield _loop_node_in_root(node, role)
        elif role is Role.LOOP_COND:
            yield from _second_loop_cond(graph_frames.of[node], node, conditions)


def _frame_label(frame: Frame) -> str:
    """The name of a frame in messages."""
    return f"frame '{frame.path}'" if frame.parent else "the root frame"


def _sources(
    graph_frames: Frames, node: Node, cut: Collection[Output]
) -> Iterator[tuple[str, Node, Frame]]:
    """The inputs that determine the frame of a node: name, node, and frame."""
    is_merge = ROLES[node.op] is Role.MERGE
    for tensor in node.inputs:
        fed = cut and tensor in cut
        if is_merge and ROLES[tensor.node.op] is Role.NEXT_ITERATION and not fed:
            continue
        if fed:
            yield tensor.name, tensor.node, graph_frames.root
        elif tensor.node in graph_frames.of_outputs:
            yield tensor.name, tensor.node, graph_frames.of_outputs[tensor.node]
    for control in node.controls:
        if control in graph_frames.of_outputs:
            yield f"^{control.name}", control, graph_frames.of_outputs[control]


def _mixed_frames(
    graph_frames: Frames,
    node: Node,
    cut: Collection[Output],
    *,
    with_names: bool,
) -> Finding:
    """The finding on inputs that disagree; its hint names the tensor to read on request."""
    own_frame = graph_frames.of[node]
    sources = list(_sources(graph_frames, node, cut))
    name, source, _ = next(entry for entry in sources if entry[2] is own_frame)
    other_name, stranger, other_frame = next(
        entry for entry in sources if entry[2] is not own_frame
    )
    message = (
        f"inputs come from different frames: {name!r} is in {_frame_label(own_frame)}, "
        f"{other_name!r} in {_frame_label(other_frame)}"
    )
    crossings = crossings_into(graph_frames, node) if with_names else ()
    hint = crossings[0].advice() if crossings else _MIXED_HINT
    related = (source.name, stranger.name)
    return Finding("CFG201", "error", message, node.name, hint, related, str(own_frame))


def _unnamed_frame(node: Node) -> Iterator[Finding]:
    if not node.attrs.get("frame_name"):
        message = "an Enter must name the frame that it leads into"
        hint = "set the attribute frame_name to a string that is not empty"
        yield Finding("CFG202", "error", message, node.name, hint)


_IN_ROOT = {
    Role.EXIT: ("CFG203", "an Exit in the root frame leaves no loop"),
    Role.NEXT_ITERATION: ("CFG204", "a NextIteration in the root frame has no loop to continue"),
    Role.LOOP_COND: ("CFG205", "a LoopCond in the root frame belongs to no loop"),
}


def _loop_node_in_root(node: Node, role: Role) -> Finding:
    code, message = _IN_ROOT[role]
    hint = "a loop starts with an Enter; its nodes depend on it"
    return Finding(code, "error", message, node.name, hint)


def _second_loop_cond(frame: Frame, node: Node, conditions: dict[Frame, Node]) -> Iterator[Finding]:
    if _EXEMPT_NAME in node.name:
        return
    first = conditions.setdefault(frame, node)
    if first is not node:
        message = (
            f"{_frame_label(frame)} has more than one LoopCond: {first.name!r} and {node.name!r}"
        )
        hint = "two loops in one frame need different frame names"
        yield Finding("CFG206", "error", message, node.name, hint, (first.name,), str(frame))


def _merge_faults(
    graph_frames: Frames,
    node: Node,
    cut: Collection[Output],
    *,
    with_names: bool,
) -> Iterator[Finding]:
    back = [
        tensor
        for tensor in node.inputs
        if ROLES[tensor.node.op] is Role.NEXT_ITERATION and not (cut and tensor in cut)
    ]
    frame = graph_frames.of[node]
    if back and len(back) == len(node.inputs) and not node.controls:
        message = "nothing starts the loop: all inputs of the Merge are NextIterations"
        hint = "add an Enter for the initial value"
        yield Finding("CFG208", "error", message, node.name, hint, tuple(i.node.name for i in back))
        return
    for tensor in back:
        have = graph_frames.of_outputs.get(tensor.node)
        if have is not None and have is not frame and have is not graph_frames.root:
            message = (
                f"the loop does not close: the Merge is in {_frame_label(frame)}, "
                f"its NextIteration {tensor.node.name!r} in {_frame_label(have)}"
            )
            sources = [
                FrameCrossing(source, False, tensor.node, own_frame, frame)
                for source in tensor.node.inputs
                if with_names
                if (own_frame := graph_frames.of_outputs.get(source.node, frame)) is not frame
            ]
            hint = sources[0].advice() if sources else _CLOSING_HINT
            yield Finding(
                "CFG207", "error", message, node.name, hint, (tensor.node.name,), str(frame)
            )
