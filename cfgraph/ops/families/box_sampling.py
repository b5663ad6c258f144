"""Random crops of an image that cover enough of one of its bounding boxes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from types import ModuleType
from typing import Any, Final

import numpy as np

from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import Shape, vector_shape
from cfgraph.limits import check_deadline
from cfgraph.ops.families.stateless_random import stream_of_seed
from cfgraph.ops.kernels.philox import PhiloxStream, unit_float32
from cfgraph.ops.opdef.facts import HostPlacement, SideEffects
from cfgraph.ops.opdef.gradient_api import no_gradient
from cfgraph.ops.opdef.op import Op, OpError
from cfgraph.ops.opdef.resources import Step

_SIZE: Final = "T: {uint8, int8, int16, int32, int64}"
_RULES: Final = (
    "aspect_ratio_range: list(float) = [0.75, 1.33], area_range: list(float) = [0.05, 1.0], "
    "max_attempts: int = 100, use_image_if_no_bounding_boxes: bool = false"
)
_LARGEST: Final = (1 << 31) - 1  # a random word has enough bits for smaller sizes
# words that are drawn at once
_BLOCK: Final = 64
# top, left, bottom, and right, in pixels
Box = tuple[int, int, int, int]


def _words_of_stream(stream: PhiloxStream) -> Iterator[int]:
    for start in count(0, _BLOCK // 4):
        yield from stream.sequence(_BLOCK, start).tolist()


def _words_of_generator(generator: Any) -> Iterator[int]:
    while True:
        yield from generator.integers(0, 1 << 32, _BLOCK).tolist()


def _below(words: Iterator[int], limit: int) -> int:
    """A random number below a limit; words that would make small ones more likely are skipped."""
    if not limit & (limit - 1):
        return next(words) & (limit - 1)
    remainder = (1 << 32) % limit
    return next(word for word in words if word >= remainder) % limit


class _CropRules:
    """The rules of a node for crops of an image of some height and width."""

    def __init__(self, node: Node, height: int, width: int, coverage: Any) -> None:
        self.height, self.width, self.coverage = height, width, np.float32(coverage)
        self.ratios, self.areas = (
            [np.float32(bound) for bound in node.attr(f"{name}_range")]
            for name in ("aspect_ratio", "area")
        )
        self.attempts = node.attr("max_attempts")

    def sample(self, boxes: Sequence[Box], words: Iterator[int]) -> Box:
        """A crop that covers enough of a box; the whole image after too many attempts."""
        low, high = self.ratios
        for _ in range(self.attempts):
            check_deadline()
            unit = unit_float32(np.array([next(words)], np.uint32))[0]
            crop = self._crop(unit * (high - low) + low, words)
            if crop is not None and self._covers(crop, boxes):
                return crop
        return 0, 0, self.height, self.width

    def _crop(self, ratio: Any, words: Iterator[int]) -> Box | None:
        """A random crop of about this width per height; None if none has an area within bounds."""
        if self.height <= 0 or self.width <= 0 or self.areas[0] > self.areas[1]:
            return None
        least, most = (
            area * np.float32(self.width) * np.float32(self.height) for area in self.areas
        )
        rows, tallest = (int(np.rint(np.sqrt(area / ratio))) for area in (least, most))
        if _columns(tallest, ratio) > self.width:
            tallest = int((self.width + 0.5 - float(np.float32(1e-7))) / float(ratio))
            tallest -= _columns(tallest, ratio) > self.width
        tallest = min(tallest, self.height)
        rows = min(rows, tallest)
        if rows < tallest:
            rows += _below(words, tallest - rows + 1)
        # rounding may leave the bounds
        rows += int(np.float32(rows * _columns(rows, ratio)) < least)
        rows -= int(np.float32(rows * _columns(rows, ratio)) > most)
        columns = _columns(rows, ratio)
        if not (least <= np.float32(rows * columns) <= most and rows > 0 < columns):
            return None
        if rows > self.height or columns > self.width:
            return None
        top = _below(words, self.height - rows) if rows < self.height else 0
        left = _below(words, self.width - columns) if columns < self.width else 0
        return top, left, top + rows, left + columns

    def _covers(self, crop: Box, boxes: Sequence[Box]) -> bool:
        """True if a crop with pixels covers enough of a box with pixels."""
        if _area(crop) < 1:
            return False
        return any(
            np.float32(_area(_common(crop, box))) / np.float32(_area(box)) >= self.coverage
            for box in boxes
            if _area(box) >= 1
        )


def _columns(rows: int, ratio: Any) -> int:
    return int(np.rint(np.float32(rows) * ratio))


def _area(box: Box) -> int:
    top, left, bottom, right = box
    return (bottom - top) * (right - left)


def _common(a: Box, b: Box) -> Box:
    top, left, bottom, right = *map(max, a[:2], b[:2]), *map(min, a[2:], b[2:])
    return (top, left, bottom, right) if top < bottom and left < right else (0, 0, 0, 0)


def _sampled(
    node: Node, words: Iterator[int], image_size: Any, boxes: Any, coverage: Any
) -> tuple[Any, Any, Any]:
    """The begin and the size of a crop, and its box as fractions of the image."""
    _check_rules(node)
    if image_size.shape != (3,):
        raise OpError(f"image_size must contain 3 elements, got shape {list(image_size.shape)}")
    if np.ndim(coverage) or not coverage >= 0:
        raise OpError(f"min_object_covered must be a scalar of at least 0, got {coverage}")
    height, width = image_size[:2].tolist()
    if not 0 <= min(height, width) <= max(height, width) < _LARGEST:
        raise OpError(f"an image must have sizes from 0 to {_LARGEST - 1}, got {height}, {width}")
    pixels = _pixels(boxes, height, width) or [(0, 0, height, width)]
    if not boxes.size and not node.attr("use_image_if_no_bounding_boxes"):
        raise OpError("there are no bounding boxes, and use_image_if_no_bounding_boxes is false")
    crop = _CropRules(node, height, width, coverage).sample(pixels, words)
    top, left, bottom, right = crop
    kind = image_size.dtype
    size = np.array([bottom - top, right - left, -1]).astype(kind)
    fractions = np.array(crop, np.float32) / np.array([height, width] * 2, np.float32)
    return np.array([top, left, 0], kind), size, fractions.reshape(1, 1, 4)


def _pixels(boxes: Any, height: int, width: int) -> list[Box]:
    """The bounding boxes in pixels."""
    if not boxes.size:
        return []
    if boxes.ndim != 3 or boxes.shape[2] != 4:
        raise OpError(f"bounding_boxes must have shape [batch, N, 4], got {list(boxes.shape)}")
    if not ((boxes >= 0) & (boxes <= 1)).all():
        raise OpError("all bounding box coordinates must be in [0.0, 1.0]")
    scaled = boxes.reshape(-1, 4) * np.array([height, width] * 2, np.float32)
    return [(top, left, bottom, right) for top, left, bottom, right in scaled.astype(int).tolist()]


def _check_rules(node: Node) -> None:
    """Raise OpError for ranges or a number of attempts that permit no crop."""
    for name, most in (("aspect_ratio_range", np.inf), ("area_range", 1)):
        bounds = node.attr(name)
        if len(bounds) != 2 or min(bounds) <= 0 or max(bounds) > most:
            raise OpError(f"{name} must be two positive numbers up to {most}, got {list(bounds)}")
    if node.attr("max_attempts") <= 0:
        raise OpError(f"max_attempts must be positive, got {node.attr('max_attempts')}")


class CropSampler(Op, abstract=True):
    """A random crop that covers enough of a bounding box."""

    placement = HostPlacement(host_only=True)
    shape = staticmethod(lambda context: [vector_shape(3), vector_shape(3), Shape((1, 1, 4))])


class SampleDistortedBoundingBoxV2(CropSampler):
    """A random crop that covers enough of a bounding box."""

    signature = (
        "image_size: T, bounding_boxes: float32, min_object_covered: float32 "
        "-> begin: T, size: T, bboxes: float32"
    )
    attrs = f"{_SIZE}, seed: int = 0, seed2: int = 0, {_RULES}"
    effects = SideEffects(stateful=True, random=True)
    gradient = staticmethod(no_gradient)

    @staticmethod
    def kernel(
        xp: ModuleType, node: Node, seed: int, seed2: int, /, step: Step, *inputs: Any
    ) -> Any:
        size, boxes, *coverage = inputs
        words = _words_of_generator(step.generator(seed, seed2))
        return _sampled(node, words, size, boxes, *(coverage or [node.attr("min_object_covered")]))


class SampleDistortedBoundingBox(SampleDistortedBoundingBoxV2):
    """A random crop that covers enough of a bounding box, a fraction that is an attribute."""

    signature = "image_size: T, bounding_boxes: float32 -> begin: T, size: T, bboxes: float32"
    attrs = f"{_SIZE}, seed: int = 0, seed2: int = 0, min_object_covered: float = 0.1, {_RULES}"


class StatelessSampleDistortedBoundingBox(CropSampler):
    """A random crop that covers enough of a bounding box, derived from a seed."""

    signature = (
        "image_size: T, bounding_boxes: float32, min_object_covered: float32, seed: Tseed "
        "-> begin: T, size: T, bboxes: float32"
    )
    attrs = f"{_SIZE}, Tseed: {{int32, int64}}, {_RULES}"
    effects = SideEffects(random=True)

    @staticmethod
    def kernel(xp: ModuleType, node: Node, /, *inputs: Any) -> Any:
        *arguments, seed = inputs
        return _sampled(node, _words_of_stream(stream_of_seed(seed)), *arguments)
