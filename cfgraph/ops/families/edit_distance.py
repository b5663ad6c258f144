"""Levenshtein distances of sequences in sparse tensors."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.limits import reserve_array
from cfgraph.ops.families.sparse_arithmetic import check_sparse
from cfgraph.ops.opdef.facts import HostPlacement
from cfgraph.ops.opdef.gradient_api import no_gradient
from cfgraph.ops.opdef.op import Op, OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext

Sequences = dict[tuple[int, ...], list[Any]]


def levenshtein_distance(x: Sequence[Any], y: Sequence[Any]) -> int:
    """The least number of insertions, deletions, and substitutions from x to y.

    A column of the table of distances is two integers, a bit for each step between neighbors
    that rises or falls (Myers 1999, Hyyrö 2003).
    """
    if not x:
        return len(y)
    places: dict[Any, int] = {}
    for position, element in enumerate(x):
        places[element] = places.get(element, 0) | 1 << position
    ones, top, distance = (1 << len(x)) - 1, 1 << len(x) - 1, len(x)
    rises, falls = ones, 0
    for element in y:
        equal = places.get(element, 0)
        diagonal = (((equal & rises) + rises) ^ rises) | equal | falls
        up, down = falls | ~(diagonal | rises) & ones, diagonal & rises
        if up & top:
            distance += 1
        elif down & top:
            distance -= 1
        up = up << 1 | 1
        rises = (down << 1 | ~(diagonal | up)) & ones
        falls = diagonal & up & ones
    return distance


def _sequences(indices: Any, values: Any, shape: Any) -> tuple[tuple[int, ...], Sequences]:
    """The shape of a sparse tensor, and the values of each row that has any."""
    sizes = check_sparse(indices, values, shape)
    found: Sequences = {}
    for row, value in zip(indices[:, :-1].tolist(), values.tolist(), strict=True):
        found.setdefault(tuple(row), []).append(value)
    return sizes, found


class EditDistance(Op):
    """The Levenshtein distance of each hypothesis and its truth, divided by the truth's length."""

    signature = (
        "hypothesis_indices: int64, hypothesis_values: T, hypothesis_shape: int64, "
        "truth_indices: int64, truth_values: T, truth_shape: int64 -> output: float32"
    )
    attrs = "normalize: bool = true, T: type"
    placement = HostPlacement(host_only=True)
    gradient = staticmethod(no_gradient)

    @staticmethod
    def kernel(xp: ModuleType, normalize: bool, /, *parts: Any) -> Any:
        ours, hypotheses = _sequences(*parts[:3])
        sizes, truths = _sequences(*parts[3:])
        if len(ours) != len(sizes) or not sizes:
            raise OpError(
                "truth and hypothesis must have the same rank above 0, not "
                f"{len(sizes)} and {len(ours)}"
            )
        dims = tuple(map(max, ours[:-1], sizes[:-1]))
        reserve_array(dims, 4)
        result = np.zeros(dims, np.float32)
        for row in hypotheses.keys() | truths.keys():
            truth = truths.get(row, [])
            distance = float(levenshtein_distance(hypotheses.get(row, []), truth))
            if normalize:
                distance = distance / len(truth) if truth else np.inf
            result[row] = distance
        return result

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        ours, truth = context.shape_value(2).dims, context.shape_value(5).dims
        if ours is None or truth is None or len(ours) != len(truth):
            return [UNKNOWN_SHAPE]
        return [
            Shape(
                None if a is None or b is None else max(a, b)
                for a, b in zip(ours[:-1], truth[:-1], strict=True)
            )
        ]
