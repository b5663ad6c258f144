"""Assignment of devices to workers.

A worker runs the devices of one task, `/job:worker/task:3/...`. Devices without a task, such as
`cpu:0`, are divided among the workers in equal shares, in order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cfgraph.errors import Unsupported, UsageError
from cfgraph.ir.devices import LOCAL_TASK, DeviceName, short_device_name
from cfgraph.ir.graph import Graph
from cfgraph.ir.traversal import sends_by_key
from cfgraph.runtime.remote.codec import UNSENDABLE_CODE


def assign_devices(devices: Sequence[str], workers: int | None) -> dict[str, int]:
    """Return the worker of each device.

    `workers` is their number, None for one per task. Raises UsageError if there are fewer devices
    than workers, or the number differs from that of the tasks.
    """
    tasks = {device: task for device in devices if (task := _task(device)) is not None}
    if len(tasks) == len(devices):
        numbers = {task: number for number, task in enumerate(sorted(set(tasks.values())))}
        if workers not in (None, len(numbers)):
            message = f"the devices belong to {len(numbers)} tasks, but there are {workers} workers"
            raise UsageError(message, hint="omit the number of workers: each task is one")
        return {device: numbers[task] for device, task in tasks.items()}
    count = workers or 1
    if count > len(devices):
        message = f"{count} workers need {count} devices, the graph has {len(devices)}"
        raise UsageError(message, hint=f"name more devices, such as cpu:0-{count - 1}")
    share = len(devices) / count
    return {device: int(index / share) for index, device in enumerate(devices)}


def _task(device: str) -> tuple[str, int] | None:
    """The job and task of a device; None for the devices of this process."""
    name = DeviceName.parse(device)
    if name is None or name[:3] == LOCAL_TASK[:3]:
        return None
    return name.job or "", int(name.task or 0)


def require_sendable(graph: Graph, worker_of: Mapping[str, int]) -> None:
    """Raise Unsupported for a message between workers that refers to memory of its process."""
    for key, send in sends_by_key(graph).items():
        dtype = send.inputs[0].dtype if send.inputs else None
        ends = worker_of.get(key.send_device), worker_of.get(key.recv_device)
        if dtype is not None and dtype.is_handle and None not in ends and ends[0] != ends[1]:
            pair = " to ".join(map(short_device_name, (key.send_device, key.recv_device)))
            message = f"{send.inputs[0].name} is a {dtype}, which cannot leave its worker: {pair}"
            hint = "place the nodes that use it on devices of one worker"
            raise Unsupported(message, node=send, hint=hint, code=UNSENDABLE_CODE)


def devices_of(worker_of: Mapping[str, int], worker: int) -> list[str]:
    """The devices of a worker, in order."""
    return [device for device, index in worker_of.items() if index == worker]
