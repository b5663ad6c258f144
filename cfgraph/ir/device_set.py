"""The devices that there are: how a list of them is written, and their full names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from cfgraph.errors import UsageError
from cfgraph.ir.device_name import DeviceName
from cfgraph.ir.names import did_you_mean

KINDS: Final = ("CPU", "GPU")
MOST: Final = 1024
# kinds of devices that files name in short, and that nothing here runs
_FOREIGN: Final = ("tpu", "npu", "xla_cpu", "xla_gpu")

LOCAL: Final = DeviceName("localhost", "0", "0")
_FIRST: Final = DeviceName("localhost", "0", "0", number="0")
_RANGE: Final = re.compile(r"(/task:|:(?=[\d-]+$))(\d{1,9})-(\d{1,9})")


def device_set(devices: str | Iterable[str]) -> tuple[str, ...]:
    """The full names of devices, `/job:localhost/replica:0/task:0/device:CPU:0`, in order.

    Each is written in full, or as `cpu:0`, `gpu` (the first one), `/gpu:1`; `gpu:0-3` are four, and
    `/job:worker/task:0-1/gpu:0` two. A text may list several with commas between them. Raises
    UsageError for what is no device, for one that is named twice, and where there is none.
    """
    texts = [devices] if isinstance(devices, str) else list(devices)
    parts = [part.strip() for text in texts for part in text.split(",") if part.strip()]
    names = [_full(name, part) for part in parts for name in _expanded(part)]
    if not names:
        raise UsageError("no devices are given", hint="name some: cpu:0,gpu:0")
    if len(names) > MOST:
        raise UsageError(f"{len(names)} devices are more than {MOST}")
    for place, name in enumerate(names):
        if name in names[:place]:
            raise UsageError(f"device {short_name(name)} is named twice")
    return tuple(names)


def short_name(device: str) -> str:
    """`cpu:0` for a device of this process, the full name for one that is elsewhere."""
    parts = DeviceName.parse(device)
    if parts is None or parts.kind is None or parts[:3] != LOCAL[:3]:
        return device
    return f"{parts.kind.lower()}:{parts.number or '0'}"


def short_names(devices: Iterable[str]) -> str:
    """Devices as a text to read."""
    return ", ".join(map(short_name, devices))


def closest(request: str, devices: Sequence[str]) -> str:
    """A hint for a device that is not there: the one that may have been meant, and all of them."""
    known = {name: None for device in devices for name in (short_name(device), device)}
    guess = did_you_mean(request.lower().removeprefix("/").removeprefix("device:"), known)
    return f"{guess + ' ' if guess else ''}there are {short_names(devices)}"


def _expanded(text: str) -> list[str]:
    """The devices that ranges of tasks and numbers stand for."""
    found = [text]
    while any(_RANGE.search(item) for item in found):
        found = [made for item in found for made in _one_range(item, text)]
        if len(found) > MOST:
            raise UsageError(f"{text!r} is more than {MOST} devices")
    return found


def _one_range(item: str, text: str) -> list[str]:
    match = _RANGE.search(item)
    if match is None:
        return [item]
    first, last = int(match[2]), int(match[3])
    if not 0 <= last - first < MOST:
        raise UsageError(f"{text!r} is no range of at most {MOST} devices")
    return [
        f"{item[: match.start()]}{match[1]}{number}{item[match.end() :]}"
        for number in range(first, last + 1)
    ]


def _full(name: str, text: str) -> str:
    if name.isalpha() or name.lower().partition(":")[0] in _FOREIGN:
        name = f"/device:{name}"
    parts = DeviceName.parse(name if ":" in name else f"/device:{name}")
    hint = f"write it as cpu:0, gpu:0-3 or {DeviceName('localhost', '0', '0', 'GPU', '0')}"
    if parts is None or parts.kind is None or "*" in name:
        raise UsageError(f"{text!r} is no device", hint=_kind_hint(name) or hint)
    if parts.kind not in KINDS:
        message = f"{text!r} is a device of kind {parts.kind}, which there is no simulator for"
        raise UsageError(message, hint=f"one of {', '.join(KINDS)}")
    filled = (
        mine if mine is not None else first for mine, first in zip(parts, _FIRST, strict=True)
    )
    return str(DeviceName(*filled))


def _kind_hint(name: str) -> str | None:
    kind = name.partition(":")[0].strip("/").lower()
    return did_you_mean(kind, [kind.lower() for kind in KINDS])
