"""N-grams of ragged rows of strings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from types import ModuleType
from typing import Any, Final

import numpy as np

from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import Shape, vector_shape
from cfgraph.limits import reserve_array
from cfgraph.ops.families.ragged import check_splits
from cfgraph.ops.opdef.facts import CompilerSupport, HostPlacement
from cfgraph.ops.opdef.op import Kernel, Op, OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext, require_rank

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
            message = f"ngram_widths must contain positive values, got {self.widths}"
            raise OpError(message)
        if self.preserve_short and not self.widths and self.pad_width < 0:
            message = (
                f"pad_width must be at least 0 to preserve short sequences without ngram_widths, "
                f"got {self.pad_width}"
            )
            raise OpError(message)

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
