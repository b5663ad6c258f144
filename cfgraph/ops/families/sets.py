"""Sets: the elements of the last dimension of dense or sparse tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, Final

import numpy as np

from cfgraph.ir.graph import Node
from cfgraph.ir.names import decode_text
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape, vector_shape
from cfgraph.limits import reserve_array
from cfgraph.ops.families.sparse_arithmetic import check_rising, check_sparse, row_keys
from cfgraph.ops.opdef.facts import HostPlacement
from cfgraph.ops.opdef.gradient_api import no_gradient
from cfgraph.ops.opdef.op import Kernel, Op, OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext, require_rank

_OPERATIONS: Final[Mapping[str, Callable[[set[Any], set[Any]], set[Any]]]] = {
    "a-b": lambda a, b: a - b,
    "b-a": lambda a, b: b - a,
    "intersection": lambda a, b: a & b,
    "union": lambda a, b: a | b,
}
_TYPES: Final = "T: {int8, int16, int32, int64, uint8, uint16, string}"
_RESULT: Final = "result_indices: int64, result_values: T, result_shape: int64"
Groups = dict[tuple[int, ...], set[Any]]
# bytes of an empty set and its place
_GROUP_BYTES: Final = 400


def dense_groups(values: Any) -> tuple[tuple[int, ...], Groups]:
    """The dimensions of the groups, and the set of each."""
    if values.ndim < 2:
        raise OpError(f"a set tensor must have at least rank 2, got {values.ndim}")
    sizes = values.shape[:-1]
    reserve_array(sizes, _GROUP_BYTES)
    return sizes, {place: set(values[place].tolist()) for place in np.ndindex(*sizes)}


def sparse_groups(
    indices: Any, values: Any, shape: Any, *, ordered: bool
) -> tuple[tuple[int, ...], Groups]:
    """The dimensions of the groups, and the set of each that is not empty."""
    sizes = check_sparse(indices, values, shape)
    if len(sizes) < 2:
        raise OpError(f"a set tensor must have at least rank 2, got {len(sizes)}")
    if ordered:
        check_rising(indices)
    groups: Groups = {}
    for row, value in zip(row_keys(indices), values.tolist(), strict=True):
        groups.setdefault(row[:-1], set()).add(value)
    return sizes[:-1], groups


class SetOperation(Op, abstract=True):
    """Difference, intersection, or union of the sets in two tensors, as a sparse tensor."""

    attrs = f"set_operation: string, validate_indices: bool = true, {_TYPES}"
    placement = HostPlacement(host_only=True)
    gradient = staticmethod(no_gradient)
    # inputs of each operand: 1 for a dense tensor, 3 for a sparse one
    operands: tuple[int, int]

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        name = decode_text(node.attr("set_operation")).lower()
        combine, ordered = _OPERATIONS.get(name), bool(node.attr("validate_indices"))
        if combine is None:
            raise OpError(f"Invalid set_operation {name}; known are {', '.join(_OPERATIONS)}")

        def operate(*inputs: Any) -> Any:
            first = cls.operands[0]
            (a_sizes, a), (b_sizes, b) = (
                dense_groups(*part) if len(part) == 1 else sparse_groups(*part, ordered=ordered)
                for part in (inputs[:first], inputs[first:])
            )
            if a_sizes != b_sizes:
                raise OpError(f"Mismatched group shapes {list(a_sizes)} and {list(b_sizes)}")
            dtype = inputs[first - 1 if first == 1 else 1].dtype
            places = sorted(a.keys() | b.keys())
            return _as_sparse(
                {p: combine(a.get(p, set()), b.get(p, set())) for p in places}, a_sizes, dtype
            )

        return operate

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        ranks = [
            context.inputs[slot].rank
            for slot, count in zip((0, cls.operands[0]), cls.operands, strict=True)
            if count == 1
        ]
        rank = next((rank for rank in ranks if rank is not None), None)
        return [Shape((None, rank)), vector_shape(None), vector_shape(rank)]


def _as_sparse(groups: Groups, sizes: tuple[int, ...], dtype: Any) -> tuple[Any, Any, Any]:
    """Sets as a sparse tensor, elements in order."""
    rows: list[tuple[int, ...]] = []
    values: list[Any] = []
    for place, elements in groups.items():
        for index, element in enumerate(sorted(elements)):
            rows.append((*place, index))
            values.append(element)
    width = max(map(len, groups.values()), default=0)
    result = np.empty(len(values), dtype)
    result[:] = values
    indices = np.array(rows, np.int64).reshape(len(rows), len(sizes) + 1)
    return indices, result, np.array([*sizes, width], np.int64)


class DenseToDenseSetOperation(SetOperation):
    """Set operation of two dense tensors."""

    signature = f"set1: T, set2: T -> {_RESULT}"
    operands = (1, 1)


class DenseToSparseSetOperation(SetOperation):
    """Set operation of a dense and a sparse tensor."""

    signature = f"set1: T, set2_indices: int64, set2_values: T, set2_shape: int64 -> {_RESULT}"
    operands = (1, 3)


class SparseToSparseSetOperation(SetOperation):
    """Set operation of two sparse tensors."""

    signature = (
        "set1_indices: int64, set1_values: T, set1_shape: int64, set2_indices: int64, "
        f"set2_values: T, set2_shape: int64 -> {_RESULT}"
    )
    operands = (3, 3)


class SetSize(Op):
    """The number of different elements in each set of a sparse tensor."""

    signature = "set_indices: int64, set_values: T, set_shape: int64 -> size: int32"
    attrs = f"validate_indices: bool = true, {_TYPES}"
    placement = HostPlacement(host_only=True)
    gradient = staticmethod(no_gradient)

    @staticmethod
    def kernel(
        xp: ModuleType, validate_indices: bool, /, indices: Any, values: Any, shape: Any
    ) -> Any:
        dims, groups = sparse_groups(indices, values, shape, ordered=validate_indices)
        reserve_array((math.prod(dims),), 4)
        result = np.zeros(dims, np.int32)
        for place, elements in groups.items():
            result[place] = len(elements)
        return result

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        require_rank(context.inputs[2], 1)
        shape = context.shape_value(2)
        return [UNKNOWN_SHAPE if shape.rank is None else shape[:-1]]
