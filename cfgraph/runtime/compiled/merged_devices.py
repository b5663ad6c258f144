"""A run on several devices as a run on one device, which has the same values.

    x --> _Send (A)     _Recv (B, ^pivot) --> y          x --> Identity --> Identity (^pivot) --> y

A message carries the value of its tensor, or its deadness, in an iteration of one path. The two
ends of a message therefore form an edge if their frames are one: on both devices the frame has the
same path, and the devices start and end its iterations together. A device takes part in the
iterations of a loop if a variable on it, such as that of its control loop, is updated in exactly
those in which the LoopCond is true; `PlanLiveness` requires this of all variables. A wait that no
message ends is then a cycle of the merged graph, or a _Recv in another frame than its _Send.

A Merge reads the message of a _Recv even if the control inputs of the _Recv are dead, and a message
is as live as its tensor, whatever the control inputs of the _Send: those only order it. A _Recv
that receives a dead message is live itself, and so are control edges from it.

Without control flow and effects everything is live, and runs once in any order of the edges: then
the plans of the devices are joined as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from cfgraph.analysis.loops.frame import Frame
from cfgraph.analysis.loops.frames import frames_of
from cfgraph.errors import InvalidInput
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import CONTROL_TRIGGER, MERGE, RECV, SEND
from cfgraph.ir.traversal import ancestors, sends_by_recv
from cfgraph.ops.families.constants import Identity
from cfgraph.ops.opdef.op import back_edge_of
from cfgraph.runtime.compiled.node_writer import frame_names
from cfgraph.runtime.engine.joint_products import join_products_like
from cfgraph.runtime.engine.plan import Plan, RunSpec, make_plans
from cfgraph.runtime.program import NotCompiled

_TRANSFERS: Final = (SEND, RECV)
_CYCLE_CODE: Final = "CFG109"


def join_devices(plans: Sequence[Plan]) -> Plan | None:
    """The plans of several devices as one, in which messages are edges; none is copied.

    None with control flow, effects, or a message that nothing sends.
    """
    nodes = {node: known for plan in plans for node, known in plan.nodes.items()}
    ops = {known.op for known in nodes.values()}
    if any(op.role or op.effects.stateful for op in ops if op.role not in _TRANSFERS):
        return None
    senders = sends_by_recv(nodes)
    fed = frozenset(output for plan in plans for output in plan.feeds.values())
    order = [node for plan in plans for node in plan.frames.order]
    joined_frames = frames_of(order, fed, senders)
    if joined_frames.cycles:
        return None
    for node, known in nodes.items():
        if known.op.role in _TRANSFERS:
            send = senders.get(node)
            if send is None and known.op.role is RECV:
                return None
            inputs = node.inputs if send is None else (send.output(),)
            nodes[node] = replace(known, op=Identity, inputs=inputs, outputs=1)
    fetches = {index: output for plan in plans for index, output in plan.fetches.items()}
    return Plan(
        plans[0].device,
        nodes,
        joined_frames,
        plans[0].root,
        fetches,
        {index: output for plan in plans for index, output in plan.feeds.items()},
        plans[0].fed_nodes,
        frozenset(fetches.values()),
    )


def merge_devices(spec: RunSpec, plans: Sequence[Plan]) -> tuple[RunSpec, Plan]:
    """The run of several devices on one, and its plan. Raises NotCompiled with a reason."""
    frame_of = {node: frame for plan in plans for node, frame in plan.frames.of.items()}
    senders = sends_by_recv(frame_of)
    for plan in plans:
        for recv in plan.nodes_of_role(RECV):
            send = senders.get(recv)
            if send is None:
                raise NotCompiled("no _Send has the key of a _Recv", recv)
            if frame_names(frame_of[send]) != frame_names(frame_of[recv]):
                raise NotCompiled("a _Recv is in another frame than its _Send", recv)
    _require_common_loops(plans)
    run = _MergedGraph(spec.graph, senders, frozenset(frame_of)).run(spec)
    try:
        (plan,) = make_plans(run, plans[0].device, _PlannedKernels(plans))
    except InvalidInput as error:
        node = run.graph.nodes.get(error.node or "")
        is_cycle = error.code == _CYCLE_CODE
        reason = "wait for each other in a cycle" if is_cycle else "do not run the same loops"
        raise NotCompiled(f"devices {reason}", node) from error
    join_products_like(plans, plan)
    return run, plan


def _require_common_loops(plans: Sequence[Plan]) -> None:
    """Raise NotCompiled for a loop that does not iterate on all devices with nodes of it."""
    loops: dict[tuple[str, ...], list[Frame]] = {}
    for plan in plans:
        for frame in plan.frames.all[1:]:
            loops.setdefault(frame_names(frame), []).append(frame)
    for frames in loops.values():
        if any(frame.next_iterations or frame.loop_conds for frame in frames):
            for frame in frames:
                if not frame.next_iterations:
                    raise NotCompiled("a loop does not iterate on each device", frame.enters[0])


class _PlannedKernels:
    """The kernels of cluster calls that are planned for several devices."""

    def __init__(self, plans: Iterable[Plan]) -> None:
        self.kernels = {
            node.name: known.kernel
            for plan in plans
            for node, known in plan.nodes.items()
            if known.op.calls.kind
        }

    def kernel(
        self, graph: Graph, node: Node, device: str, target: Any = None
    ) -> Callable[..., Any]:
        """The kernel of a cluster call."""
        return self.kernels[node.name]


class _MergedGraph:
    """A copy of a graph in which the messages of a run are edges."""

    def __init__(self, source: Graph, senders: dict[Node, Node], running: frozenset[Node]) -> None:
        self.source = source
        self.senders = senders
        self.running = running
        self.graph = Graph()
        self.copies: dict[Node, Node] = {}
        self.triggers: dict[Node, Node] = {}

    def run(self, spec: RunSpec) -> RunSpec:
        """The same run on the copy."""
        graph, source = self.graph, self.source
        graph.functions = dict(source.functions)
        graph.gradient_functions = dict(source.gradient_functions)
        graph.versions = source.versions
        nodes = ancestors(source, [*spec.roots, *(output.node for output in spec.feeds)])
        for node in nodes:
            op, attrs = self._op(node)
            self.copies[node] = graph.create(node.name, op, attrs=attrs, device=node.device)
        for node in nodes:
            graph.connect(self.copies[node], self._inputs(node), self._controls(node))
        return spec.on(graph)

    def _op(self, node: Node) -> tuple[str, dict[str, Any]]:
        role = ROLES[node.op]
        if role is SEND:
            return "Identity", {"T": node.attr("T")}
        if role is RECV:
            dtype = node.attr("tensor_type")
            if node in self.senders:
                return "Identity", {"T": dtype}
            return "Placeholder", {"dtype": dtype}  # it is fed, or needed by nothing that runs
        return node.op, dict(node.attrs)

    def _inputs(self, node: Node) -> list[Output]:
        if node in self.senders:
            return [self.copies[self.senders[node]].output()]
        sources = list(node.inputs)
        if ROLES[node.op] is MERGE:
            for slot, (source, _) in enumerate(sources):
                if source in self.senders:
                    sources[slot] = self.senders[source].output()
        return [self.copies[source].output(port) for source, port in sources]

    def _controls(self, node: Node) -> dict[Node, None]:
        """The control inputs of the copy of a node."""
        role = ROLES[node.op]
        controls: dict[Node, None] = {}
        if role is SEND:
            for control in node.controls:
                # the Merge of a loop variable is live in all iterations
                is_pivot = ROLES[control.op] is MERGE and back_edge_of(control) is not None
                controls[self.copies[control] if is_pivot else self._trigger(control)] = None
            return controls
        self._add_controls(controls, node.controls, is_trigger=role is CONTROL_TRIGGER)
        if role is MERGE:
            for source, _ in node.inputs:
                if source in self.senders:
                    self._add_controls(controls, source.controls, is_trigger=False)
        return controls

    def _add_controls(
        self, controls: dict[Node, None], sources: Iterable[Node], *, is_trigger: bool
    ) -> None:
        """Add control edges; a control edge from a transfer is live if its control inputs are."""
        worklist, seen = list(sources), set(sources)
        while worklist:
            source = worklist.pop()
            role = ROLES[source.op]
            if is_trigger or role not in _TRANSFERS or source not in self.running:
                controls[self.copies[source]] = None
                continue
            controls[self._trigger(source) if role is RECV else self.copies[source]] = None
            fresh = [control for control in source.controls if control not in seen]
            worklist += fresh
            seen.update(fresh)

    def _trigger(self, node: Node) -> Node:
        """A node that runs after another, and is live even if that is dead."""
        known = self.triggers.get(node)
        if known is None:
            name = self.graph.unique_name(f"{node.name}/done")
            controls = [self.copies[node]]
            known = self.triggers[node] = self.graph.create(
                name, "ControlTrigger", controls=controls, device=node.device
            )
        return known
