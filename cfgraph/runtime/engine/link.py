"""Linking of a plan: one closure per node for a live token, and one for a dead one.

A closure takes the iteration in which it fires. It knows its kernel, slots, and consumers; what it
makes ready goes to the queue of the executor. No name or attribute is looked up during a run.
Observers are attached to the closures.

Frames need not run if all their Enters are dead, since all their nodes are dead then:

    dead Enters ▸ Merge ▸ Switch ▸ … ▸ dead Exits      becomes      dead Enters ▸ dead Exits

TensorFlow propagates the dead tokens through the frame. The last iteration of a loop kills the
Enters of the loops in it, so that n loops in each other cost n² tokens. Nothing else depends on
these tokens: a frame that is dead has no second iteration, and its dead Exits are delivered when
all Enters have arrived, with or without the tokens between. Tags and pending counts outside are
the same. A frame with one live Enter runs, and then receives the dead ones that came before."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from cfgraph.analysis.loops.frame import Frame
from cfgraph.ir.graph import CONTROL, Node, Output
from cfgraph.ir.role import Role
from cfgraph.ir.traversal import rendezvous_key
from cfgraph.ops.opdef.blocking import Blocked
from cfgraph.runtime.engine.control_flow_nodes import CONTROL_FLOW_NODES, NodeContext, NodeMaker
from cfgraph.runtime.engine.kernel_nodes import TRANSFER_NODES, kernel_node, recv_gates
from cfgraph.runtime.engine.plan import FramePlan, NodePlan, Plan
from cfgraph.runtime.engine.propagate import (
    Consumers,
    Fire,
    Iteration,
    Kill,
    Send,
    merge_control_input,
    merge_data_input,
    value_sender,
)
from cfgraph.runtime.engine.references import dereference
from cfgraph.runtime.engine.rendezvous import Channel, Rendezvous
from cfgraph.runtime.engine.step import ParkedToken, RunStep

# their control edges may be live while an output is dead
_OWN_CONTROL: Final = (Role.SWITCH, Role.MERGE, Role.RECV)
_NODE_MAKERS: Final[Mapping[Role, NodeMaker]] = CONTROL_FLOW_NODES | TRANSFER_NODES

Ready = list[tuple[Fire, Iteration]]
FireWrapper = Callable[[NodePlan, list[Consumers], Fire, Fire], tuple[Fire, Fire]]


@dataclass(slots=True)
class LinkedPlan:
    """The closures of a plan, and the functions that deliver fed values."""

    fires: dict[Node, tuple[Fire, Fire]] = field(default_factory=dict)
    owners: dict[Fire, NodePlan] = field(default_factory=dict)
    feeds: dict[int, Send] = field(default_factory=dict)
    roots: list[Fire] = field(default_factory=list)


def link(
    plan: Plan,
    ready: Ready,
    step: RunStep,
    rendezvous: Rendezvous,
    fetched: dict[int, Send],
    wrap: FireWrapper | None = None,
    observed: Node | None = None,
) -> LinkedPlan:
    """Make the closures of a plan. `fetched[i]` receives the value of fetch i, None if it is dead.

    `wrap` may wrap the two closures of each node, as tracing does, or of the node `observed` alone.
    """
    linker = _Linker(plan, ready, step, rendezvous, observed, traced=bool(wrap and not observed))
    linked = LinkedPlan()
    for node, node_plan in plan.nodes.items():
        live, dead = linker.fire(node_plan, wrap if observed in (None, node) else None)
        if node_plan.op.effects.blocking:
            live = parking(node, live, ready, step)
        linked.owners[live] = linked.owners[dead] = node_plan
        if node_plan.op.role is Role.RECV:
            live, dead = recv_gates(linker.channel(node), ready, live, dead)
            linked.owners[live] = linked.owners[dead] = node_plan
        linked.fires[node] = live, dead
        if not node.inputs and not node.controls:
            linked.roots.append(live)
    linker.connect(linked)
    for index, output in plan.fetches.items():
        linker.consumers(output.node, output.port).senders.append(fetched[index])
    linked.feeds = {
        index: linker.feed(output.node, output.port) for index, output in plan.feeds.items()
    }
    return linked


def parking(node: Node, fire: Fire, ready: Ready, step: RunStep) -> Fire:
    """A closure of a node that parks its token while the kernel is blocked."""

    def attempt(iteration: Iteration) -> None:
        try:
            fire(iteration)
        except Blocked as blocked:
            blocked.__traceback__ = None  # its frames keep the inputs of the kernel alive
            wake = partial(ready.append, (attempt, iteration))
            step.park(ParkedToken(node, iteration, blocked, wake))

    return attempt


class _Linker:
    def __init__(
        self,
        plan: Plan,
        ready: Ready,
        step: RunStep,
        rendezvous: Rendezvous,
        observed: Node | None,
        *,
        traced: bool,
    ) -> None:
        self.plan = plan
        self.traced = traced
        self.observed = observed
        self.ready = ready
        self.step = step
        self.rendezvous = rendezvous
        self.fed = frozenset(plan.feeds.values())
        self.skippable: dict[FramePlan, dict[str, Kill]] = {}
        if not traced:
            self.skippable = {frame: {} for frame in skippable_frames(plan, observed)}
        self.readers: dict[tuple[Node, int], Consumers] = {}
        self.has_consumers: set[tuple[Node, int]] = {*plan.fetches.values()}
        for node in plan.nodes:
            self.has_consumers.update(node.inputs)
            self.has_consumers.update(
                (source, self.control_port(source)) for source in node.controls
            )

    def channel(self, node: Node) -> Channel:
        """The channel between a Send and its Recv."""
        return self.rendezvous[rendezvous_key(node)]

    def consumers(self, node: Node, port: int) -> Consumers:
        """The consumers of one output of a node, or of its control edges."""
        key = (node, port)
        consumers = self.readers.get(key)
        if consumers is None:
            consumers = self.readers[key] = Consumers(
                self.traced or node is self.observed or key in self.has_consumers
            )
        return consumers

    def control_port(self, node: Node) -> int:
        """The port under which the consumers of a node's control edges are listed.

        It is output 0 if that is the node's only token, so that one delivery serves both.
        """
        plan = self.plan.nodes.get(node)
        shared = plan is not None and plan.outputs == 1 and plan.op.role not in _OWN_CONTROL
        return 0 if shared and Output(node, 0) not in self.fed else CONTROL

    def control(self, node: Node) -> Consumers:
        """The consumers of a node's control edges."""
        return self.consumers(node, self.control_port(node))

    def fire(self, plan: NodePlan, wrap: FireWrapper | None) -> tuple[Fire, Fire]:
        """The two closures of a node; its consumers are filled in later."""
        ports = [self._port(plan, port) for port in range(plan.outputs)]
        control = self.control(plan.node)
        extra = None if ports and control is ports[0] else control
        transfers = plan.op.role in TRANSFER_NODES
        channel = self.channel(plan.node) if transfers else None
        context = NodeContext(self.ready, self.step, ports, extra, channel, self.skippable)
        make = _NODE_MAKERS.get(plan.op.role, kernel_node) if plan.op.role else kernel_node
        live, dead = make(plan, context)
        live = _dereferencing(plan, _moving_inputs(plan, live))
        return wrap(plan, ports, live, dead) if wrap else (live, dead)

    def _port(self, plan: NodePlan, port: int) -> Consumers:
        """The consumers of an output; none if it is fed."""
        if Output(plan.node, port) in self.fed:
            return Consumers(self.traced or plan.node is self.observed)
        return self.consumers(plan.node, port)

    def feed(self, node: Node, port: int) -> Send:
        """A function that delivers a fed value, with the control edges of a fed placeholder."""
        send = value_sender(self.consumers(node, port), self.ready)
        if node not in self.plan.fed_nodes:
            return send
        control = value_sender(self.control(node), self.ready)
        return lambda iteration, value: send(iteration, value) + control(iteration, value)

    def connect(self, linked: LinkedPlan) -> None:
        """Connect the firing functions of each node to those of its consumers."""
        enters, recvs = self.plan.nodes_of_role(Role.ENTER), self.plan.nodes_of_role(Role.RECV)
        for node, plan in self.plan.nodes.items():
            live, dead = linked.fires[node]
            merge = plan.op.role is Role.MERGE
            if plan.op.role is Role.CONTROL_TRIGGER:
                dead = live
            for slot, output in enumerate(node.inputs):
                consumers = self.consumers(output.node, output.port)
                index = plan.base + slot
                if merge:
                    entered = output.node in enters and output not in self.fed
                    received = output.node in recvs and output not in self.fed
                    (consumers.merges if received else consumers.senders).append(
                        merge_data_input(
                            index,
                            plan.counter,
                            len(node.inputs),
                            live,
                            dead,
                            self.ready,
                            from_enter=entered,
                        )
                    )
                else:
                    consumers.ordinary.append((index, plan.counter, live, dead))
            for source in node.controls:
                consumers = self.control(source)
                if merge:
                    count = len(node.inputs)
                    consumers.senders.append(
                        merge_control_input(plan.counter, count, live, dead, self.ready)
                    )
                else:
                    consumers.ordinary.append((0, plan.counter, live, dead))


def _dereferencing(plan: NodePlan, live: Fire) -> Fire:
    """A closure that first dereferences the variables whose values the node reads.

    A node that forwards a reference only checks that the variable has a value.
    """
    if not plan.deref_slots:
        return live
    slots = tuple((plan.base + slot, slot in plan.forwarded_slots) for slot in plan.deref_slots)

    def fire(iteration: Iteration) -> None:
        values = iteration.values
        for slot, shares in slots:
            value = dereference(values[slot])
            if not shares:
                values[slot] = value
        live(iteration)

    return fire


def _moving_inputs(plan: NodePlan, live: Fire) -> Fire:
    """A closure that first copies inputs to the memory that the node reads them from."""
    moves = plan.moves
    if not moves:
        return live

    def fire(iteration: Iteration) -> None:
        values = iteration.values
        for slot, move in moves:
            if values[slot] is not None:
                values[slot] = move(values[slot])
        live(iteration)

    return fire


_NEVER_SKIPPED: Final = (Role.CONTROL_TRIGGER, Role.SEND, Role.RECV)


def skippable_frames(plan: Plan, traced: Node | None = None) -> set[FramePlan]:
    """The frames of a plan in which each node fires dead if all Enters of the frame are dead.

    A frame is not skipped if something observes its dead tokens: a fetch, a Send, the trace of the
    node `traced`, memory accounting. Nor if something in it could be live or missing: a
    ControlTrigger, a Recv, or a Merge that waits for a back edge and has no Enter.
    """
    observed = {output.node for output in (*plan.fetches.values(), *plan.feeds.values())}
    observed.update([traced] if traced else [])
    skippable: dict[Frame, FramePlan] = {}
    for frame in reversed(plan.frames.all[1:]):
        nodes = [*frame.enters, *frame.nodes]
        roles = {plan.nodes[node].op.role for node in nodes}
        children = {plan.frames.of_outputs[node] for node in frame.nodes} - {frame, frame.parent}
        if not roles.isdisjoint(_NEVER_SKIPPED) or not observed.isdisjoint(nodes):
            continue
        if children <= skippable.keys() and _all_die(plan, frame, children):
            child = plan.nodes[frame.enters[0]].child
            assert child is not None
            skippable[frame] = child
    return set(skippable.values())


def _all_die(plan: Plan, frame: Frame, children: Collection[Frame]) -> bool:
    """True if all nodes fire dead; dead Exits of the children follow all their dead Enters."""
    enters = set(frame.enters)
    missing: dict[Node, int] = {}
    consumers: defaultdict[Node, list[Node]] = defaultdict(list)
    for node in frame.nodes:
        sources = _awaited_nodes(node, enters, is_merge=plan.nodes[node].op.role is Role.MERGE)
        missing[node] = len(sources)
        for source in sources:
            consumers[source].append(node)
    entering = {child: len(child.enters) for child in children}
    dead = list(frame.enters)
    fired = 0
    for source in dead:
        for node in consumers[source]:
            missing[node] -= 1
            if missing[node]:
                continue
            fired += 1
            child = plan.frames.of_outputs[node]
            if child not in entering:
                dead.append(node)
                continue
            entering[child] -= 1
            if not entering[child]:
                dead += child.exits
    return fired == len(frame.nodes)


def _awaited_nodes(node: Node, enters: Collection[Node], *, is_merge: bool) -> list[Node]:
    """The sources whose dead tokens let a node fire; a Merge waits for Enters alone."""
    sources = [tensor.node for tensor in node.inputs]
    entered = [source for source in sources if source in enters] if is_merge else []
    return [*(entered or sources), *node.controls]
