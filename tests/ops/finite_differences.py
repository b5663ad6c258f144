"""Gradients by finite differences, at points where the ops are smooth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np

from cfgraph.ir import dtypes
from cfgraph.ir.dtypes import DType
from cfgraph.ops.opdef.op import lookup
from tests.ops.gradient_harness import (
    Arrays,
    float_inputs,
    is_narrow,
    notes,
    random_like,
    random_of,
)
from tests.ops.harness import Case, node_of, run_ours

WIDER: Final = {dtypes.float32: dtypes.float64, dtypes.complex64: dtypes.complex128}
STEPS: Final = {"float64": 1e-6, "float32": 1e-2}
ACCURACIES: Final = {"float64": 2e-6, "float32": 2e-2}


def smooth(item: Case) -> Case | None:
    """A case in doubles (where the op has them) at a point where the op is smooth.

    None for a case of half-width floats, of which there is one in full width too, and where its
    case file finds no such point.
    """
    if is_narrow(item):
        return None
    wide = replace(
        item,
        inputs=tuple(_widened(array) for array in item.inputs),
        attrs={key: _wider(value) for key, value in _all_attrs(item).items()},
    )
    try:
        run_ours(wide)
    except Exception:
        wide = item
    if not _is_allowed(wide):
        wide = item
    point = _point(wide)
    return None if point is None else replace(wide, inputs=tuple(point))


def _all_attrs(item: Case) -> dict[str, Any]:
    """The attributes of a case, and the types that it leaves to be what they usually are."""
    node, op = node_of(item), lookup(item.op)
    assert op is not None
    types = [key for key, attr in op.parsed().attrs.items() if attr.kind == "type"]
    return {**item.attrs, **{key: node.attr(key) for key in types}}


def _is_allowed(item: Case) -> bool:
    node, op = node_of(item), lookup(item.op)
    assert op is not None
    types = [attr for attr in op.parsed().attrs.values() if attr.kind == "type" and attr.allowed]
    return all(node.attr(attr.name) in (attr.allowed or ()) for attr in types)


def _widened(array: Any) -> Any:
    wanted = WIDER.get(DType.from_numpy(array.dtype))
    return array if wanted is None else array.astype(wanted.numpy)


def _wider(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_wider, value))
    return WIDER.get(value, value) if isinstance(value, DType) else value


def _point(item: Case) -> Arrays | None:
    random, inputs = random_of(item), list(item.inputs)
    where = notes("SMOOTH").get(item.op)
    if callable(where):
        found = where(random, inputs)
        return found and [np.asarray(x, a.dtype) for x, a in zip(found, inputs, strict=True)]
    for place, i in enumerate(float_inputs(item)):
        array = inputs[i]
        if where is None:
            inputs[i] = _moved(random, array)
        else:
            low, high = where[place] if isinstance(where[0], tuple) else where
            numbers = random.uniform(low, high, array.shape)
            if array.dtype.kind == "c":
                numbers = numbers * np.exp(1j * random.uniform(-0.5, 0.5, array.shape))
            inputs[i] = np.asarray(numbers, array.dtype)
    return inputs


def _moved(random: np.random.Generator, array: Any) -> Any:
    fresh = random.uniform(0.3, 0.9, array.shape) + (0.4j if array.dtype.kind == "c" else 0)
    with np.errstate(all="ignore"):
        tame = np.isfinite(array) & (np.abs(array) < 10)
    moved = np.where(tame, array, fresh) + random.uniform(0.02, 0.1, array.shape)
    return np.asarray(moved, array.dtype)


def _finite(x: Any) -> Any:
    """Replace infinities by zero: a value that remains infinite does not change."""
    return np.where(np.isinf(x), 0, x)


def dot(x: Any, y: Any) -> float:
    """The real inner product of tensors, complex numbers being pairs."""
    return float(np.real(np.sum(np.conj(np.asarray(x, complex)) * np.asarray(y, complex))))


def slope(function: Callable[[float], float], step: float) -> float:
    """The derivative at 0, by central differences of two widths."""
    near = (function(step) - function(-step)) / (2 * step)
    far = (function(2 * step) - function(-2 * step)) / (4 * step)
    return (4 * near - far) / 3


def assert_slope(
    item: Case,
    function: Callable[[dict[str, Any]], dict[str, Any]],
    weights: dict[str, Any],
    at: dict[str, Any],
    found: dict[str, Any],
) -> None:
    """`found` is the gradient of the sum of weights times the function's values.

    It is compared along one random direction, by all arguments that have a gradient.
    """
    random = random_of(item)
    along = {key: random_like(random, np.asarray(at[key])) for key in found}
    double = all(np.asarray(value).dtype.itemsize >= 8 for value in found.values())
    kind = "float64" if double and not _is_single(at | found) else "float32"

    def value(t: float) -> float:
        moved = at | {
            key: np.asarray(at[key] + t * along[key], np.asarray(at[key]).dtype) for key in found
        }
        result = function(moved)
        return sum(dot(weights[key], _finite(result[key])) for key in weights)

    wanted = slope(value, STEPS[kind])
    got = sum(dot(found[key], along[key]) for key in found)
    size = sum(float(np.sum(np.abs(found[key] * along[key]))) for key in found)
    assert np.isfinite(wanted), f"{item.op} is not smooth where it is tried (see SMOOTH)"
    assert abs(got - wanted) <= ACCURACIES[kind] * (1 + size), f"{got}, differences give {wanted}"


def _is_single(found: dict[str, Any]) -> bool:
    return any(np.asarray(v).dtype in (np.float32, np.complex64) for v in found.values())


def forward(item: Case) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The op as a function of its inputs, by name: its outputs, by the name of their gradient."""

    def run(feeds: dict[str, Any]) -> dict[str, Any]:
        inputs = tuple(np.asarray(feeds[f"x{i}:0"]) for i in range(len(item.inputs)))
        return {f"dy{i}:0": value for i, value in enumerate(run_ours(replace(item, inputs=inputs)))}

    return run
