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
from cfgraph.analysis.loops.frames import Frame, frames
from cfgraph.ir.graph import CONTROL, Graph, Node, Output
from cfgraph.ir.role import Role
from cfgraph.ir.topological_order import OpRoles
from cfgraph.ops.shape_inference import infer_shapes

# the device that an input is on, when it is there, and which it is
Arrival = tuple[int, float, Output]
_EMPTY_MESSAGE_BYTES = 4  # bytes of a message that carries no tensor


class DeviceScheduler:
    """One pass over a graph. `first_of` gives a node's set; `allowed` are the devices of each."""

    def __init__(
        self,
        graph: Graph,
        devices: Sequence[str],
        first_of: Mapping[Node, Node],
        allowed: Mapping[Node, tuple[str, ...]],
        costs: Costs,
    ) -> None:
        self.graph = graph
        self.first_of = first_of
        self.frames = frames(graph)
        self.costs = costs
        self.roles = OpRoles()
        self.kinds = [costs.kind_of(device) for device in devices]
        number = {device: number for number, device in enumerate(devices)}
        numbers = {
            found: tuple([number[each] for each in found]) for found in set(allowed.values())
        }
        self.allowed = {first: numbers[found] for first, found in allowed.items()}
        self.chosen: dict[Node, int] = {
            first: found[0] for first, found in self.allowed.items() if len(found) == 1
        }
        self.free_at = [0.0] * len(devices)
        self.ends: dict[Node, float] = {}
        self._durations: dict[Node, tuple[float, ...]] = {}
        self._seconds_of: dict[tuple[float, int, float], tuple[float, ...]] = {}
        self._homes: dict[Frame, int] = {}

    def run(self) -> dict[Node, int]:
        """The number of the device of each set."""
        for node in self.frames.order:
            if self._is_done():
                break
            self._schedule(node)
        for first, found in self.allowed.items():
            self.chosen.setdefault(first, found[0])
        return self.chosen

    def _is_done(self) -> bool:
        """True if every set has its device."""
        return len(self.chosen) == len(self.allowed)

    @cached_property
    def estimates(self) -> CostEstimates:
        """What the graph costs; to know that takes longer than all else here."""
        return CostEstimates(infer_shapes(self.graph), self.frames)

    @cached_property
    def _loads(self) -> dict[Frame, list[float]]:
        """The seconds that each loop would take on each device, with all loops in it.

        Of its nodes those count for which nothing was decided before the pass; where one that was
        decided works elsewhere, a message.
        """
        loads = {frame: [0.0] * len(self.kinds) for frame in self.frames.all}
        decided = {frame: [0] * len(self.kinds) for frame in self.frames.all}
        for frame in self.frames.all[1:]:
            for node in frame.nodes:
                lasts, allowed = self._seconds(node), self.allowed[self.first_of[node]]
                if not lasts[0]:
                    continue
                if len(allowed) == 1:
                    decided[frame][allowed[0]] += 1
                else:
                    loads[frame] = _elementwise_sums(loads[frame], lasts)
        for frame in reversed(self.frames.all[1:]):
            total, away = sum(decided[frame]), self._crossing(frame)
            messages = [away * (total - here) for here in decided[frame]]
            loads[frame] = _elementwise_sums(loads[frame], messages)
            if frame.parent is not None:
                loads[frame.parent] = _elementwise_sums(loads[frame.parent], loads[frame])
        return loads

    def _seconds(self, node: Node) -> tuple[float, ...]:
        """How long all runs of a node take, on each device; none is 0 unless all are."""
        lasts = self._durations.get(node)
        if lasts is not None:
            return lasts
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

    def _crossing(self, frame: Frame, size: int = _EMPTY_MESSAGE_BYTES) -> float:
        """The seconds of a message in every iteration of a loop."""
        return self.estimates.runs[frame] * self.costs.link.seconds(size)

    def _message(self, node: Node, item: Output) -> float:
        """The seconds that an input of a node takes from another device."""
        source, port = item
        frame = self.frames.of[node]
        if self.roles[source.op] is Role.ENTER and source.attr("is_constant"):
            frame = self.frames.of[source]  # what a loop does not change crosses once for the loop
        return self._crossing(
            frame, _EMPTY_MESSAGE_BYTES if port == CONTROL else self.estimates.size(item)
        )

    def _schedule(self, node: Node) -> None:
        first = self.first_of[node]
        chosen = self.chosen.get(first)
        if chosen is None and not node.inputs and not node.controls:
            return
        arrivals = self._arrivals(node)
        if chosen is None:
            chosen = self.chosen[first] = self._best(node, self.allowed[first], arrivals)
        if len(arrivals) < len(node.inputs) + len(node.controls):
            self._assign_sources(node, chosen)
        if self._is_done():
            return
        lasts = self._seconds(node)[chosen]
        end = self.ends[node] = self._start(node, arrivals, chosen) + lasts
        if lasts:
            self.free_at[chosen] = end

    def _best(self, node: Node, allowed: Sequence[int], arrivals: Sequence[Arrival]) -> int:
        """The device on which a node ends first; away from home counts the way back, too."""
        lasts = self._seconds(node)
        frame = self.frames.of_outputs[node]
        near = {arrival[0] for arrival in arrivals}
        if frame is self.frames.root:
            homes = near or {allowed[0]}
        else:
            home = self._home(frame, node, arrivals)
            if home in allowed and not any(lasts):
                return home
            homes = {home}
        back = self._crossing(frame, self.estimates.size(node.output()))
        if frame is not self.frames.root:
            back += self._crossing(frame)  # the predicate

        elsewhere = max([end + self._message(node, i) for _, end, i in arrivals], default=0.0)
        ends = []
        for device in allowed:
            if device in near:
                start = self._start(node, arrivals, device)
            else:
                start = max(self.free_at[device], elsewhere)
            ends.append(start + lasts[device] + (0.0 if device in homes else back))
        return allowed[ends.index(min(ends))]

    def _home(self, frame: Frame, node: Node, arrivals: Sequence[Arrival]) -> int:
        """The device of what drives a loop; chosen when its first node is met."""
        home = self._homes.get(frame)
        if home is None:
            load, above = self._loads[frame], frame.parent or self.frames.root
            outer = self._homes.get(above)
            near = {arrival[0] for arrival in arrivals} or {0} if outer is None else {outer}
            away = 2 * self._crossing(above)  # there and back

            def end(device: int) -> float:
                start = self._start(node, arrivals, device)
                return start + load[device] + away * (device not in near)

            home = self._homes[frame] = min(range(len(self.kinds)), key=end)
        return home

    def _arrivals(self, node: Node) -> list[Arrival]:
        """The inputs of a node that are scheduled."""
        ends, chosen, first_of = self.ends, self.chosen, self.first_of
        items = [item for item in node.inputs if item[0] in ends]
        if node.controls:
            items += [Output(control, CONTROL) for control in node.controls if control in ends]
        return [(chosen[first_of[item[0]]], ends[item[0]], item) for item in items]

    def _start(self, node: Node, arrivals: Sequence[Arrival], device: int) -> float:
        """When a device is free, and has the inputs of a node."""
        there = [
            end if where == device else end + self._message(node, item)
            for where, end, item in arrivals
        ]
        return max([self.free_at[device], *there])

    def _assign_sources(self, node: Node, chosen: int) -> None:
        """Take sources that nothing has decided yet to their first reader, if they may go there."""
        for source in (*[item[0] for item in node.inputs], *node.controls):
            if source in self.ends:
                continue
            first = self.first_of[source]
            if first not in self.chosen:
                allowed = self.allowed[first]
                self.chosen[first] = chosen if chosen in allowed else allowed[0]
            self.ends[source] = 0.0


def _elementwise_sums(some: Sequence[float], others: Sequence[float]) -> list[float]:
    return [a + b for a, b in zip(some, others, strict=True)]
