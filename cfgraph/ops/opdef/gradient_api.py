"""Interface of gradient functions to the graph that they extend.

A gradient hook is `gradient(g, node, *grads)`: `grads[i]` is the gradient of output i, or None
if there is none. It adds nodes through `g` and returns one entry per input: an Output; a function
that creates it, called only if that gradient is needed; or None for no gradient. The result must be
live whenever the incoming gradients are, so it depends on one of them.

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        x, y = node.inputs
        return lambda: g.Mul(dz, y), lambda: g.Mul(dz, x)

The inputs and outputs of `node` can be used directly: if the gradient runs in a different loop from
the node, `g` saves and restores their values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from cfgraph.errors import Unsupported
from cfgraph.ir import dtypes, registry
from cfgraph.ir.dtypes import DType, bfloat16, float16, float32
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.names import decode_text
from cfgraph.ir.shapes import Shape
from cfgraph.ir.signature import AttrDef

InputGradient = Output | Callable[[], Output | None] | None
InputGradients = Sequence[InputGradient]


class GradientBuilder(Protocol):
    """Builder of gradient nodes. `g.Mul(x, y, name="dx")` adds a node and returns its output 0.

    Inputs are inputs or outputs of the differentiated node, tensors that `g` created, or numbers,
    which become constants of the type of the first tensor among the inputs. Attributes are
    keywords; types and counts are inferred. `source` identifies one computation of gradients among
    several in the same graph, as TensorArrayGradV3 requires.
    """

    source: str

    def __getattr__(self, op: str) -> Callable[..., Output]: ...

    def const(self, value: Any, dtype: DType) -> Output:
        """Add a constant."""

    def with_control_deps(self, x: Output, *deps: Output) -> Output:
        """An identity of `x` with control dependencies."""

    def shape(self, x: Output, dtype: DType = dtypes.int32) -> Output:
        """The shape of a tensor as a vector; a constant if it is static.

        For a dynamic shape, the gradient saves only the shape, not the tensor.
        """

    def known_shape(self, x: Output) -> Shape:
        """The static shape of a tensor."""

    def have_equal_shapes(self, x: Output, y: Output) -> bool:
        """True if two inputs or outputs of a node have the same shape in every run."""

    def known_value(self, x: Output) -> Any | None:
        """The static value of a tensor as an array, or None."""

    def zeros_like(self, x: Output) -> Output:
        """Zeros of the shape and type of a tensor, or of the variable of a resource."""


def zero_gradient(g: GradientBuilder, node: Node, *grads: Output | None) -> InputGradients:
    """Gradient of a function that is constant almost everywhere: zero."""
    return [None] * len(node.inputs)


def no_gradient(g: GradientBuilder, node: Node, *grads: Output | None) -> InputGradients:
    """Gradient of an op that stops gradients: its inputs are treated as unconnected."""
    return [None] * len(node.inputs)


def identity_gradient(g: GradientBuilder, node: Node, *grads: Output | None) -> InputGradients:
    """Gradient of an identity: input i receives the gradient of output i."""
    return grads


def not_differentiable(node: Node, slot: int) -> Callable[[], Output]:
    """Reject, on use, a gradient that exists mathematically but has no formula."""

    def fail() -> Output:
        message = f"{node.op} has no gradient by its input {slot}"
        hint = f"stop gradients before it (--stop {node.inputs[slot].name})"
        raise Unsupported(message, node=node, hint=hint, code="CFG502")

    return fail


def same_attrs(g: GradientBuilder, op: str, node: Node, *inputs: Output) -> Output:
    """Add an op with the attributes that it shares with a node; types are inferred.

    Raises Unsupported if the op does not accept them.
    """
    source, target = registry.lookup(node.op), registry.lookup(op)
    assert source is not None
    assert target is not None
    known, attrs = source.parsed().attrs, target.parsed().attrs
    shared = [attr for key, attr in attrs.items() if key in known and attr.kind != "type"]
    values = {attr.name: _supported_attr(node, attr, op, node.attr(attr.name)) for attr in shared}
    made: Output = getattr(g, op)(*inputs, **values)
    for key, attr in attrs.items():
        if attr.kind == "type":
            _supported_attr(node, attr, op, made.node.attr(key))
    return made


def _supported_attr(node: Node, attr: AttrDef, op: str, value: Any) -> Any:
    """The value, for the gradient op of a node. Raises Unsupported if it does not accept it."""
    if attr.allowed and attr.kind in ("type", "string") and value not in attr.allowed:
        shown = decode_text(value) if isinstance(value, bytes) else value
        message = f"its gradient op {op} does not support {attr.name} {shown}"
        raise Unsupported(message, node=node, code="CFG502")
    return value


def reject_gradients(node: Node, others: Sequence[Output | None], what: str) -> None:
    """Reject gradients of outputs that do not propagate them. Raises Unsupported."""
    if any(others):
        raise Unsupported(f"there is no gradient through {what}", node=node, code="CFG502")


def conjugate(g: GradientBuilder, x: Output) -> Output:
    """The complex conjugate; a real tensor unchanged."""
    dtype = x.dtype
    return g.Conj(x) if dtype is not None and dtype.is_complex else x


def row_shape(g: GradientBuilder, x: Output) -> Output:
    """The shape of the slices of a tensor along its first axis."""
    known = g.known_shape(x)[1:]
    if known.is_full:
        return g.const(list(known), dtypes.int32)
    return g.Slice(g.shape(x), g.const([1], dtypes.int32), g.const([-1], dtypes.int32))


def int32_constant(g: GradientBuilder, value: Any) -> Output:
    """Add an int32 constant, the type of axes and sizes."""
    return g.const(value, dtypes.int32)


def dimension_size(g: GradientBuilder, x: Output, axis: int) -> Output:
    """The size of one dimension, as a scalar."""
    dims = g.known_shape(x).dims
    if dims is not None and dims[axis] is not None:
        return int32_constant(g, dims[axis])
    bounds = (int32_constant(g, [bound]) for bound in (axis, axis + 1, 1))
    return g.StridedSlice(g.shape(x), *bounds, shrink_axis_mask=1)


def sum_all(g: GradientBuilder, x: Output) -> Output:
    """The sum of all elements."""
    rank = g.known_shape(x).rank
    if rank is None:
        rank, x = 1, g.Reshape(x, int32_constant(g, [-1]))
    return g.Sum(x, int32_constant(g, range(rank))) if rank else x


def sum_to_shape(g: GradientBuilder, dz: Output, x: Output, y: Output, fixed: int = 0) -> Output:
    """Sum `dz`, of the shape that x and y broadcast to, to the shape of x.

    The last `fixed` axes do not broadcast.
    """
    if x == y:
        return dz
    return _sum_to_known_shape(g, dz, (x, g.known_shape(x)), (y, g.known_shape(y)), fixed)


ShapedOutput = tuple[Output, Shape]


def _sum_to_known_shape(
    g: GradientBuilder, dz: Output, target: ShapedOutput, partner: ShapedOutput, fixed: int = 0
) -> Output:
    """`sum_to_shape` for outputs with their static shapes."""
    (x, shape_x), (y, shape_y) = target, partner
    own, opposite = _leading_shape(shape_x, fixed), _leading_shape(shape_y, fixed)
    if (own == opposite and own.is_full) or g.have_equal_shapes(x, y):
        return dz
    known = _repeated_axes(own, opposite)
    if known is None:
        # one node for both inputs, regardless of their order
        first, second = sorted((x, y), key=lambda item: item.name)
        sizes = [_leading_sizes(g, item, fixed) for item in (first, second)]
        axes_node = g.BroadcastGradientArgs(*sizes).node
        axes, missing = axes_node.output(0 if x == first else 1), -1
    elif known:
        missing = max((opposite.rank or 0) - (own.rank or 0), 0)
        axes = g.const(known, dtypes.int32)
    else:
        return dz
    total = g.Sum(dz, axes)
    return total if known and len(known) == missing else g.Reshape(total, g.shape(x))


def _leading_shape(shape: Shape, fixed: int) -> Shape:
    return shape[:-fixed] if fixed else shape


def _leading_sizes(g: GradientBuilder, x: Output, fixed: int) -> Output:
    if not fixed:
        return g.shape(x)
    start, end, step = (int32_constant(g, [item]) for item in (0, -fixed, 1))
    return g.StridedSlice(g.shape(x), start, end, step, begin_mask=1)


def _repeated_axes(own: Shape, opposite: Shape) -> list[int] | None:
    """The axes along which broadcasting repeats the shape `own`, or None if not static."""
    if opposite.rank == 0:
        return []
    if own.dims is None or opposite.dims is None:
        return None
    missing = max(len(opposite.dims) - len(own.dims), 0)
    padded = [*[1] * missing, *own.dims]
    against = [*[1] * (len(own.dims) - len(opposite.dims)), *opposite.dims]
    axes = list(range(missing))
    for axis in range(missing, len(padded)):
        size, opposite_size = padded[axis], against[axis]
        if opposite_size == 1 or (size is not None and size != 1):
            continue
        if size is None or opposite_size is None:
            return None
        axes.append(axis)
    return axes


GradientFormula = Callable[[GradientBuilder, Output, Output], Output]
GradientFunction = Callable[[GradientBuilder, Node, Output], InputGradients]


def gradient_from_input(formula: GradientFormula) -> GradientFunction:
    """Gradient of a unary function from a formula of (g, dy, the conjugate of x)."""
    return staticmethod(lambda g, node, dy: [formula(g, dy, conjugate(g, node.inputs[0]))])


def gradient_from_inputs(formula: Callable[..., InputGradients]) -> GradientFunction:
    """Gradient of an op with one output from a formula of (g, dz, *inputs)."""
    return staticmethod(lambda g, node, dz: formula(g, dz, *node.inputs))


def gradient_from_output(formula: GradientFormula) -> GradientFunction:
    """Gradient of a unary function from a formula of (g, dy, the conjugate of y)."""
    return staticmethod(lambda g, node, dy: [formula(g, dy, conjugate(g, node.output()))])


def gradient_from_op(op: str) -> GradientFunction:
    """Gradient of a unary function by an op of y and dy, which conjugates y itself."""
    return staticmethod(lambda g, node, dy: [getattr(g, op)(node.output(), dy)])


def binary_gradients(
    g: GradientBuilder, node: Node, dx: Callable[[], Output], dy: Callable[[], Output]
) -> tuple[InputGradient, InputGradient]:
    """Sum the gradients of a broadcasting op to the shapes of its two inputs."""
    x, y = node.inputs
    if x == y:
        return dx, dy
    shape_x, shape_y = g.known_shape(x), g.known_shape(y)
    return (
        lambda: _sum_to_known_shape(g, dx(), (x, shape_x), (y, shape_y)),
        lambda: _sum_to_known_shape(g, dy(), (y, shape_y), (x, shape_x)),
    )


def select_gradient(
    g: GradientBuilder, dz: Output, condition: Output, *, negated: bool = False
) -> Output:
    """The gradient where a broadcast condition holds, and zeros elsewhere."""
    zero = constant_like(g, 0, dz)
    return g.SelectV2(condition, zero, dz) if negated else g.SelectV2(condition, dz, zero)


def constant_like(g: GradientBuilder, value: float, x: Output) -> Output:
    """A constant of the type of `x`."""
    assert x.dtype is not None
    return g.const(value, x.dtype.base)


def add_in_float32(g: GradientBuilder, op: str, *inputs: Output) -> Output:
    """Add an op that does not accept half-precision floats, with casts where needed."""
    dtype, make = inputs[0].dtype, getattr(g, op)
    if dtype not in (float16, bfloat16):
        made: Output = make(*inputs)
        return made
    return g.Cast(make(*(g.Cast(x, DstT=float32) for x in inputs)), DstT=dtype)
