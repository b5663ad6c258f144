"""Constants, placeholders, zeros and ones, and ops that forward their inputs."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from cfgraph.errors import Unsupported
from cfgraph.ir.dtypes import bool_, resource
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import Shape
from cfgraph.limits import reserve
from cfgraph.ops.kernels.array_namespace import holds
from cfgraph.ops.kernels.variant_math import EMPTY_VARIANT, zeros_like_value
from cfgraph.ops.opdef.batching import elementwise
from cfgraph.ops.opdef.facts import Aliasing, CompilerSupport, SideEffects
from cfgraph.ops.opdef.gradient_api import (
    GradientBuilder,
    InputGradients,
    identity_gradient,
    no_gradient,
)
from cfgraph.ops.opdef.op import FLOATS, NUMBERS, Kernel, Op, OpError, SameShape, one_of
from cfgraph.ops.opdef.shape_functions import InferenceContext

# late imports: few graphs have constants of variants

if TYPE_CHECKING:
    from cfgraph.ir.serde.variant import EncodedVariant


class Const(Op):
    """Constant tensor with the value of the `value` attribute."""

    signature = "-> output: dtype"
    attrs = "value: tensor, dtype: type"

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        value = node.attr("value").array
        if value.ndim and not any(value.strides):  # one element, repeated
            reserve(value.nbytes, f"the constant {node.name!r}")
        if node.attr("dtype").kind == "variant":
            value = _variants_of_constant(value)
        elif value.ndim == 0 and value.dtype != object:
            value = value[()]
        return lambda: value

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        shape: Shape = context.attr("value").shape
        return [shape]


def _variants_of_constant(array: Any) -> Any:
    """The lists and optionals of an array of encoded ones; a scalar for no dimensions.

    Raises InvalidInput for a list with invalid metadata.
    """
    result = np.empty(array.shape, object)
    for index in np.ndindex(array.shape):
        result[index] = _decoded(array[index])
    return result if result.ndim else result[()]


def _decoded(message: Any) -> Any:
    if not message:
        return EMPTY_VARIANT
    from cfgraph.ir.serde.variant import encoded_variant

    encoded = encoded_variant(message)
    match encoded.type_name:
        case "tensorflow::TensorList":
            return _list(encoded)
        case "tensorflow::data::Optional":
            return _optional(encoded)
    return message


def _list(encoded: EncodedVariant) -> Any:
    from cfgraph.ir.serde.variant import list_metadata
    from cfgraph.ops.families.tensor_list import TensorList

    metadata = list_metadata(encoded.metadata)
    elements = [_element(tensor) for tensor in encoded.tensors]
    for index in sorted(set(metadata.missing)):
        elements.insert(index, None)
    return TensorList(metadata.dtype, metadata.shape, elements, metadata.max_elements)


def _optional(encoded: EncodedVariant) -> Any:
    from cfgraph.ops.families.optional import OptionalVariant

    if not any(encoded.metadata):
        return OptionalVariant(None)
    return OptionalVariant(tuple(_element(tensor) for tensor in encoded.tensors))


def _element(tensor: Any) -> Any:
    """A tensor as kernels return it; nested variants are decoded, too."""
    if tensor is None:
        return EMPTY_VARIANT
    if tensor.dtype == object and tensor.size and hasattr(tensor.flat[0], "type_name"):
        return _variants_of_constant(tensor)
    return tensor if tensor.ndim or tensor.dtype == object else tensor[()]


class Placeholder(Op):
    """Graph input; an error at run time unless it is fed."""

    signature = "-> output: dtype"
    attrs = "dtype: type, shape: shape = ?"
    effects = SideEffects(is_input=True)

    @staticmethod
    def kernel(xp: ModuleType, node: Node, /) -> Any:
        raise OpError(f"You must feed a value for placeholder tensor '{node.name}'")

    shape = staticmethod(lambda context: [context.attr("shape")])


class PlaceholderV2(Placeholder):
    """Placeholder with a mandatory shape."""

    attrs = "dtype: type, shape: shape"


def identity(value: Any) -> Any:
    """Return the argument."""
    return value


class PlaceholderWithDefault(SameShape):
    """Graph input that defaults to its input tensor unless it is fed."""

    signature = "input: dtype -> output: dtype"
    attrs = "shape: shape"
    effects = SideEffects(is_input=True)
    gradient = staticmethod(identity_gradient)
    function = staticmethod(identity)
    shape = staticmethod(lambda context: [context.attr("shape")])

    @classmethod
    def shape_slots(cls, node: Node) -> Sequence[int]:
        return ()  # it may be fed


class Identity(SameShape):
    """Identity function: forwards its input."""

    signature = "input: T -> output: T"
    aliasing = Aliasing(preserves_elements=True, is_identity=True)
    batching = staticmethod(elementwise)
    gradient = staticmethod(identity_gradient)

    @classmethod
    def can_fail(cls, node: Node) -> bool:
        return False

    equal_input = staticmethod(lambda context: 0)
    function = staticmethod(identity)


class ForwardingIdentity(SameShape, abstract=True):
    """An op that forwards its input."""

    signature = "input: T -> output: T"
    aliasing = Aliasing(is_identity=True)
    batching = staticmethod(elementwise)
    gradient = staticmethod(identity_gradient)
    function = staticmethod(identity)


class StopGradient(ForwardingIdentity):
    """Forward the input; no gradient flows back."""

    gradient = staticmethod(no_gradient)


class PreventGradient(ForwardingIdentity):
    """Forward the input; differentiation is an error."""

    attrs = "message: string = ''"

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, *grads: Output | None) -> InputGradients:
        raise prevented_gradient_error(node)


def prevented_gradient_error(node: Node) -> Unsupported:
    """The error of a gradient that a PreventGradient node prevents."""
    message = f"the gradient is prevented: {node.attr('message').decode(errors='replace')}"
    return Unsupported(message, node=node, code="CFG509")


class Snapshot(ForwardingIdentity):
    """Forward the input at its current value."""


class Copy(ForwardingIdentity):
    """Forward the input to a debugger."""

    attrs = "tensor_name: string = '', debug_ops_spec: list(string) = []"
    compilation = CompilerSupport(compiled=False)


class CopyHost(Copy):
    """Forward the input to a debugger in host memory."""


class DebugIdentity(ForwardingIdentity):
    """Forward the input to a debugger; has no other effect."""

    attrs = (
        "device_name: string = '', tensor_name: string = '', debug_urls: list(string) = [], "
        "gated_grpc: bool = false"
    )
    compilation = CompilerSupport(compiled=False)


class DebugGradientIdentity(ForwardingIdentity):
    """Forward the input, so that a debugger can identify its gradient."""

    compilation = CompilerSupport(compiled=False)


class DebugGradientRefIdentity(ForwardingIdentity):
    """Forward a reference, so that a debugger can identify its gradient."""

    signature = "input: Ref(T) -> output: Ref(T)"
    compilation = CompilerSupport(compiled=False)


class RefIdentity(ForwardingIdentity):
    """Forward a reference."""

    signature = "input: Ref(T) -> output: Ref(T)"
    compilation = CompilerSupport(compiled=False)


class IdentityN(Op):
    """Forward all inputs."""

    signature = "input: T -> output: T"
    aliasing = Aliasing(is_identity=True)
    attrs = "T: list(type) >= 1"
    batching = staticmethod(elementwise)
    gradient = staticmethod(identity_gradient)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        return identity if len(node.inputs) == 1 else _all_values

    shape = staticmethod(lambda context: list(context.inputs))


def _all_values(*values: Any) -> Any:
    return values


class GuaranteeConst(ForwardingIdentity):
    """Forward the input, which is guaranteed never to change."""

    effects = SideEffects(stateful=True)

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        if node.attr("T") is resource:
            return _refuse_handle
        return lambda step, value: value


def _refuse_handle(step: Any, value: Any) -> Any:
    raise OpError("Input tensor cannot be a resource variable handle.")


class DeepCopy(SameShape):
    """Copy of the input in new memory."""

    signature = "x: T -> y: T"
    effects = SideEffects(stateful=True)
    gradient = staticmethod(identity_gradient)
    kernel = staticmethod(lambda xp, step, value: value.copy())


class EnsureShape(Op):
    """Forward the input after a check that it has the declared shape."""

    signature = "input: T -> output: T"
    aliasing = Aliasing(is_identity=True)
    attrs = "shape: shape"
    gradient = staticmethod(identity_gradient)

    @staticmethod
    def kernel(xp: ModuleType, shape: Shape, /, value: Any) -> Any:
        if not shape.accepts(value.shape):
            raise OpError(
                f"Shape of tensor {list(value.shape)} is not compatible with "
                f"expected shape {shape}."
            )
        return value

    shape = staticmethod(lambda context: [context.inputs[0].merge(context.attr("shape"))])


class CheckNumerics(SameShape):
    """Forward the input after a check that it contains neither NaN nor infinity."""

    signature = "tensor: T -> output: T"
    attrs = f"{one_of(FLOATS)}, message: string"
    effects = SideEffects(stateful=True, only_checks=True)
    compilation = CompilerSupport(traces_effects=True)

    @classmethod
    def kernel(cls, xp: ModuleType, message: bytes, /, step: Any, tensor: Any) -> Any:
        if not holds(xp, xp.isfinite(tensor).all()):
            text, kinds = message.decode(errors="replace"), cls.nonfinite_kinds(xp, tensor)
            raise OpError(f"{text} : Tensor had {kinds} values")
        return tensor

    @classmethod
    def gradient(cls, g: GradientBuilder, node: Node, dy: Output) -> InputGradients:
        text = node.attr("message").decode(errors="replace")
        return [getattr(g, cls.name)(dy, message=f"in the gradient: {text}")]

    @staticmethod
    def nonfinite_kinds(xp: ModuleType, tensor: Any) -> str:
        """Names of the non-finite values that the tensor contains."""
        words = [("NaN", xp.isnan(tensor)), ("Inf", xp.isinf(tensor))]
        return " and ".join(word for word, mask in words if mask.any())


class CheckNumericsV2(CheckNumerics):
    """Forward the input after a check for NaN and infinity; the error names their signs."""

    @staticmethod
    def nonfinite_kinds(xp: ModuleType, tensor: Any) -> str:
        infinite = xp.isinf(tensor)
        words = [("NaN", xp.isnan(tensor)), ("-Inf", infinite & (tensor < 0))]
        words.append(("+Inf", infinite & (tensor > 0)))
        return " and ".join(word for word, mask in words if mask.any())


class ZerosLike(SameShape):
    """Zeros with the shape and dtype of the input."""

    signature = "x: T -> y: T"
    compilation = CompilerSupport(row_operation="zeros")
    batching = staticmethod(elementwise)
    gradient = staticmethod(no_gradient)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("T")
        if dtype.is_object:
            return zeros_like_value
        zero = dtype.numpy.type(0)
        return lambda x: xp.zeros_like(x) if x.ndim else zero


class OnesLike(SameShape):
    """Ones with the shape and dtype of the input."""

    signature = "x: T -> y: T"
    attrs = one_of(NUMBERS, "bool")
    batching = staticmethod(elementwise)
    gradient = staticmethod(no_gradient)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("T")
        one = np.True_ if dtype is bool_ else dtype.numpy.type(1)
        return lambda x: xp.ones_like(x) if x.ndim else one
