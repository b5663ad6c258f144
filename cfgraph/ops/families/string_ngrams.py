"""N-grams of ragged rows of strings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import Shape, vector_shape
from cfgraph.ops.families.ragged import check_splits
from cfgraph.ops.opdef.facts import CompilerSupport, HostPlacement
from cfgraph.ops.opdef.op import Kernel, Op
from cfgraph.ops.opdef.shape_functions import InferenceContext, require_rank


class NGramPattern:
    """The attributes of StringNGrams."""

    def __init__(self, node: Node) -> None:
        self.separator: bytes = node.attr("separator")
        self.widths = [int(width) for width in node.attr("ngram_widths")]
        self.left: bytes = node.attr("left_pad")
        self.right: bytes = node.attr("right_pad")
        self.pad_width = int(node.attr("pad_width"))
        self.preserve_short = bool(node.attr("preserve_short_sequences"))

    def padding(self, width: int) -> int:
        """The number of pads on each side for one width; -1 asks for as many as make sense."""
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
            pads = max(self.pad_width, 0)
            padded = [self.left] * pads + list(words) + [self.right] * pads
            yield self.separator.join(padded)

    def _grams(self, words: Sequence[bytes], width: int) -> Iterator[bytes]:
        pads = self.padding(width)
        padded = [self.left] * pads + list(words) + [self.right] * pads
        for start in range(len(padded) - width + 1):
            yield self.separator.join(padded[start : start + width])


class StringNGrams(Op):
    """N-grams of each row, of one or more widths."""

    signature = "data: string, data_splits: Tsplits -> ngrams: string, ngrams_splits: Tsplits"
    attrs = (
        "separator: string, ngram_widths: list(int) >= 0, left_pad: string, right_pad: string, "
        "pad_width: int, preserve_short_sequences: bool, Tsplits: {int32, int64} = int64"
    )
    compilation = CompilerSupport(traceable=False)
    placement = HostPlacement(host_only=True)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        pattern = NGramPattern(node)

        def ngrams(words: Any, splits: Any) -> Any:
            if not len(splits):
                return np.empty(0, object), splits
            check_splits(splits, len(words))
            texts, bounds = words.tolist(), splits.tolist()
            rows = [list(pattern.row(texts[start:stop])) for start, stop in pairwise(bounds)]
            result = np.empty(sum(map(len, rows)), object)
            result[:] = [gram for row in rows for gram in row]
            return result, np.cumsum([0, *map(len, rows)]).astype(splits.dtype)

        return ngrams

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        require_rank(context.inputs[0], 1)
        return [vector_shape(None), require_rank(context.inputs[1], 1)]
