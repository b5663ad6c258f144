"""Variables that several GPU devices of a run use, each through a handle of its own.

References cannot be ordered this way, since a value is read before a kernel is queued: all
references to a variable are on one device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cfgraph.analysis.resource_handles import is_variable, variable_key
from cfgraph.errors import Unsupported
from cfgraph.ir.devices import short_device_name
from cfgraph.ir.graph import Node
from cfgraph.ops.families.variables import Variable
from cfgraph.runtime.engine.plan import Plan
from cfgraph.runtime.gpu.context import GpuContext
from cfgraph.runtime.gpu.stream import GpuStream


def require_colocated_references(plans: Sequence[Plan], lanes: Mapping[str, GpuStream]) -> None:
    """Raise Unsupported for a reference to a variable that another device has, too, one on a card.

    `lanes` are those of the run, by device.
    """
    seen: dict[tuple[str, str], tuple[str, Node]] = {}
    for plan in plans:
        for node in plan.nodes:
            if not is_variable(node):
                continue
            device, other = seen.setdefault(variable_key(node), (plan.device, node))
            if device != plan.device and lanes.keys() & {device, plan.device}:
                _require_handles(node, plan.device, other, device)


def _require_handles(node: Node, device: str, other: Node, elsewhere: str) -> None:
    if not any(
        dtype is not None and dtype.is_ref for dtype in (_handle_type(node), _handle_type(other))
    ):
        return
    name = variable_key(node)[1]
    message = (
        f"'{name}' is one variable for {node.op} '{node.name}' on {short_device_name(device)} and "
        f"{other.op} '{other.name}' on {short_device_name(elsewhere)}; "
        "a reference variable must stay on one device when a GPU is real"
    )
    hint = "put both on one device, or take handles (VarHandleOp)"
    raise Unsupported(
        message, node=node, device=short_device_name(device), hint=hint, code="CFG403"
    )


def _handle_type(node: Node) -> Any:
    return node.output().dtype


class SharedVariables:
    """Orders what gpus do with the same variable as their kernels are queued.

    `lanes` are those of the run, by device.
    """

    def __init__(self, card: GpuContext, lanes: Mapping[str, GpuStream]) -> None:
        self._array, self._lanes = card.array, lanes
        # who used a variable last, and the value of it that all gpus have borrowed
        self._last: dict[Variable, GpuStream] = {}
        self._lent: dict[Variable, Any] = {}

    def use(self, cell: Variable, lane: GpuStream) -> None:
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
