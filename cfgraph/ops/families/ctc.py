"""Connectionist temporal classification (Graves et al. 2006): the loss and its gradient."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from types import ModuleType
from typing import Any, Final

import numpy as np

from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import Shape
from cfgraph.limits import check_deadline, reserve_array
from cfgraph.ops.opdef.facts import HostPlacement
from cfgraph.ops.opdef.gradient_api import (
    GradientBuilder,
    InputGradients,
    int32_constant,
    reject_gradients,
)
from cfgraph.ops.opdef.op import Op, OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext, require_rank

HOST: Final = HostPlacement(host_only=True)
FLOAT: Final = "T: {float32, float64} = float32"


def check_sequences(inputs: Any, lengths: Any) -> None:
    """Raise OpError unless `inputs` is [time, batch, class] and no sequence is longer."""
    if inputs.ndim != 3 or 0 in inputs.shape[:1]:
        raise OpError(f"inputs must be 3-D and not empty, got shape {list(inputs.shape)}")
    if lengths.shape != inputs.shape[1:2]:
        message = f"sequence_length must have length {inputs.shape[1]}, got {list(lengths.shape)}"
        raise OpError(message)
    if ((lengths < 0) | (lengths > len(inputs))).any():
        raise OpError(f"sequence_length must be in [0, {len(inputs)}], got {lengths.tolist()}")


def collapsed_labels(labels: Sequence[int], blank: int, *, merge: bool) -> list[int]:
    """Labels without blanks and, if merged, without repetition."""
    result, last = [], -1
    for label in labels:
        if label != blank and not (merge and label == last):
            result.append(label)
        last = label
    return result


def label_rows(indices: Any, values: Any, batch: int) -> list[list[int]]:
    """The labels of each sequence. Raises OpError for labels out of order, and for none."""
    if indices.ndim != 2 or indices.shape != (len(values), 2):
        message = f"labels_indices must have shape [{len(values)}, 2], got {list(indices.shape)}"
        raise OpError(message)
    rows: list[list[int]] = [[] for _ in range(batch)]
    places = indices.tolist()
    if any(place >= following for place, following in pairwise(places)):
        raise OpError("label SparseTensor is not valid: its indices are out of order or repeated")
    for (row, _), label in zip(places, values.tolist(), strict=True):
        if not 0 <= row < batch or label < 0:
            raise OpError(f"label {label} of sequence {row} is out of range")
        rows[row].append(label)
    if [] in rows:
        raise OpError(f"Labels length is zero in batch {rows.index([])}")
    return rows


def labels_before_null(labels: Sequence[int], null: int) -> Sequence[int]:
    """The labels below `null`. Raises OpError for one that follows another label."""
    count = next((place for place, label in enumerate(labels) if label >= null), len(labels))
    if any(label < null for label in labels[count:]):
        message = f"Saw a non-null label following a null label (index >= {null}): {list(labels)}"
        raise OpError(message)
    return labels[:count]


def batch_loss(
    logits: Any, lengths: Any, rows: Sequence[Sequence[int]], blank: int, *, merge: bool
) -> tuple[Any, Any]:
    """Negative log-likelihoods of label sequences, and their gradient: [time, batch, class].

    All sequences are computed at once, on paths that blanks extend to one width: no probability
    flows back from there.
    """
    steps, batch = logits.shape[:2]
    width = 2 * max(map(len, rows)) + 1
    reserve_array((steps, batch, width), 4 * 8)
    wide, is_padding = logits.astype(np.float64), np.arange(steps)[:, None] >= lengths
    wide[is_padding] = 0
    top = wide.max(axis=2, keepdims=True)
    scores = wide - (top + np.log(np.exp(wide - top).sum(axis=2, keepdims=True)))
    paths = np.full((batch, width), blank)
    for path, labels in zip(paths, rows, strict=True):
        path[1 : 2 * len(labels) : 2] = labels
    skips, stays = np.zeros(paths.shape, bool), np.ones(width, bool)
    skips[:, 3::2] = True if not merge else paths[:, 3::2] != paths[:, 1:-2:2]
    stays[1::2] = merge
    # TensorFlow takes the logarithms of probabilities, the least of which are 0
    scores[scores < np.log(np.finfo(logits.dtype).tiny)] = -np.inf
    emitted = np.take_along_axis(scores, paths[None], axis=2)
    with np.errstate(all="ignore"):
        forward = _forward_scores(emitted, skips, stays)
        forward += _backward_scores(emitted, lengths, rows, skips, stays)
        members = np.arange(batch)
        likelihoods = np.logaddexp.reduce(forward[lengths - 1, members], axis=1)
        shares = np.exp(scores)
        forward = np.exp(forward - likelihoods[:, None])
        forward[:, np.isneginf(likelihoods)] = 0
        shares[:, np.isnan(likelihoods)] = np.nan
        for place in range(width):
            shares[:, members, paths[:, place]] -= forward[:, :, place]
    shares[is_padding] = 0
    return -likelihoods, shares


def _forward_scores(emitted: Any, skips: Any, stays: Any) -> Any:
    """Log-probability of the steps so far, and of being at each place of a path after them."""
    forward = np.full(emitted.shape, -np.inf)
    forward[0, :, :2] = emitted[0, :, :2]
    for t in range(1, len(emitted)):
        check_deadline()
        forward[t] = _step(forward[t - 1], skips, stays) + emitted[t]
    return forward


def _backward_scores(
    emitted: Any, lengths: Any, rows: Sequence[Sequence[int]], skips: Any, stays: Any
) -> Any:
    """Log-probability of the later steps of a sequence, from each place of its path."""
    backward = np.full(emitted.shape, -np.inf)
    reverse = np.zeros(skips.shape, bool)
    reverse[:, 2:] = skips[:, :1:-1]
    for t in range(len(emitted) - 1, -1, -1):
        check_deadline()
        if t + 1 < len(emitted):
            later = (backward[t + 1] + emitted[t + 1])[:, ::-1]
            backward[t] = _step(later, reverse, stays[::-1])[:, ::-1]
        for member in np.flatnonzero(lengths == t + 1).tolist():
            end = 2 * len(rows[member])
            backward[t, member, max(0, end - 1) : end + 1] = 0
    return backward


def _step(values: Any, skips: Any, stays: Any) -> Any:
    """Log-probability of arriving at each place of a path from the places before."""
    result = np.where(stays, values, -np.inf)
    result[:, 1:] = np.logaddexp(result[:, 1:], values[:, :-1])
    skipped = np.logaddexp(result[:, 2:], values[:, :-2])
    result[:, 2:] = np.where(skips[:, 2:], skipped, result[:, 2:])
    return result


class CTCLoss(Op):
    """Loss of label sequences, and its gradient; the last class is blank."""

    signature = (
        "inputs: T, labels_indices: int64, labels_values: int32, sequence_length: int32 "
        "-> loss: T, gradient: T"
    )
    attrs = (
        "preprocess_collapse_repeated: bool = false, ctc_merge_repeated: bool = true, "
        f"ignore_longer_outputs_than_inputs: bool = false, {FLOAT}"
    )
    placement = HOST
    first_is_blank = False

    @classmethod
    def kernel(
        cls,
        xp: ModuleType,
        preprocess_collapse_repeated: bool,
        ctc_merge_repeated: bool,
        ignore_longer_outputs_than_inputs: bool,
        /,
        inputs: Any,
        indices: Any,
        values: Any,
        lengths: Any,
    ) -> Any:
        check_sequences(inputs, lengths)
        batch, classes = inputs.shape[1:]
        blank = 0 if cls.first_is_blank else classes - 1
        losses, gradient = np.zeros(batch, inputs.dtype), np.zeros_like(inputs)
        members, sequences = list[int](), list[Sequence[int]]()
        for i, row in enumerate(label_rows(indices, values, batch)):
            labels: Sequence[int] = (
                collapsed_labels(row, -1, merge=True) if preprocess_collapse_repeated else row
            )
            if not cls.first_is_blank:
                labels = labels_before_null(labels, blank)
            elif max(labels) >= classes:
                raise OpError(f"label {max(labels)} of sequence {i} is out of range")
            length = int(lengths[i])
            if len(labels) > length:
                if ignore_longer_outputs_than_inputs:
                    continue
                raise OpError(
                    f"Not enough time for target transition sequence (required: "
                    f"{len(labels)}, available: {length}) in sequence {i}"
                )
            if length:
                members.append(i)
                sequences.append(labels)
        if members:
            losses[members], gradient[:, members] = batch_loss(
                inputs[:, members], lengths[members], sequences, blank, merge=ctc_merge_repeated
            )
        return losses, gradient

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        inputs = require_rank(context.inputs[0], 3)
        batch = inputs[1:2].merge(require_rank(context.inputs[3], 1))
        return [batch, inputs[:1] + batch + inputs[2:]]

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, *grads: Output | None) -> InputGradients:
        dy = grads[0]
        reject_gradients(node, grads[1:], "the gradient that it computes")
        if dy is None:
            return [None] * 4
        rows = g.ExpandDims(g.ExpandDims(dy, int32_constant(g, 0)), int32_constant(g, -1))
        return (
            g.Mul(rows, g.PreventGradient(node.output(1), message="of CTCLoss twice")),
            None,
            None,
            None,
        )


class CTCLossV2(CTCLoss):
    """Loss of label sequences, and its gradient; the first class is blank."""

    signature = (
        "inputs: float32, labels_indices: int64, labels_values: int32, sequence_length: int32 "
        "-> loss: float32, gradient: float32"
    )
    attrs = (
        "preprocess_collapse_repeated: bool = false, ctc_merge_repeated: bool = true, "
        "ignore_longer_outputs_than_inputs: bool = false"
    )
    first_is_blank = True
