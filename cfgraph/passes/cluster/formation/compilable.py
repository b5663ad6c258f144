"""The nodes that XLA can compile, each considered by itself.

An input that XLA needs as a constant must not vary while a loop runs. Shapes are known at compile
time, so values computed from shapes alone do not vary."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from cfgraph.analysis.loops.frames import Frame, Frames
from cfgraph.ir import registry
from cfgraph.ir.devices import DeviceName
from cfgraph.ir.dtypes import DType
from cfgraph.ir.function_graph import FunctionInstances
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.role import Role
from cfgraph.ops.opdef.evaluation import constant_slots
from cfgraph.ops.opdef.op import Op, lookup, role_of
from cfgraph.passes.cluster.formation.rejection_reasons import RejectionReason

_DEVICE_KINDS: Final = (None, "CPU", "GPU")
_COMPILE_ATTR: Final = "_XlaCompile"
_NUMERIC_KINDS: Final = ("float", "int", "uint", "complex", "bool")


@dataclass(frozen=True, slots=True)
class ClusterConstraints:
    """What whoever clusters says of nodes; `granted` ops are taken to be compilable.

    `raised` are the loops and conditionals that were raised to calls, and what belongs to them,
    with the number of nodes that each stands for.
    """

    only_ops: Collection[str] = ()
    exclude_ops: Collection[str] = ()
    assume_compilable: Collection[str] = ()
    fed: Collection[Node] = ()
    kept: Collection[Node] = ()
    needed: Collection[Node] | None = None
    raised: Mapping[Node, int] = field(default_factory=dict)


@dataclass(slots=True)
class CompilationRules:
    """Says of a node why it is not compiled; None if it is."""

    graph: Graph
    found: Frames
    constraints: ClusterConstraints = field(default_factory=ClusterConstraints)
    _instances: FunctionInstances = field(init=False)

    def __post_init__(self) -> None:
        self._instances = FunctionInstances(self.graph.functions)

    def refusal(self, node: Node) -> RejectionReason | None:
        """The first reason against a node."""
        op = lookup(node.op)
        if op is not None and node in self.constraints.raised:
            return self._constants(node, op)
        for test in (self._wanted, self._ordinary):
            if reason := test(node, op):
                return reason
        if op is not None and node.op not in self.constraints.assume_compilable:
            for rule in (_kernel_rejection, _type_rejection, _device_rejection):
                if reason := rule(node, op):
                    return reason
        if op is None:
            return None
        return _pivot_rejection(node, op) or self._constants(node, op)

    def _constants(self, node: Node, op: type[Op]) -> RejectionReason | None:
        varying = nonconstant_input(node, op, self.found, self._instances)
        if varying is None:
            return None
        slot, leaf = varying
        text = f"input {slot} must be constant, and hangs on {leaf.name}"
        return RejectionReason("constant varies", text, {"input": slot, "source": leaf.name})

    def _wanted(self, node: Node, op: type[Op] | None) -> RejectionReason | None:
        wishes = self.constraints
        if wishes.needed is not None and node not in wishes.needed:
            return RejectionReason("not needed", "no fetch needs it")
        if node in wishes.fed:
            return RejectionReason("fed", "it is fed")
        if node.attrs.get(_COMPILE_ATTR) is False:
            return RejectionReason("marked", f"{_COMPILE_ATTR} is false")
        if (wishes.only_ops and node.op not in wishes.only_ops) or node.op in wishes.exclude_ops:
            return RejectionReason("asked", f"{node.op} is left out on request", {"op": node.op})
        return None

    def _ordinary(self, node: Node, op: type[Op] | None) -> RejectionReason | None:
        """What no kernel could change."""
        if node.op in self.graph.functions or hasattr(op, "functional"):
            return RejectionReason("call", f"{node.op} runs a function", {"op": node.op})
        if op is None:
            return RejectionReason("unknown op", f"{node.op} is not known", {"op": node.op})
        if op.role:
            return RejectionReason("control flow", f"{node.op} moves tokens", {"op": node.op})
        if op.is_input:
            return RejectionReason("input", f"{node.op} is there to be fed", {"op": node.op})
        if registry.output_count(node) is None or registry.input_types(node) is None:
            return RejectionReason("type", "its types are not known")
        return None


def _kernel_rejection(node: Node, op: type[Op]) -> RejectionReason | None:
    if op.compiles():
        return None
    data = {"op": node.op}
    if op.stateful:
        return RejectionReason("effects", f"{node.op} has effects, or hangs on state", data)
    if not op.traceable:
        return RejectionReason("not traced", f"the kernel of {node.op} cannot be traced", data)
    return RejectionReason("no kernel", f"XLA has no kernel of {node.op}", data)


def _type_rejection(node: Node, op: type[Op]) -> RejectionReason | None:
    for dtype in _node_dtypes(node):
        if dtype.is_ref:
            return RejectionReason("reference", f"it handles a {dtype}", {"type": str(dtype)})
        handle = op.stateful and dtype.kind == "resource"
        if not handle and (_is_nonnumeric(dtype) or dtype.name in op.uncompiled_types.split(", ")):
            data = {"op": node.op, "type": str(dtype)}
            return RejectionReason("type", f"XLA has no kernel of {node.op} for {dtype}", data)
    return None


def _is_nonnumeric(dtype: DType) -> bool:
    return dtype.kind not in _NUMERIC_KINDS or dtype.name.startswith("q")


def _node_dtypes(node: Node) -> Iterator[DType]:
    for item in node.inputs:
        if item.dtype is not None:
            yield item.dtype
    yield from registry.output_types(node) or ()


def _device_rejection(node: Node, op: type[Op]) -> RejectionReason | None:
    name = DeviceName.parse(node.device)
    if name is None or name.kind not in _DEVICE_KINDS:
        return RejectionReason("device", f"it is on {node.device}", {"device": node.device})
    return None


def _pivot_rejection(node: Node, op: type[Op]) -> RejectionReason | None:
    """What the body of a loop hangs on: with it, a cluster would come before all the body."""
    if not (op.is_identity and node.inputs and node.control_readers):
        return None
    switch = node.inputs[0].node
    if role_of(switch) is Role.SWITCH and role_of(switch.inputs[1].node) is Role.LOOP_COND:
        return RejectionReason("pivot", "the body of its loop hangs on it by control edges")
    return None


class NonconstantInput(NamedTuple):
    """An input of a node that must be constant, and the node in a loop that it hangs on."""

    slot: int
    leaf: Node


def nonconstant_input(
    node: Node, op: type[Op], found: Frames, instances: FunctionInstances
) -> NonconstantInput | None:
    """The first input that must be constant and varies in a loop; None if all stay the same."""
    frame = found.of[node]
    if frame.parent is None:
        return None
    for slot in sorted(constant_slots(node, op, instances)):
        leaf = _loop_varying_source(node.inputs[slot], frame, found)
        if leaf is not None:
            return NonconstantInput(slot, leaf)
    return None


def _loop_varying_source(value: Output, frame: Frame, found: Frames) -> Node | None:
    todo = [(value, frame)]
    seen = {value}
    for item, here in todo:
        if here.parent is None:
            continue
        inputs = _value_inputs(item, found)
        if inputs is None:
            return item.node
        outside = here.parent if role_of(item.node) is Role.ENTER else here
        for before in inputs:
            if before not in seen:
                seen.add(before)
                todo.append((before, outside))
    return None


def _value_inputs(item: Output, found: Frames) -> Iterator[Output] | None:
    """The values that a value is made of; None where it is new in each iteration."""
    node, op = item.node, lookup(item.node.op)
    if op is None:
        return None
    if op.role is Role.ENTER:
        return iter(node.inputs) if node.attr("is_constant") else None
    if op.role or op.stateful or hasattr(op, "functional"):
        return None
    return iter(()) if op.shape_only else iter(node.inputs)
