"""Scatter updates of variables, in reference and resource form."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, ClassVar, Final

import numpy as np

from cfgraph.ir.shapes import Shape
from cfgraph.ops.families.gather import index_vectors, with_index_depth
from cfgraph.ops.families.variables import NUMERIC, Variable
from cfgraph.ops.kernels.array_namespace import accumulated_at, holds, last_updates, updated_at
from cfgraph.ops.opdef.facts import CompilerSupport, SideEffects
from cfgraph.ops.opdef.gradient_api import no_gradient
from cfgraph.ops.opdef.op import Op, OpError, define_op

INDICES = "Tindices: {int32, int64}"
_ORDERED = "T: {float16, bfloat16, float32, float64, int32, int64}"

# (namespace, array, index, updates) -> updated copy
ScatterFunction = Callable[[ModuleType, Any, Any, Any], Any]


def scatter_replace(xp: ModuleType, array: Any, index: Any, updates: Any) -> Any:
    """A copy of `array` with the updates assigned at `index`."""
    return updated_at(array, index, last_updates(xp, array, index, updates))


def scatter_add(xp: ModuleType, array: Any, index: Any, updates: Any) -> Any:
    """A copy of `array` with the updates added at `index`; duplicates accumulate."""
    return accumulated_at(xp, array, index, updates, "add")


def scatter_subtract(xp: ModuleType, array: Any, index: Any, updates: Any) -> Any:
    """A copy of `array` with the updates subtracted at `index`; duplicates accumulate."""
    return accumulated_at(xp, array, index, updates, "subtract")


def scatter_min(xp: ModuleType, array: Any, index: Any, updates: Any) -> Any:
    """A copy of `array` with the minimum of old element and update at `index`."""
    return accumulated_at(xp, array, index, updates, "min")


def scatter_max(xp: ModuleType, array: Any, index: Any, updates: Any) -> Any:
    """A copy of `array` with the maximum of old element and update at `index`."""
    return accumulated_at(xp, array, index, updates, "max")


def scatter_multiply(xp: ModuleType, array: Any, index: Any, updates: Any) -> Any:
    """A copy of `array` multiplied by the updates at `index`; duplicates accumulate."""
    if hasattr(array, "at"):
        return array.at[index].multiply(updates)
    result = np.array(array)
    np.multiply.at(result, index, updates)
    return result


def scatter_divide(xp: ModuleType, array: Any, index: Any, updates: Any) -> Any:
    """A copy of `array` divided by the updates at `index`; integers round toward zero."""
    result = np.array(array)
    if result.dtype.kind not in "iu":
        np.divide.at(result, index, updates)
        return result
    if not np.all(updates):
        raise OpError("Integer division by zero")
    sign = np.sign(updates)
    negative = np.array(result < 0)
    # floor division of absolute values rounds toward zero; duplicates accumulate the same way
    np.floor_divide.at(np.negative(result, out=result, where=negative), index, abs(updates))
    np.negative(result, out=result, where=negative)
    if result.dtype.kind == "i":
        np.multiply.at(result, index, sign)
    return result


class ScatterUpdate(Op, abstract=True):
    """Update of a part of a variable, whose output is the variable's reference."""

    signature = "ref: Ref(T), indices: host Tindices, updates: T -> output_ref: Ref(T)"
    effects = SideEffects(stateful=True)
    gradient = staticmethod(no_gradient)
    change: ClassVar[ScatterFunction]
    shape = staticmethod(lambda context: [context.inputs[0]] * context.output_count)


class ScatterRows(ScatterUpdate, abstract=True):
    """Update of the rows of a variable that indices list."""

    @classmethod
    def kernel(cls, xp: ModuleType, step: Any, cell: Variable, indices: Any, updates: Any) -> Any:
        array = xp.asarray(cell.read())
        if not array.ndim:
            raise OpError("the variable must have at least one dimension, got shape []")
        if updates.shape and updates.shape != indices.shape + array.shape[1:]:
            raise OpError(
                "Must have updates.shape = indices.shape + params.shape[1:] or updates.shape = [], "
                f"got updates.shape {Shape(updates.shape)}, indices.shape {Shape(indices.shape)}, "
                f"params.shape {Shape(array.shape)}"
            )
        out_of_range = (indices < 0) | (indices >= len(array))
        if not holds(xp, ~out_of_range.any()):
            first = np.argwhere(out_of_range)[0].tolist()
            bad = indices[tuple(first)]
            raise OpError(f"indices{first or ''} = {bad} is not in [0, {len(array)})")
        if indices.size:
            cell.value = cls.change(xp, array, indices, updates)
        return cell if cls.parsed().outputs else None


class ScatterPositions(ScatterUpdate, abstract=True):
    """Update of the slices of a variable at index vectors."""

    @classmethod
    def kernel(
        cls, xp: ModuleType, bad_indices_policy: bytes, /, step: Any, cell: Variable, *inputs: Any
    ) -> Any:
        indices, updates = inputs
        array = xp.asarray(cell.read())
        whole, vectors = with_index_depth(xp, array, indices)
        index, bad = index_vectors(xp, vectors, whole.shape, check=bad_indices_policy != b"IGNORE")
        expected = vectors.shape[:-1] + whole.shape[vectors.shape[-1] :]
        if updates.shape != expected:
            raise OpError(
                "Must have updates.shape = indices.shape[:-1] + params.shape[indices.shape[-1]:], "
                f"got updates.shape {Shape(updates.shape)}, indices.shape {Shape(indices.shape)}, "
                f"params.shape {Shape(array.shape)}"
            )
        if bad is not None and hasattr(whole, "at"):  # jax drops updates out of bounds
            index = (xp.where(bad, whole.shape[0], index[0]), *index[1:])
        elif bad is not None:
            index, updates = tuple(component[~bad] for component in index), updates[~bad]
        cell.value = cls.change(xp, whole, index, updates).reshape(array.shape)
        return cell if cls.parsed().outputs else None


class ResourceScatterRows(ScatterRows, abstract=True):
    """Update of selected rows of a variable behind a resource handle."""

    signature = "resource: resource, indices: host Tindices, updates: dtype ->"
    compilation = CompilerSupport(traces_effects=True)


class ResourceScatterNd(ScatterPositions, abstract=True):
    """An update of slices of a variable behind a resource handle, at index vectors."""

    signature = "ref: resource, indices: host Tindices, updates: T ->"
    compilation = CompilerSupport(traces_effects=True)


# suffix of the names, function, description, types, and whether there is a form of slices
_CHANGES: Final = (
    ("Update", scatter_replace, "Replace {rows}", "", True),
    ("Add", scatter_add, "Add to {rows}", f"T: {NUMERIC}", True),
    ("Sub", scatter_subtract, "Subtract from {rows}", f"T: {NUMERIC}", True),
    ("Mul", scatter_multiply, "Multiply {rows}", f"T: {NUMERIC}", False),
    ("Div", scatter_divide, "Divide {rows}", f"T: {NUMERIC}", False),
    ("Min", scatter_min, "Set {rows} to min({row}, update)", _ORDERED, True),
    ("Max", scatter_max, "Set {rows} to max({row}, update)", _ORDERED, True),
)


def _define_of_rows(suffix: str, change: ScatterFunction, description: str, types: str) -> None:
    """Define the update of rows by a change, through a reference and through a resource."""
    doc = description.format(rows="some rows of a variable", row="row")
    attrs, resource_attrs = f"{INDICES}, use_locking: bool = true", INDICES
    if types:
        attrs = f"{types}, {INDICES}, use_locking: bool = false"
        resource_attrs = f"dtype: {NUMERIC}, {INDICES}"
    _define(f"Scatter{suffix}", ScatterRows, change, f"{doc}; the output is its reference.", attrs)
    _define(f"ResourceScatter{suffix}", ResourceScatterRows, change, f"{doc}.", resource_attrs)


def _define_of_slices(suffix: str, change: ScatterFunction, description: str, types: str) -> None:
    """Define the update of slices by a change, through a reference and through a resource."""
    doc = description.format(rows="the slices of a variable at index vectors", row="slice")
    resource_attrs = f"{INDICES}, use_locking: bool = true, bad_indices_policy: string = ''"
    attrs = f"T: {NUMERIC}, {resource_attrs.replace('true', 'false')}" if types else resource_attrs
    by_reference = f"{doc}; the output is its reference."
    _define(f"ScatterNd{suffix}", ScatterPositions, change, by_reference, attrs)
    _define(f"ResourceScatterNd{suffix}", ResourceScatterNd, change, f"{doc}.", resource_attrs)


def _define(
    name: str, base: type[ScatterUpdate], change: ScatterFunction, doc: str, attrs: str
) -> None:
    support = CompilerSupport() if change is scatter_divide else base.compilation
    facts = {"attrs": attrs, "change": staticmethod(change), "compilation": support}
    define_op(__name__, name, base, doc, **facts)


for _suffix, _change, _description, _types, _has_slices in _CHANGES:
    _define_of_rows(_suffix, _change, _description, _types)
    if _has_slices:
        _define_of_slices(_suffix, _change, _description, _types)
