"""Joining and splitting of strings, and n-grams of ragged rows of strings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from types import ModuleType
from typing import Any, Final

import numpy as np

from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import SCALAR_SHAPE, UNKNOWN_SHAPE, Shape, vector_shape
from cfgraph.limits import reserve_array
from cfgraph.ops.families.ragged import check_splits
from cfgraph.ops.families.strings import string_array
from cfgraph.ops.opdef.facts import HostPlacement
from cfgraph.ops.opdef.op import Op, OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext, require_rank, shape_of_rank


class StringJoin(Op):
    """Elementwise concatenation of strings; scalars are broadcast."""

    signature = "inputs: N*string -> output: string"
    attrs = "N: int >= 0, separator: string = ''"

    @staticmethod
    def kernel(xp: ModuleType, separator: bytes, /, *inputs: Any) -> Any:
        shape = next((v.shape for v in inputs if v.ndim), ())
        for operand in inputs:
            if operand.ndim and operand.shape != shape:
                raise OpError(f"Input shapes do not match: {list(shape)} vs. {list(operand.shape)}")
        count = math.prod(shape)
        columns = [v.ravel().tolist() if v.ndim else [v.item()] * count for v in inputs]
        rows = zip(*columns, strict=True) if columns else [()] * count
        return string_array(map(separator.join, rows), shape)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        if any(shape.rank is None for shape in context.inputs):
            return [UNKNOWN_SHAPE]
        result = SCALAR_SHAPE
        for shape in context.inputs:
            if shape.rank:
                result = shape if result.rank == 0 else result.merge(shape)
        return [result]


class ReduceJoin(Op):
    """Strings joined along dimensions, of which the first listed varies fastest."""

    signature = "inputs: string, reduction_indices: host int32 -> output: string"
    attrs = "keep_dims: bool = false, separator: string = ''"

    @staticmethod
    def kernel(
        xp: ModuleType, keep_dims: bool, separator: bytes, /, texts: Any, indices: Any
    ) -> Any:
        axes = join_axes(indices.ravel().tolist(), texts.ndim)
        if not axes:
            return texts
        outer_axes = [d for d in range(texts.ndim) if d not in axes]
        shape = [
            1 if d in axes else n for d, n in enumerate(texts.shape) if keep_dims or d in outer_axes
        ]
        count = math.prod(texts.shape[d] for d in axes)
        rows = texts.transpose(outer_axes + axes[::-1]).reshape((math.prod(shape), count))
        return string_array((separator.join(row) for row in rows.tolist()), shape)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        texts, indices, keep = context.inputs[0], context.value(1), context.attr("keep_dims")
        if texts.dims is None:
            return [UNKNOWN_SHAPE]
        if indices is None:
            return [shape_of_rank(texts.rank) if keep else UNKNOWN_SHAPE]
        axes = join_axes(indices.ravel().tolist(), len(texts.dims))
        dims = [1 if d in axes else n for d, n in enumerate(texts.dims) if keep or d not in axes]
        return [Shape(dims)]


def join_axes(indices: list[int], rank: int) -> list[int]:
    """Nonnegative axes. Raises OpError for invalid or duplicate axes."""
    axes: list[int] = []
    for index in indices:
        if not -rank <= index < rank:
            raise OpError(f"Invalid reduction dimension {index} for input with {rank} dimension(s)")
        if index % rank in axes:
            raise OpError(f"Duplicate reduction dimension {index}")
        axes.append(index % rank)
    return axes


class UnsortedSegmentJoin(Op):
    """Strings of each segment, joined."""

    signature = (
        "inputs: string, segment_ids: Tindices, num_segments: host Tnumsegments -> output: string"
    )
    attrs = "separator: string = '', Tindices: {int32, int64}, Tnumsegments: {int32, int64} = int32"

    @staticmethod
    def kernel(xp: ModuleType, separator: bytes, /, texts: Any, segments: Any, count: Any) -> Any:
        if texts.shape[: segments.ndim] != segments.shape or not segments.ndim:
            raise OpError(
                "segment_ids must be a prefix of the shape of inputs: "
                f"{list(segments.shape)} vs. {list(texts.shape)}"
            )
        inner = texts.shape[segments.ndim :]
        width = math.prod(inner)
        rows: list[list[list[bytes]]] = [[[] for _ in range(width)] for _ in range(int(count))]
        values = texts.reshape((segments.size, width)).tolist()
        for segment, row in zip(segments.ravel().tolist(), values, strict=True):
            if not 0 <= segment < count:
                raise OpError(f"segment id {segment} is out of the range [0, {count})")
            for column, text in enumerate(row):
                rows[segment][column].append(text)
        joined = [separator.join(cell) for row in rows for cell in row]
        return string_array(joined, (int(count), *inner))

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        texts, segments, count = context.inputs[0], context.inputs[1], context.value(2)
        if texts.rank is None or segments.rank is None:
            return [UNKNOWN_SHAPE]
        return [Shape((None if count is None else int(count),)) + texts[segments.rank :]]


class StringSplitOp(Op, abstract=True):
    """Split result as a sparse matrix: indices, values, and dense shape."""

    shape = staticmethod(lambda context: [Shape((None, 2)), Shape((None,)), Shape((2,))])


def sparse_rows(rows: list[list[bytes]]) -> tuple[Any, Any, Any]:
    """Indices, values, and dense shape of a sparse matrix of strings."""
    values = list(chain.from_iterable(rows))
    lengths = np.array(list(map(len, rows)), np.int64)
    coordinates = np.empty((len(values), 2), np.int64)
    coordinates[:, 0] = np.arange(len(rows)).repeat(lengths)
    coordinates[:, 1] = np.arange(len(values))
    coordinates[:, 1] -= (lengths.cumsum() - lengths).repeat(lengths)
    sizes = np.array([len(rows), lengths.max(initial=0)], np.int64)
    return coordinates, string_array(values, (len(values),)), sizes


def check_split_inputs(texts: Any, separator: Any) -> None:
    """Raise OpError unless the input is a vector and the separator a scalar."""
    if texts.ndim != 1:
        raise OpError(f"input must be a vector, got shape: {list(texts.shape)}")
    if separator.ndim:
        raise OpError(f"sep must be a scalar, got shape: {list(separator.shape)}")


class StringSplit(StringSplitOp):
    """Strings split at each byte of a set of delimiters, or between all bytes if it is empty."""

    signature = "input: string, delimiter: string -> indices: int64, values: string, shape: int64"
    attrs = "skip_empty: bool = true"

    @staticmethod
    def kernel(xp: ModuleType, skip_empty: bool, /, texts: Any, delimiter: Any) -> Any:
        check_split_inputs(texts, delimiter)
        delimiters = delimiter.item()
        rows = [split_at_bytes(text, delimiters) for text in texts.tolist()]
        return sparse_rows([list(filter(None, row)) for row in rows] if skip_empty else rows)


def split_at_bytes(text: bytes, delimiters: bytes) -> list[bytes]:
    """Split a string at each byte of a set of delimiters."""
    if not delimiters:
        return [text[position : position + 1] for position in range(len(text))]
    if not text:
        return []
    for delimiter in delimiters[1:]:
        text = text.replace(bytes([delimiter]), delimiters[:1])
    return text.split(delimiters[:1])


class StringSplitV2(StringSplitOp):
    """Strings split at a separator, or at whitespace if it is empty."""

    signature = "input: string, sep: string -> indices: int64, values: string, shape: int64"
    attrs = "maxsplit: int = -1"

    @staticmethod
    def kernel(xp: ModuleType, maxsplit: int, /, texts: Any, separator: Any) -> Any:
        check_split_inputs(texts, separator)
        delimiter = separator.item()
        if delimiter:
            return sparse_rows([text.split(delimiter, maxsplit) for text in texts.tolist()])
        if maxsplit == 0:
            return sparse_rows([[text] for text in texts.tolist()])
        rows = [text.split(None, maxsplit) for text in texts.tolist()]
        # the remainder counts as a token even if it is empty
        return sparse_rows([[*row, b""] if len(row) == maxsplit else row for row in rows])


# bytes of a reference to a word
_WORD_BYTES: Final = 8


class NGramPattern:
    """The attributes of StringNGrams."""

    def __init__(self, node: Node) -> None:
        self.separator: bytes = node.attr("separator")
        self.widths = [int(width) for width in node.attr("ngram_widths")]
        self.left: bytes = node.attr("left_pad")
        self.right: bytes = node.attr("right_pad")
        self.pad_width = int(node.attr("pad_width"))
        self.preserve_short = bool(node.attr("preserve_short_sequences"))
        if any(width < 1 for width in self.widths):
            raise OpError(f"ngram_widths must contain positive values, got {self.widths}")
        if self.preserve_short and not self.widths and self.pad_width < 0:
            raise OpError(
                f"pad_width must be at least 0 to preserve short sequences without ngram_widths, "
                f"got {self.pad_width}"
            )

    def padding(self, width: int) -> int:
        """The number of pads on each side of a row; at most `width` - 1."""
        return width - 1 if self.pad_width < 0 else min(self.pad_width, width - 1)

    def row(self, words: Sequence[bytes]) -> Iterator[bytes]:
        """The n-grams of one row, by width and position."""
        found = False
        for width in self.widths:
            for gram in self._grams(words, width):
                found = True
                yield gram
        if self.preserve_short and not found and words:
            # all words as one n-gram, padded as for the greatest width that pads at all
            yield self.separator.join(self._padded(words, max(self.pad_width, 0)))

    def _padded(self, words: Sequence[bytes], pads: int) -> list[bytes]:
        reserve_array((2 * pads + len(words),), _WORD_BYTES)
        return [self.left] * pads + list(words) + [self.right] * pads

    def _grams(self, words: Sequence[bytes], width: int) -> Iterator[bytes]:
        padded = self._padded(words, self.padding(width))
        reserve_array((len(padded) - width + 1, width), _WORD_BYTES)
        for start in range(len(padded) - width + 1):
            yield self.separator.join(padded[start : start + width])


class StringNGrams(Op):
    """N-grams of each row, of one or more widths."""

    signature = "data: string, data_splits: Tsplits -> ngrams: string, ngrams_splits: Tsplits"
    attrs = (
        "separator: string, ngram_widths: list(int) >= 0, left_pad: string, right_pad: string, "
        "pad_width: int, preserve_short_sequences: bool, Tsplits: {int32, int64} = int64"
    )
    placement = HostPlacement(host_only=True)
    pattern = NGramPattern

    @staticmethod
    def kernel(xp: ModuleType, pattern: NGramPattern, /, words: Any, splits: Any) -> Any:
        if not len(splits):
            return np.full(words.shape, b"", object), splits
        check_splits(splits, len(words))
        texts, bounds = words.tolist(), splits.tolist()
        rows = [list(pattern.row(texts[start:stop])) for start, stop in pairwise(bounds)]
        result = np.empty(sum(map(len, rows)), object)
        result[:] = [gram for row in rows for gram in row]
        return result, np.cumsum([0, *map(len, rows)]).astype(splits.dtype)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        require_rank(context.inputs[0], 1)
        return [vector_shape(None), require_rank(context.inputs[1], 1)]
