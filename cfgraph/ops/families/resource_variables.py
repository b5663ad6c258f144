"""Variables behind resource handles, and gathers from them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, ClassVar, Final

import numpy as np

from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.names import decode_key
from cfgraph.ir.shapes import SCALAR_SHAPE, UNKNOWN_SHAPE, Shape, vector_shape
from cfgraph.ops.families import gather
from cfgraph.ops.families.constants import ForwardingIdentity, Identity
from cfgraph.ops.families.control_flow import ForwardingOp
from cfgraph.ops.families.gather import (
    index_vectors,
    take_batched_slices,
    take_slices,
    with_index_depth,
)
from cfgraph.ops.families.variables import CountUpTo, Variable
from cfgraph.ops.opdef.facts import CompilerSupport, SideEffects
from cfgraph.ops.opdef.gradient_api import identity_gradient
from cfgraph.ops.opdef.op import Kernel, Op, OpError, is_a
from cfgraph.ops.opdef.shape_functions import InferenceContext

# TensorFlow's shared_name of anonymous handles, which no other node can access by name.
ANONYMOUS = "cd2c89b7-88b7-44c8-ad83-06c2a9158347"


# marks a handle in place of references to a variable, which stays one for references
BY_REFERENCE: Final = "_by_reference"


def _variable_handle(
    container: str, name: str, dtype: Any, shape: Shape, *, resource: bool = True
) -> Callable[[Any], Variable]:
    def make() -> Variable:
        return Variable(dtype, shape, name, container=container, resource=resource)

    def handle(step: Any) -> Variable:
        resource = make() if name == ANONYMOUS else step.resource(container, name, make)
        if not isinstance(resource, Variable):
            raise OpError(f"Trying to access resource {name} as a variable, but it is {resource!r}")
        return resource

    return handle


class VarHandleOp(Op):
    """The handle of a variable that outlives the run.

    As in TensorFlow, handles without a shared name share one variable; the node name is not used.
    """

    signature = "-> resource: resource"
    attrs = (
        "container: string = '', shared_name: string = '', debug_name: string = '', dtype: type,"
        " shape: shape, allowed_devices: list(string) = []"
    )
    effects = SideEffects(stateful=True)

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        container, name = decode_key(node.attr("container")), decode_key(node.attr("shared_name"))
        return _variable_handle(
            container,
            name,
            node.attr("dtype"),
            node.attr("shape"),
            resource=node.attrs.get(BY_REFERENCE) is not True,
        )

    shape = staticmethod(lambda context: [SCALAR_SHAPE])


class _VarHandlesOp(Op):
    """The handles of several variables."""

    signature = "-> resources: N*resource"
    attrs = (
        "containers: list(string), shared_names: list(string), N: int >= 0, dtypes: list(type),"
        " shapes: list(shape)"
    )
    effects = SideEffects(stateful=True)

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        keys = ("containers", "shared_names", "dtypes", "shapes")
        for key in keys:
            if len(node.attr(key)) != node.attr("N"):
                raise OpError(f"{key} has {len(node.attr(key))} elements, N is {node.attr('N')}")
        rows = zip(*(node.attr(key) for key in keys), strict=True)
        handles = [
            _variable_handle(decode_key(c), decode_key(n), dtype, shape)
            for c, n, dtype, shape in rows
        ]
        if len(handles) == 1:
            return handles[0]
        return lambda step: tuple(handle(step) for handle in handles)

    shape = staticmethod(lambda context: [SCALAR_SHAPE] * context.output_count)


def declared_shape(handle: Output) -> Shape:
    """The declared shape of a variable, if its VarHandleOp is reachable through forwarding ops."""
    seen = set[Node]()
    node = handle.node
    while node not in seen and node.inputs:
        if not is_a(node, ForwardingOp, ForwardingIdentity, Identity):
            return UNKNOWN_SHAPE
        seen.add(node)
        node = node.inputs[0].node
    if not is_a(node, VarHandleOp):
        return UNKNOWN_SHAPE
    shape: Shape = node.attr("shape")
    return shape


class VariableRead(Op, abstract=True):
    """A function of the value of a variable, whose handle is the first input."""

    signature = "resource: resource, indices: Tindices -> output: dtype"
    effects = SideEffects(stateful=True, reads_only=True)
    # the op that computes the same from the value
    value_op: ClassVar[str]

    @classmethod
    def value_attrs(cls, node: Node) -> dict[str, Any] | None:
        """The attributes of `value_op`, or None if it cannot compute the same."""


class ReadVariableOp(VariableRead):
    """The value of a variable."""

    signature = "resource: resource -> value: dtype"
    value_op = "Identity"
    effects = SideEffects(stateful=True, reads_only=True, atomic=True)
    compilation = CompilerSupport(compiled=True)
    # the gradient of the value is the gradient of the handle
    gradient = staticmethod(identity_gradient)

    @classmethod
    def value_attrs(cls, node: Node) -> dict[str, Any]:
        return {"T": node.attr("dtype")}

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        return variable_reader(node.attr("dtype"))

    shape = staticmethod(lambda context: [declared_shape(context.node.inputs[0])])


def variable_reader(dtype: Any) -> Kernel:
    """A kernel that reads a variable. Raises OpError if its dtype differs from `dtype`."""

    def read(step: Any, cell: Variable) -> Any:
        if cell.dtype is not dtype:
            raise OpError(
                f"Trying to read variable {cell.name} with wrong dtype. "
                f"Expected {cell.dtype} got {dtype}"
            )
        return cell.read()

    return read


class _ReadVariablesOp(Op):
    """The values of several variables."""

    signature = "resources: N*resource -> values: dtypes"
    attrs = "N: int >= 0, dtypes: list(type) >= 1"
    effects = SideEffects(stateful=True, reads_only=True)
    gradient = staticmethod(identity_gradient)

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        readers = [variable_reader(dtype) for dtype in node.attr("dtypes")]
        if len(readers) == 1:
            return readers[0]
        return lambda step, *cells: tuple(
            read(step, cell) for read, cell in zip(readers, cells, strict=True)
        )

    shape = staticmethod(lambda context: [declared_shape(handle) for handle in context.node.inputs])


class AssignVariableOp(Op):
    """Assign a value to a variable."""

    signature = "resource: resource, value: dtype ->"
    attrs = "validate_shape: bool = false"
    effects = SideEffects(stateful=True, initializes=True)
    compilation = CompilerSupport(compiled=True)

    @classmethod
    def changes_shape(cls, node: Node, shapes: Callable[[Output], Shape]) -> bool:
        value = shapes(node.inputs[1])
        try:
            # the declared shape holds only if the static shape implies it
            return declared_shape(node.inputs[0]).merge(value) != value
        except ValueError:
            return True

    @staticmethod
    def kernel(
        xp: ModuleType, dtype: DType, validate_shape: bool, /, step: Any, cell: Variable, value: Any
    ) -> None:
        if cell.dtype is not dtype:
            raise OpError(
                f"Trying to assign variable {cell.name} with wrong dtype. "
                f"Expected {cell.dtype} got {dtype}"
            )
        if validate_shape and cell.value is not None and cell.value.shape != value.shape:
            raise OpError(
                f"Trying to assign to variable {cell.name} with tensor with wrong shape. "
                f"Expected {Shape(cell.value.shape)} got {Shape(value.shape)}"
            )
        cell.assign(value)


class AssignUpdateVariableOp(Op, abstract=True):
    """Assign `combine(old, value)` to a variable."""

    signature = "resource: resource, value: dtype ->"
    effects = SideEffects(stateful=True)
    compilation = CompilerSupport(compiled=True, uncompiled_types="bool")
    combine: ClassVar[Callable[[Any, Any], Any]]

    @classmethod
    def kernel(cls, xp: ModuleType, step: Any, cell: Variable, value: Any) -> None:
        old = cell.read()
        if old.shape != value.shape:
            raise OpError(
                f"Cannot update variable with shape {Shape(old.shape)} using a Tensor with "
                f"shape {Shape(value.shape)}, shapes must be equal."
            )
        if old.dtype != value.dtype:
            raise OpError(
                f"Cannot update variable {cell.name} of {old.dtype} with a Tensor of {value.dtype}"
            )
        cell.value = cls.combine(old, value)


class AssignAddVariableOp(AssignUpdateVariableOp):
    """Add a tensor to a variable."""

    combine = operator.add


class AssignSubVariableOp(AssignUpdateVariableOp):
    """Subtract a tensor from a variable."""

    combine = operator.sub


class VarIsInitializedOp(Op):
    """True if the variable has a value."""

    signature = "resource: resource -> is_initialized: bool"
    effects = SideEffects(stateful=True, reads_only=True)
    kernel = staticmethod(lambda xp, step, cell: np.bool_(cell.value is not None))
    shape = staticmethod(lambda context: [SCALAR_SHAPE])


class DestroyResourceOp(Op):
    """Remove the resource of a handle from the session."""

    signature = "resource: resource ->"
    attrs = "ignore_lookup_error: bool = true"
    effects = SideEffects(stateful=True)

    @staticmethod
    def kernel(xp: ModuleType, ignore_lookup_error: bool, /, step: Any, resource: Any) -> None:
        if not isinstance(resource, Variable):
            if name := getattr(resource, "name", None):
                step.forget(getattr(resource, "container", ""), name, resource.namespace)
            return
        if not resource.initialized and not ignore_lookup_error:
            raise OpError(
                f"Resource {resource.container or 'localhost'}/{resource.name} does not exist."
            )
        resource.value = None
        step.forget(resource.container, resource.name)


class VariableShape(Op):
    """The shape of a variable's value."""

    signature = "input: resource -> output: out_type"
    attrs = "out_type: {int32, int64} = int32"
    effects = SideEffects(stateful=True, reads_only=True)
    compilation = CompilerSupport(compiled=True)

    @staticmethod
    def kernel(xp: ModuleType, out_type: DType, /, step: Any, cell: Any) -> Any:
        return np.array(cell.read().shape, out_type.numpy)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [vector_shape(declared_shape(context.node.inputs[0]).rank)]


class ResourceCountUpTo(CountUpTo):
    """The value of a variable, incremented by one afterward. Fails once it reaches the limit."""

    signature = "resource: resource -> output: T"


def _gather_attrs(node: Node) -> dict[str, Any]:
    return {"Tparams": node.attr("dtype"), "Tindices": node.attr("Tindices")}


class ResourceGather(VariableRead):
    """The rows of a variable at some indices, with optional batch dimensions."""

    value_op = "Gather"
    compilation = CompilerSupport(compiled=True)
    attrs = (
        "batch_dims: int = 0, validate_indices: bool = true, dtype: type, Tindices: {int32, int64}"
    )

    @classmethod
    def value_attrs(cls, node: Node) -> dict[str, Any] | None:
        return None if node.attr("batch_dims") else _gather_attrs(node)

    @staticmethod
    def kernel(
        xp: ModuleType, dtype: DType, batch_dims: int, /, step: Any, cell: Variable, indices: Any
    ) -> Any:
        array = variable_reader(dtype)(step, cell)
        if not array.ndim:
            raise OpError("the variable must have at least one dimension, got shape []")
        return (
            take_batched_slices(xp, array, indices, batch_dims, batch_dims)
            if batch_dims
            else take_slices(xp, array, indices, 0)
        )

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        params, batch = declared_shape(context.node.inputs[0]), context.attr("batch_dims")
        return [UNKNOWN_SHAPE if batch or params.dims is None else context.inputs[1] + params[1:]]

    gradient = staticmethod(gather.gather_gradient)


class ResourceGatherNd(VariableRead):
    """The slices of a variable at index vectors."""

    value_op = "GatherNd"
    attrs = "dtype: type, Tindices: {int32, int64}"

    @classmethod
    def value_attrs(cls, node: Node) -> dict[str, Any]:
        return _gather_attrs(node)

    @staticmethod
    def kernel(xp: ModuleType, dtype: DType, /, step: Any, cell: Variable, indices: Any) -> Any:
        array, indices = with_index_depth(xp, variable_reader(dtype)(step, cell), indices)
        index, _ = index_vectors(xp, indices, array.shape, check=True)
        return array[(*index, ...)]

    gradient = staticmethod(gather.gather_nd_gradient)
