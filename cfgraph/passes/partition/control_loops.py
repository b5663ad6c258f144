r"""Drivers of loops on each device: a control loop, or a variable of the loop itself.

A device that has nodes of a loop but not its LoopCond gets a control loop. Control loops of nested
loops are stacked: the Merge of the outer one starts the inner one in each of its iterations.

        constant, or the Merge of the outer control loop
                            |
                          Enter
                            |
             +---------> Merge ---> controls what runs in every iteration, each _Recv first
             |              |
    NextIteration        Switch <--- LoopCond, from its device
             |          /       \
             +---------+         Identity ---> controls what runs in the body

The device of the LoopCond drives the loop by a Merge that the LoopCond depends on. Without such a
Merge it also gets a control loop.

The predicate goes from the device of the LoopCond to each other device, or, with a fan-out of N,
to N devices, each of which sends it to N more: the sender alone limits a loop over many devices.

A device without the LoopCond runs as many iterations as the LoopCond says and waits for every value
in each of them. All variables must therefore be live when the LoopCond is, and continue exactly
where it is true. A non-constant Enter, or a NextIteration, must feed nothing but variables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, Final

import numpy as np

from cfgraph.analysis.loops.branch_decisions import BranchDecision
from cfgraph.analysis.loops.frame import Frame, Frames
from cfgraph.analysis.loops.path_conditions import PathConditions
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import float32
from cfgraph.ir.graph import CONTROL, Graph, Node, Output
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import Role
from cfgraph.limits import check_deadline
from cfgraph.passes.partition.device_crossings import NodeDevices, sorted_devices

# the value of control loops, and of messages for control edges
CONTROL_TOKEN: Final = TensorValue(np.zeros(0, np.float32))
TRUE_PORT: Final = 1


class ControlLoops:
    """Drivers of loops by frame and device.

    The driver is called pivot Merge: it fires once per iteration. `control_merges` contains the
    pivot Merges of control loops. `devices` has those of each distributed loop, that of the
    LoopCond first. `on_device` returns the copy of a tensor on a device.
    """

    def __init__(
        self,
        added: AddedNodes,
        loops: DistributedLoops,
        device_of: NodeDevices,
        on_device: Callable[[Output, str], Output],
    ) -> None:
        self.devices: dict[Frame, list[str]] = {}
        self.control_merges: dict[tuple[Frame, str], Node] = {}
        self._added = added
        self._loops = loops
        self._device_of = device_of
        self._on_device = on_device
        self._pivot_merges: dict[tuple[Frame, str], Node] = {}
        self._switches: dict[tuple[Frame, str], Node] = {}
        self._branches: dict[tuple[Frame, str, int], Node] = {}
        self._tokens: dict[tuple[Frame, str], Output] = {}
        self._cones: dict[Frame, dict[Node, None]] = {}

    def add_control_loops(self) -> None:
        """Add a control loop for each frame and device with nodes of it but not its LoopCond."""
        frames = self._loops.frames.all[1:]
        devices = {
            frame: dict.fromkeys(self._device_of[n] for n in frame.nodes) for frame in frames
        }
        for frame in reversed(frames):
            check_deadline()
            if frame.parent in devices:
                devices[frame.parent].update(devices[frame])
        for frame in frames:
            if len(devices[frame]) > 1:
                leader = self._device_of[frame.loop_conds[0]]
                others = [name for name in sorted_devices(devices[frame]) if name != leader]
                self.devices[frame] = [leader, *others]
                for device in others:
                    self.pivot_merge(frame, device)

    def pivot_merge(self, frame: Frame, device: str) -> Node:
        """Return the node on a device that fires once per iteration of a frame."""
        missing = []
        current: Frame | None = frame
        while (
            current is not None
            and current.parent is not None
            and (current, device) not in self._pivot_merges
        ):
            missing.append(current)
            current = current.parent
        for each in reversed(missing):
            variable = self._leader_merge(each, device)
            if variable is None:
                self._add_control_loop(each, device)
            else:
                self._pivot_merges[each, device] = variable
        return self._pivot_merges[frame, device]

    def is_control_loop(self, frame: Frame, device: str) -> bool:
        """Return true if a control loop drives the frame on the device."""
        return (frame, device) in self.control_merges

    def pivot_branch(self, frame: Frame, device: str, port: int) -> Node:
        """Return a node on a device that is live when that side of the loop is taken."""
        known = self._branches.get((frame, device, port))
        if known is not None:
            return known
        switch = self._switch(frame, device)
        tensor = switch.output(port)
        name = f"{self._base(frame)}/{'body' if port == TRUE_PORT else 'end'}"
        dtype = switch.attrs["T"]
        node = self._added.add(name, "Identity", device, (tensor,), T=dtype)
        self._branches[frame, device, port] = node
        return node

    def is_before_condition(self, merge: Node, frame: Frame) -> bool:
        """Return true if the LoopCond depends on this variable in the same iteration."""
        return merge in self._cone(frame)

    # -- new nodes -------------------------------------------------------------------------------

    def _add_control_loop(self, frame: Frame, device: str) -> None:
        base, add = self._base(frame), self._added.add
        attrs: dict[str, Any] = {
            "frame_name": frame.enters[0].attr("frame_name"),
            "is_constant": False,
            "parallel_iterations": frame.parallel_iterations,
        }
        initial = self._token(frame.parent, device, base)
        enter = add(f"{base}/Enter", "Enter", device, (initial,), T=float32, **attrs)
        merge = add(f"{base}/Merge", "Merge", device, (enter.output(),), N=2, T=float32)
        self._pivot_merges[frame, device] = self.control_merges[frame, device] = merge
        switch = self._switch(frame, device)
        back = add(f"{base}/NextIteration", "NextIteration", device, (switch.output(1),), T=float32)
        self._added.graph.set_inputs(merge, (enter.output(), back.output()))

    def _switch(self, frame: Frame, device: str) -> Node:
        """Return a Switch of the pivot token on the predicate of the loop."""
        known = self._switches.get((frame, device))
        if known is None:
            token = self._token(frame, device, self._base(frame))
            predicate = self._on_device(frame.loop_conds[0].output(), device)
            known = self._switches[frame, device] = self._added.add(
                f"{self._base(frame)}/Switch", "Switch", device, (token, predicate), T=float32
            )
        return known

    def _token(self, frame: Frame | None, device: str, base: str) -> Output:
        """Return an empty tensor in a frame: the token of its control loop, or a constant."""
        merge = self.control_merges.get((frame, device)) if frame else None
        if merge is not None:
            return merge.output()
        if frame is None or frame.parent is None:
            return self._constant(base, device, ())
        known = self._tokens.get((frame, device))
        if known is None:
            pivot = self.pivot_merge(frame, device)
            known = self._tokens[frame, device] = self._constant(base, device, (pivot,))
        return known

    def _constant(self, base: str, device: str, controls: tuple[Node, ...]) -> Output:
        node = self._added.add(
            f"{base}/start", "Const", device, (), controls, dtype=float32, value=CONTROL_TOKEN
        )
        return node.output()

    def _base(self, frame: Frame) -> str:
        return f"{frame.loop_conds[0].name}/cloop"

    # -- the device of the LoopCond --------------------------------------------------------------

    def _leader_merge(self, frame: Frame, device: str) -> Node | None:
        """Return a variable on the device of the LoopCond that the LoopCond depends on."""
        if self._device_of[frame.loop_conds[0]] != device:
            return None
        return next((node for node in self._cone(frame) if self._device_of[node] == device), None)

    def _cone(self, frame: Frame) -> dict[Node, None]:
        """Return the variables of a loop that its LoopCond depends on in the same iteration."""
        known = self._cones.get(frame)
        if known is not None:
            return known
        loops, variables = self._loops, self._cones.setdefault(frame, {})
        frames = loops.frames
        todo: list[Node] = [frame.loop_conds[0]]
        seen = set(todo)
        while todo:
            check_deadline()
            node = todo.pop()
            if frames.of[node] is frame and loops.is_variable(node):
                variables[node] = None
                continue
            for source in node.predecessors:
                if source not in seen and frames.of_outputs[source].is_within(frame):
                    seen.add(source)
                    if frames.of[source].is_within(frame):
                        todo.append(source)
        return variables


class AddedNodes:
    """Nodes added to a graph; `send_nodes` maps each old node to the senders of its outputs."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: list[Node] = []
        self.send_nodes: dict[Node, list[Node]] = {}

    def add(
        self,
        name: str,
        op: str,
        device: str,
        inputs: Iterable[Output] = (),
        controls: Iterable[Node] = (),
        **attrs: Any,
    ) -> Node:
        """Add a node with a unique name that does not start with `_`."""
        graph = self.graph
        name = graph.unique_name(name.lstrip("_/->") or op)
        node = graph.create(name, op, inputs, controls, attrs, device)
        self.nodes.append(node)
        return node


class DistributedLoops:
    """Queries on the loops of a graph that is not cut yet."""

    def __init__(self, frames: Frames) -> None:
        self.frames = frames

    @cached_property
    def conditions(self) -> PathConditions:
        """The path conditions of the nodes over a run."""
        return PathConditions(self.frames)

    def is_variable(self, node: Node) -> bool:
        """Return true for the Merge of a loop variable: one of an Enter and a NextIteration."""
        if ROLES[node.op] is not Role.MERGE:
            return False
        sources = {ROLES[tensor.node.op] for tensor in node.inputs}
        return sources == {Role.ENTER, Role.NEXT_ITERATION}

    def is_loop_switch(self, switch: Node) -> bool:
        """Return true for a Switch on the predicate of its enclosing loop."""
        frame = self.frames.of[switch]
        if ROLES[switch.op] is not Role.SWITCH or not frame.loop_conds:
            return False
        source = self.conditions.source
        return source(switch.inputs[1]) == source(frame.loop_conds[0].output())

    def pivot(self, node: Node) -> Output | None:
        """Return the output of a loop variable's Switch if a node only forwards that, else None."""
        if node.controls or len(node.inputs) != 1:
            return None
        tensor = node.inputs[0]
        source = tensor.node
        if source.controls or not self.is_loop_switch(source):
            return None
        forwards = self.conditions.source(node.output()) == (tensor, False)
        return tensor if forwards and self.is_variable(source.inputs[0].node) else None

    def undistributable_loops(self) -> set[Frame]:
        """Return the loops whose values are not all live in exactly the iterations that run.

        An Exit of such a loop may be dead, so the outer loop is not distributable either.
        """
        rejected: set[Frame] = set()
        for frame in reversed(self.frames.all[1:]):
            check_deadline()
            if not frame.loop_conds:
                rejected.add(frame)
            elif frame in rejected or not self._is_distributable(frame):
                rejected.add(frame)
                if frame.exits and frame.parent and frame.parent.parent:
                    rejected.add(frame.parent)
        return rejected

    def _is_distributable(self, frame: Frame) -> bool:
        conditions, cond = self.conditions, frame.loop_conds[0]
        entry = conditions.of_node(cond)
        body = entry.also(BranchDecision(*conditions.branch(cond.output()), cond.output()))
        return all(
            bool(node.attr("is_constant"))
            or (entry.implies(conditions.of_node(node)) and self._feeds_variables(node))
            for node in frame.enters
        ) and all(
            conditions.of_node(node) is body and self._feeds_variables(node)
            for node in frame.next_iterations
        )

    def _feeds_variables(self, node: Node) -> bool:
        return all(use.slot != CONTROL and self.is_variable(use.node) for use in node.uses)
