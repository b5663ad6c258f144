"""Device names (`/job:worker/replica:0/task:1/device:GPU:0`), lists, and kinds of devices."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import Final, NamedTuple

from cfgraph.errors import UsageError
from cfgraph.ir.names import did_you_mean, name_list

_COMPONENT: Final = re.compile(
    r"/(?:job:(?P<job>[A-Za-z]\w*)|replica:(?P<replica>\d+|\*)|task:(?P<task>\d+|\*)"
    r"|device:(?P<kind>[A-Za-z]\w*|\*)(?::(?P<number>\d+|\*))?"
    r"|(?P<short>[cg]pu|[CG]PU):(?P<place>\d+|\*))"
)

# longer names are parsed again each time, so that a file cannot fill the cache
_MOST_CACHED: Final = 100


class DeviceName(NamedTuple):
    """Components of a device name, each None if unspecified."""

    job: str | None = None
    replica: str | None = None
    task: str | None = None
    kind: str | None = None
    number: str | None = None

    @classmethod
    def parse(cls, text: str) -> DeviceName | None:
        """Parse a device name (`cpu:0` is `/device:CPU:0`), or return None if it is invalid."""
        return _parsed(text) if len(text) <= _MOST_CACHED else cls._parse(text)

    @classmethod
    def _parse(cls, text: str) -> DeviceName | None:
        parts: dict[str, str | None] = {}
        index, text = 0, text if text[:1] in ("/", "") else f"/{text}"
        while index < len(text.rstrip("/")):
            match = _COMPONENT.match(text, index)
            if match is None:
                return None
            fields = {key: value for key, value in match.groupdict().items() if value is not None}
            if "short" in fields:
                fields = {"kind": fields["short"], "number": fields["place"]}
            if "kind" in fields:
                fields["kind"] = fields["kind"].upper()
            parts.update((key, None if value == "*" else value) for key, value in fields.items())
            index = match.end()
        return cls(**parts)

    def __str__(self) -> str:
        text = "".join(
            f"/{word}:{value}"
            for word, value in (("job", self.job), ("replica", self.replica), ("task", self.task))
            if value is not None
        )
        if self.kind is None:
            return text
        return f"{text}/device:{self.kind}:{'*' if self.number is None else self.number}"


@lru_cache(maxsize=2048)
def _parsed(text: str) -> DeviceName | None:
    return DeviceName._parse(text)


def merge_device_names(inner: str, outer: str) -> str:
    """Device request `inner`, with its unspecified components taken from `outer`."""
    if not inner or not outer or inner == outer:
        return inner or outer
    request, base = DeviceName.parse(inner), DeviceName.parse(outer)
    if request is None or base is None:
        return inner
    merged = DeviceName(*(a if a is not None else b for a, b in zip(request, base, strict=True)))
    if request.kind is not None and request.kind != base.kind:
        merged = merged._replace(number=request.number)
    return inner if merged == request else str(merged)


_DEVICE_KINDS: Final = ("CPU", "GPU")
_MAX_DEVICES: Final = 1024
# device kinds that files abbreviate and that have no driver
_UNSUPPORTED_KINDS: Final = ("tpu", "npu", "xla_cpu", "xla_gpu")

LOCAL_TASK: Final = DeviceName("localhost", "0", "0")
_DEFAULTS: Final = DeviceName("localhost", "0", "0", number="0")
_RANGE: Final = re.compile(r"(/task:|:(?=[\d-]+$))(\d{1,9})-(\d{1,9})")


def parse_devices(devices: str | Iterable[str]) -> tuple[str, ...]:
    """Full names of devices, `/job:localhost/replica:0/task:0/device:CPU:0`, in order.

    Each may be written in full or as `cpu:0`, `gpu` (the first one), or `/gpu:1`; `gpu:0-3` stands
    for four devices, `/job:worker/task:0-1/gpu:0` for two. A string may list several, separated by
    commas. Raises UsageError for an invalid device, a duplicate, or an empty list.
    """
    texts = name_list(devices)
    parts = [item.strip() for text in texts for item in text.split(",") if item.strip()]
    names = [_full_name(name, item) for item in parts for name in _expand_ranges(item)]
    if not names:
        raise UsageError("no devices specified", hint="for example cpu:0,gpu:0")
    if len(names) > _MAX_DEVICES:
        raise UsageError(f"{len(names)} devices exceed the maximum of {_MAX_DEVICES}")
    for index, name in enumerate(names):
        if name in names[:index]:
            raise UsageError(f"device {short_device_name(name)} is listed twice")
    return tuple(names)


def short_device_name(device: str) -> str:
    """`cpu:0` for a device of this process, the full name for a remote one."""
    parts = DeviceName.parse(device)
    if parts is None or parts.kind is None or parts[:3] != LOCAL_TASK[:3]:
        return device
    return f"{parts.kind.lower()}:{parts.number or '0'}"


def short_device_names(devices: Iterable[str]) -> str:
    """Comma-separated short device names."""
    return ", ".join(map(short_device_name, devices))


def device_ranges(devices: Iterable[str]) -> str:
    """Short names of devices as `--devices` accepts them: `cpu:0,gpu:0-3`."""
    ranges: list[tuple[str, str, str]] = []
    for name in map(short_device_name, devices):
        kind, _, number = name.rpartition(":")
        if ranges and (kind, number) == (ranges[-1][0], _next_number(ranges[-1][2])):
            ranges[-1] = (*ranges[-1][:2], number)
        else:
            ranges.append((kind, number, number))
    return ",".join(
        f"{kind}:{first}" if first == last else f"{kind}:{first}-{last}"
        for kind, first, last in ranges
    )


def _next_number(number: str) -> str | None:
    return str(int(number) + 1) if number.isdecimal() else None


def known_devices_hint(request: str, devices: Sequence[str]) -> str:
    """Hint for an unavailable device: the closest match and all available devices."""
    known = {name: None for device in devices for name in (short_device_name(device), device)}
    guess = did_you_mean(request.lower().removeprefix("/").removeprefix("device:"), known)
    return f"{guess + ' ' if guess else ''}available: {short_device_names(devices)}"


def _expand_ranges(text: str) -> list[str]:
    """Devices that ranges of tasks and numbers expand to."""
    expanded = [text]
    while any(_RANGE.search(item) for item in expanded):
        expanded = [name for item in expanded for name in _expand_range(item, text)]
        if len(expanded) > _MAX_DEVICES:
            raise UsageError(f"{text!r} expands to more than {_MAX_DEVICES} devices")
    return expanded


def _expand_range(item: str, text: str) -> list[str]:
    match = _RANGE.search(item)
    if match is None:
        return [item]
    first, last = int(match[2]), int(match[3])
    if last < first:
        ordered = f"{item[: match.start()]}{match[1]}{last}-{first}{item[match.end() :]}"
        message = f"{text!r} is not a range: it ends at {last}, before {first}"
        raise UsageError(message, hint=f"write {ordered}")
    if last - first >= _MAX_DEVICES:
        raise UsageError(f"{text!r} is not a range of at most {_MAX_DEVICES} devices")
    return [
        f"{item[: match.start()]}{match[1]}{number}{item[match.end() :]}"
        for number in range(first, last + 1)
    ]


def _full_name(name: str, text: str) -> str:
    if name.isalpha() or name.lower().partition(":")[0] in _UNSUPPORTED_KINDS:
        name = f"/device:{name}"
    parts = DeviceName.parse(name if ":" in name else f"/device:{name}")
    hint = f"write it as cpu:0, gpu:0-3 or {DeviceName('localhost', '0', '0', 'GPU', '0')}"
    if parts is None or parts.kind is None or "*" in name:
        raise UsageError(f"{text!r} is not a device", hint=_kind_hint(name) or hint)
    if parts.kind not in _DEVICE_KINDS:
        message = f"{text!r} has the unsupported device kind {parts.kind}"
        raise UsageError(message, hint="write it as cpu:0 or gpu:0")
    filled = (
        mine if mine is not None else first for mine, first in zip(parts, _DEFAULTS, strict=True)
    )
    return str(DeviceName(*filled))


def _kind_hint(name: str) -> str | None:
    kind = name.partition(":")[0].strip("/").lower()
    known = [each.lower() for each in _DEVICE_KINDS]
    return None if kind in known else did_you_mean(kind, known)


@cache
def has_own_memory(device: str) -> bool:
    """True for a device that is not a CPU: values are copied to it."""
    parts = DeviceName.parse(device)
    return parts is not None and parts.kind not in (None, "CPU")


@cache
def is_gpu(device: str) -> bool:
    """True for a device that a real GPU can run."""
    parts = DeviceName.parse(device)
    return parts is not None and parts.kind == "GPU"


def is_simulated(device: str, *, real: bool = False) -> bool:
    """True for a device that NumPy simulates: any that is not a CPU, unless it is `real`."""
    return has_own_memory(device) and not real


def device_label(device: str, *, real: bool = False) -> str:
    """The short name, `cpu:0`, or the full name on another host; marked if simulated."""
    return marked_device_name(device, simulated=is_simulated(device, real=real))


def marked_device_name(device: str, *, simulated: bool) -> str:
    """The short name of a device, marked if it is simulated."""
    return f"{short_device_name(device)}{' (simulated)' * simulated}"


def host_device(device: str) -> str:
    """The CPU on the host of a device, for copies: `cpu:0` for `gpu:1`."""
    parts = DeviceName.parse(device)
    if parts is None or parts.job is None:
        return "cpu:0"
    return short_device_name(str(parts._replace(kind="CPU", number="0")))
