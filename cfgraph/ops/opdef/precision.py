"""Half-precision floats: computed in float32 and rounded once."""

from __future__ import annotations

from typing import Any

import numpy as np

from cfgraph.ir.dtypes import DType, bfloat16, float16
from cfgraph.ops.opdef.op import Kernel


def computed_in_float32(kernel: Kernel, dtype: DType) -> Kernel:
    """Make a kernel compute half-precision floats in float32 and round its results once."""
    if dtype not in (bfloat16, float16):
        return kernel
    narrow = dtype.numpy

    def wide(*inputs: Any) -> Any:
        result = kernel(*(_cast(x, narrow, np.float32) for x in inputs))
        if isinstance(result, tuple):
            return tuple(_cast(x, np.float32, narrow) for x in result)
        return _cast(result, np.float32, narrow)

    return wide


def _cast(value: Any, have: Any, want: Any) -> Any:
    return value.astype(want) if getattr(value, "dtype", None) == have else value
