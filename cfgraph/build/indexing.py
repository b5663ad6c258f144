"""`tensor[…]` as a StridedSlice."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from cfgraph.build.blame import misuse

if TYPE_CHECKING:
    from cfgraph.build.tensor import Tensor


@dataclass
class _Masks:
    """Begin, end and stride of each entry of an index, and the bits that say what they mean."""

    begin: list[Any] = field(default_factory=list)
    end: list[Any] = field(default_factory=list)
    strides: list[Any] = field(default_factory=list)
    begin_mask: int = 0
    end_mask: int = 0
    ellipsis_mask: int = 0
    new_axis_mask: int = 0
    shrink_axis_mask: int = 0

    def add(self, begin: Any, end: Any, stride: Any = 1) -> None:
        """One more entry."""
        self.begin.append(begin)
        self.end.append(end)
        self.strides.append(stride)


def part(tensor: Tensor, index: Any) -> Tensor:
    """The part of a tensor that an index says: integers, slices, `...`, None, scalar tensors."""
    masks = _Masks()
    for place, entry in enumerate(index if isinstance(index, tuple) else (index,)):
        _read(masks, 1 << place, entry)
    attrs = {key: bits for key, bits in vars(masks).items() if key.endswith("_mask") and bits}
    inputs = (tensor, masks.begin, masks.end, masks.strides)
    found: Tensor = tensor.body.builder.call("StridedSlice", inputs, attrs)
    return found


def _read(masks: _Masks, bit: int, entry: Any) -> None:
    if entry is None or entry is Ellipsis:
        masks.new_axis_mask |= bit if entry is None else 0
        masks.ellipsis_mask |= bit if entry is Ellipsis else 0
        masks.add(0, 0)
    elif isinstance(entry, slice):
        masks.begin_mask |= bit if entry.start is None else 0
        masks.end_mask |= bit if entry.stop is None else 0
        begin, end = (0 if bound is None else bound for bound in (entry.start, entry.stop))
        masks.add(begin, end, 1 if entry.step is None else entry.step)
    elif hasattr(entry, "as_tensor") or _is_integer(entry):
        masks.shrink_axis_mask |= bit
        # the op does not look at this end
        masks.add(entry, entry + 1 if _is_integer(entry) else entry)
    else:
        message = f"{entry!r} is no index of a tensor"
        raise misuse(
            message, hint="use GatherV2 for a list of places, Where and GatherV2 for a mask"
        )


def _is_integer(entry: Any) -> bool:
    return isinstance(entry, int | np.integer) and not isinstance(entry, bool)
