"""Strided slices, their gradient, and assignment to them."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir import dtypes
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape, ShapeError
from cfgraph.limits import reserve_array
from cfgraph.ops.families.constants import Const
from cfgraph.ops.kernels.array_namespace import defer_check, filled, updated_at
from cfgraph.ops.kernels.variant_math import unwrap_scalar_object
from cfgraph.ops.opdef.batching import BatchBuilder
from cfgraph.ops.opdef.facts import AlgebraicFacts, Aliasing, SideEffects
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradients, sum_to_shape
from cfgraph.ops.opdef.op import Kernel, Op, OpError, SameShape, is_a, knows_values
from cfgraph.ops.opdef.shape_functions import InferenceContext, require_rank

_MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
MASKS = ", ".join(f"{mask}: int = 0" for mask in _MASKS)


def _slice_masks(node: Node) -> dict[str, int]:
    return {mask: node.attr(mask) for mask in _MASKS}


def _batched_bounds(
    g: BatchBuilder, node: Node, slot: int
) -> tuple[Sequence[Output], dict[str, int]]:
    """Begin, end, and strides, which start at a slot, and masks: the slice in each row."""
    bounds = [g.prefixed(slot + place, number) for place, number in enumerate((0, 0, 1))]
    whole = ("begin_mask", "end_mask")
    return bounds, {name: bits << 1 | (name in whole) for name, bits in _slice_masks(node).items()}


class StridedSliceMasks:
    """The five bit masks of a strided slice, read from a node's attributes."""

    __slots__ = ("begin", "ellipsis", "end", "new_axis", "shrink")

    def __init__(self, attr: Any) -> None:
        self.begin: int = attr("begin_mask")
        self.end: int = attr("end_mask")
        self.ellipsis: int = attr("ellipsis_mask")
        self.new_axis: int = attr("new_axis_mask")
        self.shrink: int = attr("shrink_axis_mask")

    def index(
        self,
        begin: Sequence[int | None] | None,
        end: Sequence[int | None] | None,
        strides: Sequence[int],
    ) -> tuple[Any, ...]:
        """The equivalent NumPy index. Raises OpError for an invalid specification.

        Unknown bounds become None in a slice and -1 as an index.
        """
        if self.ellipsis & (self.ellipsis - 1):
            raise OpError("Multiple ellipses in slice spec not allowed")
        return tuple(
            self._index_entry(position, begin, end, strides) for position in range(len(strides))
        )

    def _index_entry(
        self,
        position: int,
        begin: Sequence[int | None] | None,
        end: Sequence[int | None] | None,
        strides: Sequence[int],
    ) -> Any:
        bit = 1 << position
        if self.ellipsis & bit:
            return Ellipsis
        if self.new_axis & bit:
            return None
        stride = strides[position]
        if stride == 0:
            raise OpError(f"strides[{position}] must be non-zero")
        start = begin[position] if begin is not None else None
        if self.shrink & bit:
            if stride < 0:
                raise OpError("only stride 1 allowed on non-range indexing.")
            return -1 if start is None else start
        stop = end[position] if end is not None else None
        return slice(None if self.begin & bit else start, None if self.end & bit else stop, stride)

    def selects_elements(self, count: int) -> bool:
        """True if each of `count` dimensions is complete or replaced by one element of it."""
        whole = self.begin & self.end
        return not ~(self.ellipsis | self.new_axis | self.shrink | whole) & ((1 << count) - 1)

    def traced_index(
        self, xp: ModuleType, begin: Any, strides: Any, shape: Sequence[int]
    ) -> tuple[Any, ...]:
        """The index of elements that are selected by traced numbers, which are checked later."""
        entries = list(self.index(None, None, strides.tolist()))
        used = sum(entry is not None and entry is not Ellipsis for entry in entries)
        axis = 0
        for position, entry in enumerate(entries):
            if entry is Ellipsis:
                axis += len(shape) - used
            elif entry is not None:
                if not isinstance(entry, slice):
                    entries[position] = _checked_position(xp, begin[position], shape[axis])
                axis += 1
        return tuple(entries)


def _checked_position(xp: ModuleType, position: Any, size: int) -> Any:
    """A traced position in a dimension, from its end if negative."""
    position = xp.where(position < 0, position + size, position)
    defer_check(lambda: (position >= 0) & (position < size))
    return xp.clip(position, 0, max(size - 1, 0))


def cached_strided_index(masks: StridedSliceMasks) -> Any:
    """A function from begin, end, and strides to the index, which caches the last result.

    In most graphs these inputs are constants or change only with the loop variable.
    """
    last: tuple[Any, tuple[Any, ...]] = (None, ())

    def index(begin: Any, end: Any, strides: Any) -> tuple[Any, ...]:
        nonlocal last
        key = begin.tolist(), end.tolist(), strides.tolist()
        known = last
        if key == known[0]:
            return known[1]
        if begin.ndim != 1 or begin.shape != end.shape or begin.shape != strides.shape:
            raise OpError(
                "Expected begin, end, and strides to be 1D equal size tensors, but got shapes "
                f"{list(begin.shape)}, {list(end.shape)}, and {list(strides.shape)} instead."
            )
        made = masks.index(*key)
        last = key, made
        return made

    return index


class StridedSlice(Op):
    """Strided slice as in `input[begin:end:strides]`, with masks for `:`, `...`, and new axes."""

    signature = "input: T, begin: const Index, end: const Index, strides: const Index -> output: T"
    attrs = f"Index: {{int16, int32, int64}}, {MASKS}"
    aliasing = Aliasing(preserves_elements=True, reads_region=True)
    algebra = AlgebraicFacts(product_role="slices")

    @staticmethod
    def batching(g: BatchBuilder, node: Node) -> Output:
        bounds, masks = _batched_bounds(g, node, 1)
        return g.copy(node, g.value(0), *bounds, **masks)

    @classmethod
    def equal_input(cls, context: InferenceContext) -> int | None:
        masks = StridedSliceMasks(context.attr)
        strides = context.value(3)
        reorders = strides is None or not (strides == 1).all() or masks.new_axis or masks.shrink
        whole = not reorders and knows_values(context, 1) and cls.keeps_static_shape(context)
        return 0 if whole else None

    @classmethod
    def constant_slots(cls, node: Node) -> frozenset[int]:
        strides = node.inputs[3].node
        if is_a(strides, Const):
            count = strides.attr("value").array.size
            if StridedSliceMasks(node.attr).selects_elements(count):
                return frozenset((3,))
        return super().constant_slots(node)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        masks, is_object = StridedSliceMasks(node.attr), node.attr("T").is_object
        index = cached_strided_index(masks)

        def strided_slice(value: Any, begin: Any, end: Any, strides: Any) -> Any:
            where = index(begin, end, strides)
            try:
                return value[where]
            except IndexError:
                raise OpError(_out_of_bounds(value, where)) from None

        def index_objects(value: Any, begin: Any, end: Any, strides: Any) -> Any:
            # an index of integers only would return the element instead of an array
            where = index(begin, end, strides)
            try:
                return unwrap_scalar_object(value[where if Ellipsis in where else (*where, ...)])
            except IndexError:
                raise OpError(_out_of_bounds(value, where)) from None

        def traced_slice(value: Any, begin: Any, end: Any, strides: Any) -> Any:
            if isinstance(begin, np.ndarray) and isinstance(end, np.ndarray):
                return _sliced(value, index(begin, end, strides))
            if not masks.selects_elements(strides.size):
                raise OpError("begin and end of a traced slice must be constant")
            return value[masks.traced_index(xp, begin, strides, value.shape)]

        if xp.__name__ == "jax.numpy":
            return traced_slice
        return index_objects if is_object else strided_slice

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        data, strides = context.inputs[0], context.value(3)
        bounds = require_rank(
            context.inputs[1].merge(context.inputs[2]).merge(context.inputs[3]), 1
        )
        count = bounds.dims[0] if bounds.dims else None
        if data.dims is None or count is None:
            return [UNKNOWN_SHAPE]
        known = [context.value(slot) for slot in (1, 2)]
        begin, end = (None if value is None else value.tolist() for value in known)
        steps = [1] * count if strides is None else strides.tolist()
        try:
            index = StridedSliceMasks(context.attr).index(begin, end, steps)
            sized = _static_slice_shape(
                data, index, begin, end, StridedSliceMasks(context.attr), strides is not None
            )
        except OpError as error:
            raise ShapeError(str(error)) from None
        return [sized]

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        x, begin, end, strides = node.inputs
        sizes = g.shape(x, begin.dtype or dtypes.int32)
        dx = g.StridedSliceGrad(sizes, begin, end, strides, dz, **_slice_masks(node))
        return dx, None, None, None


def _sliced(value: Any, index: tuple[Any, ...]) -> Any:
    """The slice of a value. Raises OpError for an index out of bounds."""
    full_index = index if Ellipsis in index else (*index, ...)
    try:
        if hasattr(value, "at"):  # jax would move the index to the next element
            np.broadcast_to(np.False_, value.shape)[full_index]
        return value[full_index]
    except IndexError:
        raise OpError(_out_of_bounds(value, index)) from None


def _out_of_bounds(value: Any, index: tuple[Any, ...]) -> str:
    used = sum(entry is not None and entry is not Ellipsis for entry in index)
    if used > value.ndim:
        return f"Index out of range using input dim {value.ndim}; input has only {value.ndim} dims"
    return f"slice index {_format_index(index)} out of bounds for shape {list(value.shape)}"


def _format_index(index: tuple[Any, ...]) -> str:
    return ", ".join(
        "..." if entry is Ellipsis else "newaxis" if entry is None else _format_index_entry(entry)
        for entry in index
    )


def _format_index_entry(entry: Any) -> str:
    if not isinstance(entry, slice):
        return str(entry)
    bounds = ["" if bound is None else str(bound) for bound in (entry.start, entry.stop)]
    return ":".join(bounds if entry.step == 1 else [*bounds, str(entry.step)])


def _static_slice_shape(
    data: Shape,
    index: tuple[Any, ...],
    begin: Any,
    end: Any,
    masks: StridedSliceMasks,
    strides_known: bool,
) -> Shape:
    """Shape of the slice; sizes are unknown if a bound is."""
    used = sum(entry is not None and entry is not Ellipsis for entry in index)
    dims, axis, result = list(data), 0, list[int | None]()
    if used > len(dims):
        raise ShapeError(f"{used} dimensions are sliced, the tensor has {len(dims)}")
    spread = len(dims) - used
    for position, entry in enumerate(index):
        if entry is Ellipsis:
            result += dims[axis : axis + spread]
            axis += spread
            continue
        if entry is None:
            result.append(1)
            continue
        size, bit = dims[axis], 1 << position
        axis += 1
        if not isinstance(entry, slice):
            if begin is not None and size is not None and not -size <= entry < size:
                raise ShapeError(f"index {entry} is out of bounds for a dimension of size {size}")
            continue
        bounded = (begin is not None or masks.begin & bit) and (end is not None or masks.end & bit)
        result.append(_static_strided_size(size, entry) if bounded and strides_known else None)
    return Shape(result + dims[axis:])


def _static_strided_size(size: int | None, entry: slice) -> int | None:
    if size is not None:
        return len(range(*entry.indices(size)))
    if entry.step == 1 and entry.start in (None, 0) and entry.stop == 0:
        return 0
    return None


def _slice_index(node: Node) -> Any:
    """A function from begin, end, and strides to the index of the slice of a node."""
    return cached_strided_index(StridedSliceMasks(node.attr))


class StridedSliceGrad(Op):
    """Gradient of StridedSlice: `dy` at the position of the slice in a tensor of zeros."""

    signature = (
        "shape: const Index, begin: const Index, end: const Index, strides: const Index, dy: T "
        "-> output: T"
    )
    attrs = f"Index: {{int32, int64}}, {MASKS}"

    @staticmethod
    def batching(g: BatchBuilder, node: Node) -> Output:
        bounds, masks = _batched_bounds(g, node, 1)
        return g.copy(node, g.prefixed(0), *bounds, g.value(4), **masks)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        index, dtype = _slice_index(node), node.attr("T")
        fill = b"" if dtype.is_object else 0

        def strided_slice_grad(shape: Any, begin: Any, end: Any, strides: Any, dy: Any) -> Any:
            if shape.ndim != 1:
                raise OpError(f"shape must be 1-D, got shape {list(shape.shape)}")
            sizes = tuple(shape.tolist())
            reserve_array(sizes, dtype.numpy.itemsize)
            zeros = filled(xp, sizes, fill, dtype.numpy)
            return _update_slice(zeros, index(begin, end, strides), dy, "dy")

        return strided_slice_grad

    shape = staticmethod(lambda context: [context.shape_value(0)])

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        return None, None, None, None, g.StridedSlice(dz, *node.inputs[1:4], **_slice_masks(node))


def _update_slice(target: Any, index: tuple[Any, ...], piece: Any, name: str) -> Any:
    index = index if Ellipsis in index else (*index, ...)
    expected = _sliced(target, index).shape
    if piece.shape != expected:
        raise OpError(f"shape of {name} was {list(piece.shape)} instead of {list(expected)}")
    return updated_at(target, index, piece)


def updated_slice(xp: ModuleType, target: Any, index: tuple[Any, ...], value: Any) -> Any:
    """A copy of `whole` with `value` broadcast into a slice.

    Raises OpError if the slice does not exist or the value does not fit.
    """
    full_index = index if Ellipsis in index else (*index, ...)
    expected = _sliced(target, index).shape
    if 0 in expected:
        return target
    if value.shape != expected:
        try:
            value = xp.broadcast_to(value, expected)
        except ValueError:
            message = f"cannot assign a value of shape {list(value.shape)} to {list(expected)}"
            raise OpError(message) from None
    return updated_at(target, full_index, value)


class TensorStridedSliceUpdate(SameShape):
    """Copy of a tensor with a strided slice replaced."""

    signature = (
        "input: T, begin: const Index, end: const Index, strides: const Index, value: T "
        "-> output: T"
    )
    attrs = f"Index: {{int32, int64}}, {MASKS}"
    index = _slice_index

    @staticmethod
    def kernel(
        xp: ModuleType,
        index: Kernel,
        /,
        target: Any,
        begin: Any,
        end: Any,
        strides: Any,
        value: Any,
    ) -> Any:
        return updated_slice(xp, target, index(begin, end, strides), value)

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        bounds, value, masks = node.inputs[1:4], node.inputs[4], _slice_masks(node)

        def value_gradient() -> Output:
            piece = g.StridedSlice(dz, *bounds, **masks)
            return sum_to_shape(g, piece, value, piece)

        def input_gradient() -> Output:
            return g.TensorStridedSliceUpdate(dz, *bounds, g.zeros_like(value), **masks)

        return input_gradient, None, None, None, value_gradient


class SliceAssignOp(Op, abstract=True):
    """Assignment to a strided slice of a variable."""

    attrs = f"Index: {{int32, int64}}, {MASKS}"
    effects = SideEffects(stateful=True)
    index = _slice_index

    @classmethod
    def kernel(cls, xp: ModuleType, index: Kernel, /, step: Any, cell: Any, *inputs: Any) -> Any:
        *bounds, value = inputs
        cell.value = updated_slice(xp, cell.read(), index(*bounds), value)
        return cell if cls.parsed().outputs else None


class StridedSliceAssign(SliceAssignOp):
    """Assign to a strided slice of a reference variable; forwards the reference."""

    signature = (
        "ref: Ref(T), begin: host Index, end: host Index, strides: host Index, value: T "
        "-> output_ref: Ref(T)"
    )
    shape = staticmethod(lambda context: [context.inputs[0]])


class ResourceStridedSliceAssign(SliceAssignOp):
    """Assign to a strided slice of a resource variable."""

    signature = (
        "ref: resource, begin: host Index, end: host Index, strides: host Index, value: T ->"
    )
