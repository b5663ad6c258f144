"""Colocation groups, their combined device requests, and the devices that satisfy them.

An unsatisfiable request is an error (CFG402 to CFG405), or a warning with soft placement.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final

from cfgraph.errors import CfgraphError, InvalidInput, Unsupported
from cfgraph.ir.colocation import COLOCATION_ATTR, colocated_names
from cfgraph.ir.devices import DeviceName, known_devices_hint, short_device_names
from cfgraph.ir.graph import Graph, Node
from cfgraph.limits import check_deadline
from cfgraph.ops.families.stacks import StackHandle
from cfgraph.ops.opdef.op import is_a
from cfgraph.passes.place.op_placement import ColocationEdge, PlacementFacts


class ColocationGroups:
    """Disjoint groups, each represented by its first node in graph order.

    `edges` are the reasons to share a device, without the `preferences`. Nodes in one sequence of
    `colocated` share a device in addition. `missing` maps each name in a `_class` attribute that is
    not in the graph to the first node with that attribute.
    """

    def __init__(
        self, graph: Graph, facts: PlacementFacts, colocated: Iterable[Sequence[Node]] = ()
    ) -> None:
        self.graph = graph
        self.edges: list[ColocationEdge] = []
        self.preferences: list[ColocationEdge] = []
        self.missing: dict[str, Node] = {}
        self._parent: dict[Node, Node] = {}
        for node in graph:
            if node in facts.special:
                for edge in facts.colocation_edges(node):
                    (self.preferences if edge.is_preference else self.edges).append(edge)
            if COLOCATION_ATTR in node.attrs:
                self._add_class_edges(node)
        for nodes in colocated:
            self.edges.extend(
                ColocationEdge(nodes[0], node, "a rule to colocate") for node in nodes[1:]
            )
        for edge in self.edges:
            check_deadline()
            self.merge(edge.source, edge.reader)

    @cached_property
    def _position(self) -> dict[Node, int]:
        return {node: number for number, node in enumerate(self.graph)}

    def representative(self, node: Node) -> Node:
        """Return the first node of the group of a node."""
        parent = self._parent
        root = node
        while root in parent:
            root = parent[root]
        while node is not root:  # path compression
            above = parent[node]
            parent[node] = root
            node = above
        return root

    def merge(self, a: Node, b: Node) -> None:
        """Merge the groups of two nodes."""
        a, b = self.representative(a), self.representative(b)
        if a is not b:
            first, second = (a, b) if self._position[a] < self._position[b] else (b, a)
            self._parent[second] = first

    def representatives(self) -> dict[Node, Node]:
        """Return the representative of every node."""
        merged = self._parent
        return {node: self.representative(node) if node in merged else node for node in self.graph}

    def members(self, representative: Node) -> list[Node]:
        """Return the nodes of a group in graph order; walks the whole graph."""
        return [node for node in self.graph if self.representative(node) is representative]

    def explanation(self, a: Node, b: Node) -> str:
        """Describe, edge by edge, why two nodes are in one group."""
        path = self._path(a, b)
        shown = path if len(path) <= 4 else [*path[:2], None, *path[-2:]]
        return ", ".join(
            "…"
            if edge is None
            else f"{edge.source.name} and {edge.reader.name} share {edge.shared}"
            for edge in shown
        )

    def _path(self, a: Node, b: Node) -> list[ColocationEdge]:
        edges_of: dict[Node, list[ColocationEdge]] = {}
        for edge in self.edges:
            check_deadline()
            edges_of.setdefault(edge.source, []).append(edge)
            edges_of.setdefault(edge.reader, []).append(edge)
        previous: dict[Node, ColocationEdge | None] = {a: None}
        queue = deque([a])
        while queue and b not in previous:
            check_deadline()
            node = queue.popleft()
            for edge in edges_of.get(node, ()):
                neighbor = edge.reader if edge.source is node else edge.source
                if neighbor not in previous:
                    previous[neighbor] = edge
                    queue.append(neighbor)
        path: list[ColocationEdge] = []
        node = b
        while (last := previous.get(node)) is not None:
            path.append(last)
            node = last.source if last.reader is node else last.reader
        return path[::-1]

    def _add_class_edges(self, node: Node) -> None:
        """Read the groups of a node; nodes that name the same missing node are one group.

        That of a stack is a preference: any device can hold the values, at the cost of transfers.
        """
        is_stack = is_a(node, StackHandle)
        edges = self.preferences if is_stack else self.edges
        for name in colocated_names(node.attrs):
            target = self.graph.nodes.get(name) or self.missing.setdefault(name, node)
            if target is not node:
                edges.append(ColocationEdge(target, node, "a class", is_preference=is_stack))


ANY_DEVICE: Final = DeviceName()
_HOST_KIND: Final = "CPU"
_SOFT: Final = "soft placement (--soft, or soft_placement in Python)"


class DeviceConstraints:
    """Intersected device requests of each colocation group.

    `requests` is the device text of each node with a request. `requester` maps the representative
    of a group to its first node with a request, and `host_only_nodes` maps it to a node that only a
    CPU can run. With `soft`, unsatisfiable requests become `warnings`, except requests of `hard`
    nodes.
    """

    def __init__(
        self,
        groups: ColocationGroups,
        host_only_nodes: Iterable[Node],
        devices: Sequence[str],
        requests: Mapping[Node, str],
        hard: Collection[Node],
        soft: bool,
    ) -> None:
        self.groups = groups
        self.devices = tuple(devices)
        self.requests = requests
        self.soft = soft
        self.requester: dict[Node, Node] = {}
        self.combined: dict[Node, DeviceName] = {}
        self.host_only_nodes: dict[Node, Node] = {}
        # of all numbers, and of each one: a request for one of many devices looks at few
        self._device_names: dict[str | None, list[tuple[str, DeviceName]]] = {}
        for device in self.devices:
            name = DeviceName.parse(device) or ANY_DEVICE
            for number in {None, name.number}:
                self._device_names.setdefault(number, []).append((device, name))
        self._parsed: dict[str, DeviceName] = {}
        self._matches: dict[tuple[DeviceName, bool], tuple[str, ...]] = {}
        self._unsatisfied: dict[tuple[str, str], list[Node]] = {}  # by request and reason
        self._hard_nodes: dict[Node, Node] = {}
        for node in hard:
            self._hard_nodes.setdefault(groups.representative(node), node)
        for node in host_only_nodes:
            self.host_only_nodes.setdefault(groups.representative(node), node)
        for node, text in requests.items():
            self._apply_request(node, text)

    def candidates(self, representative: Node) -> tuple[str, ...]:
        """Return the devices that a group may use.

        With soft placement, the closest devices if the request is unsatisfiable. Raises
        InvalidInput for an unsatisfiable request, Unsupported if no device has the kernels.
        """
        request = self.combined.get(representative, ANY_DEVICE)
        host = representative in self.host_only_nodes
        devices = self._matching(request, host)
        if devices:
            return devices
        is_hard = not self.soft or representative in self._hard_nodes
        if is_hard or not self._matching(ANY_DEVICE, host):
            raise self._unsatisfiable(representative, request, host)
        key = str(request), self._reason(request, host)
        self._unsatisfied.setdefault(key, []).append(representative)
        return self._fallback_devices(request, host)

    def merge_groups(self, a: Node, b: Node) -> None:
        """Merge the groups of two nodes if some device satisfies the requests of both."""
        a, b = self.groups.representative(a), self.groups.representative(b)
        if a is b:
            return
        request = _intersected_request(
            self.combined.get(a, ANY_DEVICE), self.combined.get(b, ANY_DEVICE)
        )
        host = a in self.host_only_nodes or b in self.host_only_nodes
        if request is None or not self._matching(request, host):
            return
        self.groups.merge(a, b)
        merged = self.groups.representative(a)
        if request != ANY_DEVICE:
            self.combined[merged] = request
        for known in (self.host_only_nodes, self.requester, self._hard_nodes):
            if a in known or b in known:
                known[merged] = known.get(merged) or known.get(a) or known[b]

    def warnings(self) -> tuple[str, ...]:
        """Return a warning for each request that was ignored."""
        warnings = []
        for (text, reason), nodes in self._unsatisfied.items():
            names = ", ".join(node.name for node in nodes[:3]) + ", …" * (len(nodes) > 3)
            warnings.append(f"{text} cannot be used for {names}: {reason}")
        return tuple(warnings)

    # -- requests --------------------------------------------------------------------------------

    def _apply_request(self, node: Node, text: str) -> None:
        request = self._parsed.get(text)
        if request is None:
            parsed = DeviceName.parse(text)
            if parsed is None:
                message = f"{text!r} is not a device name"
                hint = "write it as in /job:worker/task:0/device:GPU:1, or a part of that"
                raise InvalidInput(message, node=node, hint=hint, code="CFG402")
            request = self._parsed[text] = parsed
        group = self.groups.representative(node)
        self.requester.setdefault(group, node)
        previous = self.combined.get(group)
        if previous is None or previous is request:
            self.combined[group] = request
            return
        combined = _intersected_request(previous, request)
        if combined is not None:
            self.combined[group] = combined
        elif self.soft and group not in self._hard_nodes:
            rival = self._conflicting_node(node, request)
            reason = f"{rival.name} requests {self.requests[rival]}, and they must share a device"
            self._unsatisfied.setdefault((text, reason), []).append(node)
        else:
            raise self._conflict(node, request)

    # -- devices ---------------------------------------------------------------------------------

    def _matching(self, request: DeviceName, host: bool) -> tuple[str, ...]:
        key = (request, host)
        devices = self._matches.get(key)
        if devices is None:
            devices = self._matches[key] = tuple(
                device
                for device, name in self._device_names.get(request.number, ())
                if satisfies_request(name, request) and (not host or name.kind == _HOST_KIND)
            )
        return devices

    def _fallback_devices(self, request: DeviceName, host: bool) -> tuple[str, ...]:
        """Return devices of the same kind and task, else the same kind, same task, or any."""
        same_kind = ANY_DEVICE._replace(kind=request.kind)
        same_task = request._replace(kind=None, number=None)
        for weaker in (request._replace(number=None), same_kind, same_task):
            if devices := self._matching(weaker, host):
                return devices
        return self._matching(ANY_DEVICE, host)

    # -- errors ----------------------------------------------------------------------------------

    def _reason(self, request: DeviceName, host: bool) -> str:
        """Explain why no device satisfies the request of a group."""
        if host and self._matching(request, False):
            return "only a CPU runs all nodes that must share the device"
        return f"available: {short_device_names(self.devices)}"

    def _conflicting_node(self, node: Node, request: DeviceName) -> Node:
        """Return a node of the same group with an incompatible request."""
        return next(
            mate
            for mate in self.groups.members(self.groups.representative(node))
            if mate in self.requests
            and mate is not node
            and _intersected_request(self._parsed.get(self.requests[mate], ANY_DEVICE), request)
            is None
        )

    def _conflict(self, node: Node, request: DeviceName) -> InvalidInput:
        rival = self._conflicting_node(node, request)
        message = (
            f"{rival.name!r} requests {self.requests[rival]}, {node.name!r} requests "
            f"{self.requests[node]}, and they must share a device: "
            f"{self.groups.explanation(rival, node)}"
        )
        hint = f"change one request, or use {_SOFT}, which ignores unsatisfiable ones"
        return InvalidInput(message, node=node, hint=hint, code="CFG403")

    def _unsatisfiable(self, representative: Node, request: DeviceName, host: bool) -> CfgraphError:
        """Return the error for a group that no device can serve."""
        devices = short_device_names(self.devices)
        if host and not self._matching(ANY_DEVICE, host):
            node = self.host_only_nodes[representative]
            message = f"only a CPU runs {node.op}, and there is none"
            hint = f"available: {devices}"
            return Unsupported(message, node=node, hint=hint, code="CFG405")
        mates = [mate for mate in self.groups.members(representative) if mate in self.requests]
        requester = mates[0] if mates else representative
        for mate in mates:
            if not self._matching(self._parsed[self.requests[mate]], host):
                requester = mate
                break
        text = self.requests.get(requester, str(request))
        if host and self._matching(request, False):
            node = self.host_only_nodes[representative]
            of = "" if node is requester else f" of {requester.name!r}"
            message = f"only a CPU runs {node.op}, and the request{of} is {text}"
            hint = f"change the request, or use {_SOFT}, which ignores it"
            return Unsupported(message, node=node, device=text, hint=hint, code="CFG405")
        message = f"{requester.name!r} requests {text}, which does not exist"
        hint = f"{known_devices_hint(text, self.devices)}; or use {_SOFT}"
        return InvalidInput(message, node=requester, hint=hint, code="CFG404")


def satisfies_request(device: DeviceName, request: DeviceName) -> bool:
    """Return true if a full device name matches a possibly partial request."""
    return all(want is None or want == have for have, want in zip(device, request, strict=True))


def _intersected_request(a: DeviceName, b: DeviceName) -> DeviceName | None:
    """Return the request that combines two, None if they are incompatible."""
    if a == b:
        return a
    if any(x is not None and y is not None and x != y for x, y in zip(a, b, strict=True)):
        return None
    return DeviceName(*(y if x is None else x for x, y in zip(a, b, strict=True)))
