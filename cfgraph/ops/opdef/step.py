"""The run as a stateful kernel sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Step(Protocol):
    """One run, as a stateful kernel sees it; implemented by the runtime.

    Resources that live for one step (stacks, tensor arrays) are plain Python objects that travel
    along the edges; only what outlives a step is kept here.
    """

    def resource(self, container: str, name: str, make: Callable[[], Any]) -> Any:
        """The session's object of this container and name; made if it is not there."""

    def forget(self, container: str, name: str) -> None:
        """Drop an object from the session's state."""

    def generator(self, seed: int, seed2: int) -> Any:
        """A `numpy.random.Generator` for this execution of the running node.

        It is keyed by both seeds, the graph's seed, the node, its frame path and iteration and the
        number of the run, so that no schedule changes what it draws.
        """

    def print(self, text: str, stream: str = "stderr") -> None:
        """Show a line that the graph prints."""
