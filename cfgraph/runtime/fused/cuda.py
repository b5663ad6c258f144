"""Generated kernels on a card: compiled by NVRTC through CuPy, once a source, and kept on disk.

CuPy's own way to a module, RawModule, has numbers below the least normal one be 0: behind the
options that it is given it says so to NVRTC. Here no such option is added.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final
from weakref import WeakValueDictionary

import numpy as np

from cfgraph.runtime.devices.card import Card
from cfgraph.runtime.fused import kernel_cache
from cfgraph.runtime.fused.ready import Launch

# no product is contracted with a sum: every operation rounds, as on the host
OPTIONS: Final = ("--std=c++17", "--fmad=false")


class Cuda:
    """A card as a machine for groups; kernels run in the current stream, in its memory."""

    def __init__(self, card: Card) -> None:
        self._card = card
        # as long as any group has a signature that launches it
        self._known: WeakValueDictionary[str, Launch] = WeakValueDictionary()
        self.array = card.array
        self.empty = card.xp.empty

    def to_device(self, value: np.ndarray) -> Any:
        """A NumPy array as one of the card."""
        return self._card.to_device(value)

    def function(self, source: str, name: str) -> Launch:
        """The kernel of a source, compiled here. Raises what CuPy does where that fails."""
        found = self._known.get(source)
        if found is None:
            kernel = module_of(self._card.xp, source).get_function(name)

            def launch(blocks: int, threads: int, given: Sequence[Any]) -> None:
                kernel((blocks,), (threads,), given)

            found = self._known[source] = launch
        return found


def module_of(xp: Any, source: str) -> Any:
    """A source, compiled for the card that is current: its functions are called as CuPy's are."""
    name = kernel_cache.name_of(xp, source, OPTIONS)
    kept = kernel_cache.load(name)
    if kept is not None:
        try:
            return _loaded(xp, kept)
        except RuntimeError:
            # this driver does not take it: it may take what is compiled here
            pass
    code, _ = xp.cuda.compiler.compile_using_nvrtc(source, OPTIONS)
    module = _loaded(xp, code)
    kernel_cache.save(name, code)
    return module


def _loaded(xp: Any, code: bytes) -> Any:
    module = xp.cuda.Module()
    module.load(code)
    return module


@cache
def cuda_of(card: Card) -> Cuda:
    """The machine that a card is; one, so that each source is compiled once."""
    return Cuda(card)
