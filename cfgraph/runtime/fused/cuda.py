"""Generated kernels on a card: compiled by NVRTC through CuPy, once a source."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import numpy as np

from cfgraph.runtime.devices.card import Card
from cfgraph.runtime.fused.ready import Launch

# no product is contracted with a sum: every operation rounds, as on the host
OPTIONS: Final = ("--std=c++17", "--fmad=false")


class Cuda:
    """A card as a machine for groups; kernels run in the current stream, in its memory."""

    def __init__(self, card: Card) -> None:
        self._card = card
        self._known: dict[str, Launch] = {}
        self.array = card.array
        self.empty = card.xp.empty

    def to_device(self, value: np.ndarray) -> Any:
        """A NumPy array as one of the card."""
        return self._card.to_device(value)

    def function(self, source: str, name: str) -> Launch:
        """The kernel of a source, compiled when it is first launched."""
        found = self._known.get(source)
        if found is None:
            module = self._card.xp.RawModule(code=source, options=OPTIONS, backend="nvrtc")
            kernel = module.get_function(name)

            def launch(blocks: int, threads: int, given: Sequence[Any]) -> None:
                kernel((blocks,), (threads,), given)

            found = self._known[source] = launch
        return found


@cache
def cuda_of(card: Card) -> Cuda:
    """The machine that a card is; one, so that each source is compiled once."""
    return Cuda(card)
