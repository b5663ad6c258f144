"""Measure what kernels take here, and write it as the table of a cost model."""

from __future__ import annotations

import json
from collections import defaultdict
from statistics import median

from cfgraph.ir.devices import DeviceName
from cfgraph.runtime.cost_model import SCHEMA
from cfgraph.runtime.trace import TraceEvent

# times of one op that are kept; a long loop says no more
MOST = 10_000


class Calibration:
    """An observer that collects how long each op takes on each kind of device."""

    deferred = True

    def __init__(self) -> None:
        self._times: defaultdict[str, defaultdict[str, list[int]]] = defaultdict(
            lambda: defaultdict(list)
        )

    def event(self, event: TraceEvent) -> None:
        """Take the time of a live token."""
        if event.dead or not event.is_token:
            return
        parts = DeviceName.parse(event.device)
        kind = (parts.kind if parts and parts.kind else "CPU").lower()
        times = self._times[f"*{kind}:*"][event.op]
        if len(times) < MOST:
            times.append(event.end_ns - event.start_ns)

    def text(self) -> str:
        """The medians, as TOML in seconds."""
        lines = [f'schema = "{SCHEMA}"', ""]
        for pattern, ops in sorted(self._times.items()):
            lines.append(f'[kernels."{pattern}"]')
            lines += [
                f"{json.dumps(op)} = {median(times) / 1e9!r}  # of {len(times)}"
                for op, times in sorted(ops.items())
            ]
            lines.append("")
        return "\n".join(lines)
