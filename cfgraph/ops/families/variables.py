"""Variable state, and the ops on reference variables."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, ClassVar, Final

import numpy as np

from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.names import decode_key
from cfgraph.ir.shapes import SCALAR_SHAPE, UNKNOWN_SHAPE, Shape
from cfgraph.limits import reserve_array
from cfgraph.ops.opdef.facts import SideEffects
from cfgraph.ops.opdef.gradient_api import no_gradient
from cfgraph.ops.opdef.op import Kernel, Op, OpError
from cfgraph.ops.opdef.resources import Resource
from cfgraph.ops.opdef.shape_functions import InferenceContext

NUMERIC = (
    "{float32, float64, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32,"
    " bfloat16, qint16, quint16, uint16, complex128, float16, uint32, uint64}"
)


_FIRST: Final = (
    "run its initializer first, in the same session: --init NODE (`show` lists initializers); or"
    " restore the variables of a SavedModel or checkpoint: --variables PATH"
)


class Variable(Resource):
    """Mutable state of a variable. An assignment replaces the array instead of writing into it."""

    __slots__ = ("container", "dtype", "name", "resource", "shape", "value")

    def __init__(
        self,
        dtype: DType,
        shape: Shape,
        name: str,
        *,
        container: str = "",
        resource: bool = False,
        value: Any = None,
    ) -> None:
        self.dtype = dtype
        self.shape = shape
        self.name = name
        self.container = container
        self.resource = resource
        self.value = value

    @property
    def initialized(self) -> bool:
        """True after the first assignment."""
        return self.value is not None

    def read(self) -> Any:
        """The value. Raises OpError if the variable is uninitialized."""
        value = self.value
        if value is None:
            raise OpError(self._missing(), hint=_FIRST)
        return value

    def assign(self, value: Any) -> None:
        """Replace the value."""
        self.value = value

    def require_shape(self, value: Any) -> None:
        """Raise OpError unless a value has the shape of the current value."""
        current = self.value
        current_shape = (self.shape.dims or ()) if current is None else current.shape
        if current_shape != value.shape:
            raise OpError(
                f"Assign requires shapes of both tensors to match. "
                f"lhs shape= {Shape(current_shape)} rhs shape= {Shape(value.shape)}"
            )

    def copy(self) -> Variable:
        """An independent variable with the same value."""
        return self.with_value(self.value)

    def with_value(self, value: Any) -> Variable:
        """An independent variable with another value."""
        return Variable(
            self.dtype,
            self.shape,
            self.name,
            container=self.container,
            resource=self.resource,
            value=value,
        )

    def _missing(self) -> str:
        if self.resource:
            name = self.name or "without a name"
            return (
                f"Could not find variable {name}. This could mean that the variable has been "
                f"deleted, or that it is uninitialized."
            )
        return f"Attempting to use uninitialized value {self.name}"

    def __repr__(self) -> str:
        return f"<Variable {self.name!r} {self.dtype}{self.shape}>"


def find_variable(
    step: Any, container: str, name: str, make: Callable[[], Variable], dtype: DType
) -> Variable:
    """The session's variable of this name, created on first use.

    Raises OpError if the name belongs to another resource.
    """
    resource = step.resource(container, name, make)
    if not isinstance(resource, Variable) or resource.dtype is not dtype:
        raise OpError(
            f"Trying to access resource {name} as a variable of {dtype}, but it is {resource!r}"
        )
    return resource


class VariableV2(Op):
    """Reference to a variable that persists between runs."""

    signature = "-> ref: Ref(dtype)"
    attrs = "shape: shape, container: string = '', shared_name: string = ''"
    effects = SideEffects(stateful=True)

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype, shape = node.attr("dtype"), node.attr("shape")
        container = decode_key(node.attr("container"))
        name = decode_key(node.attr("shared_name")) or node.name

        def make() -> Variable:
            return Variable(dtype, shape, name, container=container)

        return lambda step: find_variable(step, container, name, make, dtype)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [context.attr("shape")]


class VariableV1(VariableV2, name="Variable"):
    """VariableV2 in its older form, in which shape [] stands for an unknown shape."""

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        shape: Shape = context.attr("shape")
        return [UNKNOWN_SHAPE if shape.rank == 0 else shape]


class TemporaryVariable(Op):
    """Reference to a variable of one iteration; its name is free again once it is destroyed."""

    signature = "-> ref: Ref(dtype)"
    attrs = "shape: shape, var_name: string = ''"
    effects = SideEffects(stateful=True, per_iteration=True)

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype, shape = node.attr("dtype"), node.attr("shape")
        name = decode_key(node.attr("var_name")) or node.name
        if not shape.is_full:
            raise OpError(f"TemporaryVariable needs a known shape, got {shape}")
        reserve_array([size or 0 for size in shape.dims or ()], dtype.numpy.itemsize)
        start = np.full(shape.dims or (), b"" if dtype.kind == "string" else 0, dtype.numpy)

        def create(step: Any) -> Variable:
            cell = Variable(dtype, shape, name, container=node.device, value=start)
            if not step.add_temporary(cell.container, name, cell):
                raise OpError(
                    f"Temporary variable {name!r} already exists",
                    hint="destroy it first (DestroyTemporaryVariable), or give it another var_name",
                )
            return cell

        return create

    shape = staticmethod(lambda context: [context.attr("shape")])


class DestroyTemporaryVariable(Op):
    """Final value of a temporary variable, which is destroyed."""

    signature = "ref: Ref(T) -> value: T"
    attrs = "var_name: string"
    effects = SideEffects(stateful=True, per_iteration=True)

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        name = decode_key(node.attr("var_name"))

        def destroy(step: Any, cell: Variable) -> Any:
            value = cell.value
            if not step.remove_temporary(cell.container, name, cell):
                other = f", but {cell.name!r}" if cell.name != name else " in this iteration"
                raise OpError(f"Temporary variable {name!r} does not exist{other}")
            cell.value = None
            return value

        return destroy

    shape = staticmethod(lambda context: [context.inputs[0]])


class IsVariableInitialized(Op):
    """True if the variable has a value."""

    signature = "ref: Ref(dtype) -> is_initialized: bool"
    effects = SideEffects(stateful=True, reads_only=True)
    kernel = staticmethod(lambda xp, step, cell: np.bool_(cell.value is not None))
    shape = staticmethod(lambda context: [SCALAR_SHAPE])


class Assign(Op):
    """Assign a value to a variable; forwards the reference."""

    signature = "ref: Ref(T), value: T -> output_ref: Ref(T)"
    attrs = "validate_shape: bool = true, use_locking: bool = true"
    effects = SideEffects(stateful=True, initializes=True)
    gradient = staticmethod(no_gradient)

    @classmethod
    def changes_shape(cls, node: Node, shapes: Callable[[Output], Shape]) -> bool:
        declared, value = map(shapes, node.inputs)
        return not node.attr("validate_shape") and not (value.is_full and value == declared)

    @staticmethod
    def kernel(
        xp: ModuleType, validate_shape: bool, /, step: Any, cell: Variable, value: Any
    ) -> Variable:
        if validate_shape:
            cell.require_shape(value)
        cell.assign(value)
        return cell

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        if context.attr("validate_shape"):
            return [context.inputs[0].merge(context.inputs[1])]
        return [context.inputs[1]]


class AssignUpdateOp(Op, abstract=True):
    """Assign `combine(value, operand)` to a variable; forwards the reference."""

    signature = "ref: Ref(T), value: T -> output_ref: Ref(T)"
    attrs = f"T: {NUMERIC}, use_locking: bool = false"
    effects = SideEffects(stateful=True)
    gradient = staticmethod(no_gradient)
    combine: ClassVar[Callable[[Any, Any], Any]]

    @classmethod
    def kernel(cls, xp: ModuleType, step: Any, cell: Variable, value: Any) -> Variable:
        current = cell.read()
        if current.shape != value.shape:
            raise OpError(
                f"lhs and rhs must have the same shape, "
                f"not {Shape(current.shape)} and {Shape(value.shape)}"
            )
        cell.value = cls.combine(current, value)
        return cell

    shape = staticmethod(lambda context: [context.inputs[0].merge(context.inputs[1])])


class AssignAdd(AssignUpdateOp):
    """Add to a variable; forwards the reference."""

    combine = operator.add


class AssignSub(AssignUpdateOp):
    """Subtract from a variable; forwards the reference."""

    combine = operator.sub


class CountUpTo(Op):
    """Increment a variable and return its previous value; an error at the limit."""

    signature = "ref: Ref(T) -> output: T"
    attrs = "limit: int, T: {int32, int64}"
    effects = SideEffects(stateful=True)

    @staticmethod
    def kernel(xp: ModuleType, limit: int, /, step: Any, cell: Variable) -> Any:
        value = cell.read()
        if value.shape != ():
            raise OpError(f"The value must be a scalar, not of shape {Shape(value.shape)}")
        if value >= limit:
            raise OpError(f"Reached limit of {limit}")
        cell.value = value + value.dtype.type(1)
        return value

    shape = staticmethod(lambda context: [SCALAR_SHAPE])
