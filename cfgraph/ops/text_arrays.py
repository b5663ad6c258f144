"""Arrays of bytes strings: how an op on one string becomes one on a tensor of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from cfgraph.ir.graph import Node
from cfgraph.ops.op import Kernel
from cfgraph.ops.pointwise import SameShape


def text_array(texts: Iterable[bytes], shape: Sequence[int]) -> Any:
    """An array of strings of this shape."""
    flat = list(texts)
    array = np.empty(len(flat), object)
    array[:] = flat
    return array.reshape(shape)


def each(function: Callable[[bytes], bytes], texts: Any) -> Any:
    """A function of every string."""
    return text_array(map(function, texts.ravel().tolist()), texts.shape)


class EachText(SameShape, abstract=True):
    """An op that turns every string into another: `change(node, text)` says how."""

    signature = "input: string -> output: string"
    traceable = False
    change: ClassVar[Callable[..., bytes]]

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        change = partial(cls.change, node)
        return lambda texts: each(change, texts)
