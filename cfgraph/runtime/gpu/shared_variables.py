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


def require_colocated_references(plans: Sequence[Plan], streams: Mapping[str, GpuStream]) -> None:
    """Raise Unsupported for a reference to a variable that is also used on another device.

    `streams` are those of the run by device; only variables on a real GPU are checked.
    """
    seen: dict[tuple[str, str], tuple[str, Node]] = {}
    for plan in plans:
        for node in plan.nodes:
            if not is_variable(node):
                continue
            device, first = seen.setdefault(variable_key(node), (plan.device, node))
            if device != plan.device and streams.keys() & {device, plan.device}:
                _require_handles(node, plan.device, first, device)


def _require_handles(node: Node, device: str, first: Node, first_device: str) -> None:
    if not any(
        dtype is not None and dtype.is_ref for dtype in (_handle_type(node), _handle_type(first))
    ):
        return
    name = variable_key(node)[1]
    message = (
        f"'{name}' is one variable for {node.op} '{node.name}' on {short_device_name(device)} and "
        f"{first.op} '{first.name}' on {short_device_name(first_device)}; "
        "a reference variable must stay on one device when a GPU is real"
    )
    hint = "put both on one device, or use handles (VarHandleOp)"
    raise Unsupported(
        message, node=node, device=short_device_name(device), hint=hint, code="CFG403"
    )


def _handle_type(node: Node) -> Any:
    return node.output().dtype


class SharedVariables:
    """Order of the kernels of several GPU devices that use one variable.

    `streams` are those of the run by device.
    """

    def __init__(self, context: GpuContext, streams: Mapping[str, GpuStream]) -> None:
        self._array, self._streams = context.array, streams
        # the last stream that used a variable, and the value that all devices have borrowed
        self._last: dict[Variable, GpuStream] = {}
        self._lent: dict[Variable, Any] = {}

    def use(self, variable: Variable, stream: GpuStream) -> None:
        """Order a kernel that reads or replaces a variable after those of other devices."""
        if len(self._streams) < 2:
            return
        previous, self._last[variable] = self._last.get(variable, stream), stream
        if previous is stream:
            return
        stream.follow([previous])
        if type(variable.value) is self._array and self._lent.get(variable) is not variable.value:
            # any stream may be the last one to read it
            variable.value = self._lent[variable] = stream.lend(
                variable.value, [*self._streams.values()]
            )
