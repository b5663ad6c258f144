"""Explanations of missing results: deadlocked Recvs, fetches without a value, and dead fetches."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from cfgraph.analysis.findings import PARTITION_HINT
from cfgraph.errors import ExecutionError
from cfgraph.ir.devices import short_device_name
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.role import Role
from cfgraph.ir.traversal import RendezvousKey, rendezvous_key
from cfgraph.runtime.engine.plan import NodePlan
from cfgraph.runtime.engine.propagate import FrameState, Iteration
from cfgraph.runtime.engine.quiescent_state import DeviceIteration, QuiescentState
from cfgraph.runtime.engine.rendezvous import Rendezvous
from cfgraph.runtime.engine.step import ParkedToken

# late imports: few runs end without a value

MAX_LISTED_RECVS: Final = 12
_MAX_SEND_REASONS: Final = 2
_PAIR_HINT: Final = (
    "a _Send and its _Recv have the same tensor_name, send_device and recv_device; "
    "`cfgraph partition` makes both"
)
_NO_PART: Final = "the graph has no node there"
_LOOP_HINT: Final = f"a device that runs part of a loop needs a control loop: {PARTITION_HINT}"


# of iterations, in a reason
_NUMBER: Final = re.compile(r"\d+")
# the loops around an iteration, outermost first, with the iteration of each
FramePath = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class BlockedRecv:
    """A Recv that waits for a message: its place, and the key and iteration of the message."""

    node: str
    frame: str
    device: str
    key: RendezvousKey
    path: FramePath


@dataclass(frozen=True, slots=True)
class NotSent:
    """The reason why a message was not sent.

    `sent`: the graph has a Send with its key. `follows`: another waiting Recv is the reason.
    """

    reason: str
    sent: bool
    follows: bool = False


def explain_deadlock(
    state: QuiescentState,
    rendezvous: Rendezvous,
    sends: Iterable[RendezvousKey],
    devices: Collection[str],
) -> ExecutionError:
    """The error of a run in which Recvs wait for messages that are never sent.

    It lists them, root causes first. `sends` are the keys of all Sends in the graph, `devices`
    those of all nodes.
    """
    keys = tuple(sends)
    blocked = blocked_recvs(state, rendezvous)
    return deadlock_error([(recv, why_not_sent(state, keys, recv, devices)) for recv in blocked])


def blocked_recvs(state: QuiescentState, rendezvous: Rendezvous) -> list[BlockedRecv]:
    """The Recvs that wait for a message."""
    recvs = []
    for key, waiting in rendezvous.waiting():
        iteration = waiting.iteration
        executor = next(each for each in state.executors if each.ready is waiting.ready)
        node = executor.linked.owners[waiting.receive].node.name
        recvs.append(BlockedRecv(node, iteration.path, executor.device, key, iteration.loops))
    return recvs


def deadlock_error(blocked: Iterable[tuple[BlockedRecv, NotSent]]) -> ExecutionError:
    """The error that lists waiting Recvs, root causes first, once for all iterations."""
    ordered = sorted(blocked, key=lambda pair: pair[1].follows)
    many = f"{len(ordered)} Recvs wait" if len(ordered) > 1 else "a Recv waits"
    lines = [f"nothing is left to run, and {many} for a message:"]
    waits: dict[str, str] = {}
    groups: dict[tuple[str, str], list[tuple[BlockedRecv, NotSent]]] = {}
    for recv, missing in ordered:
        groups.setdefault((recv.node, _NUMBER.sub("", missing.reason)), []).append((recv, missing))
    for group in islice(groups.values(), MAX_LISTED_RECVS):
        recv, missing = group[0]
        sender = short_device_name(recv.key.send_device)
        reason = f"waits for {recv.key.tensor_name!r} from {sender}: {missing.reason}"
        others = f" to {group[-1][0].frame} ({len(group)} iterations)" if len(group) > 1 else ""
        lines.append(f"{recv.node!r} on {recv.device}, frame {recv.frame}{others}, {reason}")
        waits.setdefault(recv.node, reason)
    if len(groups) > MAX_LISTED_RECVS:
        lines.append(f"and {len(groups) - MAX_LISTED_RECVS} more")
    first, missing = ordered[0]
    error = ExecutionError(
        "\n  ".join(lines),
        node=first.node,
        frame=first.frame,
        device=first.device,
        hint=_deadlock_hint(first, missing),
        code="CFG708",
    )
    error.waits = waits
    return error


def _deadlock_hint(recv: BlockedRecv, missing: NotSent) -> str:
    if missing.reason == _NO_PART:
        text = "a part of the partitioned graph is missing: name the folder that contains all parts"
        feed = f", feed what it sends, as in --feed '{recv.node}=VALUE'," * (recv.frame == "/")
        return f"{text}{feed} or fetch what needs none of its messages"
    return _LOOP_HINT if missing.sent and recv.frame != "/" else _PAIR_HINT


def blocked_error(parked: Sequence[ParkedToken]) -> ExecutionError:
    """The error of a run in which only nodes are left that wait for a change of a resource."""
    many = f"{len(parked)} nodes wait" if len(parked) > 1 else "a node waits"
    lines = [f"nothing is left to run, and {many} for a change of a queue:"]
    waits: dict[str, str] = {}
    for token in parked[:MAX_LISTED_RECVS]:
        reason = f"waits {token.blocked.purpose} of {token.blocked.resource!r}"
        lines.append(f"{token.node.name!r}, frame {token.iteration.path}, {reason}")
        waits.setdefault(token.node.name, reason)
    if len(parked) > MAX_LISTED_RECVS:
        lines.append(f"and {len(parked) - MAX_LISTED_RECVS} more")
    error = ExecutionError(
        "\n  ".join(lines),
        node=parked[0].node,
        frame=parked[0].iteration.path,
        hint="run the nodes that change the queue in the same run or an earlier one, or close it",
        code="CFG708",
    )
    error.waits = waits
    return error


def why_not_sent(
    state: QuiescentState,
    keys: tuple[RendezvousKey, ...],
    recv: BlockedRecv,
    devices: Collection[str],
) -> NotSent:
    """The reason why the message of a waiting Recv was not sent by the devices of `state`."""
    send = state.sends.get(recv.key)
    if send is None:
        return NotSent(_no_matching_send(keys, recv.key, devices), False)
    current, reason, blocked_enter = _sender_iteration(state, send, recv.path)
    if current is not None:
        reason, blocked_enter = f"{send.node.name!r} did not run there", (current, send)
    if blocked_enter is None:
        return NotSent(reason, True)
    reasons = list(islice(state.missing(*blocked_enter), _MAX_SEND_REASONS))
    if reasons:
        return NotSent(f"{reason}, as {' and '.join(reasons)}", True, True)
    return NotSent(reason, True)


def _no_matching_send(
    keys: tuple[RendezvousKey, ...], key: RendezvousKey, devices: Collection[str]
) -> str:
    for namesake in keys:
        if namesake.tensor_name == key.tensor_name:
            return (
                f"no _Send has this key; the one of that name goes from {namesake.send_device}"
                f" to {namesake.recv_device}"
            )
    return "the graph has no such _Send" if key.send_device in devices else _NO_PART


SenderSearch = tuple[DeviceIteration | None, str, tuple[DeviceIteration, NodePlan] | None]


def _sender_iteration(state: QuiescentState, send: NodePlan, path: FramePath) -> SenderSearch:
    """The sender's iteration of the same path.

    Without one, returns the reason, and the Enter that did not fire if it is the reason.
    """
    current, name = state.root(send.node), send.node.name
    for loop, index in path:
        plan = next((plan for plan in state.loops(current) if plan.name == loop), None)
        if plan is None:
            return None, f"{name!r} is not in the loop {loop!r}", None
        frame = current.child(plan)
        if frame is None:
            blocked_enter = next(
                (enter for enter in state.enters(plan) if not current.fired(enter)), None
            )
            if blocked_enter is None:
                ended = (current.iteration.frame.ended or {}).get(plan)
                return None, f"the loop {loop!r} ended there at iteration {ended}", None
            reason = (
                f"the loop {loop!r} did not start there: {blocked_enter.node.name!r} did not run"
            )
            return None, reason, (current, blocked_enter)
        iteration = _iteration_at(frame, index)
        if iteration is None:
            return None, _why_no_iteration(frame, index), None
        current = DeviceIteration(current.executor, iteration)
    if current.frame is not send.frame:
        return None, f"{name!r} is in the loop {send.frame.name!r}, the Recv is not", None
    return current, "", None


def _iteration_at(frame: FrameState, index: int) -> Iteration | None:
    current = frame.first
    while current is not None and current.index != index:
        current = current.next
    return current


def _why_no_iteration(frame: FrameState, index: int) -> str:
    name, newest = frame.plan.name, frame.newest.index
    if newest >= index:
        return f"iteration {index} of the loop {name!r} ended there without it"
    return f"the loop {name!r} stopped there at iteration {newest}"


MAX_LISTED_REASONS = 5
MISSING_VALUE_CODE: Final = "CFG707"


def explain_dead_fetch(state: QuiescentState, output: Output) -> ExecutionError:
    """The error of a dead fetch, naming the node that killed it."""
    from cfgraph.analysis.fetch_hints import merge_hint

    tracer = _DeadnessTracer(state, output.node)
    message = f"{output.name} is dead: {tracer.explain(output)}"
    instead = merge_hint([*tracer.path])
    return ExecutionError(
        message,
        node=output.node,
        device=state.executor_of[output.node].device,
        hint=f"{instead}, or feed the predicate differently".removeprefix(", or "),
        code="CFG702",
    )


def explain_missing_fetch(state: QuiescentState, output: Output) -> ExecutionError:
    """The error of a fetch without a value in a run that has stopped."""
    current, plan = state.root(output.node), state.plan(output.node)
    assert plan is not None
    if plan.frame is current.frame:
        reasons = list(islice(state.missing(current, plan), 2 * MAX_LISTED_REASONS))
    elif all(enter.frame is current.frame for enter in state.enters(plan.frame)):
        reasons = list(islice(state.missing_exit(current, plan), 2 * MAX_LISTED_REASONS))
    else:
        reasons = [f"it is inside of a loop around the loop {plan.frame.name!r}"]
    more = (
        f"; and {len(reasons) - MAX_LISTED_REASONS} more"
        if len(reasons) > MAX_LISTED_REASONS
        else ""
    )
    reason = "; ".join(reasons[:MAX_LISTED_REASONS]) + more if reasons else "no token reached it"
    return ExecutionError(
        f"{output.name} got no value, and nothing is left to run: {reason}",
        node=output.node,
        device=current.executor.device,
        hint="`cfgraph check` reports why nodes do not run; --fetch names other tensors",
        code=MISSING_VALUE_CODE,
    )


class _DeadnessTracer:
    """Search for the origin of a dead tensor outside of loops."""

    def __init__(self, state: QuiescentState, node: Node) -> None:
        self.state = state
        self.current = state.root(node)
        self.path: dict[Node, None] = {}

    def explain(self, output: Output) -> str:
        """The cause of a dead output, followed through dead inputs to a Switch that ran."""
        while output.node not in self.path:
            self.path[output.node] = None
            plan = self.state.plan(output.node)
            if plan is None:
                break
            if plan.frame is not self.current.frame:
                entered = [
                    enter
                    for enter in self.state.enters(plan.frame)
                    if enter.frame is not self.current.frame or self.current.got_dead_token(enter)
                ]
                if not entered:
                    return f"{output.node.name!r} was live in no iteration of {plan.frame.name!r}"
                output = Output(entered[0].node, 0)
            elif plan.op.role is Role.SWITCH and not self.current.got_dead_token(plan):
                return _switch_decision(self.current, plan, output.port)
            else:
                output = self._sent_output(plan) or self._dead_input(plan) or output
        return f"{output.node.name!r} ({output.node.op}) forwarded nothing"

    def _sent_output(self, plan: NodePlan) -> Output | None:
        """The tensor that the matching Send sent to a Recv, or None for other nodes.

        Moves the search to the sender's device.
        """
        if plan.op.role is not Role.RECV or self.current.got_dead_token(plan):
            return None
        send = self.state.sends.get(rendezvous_key(plan.node))
        if send is None:
            return None
        self.current = self.state.root(send.node)
        return send.node.inputs[0]

    def _dead_input(self, plan: NodePlan) -> Output | None:
        """The first source that delivered a dead token; an Exit if no other did."""
        sources = [*plan.node.inputs, *(Output(node, -1) for node in plan.node.controls)]
        loops: list[Output] = []
        for output in sources:
            source = self.state.plan(output.node)
            if source is None:
                continue
            if source.frame is not self.current.frame:
                loops.append(output)
            elif self._is_dead(self.current, source, output.port):
                return output
        return loops[0] if loops else None

    def _is_dead(self, current: DeviceIteration, source: NodePlan, port: int) -> bool:
        """True if an output (-1: the control edges) was dead; unknown, and false, for an Exit."""
        if current.got_dead_token(source) or port < 0:
            return current.got_dead_token(source)
        if source.op.role is Role.SWITCH:
            index = int(current.iteration.values[source.base + 1])
            last = source.outputs - 1
            return port != (index if 0 <= index <= last else last)
        send = (
            self.state.sends.get(rendezvous_key(source.node))
            if source.op.role is Role.RECV
            else None
        )
        if send is None:
            return False
        sender, output = self.state.root(send.node), send.node.inputs[0]
        sent = self.state.plan(output.node)
        return sent is not None and (
            sent.frame is not sender.frame or self._is_dead(sender, sent, output.port)
        )


def _switch_decision(current: DeviceIteration, plan: NodePlan, port: int) -> str:
    index = current.iteration.values[plan.base + 1]
    branch = str(bool(index)).lower() if plan.outputs == 2 else str(index)
    predicate = plan.node.inputs[1].name
    return (
        f"{plan.node.op} {plan.node.name!r} forwards nothing to output {port},"
        f" as {predicate} is {branch}"
    )
