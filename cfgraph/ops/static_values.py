"""Static values: constants, and small integers computed from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import Shape
from cfgraph.ops.families.cast import Cast
from cfgraph.ops.families.constants import Const, PlaceholderWithDefault
from cfgraph.ops.families.reshape import Rank, Size
from cfgraph.ops.opdef.op import Op, lookup

# limits in elements for decoding a constant, computing a result, and tracking single elements:
# shapes and axes are smaller, and inference remains linear
_LARGEST_CONSTANT: Final = 1024
_LARGEST_RESULT: Final = 64
_LARGEST_PARTIAL: Final = 8


class PartialArray(NamedTuple):
    """A value. If `known` is an array, only the elements that it marks are known."""

    array: Any
    known: Any | None = None


class EncodedConstant(NamedTuple):
    """A constant that is decoded on demand."""

    tensor: TensorValue


StaticValue = PartialArray | EncodedConstant | None


def decode_value(value: StaticValue) -> PartialArray | None:
    """Decode a constant; any other value unchanged."""
    return (
        PartialArray(np.asarray(value.tensor.array))
        if isinstance(value, EncodedConstant)
        else value
    )


def join_values(first: StaticValue, second: StaticValue) -> StaticValue:
    """The elements on which two values agree, or None."""
    if first is second or first is None or second is None:
        return first if first is second else None
    a, b = decode_value(first), decode_value(second)
    if a is None or b is None or a.array.shape != b.array.shape or a.array.dtype != b.array.dtype:
        return None
    same = np.asarray(a.array == b.array)
    if a.known is not None or b.known is not None:
        same = same & _known_mask(a) & _known_mask(b)
    if same.all():
        return a
    partial = a.array.dtype.kind in "iu" and a.array.ndim == 1 and same.size <= _LARGEST_PARTIAL
    return PartialArray(a.array, same) if partial and same.any() else None


def same_value(first: StaticValue, second: StaticValue) -> bool:
    """True if two values have the same known elements."""
    if first is second or first is None or second is None:
        return first is second
    a, b = decode_value(first), decode_value(second)
    if a is b or a is None or b is None:
        return a is b
    is_whole = a.known is None and b.known is None
    same_elements = is_whole or np.array_equal(_known_mask(a), _known_mask(b))
    return same_elements and np.array_equal(a.array, b.array)


def _known_mask(value: PartialArray) -> Any:
    return np.ones(value.array.shape, bool) if value.known is None else value.known


def infer_values(
    node: Node, inputs: Sequence[Shape], values: Sequence[StaticValue], outputs: Sequence[Shape]
) -> Sequence[StaticValue]:
    """Infer the static values of outputs from the static values of inputs."""
    op = lookup(node.op)
    nothing = [None] * len(outputs)
    if op is None:
        return nothing
    if issubclass(op, Const):
        tensor = node.attrs.get("value")
        size = tensor.shape.elements if isinstance(tensor, TensorValue) else None
        small = size is not None and size <= _LARGEST_CONSTANT
        return [EncodedConstant(tensor)] if small and isinstance(tensor, TensorValue) else nothing
    if op.algebra.shape_only:
        return [_shape_op_value(op, shape, node) for shape in inputs[: len(outputs)]]
    missing = None in values
    if missing and (not op.aliasing.preserves_elements or all(value is None for value in values)):
        return nothing
    if not _is_foldable(op, node, outputs):
        return nothing
    if missing:
        values = _fill_unknown(op, node, inputs, values)
        if any(value is None for value in values):
            return nothing
    return _fold(op, node, values) or nothing


def _fill_unknown(
    op: type[Op], node: Node, inputs: Sequence[Shape], values: Sequence[StaticValue]
) -> Sequence[StaticValue]:
    """Replace unknown small inputs of an element-preserving op by arrays without known elements."""
    dtype = node.output_types or []
    moved = _preserved_slots(op, node)
    return [
        _unknown_elements(shape, dtype[0].numpy) if value is None and slot in moved else value
        for slot, (shape, value) in enumerate(zip(inputs, values, strict=True))
    ]


def _unknown_elements(shape: Shape, dtype: Any) -> StaticValue:
    size = shape.elements
    if shape.dims is None or size is None or size > _LARGEST_PARTIAL:
        return None
    return PartialArray(np.zeros(shape.dims, dtype), np.zeros(shape.dims, bool))


def _shape_op_value(op: type[Op], shape: Shape, node: Node) -> StaticValue:
    """The value of Shape, Size, or Rank, as far as the shape is known."""
    if shape.dims is None:
        return None
    dtype = np.int32 if issubclass(op, Rank) else node.attr("out_type").numpy
    if issubclass(op, Rank):
        return PartialArray(np.array(len(shape.dims), dtype))
    if issubclass(op, Size):
        size = shape.elements
        return (
            None
            if size is None or size > np.iinfo(dtype).max
            else PartialArray(np.array(size, dtype))
        )
    if any(dim is not None and dim > np.iinfo(dtype).max for dim in shape.dims):
        return None
    array = np.array([dim or 0 for dim in shape.dims], dtype)
    if shape.is_full:
        return PartialArray(array)
    if len(shape.dims) > _LARGEST_PARTIAL:
        return None
    return PartialArray(array, np.array([dim is not None for dim in shape.dims], bool))


def _is_foldable(op: type[Op], node: Node, outputs: Sequence[Shape]) -> bool:
    """True for a pure, deterministic op with few integer outputs."""
    pure = not (op.effects.stateful or op.effects.random or op.role) and op.compilation.runnable
    if not pure or not node.inputs or issubclass(op, PlaceholderWithDefault):
        return False
    if any(shape.elements is None or shape.elements > _LARGEST_RESULT for shape in outputs):
        return False
    types = node.output_types
    return bool(types) and all(t.kind in ("int", "uint", "bool") for t in types or ())


def _fold(op: type[Op], node: Node, values: Sequence[StaticValue]) -> list[StaticValue] | None:
    whole = [decode_value(value) for value in values]
    if any(item is None or item.array.size > _LARGEST_RESULT for item in whole):
        return None
    arrays = [item.array for item in whole if item is not None]
    masks = [None if item is None else item.known for item in whole]
    if all(mask is None for mask in masks):
        folded = run_kernel(op, node, arrays)
        return None if folded is None else [PartialArray(array) for array in folded]
    if not op.aliasing.preserves_elements:
        return _fold_cast(op, node, arrays[0], masks[0])
    moved = _preserved_slots(op, node)
    if any(mask is not None and slot not in moved for slot, mask in enumerate(masks)):
        return None
    # the op moves the marks of known elements as it moves the elements
    marks = [
        array
        if slot not in moved
        else np.ones_like(array)
        if mask is None
        else mask.astype(array.dtype)
        for slot, (array, mask) in enumerate(zip(arrays, masks, strict=True))
    ]
    folded, known = run_kernel(op, node, arrays), run_kernel(op, node, marks)
    if folded is None or known is None:
        return None
    return [_partial_value(array, mark != 0) for array, mark in zip(folded, known, strict=True)]


def _partial_value(array: Any, known: Any) -> StaticValue:
    if known.all():
        return PartialArray(array)
    return PartialArray(array, known) if known.any() and array.ndim <= 1 else None


def _fold_cast(op: type[Op], node: Node, array: Any, known: Any) -> list[StaticValue] | None:
    """Fold a cast between integer types, which preserves sizes and so known elements."""
    if not issubclass(op, Cast) or array.dtype.kind not in "iu":
        return None
    folded = run_kernel(op, node, [array])
    if folded is None or folded[0].dtype.kind not in "iu":
        return None
    return [PartialArray(folded[0], known)]


def _preserved_slots(op: type[Op], node: Node) -> set[int]:
    """The input slots whose elements the outputs consist of."""
    signature, slots, slot = op.parsed(), set[int](), 0
    for arg in signature.inputs:
        count = len(signature.arg_types(arg, node.attrs))
        if arg.type_attr == signature.outputs[0].type_attr and arg.type_attr is not None:
            slots.update(range(slot, slot + count))
        slot += count
    return slots


def run_kernel(op: type[Op], node: Node, arrays: Sequence[Any]) -> list[Any] | None:
    """The outputs of a node for known inputs, as arrays of NumPy; None if the kernel fails."""
    try:
        with np.errstate(all="ignore"):
            result = op.bind(node, np)(*arrays)
    except Exception:
        # unknown; the run reports the error
        return None
    outputs = result if isinstance(result, tuple) else (result,)
    if any(not isinstance(item, np.ndarray | np.generic) for item in outputs):
        return None
    return [np.asarray(item) for item in outputs]
