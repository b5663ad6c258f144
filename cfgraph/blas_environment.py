"""Environment variables that set the number of threads with which BLAS libraries start.

Imports nothing of NumPy: the `cfgraph` command sets the default before it imports NumPy.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Final

_DEFAULT: Final = "OPENBLAS_DEFAULT_NUM_THREADS"
_USER_VARIABLES: Final = (
    "OPENBLAS_NUM_THREADS",
    "GOTO_NUM_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


def is_chosen_by_user() -> bool:
    """True if a variable sets the number of threads."""
    return any(name in os.environ for name in _USER_VARIABLES)


def start_with_one_thread() -> None:
    """Let OpenBLAS start with one thread in this process, unless its user chose a number."""
    if not is_chosen_by_user():
        os.environ.setdefault(_DEFAULT, "1")


def starts_with_one_thread() -> bool:
    """True if OpenBLAS started, or will start, with one thread by default."""
    return os.environ.get(_DEFAULT) == "1" and not is_chosen_by_user()


@cache
def has_one_thread() -> bool:
    """True if BLAS libraries started with one thread, by a variable or by default."""
    counts = {os.environ[name] for name in _USER_VARIABLES if name in os.environ}
    return counts == {"1"} or starts_with_one_thread()
