"""Why a run came to rest while some Recv waits: its key and tag, and what keeps its Send back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from cfgraph.analysis.transfers import RendezvousKey
from cfgraph.errors import ExecutionError
from cfgraph.ir.devices import short_device_name
from cfgraph.runtime.at_rest import AtRest, Instance
from cfgraph.runtime.frame_state import Frame, Iteration
from cfgraph.runtime.plan import NodePlan
from cfgraph.runtime.rendezvous import Rendezvous, Waiting

MAX_LISTED: Final = 12
_MAX_REASONS: Final = 2
_PAIR: Final = (
    "a _Send and its _Recv have the same tensor_name, send_device and recv_device; "
    "`cfgraph partition` makes both"
)
_LOOP: Final = (
    "a device that runs part of a loop needs a control loop; `cfgraph partition` makes it"
)


def stuck(rest: AtRest, rendezvous: Rendezvous, sends: Iterable[RendezvousKey]) -> ExecutionError:
    """The error of a run in which Recvs wait for messages that nobody will send.

    It lists them, those first that no other waiting Recv explains. `sends` are the keys of all
    Sends in the graph.
    """
    keys = tuple(sends)
    found = [_describe(rest, keys, key, waiting) for key, waiting in rendezvous.waiting()]
    found.sort(key=lambda one: one.follows)
    many = f"{len(found)} Recvs wait" if len(found) > 1 else "a Recv waits"
    lines = [f"nothing is left to run, and {many} for a message:"]
    lines += [one.text for one in found[:MAX_LISTED]]
    if len(found) > MAX_LISTED:
        lines.append(f"and {len(found) - MAX_LISTED} more")
    first = found[0]
    return ExecutionError(
        "\n  ".join(lines),
        node=first.node,
        frame=first.frame,
        device=first.device,
        hint=_LOOP if first.sent and first.frame != "/" else _PAIR,
        code="CFG708",
    )


@dataclass(frozen=True, slots=True)
class _Told:
    node: str
    frame: str
    device: str
    text: str
    sent: bool  # there is a Send with this key
    follows: bool  # another waiting Recv is the reason


def _describe(
    rest: AtRest, keys: tuple[RendezvousKey, ...], key: RendezvousKey, waiting: Waiting
) -> _Told:
    """One line: who waits where, for what, and why it does not come."""
    it = waiting.iteration
    executor = next(one for one in rest.executors if one.ready is waiting.ready)
    node = executor.linked.owners[waiting.take].node.name
    sender = short_device_name(key.send_device)
    if key in rest.sends:
        reason, follows = _reason(rest, rest.sends[key], it)
    else:
        reason, follows = _no_send(keys, key), False
    text = (
        f"{node!r} on {executor.device}, frame {it.path}, waits for {key.tensor_name!r}"
        f" from {sender}: {reason}"
    )
    return _Told(node, it.path, executor.device, text, key in rest.sends, follows)


def _reason(rest: AtRest, send: NodePlan, wanted: Iteration) -> tuple[str, bool]:
    """Why a Send did not run in an iteration; whether other messages are all that it lacks."""
    here, reason, late = _find(rest, send, wanted)
    if here is not None:
        reason, late = f"{send.node.name!r} did not run there", (here, send)
    if late is None:
        return reason, False
    found = list(islice(rest.missing(*late), _MAX_REASONS))
    return (f"{reason}, as {' and '.join(found)}", True) if found else (reason, False)


def _no_send(keys: tuple[RendezvousKey, ...], key: RendezvousKey) -> str:
    for other in keys:
        if other.tensor_name == key.tensor_name:
            return (
                f"no _Send has this key; the one of that name goes from {other.send_device}"
                f" to {other.recv_device}"
            )
    return "the graph has no such _Send"


Found = tuple[Instance | None, str, tuple[Instance, NodePlan] | None]


def _find(rest: AtRest, send: NodePlan, wanted: Iteration) -> Found:
    """The sender's iteration of the same path as `wanted`.

    Where there is none, why, and the Enter that is to blame if it is one.
    """
    here, name = rest.root(send.node), send.node.name
    for loop, index in _path(wanted):
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
        iteration = _iteration(frame, index)
        if iteration is None:
            return None, _absent_iteration(frame, index), None
        here = Instance(here.executor, iteration)
    if here.frame is not send.frame:
        return None, f"{name!r} is in the loop {send.frame.name!r}, the Recv is not", None
    return here, "", None


def _path(iteration: Iteration) -> list[tuple[str, int]]:
    """The names of the frames around, the outermost first, with the iteration of each."""
    found = []
    here: Iteration | None = iteration
    while here is not None and here.frame.parent is not None:
        found.append((here.frame.plan.name, here.index))
        here = here.frame.parent
    return found[::-1]


def _iteration(frame: Frame, index: int) -> Iteration | None:
    here = frame.first
    while here is not None and here.index != index:
        here = here.next
    return here


def _absent_iteration(frame: Frame, index: int) -> str:
    name, newest = frame.plan.name, frame.newest.index
    if newest >= index:
        return f"iteration {index} of the loop {name!r} ended there without it"
    return f"the loop {name!r} came to rest there at iteration {newest}"
