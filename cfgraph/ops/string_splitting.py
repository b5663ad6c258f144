"""Strings cut into parts, as a sparse matrix of them."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import Shape
from cfgraph.ops.inference import InferenceContext
from cfgraph.ops.op import Kernel, Op, OpError
from cfgraph.ops.text_arrays import text_array


class Splitting(Op, abstract=True):
    """Rows of parts as a sparse matrix: indices, values, shape."""

    traceable = False

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [Shape((None, 2)), Shape((None,)), Shape((2,))]


def sparse(rows: list[list[bytes]]) -> tuple[Any, Any, Any]:
    """Rows of parts as a sparse matrix."""
    places = [(row, column) for row, parts in enumerate(rows) for column in range(len(parts))]
    values = [text for parts in rows for text in parts]
    widest = max(map(len, rows), default=0)
    return (
        np.array(places, np.int64).reshape((-1, 2)),
        text_array(values, (len(values),)),
        np.array([len(rows), widest], np.int64),
    )


def check_texts(texts: Any, separator: Any) -> None:
    """Refuse what is no vector of strings and one separator."""
    if texts.ndim != 1:
        message = f"input must be a vector, got shape: {list(texts.shape)}"
        raise OpError(message)
    if separator.ndim:
        message = f"sep must be a scalar, got shape: {list(separator.shape)}"
        raise OpError(message)


class StringSplit(Splitting):
    """Strings cut at every byte that is one of the delimiters; at every byte if there is none."""

    signature = "input: string, delimiter: string -> indices: int64, values: string, shape: int64"
    attrs = "skip_empty: bool = true"

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        skip = node.attr("skip_empty")

        def split(texts: Any, delimiter: Any) -> Any:
            check_texts(texts, delimiter)
            bytes_ = delimiter.item()
            rows = [cut(text, bytes_) for text in texts.tolist()]
            return sparse([[part for part in row if part or not skip] for row in rows])

        return split


def cut(text: bytes, delimiters: bytes) -> list[bytes]:
    """A string cut at each of some bytes."""
    if not delimiters:
        return [text[place : place + 1] for place in range(len(text))]
    if not text:
        return []
    for other in delimiters[1:]:
        text = text.replace(bytes([other]), delimiters[:1])
    return text.split(delimiters[:1])


class StringSplitV2(Splitting):
    """Strings cut at a separator, or at whitespace if it is empty."""

    signature = "input: string, sep: string -> indices: int64, values: string, shape: int64"
    attrs = "maxsplit: int = -1"

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        most = node.attr("maxsplit")

        def split(texts: Any, separator: Any) -> Any:
            check_texts(texts, separator)
            mark = separator.item()
            if mark:
                return sparse([text.split(mark, most) for text in texts.tolist()])
            if most == 0:
                return sparse([[text] for text in texts.tolist()])
            rows = [text.split(None, most) for text in texts.tolist()]
            # the rest is a part, even where nothing is left of it
            return sparse([[*row, b""] if len(row) == most else row for row in rows])

        return split
