"""Non-maximum suppression: selection of boxes with high scores that overlap little."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Final

import numpy as np

from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import SCALAR_SHAPE, Shape, vector_shape
from cfgraph.limits import reserve_array
from cfgraph.ops.kernels.array_namespace import on_host
from cfgraph.ops.opdef.facts import HostPlacement
from cfgraph.ops.opdef.op import Kernel, Op, OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext, require_rank, static_int

# candidates whose similarities are computed at once
_BLOCK: Final = 64

SimilarityFunction = Callable[[Any, Any], Any]


def overlap_with(boxes: Any) -> SimilarityFunction:
    """Intersection over union of boxes at indices that broadcast; 0 for a box without area."""
    low = np.minimum(boxes[:, :2], boxes[:, 2:]).T.copy()
    high = np.maximum(boxes[:, :2], boxes[:, 2:]).T.copy()
    area = (high[0] - low[0]) * (high[1] - low[1])
    has_area, zero = ~(area <= 0), boxes.dtype.type(0)
    all_have = bool(has_area.all())

    def similarity(i: Any, j: Any) -> Any:
        rows, columns = (
            np.maximum(np.minimum(end[i], end[j]) - np.maximum(start[i], start[j]), zero)
            for start, end in zip(low, high, strict=True)
        )
        rows *= columns
        union = area[i] + area[j]
        union -= rows
        with np.errstate(all="ignore"):
            rows /= union
        return rows if all_have else np.where(has_area[i] & has_area[j], rows, zero)

    return similarity


def _similar_if_unknown(similarity: SimilarityFunction) -> SimilarityFunction:
    """A similarity that is infinite where another is NaN: TensorFlow then drops the box."""

    def known(i: Any, j: Any) -> Any:
        values = similarity(i, j)
        return np.where(np.isnan(values), np.inf, values)

    return known


def select_boxes(
    scores: Any,
    count: int,
    threshold: Any,
    score_threshold: Any,
    similarity: SimilarityFunction,
    sigma: Any = 0,
) -> tuple[Any, Any]:
    """Indices and scores of at most `count` boxes, best first.

    A box more similar than the threshold to a selected one is dropped; with `sigma` > 0, its score
    shrinks with each selected box instead (soft suppression), and it waits for its turn again; the
    threshold then has no effect, as in TensorFlow.
    """
    floor = -np.inf if score_threshold is None else score_threshold
    candidates = np.flatnonzero(scores > floor)
    count = min(count, len(candidates))
    if sigma > 0:
        return _select_softly(scores, candidates, count, floor, similarity, sigma)
    order = candidates[np.argsort(-scores[candidates], kind="stable")]
    chosen, start, size = order[:0], 0, min(_BLOCK, max(_BLOCK // 4, 2 * count))
    while start < len(order) and len(chosen) < count:
        block = order[start : start + size]
        if len(chosen):
            block = block[~(similarity(block[:, None], chosen) > threshold).any(axis=1)]
        similar = similarity(block[:, None], block) > threshold
        chosen = np.concatenate([chosen, block[_independent(similar, count - len(chosen))]])
        start, size = start + size, _BLOCK
    return chosen, scores[chosen]


def _independent(similar: Any, count: int) -> list[int]:
    """At most `count` rows, in order, that are not similar to earlier ones of the result."""
    packed = np.zeros((len(similar), _BLOCK // 8), np.uint8)
    bits = np.packbits(similar, axis=1, bitorder="little")
    packed[:, : bits.shape[1]] = bits
    chosen, rows = 0, []
    for row, earlier in enumerate(packed.view("<u8").reshape(-1).tolist()):
        if not earlier & chosen:
            chosen |= 1 << row
            rows.append(row)
            if len(rows) == count:
                break
    return rows


def _select_softly(
    scores: Any, candidates: Any, count: int, floor: Any, similarity: SimilarityFunction, sigma: Any
) -> tuple[Any, Any]:
    kind = scores.dtype.type
    scale = kind(-0.5) / sigma
    queue = [(-scores[i], i, 0) for i in candidates.tolist()]
    heapq.heapify(queue)
    chosen, selected, shrunk = np.empty(count, np.int64), 0, np.empty(count, scores.dtype)
    while selected < count and queue:
        negative, index, start = heapq.heappop(queue)
        score = original = -negative
        for value in similarity(index, chosen[start:selected][::-1]):
            score *= np.exp(scale * value * value)
            if score <= floor:
                break
        if score == original:
            chosen[selected], shrunk[selected] = index, score
            selected += 1
        elif score > floor:
            heapq.heappush(queue, (-score, index, selected))
    return chosen[:selected], shrunk[:selected]


def check_boxes(boxes: Any, scores: Any) -> None:
    """Raise OpError unless `boxes` is a matrix of four columns with a score per row."""
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise OpError(f"boxes must be 2-D with 4 columns, got shape {list(boxes.shape)}")
    check_scores(scores, len(boxes))


def check_scores(scores: Any, count: int) -> None:
    """Raise OpError unless `scores` is a vector of this length."""
    if scores.shape != (count,):
        raise OpError(f"scores has incompatible shape {list(scores.shape)}, expected [{count}]")


def output_count(size: Any, what: str = "max_output_size") -> int:
    """The largest number of outputs. Raises OpError unless it is a scalar of at least 0."""
    if size.ndim:
        raise OpError(f"{what} must be 0-D, got shape {list(size.shape)}")
    if size < 0:
        raise OpError(f"{what} must be non-negative, got {size}")
    return int(size)


def scalar_threshold(value: Any, what: str, *, unit: bool = False) -> Any:
    """A threshold. Raises OpError unless it is a scalar, and in [0, 1] for a `unit` one."""
    if value.ndim:
        raise OpError(f"{what} must be 0-D, got shape {list(value.shape)}")
    if unit and not 0 <= value <= 1:
        raise OpError(f"{what} must be in [0, 1], got {value}")
    return value


class BoxSelection(Op, abstract=True):
    """Non-maximum suppression; output 0 holds indices of the selected boxes."""

    placement = HostPlacement(host_only=True)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        boxes, scores = require_rank(context.inputs[0], 2), require_rank(context.inputs[1], 1)
        scores.merge(boxes[:1])
        boxes[1:].merge(Shape((4,)))
        for slot in range(2, len(context.inputs)):
            require_rank(context.inputs[slot], 0)
        padded = context.node.attrs.get("pad_to_max_output_size")
        count = static_int(context, 2) if padded else None
        selected = vector_shape(count)
        return [selected, selected, SCALAR_SHAPE][: context.output_count - 1] + (
            [SCALAR_SHAPE] if context.output_count > 1 else [selected]
        )


class NonMaxSuppression(BoxSelection):
    """Boxes selected by score and overlap; the threshold is an attribute."""

    signature = "boxes: float32, scores: float32, max_output_size: int32 -> selected_indices: int32"
    attrs = "iou_threshold: float = 0.5"

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        threshold = np.float32(node.attr("iou_threshold"))
        if not 0 <= threshold <= 1:
            raise OpError("iou_threshold must be in [0, 1]")

        def select(boxes: Any, scores: Any, size: Any) -> Any:
            return _select(boxes, scores, size, threshold)[0]

        return on_host(select, node, xp)


def _select(
    boxes: Any,
    scores: Any,
    size: Any,
    threshold: Any,
    score_threshold: Any = None,
    sigma: Any = 0,
    *,
    pad: bool = False,
) -> tuple[Any, Any, Any]:
    """Selected indices, their scores, and their number; both vectors are padded on request."""
    count = output_count(size)
    scalar_threshold(threshold, "iou_threshold", unit=True)
    if score_threshold is not None:
        scalar_threshold(score_threshold, "score_threshold")
    if not sigma >= 0:
        raise OpError(f"soft_nms_sigma must be non-negative, got {sigma}")
    check_boxes(boxes, scores)
    similarity = overlap_with(boxes)
    if score_threshold is not None:
        similarity = _similar_if_unknown(similarity)
    chosen, kept = select_boxes(scores, count, threshold, score_threshold, similarity, sigma)
    length = count if pad else len(chosen)
    reserve_array((length,), 4)
    indices, values = np.zeros(length, np.int32), np.zeros(length, scores.dtype)
    indices[: len(chosen)], values[: len(chosen)] = chosen, kept
    return indices, values, np.int32(len(chosen))


_TYPES = "T: {float16, float32} = float32"
_THRESHOLD = _TYPES + ", T_threshold: {float16, float32} = float32"


class NonMaxSuppressionV2(BoxSelection):
    """Boxes selected by score and overlap."""

    signature = (
        "boxes: T, scores: T, max_output_size: int32, iou_threshold: T_threshold "
        "-> selected_indices: int32"
    )
    attrs = _THRESHOLD
    adapter = on_host
    kernel = staticmethod(lambda xp, *inputs: _select(*inputs)[0])


class NonMaxSuppressionV3(NonMaxSuppressionV2):
    """Boxes selected by score and overlap, with a least score."""

    signature = (
        "boxes: T, scores: T, max_output_size: int32, iou_threshold: T_threshold, "
        "score_threshold: T_threshold -> selected_indices: int32"
    )


class NonMaxSuppressionV4(BoxSelection):
    """Boxes selected by score and overlap, optionally padded, and their number."""

    signature = (
        "boxes: T, scores: T, max_output_size: int32, iou_threshold: T_threshold, "
        "score_threshold: T_threshold -> selected_indices: int32, valid_outputs: int32"
    )
    attrs = _THRESHOLD + ", pad_to_max_output_size: bool = false"
    adapter = on_host

    @staticmethod
    def kernel(xp: ModuleType, pad_to_max_output_size: bool, /, *inputs: Any) -> Any:
        indices, _, count = _select(*inputs, pad=pad_to_max_output_size)
        return indices, count


class NonMaxSuppressionV5(BoxSelection):
    """Boxes selected by score and overlap with optional soft suppression, and their scores."""

    signature = (
        "boxes: T, scores: T, max_output_size: int32, iou_threshold: T, score_threshold: T, "
        "soft_nms_sigma: T -> selected_indices: int32, selected_scores: T, valid_outputs: int32"
    )
    attrs = _TYPES + ", pad_to_max_output_size: bool = false"
    adapter = on_host

    @staticmethod
    def kernel(xp: ModuleType, pad_to_max_output_size: bool, /, *inputs: Any) -> Any:
        return _select(*inputs, pad=pad_to_max_output_size)


class NonMaxSuppressionWithOverlaps(BoxSelection):
    """Boxes selected by score and a matrix of their overlaps."""

    signature = (
        "overlaps: float32, scores: float32, max_output_size: int32, overlap_threshold: float32, "
        "score_threshold: float32 -> selected_indices: int32"
    )
    adapter = on_host

    @staticmethod
    def kernel(
        xp: ModuleType, overlaps: Any, scores: Any, size: Any, threshold: Any, score_threshold: Any
    ) -> Any:
        count = output_count(size)
        scalar_threshold(threshold, "overlap_threshold")
        scalar_threshold(score_threshold, "score_threshold")
        if overlaps.ndim != 2 or overlaps.shape[0] != overlaps.shape[1]:
            raise OpError(f"overlaps must be square, got shape {list(overlaps.shape)}")
        check_scores(scores, len(overlaps))
        chosen, _ = select_boxes(
            scores, count, threshold, score_threshold, lambda i, js: overlaps[i, js]
        )
        return chosen.astype(np.int32)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        overlaps, scores = require_rank(context.inputs[0], 2), require_rank(context.inputs[1], 1)
        scores.merge(overlaps[:1]).merge(overlaps[1:])
        for slot in range(2, 5):
            require_rank(context.inputs[slot], 0)
        return [vector_shape(None)]


class CombinedNonMaxSuppression(Op):
    """The best boxes over all classes of each image, each class selected by itself."""

    signature = (
        "boxes: float32, scores: float32, max_output_size_per_class: int32, max_total_size: int32,"
        " iou_threshold: float32, score_threshold: float32 -> nmsed_boxes: float32, "
        "nmsed_scores: float32, nmsed_classes: float32, valid_detections: int32"
    )
    attrs = "pad_per_class: bool = false, clip_boxes: bool = true"
    placement = HostPlacement(host_only=True)
    adapter = on_host

    @staticmethod
    def kernel(xp: ModuleType, pad_per_class: bool, clip_boxes: bool, /, *inputs: Any) -> Any:
        boxes, scores, size, total, threshold, score_threshold = inputs
        count = output_count(size, "max_size_per_class")
        total = output_count(total, "max_total_size")
        if not total or not count:
            raise OpError("max_size_per_class and max_total_size must be positive")
        scalar_threshold(threshold, "iou_threshold", unit=True)
        scalar_threshold(score_threshold, "score_threshold")
        _check_batch(boxes, scores)
        length = min(total, count * scores.shape[2]) if pad_per_class else total
        reserve_array((len(boxes), length, 4), 4)
        images = [
            _best_of_image(*image, count, length, threshold, score_threshold)
            for image in zip(boxes, scores, strict=True)
        ]
        found, values, classes, valid = (
            np.stack([np.asarray(image[i]) for image in images])
            if images
            else np.zeros((0, *tail), np.float32)
            for i, tail in enumerate(((length, 4), (length,), (length,), ()))
        )
        found = np.clip(found, 0, 1) if clip_boxes else found
        return found, values, classes, valid.astype(np.int32)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        boxes, scores = require_rank(context.inputs[0], 4), require_rank(context.inputs[1], 3)
        for slot in range(2, 6):
            require_rank(context.inputs[slot], 0)
        count, total = static_int(context, 2), static_int(context, 3)
        length = total
        if context.attr("pad_per_class"):
            classes = scores[2:].dims
            known = classes and classes[0] is not None and count is not None and total is not None
            length = min(total, count * classes[0]) if known else None  # type: ignore[operator, index, type-var]
        rows = boxes[:1] + vector_shape(length)
        return [rows + Shape((4,)), rows, rows, boxes[:1]]


def _check_batch(boxes: Any, scores: Any) -> None:
    if boxes.ndim != 4 or scores.ndim != 3 or boxes.shape[:2] != scores.shape[:2]:
        raise OpError(
            f"boxes of shape {list(boxes.shape)} and scores of shape {list(scores.shape)} do not "
            f"fit each other"
        )
    if boxes.shape[2] not in (1, scores.shape[2]) or boxes.shape[3] != 4:
        raise OpError(f"boxes must have 1 or {scores.shape[2]} classes and 4 coordinates")


def _best_of_image(
    boxes: Any, scores: Any, count: int, length: int, threshold: Any, score_threshold: Any
) -> tuple[Any, Any, Any, int]:
    """Boxes, scores, and classes of one image, padded with zeros, and their number."""
    overlaps = [overlap_with(boxes[:, column]) for column in range(boxes.shape[1])]
    selected = [
        select_boxes(
            scores[:, label], count, threshold, score_threshold, overlaps[label % len(overlaps)]
        )
        for label in range(scores.shape[1])
    ]
    rows = np.zeros((length, 4), np.float32)
    best_scores, classes = np.zeros(length, np.float32), np.zeros(length, np.float32)
    if not selected:
        return rows, best_scores, classes, 0
    indices, values = (np.concatenate(parts) for parts in zip(*selected, strict=True))
    labels = np.repeat(np.arange(len(selected)), [len(chosen) for chosen, _ in selected])
    best = np.argsort(-values, kind="stable")[:length]
    columns = labels[best] % len(overlaps)
    rows[: len(best)] = boxes[indices[best], columns]
    best_scores[: len(best)], classes[: len(best)] = values[best], labels[best]
    return rows, best_scores, classes, len(best)
