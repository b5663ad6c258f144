"""A low recursion limit, which small graphs exceed where code recurses over them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def little_stack(frames_left: int = 120) -> Iterator[None]:
    """Set a recursion limit that any recursion over the graph exceeds."""
    depth, frame = 0, sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + frames_left)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
