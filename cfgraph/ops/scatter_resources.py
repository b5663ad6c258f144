"""Changes to some rows, or some places, of a variable behind a resource handle."""

from __future__ import annotations

from cfgraph.ops.scatter_variables import (
    INDICES,
    ScatterPlaces,
    ScatterRows,
    add,
    divide,
    greatest,
    least,
    multiply,
    replace,
    subtract,
)
from cfgraph.ops.variables import NUMERIC


class ResourceRows(ScatterRows, abstract=True):
    """Change some rows of a variable."""

    signature = "resource: resource, indices: Tindices, updates: dtype ->"


class ResourcePlaces(ScatterPlaces, abstract=True):
    """Change some places of a variable."""

    signature = "ref: resource, indices: Tindices, updates: T ->"


class ResourceScatterUpdate(ResourceRows):
    """Replace some rows of a variable."""

    attrs = f"{INDICES}"
    change = replace


class ResourceScatterAdd(ResourceRows):
    """Add to some rows of a variable."""

    attrs = f"dtype: {NUMERIC}, {INDICES}"
    change = add


class ResourceScatterSub(ResourceRows):
    """Subtract from some rows of a variable."""

    attrs = f"dtype: {NUMERIC}, {INDICES}"
    change = subtract


class ResourceScatterMul(ResourceRows):
    """Multiply some rows of a variable."""

    attrs = f"dtype: {NUMERIC}, {INDICES}"
    change = multiply


class ResourceScatterDiv(ResourceRows):
    """Divide some rows of a variable."""

    attrs = f"dtype: {NUMERIC}, {INDICES}"
    change = divide


class ResourceScatterMin(ResourceRows):
    """Lower some rows of a variable to the update where that is less."""

    attrs = f"dtype: {NUMERIC}, {INDICES}"
    change = least


class ResourceScatterMax(ResourceRows):
    """Raise some rows of a variable to the update where that is greater."""

    attrs = f"dtype: {NUMERIC}, {INDICES}"
    change = greatest


class ResourceScatterNdUpdate(ResourcePlaces):
    """Replace some places of a variable."""

    attrs = f"{INDICES}, use_locking: bool = true, bad_indices_policy: string = ''"
    change = replace


class ResourceScatterNdAdd(ResourcePlaces):
    """Add to some places of a variable."""

    attrs = f"{INDICES}, use_locking: bool = true, bad_indices_policy: string = ''"
    change = add


class ResourceScatterNdSub(ResourcePlaces):
    """Subtract from some places of a variable."""

    attrs = f"{INDICES}, use_locking: bool = true, bad_indices_policy: string = ''"
    change = subtract


class ResourceScatterNdMin(ResourcePlaces):
    """Lower some places of a variable to the update where that is less."""

    attrs = f"{INDICES}, use_locking: bool = true, bad_indices_policy: string = ''"
    change = least


class ResourceScatterNdMax(ResourcePlaces):
    """Raise some places of a variable to the update where that is greater."""

    attrs = f"{INDICES}, use_locking: bool = true, bad_indices_policy: string = ''"
    change = greatest
