"""What runs a signature of a group: its launches, ready but for the arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from cfgraph.runtime.fused.expressions import Dims
from cfgraph.runtime.fused.kernel_text import THREADS

Launch = Callable[[int, int, Sequence[Any]], None]
Run = Callable[[Sequence[Any]], Any]


class Machine(Protocol):
    """What runs generated kernels: a card, or anything that has arrays of its own."""

    array: type[Any]

    def empty(self, shape: Dims, dtype: Any) -> Any:
        """A new array."""

    def to_device(self, value: np.ndarray) -> Any:
        """A NumPy array as one of the machine."""

    def function(self, source: str, name: str) -> Launch:
        """A kernel: called with blocks, threads and arguments. Compiled once a source."""


@dataclass(frozen=True, slots=True)
class Kept:
    """An output that is no kernel's: an input handed on, or a number that is known."""

    place: int = -1
    value: Any = None


@dataclass(frozen=True, slots=True)
class Ready:
    """One launch for a signature: what it takes of the inputs, and the outputs that it makes."""

    launch: Launch | None  # none where there are no elements
    blocks: int
    before: tuple[Any, ...]
    taken: tuple[tuple[int, Any], ...]  # an input, and how its bits are seen where it is a value
    made: tuple[tuple[int, Dims, Any], ...]  # an output, its shape and type
    behind: tuple[Any, ...]


def runner(machine: Machine, launches: Sequence[Ready], kept: Sequence[Kept | None]) -> Run:
    """A function of a group's inputs: its outputs, one bare, several as a tuple."""
    short = len(launches) == 1 and not any(kept) and not any(seen for _, seen in launches[0].taken)
    return _single(machine, launches[0]) if short else _several(machine, launches, kept)


def _single(machine: Machine, ready: Ready) -> Run:
    """One launch that makes all outputs: this is what most groups are, and is short."""
    empty, launch, blocks = machine.empty, ready.launch, ready.blocks
    places = [place for place, _ in ready.taken]
    kinds = [(shape, dtype) for _, shape, dtype in ready.made]
    before, behind, bare = ready.before, ready.behind, len(kinds) == 1

    def run(values: Sequence[Any]) -> Any:
        made = [empty(shape, dtype) for shape, dtype in kinds]
        if launch is not None:
            taken = [values[place] for place in places]
            launch(blocks, THREADS, (*before, *taken, *made, *behind))
        return made[0] if bare else tuple(made)

    return run


def _several(machine: Machine, launches: Sequence[Ready], kept: Sequence[Kept | None]) -> Run:
    def run(values: Sequence[Any]) -> Any:
        results: list[Any] = [
            None if item is None else values[item.place] if item.place >= 0 else item.value
            for item in kept
        ]
        for ready in launches:
            taken = [
                values[place] if seen is None else np.asarray(values[place]).view(seen)[()]
                for place, seen in ready.taken
            ]
            made = [machine.empty(shape, dtype) for _, shape, dtype in ready.made]
            if ready.launch is not None:
                ready.launch(ready.blocks, THREADS, (*ready.before, *taken, *made, *ready.behind))
            for (place, _, _), value in zip(ready.made, made, strict=True):
                results[place] = value
        return results[0] if len(results) == 1 else tuple(results)

    return run
