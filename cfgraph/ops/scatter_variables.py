"""Changes to some rows, or some places, of a variable: the Scatter ops in both forms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import Shape
from cfgraph.ops.adjoint import stop
from cfgraph.ops.gather import index_vectors, with_depth
from cfgraph.ops.inference import InferenceContext
from cfgraph.ops.op import Kernel, Op, OpError
from cfgraph.ops.variables import NUMERIC, Variable
from cfgraph.ops.writes import accumulated, written

INDICES = "Tindices: {int32, int64}"
_ORDERED = "T: {float16, bfloat16, float32, float64, int32, int64}"

# (namespace, array, index, updates) -> the changed copy
Change = Callable[[ModuleType, Any, Any, Any], Any]


def replace(xp: ModuleType, array: Any, index: Any, updates: Any) -> Any:
    """A copy with the updates in their places."""
    return written(array, index, updates)


def add(xp: ModuleType, array: Any, index: Any, updates: Any) -> Any:
    """A copy with the updates added, once for each time a place is named."""
    return accumulated(xp, array, index, updates, "add")


def subtract(xp: ModuleType, array: Any, index: Any, updates: Any) -> Any:
    """A copy with the updates subtracted."""
    return accumulated(xp, array, index, updates, "subtract")


def least(xp: ModuleType, array: Any, index: Any, updates: Any) -> Any:
    """A copy with the lesser of old value and update."""
    return accumulated(xp, array, index, updates, "min")


def greatest(xp: ModuleType, array: Any, index: Any, updates: Any) -> Any:
    """A copy with the greater of old value and update."""
    return accumulated(xp, array, index, updates, "max")


def multiply(xp: ModuleType, array: Any, index: Any, updates: Any) -> Any:
    """A copy with the places multiplied, once for each time one is named."""
    result = np.array(array)
    np.multiply.at(result, index, updates)
    return result


def divide(xp: ModuleType, array: Any, index: Any, updates: Any) -> Any:
    """A copy with the places divided; integers towards zero."""
    result = np.array(array)
    if result.dtype.kind not in "iu":
        np.divide.at(result, index, updates)
        return result
    if not np.all(updates):
        message = "Integer division by zero"
        raise OpError(message)
    sign = np.sign(updates)
    negative = np.array(result < 0)
    # towards zero: divide the absolute values, which is the same however often it is repeated
    np.floor_divide.at(np.negative(result, out=result, where=negative), index, abs(updates))
    np.negative(result, out=result, where=negative)
    if result.dtype.kind == "i":
        np.multiply.at(result, index, sign)
    return result


def _change_rows(
    xp: ModuleType, cell: Variable, indices: Any, updates: Any, change: Change
) -> None:
    """Change the rows of a variable that `indices` names."""
    array = cell.read()
    if not array.ndim:
        message = "the variable must have rows, its shape is []"
        raise OpError(message)
    if updates.shape and updates.shape != indices.shape + array.shape[1:]:
        message = (
            f"Must have updates.shape = indices.shape + params.shape[1:] or updates.shape = [], "
            f"got updates.shape {Shape(updates.shape)}, indices.shape {Shape(indices.shape)}, "
            f"params.shape {Shape(array.shape)}"
        )
        raise OpError(message)
    wrong = (indices < 0) | (indices >= len(array))
    if wrong.any():
        first = np.argwhere(wrong)[0].tolist()
        bad = indices[tuple(first)]
        message = f"indices{first or ''} = {bad} is not in [0, {len(array)})"
        raise OpError(message)
    if indices.size:
        cell.value = change(xp, array, indices, updates)


def _change_places(
    xp: ModuleType, cell: Variable, indices: Any, updates: Any, change: Change, *, check: bool
) -> None:
    """Change the places of a variable that index vectors name."""
    array = cell.read()
    whole, vectors = with_depth(xp, array, indices)
    where, bad = index_vectors(xp, vectors, whole.shape, check=check)
    wanted = vectors.shape[:-1] + whole.shape[vectors.shape[-1] :]
    if updates.shape != wanted:
        message = (
            f"Must have updates.shape = indices.shape[:-1] + params.shape[indices.shape[-1]:], "
            f"got updates.shape {Shape(updates.shape)}, indices.shape {Shape(indices.shape)}, "
            f"params.shape {Shape(array.shape)}"
        )
        raise OpError(message)
    if bad is not None:
        where, updates = tuple(part[~bad] for part in where), updates[~bad]
    cell.value = change(xp, whole, where, updates).reshape(array.shape)


class ScatterRows(Op, abstract=True):
    """Change some rows of a variable; hands the reference on."""

    signature = "ref: Ref(T), indices: Tindices, updates: T -> output_ref: Ref(T)"
    stateful = True
    gradient = staticmethod(stop)
    host_inputs = (1,)
    change: ClassVar[Change]

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        change, returns = cls.change, bool(cls.parsed().outputs)

        def scatter(step: Any, cell: Variable, indices: Any, updates: Any) -> Any:
            _change_rows(xp, cell, indices, updates, change)
            return cell if returns else None

        return scatter

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [context.inputs[0]] * context.output_count


class ScatterPlaces(ScatterRows, abstract=True):
    """Change some places of a variable; hands the reference on."""

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        change, returns = cls.change, bool(cls.parsed().outputs)
        check = node.attr("bad_indices_policy") != b"IGNORE"

        def scatter(step: Any, cell: Variable, indices: Any, updates: Any) -> Any:
            _change_places(xp, cell, indices, updates, change, check=check)
            return cell if returns else None

        return scatter


class ScatterUpdate(ScatterRows):
    """Replace some rows of a variable; hands the reference on."""

    attrs = f"{INDICES}, use_locking: bool = true"
    change = replace


class ScatterAdd(ScatterRows):
    """Add to some rows of a variable; hands the reference on."""

    attrs = f"T: {NUMERIC}, {INDICES}, use_locking: bool = false"
    change = add


class ScatterSub(ScatterRows):
    """Subtract from some rows of a variable; hands the reference on."""

    attrs = f"T: {NUMERIC}, {INDICES}, use_locking: bool = false"
    change = subtract


class ScatterMul(ScatterRows):
    """Multiply some rows of a variable; hands the reference on."""

    attrs = f"T: {NUMERIC}, {INDICES}, use_locking: bool = false"
    change = multiply


class ScatterDiv(ScatterRows):
    """Divide some rows of a variable; hands the reference on."""

    attrs = f"T: {NUMERIC}, {INDICES}, use_locking: bool = false"
    change = divide


class ScatterMin(ScatterRows):
    """Lower some rows of a variable to the update where that is less; hands the reference on."""

    attrs = f"{_ORDERED}, {INDICES}, use_locking: bool = false"
    change = least


class ScatterMax(ScatterRows):
    """Raise some rows of a variable to the update where that is greater; hands the reference on."""

    attrs = f"{_ORDERED}, {INDICES}, use_locking: bool = false"
    change = greatest


class ScatterNdUpdate(ScatterPlaces):
    """Replace some places of a variable; hands the reference on."""

    attrs = f"{INDICES}, use_locking: bool = true, bad_indices_policy: string = ''"
    change = replace


class ScatterNdAdd(ScatterPlaces):
    """Add to some places of a variable; hands the reference on."""

    attrs = f"T: {NUMERIC}, {INDICES}, use_locking: bool = false, bad_indices_policy: string = ''"
    change = add


class ScatterNdSub(ScatterPlaces):
    """Subtract from some places of a variable; hands the reference on."""

    attrs = f"T: {NUMERIC}, {INDICES}, use_locking: bool = false, bad_indices_policy: string = ''"
    change = subtract


class ScatterNdMin(ScatterPlaces):
    """Lower some places of a variable to the update where that is less; hands the reference on."""

    attrs = f"T: {NUMERIC}, {INDICES}, use_locking: bool = false, bad_indices_policy: string = ''"
    change = least


class ScatterNdMax(ScatterPlaces):
    """Raise some places of a variable to updates that are greater; hands the reference on."""

    attrs = f"T: {NUMERIC}, {INDICES}, use_locking: bool = false, bad_indices_policy: string = ''"
    change = greatest
