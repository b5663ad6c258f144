"""Functional control flow, function calls, and the auxiliary ops that lowering reads or adds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.errors import InvalidInput
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.role import Role
from cfgraph.ir.shapes import SCALAR_SHAPE, UNKNOWN_SHAPE, Shape, ShapeError
from cfgraph.ops.families.constants import identity
from cfgraph.ops.kernels.variant_math import EMPTY_VARIANT
from cfgraph.ops.opdef.facts import (
    AlgebraicFacts,
    CompilerSupport,
    FunctionCalls,
    HostPlacement,
    SideEffects,
)
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradients
from cfgraph.ops.opdef.op import Kernel, Op, OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext


class FunctionalOp(Op, abstract=True):
    """An op that calls the functions in `calls`, with the inputs from `first_argument` on."""

    compilation = CompilerSupport(runnable=False)
    calls = FunctionCalls(first_argument=0)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        declared = cls.parsed().attrs.get("output_shapes") and context.attr("output_shapes")
        if not declared or len(declared) != context.output_count:
            return [UNKNOWN_SHAPE] * context.output_count
        return list(declared)


class StatelessIf(FunctionalOp):
    """Conditional: call one of two side-effect-free functions."""

    signature = "cond: Tcond, input: Tin -> output: Tout"
    attrs = (
        "Tin: list(type) >= 0, Tout: list(type) >= 0, then_branch: func, else_branch: func,"
        " output_shapes: list(shape) = []"
    )
    calls = FunctionCalls(
        kind="if", functions=("then_branch", "else_branch"), first_argument=1, inlined=True
    )


class If(StatelessIf):
    """Conditional: call one of two functions."""

    effects = SideEffects(stateful=True)


class _If(StatelessIf):
    """Conditional: call one of two functions (older form of If)."""

    attrs = "Tin: list(type) >= 1, Tout: list(type) >= 1, then_branch: func, else_branch: func"
    effects = SideEffects(stateful=True)


class XlaIf(If):
    """Conditional of XLA: call one of two functions."""

    signature = "cond: Tcond, inputs: Tin -> output: Tout"
    attrs = "Tin: list(type) >= 0, Tout: list(type) >= 0, then_branch: func, else_branch: func"


class StatelessCase(FunctionalOp):
    """Call the side-effect-free branch with the given index, or the last one if out of range."""

    signature = "branch_index: int32, input: Tin -> output: Tout"
    attrs = (
        "Tin: list(type) >= 0, Tout: list(type) >= 0, branches: list(func) >= 1,"
        " output_shapes: list(shape) = []"
    )
    calls = FunctionCalls(kind="case", functions=("branches",), first_argument=1, inlined=True)


class Case(StatelessCase):
    """Call the branch with the given index, or the last one if it is out of range."""

    effects = SideEffects(stateful=True)


class StatelessWhile(FunctionalOp):
    """Loop: call the body while the condition is true; both are free of side effects."""

    signature = "input: T -> output: T"
    attrs = (
        "T: list(type) >= 0, cond: func, body: func, output_shapes: list(shape) = [],"
        " parallel_iterations: int = 10"
    )
    calls = FunctionCalls(kind="while", functions=("cond", "body"), inlined=True)


class While(StatelessWhile):
    """Loop: call the body while the condition is true."""

    effects = SideEffects(stateful=True)


class _While(StatelessWhile):
    """Loop: call the body while the condition is true (older form of While)."""

    attrs = "T: list(type) >= 0, cond: func, body: func"
    effects = SideEffects(stateful=True)


class XlaWhile(_While):
    """Loop of XLA: call the body while the condition is true."""


class For(FunctionalOp):
    """Loop: call the body for each index from start to limit, with the results of the last call."""

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
    calls = FunctionCalls(kind="call", functions=("f",), inlined=True)


class StatefulPartitionedCall(PartitionedCall):
    """Call a function that has side effects."""

    effects = SideEffects(stateful=True)


class RemoteCall(FunctionalOp):
    """Call a function on the device that input 0 names."""

    signature = "target: host string, args: Tin -> output: Tout"
    attrs = "Tin: list(type) >= 1, Tout: list(type) >= 1, f: func"
    calls = FunctionCalls(kind="call", functions=("f",), first_argument=1)
    effects = SideEffects(stateful=True)


class SymbolicGradient(FunctionalOp):
    """Gradient of a function, computed from its inputs and the gradients of its outputs."""

    signature = "input: Tin -> output: Tout"
    attrs = "Tin: list(type) >= 1, Tout: list(type) >= 1, f: func"
    calls = FunctionCalls(kind="gradient", functions=("f",))

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        if len(context.inputs) < context.output_count:
            return [UNKNOWN_SHAPE] * context.output_count
        return list(context.inputs[: context.output_count])


class XlaLaunch(FunctionalOp):
    """Call a function compiled as one unit; the runtime provides the kernel."""

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
    """A call into the Python process that built the graph; cannot be serialized."""

    signature = "input: Tin -> output: Tout"
    compilation = CompilerSupport(runnable=False)
    effects = SideEffects(stateful=True)


class PyFunc(PythonCall):
    """Call a Python function, identified by a token."""

    attrs = "token: string, Tin: list(type) >= 0, Tout: list(type) >= 0"


class PyFuncStateless(PyFunc):
    """Call a side-effect-free Python function, identified by a token."""

    effects = SideEffects(stateful=False)


class EagerPyFunc(PythonCall):
    """Call a Python function on eager tensors, identified by a token."""

    attrs = "token: string, is_async: bool = false, Tin: list(type) >= 0, Tout: list(type) >= 0"


class FunctionArgument(Op, abstract=True):
    """Argument of a function body."""

    signature = "-> output: T"
    attrs = "index: int >= 0"
    compilation = CompilerSupport(runnable=False)
    effects = SideEffects(stateful=True, is_input=True)
    role = Role.ARG


class _Arg(FunctionArgument):
    """Argument of a function body, with its index."""


class _DeviceArg(FunctionArgument):
    """Argument of a function body in device memory."""


class _Retval(Op):
    """Result of a function body, with its index."""

    signature = "input: T ->"
    attrs = "index: int >= 0"
    compilation = CompilerSupport(runnable=False)
    effects = SideEffects(stateful=True)
    role = Role.RETVAL


class _DeviceRetval(_Retval):
    """Result of a function body in device memory."""


class ToBool(Op):
    """Truth value: a scalar that is nonzero or nonempty, or a tensor with elements, is true."""

    signature = "input: T -> output: bool"
    algebra = AlgebraicFacts(boolean_semantics="truth")

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("T")
        if dtype.is_complex or dtype.kind in ("resource", "variant"):
            return lambda value: _reject_truth(dtype, value)
        return _string_truth if dtype.kind == "string" else _numeric_truth

    shape = staticmethod(lambda context: [SCALAR_SHAPE])


def _numeric_truth(value: Any) -> Any:
    return value != 0 if value.ndim == 0 else np.bool_(value.size > 0)


def _reject_truth(dtype: DType, value: Any) -> Any:
    if value.ndim:
        return np.bool_(value.size > 0)
    raise OpError(f"{dtype} cannot be converted to a boolean")


def _string_truth(value: Any) -> Any:
    return np.bool_(len(value[()]) > 0 if value.ndim == 0 else value.size > 0)


class FakeParam(Op):
    """Stand-in for the output that an untaken branch would have produced."""

    signature = "-> output: dtype"
    attrs = "shape: shape"

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype, shape = node.attr("dtype"), node.attr("shape")
        if dtype.kind in ("variant", "resource"):
            return lambda: EMPTY_VARIANT
        sizes = [0 if size is None else size for size in shape.dims or ()]
        fill = np.array(b"" if dtype.kind == "string" else 0, dtype.numpy)

        def stand_in() -> Any:
            # repeats of one element: a file may declare any shape
            array = np.broadcast_to(fill, [0] if shape.dims is None else sizes)
            return xp.asarray(array) if dtype.kind != "string" else array

        return stand_in

    shape = staticmethod(lambda context: [context.attr("shape")])


class DeviceIndex(Op):
    """Index of this node's device type in a list of types; the length of the list if absent."""

    signature = "-> index: int32"
    attrs = "device_names: list(string)"
    effects = SideEffects(stateful=True)
    placement = HostPlacement(reads_device=True)

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        match = re.search(r"device:([A-Za-z_]+)", node.device)
        kind = match[1].upper().encode() if match else b"CPU"
        names = node.attr("device_names")
        index = np.int32(names.index(kind) if kind in names else len(names))
        return lambda step: index

    shape = staticmethod(lambda context: [SCALAR_SHAPE])


class RegroupOp(Op, abstract=True):
    """An op that forwards its inputs under a different grouping of arguments."""

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, *grads: Output | None) -> InputGradients:
        _require_one_output_per_input(node)
        return grads

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        _require_one_output_per_input(node)
        return identity if len(node.inputs) == 1 else _all_inputs

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        if len(context.inputs) != context.output_count:
            message = f"{len(context.inputs)} inputs cannot be {context.output_count} outputs"
            raise ShapeError(message)
        return list(context.inputs)


def _require_one_output_per_input(node: Node) -> None:
    outputs = node.output_count
    if len(node.inputs) != outputs:
        message = f"{node.op} has {len(node.inputs)} inputs and {outputs} outputs"
        raise InvalidInput(message, node=node, code="CFG107")


def _all_inputs(*values: Any) -> tuple[Any, ...]:
    return values


class _ListToArray(RegroupOp):
    """Forward a list of tensors as N tensors of one type."""

    signature = "input: Tin -> output: N*T"
    attrs = "Tin: list(type) >= 1"


class _ArrayToList(RegroupOp):
    """Forward N tensors of one type as a list of tensors."""

    signature = "input: N*T -> output: out_types"
    attrs = "out_types: list(type) >= 1"
