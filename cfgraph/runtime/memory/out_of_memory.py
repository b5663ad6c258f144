"""What a device says that has no memory left: what was wanted, who holds the rest, what helps."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final

from cfgraph.errors import ExecutionError
from cfgraph.ir.units import format_byte_size
from cfgraph.runtime.devices.simulated import device_text

if TYPE_CHECKING:
    from cfgraph.runtime.memory.meter import DeviceMemory

# holders that are named
_NAMED: Final = 3
STACK: Final = "stack"
ITERATIONS: Final = "iterations of"


@dataclass(frozen=True, slots=True)
class Holder:
    """What keeps values in memory: a stack, an array, a variable, the iterations of a loop."""

    kind: str
    name: str
    bytes: int
    values: int

    def __str__(self) -> str:
        count = f" in {self.values} values" if self.values > 1 else ""
        return f"{self.label} {format_byte_size(self.bytes)}{count}"

    @property
    def label(self) -> str:
        """The kind, and the name where there is one."""
        return f"{self.kind} {self.name}".rstrip()


def out_of_memory(memory: DeviceMemory, size: int) -> ExecutionError:
    """The error of a device that has less left than what is asked for."""
    limit = memory.limit or 0
    holders = memory.holders(memory)
    asked, left = format_byte_size(size), max(limit - memory.used, 0)
    free = format_byte_size(left) if format_byte_size(left) != asked else f"{left} B"
    device = device_text(memory.device, real=memory.real)
    message = (
        f"{device} is out of memory: {asked} asked for, {free} free of "
        f"{format_byte_size(limit)}{_held(holders)}"
    )
    hint = _hint(memory, size, holders)
    return ExecutionError(message, device=memory.device, hint=hint, code="CFG711")


def exhausted(
    device: str, said: str, memory: DeviceMemory | None, node: object = None
) -> ExecutionError:
    """The error of a gpu on a card that has nothing left, whatever the limit; `said` is why."""
    holders = [] if memory is None else memory.holders(memory)
    hint = f"--memory {device} tells who holds it"
    if memory is not None:
        hint = _hint(memory, 0, holders)
    message = f"{device} is out of memory: {said}{_held(holders)}"
    return ExecutionError(message, node=node, device=device, hint=hint, code="CFG711")


def _held(holders: list[Holder]) -> str:
    """The greatest holders, and what all others have together."""
    if not holders:
        return ""
    named = [str(holder) for holder in holders[:_NAMED]]
    rest = sorted(holders[_NAMED:], key=lambda holder: holder.kind)
    for kind, group in groupby(rest, key=lambda holder: holder.kind):
        several = list(group)
        total = format_byte_size(sum(holder.bytes for holder in several))
        one = len(several) == 1
        what = several[0].label if one else f"{len(several)} more: {kind}"
        named.append(f"{what} {total}")
    return f"; held by {'; '.join(named)}"


def _hint(memory: DeviceMemory, size: int, holders: list[Holder]) -> str:
    """The option that would help most."""
    more = f"--memory {memory.device}={format_byte_size(2 * (memory.limit or 0)).replace(' ', '')}"
    if memory.limit is None:
        more = "smaller inputs need less"
    if memory.limit is not None and size > memory.limit:
        return f"this one value needs more: {more}"
    by_kind: dict[str, int] = {}
    for holder in holders:
        by_kind[holder.kind] = by_kind.get(holder.kind, 0) + holder.bytes
    most = max(by_kind, key=by_kind.__getitem__, default="")
    if most == STACK and memory.apart and not memory.swapped_out.count:
        return (
            f"`grad --swap-memory` lets stacks move to the host, `--recompute` saves less; {more}"
        )
    if most == STACK:
        return f"`grad --recompute auto` saves less in the forward loop; {more}"
    if most == ITERATIONS:
        return f"a smaller parallel_iterations of the loop holds fewer at once; {more}"
    return f"more memory: {more}"
