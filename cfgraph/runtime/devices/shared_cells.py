"""Variables that several gpus of a run use, each by a handle of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cfgraph.ops.variables import Variable
from cfgraph.runtime.devices.card import Card
from cfgraph.runtime.devices.lane import Lane


class SharedCells:
    """Orders what gpus do with the same variable as their kernels are queued.

    `lanes` are those of the run, by device.
    """

    def __init__(self, card: Card, lanes: Mapping[str, Lane]) -> None:
        self._array, self._lanes = card.array, lanes
        # who used a variable last, and the value of it that all gpus have borrowed
        self._last: dict[Variable, Lane] = {}
        self._lent: dict[Variable, Any] = {}

    def use(self, cell: Variable, lane: Lane) -> None:
        """A kernel of a gpu is going to read a variable, or to replace its value."""
        if len(self._lanes) < 2:
            return
        before, self._last[cell] = self._last.get(cell, lane), lane
        if before is lane:
            return
        lane.follow([before])
        if type(cell.value) is self._array and self._lent.get(cell) is not cell.value:
            # any of them may be the last one to read it
            cell.value = self._lent[cell] = lane.lend(cell.value, [*self._lanes.values()])
