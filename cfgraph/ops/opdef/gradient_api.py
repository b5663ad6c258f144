"""The interface of gradient functions to the graph that they add nodes to.

A gradient hook is `gradient(g, node, *grads)`: `grads[i]` is the gradient of output i, or None
if none arrived. It adds nodes through `g` and returns one entry per input: an Output; a function
that makes it, called only if that gradient is needed; or None for no gradient. The result must be
live whenever the incoming gradients are, so it depends on one of them.

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        x, y = node.inputs
        return lambda: g.Mul(dz, y), lambda: g.Mul(dz, x)

The inputs and outputs of `node` can be used directly: if the gradient runs in another loop than
the node, `g` saves and restores their values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from cfgraph.errors import Unsupported
from cfgraph.ir import dtypes, registry
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import Shape

InputGradient = Output | Callable[[], Output | None] | None
InputGradients = Sequence[InputGradient]


class GradientBuilder(Protocol):
    """Where gradients are added. `g.Mul(x, y, name="dx")` adds a node and gives its output 0.

    Inputs are outputs of the node that is differentiated, its inputs, what `g` made before, or
    numbers, which become constants of the type of the first tensor among the inputs. Attributes
    are keywords; types and counts are inferred. `source` names this computation of gradients
    among others of the same graph (TensorArrayGradV3 wants that).
    """

    source: str

    def __getattr__(self, op: str) -> Callable[..., Output]: ...

    def const(self, value: Any, dtype: DType) -> Output:
        """A constant."""

    def with_control_deps(self, x: Output, *deps: Output) -> Output:
        """A tensor, unchanged, once the others are computed too."""

    def shape(self, x: Output, dtype: DType = dtypes.int32) -> Output:
        """The shape of a tensor as a vector; a constant where it is known before the run.

        Of a tensor that is not known, only the shape is saved for the gradient, not the tensor.
        """

    def known_shape(self, x: Output) -> Shape:
        """What is known of a tensor's shape before the run."""

    def known_value(self, x: Output) -> Any | None:
        """The value of a tensor as an array where it is known before the run, else None."""

    def zeros_like(self, x: Output) -> Output:
        """Zeros of the shape and type of a tensor; of a resource, those of its variable."""


def zero_gradient(g: GradientBuilder, node: Node, *grads: Output | None) -> InputGradients:
    """The gradient of an op that is flat almost everywhere: it is zero."""
    return [None] * len(node.inputs)


def no_gradient(g: GradientBuilder, node: Node, *grads: Output | None) -> InputGradients:
    """The gradient of an op that stops gradients: what it reads counts as unconnected."""
    return [None] * len(node.inputs)


def identity_gradient(g: GradientBuilder, node: Node, *grads: Output | None) -> InputGradients:
    """The gradient of an op that hands its inputs on: that of output i for input i."""
    return grads


def not_differentiable(node: Node, slot: int) -> Callable[[], Output]:
    """The gradient by an input, by which there is a derivative, but no formula for it."""

    def refuse() -> Output:
        message = f"{node.op} has no gradient by its input {slot}"
        hint = f"stop gradients before it (--stop {node.inputs[slot].name})"
        raise Unsupported(message, node=node, hint=hint, code="CFG502")

    return refuse


def same_attrs(g: GradientBuilder, op: str, node: Node, *inputs: Output) -> Output:
    """Another op with the attributes that it shares with a node; its types are inferred.

    Raises Unsupported where the op does not take them.
    """
    mine, theirs = registry.lookup(node.op), registry.lookup(op)
    assert mine is not None
    assert theirs is not None
    known, attrs = mine.parsed().attrs, theirs.parsed().attrs.items()
    given = {key: node.attr(key) for key, attr in attrs if key in known and attr.kind != "type"}
    made: Output = getattr(g, op)(*inputs, **given)
    for key, attr in attrs:
        value = made.node.attr(key)
        if attr.allowed and attr.kind in ("type", "string") and value not in attr.allowed:
            shown = value.decode() if isinstance(value, bytes) else value
            message = f"its gradient is a {op}, which there is not with {key} {shown}"
            raise Unsupported(message, node=node, code="CFG502")
    return made


def reject_gradients(node: Node, others: Sequence[Output | None], what: str) -> None:
    """Refuse gradients of outputs through which none comes back. Raises Unsupported."""
    if any(others):
        message = f"there is no gradient through {what}"
        raise Unsupported(message, node=node, code="CFG502")


def conjugate(g: GradientBuilder, x: Output) -> Output:
    """The complex conjugate; a real tensor as it is."""
    dtype = x.dtype
    return g.Conj(x) if dtype is not None and dtype.is_complex else x


def row_shape(g: GradientBuilder, x: Output) -> Output:
    """The shape of the slices of a tensor along its first axis."""
    known = g.known_shape(x)[1:]
    if known.is_full:
        return g.const(list(known), dtypes.int32)
    return g.Slice(g.shape(x), g.const([1], dtypes.int32), g.const([-1], dtypes.int32))


def int32_constant(g: GradientBuilder, value: Any) -> Output:
    """A constant of type int32, such as axes and sizes are."""
    return g.const(value, dtypes.int32)


def sum_all(g: GradientBuilder, x: Output) -> Output:
    """The sum of all elements."""
    rank = g.known_shape(x).rank
    if rank is None:
        rank, x = 1, g.Reshape(x, int32_constant(g, [-1]))
    return g.Sum(x, int32_constant(g, range(rank))) if rank else x


def sum_to_shape(g: GradientBuilder, dz: Output, x: Output, y: Output, fixed: int = 0) -> Output:
    """`dz`, of the shape that x and y broadcast to, summed to the shape of x.

    The last `fixed` axes do not broadcast.
    """
    if x == y:
        return dz
    mine, theirs = _leading_shape(g.known_shape(x), fixed), _leading_shape(g.known_shape(y), fixed)
    if mine == theirs and mine.is_full:
        return dz
    known = _repeated_axes(mine, theirs)
    if known is None:
        # one node for both inputs, whichever comes first
        first, second = sorted((x, y), key=lambda item: item.name)
        sizes = [_leading_sizes(g, item, fixed) for item in (first, second)]
        found = g.BroadcastGradientArgs(*sizes).node
        axes, missing = found.output(0 if x == first else 1), -1
    elif known:
        missing = max((theirs.rank or 0) - (mine.rank or 0), 0)
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
    begin, end, step = (int32_constant(g, [item]) for item in (0, -fixed, 1))
    return g.StridedSlice(g.shape(x), begin, end, step, begin_mask=1)


def _repeated_axes(mine: Shape, theirs: Shape) -> list[int] | None:
    """The axes of the broadcast along which `mine` is repeated; None if that is not known."""
    if mine.dims is None or theirs.dims is None:
        return None
    missing = max(len(theirs.dims) - len(mine.dims), 0)
    padded = [*[1] * missing, *mine.dims]
    against = [*[1] * (len(mine.dims) - len(theirs.dims)), *theirs.dims]
    axes = list(range(missing))
    for axis in range(missing, len(padded)):
        size, other = padded[axis], against[axis]
        if other == 1 or (size is not None and size != 1):
            continue
        if size is None or other is None:
            return None
        axes.append(axis)
    return axes
