"""Cost model of the virtual clock: speeds of devices and links, kernel times, and calibration.

    schema = "cfgraph.costs/1"
    source = "data sheet"   # of the figures, for reports

    [devices."gpu:*"]
    flops = 1e13            # operations per second
    bytes = 1e12            # bytes read and written per second
    launch = 5e-6           # seconds before a kernel starts
    control = 1e-6          # seconds of what launches no kernel; default: `launch`

    [links."cpu:*>gpu:*"]
    latency = 1e-5          # seconds until the first byte arrives
    bandwidth = 1.6e10      # bytes per second
    duplex = "full"         # "half": both directions share the wire

    [kernels."gpu:*"]
    MatMul = 2e-5           # seconds of an op, instead of an estimate from sizes

Names are patterns; the last match counts, key by key. No kernel is launched for control flow,
messages, constants, forwarded values, shapes, and stacks, nor for int32 arithmetic of a GPU, which
its host does.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from cfgraph.analysis.cost import Costs, DeviceSpeed
from cfgraph.errors import InvalidInput
from cfgraph.ir.devices import DeviceName, has_own_memory
from cfgraph.ir.file_io import require_path
from cfgraph.ir.graph import Node
from cfgraph.ir.names import did_you_mean
from cfgraph.ir.nested_text import parse_toml
from cfgraph.ops.opdef.op import Op, lookup
from cfgraph.runtime.memory.placement import is_host_arithmetic
from cfgraph.runtime.trace.events import TraceEvent

# late imports: few runs measure costs

SCHEMA: Final = "cfgraph.costs/1"
_CARDS: Final = Path(__file__).with_name("cards")
_ROUND_FIGURES: Final = "round figures of cfgraph, of no real device"
_TABLES: Final = ("schema", "source", "devices", "links", "kernels")
_DEVICE_KEYS: Final = ("flops", "bytes", "launch", "control")
_LINK_KEYS: Final = ("latency", "bandwidth", "duplex")
_DUPLEX: Final = ("full", "half")

CostTable = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class LinkCost:
    """Cost of messages: latency, bytes per second, and true for a half-duplex wire."""

    latency: float
    bandwidth: float
    half: bool = False


@dataclass(frozen=True)
class CostModel:
    """Tables by patterns of device names; missing entries are taken from `Costs`."""

    devices: CostTable = field(default_factory=dict)
    links: CostTable = field(default_factory=dict)
    kernels: CostTable = field(default_factory=dict)
    source: str = _ROUND_FIGURES

    def __hash__(self) -> int:
        return id(self)

    def seconds(
        self,
        device: str,
        op: type[Op],
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        *,
        launches: bool = True,
    ) -> float:
        """The time of an op on a device for its inputs and outputs.

        A node of it may launch no kernel (`launches_kernel`).
        """
        seconds = self._kernel(device, op.name)
        if seconds is not None:
            return seconds
        speed, control = self.speed(device)
        if op.role or not launches:
            return control
        if not inputs:
            return speed.launch
        if op.aliasing.reads_region:
            inputs = outputs
        work = op.flops(
            [np.shape(value) for value in inputs], [np.shape(value) for value in outputs]
        )
        moved = sum(int(getattr(value, "nbytes", 0)) for value in (*inputs, *outputs))
        return speed.launch + max(work / speed.flops, moved / speed.bytes)

    @cache  # noqa: B019 - a model lives as long as its run
    def wire(self, source: str, destination: str) -> LinkCost:
        """The cost of messages from one device to another."""
        entries = _matching_entries(self.links, f"{source}>{destination}")
        link = Costs().link
        return LinkCost(
            float(entries.get("latency", link.latency)),
            float(entries.get("bandwidth", link.bytes)),
            entries.get("duplex") == "half",
        )

    @cache  # noqa: B019
    def speed(self, device: str) -> tuple[DeviceSpeed, float]:
        """The speed of a device, and the seconds of what launches no kernel."""
        entries = _matching_entries(self.devices, device)
        costs = Costs()
        default = costs.speeds[costs.kind_of(device)]
        speed = DeviceSpeed(
            float(entries.get("flops", default.flops)),
            float(entries.get("bytes", default.bytes)),
            float(entries.get("launch", default.launch)),
        )
        return speed, float(entries.get("control", speed.launch))

    @cache  # noqa: B019
    def _kernel(self, device: str, op: str) -> float | None:
        seconds = _matching_entries(self.kernels, device).get(op)
        return None if seconds is None else float(seconds)


def launches_kernel(device: str, node: Node) -> bool:
    """False for what the host of a device does: no kernel of the device runs."""
    op = lookup(node.op)
    if op is None:  # a node without a kernel does not run
        return False
    if op.role or op.aliasing.is_identity or op.algebra.shape_only:
        return False
    if op.placement.swap_role or op.placement.host_only:
        return False
    if not node.inputs and not op.effects.stateful:
        return False
    return not (has_own_memory(device) and is_host_arithmetic(node, op))


def _matching_entries(table: CostTable, name: str) -> dict[str, Any]:
    """The entries of all matching patterns; later ones override earlier ones."""
    matching: dict[str, Any] = {}
    for pattern, entries in table.items():
        if fnmatchcase(name, pattern):
            matching.update(entries)
    return matching


def card_names() -> list[str]:
    """The cards whose cost models belong to cfgraph."""
    return sorted(file.stem for file in _CARDS.glob("*.toml"))


def read_costs(path: str) -> CostModel:
    """Read a cost model from a TOML file, or that of a card, such as `h100`.

    Raises InvalidInput, naming the invalid entry.
    """
    require_path(path)
    name = path
    if path in card_names():
        path = str(_CARDS / f"{path}.toml")
    try:
        entries = parse_toml(Path(path).read_text("utf-8"))
    except OSError as error:
        message = f"cannot read the file: {error.strerror}"
        hint = None if Path(path).suffix else f"the cards are {', '.join(card_names())}"
        raise InvalidInput(message, path=path, hint=hint, code="CFG001") from None
    except ValueError as error:  # invalid TOML or UTF-8, or a NUL in the path
        if "\0" in str(path):
            raise InvalidInput("the path contains NUL", path=path, code="CFG001") from None
        raise InvalidInput(
            f"the file is not valid TOML: {error}", path=path, code="CFG037"
        ) from None
    for fault in _faults(entries):
        raise InvalidInput(fault, path=path, code="CFG037")
    source = entries.get("source")
    return CostModel(
        entries.get("devices", {}),
        entries.get("links", {}),
        entries.get("kernels", {}),
        f"{name}: {source}" if source else name,
    )


def _faults(tables: Mapping[str, Any]) -> Iterator[str]:
    """Descriptions of the invalid entries of a file."""
    if tables.get("schema", SCHEMA) != SCHEMA:
        yield f"schema is {tables['schema']!r}, expected {SCHEMA!r}"
    if not isinstance(tables.get("source", ""), str):
        yield f"source is {tables['source']!r}, expected a text"
    yield from _unknown_entries(tables, _TABLES, "")
    for name, keys in (("devices", _DEVICE_KEYS), ("links", _LINK_KEYS), ("kernels", None)):
        table = tables.get(name, {})
        if not isinstance(table, dict):
            yield f"{name} is not a table"
            continue
        for pattern, entries in table.items():
            where = f'{name}."{pattern}"'
            if not isinstance(entries, dict):
                yield f"{where} is not a table"
                continue
            if name == "links" and ">" not in pattern:
                yield f"{where} does not name source and destination, as in cpu:*>gpu:*"
            if keys:
                yield from _unknown_entries(entries, keys, f"{where}.")
            yield from _invalid_entries(entries, where)


def _unknown_entries(entries: Mapping[str, Any], known: Sequence[str], where: str) -> Iterator[str]:
    for key in entries:
        if key not in known:
            guess = did_you_mean(key, known) or f"one of {', '.join(known)}"
            yield f"{where}{key} is unknown; {guess}"


def _invalid_entries(entries: Mapping[str, Any], where: str) -> Iterator[str]:
    for key, value in entries.items():
        if key == "duplex":
            if value not in _DUPLEX:
                yield f"{where}.duplex is {value!r}, expected 'full' or 'half'"
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            yield f"{where}.{key} is not a number"
        elif not 0 <= value < float("inf") or (
            value == 0 and key in ("flops", "bytes", "bandwidth")
        ):
            yield f"{where}.{key} is {value}, expected a positive finite number"


_MEASURED: Final = "kernels measured by cfgraph run --calibrate"
# samples per op; more do not change the median much
MAX_SAMPLES = 10_000


class Calibration:
    """Observer that collects the times of each op on each kind of device."""

    deferred = True

    def __init__(self) -> None:
        self._times: defaultdict[str, defaultdict[str, list[int]]] = defaultdict(
            lambda: defaultdict(list)
        )
        # nanoseconds in the notes of a node whose token has not ended
        self._noted: Counter[str] = Counter()

    def event(self, event: TraceEvent) -> None:
        """Add the time of a live token that computes by itself, without that of compilations."""
        if event.kind == "note":
            self._noted[event.node] += event.end_ns - event.start_ns
            return
        if event.dead or event.joint or not event.is_token:
            return
        parts = DeviceName.parse(event.device)
        kind = (parts.kind if parts and parts.kind else "CPU").lower()
        times = self._times[f"*{kind}:*"][event.op]
        if len(times) < MAX_SAMPLES:
            noted = self._noted.pop(event.node, 0) if not event.real else 0
            times.append(max(event.end_ns - event.start_ns - noted, 0))

    def text(self) -> str:
        """The medians, as TOML in seconds."""
        import json

        lines = [f'schema = "{SCHEMA}"', f'source = "{_MEASURED}"', ""]
        for pattern, ops in sorted(self._times.items()):
            lines.append(f'[kernels."{pattern}"]')
            lines += [
                f"{json.dumps(op)} = {float(np.median(times)) / 1e9!r}  # of {len(times)}"
                for op, times in sorted(ops.items())
            ]
            lines.append("")
        return "\n".join(lines)
