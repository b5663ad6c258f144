"""Real GPUs, through CuPy."""

from typing import Final

PROVIDES: Final = {("device", "gpu"): "engine:GpuBackend"}
