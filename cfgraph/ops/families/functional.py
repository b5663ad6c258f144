"""Functional control flow and calls, and the helper ops that lowering reads or adds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.role import Role
from cfgraph.ir.shapes import SCALAR_SHAPE, UNKNOWN_SHAPE, Shape
from cfgraph.ops.families.constants import identity
from cfgraph.ops.opdef.facts import (
    AlgebraicFacts,
    CompilerSupport,
    FunctionCalls,
    HostPlacement,
    SideEffects,
)
from cfgraph.ops.opdef.gradient_api import identity_gradient
from cfgraph.ops.opdef.op import Kernel, Op, OpError, lookup
from cfgraph.ops.opdef.shape_functions import InferenceContext
from cfgraph.ops.opdef.variant_math import EMPTY_VARIANT


def is_functional(graph: Graph, nodes: Iterable[Node]) -> bool:
    """True if one of the nodes calls a function that must be lowered before a run."""
    ops = {node.op for node in nodes}
    return any(op in graph.functions or _needs_lowering(lookup(op)) for op in ops)


def is_cluster_call(op: type[Op] | None) -> bool:
    """True for the call of a cluster."""
    return op is not None and op.calls.kind == "launch"


def _needs_lowering(op: type[Op] | None) -> bool:
    return op is not None and not op.compilation.runnable and bool(op.calls.kind)


class FunctionalOp(Op, abstract=True):
    """An op that calls the functions of its `calls`; they take the inputs from an argument on."""

    compilation = CompilerSupport(runnable=False)
    calls = FunctionCalls(first_argument=0)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        declared = cls.parsed().attrs.get("output_shapes") and context.attr("output_shapes")
        if not declared or len(declared) != context.output_count:
            return [UNKNOWN_SHAPE] * context.output_count
        return list(declared)


class StatelessIf(FunctionalOp):
    """Call one of two functions, without side effects."""

    signature = "cond: Tcond, input: Tin -> output: Tout"
    attrs = (
        "Tin: list(type) >= 0, Tout: list(type) >= 0, then_branch: func, else_branch: func,"
        " output_shapes: list(shape) = []"
    )
    calls = FunctionCalls(
        kind="if", functions=("then_branch", "else_branch"), first_argument=1, inlined=True
    )


class If(StatelessIf):
    """Call one of two functions."""

    effects = SideEffects(stateful=True)
    calls = replace(StatelessIf.calls, inlined=False)


class _If(StatelessIf):
    """Call one of two functions; the form of old files."""

    attrs = "Tin: list(type) >= 1, Tout: list(type) >= 1, then_branch: func, else_branch: func"
    effects = SideEffects(stateful=True)
    calls = replace(StatelessIf.calls, inlined=False)


class StatelessCase(FunctionalOp):
    """Call the function that the index says, the last one where it is out of range."""

    signature = "branch_index: int32, input: Tin -> output: Tout"
    attrs = (
        "Tin: list(type) >= 0, Tout: list(type) >= 0, branches: list(func) >= 1,"
        " output_shapes: list(shape) = []"
    )
    calls = FunctionCalls(kind="case", functions=("branches",), first_argument=1)


class Case(StatelessCase):
    """Call the function that the index says, with side effects."""

    effects = SideEffects(stateful=True)


class StatelessWhile(FunctionalOp):
    """Call the body as long as the condition holds, without side effects."""

    signature = "input: T -> output: T"
    attrs = (
        "T: list(type) >= 0, cond: func, body: func, output_shapes: list(shape) = [],"
        " parallel_iterations: int = 10"
    )
    calls = FunctionCalls(kind="while", functions=("cond", "body"), inlined=True)


class While(StatelessWhile):
    """Call the body as long as the condition holds."""

    effects = SideEffects(stateful=True)
    calls = replace(StatelessWhile.calls, inlined=False)


class _While(StatelessWhile):
    """Call the body as long as the condition holds; the form of old files."""

    attrs = "T: list(type) >= 0, cond: func, body: func"
    effects = SideEffects(stateful=True)
    calls = replace(StatelessWhile.calls, inlined=False)


class For(FunctionalOp):
    """Call the body with each index from start to limit, and what the call before gave."""

    signature = "start: int32, limit: int32, delta: int32, input: T -> output: T"
    attrs = "T: list(type) >= 0, body: func"
    calls = FunctionCalls(kind="for", functions=("body",), first_argument=3)


class PartitionedCall(FunctionalOp):
    """Call a function."""

    signature = "args: Tin -> output: Tout"
    attrs = (
        "Tin: list(type) >= 0, Tout: list(type) >= 0, f: func, config: string = '',"
        " config_proto: string = '', executor_type: string = ''"
    )
    calls = FunctionCalls(kind="call", functions=("f",))


class StatefulPartitionedCall(PartitionedCall):
    """Call a function that has side effects."""

    effects = SideEffects(stateful=True)


class RemoteCall(FunctionalOp):
    """Call a function on the device that input 0 names."""

    signature = "target: string, args: Tin -> output: Tout"
    attrs = "Tin: list(type) >= 1, Tout: list(type) >= 1, f: func"
    calls = FunctionCalls(kind="call", functions=("f",), first_argument=1)
    effects = SideEffects(stateful=True)
    placement = HostPlacement(host_inputs=(0,))


class SymbolicGradient(FunctionalOp):
    """The gradient of a function, given its inputs and the gradients of its outputs."""

    signature = "input: Tin -> output: Tout"
    attrs = "Tin: list(type) >= 1, Tout: list(type) >= 1, f: func"
    calls = FunctionCalls(kind="gradient", functions=("f",))

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        if len(context.inputs) < context.output_count:
            return [UNKNOWN_SHAPE] * context.output_count
        return list(context.inputs[: context.output_count])


class XlaLaunch(FunctionalOp):
    """Call a function that is compiled as a whole; the runtime has the kernel."""

    signature = (
        "constants: Tconstants, args: Targs, resources: Nresources*resource -> results: Tresults"
    )
    attrs = (
        "Tconstants: list(type) >= 0, Targs: list(type) >= 0, Nresources: int >= 0,"
        " Tresults: list(type) >= 0, function: func"
    )
    compilation = CompilerSupport(runnable=True)
    calls = FunctionCalls(kind="launch", functions=("function",))
    effects = SideEffects(stateful=True)


class PythonCall(Op, abstract=True):
    """A call into the Python process that built the graph, which a file cannot hold."""

    compilation = CompilerSupport(runnable=False)
    effects = SideEffects(stateful=True)


class PyFunc(PythonCall):
    """Call a Python function by token."""

    signature = "input: Tin -> output: Tout"
    attrs = "token: string, Tin: list(type) >= 0, Tout: list(type) >= 0"


class PyFuncStateless(PyFunc):
    """Call a Python function without side effects by token."""

    effects = SideEffects(stateful=False)


class EagerPyFunc(PythonCall):
    """Call a Python function on eager tensors by token."""

    signature = "input: Tin -> output: Tout"
    attrs = "token: string, is_async: bool = false, Tin: list(type) >= 0, Tout: list(type) >= 0"


class FunctionArgument(Op, abstract=True):
    """One argument of a function's body."""

    compilation = CompilerSupport(runnable=False)
    effects = SideEffects(stateful=True, is_input=True)
    role = Role.ARG


class _Arg(FunctionArgument):
    """One argument of a function's body."""

    signature = "-> output: T"
    attrs = "index: int >= 0"


class _DeviceArg(FunctionArgument):
    """One argument of a function's body, in the device's memory."""

    signature = "-> output: T"
    attrs = "index: int >= 0"


class _Retval(Op):
    """One result of a function's body."""

    signature = "input: T ->"
    attrs = "index: int >= 0"
    compilation = CompilerSupport(runnable=False)
    effects = SideEffects(stateful=True)
    role = Role.RETVAL


class _DeviceRetval(_Retval):
    """One result of a function's body, in the device's memory."""


class ToBool(Op):
    """True for a scalar that is not zero or empty, and for any other tensor that has elements."""

    signature = "input: T -> output: bool"
    algebra = AlgebraicFacts(boolean_semantics="truth")

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("T")
        if dtype.is_complex or dtype.kind in ("resource", "variant"):
            return lambda value: _reject_truth(dtype, value)
        return _string_truth if dtype.kind == "string" else _numeric_truth

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [SCALAR_SHAPE]


def _numeric_truth(value: Any) -> Any:
    return value != 0 if value.ndim == 0 else np.bool_(value.size > 0)


def _reject_truth(dtype: DType, value: Any) -> Any:
    if value.ndim:
        return np.bool_(value.size > 0)
    message = f"{dtype} cannot be converted to a boolean"
    raise OpError(message)


def _string_truth(value: Any) -> Any:
    return np.bool_(len(value[()]) > 0 if value.ndim == 0 else value.size > 0)


class FakeParam(Op):
    """A stand-in for a value that the branch not taken would have given."""

    signature = "-> output: dtype"
    attrs = "shape: shape"

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype, shape = node.attr("dtype"), node.attr("shape")
        if dtype.kind in ("variant", "resource"):
            return lambda: EMPTY_VARIANT
        sizes = [0 if size is None else size for size in shape.dims or ()]
        fill = b"" if dtype.kind == "string" else 0
        stand_in = np.full([0] if shape.dims is None else sizes, fill, dtype.numpy)
        return lambda: xp.asarray(stand_in) if dtype.kind != "string" else stand_in

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [context.attr("shape")]


class DeviceIndex(Op):
    """The place of this node's kind of device in a list of kinds; their number if it is not in."""

    signature = "-> index: int32"
    attrs = "device_names: list(string)"
    effects = SideEffects(stateful=True)

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        match = re.search(r"device:([A-Za-z_]+)", node.device)
        kind = match[1].upper().encode() if match else b"CPU"
        names = node.attr("device_names")
        index = np.int32(names.index(kind) if kind in names else len(names))
        return lambda step: index

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [SCALAR_SHAPE]


class RegroupOp(Op, abstract=True):
    """The outputs are the inputs, grouped into other arguments."""

    gradient = staticmethod(identity_gradient)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        return identity if len(node.inputs) == 1 else _all_inputs

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        if len(context.inputs) != context.output_count:
            return [UNKNOWN_SHAPE] * context.output_count
        return list(context.inputs)


def _all_inputs(*values: Any) -> tuple[Any, ...]:
    return values


class _ListToArray(RegroupOp):
    """Tensors of a list of types, as N of one type."""

    signature = "input: Tin -> output: N*T"
    attrs = "Tin: list(type) >= 1"


class _ArrayToList(RegroupOp):
    """N tensors of one type, as tensors of a list of types."""

    signature = "input: N*T -> output: out_types"
    attrs = "out_types: list(type) >= 1"
