"""What hands values on with a promise or a check, and zeros and ones of their shape."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.errors import Unsupported
from cfgraph.ir.dtypes import bool_
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import Shape
from cfgraph.ops.adjoint import Adjoint, Partials, pass_on, stop
from cfgraph.ops.array import same
from cfgraph.ops.elements import zeros_of
from cfgraph.ops.inference import InferenceContext
from cfgraph.ops.op import Kernel, Op, OpError
from cfgraph.ops.pointwise import SameShape
from cfgraph.ops.type_sets import FLOATS, NUMBERS, one_of


class Same(SameShape, abstract=True):
    """Its input."""

    signature = "input: T -> output: T"
    forwards = True
    gradient = staticmethod(pass_on)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        return same


class StopGradient(Same):
    """Its input; no gradient flows back."""

    gradient = staticmethod(stop)


class PreventGradient(Same):
    """Its input; to ask for its gradient is an error."""

    attrs = "message: string = ''"

    @staticmethod
    def gradient(g: Adjoint, node: Node, *grads: Output | None) -> Partials:
        message = f"the gradient is prevented: {node.attr('message').decode(errors='replace')}"
        raise Unsupported(message, node=node, code="CFG509")


class Snapshot(Same):
    """Its input, as it is now."""


class Copy(Same):
    """Its input, for a debugger to look at."""

    attrs = "tensor_name: string = '', debug_ops_spec: list(string) = []"
    compiled = False


class CopyHost(Copy):
    """Its input in host memory, for a debugger to look at."""

    attrs = "tensor_name: string = '', debug_ops_spec: list(string) = []"
    compiled = False


class DebugIdentity(Same):
    """Its input, for a debugger to look at."""

    attrs = (
        "device_name: string = '', tensor_name: string = '', debug_urls: list(string) = [], "
        "gated_grpc: bool = false"
    )
    compiled = False


class DebugGradientIdentity(Same):
    """Its input; a debugger finds its gradient by it."""

    compiled = False


class DebugGradientRefIdentity(Same):
    """The reference; a debugger finds its gradient by it."""

    signature = "input: Ref(T) -> output: Ref(T)"
    compiled = False


class RefIdentity(Same):
    """The reference."""

    signature = "input: Ref(T) -> output: Ref(T)"
    compiled = False


class IdentityN(Op):
    """Its inputs."""

    signature = "input: T -> output: T"
    forwards = True
    attrs = "T: list(type) >= 1"
    gradient = staticmethod(pass_on)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        return same if len(node.inputs) == 1 else _all

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return list(context.inputs)


def _all(*values: Any) -> Any:
    return values


class GuaranteeConst(Same):
    """Its input, promised never to change."""

    stateful = True

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        return lambda step, value: value


class DeepCopy(SameShape):
    """A copy of its input."""

    signature = "x: T -> y: T"
    stateful = True
    gradient = staticmethod(pass_on)

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        return lambda step, value: value.copy()


class EnsureShape(Op):
    """Its input, which must have the given shape."""

    signature = "input: T -> output: T"
    forwards = True
    attrs = "shape: shape"
    gradient = staticmethod(pass_on)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        wanted: Shape = node.attr("shape")

        def ensured(value: Any) -> Any:
            if not wanted.accepts(value.shape):
                message = (
                    f"Shape of tensor {list(value.shape)} is not compatible with "
                    f"expected shape {wanted}."
                )
                raise OpError(message)
            return value

        return ensured

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [context.inputs[0].merge(context.attr("shape"))]


class CheckNumerics(SameShape):
    """Its input, which must have no NaN and no infinity."""

    signature = "tensor: T -> output: T"
    attrs = f"{one_of(FLOATS)}, message: string"
    stateful = True

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        text = node.attr("message").decode(errors="replace")

        def checked(step: Any, tensor: Any) -> Any:
            if not xp.isfinite(tensor).all():
                raise OpError(f"{text} : Tensor had {cls.found(xp, tensor)} values")
            return tensor

        return checked

    @classmethod
    def gradient(cls, g: Adjoint, node: Node, dy: Output) -> Partials:
        text = node.attr("message").decode(errors="replace")
        return [getattr(g, cls.name)(dy, message=f"in the gradient: {text}")]

    @staticmethod
    def found(xp: ModuleType, tensor: Any) -> str:
        """What the tensor holds that it should not."""
        words = [("NaN", xp.isnan(tensor)), ("Inf", xp.isinf(tensor))]
        return " and ".join(word for word, places in words if places.any())


class CheckNumericsV2(CheckNumerics):
    """Its input, which must have no NaN and no infinity; an error tells their signs."""

    @staticmethod
    def found(xp: ModuleType, tensor: Any) -> str:
        infinite = xp.isinf(tensor)
        words = [("NaN", xp.isnan(tensor)), ("-Inf", infinite & (tensor < 0))]
        words.append(("+Inf", infinite & (tensor > 0)))
        return " and ".join(word for word, places in words if places.any())


class ZerosLike(SameShape):
    """Zeros of the same shape."""

    signature = "x: T -> y: T"
    gradient = staticmethod(stop)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("T")
        if dtype.is_object:
            return zeros_of
        zero = dtype.numpy.type(0)
        return lambda x: xp.zeros_like(x) if x.ndim else zero


class OnesLike(SameShape):
    """Ones of the same shape."""

    signature = "x: T -> y: T"
    attrs = one_of(NUMBERS, "bool")
    gradient = staticmethod(stop)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("T")
        one = np.True_ if dtype is bool_ else dtype.numpy.type(1)
        return lambda x: xp.ones_like(x) if x.ndim else one
