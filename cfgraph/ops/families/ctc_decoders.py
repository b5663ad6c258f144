"""Decoders of connectionist temporal classification (Graves et al. 2006)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from heapq import heapify, heappush, heapreplace
from math import exp, inf, log1p
from types import ModuleType
from typing import Any, Final

import numpy as np

from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import Shape, vector_shape
from cfgraph.limits import check_deadline, reserve
from cfgraph.ops.families.ctc import FLOAT, HOST, check_sequences, collapsed_labels
from cfgraph.ops.opdef.op import Kernel, Op, OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext, require_rank

# bytes of a prefix, and of the score of one that may enter the beam
_PREFIX_BYTES: Final = 400
_SCORE_BYTES: Final = 64
# bytes of a log-probability and a class as numbers in lists
_STEP_BYTES: Final = 72


def sparse_rows(rows: Sequence[Sequence[int]]) -> tuple[Any, Any, Any]:
    """Indices, values, and shape of the sparse matrix with one label sequence per row."""
    indices = [(i, j) for i, row in enumerate(rows) for j in range(len(row))]
    values = [label for row in rows for label in row]
    width = max(map(len, rows), default=0)
    return (
        np.array(indices, np.int64).reshape(-1, 2),
        np.array(values, np.int64),
        np.array([len(rows), width], np.int64),
    )


class CTCGreedyDecoder(Op):
    """The best label of each step, collapsed."""

    signature = (
        "inputs: T, sequence_length: int32 -> decoded_indices: int64, decoded_values: int64, "
        "decoded_shape: int64, log_probability: T"
    )
    attrs = f"merge_repeated: bool = false, blank_index: int = -1, {FLOAT}"
    placement = HOST

    @staticmethod
    def kernel(
        xp: ModuleType, merge_repeated: bool, blank_index: int, /, inputs: Any, lengths: Any
    ) -> Any:
        lengths = np.maximum(lengths, 0)
        check_sequences(inputs, lengths)
        classes = inputs.shape[2]
        blank = blank_index + classes if blank_index < 0 else blank_index
        if not 0 <= blank < classes:
            raise OpError(f"blank_index must be in [-{classes}, {classes}), got {blank_index}")
        best = inputs.argmax(axis=2)
        rows = [
            collapsed_labels(best[:length, i].tolist(), blank, merge=merge_repeated)
            for i, length in enumerate(lengths.tolist())
        ]
        valid = np.arange(len(inputs))[:, None] < lengths
        total = np.where(valid, -inputs.max(axis=2), 0).sum(0, dtype=inputs.dtype)
        return (*sparse_rows(rows), total[:, None])

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        batch = require_rank(context.inputs[0], 3)[1:2].merge(require_rank(context.inputs[1], 1))
        return [Shape((None, 2)), vector_shape(None), vector_shape(2), batch + Shape((1,))]


# the negative log-probability, the rank among equals, the log-probabilities of an end with a blank
# and with the last label, the prefix, and the label that extends it, or -1
BeamEntry = tuple[float, int, float, float, int, int]


class Prefixes:
    """Label sequences as a tree: each but the first, empty one extends another by one label."""

    __slots__ = ("_known", "labels", "parents")

    def __init__(self) -> None:
        self.parents, self.labels = [-1], [-1]
        self._known: dict[tuple[int, int], int] = {}

    def extension(self, prefix: int, label: int) -> int:
        """The number of a prefix with one more label."""
        number = self._known.setdefault((prefix, label), len(self.parents))
        if number == len(self.parents):
            self.parents.append(prefix)
            self.labels.append(label)
        return number

    def sequence(self, prefix: int) -> list[int]:
        """The labels of a prefix."""
        labels = []
        while prefix:
            labels.append(self.labels[prefix])
            prefix = self.parents[prefix]
        return labels[::-1]


def log_softmax(inputs: Any) -> Any:
    """The logarithms of the shares of the classes, which are last."""
    top = inputs.max(axis=-1, keepdims=True)
    return inputs - (top + np.log(np.exp(inputs - top).sum(axis=-1, keepdims=True)))


def beam_search(
    steps: Sequence[Sequence[float]], orders: Sequence[Sequence[int]], width: int
) -> list[tuple[list[int], float]]:
    """The best label sequences of one input, and their log-probabilities; the last class is blank.

    `steps` are the log-probabilities of the classes at each step, and `orders` the other classes
    from the most probable to the least.

    Graves 2012, section 7.5.3: prefixes and their extensions compete for the entries of the beam.
    Each has three log-probabilities: that it ends with a blank, with its last label, with either.
    Most beams are so small that numbers of Python are faster than arrays.
    """
    prefixes = Prefixes()
    beam: list[BeamEntry] = [(-0.0, 0, 0.0, -inf, 0, -1)]
    for scores, order in zip(steps, orders, strict=True):
        check_deadline()
        reserve(
            len(beam) * len(scores) * _SCORE_BYTES + len(prefixes.parents) * _PREFIX_BYTES,
            "the beam",
        )
        entries, continued = _unextended(prefixes, beam, scores)
        entries += _extensions(prefixes, beam, continued, scores, order, BestTotals(width, entries))
        entries.sort()
        beam = [
            entry if entry[5] < 0 else (*entry[:4], prefixes.extension(entry[4], entry[5]), -1)
            for entry in entries[:width]
        ]
    return [(prefixes.sequence(entry[4]), -entry[0]) for entry in beam]


def _unextended(
    prefixes: Prefixes, beam: Sequence[BeamEntry], scores: Sequence[float]
) -> tuple[list[BeamEntry], set[tuple[int, int]]]:
    """The entries of the prefixes of a beam after a step.

    Also the rows and labels of those extensions that are prefixes of the beam themselves.
    """
    rows = {entry[4]: row for row, entry in enumerate(beam)}
    continued = set[tuple[int, int]]()
    entries = list[BeamEntry]()
    for row, (negative, _, _, same_label, prefix, _) in enumerate(beam):
        last = prefixes.labels[prefix]
        parent, by_label = rows.get(prefixes.parents[prefix], -1), same_label
        if parent >= 0:
            before, _, before_by_blank, _, extended, _ = beam[parent]
            repeats = prefixes.labels[extended] == last
            by_label = _log_add(same_label, before_by_blank if repeats else -before)
            continued.add((parent, last))
        by_label += scores[last]
        by_blank = scores[-1] - negative
        entries.append((-_log_add(by_blank, by_label), row, by_blank, by_label, prefix, -1))
    return entries, continued


def _extensions(
    prefixes: Prefixes,
    beam: Sequence[BeamEntry],
    continued: Collection[tuple[int, int]],
    scores: Sequence[float],
    order: Sequence[int],
    best: BestTotals,
) -> Iterator[BeamEntry]:
    """The entries of the extensions that may be among the best."""
    number, lowest = len(beam), best.lowest
    for row, (negative, _, by_blank, _, prefix, _) in enumerate(beam):
        last = prefixes.labels[prefix]
        for label in order:
            total = scores[label] - negative
            if not total > lowest:
                break
            if label != last and (row, label) not in continued:
                lowest = best.add(total)
                yield -total, number + label, -inf, total, prefix, label
        repeated = by_blank + scores[last]
        if last >= 0 and repeated > lowest and (row, last) not in continued:
            lowest = best.add(repeated)
            yield -repeated, number + last, -inf, repeated, prefix, last
        number += len(scores)


class BestTotals:
    """The log-probabilities of the best entries; `lowest` of them must be exceeded by others."""

    def __init__(self, width: int, entries: Sequence[BeamEntry]) -> None:
        self._width = width
        self._totals = [-entry[0] for entry in entries]
        heapify(self._totals)

    @property
    def lowest(self) -> float:
        """The log-probability that another entry must exceed."""
        return self._totals[0] if len(self._totals) == self._width else -inf

    def add(self, total: float) -> float:
        """Add an entry, and return the lowest log-probability."""
        if len(self._totals) < self._width:
            heappush(self._totals, total)
            return self.lowest
        heapreplace(self._totals, total)
        return self._totals[0]


def _log_add(first: float, second: float) -> float:
    """The logarithm of the sum of two numbers with these logarithms."""
    if first < second:
        first, second = second, first
    return first if second == -inf else first + log1p(exp(second - first))


class CTCBeamSearchDecoder(Op):
    """The most probable label sequences, by beam search."""

    signature = (
        "inputs: T, sequence_length: int32 -> decoded_indices: top_paths*int64, "
        "decoded_values: top_paths*int64, decoded_shape: top_paths*int64, log_probability: T"
    )
    attrs = f"beam_width: int >= 1, top_paths: int >= 1, merge_repeated: bool = true, {FLOAT}"
    placement = HOST

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        width, paths = node.attr("beam_width"), node.attr("top_paths")
        merge = bool(node.attr("merge_repeated"))
        if paths > width:
            raise OpError(f"top_paths must be at most beam_width, got {paths} and {width}")

        def decode(inputs: Any, lengths: Any) -> Any:
            lengths = np.maximum(lengths, 0)
            check_sequences(inputs, lengths)
            rows: list[list[list[int]]] = [[] for _ in range(paths)]
            total = np.zeros((inputs.shape[1], paths), inputs.dtype)
            shares = log_softmax(inputs).swapaxes(0, 1)
            orders = (-shares[..., :-1]).argsort(axis=-1, kind="stable")
            for i, length in enumerate(lengths.tolist()):
                reserve(length * inputs.shape[2] * _STEP_BYTES, "the beam")
                steps, order = shares[i, :length].tolist(), orders[i, :length].tolist()
                best = beam_search(steps, order, width)
                if len(best) < paths:
                    raise OpError(f"Less leaves in the beam search than requested: {len(best)}")
                for path, (prefix, score) in enumerate(best[:paths]):
                    rows[path].append(collapsed_labels(prefix, -1, merge=merge))
                    total[i, path] = score
            parts = [sparse_rows(row) for row in rows]
            return (*(part[j] for j in range(3) for part in parts), total)

        return decode

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        batch = require_rank(context.inputs[0], 3)[1:2].merge(require_rank(context.inputs[1], 1))
        # the count is 0 if the attribute asks for more outputs than a node may have
        paths = max(0, (context.output_count - 1) // 3)
        parts = (Shape((None, 2)), vector_shape(None), vector_shape(2))
        probability = batch + Shape((context.attr("top_paths"),))
        return [*(part for part in parts for _ in range(paths)), probability]
