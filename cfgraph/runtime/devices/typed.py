"""Results of a card in the type that the node has, where its library has no loop for bfloat16.

There one for float32 takes it, and the result is float32: rounding it is what is left to do.
"""

from __future__ import annotations

from typing import Any

from cfgraph.ir import registry
from cfgraph.ir.dtypes import bfloat16
from cfgraph.ir.graph import Node
from cfgraph.ops.op import Kernel


def typed(node: Node, kernel: Kernel) -> Kernel:
    """The kernel of a node on a card, what it gives of bfloat16 rounded to it."""
    types = registry.output_types(node) or []
    if bfloat16 not in types:
        return kernel
    wanted = [bfloat16.numpy if dtype is bfloat16 else None for dtype in types]

    def run(*inputs: Any) -> Any:
        made = kernel(*inputs)
        if len(wanted) == 1:
            return _rounded(made, wanted[0])
        return tuple(map(_rounded, made, wanted))

    return run


def _rounded(value: Any, wanted: Any) -> Any:
    if wanted is None or getattr(value, "dtype", wanted) == wanted:
        return value
    return value.astype(wanted)
