"""Explanations of missing results: deadlocked Recvs, fetches without a value, and dead fetches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from cfgraph.analysis.transfers import RendezvousKey, rendezvous_key
from cfgraph.errors import ExecutionError
from cfgraph.ir.devices import short_device_name
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.role import Role
from cfgraph.runtime.engine.frame_state import FrameState, Iteration
from cfgraph.runtime.engine.plan import NodePlan
from cfgraph.runtime.engine.rendezvous import PendingRecv, Rendezvous
from cfgraph.runtime.quiescent_state import DeviceIteration, QuiescentState

MAX_LISTED_RECVS: Final = 12
_MAX_SEND_REASONS: Final = 2
_PAIR_HINT: Final = (
    "a _Send and its _Recv have the same tensor_name, send_device and recv_device; "
    "`cfgraph partition` makes both"
)
_LOOP_HINT: Final = (
    "a device that runs part of a loop needs a control loop; `cfgraph partition` makes it"
)


def explain_deadlock(
    rest: QuiescentState, rendezvous: Rendezvous, sends: Iterable[RendezvousKey]
) -> ExecutionError:
    """The error of a run in which Recvs wait for messages that nobody will send.

    It lists them, those first that no other waiting Recv explains. `sends` are the keys of all
    Sends in the graph.
    """
    keys = tuple(sends)
    found = [_blocked_recv(rest, keys, key, waiting) for key, waiting in rendezvous.waiting()]
    found.sort(key=lambda one: one.follows)
    many = f"{len(found)} Recvs wait" if len(found) > 1 else "a Recv waits"
    lines = [f"nothing is left to run, and {many} for a message:"]
    lines += [one.text for one in found[:MAX_LISTED_RECVS]]
    if len(found) > MAX_LISTED_RECVS:
        lines.append(f"and {len(found) - MAX_LISTED_RECVS} more")
    first = found[0]
    return ExecutionError(
        "\n  ".join(lines),
        node=first.node,
        frame=first.frame,
        device=first.device,
        hint=_LOOP_HINT if first.sent and first.frame != "/" else _PAIR_HINT,
        code="CFG708",
    )


@dataclass(frozen=True, slots=True)
class _BlockedRecv:
    node: str
    frame: str
    device: str
    text: str
    sent: bool  # there is a Send with this key
    follows: bool  # another waiting Recv is the reason


def _blocked_recv(
    rest: QuiescentState, keys: tuple[RendezvousKey, ...], key: RendezvousKey, waiting: PendingRecv
) -> _BlockedRecv:
    """One line: who waits where, for what, and why it does not come."""
    it = waiting.iteration
    executor = next(one for one in rest.executors if one.ready is waiting.ready)
    node = executor.linked.owners[waiting.receive].node.name
    sender = short_device_name(key.send_device)
    if key in rest.sends:
        reason, follows = _why_not_sent(rest, rest.sends[key], it)
    else:
        reason, follows = _no_matching_send(keys, key), False
    text = (
        f"{node!r} on {executor.device}, frame {it.path}, waits for {key.tensor_name!r}"
        f" from {sender}: {reason}"
    )
    return _BlockedRecv(node, it.path, executor.device, text, key in rest.sends, follows)


def _why_not_sent(rest: QuiescentState, send: NodePlan, wanted: Iteration) -> tuple[str, bool]:
    """Why a Send did not run in an iteration; whether other messages are all that it lacks."""
    here, reason, late = _sender_iteration(rest, send, wanted)
    if here is not None:
        reason, late = f"{send.node.name!r} did not run there", (here, send)
    if late is None:
        return reason, False
    found = list(islice(rest.missing(*late), _MAX_SEND_REASONS))
    return (f"{reason}, as {' and '.join(found)}", True) if found else (reason, False)


def _no_matching_send(keys: tuple[RendezvousKey, ...], key: RendezvousKey) -> str:
    for other in keys:
        if other.tensor_name == key.tensor_name:
            return (
                f"no _Send has this key; the one of that name goes from {other.send_device}"
                f" to {other.recv_device}"
            )
    return "the graph has no such _Send"


SenderSearch = tuple[DeviceIteration | None, str, tuple[DeviceIteration, NodePlan] | None]


def _sender_iteration(rest: QuiescentState, send: NodePlan, wanted: Iteration) -> SenderSearch:
    """The sender's iteration of the same path as `wanted`.

    Where there is none, why, and the Enter that is to blame if it is one.
    """
    here, name = rest.root(send.node), send.node.name
    for loop, index in _frame_path(wanted):
        plan = next((plan for plan in rest.loops(here) if plan.name == loop), None)
        if plan is None:
            return None, f"{name!r} is not in the loop {loop!r}", None
        frame = here.child(plan)
        if frame is None:
            late = next((one for one in rest.enters(plan) if not here.fired(one)), None)
            if late is None:
                ended = (here.iteration.frame.ended or {}).get(plan)
                return None, f"the loop {loop!r} ended there at iteration {ended}", None
            reason = f"the loop {loop!r} did not begin there: {late.node.name!r} did not run"
            return None, reason, (here, late)
        iteration = _iteration_at(frame, index)
        if iteration is None:
            return None, _why_no_iteration(frame, index), None
        here = DeviceIteration(here.executor, iteration)
    if here.frame is not send.frame:
        return None, f"{name!r} is in the loop {send.frame.name!r}, the Recv is not", None
    return here, "", None


def _frame_path(iteration: Iteration) -> list[tuple[str, int]]:
    """The names of the frames around, the outermost first, with the iteration of each."""
    found = []
    here: Iteration | None = iteration
    while here is not None and here.frame.parent is not None:
        found.append((here.frame.plan.name, here.index))
        here = here.frame.parent
    return found[::-1]


def _iteration_at(frame: FrameState, index: int) -> Iteration | None:
    here = frame.first
    while here is not None and here.index != index:
        here = here.next
    return here


def _why_no_iteration(frame: FrameState, index: int) -> str:
    name, newest = frame.plan.name, frame.newest.index
    if newest >= index:
        return f"iteration {index} of the loop {name!r} ended there without it"
    return f"the loop {name!r} came to rest there at iteration {newest}"


MAX_LISTED_REASONS = 5


def explain_dead_fetch(rest: QuiescentState, item: Output) -> ExecutionError:
    """The error of a fetch that is dead, naming what killed it."""
    return ExecutionError(
        f"{item.name} is dead: {_DeadnessTracer(rest, item.node).of(item)}",
        node=item.node,
        device=rest.homes[item.node].device,
        hint="fetch the Merge behind both branches, or feed the predicate otherwise",
        code="CFG702",
    )


def explain_missing_fetch(rest: QuiescentState, item: Output) -> ExecutionError:
    """The error of a fetch that nothing computed although the run came to rest."""
    here, plan = rest.root(item.node), rest.plan(item.node)
    assert plan is not None
    if plan.frame is here.frame:
        found = list(islice(rest.missing(here, plan), 2 * MAX_LISTED_REASONS))
    else:
        found = list(islice(rest.missing_exit(here, plan), 2 * MAX_LISTED_REASONS))
    more = (
        f"; and {len(found) - MAX_LISTED_REASONS} more" if len(found) > MAX_LISTED_REASONS else ""
    )
    reason = "; ".join(found[:MAX_LISTED_REASONS]) + more if found else "no token reached it"
    return ExecutionError(
        f"{item.name} got no value, and nothing is left to run: {reason}",
        node=item.node,
        device=here.executor.device,
        hint="`cfgraph check` tells what makes a graph starve",
        code="CFG707",
    )


class _DeadnessTracer:
    """Follows the deadness of a tensor outside of loops to where it began."""

    def __init__(self, rest: QuiescentState, node: Node) -> None:
        self.rest = rest
        self.here = rest.root(node)

    def of(self, item: Output) -> str:
        """What made an output dead, followed through dead inputs to a Switch that ran."""
        seen: set[Node] = set()
        while item.node not in seen:
            seen.add(item.node)
            plan = self.rest.plan(item.node)
            if plan is None:
                break
            if plan.frame is not self.here.frame:
                entered = [
                    one for one in self.rest.enters(plan.frame) if self.here.got_dead_token(one)
                ]
                if not entered:
                    return f"{item.node.name!r} was live in no iteration of {plan.frame.name!r}"
                item = Output(entered[0].node, 0)
            elif plan.op.role is Role.SWITCH and not self.here.got_dead_token(plan):
                return _switch_decision(self.here, plan, item.port)
            else:
                item = self._sent(plan) or self._dead_input(plan) or item
        return f"{item.node.name!r} ({item.node.op}) handed on nothing"

    def _sent(self, plan: NodePlan) -> Output | None:
        """What the Send of a Recv read, on the other device; None for what is no Recv."""
        if plan.op.role is not Role.RECV or self.here.got_dead_token(plan):
            return None
        send = self.rest.sends.get(rendezvous_key(plan.node))
        if send is None:
            return None
        self.here = self.rest.root(send.node)
        return send.node.inputs[0]

    def _dead_input(self, plan: NodePlan) -> Output | None:
        """The first source that gave a node a dead token; an Exit where no other did."""
        sources = [*plan.node.inputs, *(Output(node, -1) for node in plan.node.controls)]
        loops: list[Output] = []
        for item in sources:
            source = self.rest.plan(item.node)
            if source is None:
                continue
            if source.frame is not self.here.frame:
                loops.append(item)
            elif self._is_dead(self.here, source, item.port):
                return item
        return loops[0] if loops else None

    def _is_dead(self, here: DeviceIteration, source: NodePlan, port: int) -> bool:
        """True if an output (-1: the control edges) was dead; of an Exit nobody knows."""
        if here.got_dead_token(source) or port < 0:
            return here.got_dead_token(source)
        if source.op.role is Role.SWITCH:
            index = int(here.iteration.values[source.base + 1])
            last = source.outputs - 1
            return port != (index if 0 <= index <= last else last)
        send = (
            self.rest.sends.get(rendezvous_key(source.node))
            if source.op.role is Role.RECV
            else None
        )
        if send is None:
            return False
        there, item = self.rest.root(send.node), send.node.inputs[0]
        sent = self.rest.plan(item.node)
        return sent is not None and (
            sent.frame is not there.frame or self._is_dead(there, sent, item.port)
        )


def _switch_decision(here: DeviceIteration, plan: NodePlan, port: int) -> str:
    index = here.iteration.values[plan.base + 1]
    taken = str(bool(index)).lower() if plan.outputs == 2 else str(index)
    predicate = plan.node.inputs[1].name
    return (
        f"{plan.node.op} {plan.node.name!r} hands nothing to output {port},"
        f" as {predicate} is {taken}"
    )
