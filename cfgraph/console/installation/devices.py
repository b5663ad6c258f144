"""The `devices` command: devices that runs can use on this machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Annotated

from cfgraph.cli.json_output import print_document
from cfgraph.cli.options import Color
from cfgraph.cli.output import OutputTable, page, report_table
from cfgraph.extensions import DEVICE, extension, extension_names
from cfgraph.ir.units import format_byte_size
from cfgraph.limits import machine_memory
from cfgraph.reports import Column, Count, DocumentResult, Record

if TYPE_CHECKING:
    from cfgraph.runtime.preparation.engines import DeviceFacts


@dataclass(frozen=True, slots=True)
class MachineDevice:
    """A kind of device: whether it is real, what runs it, its memory in bytes, and remarks."""

    device: str
    real: Annotated[bool, Column(title="kind", cell=lambda real: "real" if real else "simulated")]
    backend: str
    memory: Annotated[Count | None, Column(optional=True, cell=format_byte_size)]  #: Bytes.
    detail: str  #: Cores, the name of a GPU, or why it is simulated.


class DevicesSummary(Record):
    """The numbers of devices, and of real ones."""

    devices: Count
    real: Count


class DevicesResult(DocumentResult, command="devices", summary=DevicesSummary):
    """The devices of this machine."""

    devices: Sequence[MachineDevice]


def machine_devices() -> list[MachineDevice]:
    """Return the CPU and the other devices of this machine, or why they are simulated."""
    return [_cpu(), *map(_device, extension_names(DEVICE))]


def _cpu() -> MachineDevice:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    backend = f"NumPy {version('numpy')}"
    return MachineDevice("cpu", True, backend, machine_memory(), f"{cores} cores")


def _device(name: str) -> MachineDevice:
    """The device of a backend, or the reason why NumPy simulates it."""
    found: DeviceFacts | str = extension(DEVICE, name).facts()
    if isinstance(found, str):
        return MachineDevice(name, False, f"NumPy {version('numpy')}", None, found)
    return MachineDevice(name, True, found.library, found.memory, found.name)


def installed_version(distribution: str) -> str | None:
    """Return the version of a distribution, or None if it is not installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def devices_table(devices: Sequence[MachineDevice]) -> OutputTable:
    """Return one row per kind of device."""
    return report_table(MachineDevice, devices, "device", "real", "backend", "memory", "detail")


def print_devices(*, json: bool, color: Color) -> None:
    """Print the devices."""
    devices = machine_devices()
    if json:
        summary = DevicesSummary(len(devices), sum(item.real for item in devices))
        print_document(DevicesResult(devices), summary=summary)
        return
    out = page(color)
    out.table(devices_table(devices))
    out.line("  a run may use any number of each: --devices cpu:0-3,gpu:0-1", "dim")
