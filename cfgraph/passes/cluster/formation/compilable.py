"""Decide for each node by itself whether XLA can compile it.

An input that XLA needs as a constant must not vary while a loop runs. Shapes are known at compile
time, so values computed from shapes alone do not vary. A value that XLA needs and only a run knows,
as that of a variable, is read outside of clusters, which are compiled for each value."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

from cfgraph.analysis.loops.frame import Frame, Frames
from cfgraph.analysis.loops.while_loop import loop_variable
from cfgraph.ir.devices import DeviceName
from cfgraph.ir.dtypes import NUMERIC_KINDS, DType
from cfgraph.ir.function_graph import FunctionInstances
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.role import Role
from cfgraph.ops.opdef.function_bodies import constant_slots, determining_inputs
from cfgraph.ops.opdef.op import Op, lookup, role_of
from cfgraph.passes.functionalize.function_body import constant_texts, is_text_of_check
from cfgraph.passes.functionalize.report import RejectionReason

_DEVICE_KINDS: Final = (None, "CPU", "GPU")
_COMPILE_ATTR: Final = "_XlaCompile"


@dataclass(frozen=True, slots=True)
class ClusterConstraints:
    """Restrictions by the caller; ops in `assume_compilable` are treated as compilable.

    `needed` contains the ancestors of the fetches, or is None if the fetches are unknown.
    `functionalized` maps the calls that loops and conditionals became, and the nodes that belong to
    these, to the number of original nodes that each stands for.
    """

    only_ops: Collection[str] = ()
    exclude_ops: Collection[str] = ()
    assume_compilable: Collection[str] = ()
    fed: Collection[Node] = ()
    fetched: Collection[Node] = ()
    needed: Collection[Node] | None = None
    functionalized: Mapping[Node, int] = field(default_factory=dict)
    traced: bool = False


@dataclass(slots=True)
class CompilationRules:
    """Rules that reject nodes from clusters, each with a reason.

    `functionalized` are the calls that have replaced whole loops and conditionals.
    """

    graph: Graph
    frames: Frames
    constraints: ClusterConstraints
    instances: FunctionInstances
    functionalized: set[Node] = field(init=False)
    _constants: set[Output] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.functionalized = set(self.constraints.functionalized)

    def rejection(self, node: Node) -> RejectionReason | None:
        """Return the first reason against compiling a node, None if it compiles."""
        op = lookup(node.op)
        if op is not None and node in self.functionalized:
            return self._constant_rejection(node, op)
        for test in (self._constraint_rejection, self._structural_rejection):
            if reason := test(node, op):
                return reason
        if op is not None and node.op not in self.constraints.assume_compilable:
            for rule in (_kernel_rejection, _type_rejection, _device_rejection):
                if reason := rule(node, op, self.constraints.traced):
                    return reason
        if op is None:
            return None
        if reason := _pivot_rejection(node, op) or self._state_rejection(node, op):
            return reason
        return self._constant_rejection(node, op)

    def _state_rejection(self, node: Node, op: type[Op]) -> RejectionReason | None:
        """Reject a node whose value XLA needs and no constant inputs determine."""
        if not op.effects.stateful:
            return None
        if self._constants is None:
            # not the order of the frames: some of its nodes may be in functions by now
            inside = {other for other in self.graph if not role_of(other)}
            self._constants = constant_values(self.instances, inside, inside)
        if self._constants.isdisjoint(node.outputs):
            return None
        return RejectionReason("constant state", "a constant input depends on it")

    def _constant_rejection(self, node: Node, op: type[Op]) -> RejectionReason | None:
        varying = nonconstant_input(node, op, self.frames, self.instances)
        if varying is None:
            return None
        slot, source = varying
        text = f"input {slot} must be constant but depends on {source.name}"
        return RejectionReason("constant varies", text, {"input": slot, "source": source.name})

    def _constraint_rejection(self, node: Node, op: type[Op] | None) -> RejectionReason | None:
        limits = self.constraints
        if limits.needed is not None and node not in limits.needed:
            return RejectionReason("not needed", "no fetch depends on it")
        if node in limits.fed:
            return RejectionReason("fed", "it is fed")
        if node.attrs.get(_COMPILE_ATTR) is False:
            return RejectionReason("marked", f"{_COMPILE_ATTR} is false")
        if (limits.only_ops and node.op not in limits.only_ops) or node.op in limits.exclude_ops:
            return RejectionReason("asked", f"{node.op} is excluded on request", {"op": node.op})
        return None

    def _structural_rejection(self, node: Node, op: type[Op] | None) -> RejectionReason | None:
        """Return a reason that no additional kernel would remove."""
        is_call = op is not None and op.calls.kind not in ("", "combine")
        if node.op in self.graph.functions or is_call:
            return _op_rejection("call", node.op, "calls a function")
        if op is None:
            return _op_rejection("unknown op", node.op, "is not registered")
        if op.role:
            return _op_rejection("control flow", node.op, "forwards tokens")
        if op.effects.is_input:
            return _op_rejection("input", node.op, "is an input")
        if node.output_count is None or node.input_types is None:
            return RejectionReason("type", "its types are unknown")
        functions = self.graph.functions
        for tensor in node.inputs:
            if tensor.dtype is None and tensor.node.op not in functions:
                return RejectionReason("type", f"the type of {tensor.name} is unknown")
        return None


@lru_cache
def _op_rejection(kind: str, op: str, fault: str) -> RejectionReason:
    """Return the reason that all nodes of an op share."""
    return RejectionReason(kind, f"{op} {fault}", {"op": op})


def _kernel_rejection(node: Node, op: type[Op], traced: bool) -> RejectionReason | None:
    support = op.compilation
    if op.compiles() or (traced and (support.traceable or support.traces_effects)):
        return None
    if op.effects.stateful:
        return _op_rejection("effects", node.op, "is stateful")
    data = {"op": node.op}
    if not op.compilation.traceable:
        return RejectionReason("not traced", f"the kernel of {node.op} cannot be traced", data)
    return RejectionReason("no kernel", f"XLA has no kernel for {node.op}", data)


def _type_rejection(node: Node, op: type[Op], traced: bool) -> RejectionReason | None:
    uncompiled = () if traced else op.compilation.uncompiled_types.split(", ")
    for dtype in _node_dtypes(node, op, traced):
        if dtype.is_ref:
            return RejectionReason(
                "reference", f"it has an input or output of type {dtype}", {"type": str(dtype)}
            )
        handle = op.effects.stateful and dtype.kind == "resource"
        if not handle and (_is_nonnumeric(dtype) or dtype.name in uncompiled):
            data = {"op": node.op, "type": str(dtype)}
            return RejectionReason("type", f"XLA has no kernel for {node.op} on {dtype}", data)
    return None


def _is_nonnumeric(dtype: DType) -> bool:
    return dtype.kind not in NUMERIC_KINDS or dtype.name.startswith("q")


def _node_dtypes(node: Node, op: type[Op], traced: bool) -> Iterator[DType]:
    """The types of inputs and outputs, in a traced cluster without the texts of its checks."""
    texts = constant_texts(node, op) if traced else ()
    for slot, tensor in enumerate(node.inputs):
        if tensor.dtype is not None and slot not in texts:
            yield tensor.dtype
    if not (traced and is_text_of_check(node)):
        yield from node.output_types or ()


def _device_rejection(node: Node, op: type[Op], traced: bool) -> RejectionReason | None:
    name = DeviceName.parse(node.device)
    if name is None or name.kind not in _DEVICE_KINDS:
        return RejectionReason("device", f"it is on {node.device}", {"device": node.device})
    return None


def _pivot_rejection(node: Node, op: type[Op]) -> RejectionReason | None:
    """Reject the pivot of a loop body: the whole body would wait for its cluster."""
    if not (op.aliasing.is_identity and node.inputs and node.control_readers):
        return None
    switch = node.inputs[0].node
    if role_of(switch) is Role.SWITCH and role_of(switch.inputs[1].node) is Role.LOOP_COND:
        return RejectionReason("pivot", "the body of its loop waits for it by control edges")
    return None


def constant_values(
    instances: FunctionInstances, members: Iterable[Node], inside: Collection[Node]
) -> set[Output]:
    """The tensors that determine inputs which must be constant, other than by shape.

    Those of nodes that are not `inside` are constant as a whole.
    """
    todo: list[Output] = []
    for node in members:
        op = lookup(node.op)
        slots = constant_slots(node, op, instances) if op else ()
        todo.extend(node.inputs[slot] for slot in sorted(slots))
    seen = set(todo)
    for tensor in todo:
        op = lookup(tensor.node.op)
        if tensor.node in inside:
            sources = tensor.node.inputs if op is None else determining_inputs(tensor.node, op)
            new = [source for source in sources if source not in seen]
            seen.update(new)
            todo.extend(new)
    return seen


class NonconstantInput(NamedTuple):
    """An input that must be constant, and the node in a loop that makes it vary."""

    slot: int
    source: Node


def nonconstant_input(
    node: Node, op: type[Op], frames: Frames, instances: FunctionInstances
) -> NonconstantInput | None:
    """Return the first input that must be constant but varies in a loop, or None."""
    frame = frames.of[node]
    if frame.parent is None:
        return None
    for slot in sorted(constant_slots(node, op, instances)):
        source = _loop_varying_source(node.inputs[slot], frame, frames)
        if source is not None:
            return NonconstantInput(slot, source)
    return None


def _loop_varying_source(value: Output, frame: Frame, frames: Frames) -> Node | None:
    todo = [(value, frame)]
    seen = {value}
    for tensor, current in todo:
        if current.parent is None:
            continue
        inputs = _value_inputs(tensor)
        if inputs is None:
            return tensor.node
        enters = role_of(tensor.node) in (Role.ENTER, Role.MERGE)
        outer = current.parent if enters else current
        for source in inputs:
            if source not in seen:
                seen.add(source)
                todo.append((source, outer))
    return None


def _value_inputs(tensor: Output) -> Iterator[Output] | None:
    """Return the tensors that determine a value, None if it is new in each iteration."""
    node, op = tensor.node, lookup(tensor.node.op)
    if op is None:
        return None
    if op.role is Role.ENTER:
        return iter(node.inputs) if node.attr("is_constant") else None
    if op.role in (Role.MERGE, Role.SWITCH):
        merge = node.inputs[0].node if op.role is Role.SWITCH else node
        variable = loop_variable(merge)
        if variable is None or not variable.is_invariant():
            return None
        return iter(node.inputs[:1] if op.role is Role.SWITCH else (variable.initial,))
    if op.role or op.effects.stateful or op.calls.kind:
        return None
    return iter(determining_inputs(node, op))
