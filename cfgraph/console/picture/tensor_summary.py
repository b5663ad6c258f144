"""Summary of a constant for a page: statistics, a histogram, and its first elements."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from cfgraph.console.values import value_text
from cfgraph.errors import CfgraphError
from cfgraph.ir.attrs import TensorValue

# smaller constants are shown whole, and of larger ones a part is counted
MIN_ELEMENTS: Final = 9
MAX_ELEMENTS: Final = 1 << 18
_BINS: Final = 24
_FIRST: Final = 8
_MAX_TEXT: Final = 40


def tensor_summary(tensor: TensorValue) -> dict[str, Any] | None:
    """Describe the elements of a constant; None for a small or a damaged one."""
    count = tensor.shape.elements or 0
    if count < MIN_ELEMENTS:
        return None
    try:
        # a decoded array is not kept: all constants together may exceed the memory
        array = tensor.source.array() if tensor.source else tensor.array
        flat = array.reshape(-1)
    except (CfgraphError, TypeError):
        return None
    summary: dict[str, Any] = {"elements": count, "first": _first_text(flat)}
    if flat.dtype == object:
        return summary
    step = -(-count // MAX_ELEMENTS)
    if step > 1:
        summary["counted"] = f"each {step}th element"
    return {**summary, **_statistics(flat[::step])}


def _first_text(flat: Any) -> str:
    shown = [value_text(item) for item in flat[:_FIRST]]
    shown = [text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…" for text in shown]
    return ", ".join(shown) + (", …" if len(flat) > _FIRST else "")


def _statistics(elements: Any) -> dict[str, Any]:
    """Return statistics of numbers, and how many of them are in each part of their range."""
    if elements.dtype.kind == "c":
        elements = np.abs(elements)
    numbers = elements.astype(np.float64)
    finite = numbers[np.isfinite(numbers)]
    statistics: dict[str, Any] = {"zeros": int((numbers == 0).sum())}
    if len(finite) < len(numbers):
        statistics["not finite"] = len(numbers) - len(finite)
    if not len(finite):
        return statistics
    low, high = float(finite.min()), float(finite.max())
    with np.errstate(over="ignore", invalid="ignore"):
        values = {"mean": float(finite.mean()), "deviation": float(finite.std())}
    statistics |= {name: value for name, value in values.items() if np.isfinite(value)}
    statistics |= {"least": low, "greatest": high}
    if low < high and np.isfinite(high - low):
        statistics["counts"] = np.histogram(finite, _BINS)[0].tolist()
    return statistics
