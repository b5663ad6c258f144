"""Device requests of nodes, combined per colocation group, and the devices that satisfy them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from cfgraph.errors import CfgraphError, InvalidInput, Unsupported
from cfgraph.ir.devices import DeviceName, known_devices_hint, short_device_names
from cfgraph.ir.graph import Node
from cfgraph.passes.place.colocation_groups import ColocationGroups

ANY_DEVICE: Final = DeviceName()
_HOST_KIND: Final = "CPU"


class DeviceConstraints:
    """The requests of a graph's nodes, joined over sets that are tied together.

    `asked` is the text of a node's request. Of each set `asker` is the first node that asks,
    `hosted` one that only a CPU can run. What cannot be met is an error, but with `soft` told by
    `warnings`, unless `hard` nodes ask for it.
    """

    def __init__(
        self,
        groups: ColocationGroups,
        host_only_nodes: Iterable[Node],
        devices: Sequence[str],
        asked: Mapping[Node, str],
        hard: Collection[Node],
        soft: bool,
    ) -> None:
        self.groups = groups
        self.devices = tuple(devices)
        self.asked = asked
        self.soft = soft
        self.requester: dict[Node, Node] = {}
        self.wanted: dict[Node, DeviceName] = {}
        self.host_only_nodes: dict[Node, Node] = {}
        self._parts = [(device, _parse_device(device)) for device in devices]
        self._read: dict[str, DeviceName] = {}
        self._known: dict[tuple[DeviceName, bool], tuple[str, ...]] = {}
        self._unsatisfied: dict[tuple[str, str], list[Node]] = {}  # by request and reason
        self._hard: dict[Node, Node] = {}
        for node in hard:
            self._hard.setdefault(groups.of(node), node)
        for node in host_only_nodes:
            self.host_only_nodes.setdefault(groups.of(node), node)
        for node, text in asked.items():
            self._apply_request(node, text)

    def candidates(self, first: Node) -> tuple[str, ...]:
        """The devices that a set can be on, the best ones where its request cannot be met.

        Raises InvalidInput where the request cannot be met, Unsupported where no device can run it.
        """
        wanted = self.wanted.get(first, ANY_DEVICE)
        host = first in self.host_only_nodes
        found = self._matching(wanted, host)
        if found:
            return found
        if not self._matching(ANY_DEVICE, host) or not self.soft or first in self._hard:
            raise self._refused(first, wanted, host)
        self._unsatisfied.setdefault((str(wanted), self._reason(wanted, host)), []).append(first)
        return self._fallback_devices(wanted, host)

    def join(self, one: Node, other: Node) -> None:
        """Put two sets together if one device can then serve both, and both served alone."""
        a, b = self.groups.of(one), self.groups.of(other)
        if a is b:
            return
        wanted = _intersected_request(
            self.wanted.get(a, ANY_DEVICE), self.wanted.get(b, ANY_DEVICE)
        )
        host = a in self.host_only_nodes or b in self.host_only_nodes
        if wanted is None or not self._matching(wanted, host):
            return
        self.groups.join(a, b)
        first = self.groups.of(a)
        if wanted != ANY_DEVICE:
            self.wanted[first] = wanted
        for known in (self.host_only_nodes, self.requester, self._hard):
            if a in known or b in known:
                known[first] = known.get(first) or known.get(a) or known[b]

    def warnings(self) -> tuple[str, ...]:
        """What was not met, as warnings."""
        found = []
        for (text, reason), nodes in self._unsatisfied.items():
            names = ", ".join(node.name for node in nodes[:3]) + ", …" * (len(nodes) > 3)
            found.append(f"{text} cannot be had for {names}: {reason}")
        return tuple(found)

    # -- reading ---------------------------------------------------------------------------------

    def _apply_request(self, node: Node, text: str) -> None:
        request = self._read.get(text)
        if request is None:
            parsed = DeviceName.parse(text)
            if parsed is None:
                message = f"{text!r} is no device name"
                hint = "write it as in /job:worker/task:0/device:GPU:1, or a part of that"
                raise InvalidInput(message, node=node, hint=hint, code="CFG402")
            request = self._read[text] = parsed
        first = self.groups.of(node)
        self.requester.setdefault(first, node)
        before = self.wanted.get(first)
        if before is None or before is request:
            self.wanted[first] = request
            return
        joined = _intersected_request(before, request)
        if joined is not None:
            self.wanted[first] = joined
        elif self.soft and first not in self._hard:
            rival = self._conflicting_request(node, request)
            reason = f"{rival.name} asks for {self.asked[rival]}, and they must be on one device"
            self._unsatisfied.setdefault((text, reason), []).append(node)
        else:
            raise self._conflict(node, request)

    # -- finding ---------------------------------------------------------------------------------

    def _matching(self, wanted: DeviceName, host: bool) -> tuple[str, ...]:
        key = (wanted, host)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = tuple(
                device
                for device, parts in self._parts
                if satisfies_request(parts, wanted) and (not host or parts.kind == _HOST_KIND)
            )
        return found

    def _fallback_devices(self, wanted: DeviceName, host: bool) -> tuple[str, ...]:
        """What there is of the wanted kind of device, else of any, first of all in its place."""
        of_kind = ANY_DEVICE._replace(kind=wanted.kind)
        of_task = wanted._replace(kind=None, number=None)
        for looser in (wanted._replace(number=None), of_kind, of_task):
            if found := self._matching(looser, host):
                return found
        return self._matching(ANY_DEVICE, host)

    # -- refusing --------------------------------------------------------------------------------

    def _reason(self, wanted: DeviceName, host: bool) -> str:
        """Why a set of nodes cannot be where it asks to be."""
        if host and self._matching(wanted, False):
            return "only a CPU runs all that must be there"
        return f"there are {short_device_names(self.devices)}"

    def _conflicting_request(self, node: Node, request: DeviceName) -> Node:
        """A node that must be on the same device, and asks for another one."""
        return next(
            mate
            for mate in self.groups.members(self.groups.of(node))
            if mate in self.asked
            and mate is not node
            and _intersected_request(self._read.get(self.asked[mate], ANY_DEVICE), request) is None
        )

    def _conflict(self, node: Node, request: DeviceName) -> InvalidInput:
        """Two nodes that must be together ask for different devices."""
        other = self._conflicting_request(node, request)
        message = (
            f"{other.name!r} asks for {self.asked[other]}, {node.name!r} for {self.asked[node]}, "
            f"and they must be on one device: {self.groups.why(other, node)}"
        )
        hint = "change one request, or let go of what cannot be met with --soft"
        return InvalidInput(message, node=node, hint=hint, code="CFG403")

    def _refused(self, first: Node, wanted: DeviceName, host: bool) -> CfgraphError:
        """No device serves a set: none is there, or none of the kind that has the kernels."""
        known = short_device_names(self.devices)
        if host and not self._matching(ANY_DEVICE, host):
            node = self.host_only_nodes[first]
            message = f"only a CPU runs {node.op}, and there is none"
            return Unsupported(message, node=node, hint=f"there are {known}", code="CFG405")
        mates = [mate for mate in self.groups.members(first) if mate in self.asked]
        asking = mates[0] if mates else first
        for mate in mates:
            if not self._matching(self._read[self.asked[mate]], host):
                asking = mate
                break
        text = self.asked.get(asking, str(wanted))
        if host and self._matching(wanted, False):
            node = self.host_only_nodes[first]
            of = "" if node is asking else f" of {asking.name!r}"
            message = f"only a CPU runs {node.op}, and the request{of} is {text}"
            hint = "change the request, or let go of it with --soft"
            return Unsupported(message, node=node, device=text, hint=hint, code="CFG405")
        message = f"{asking.name!r} asks for {text}, which is not there"
        hint = f"{known_devices_hint(text, self.devices)}; or let go of the request with --soft"
        return InvalidInput(message, node=asking, hint=hint, code="CFG404")


def _parse_device(device: str) -> DeviceName:
    return DeviceName.parse(device) or ANY_DEVICE


def satisfies_request(parts: DeviceName, wanted: DeviceName) -> bool:
    """True if a device, given in full, is one that a request means."""
    return all(want is None or want == have for have, want in zip(parts, wanted, strict=True))


def _intersected_request(one: DeviceName, other: DeviceName) -> DeviceName | None:
    """What both ask for; None where they ask for different things."""
    if one == other:
        return one
    if any(a is not None and b is not None and a != b for a, b in zip(one, other, strict=True)):
        return None
    return DeviceName(*(b if a is None else a for a, b in zip(one, other, strict=True)))
