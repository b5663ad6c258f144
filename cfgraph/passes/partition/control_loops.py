"""The driver of a loop on each device: a control loop, or a variable of the loop itself.

A device that has nodes of a loop but not its LoopCond gets a control loop. Control loops of nested
loops are stacked: the Merge of the outer one starts the inner one in each of its iterations.

        constant, or the Merge of the outer control loop
                            |
                          Enter
                            |
             +---------> Merge ---> controls what runs in every iteration, each _Recv first
             |              |
    NextIteration        Switch <--- LoopCond, from its device
             |          /       \\
             +---------+         Identity ---> controls what runs in the body

The device of the LoopCond drives the loop by a Merge that the LoopCond depends on. Without such a
Merge it gets a control loop too."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np

from cfgraph.analysis.loops.frames import Frame
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import float32
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.passes.partition.device_crossings import NodeDevices, sorted_devices
from cfgraph.passes.partition.distributed_loops import DistributedLoops

# a control edge that crosses devices carries this too
CONTROL_TOKEN: Final = TensorValue(np.zeros(0, np.float32))
TRUE_PORT: Final = 1


class ControlLoops:
    """The drivers of loops, by frame and device."""

    def __init__(
        self,
        maker: AddedNodes,
        loops: DistributedLoops,
        where: NodeDevices,
        at: Callable[[Output, str], Output],
    ) -> None:
        self.made: dict[tuple[Frame, str], Node] = {}
        self._maker = maker
        self._loops = loops
        self._where = where
        self._at = at
        self._pivot_merges: dict[tuple[Frame, str], Node] = {}
        self._switches: dict[tuple[Frame, str], Node] = {}
        self._sides: dict[tuple[Frame, str, int], Node] = {}
        self._tokens: dict[tuple[Frame, str], Output] = {}
        self._cones: dict[Frame, dict[Node, None]] = {}

    def add_control_loops(self) -> None:
        """Make a control loop for each frame and device that has a node of it, not its LoopCond."""
        frames = self._loops.found.all[1:]
        devices = {frame: dict.fromkeys(self._where[n] for n in frame.nodes) for frame in frames}
        for frame in reversed(frames):
            if frame.parent in devices:
                devices[frame.parent].update(devices[frame])
        for frame in frames:
            if len(devices[frame]) > 1:
                leader = self._where[frame.loop_conds[0]]
                for device in sorted_devices(devices[frame]):
                    if device != leader:
                        self.gate(frame, device)

    def gate(self, frame: Frame, device: str) -> Node:
        """The node on a device that fires once in each iteration of a frame."""
        missing = []
        here: Frame | None = frame
        while (
            here is not None
            and here.parent is not None
            and (here, device) not in self._pivot_merges
        ):
            missing.append(here)
            here = here.parent
        for each in reversed(missing):
            own = self._leader_merge(each, device)
            if own is None:
                self._control_loop(each, device)
            else:
                self._pivot_merges[each, device] = own
        return self._pivot_merges[frame, device]

    def is_control_loop(self, frame: Frame, device: str) -> bool:
        """True if a control loop drives the frame there."""
        return (frame, device) in self.made

    def side(self, frame: Frame, device: str, port: int) -> Node:
        """A node on a device that is live where that side of the loop is taken."""
        known = self._sides.get((frame, device, port))
        if known is not None:
            return known
        switch = self._switch(frame, device)
        item = switch.output(port)
        name = f"{self._base(frame)}/{'body' if port == TRUE_PORT else 'end'}"
        dtype = switch.attrs["T"]
        node = self._maker.make(name, "Identity", device, (item,), T=dtype)
        self._sides[frame, device, port] = node
        return node

    def is_before_condition(self, merge: Node, frame: Frame) -> bool:
        """True if the LoopCond of a frame depends on this variable in the same iteration."""
        return merge in self._cone(frame)

    # -- making ----------------------------------------------------------------------------------

    def _control_loop(self, frame: Frame, device: str) -> None:
        base, make = self._base(frame), self._maker.make
        said: dict[str, Any] = {
            "frame_name": frame.enters[0].attr("frame_name"),
            "is_constant": False,
            "parallel_iterations": frame.parallel_iterations,
        }
        start = self._token(frame.parent, device, base)
        enter = make(f"{base}/Enter", "Enter", device, (start,), T=float32, **said)
        merge = make(f"{base}/Merge", "Merge", device, (enter.output(),), N=2, T=float32)
        self._pivot_merges[frame, device] = self.made[frame, device] = merge
        switch = self._switch(frame, device)
        again = make(
            f"{base}/NextIteration", "NextIteration", device, (switch.output(1),), T=float32
        )
        self._maker.graph.set_inputs(merge, (enter.output(), again.output()))

    def _switch(self, frame: Frame, device: str) -> Node:
        """A Switch of the driver's token on the predicate of the loop."""
        known = self._switches.get((frame, device))
        if known is None:
            token = self._token(frame, device, self._base(frame))
            predicate = self._at(frame.loop_conds[0].output(), device)
            known = self._switches[frame, device] = self._maker.make(
                f"{self._base(frame)}/Switch", "Switch", device, (token, predicate), T=float32
            )
        return known

    def _token(self, frame: Frame | None, device: str, base: str) -> Output:
        """An empty tensor in a frame: the control loop's, or a constant."""
        merge = self.made.get((frame, device)) if frame else None
        if merge is not None:
            return merge.output()
        if frame is None or frame.parent is None:
            return self._constant(base, device, ())
        known = self._tokens.get((frame, device))
        if known is None:
            gate = self.gate(frame, device)
            known = self._tokens[frame, device] = self._constant(base, device, (gate,))
        return known

    def _constant(self, base: str, device: str, controls: tuple[Node, ...]) -> Output:
        node = self._maker.make(
            f"{base}/start", "Const", device, (), controls, dtype=float32, value=CONTROL_TOKEN
        )
        return node.output()

    def _base(self, frame: Frame) -> str:
        return f"{frame.loop_conds[0].name}/cloop"

    # -- the device of the LoopCond --------------------------------------------------------------

    def _leader_merge(self, frame: Frame, device: str) -> Node | None:
        """A variable on the LoopCond's own device that the LoopCond depends on."""
        if self._where[frame.loop_conds[0]] != device:
            return None
        return next((node for node in self._cone(frame) if self._where[node] == device), None)

    def _cone(self, frame: Frame) -> dict[Node, None]:
        """The variables of a loop that its LoopCond depends on in the same iteration."""
        known = self._cones.get(frame)
        if known is not None:
            return known
        loops, found = self._loops, self._cones.setdefault(frame, {})
        of_outputs = loops.found.of_outputs
        todo: list[Node] = [frame.loop_conds[0]]
        seen = set(todo)
        while todo:
            node = todo.pop()
            if loops.found.of[node] is frame and loops.is_variable(node):
                found[node] = None
                continue
            for source in (*(item.node for item in node.inputs), *node.controls):
                if source not in seen and of_outputs[source].is_within(frame):
                    seen.add(source)
                    if loops.found.of[source].is_within(frame):
                        todo.append(source)
        return found


class AddedNodes:
    """Adds nodes to a graph. `beside` holds the Sends, by the node whose output they hand over."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: list[Node] = []
        self.beside: dict[Node, list[Node]] = {}

    def make(
        self,
        name: str,
        op: str,
        device: str,
        inputs: Iterable[Output] = (),
        controls: Iterable[Node] = (),
        **attrs: Any,
    ) -> Node:
        """Add a node under a name that is made unique, and does not begin with `_`."""
        graph = self.graph
        name = graph.unique_name(name.lstrip("_/->") or op)
        node = graph.create(name, op, inputs, controls, attrs, device)
        self.nodes.append(node)
        return node
