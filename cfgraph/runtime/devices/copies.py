"""What is under way between a card and the host, or from one gpu of it to another."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Copy:
    """A copy to the host that is under way: `array` holds the value when `done` has passed."""

    __slots__ = ("array", "done")

    def __init__(self, array: np.ndarray, done: Any) -> None:
        self.array, self.done = array, done

    def wait(self) -> Any:
        """The value, a NumPy scalar of rank 0."""
        self.done.synchronize()
        return self.array if self.array.ndim else self.array[()]


class Timed(NamedTuple):
    """A copy between the card and the host, and the events that it is between."""

    out: bool
    bytes: int
    start: Any
    end: Any
    node: str = ""
    text: str = ""


class Posted:
    """A message from a gpu: the array, the event behind it, and its copy where a host reads it."""

    __slots__ = ("copy", "made", "value")

    def __init__(self, value: Any, made: Any, copy: Copy | None) -> None:
        self.value, self.made, self.copy = value, made, copy

    @property
    def nbytes(self) -> int:
        """The bytes of the array."""
        return int(self.value.nbytes)


def received(message: Any) -> Any:
    """What a host gets of a message from a gpu."""
    if not isinstance(message, Posted):
        return message
    assert message.copy is not None
    return message.copy.wait()
