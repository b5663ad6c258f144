"""Which nodes XLA compiles, each by itself."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from cfgraph.analysis.loops.frames import Frames
from cfgraph.ir import registry
from cfgraph.ir.device_name import DeviceName
from cfgraph.ir.dtypes import DType
from cfgraph.ir.function_graph import Instances
from cfgraph.ir.graph import Graph, Node
from cfgraph.ops.op import Op, lookup, role
from cfgraph.passes.cluster.reasons import Reason
from cfgraph.passes.cluster.varying import varying_constant

_DEVICES: Final = (None, "CPU", "GPU")
_MARK: Final = "_XlaCompile"
_NUMBERS: Final = ("float", "int", "uint", "complex", "bool")


@dataclass(frozen=True, slots=True)
class Wishes:
    """What whoever clusters says of nodes; `granted` ops are taken to be compilable.

    `raised` are the loops and conditionals that were raised to calls, and what belongs to them,
    with the number of nodes that each stands for.
    """

    only_ops: Collection[str] = ()
    exclude_ops: Collection[str] = ()
    granted: Collection[str] = ()
    fed: Collection[Node] = ()
    kept: Collection[Node] = ()
    needed: Collection[Node] | None = None
    raised: Mapping[Node, int] = field(default_factory=dict)


@dataclass(slots=True)
class Compilable:
    """Says of a node why it is not compiled; None if it is."""

    graph: Graph
    found: Frames
    wishes: Wishes = field(default_factory=Wishes)
    _instances: Instances = field(init=False)

    def __post_init__(self) -> None:
        self._instances = Instances(self.graph.functions)

    def refusal(self, node: Node) -> Reason | None:
        """The first reason against a node."""
        op = lookup(node.op)
        if op is not None and node in self.wishes.raised:
            return self._constants(node, op)
        for test in (self._wanted, self._ordinary):
            if reason := test(node, op):
                return reason
        if op is not None and node.op not in self.wishes.granted:
            for rule in (_kernel, _types, _device):
                if reason := rule(node, op):
                    return reason
        if op is None:
            return None
        return _pivot(node, op) or self._constants(node, op)

    def _constants(self, node: Node, op: type[Op]) -> Reason | None:
        varying = varying_constant(node, op, self.found, self._instances)
        if varying is None:
            return None
        slot, leaf = varying
        text = f"input {slot} must be constant, and hangs on {leaf.name}"
        return Reason("constant varies", text, {"input": slot, "source": leaf.name})

    def _wanted(self, node: Node, op: type[Op] | None) -> Reason | None:
        wishes = self.wishes
        if wishes.needed is not None and node not in wishes.needed:
            return Reason("not needed", "no fetch needs it")
        if node in wishes.fed:
            return Reason("fed", "it is fed")
        if node.attrs.get(_MARK) is False:
            return Reason("marked", f"{_MARK} is false")
        if (wishes.only_ops and node.op not in wishes.only_ops) or node.op in wishes.exclude_ops:
            return Reason("asked", f"{node.op} is left out on request", {"op": node.op})
        return None

    def _ordinary(self, node: Node, op: type[Op] | None) -> Reason | None:
        """What no kernel could change."""
        if node.op in self.graph.functions or hasattr(op, "functional"):
            return Reason("call", f"{node.op} runs a function", {"op": node.op})
        if op is None:
            return Reason("unknown op", f"{node.op} is not known", {"op": node.op})
        if op.role:
            return Reason("control flow", f"{node.op} moves tokens", {"op": node.op})
        if op.is_input:
            return Reason("input", f"{node.op} is there to be fed", {"op": node.op})
        if registry.output_count(node) is None or registry.input_types(node) is None:
            return Reason("type", "its types are not known")
        return None


def _kernel(node: Node, op: type[Op]) -> Reason | None:
    if op.compiles():
        return None
    data = {"op": node.op}
    if op.stateful:
        return Reason("effects", f"{node.op} has effects, or hangs on state", data)
    if not op.traceable:
        return Reason("not traced", f"the kernel of {node.op} cannot be traced", data)
    return Reason("no kernel", f"XLA has no kernel of {node.op}", data)


def _types(node: Node, op: type[Op]) -> Reason | None:
    for dtype in _dtypes(node):
        if dtype.is_ref:
            return Reason("reference", f"it handles a {dtype}", {"type": str(dtype)})
        handle = op.stateful and dtype.kind == "resource"
        if not handle and (_is_no_number(dtype) or dtype.name in op.uncompiled_types.split(", ")):
            data = {"op": node.op, "type": str(dtype)}
            return Reason("type", f"XLA has no kernel of {node.op} for {dtype}", data)
    return None


def _is_no_number(dtype: DType) -> bool:
    return dtype.kind not in _NUMBERS or dtype.name.startswith("q")


def _dtypes(node: Node) -> Iterator[DType]:
    for item in node.inputs:
        if item.dtype is not None:
            yield item.dtype
    yield from registry.output_types(node) or ()


def _device(node: Node, op: type[Op]) -> Reason | None:
    name = DeviceName.parse(node.device)
    if name is None or name.kind not in _DEVICES:
        return Reason("device", f"it is on {node.device}", {"device": node.device})
    return None


def _pivot(node: Node, op: type[Op]) -> Reason | None:
    """What the body of a loop hangs on: with it, a cluster would come before all the body."""
    if not (op.forwards and node.inputs and node.control_readers):
        return None
    switch = node.inputs[0].node
    if role(switch) == "switch" and role(switch.inputs[1].node) == "loop_cond":
        return Reason("pivot", "the body of its loop hangs on it by control edges")
    return None
