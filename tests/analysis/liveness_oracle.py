"""Liveness oracle: the executor's rules, run on tokens without values.

The deadness analysis is tested against it, so it is plain and shares no code with the executor: a
queue of tokens, and the tokens that have arrived for each node and tag. A tag is the iteration of
each enclosing loop: `(("outer", 3), ("inner", 0))`, and `()` in the root frame.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from cfgraph.analysis.loops.frame import Frame
from cfgraph.analysis.loops.frames import frames
from cfgraph.ir.graph import CONTROL, Graph, Node, Output
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import Role

Tag = tuple[tuple[str, int], ...]
Choose = Callable[[Output, Tag], int]

ROOT: Final[Tag] = ()
_NOTHING: Final[frozenset[Output]] = frozenset()


def tag_path(tag: Tag) -> str:
    """A tag in the form of traces: `/outer[3]/inner[0]`, `/` for the root."""
    return "".join(f"/{name}[{index}]" for name, index in tag) or "/"


@dataclass(slots=True)
class Liveness:
    """The tokens of a run.

    `cut` is true if a loop was stopped before its end, `starved` if one never ended because an
    Enter of it, or of an inner loop, never arrived.

    `fired` has the liveness of each node by the tag that it ran in, `sent` that of each output by
    the tag that it was delivered in. Missing tokens are in neither.
    """

    fired: dict[tuple[Node, Tag], bool] = field(default_factory=dict)
    sent: dict[tuple[Output, Tag], bool] = field(default_factory=dict)
    controls: dict[tuple[Node, Tag], bool] = field(default_factory=dict)
    cut: bool = False
    starved: bool = False

    def live(self, output: Output, tag: Tag = ROOT) -> bool:
        """True if a live token of an output arrived; port -1 stands for the control edges."""
        if output.port == CONTROL:
            return self.controls.get((output.node, tag), False)
        return self.sent.get((output, tag), False)


def liveness(
    graph: Graph,
    choose: Choose,
    nodes: Iterable[Node] | None = None,
    fed: Collection[Output] = _NOTHING,
    max_iterations: int = 16,
    record: Liveness | None = None,
) -> Liveness:
    """Run a graph, or some nodes of it with some outputs `fed`, without values.

    `choose` gives the value of a Switch's predicate in the iteration of a tag (for `_SwitchN` its
    index), and of a Recv's output whether the message is live; it may look at the `record`, which
    is filled as the run goes on. No loop begins more than `max_iterations`
    iterations after its first.
    """
    chosen = list(graph if nodes is None else nodes)
    run = _Run(graph, choose, chosen, fed, max_iterations, record or Liveness())
    run.start()
    while run.queue:
        while run.queue:
            run.fire(*run.queue.popleft())
        run.end_what_is_done()
    run.result.starved = bool(run.loops)
    return run.result


@dataclass(slots=True)
class _ArrivedTokens:
    """The tokens that arrived at a node in one tag."""

    data: int = 0
    controls: int = 0
    live: int = 0
    dead: int = 0
    ready: bool = False


@dataclass(slots=True, eq=False)
class _FrameInstance:
    """One instance of a frame; iterations from `first` to `newest` are in flight."""

    frame: Frame
    outer: Tag
    entering: int
    first: int = 0
    newest: int = 0
    invariants: list[tuple[Node, bool]] = field(default_factory=list)
    deferred: list[Node] = field(default_factory=list)
    exited: set[Node] = field(default_factory=set)
    dead_exits: dict[Node, None] = field(default_factory=dict)

    def tag(self, index: int) -> Tag:
        return (*self.outer, (self.frame.name, index))


class _Run:
    def __init__(
        self,
        graph: Graph,
        choose: Choose,
        nodes: list[Node],
        fed: Collection[Output],
        max_iterations: int,
        record: Liveness,
    ) -> None:
        self.choose = choose
        self.nodes = dict.fromkeys(nodes)
        self.fed = fed
        self.max_iterations = max_iterations
        self.frames = frames(graph, nodes, fed)
        self.queue: deque[tuple[Node, Tag, bool]] = deque()
        self.arrived: dict[tuple[Node, Tag], _ArrivedTokens] = {}
        # frame instances that have not ended
        self.loops: dict[tuple[Frame, Tag], _FrameInstance] = {}
        self.loops_in: Counter[Tag] = Counter()
        self.result = record

    def start(self) -> None:
        """Send live tokens for fed outputs, and run every node without inputs."""
        for item in self.fed:
            self.send_port(item, ROOT, live=True)
            if not item.node.inputs and item.node not in self.nodes:
                self.send_control(item.node, ROOT, live=True)
        self.queue.extend(
            (node, ROOT, True) for node in self.nodes if not node.inputs and not node.controls
        )

    # -- delivery --------------------------------------------------------------------------------

    def send(self, node: Node, tag: Tag, *, live: bool) -> None:
        """Send one token to all readers of a node in a tag."""
        for port in self.ports(node):
            self.send_output(Output(node, port), tag, live=live)
        self.send_control(node, tag, live=live)

    def ports(self, node: Node) -> range:
        """The outputs of a node; of an unknown op, those that are read."""
        count = node.output_count
        if count is None:
            read = [use.node.inputs[use.slot].port for use in node.uses if use.slot >= 0]
            count = max(read, default=-1) + 1
        return range(count)

    def send_output(self, output: Output, tag: Tag, *, live: bool) -> None:
        """Send a token to the readers of one output, unless the output is fed."""
        if output not in self.fed:
            self.send_port(output, tag, live=live)

    def send_port(
        self, output: Output, tag: Tag, *, live: bool, merge_input_condition: bool | None = None
    ) -> None:
        """Send a token to the readers of one output; Merges receive the `offered` one, if any."""
        self.result.sent[output, tag] = live
        to_merge = live if merge_input_condition is None else merge_input_condition
        for use in output.node.uses:
            if use.slot >= 0 and use.node.inputs[use.slot].port == output.port:
                token = to_merge if ROLES[use.node.op] is Role.MERGE else live
                self.deliver(use.node, use.slot, tag, live=token)

    def send_control(self, node: Node, tag: Tag, *, live: bool) -> None:
        self.result.controls[node, tag] = live
        for reader in node.control_readers:
            self.deliver(reader, CONTROL, tag, live=live)

    def deliver(self, node: Node, slot: int, tag: Tag, *, live: bool) -> None:
        """Record the arrival of a token; queue the node once it is ready."""
        if node not in self.nodes:
            return
        arrived = self.arrived.setdefault((node, tag), _ArrivedTokens())
        if slot == CONTROL:
            arrived.controls += 1
        else:
            arrived.data += 1
        if ROLES[node.op] is not Role.MERGE:
            arrived.dead += not live
            if (arrived.data, arrived.controls) == (len(node.inputs), len(node.controls)):
                self.queue.append((node, tag, not arrived.dead))
            return
        if slot != CONTROL:
            arrived.live += live
            if not live:
                source = node.inputs[slot]
                entered = ROLES[source.node.op] is Role.ENTER and source not in self.fed
                arrived.dead += len(node.inputs) if entered else 1
        decided = arrived.live or arrived.dead >= len(node.inputs)
        if decided and arrived.controls == len(node.controls) and not arrived.ready:
            arrived.ready = True
            self.queue.append((node, tag, arrived.live > 0))

    # -- firing ----------------------------------------------------------------------------------

    def fire(self, node: Node, tag: Tag, live: bool) -> None:
        """Execute one node."""
        role = ROLES[node.op]
        live = live or role is Role.CONTROL_TRIGGER
        self.result.fired[node, tag] = live
        if role is Role.ENTER:
            self.enter(node, tag, live=live)
        elif role is Role.EXIT:
            self.exit(node, tag, live=live)
        elif role is Role.NEXT_ITERATION:
            if live:
                self.next_iteration(node, tag)
        elif live and role is Role.SWITCH:
            self.switch(node, tag)
        elif role is Role.RECV:
            self.recv(node, tag, live=live)
        else:
            self.send(node, tag, live=live)

    def recv(self, node: Node, tag: Tag, *, live: bool) -> None:
        """A message arrives even if control inputs are dead; only Merges observe it then."""
        message = bool(self.choose(Output(node), tag))
        if Output(node) not in self.fed:
            self.send_port(Output(node), tag, live=live and message, merge_input_condition=message)
        self.send_control(node, tag, live=live)

    def switch(self, node: Node, tag: Tag) -> None:
        """Send one live output, and live control edges."""
        ports = self.ports(node)
        taken = int(self.choose(node.inputs[1], tag))
        taken = taken if taken in ports else ports[-1]
        for port in ports:
            self.send_output(Output(node, port), tag, live=port == taken)
        self.send_control(node, tag, live=True)

    def enter(self, node: Node, tag: Tag, *, live: bool) -> None:
        """Enter iteration 0 of the loop, or all iterations including future ones."""
        frame = self.frames.of_outputs[node]
        loop = self.loops.get((frame, tag))
        if loop is None:
            loop = self.loops[frame, tag] = _FrameInstance(frame, tag, len(frame.enters))
            self.loops_in[tag] += 1
        loop.entering -= 1
        if not node.attr("is_constant"):
            self.send(node, loop.tag(0), live=live)
            return
        loop.invariants.append((node, live))
        for index in range(loop.newest + 1):
            self.send(node, loop.tag(index), live=live)

    def exit(self, node: Node, tag: Tag, *, live: bool) -> None:
        """Leave the loop if live; if dead, only when the loop ends in this iteration."""
        loop = self.loop_of(node, tag)
        if live and node not in loop.exited:
            loop.exited.add(node)
            self.send(node, loop.outer, live=True)
        elif not live and tag[-1][1] == loop.newest:
            loop.dead_exits[node] = None

    def next_iteration(self, node: Node, tag: Tag) -> None:
        """Enter the next iteration, which starts once the bound on iterations allows it."""
        loop, index = self.loop_of(node, tag), tag[-1][1]
        if index < loop.newest:
            self.send(node, loop.tag(index + 1), live=True)
            return
        loop.deferred.append(node)
        if loop.newest - loop.first + 1 < loop.frame.parallel_iterations:
            self.begin(loop)

    def loop_of(self, node: Node, tag: Tag) -> _FrameInstance:
        return self.loops[self.frames.of[node], tag[:-1]]

    # -- iterations ------------------------------------------------------------------------------

    def begin(self, loop: _FrameInstance) -> None:
        """Start an iteration with its deferred tokens and the invariants."""
        waiting, loop.deferred = loop.deferred, []
        if loop.newest == self.max_iterations:
            self.result.cut = True
            return
        loop.newest += 1
        loop.dead_exits.clear()
        tag = loop.tag(loop.newest)
        for node, live in loop.invariants:
            self.send(node, tag, live=live)
        for node in waiting:
            self.send(node, tag, live=True)

    def end_what_is_done(self) -> None:
        """End iterations and loops, inner ones first, until a node is ready."""
        depth = 0
        for loop in sorted(self.loops.values(), key=lambda loop: -loop.frame.depth):
            if self.queue and loop.frame.depth < depth:
                return
            depth = loop.frame.depth
            self.end_iterations(loop)
            if loop.first > loop.newest:
                del self.loops[loop.frame, loop.outer]
                self.loops_in[loop.outer] -= 1
                for node in loop.dead_exits:
                    if node not in loop.exited:
                        self.send(node, loop.outer, live=False)

    def end_iterations(self, loop: _FrameInstance) -> None:
        """End iterations in order, after all Enters have arrived; deferred ones may start."""
        while loop.first <= loop.newest and not loop.entering:
            if self.loops_in[loop.tag(loop.first)]:
                return
            loop.first += 1
            ready = len(self.queue)
            if loop.deferred:
                self.begin(loop)
            if len(self.queue) > ready:
                return
