"""Choose devices for groups with several candidates: a list scheduler over estimated costs.

Nodes are scheduled in topological order, each as soon as its inputs have arrived, on the device
where it would finish first. Tensors that cross devices take their time on the link, and a node in a
loop counts once per estimated iteration. A node without inputs follows its first consumer. A loop
has a home, the device on which it would finish first as a whole; part of its body leaves the home
only if that pays for sending the predicate and the values in every iteration. A chain therefore
stays on one device, heavy work goes to the faster device, and heavy independent work spreads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from cfgraph.analysis.cost import CostEstimates, Costs
from cfgraph.analysis.loops.frame import Frame
from cfgraph.analysis.loops.frames import frames
from cfgraph.ir.graph import CONTROL, Graph, Node, Output
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import Role
from cfgraph.limits import check_deadline
from cfgraph.ops.shape_inference import infer_shapes

# of an input: device, time of arrival, and tensor
Arrival = tuple[int, float, Output]
_EMPTY_MESSAGE_BYTES = 4  # size of a message without a tensor


class DeviceScheduler:
    """One scheduling pass; `group_of` maps nodes to groups, `allowed` groups to their devices."""

    def __init__(
        self,
        graph: Graph,
        devices: Sequence[str],
        group_of: Mapping[Node, Node],
        allowed: Mapping[Node, tuple[str, ...]],
        costs: Costs,
    ) -> None:
        self.graph = graph
        self.group_of = group_of
        self.frames = frames(graph)
        self.costs = costs
        self.kinds = [costs.kind_of(device) for device in devices]
        number = {device: number for number, device in enumerate(devices)}
        numbers = {
            names: tuple([number[name] for name in names]) for names in set(allowed.values())
        }
        self.allowed = {group: numbers[names] for group, names in allowed.items()}
        self.chosen: dict[Node, int] = {
            group: devices[0] for group, devices in self.allowed.items() if len(devices) == 1
        }
        self.free_at = [0.0] * len(devices)
        self.ends: dict[Node, float] = {}
        self._durations: dict[Node, tuple[float, ...]] = {}
        self._seconds_of: dict[tuple[float, int, float], tuple[float, ...]] = {}
        self._homes: dict[Frame, int] = {}

    def run(self) -> dict[Node, int]:
        """Return the device number of each group."""
        for node in self.frames.order:
            check_deadline()
            if self._is_done():
                break
            self._schedule(node)
        for group, devices in self.allowed.items():
            self.chosen.setdefault(group, devices[0])
        return self.chosen

    def _is_done(self) -> bool:
        """Return true if every group has a device."""
        return len(self.chosen) == len(self.allowed)

    @cached_property
    def estimates(self) -> CostEstimates:
        """Estimate the costs of the graph; computed on demand since it dominates the run time."""
        return CostEstimates(infer_shapes(self.graph), self.frames)

    @cached_property
    def _loads(self) -> dict[Frame, list[float]]:
        """Return the seconds that each loop, with its inner loops, would take on each device.

        Nodes with a choice of devices count with their work, nodes fixed to another device with a
        message.
        """
        loads = {frame: [0.0] * len(self.kinds) for frame in self.frames.all}
        decided = {frame: [0] * len(self.kinds) for frame in self.frames.all}
        for frame in self.frames.all[1:]:
            check_deadline()
            for node in frame.nodes:
                seconds, allowed = self._seconds(node), self.allowed[self.group_of[node]]
                if not seconds[0]:
                    continue
                if len(allowed) == 1:
                    decided[frame][allowed[0]] += 1
                else:
                    loads[frame] = _elementwise_sums(loads[frame], seconds)
        for frame in reversed(self.frames.all[1:]):
            check_deadline()
            total, message = sum(decided[frame]), self._message_seconds(frame)
            messages = [message * (total - local) for local in decided[frame]]
            loads[frame] = _elementwise_sums(loads[frame], messages)
            if frame.parent is not None:
                loads[frame.parent] = _elementwise_sums(loads[frame.parent], loads[frame])
        return loads

    def _seconds(self, node: Node) -> tuple[float, ...]:
        """Return the duration of all runs of a node on each device; none is 0 unless all are."""
        seconds = self._durations.get(node)
        if seconds is not None:
            return seconds
        flops, moved = self.estimates.work(node)
        runs = self.estimates.runs[self.frames.of[node]] if moved else 0.0
        key = (flops, moved, runs)
        known = self._seconds_of.get(key)
        if known is None:
            known = self._seconds_of[key] = tuple(
                runs * self.costs.seconds(kind, flops, moved) if moved else 0.0
                for kind in self.kinds
            )
        self._durations[node] = known
        return known

    def _message_seconds(self, frame: Frame, size: int = _EMPTY_MESSAGE_BYTES) -> float:
        """Return the seconds of one message per iteration of a loop."""
        return self.estimates.runs[frame] * self.costs.link.seconds(size)

    def _transfer_seconds(self, node: Node, tensor: Output) -> float:
        """Return the seconds to send an input of a node from another device."""
        source, port = tensor
        frame = self.frames.of[node]
        if ROLES[source.op] is Role.ENTER and source.attr("is_constant"):
            frame = self.frames.of[source]  # a loop invariant is sent once per entry of the loop
        return self._message_seconds(
            frame, _EMPTY_MESSAGE_BYTES if port == CONTROL else self.estimates.size(tensor)
        )

    def _schedule(self, node: Node) -> None:
        group = self.group_of[node]
        chosen = self.chosen.get(group)
        if chosen is None and not node.inputs and not node.controls:
            return
        arrivals = self._arrivals(node)
        if chosen is None:
            chosen = self.chosen[group] = self._best(node, self.allowed[group], arrivals)
        if len(arrivals) < len(node.inputs) + len(node.controls):
            self._assign_sources(node, chosen)
        if self._is_done():
            return
        seconds = self._seconds(node)[chosen]
        end = self.ends[node] = self._start(node, arrivals, chosen) + seconds
        if seconds:
            self.free_at[chosen] = end

    def _best(self, node: Node, allowed: Sequence[int], arrivals: Sequence[Arrival]) -> int:
        """Return the device on which a node ends first; leaving the home of its loop costs more."""
        seconds = self._seconds(node)
        frame = self.frames.of_outputs[node]
        input_devices = {arrival[0] for arrival in arrivals}
        if frame is self.frames.root:
            if len(input_devices) == 1 and self._is_nearest(arrivals, seconds, allowed):
                return arrivals[0][0]
            homes = input_devices or {allowed[0]}
        else:
            home = self._home(frame, node, arrivals)
            if home in allowed and not any(seconds):
                return home
            homes = {home}
        back = self._message_seconds(frame, self.estimates.size(node.output()))
        if frame is not self.frames.root:
            back += self._message_seconds(frame)  # the predicate

        elsewhere = max(
            [end + self._transfer_seconds(node, i) for _, end, i in arrivals], default=0.0
        )
        ends = []
        for device in allowed:
            check_deadline()
            if device in input_devices:
                start = self._start(node, arrivals, device)
            else:
                start = max(self.free_at[device], elsewhere)
            ends.append(start + seconds[device] + (0.0 if device in homes else back))
        return allowed[ends.index(min(ends))]

    def _is_nearest(
        self, arrivals: Sequence[Arrival], seconds: Sequence[float], allowed: Sequence[int]
    ) -> bool:
        """True if the device of all inputs is idle, and as fast as any: no other ends earlier."""
        device = arrivals[0][0]
        return (
            device in allowed
            and self.free_at[device] <= max([arrival[1] for arrival in arrivals])
            and seconds[device] <= min([seconds[other] for other in allowed])
        )

    def _home(self, frame: Frame, node: Node, arrivals: Sequence[Arrival]) -> int:
        """Return the device on which a loop as a whole would end first; kept for the loop."""
        home = self._homes.get(frame)
        if home is None:
            load, parent = self._loads[frame], frame.parent or self.frames.root
            outer = self._homes.get(parent)
            inputs = {arrival[0] for arrival in arrivals} or {0}
            near = inputs if outer is None else {outer}
            round_trip = 2 * self._message_seconds(parent)

            def end(device: int) -> float:
                start = self._start(node, arrivals, device)
                return start + load[device] + round_trip * (device not in near)

            home = self._homes[frame] = min(range(len(self.kinds)), key=end)
        return home

    def _arrivals(self, node: Node) -> list[Arrival]:
        """Return the arrivals of those inputs of a node that are scheduled."""
        ends, chosen, group_of = self.ends, self.chosen, self.group_of
        tensors = [tensor for tensor in node.inputs if tensor[0] in ends]
        if node.controls:
            tensors += [Output(control, CONTROL) for control in node.controls if control in ends]
        return [(chosen[group_of[t[0]]], ends[t[0]], t) for t in tensors]

    def _start(self, node: Node, arrivals: Sequence[Arrival], device: int) -> float:
        """Return the time at which a device is free and has all inputs of a node."""
        received = [
            end if source == device else end + self._transfer_seconds(node, tensor)
            for source, end, tensor in arrivals
        ]
        return max([self.free_at[device], *received])

    def _assign_sources(self, node: Node, chosen: int) -> None:
        """Assign unscheduled sources to the device of their first reader if it is allowed."""
        for source in (*[tensor[0] for tensor in node.inputs], *node.controls):
            if source in self.ends:
                continue
            group = self.group_of[source]
            if group not in self.chosen:
                allowed = self.allowed[group]
                self.chosen[group] = chosen if chosen in allowed else allowed[0]
            self.ends[source] = 0.0


def _elementwise_sums(a: Sequence[float], b: Sequence[float]) -> list[float]:
    return [x + y for x, y in zip(a, b, strict=True)]
