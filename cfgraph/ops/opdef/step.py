"""Interface of stateful kernels to the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Step(Protocol):
    """One run, as implemented by the runtime.

    Resources that live for one step (stacks, tensor arrays) are Python objects that travel along
    the edges. A step stores only resources that outlive it.
    """

    def resource(self, container: str, name: str, make: Callable[[], Any]) -> Any:
        """The object of the session with this container and name; `make` creates a missing one."""

    def forget(self, container: str, name: str) -> None:
        """Remove an object from the state of the session."""

    def generator(self, seed: int, seed2: int) -> Any:
        """A `numpy.random.Generator` for this execution of the running node.

        Its key consists of both seeds, the seed of the graph, the node, its frame path and
        iteration, and the number of the run, so that no schedule changes the numbers.
        """

    def print(self, text: str, stream: str = "stderr") -> None:
        """Print a line for the graph."""
