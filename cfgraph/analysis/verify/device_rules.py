"""Rules for device names and the transfers of a partitioned graph.

In a partitioned graph every edge stays on one device, each Send has its Recv, and messages form no
cycle. A single partition, separated from the others, is a valid graph whose messages leave it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from cfgraph.analysis.findings import Finding
from cfgraph.analysis.loops.frames import describe_cycle
from cfgraph.analysis.verify.context import VerifyContext
from cfgraph.errors import InvalidInput
from cfgraph.ir.graph import Node
from cfgraph.ir.names import first_names
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import Role
from cfgraph.ir.traversal import RendezvousKey, rendezvous_key, topological_order, transfers

_DEVICE: Final = re.compile(
    r"(/job:[A-Za-z]\w*|/(replica|task):(\d+|\*)|/device:(\*|[A-Za-z]\w*)(:(\d+|\*))?"
    r"|/([cg]pu|[CG]PU):(\d+|\*))*/?\Z"
).match


def check_devices(subject: VerifyContext) -> Iterator[Finding]:
    """Every device name is well-formed."""
    invalid = {device for device in subject.devices if not _DEVICE(device)}
    for node in subject.nodes if invalid else ():
        if node.device in invalid:
            message = f"invalid device name {node.device!r}"
            hint = "write it like /job:worker/task:0/device:GPU:1, or a part of that"
            yield Finding("CFG402", "warning", message, node.name, hint)


# names that a hint lists
_MAX_LISTED: Final = 6
_PEER_ROLE: Final = {Role.SEND: Role.RECV, Role.RECV: Role.SEND}
_TransferEnds = Mapping[Role | None, Mapping[RendezvousKey, Node]]


def check_transfers(subject: VerifyContext) -> Iterator[Finding]:
    """In a partitioned graph, only messages cross devices, and their keys differ."""
    yield from check_partition_edges(subject.nodes)
    yield from _duplicate_keys(_rendezvous_keys(subject.transfers))


def check_messages(subject: VerifyContext) -> Iterator[Finding]:
    """All messages are received, in the same loop, and form no cycle.

    A missing message may be fed, so none of this is an error.
    """
    keys = _rendezvous_keys(subject.transfers)
    ends: dict[Role | None, dict[RendezvousKey, Node]] = {Role.SEND: {}, Role.RECV: {}}
    for node, key in keys.items():
        ends[ROLES[node.op]].setdefault(key, node)
    yield from _unmatched_transfers(ends, {node.device for node in subject.nodes})
    if not subject.frames.cycles:
        yield from _message_cycles(subject, ends)
        yield from _messages_between_frames(subject, ends)


def check_partition_edges(nodes: Iterable[Node]) -> Iterator[Finding]:
    """Every node of a partitioned graph has a device and reads only from it."""
    here = dict.fromkeys(nodes)
    for node in here:
        device = node.device
        if not device:
            message = f"{node.name!r} of a partitioned graph has no device"
            yield Finding("CFG430", "error", message, node.name)
            continue
        for source in node.predecessors:
            # a node without a device has a finding of its own
            if source.device != device and (source.device or source not in here):
                message = f"an edge of a partitioned graph crosses devices: {source.name!r}"
                message = f"{message} is on {source.device or 'none'}, its reader on {device}"
                hint = "partition the original graph again"
                yield Finding("CFG430", "error", message, node.name, hint, (source.name,))
                break


def check_duplicate_keys(nodes: Iterable[Node]) -> Iterator[Finding]:
    """No two messages have the same key."""
    return _duplicate_keys(_rendezvous_keys(transfers(nodes)))


def _duplicate_keys(keys: Mapping[Node, RendezvousKey]) -> Iterator[Finding]:
    first: dict[tuple[Role | None, RendezvousKey], Node] = {}
    for node, key in keys.items():
        other = first.setdefault((ROLES[node.op], key), node)
        if other is not node:
            message = f"{other.name!r} has the same key: {key}"
            yield Finding("CFG431", "error", message, node.name, None, (other.name,))


def _rendezvous_keys(transfers: Iterable[Node]) -> dict[Node, RendezvousKey]:
    """The keys of transfers; missing attributes are reported separately."""
    keys: dict[Node, RendezvousKey] = {}
    for node in transfers:
        with suppress(InvalidInput):
            keys[node] = rendezvous_key(node)
    return keys


def _unmatched_transfers(ends: _TransferEnds, devices: set[str]) -> Iterator[Finding]:
    """Transfers without their other end; one finding per missing device."""
    abroad = Counter[str]()
    awaited = defaultdict[str, dict[str, None]](dict)
    for role, other in _PEER_ROLE.items():
        for key, node in ends[role].items():
            if key in ends[other]:
                continue
            there = key.recv_device if role is Role.SEND else key.send_device
            if there not in devices:
                abroad[there] += 1
                awaited[there] |= {key.sent_name: None} if role is Role.RECV else {}
                continue
            message = f"no {'Recv receives' if role is Role.SEND else 'Send sends'} {key}"
            hint = _key_hint(key, ends[other])
            yield Finding("CFG432", "warning", message, node.name, hint)
    for device, count in abroad.items():
        message = (
            f"the graph is a part: of {device} it has nothing but the ends of {count} transfer"
        )
        names = first_names([*awaited[device]], _MAX_LISTED)
        hint = f"the missing part must send {names}" if names else None
        yield Finding("CFG434", "note", message + "s" * (count != 1), hint=hint)


def _key_hint(key: RendezvousKey, others: Iterable[RendezvousKey]) -> str | None:
    same = next((send for send in others if send.tensor_name == key.tensor_name), None)
    if same is None:
        return None
    return f"the tensor of that name goes from {same.send_device} to {same.recv_device}"


def _messages_between_frames(subject: VerifyContext, ends: _TransferEnds) -> Iterator[Finding]:
    """Both ends of a message run in frames of the same names: one message per iteration."""
    of = subject.frames.of
    for key, recv in ends[Role.RECV].items():
        send = ends[Role.SEND].get(key)
        if send is None or of[send].path == of[recv].path:
            continue
        sent, received = (
            f"loop {of[node].path!r}" if of[node].parent else "no loop" for node in (send, recv)
        )
        message = (
            f"the message {key.tensor_name!r} is sent in {sent} and received in {received}, so it"
            " never arrives"
        )
        hint = f"partition the graph again: {recv.device} needs a control loop of the same frame"
        yield Finding("CFG435", "warning", message, recv.name, hint, (send.name,))


def _message_cycles(subject: VerifyContext, ends: _TransferEnds) -> Iterator[Finding]:
    """Messages form no cycle within an iteration."""
    senders = {
        recv: ends[Role.SEND][key]
        for key, recv in ends[Role.RECV].items()
        if key in ends[Role.SEND]
    }
    if not senders:
        return
    places = {node: position for position, node in enumerate(subject.graph)}
    for cycle in topological_order(places, senders=senders).cycles:
        names, related = describe_cycle(cycle, places)
        message = f"devices wait for each other's messages: {names}"
        hint = "partition the graph again, or send available values before waiting for others"
        yield Finding("CFG433", "warning", message, related[0], hint, related[1:])
