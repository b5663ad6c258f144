"""Runs of partitioned graphs on several processes or hosts."""

from typing import Final

PROVIDES: Final = {
    ("session option", "workers"): "engine:WorkerEngine",
    ("worker options", "processes"): "processes:Processes",
    ("worker options", "ray"): "on_ray:Ray",
}
