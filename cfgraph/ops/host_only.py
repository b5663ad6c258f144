"""What only the host has: told apart from a card, and called from there, values going both ways."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ops.op import Kernel


def is_card(xp: ModuleType) -> bool:
    """True for the array library of a card: its arrays are fetched, not read in passing."""
    return hasattr(xp, "asnumpy")


def on_host(xp: ModuleType, function: Kernel) -> Kernel:
    """The function of NumPy arrays, for arrays of a namespace."""
    if xp is np:
        return function
    fetch = getattr(xp, "asnumpy", np.asarray)

    def call(*inputs: Any) -> Any:
        result = function(*map(fetch, inputs))
        return tuple(map(xp.asarray, result)) if isinstance(result, tuple) else xp.asarray(result)

    return call
