"""Resources of a session, and the step through which stateful kernels access them and the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, Protocol

import numpy as np

# the namespace of variables
VARIABLES: Final = "variables"
TABLES: Final = "tables"


class Step(Protocol):
    """The view that a stateful kernel has of its run: resources, random numbers, position, files.

    Resources that live for one step (stacks, tensor arrays) are Python objects that travel along
    the edges. A step stores resources that outlive it, and temporaries, which have names.
    """

    def resource(
        self, container: str, name: str, make: Callable[[], Any], namespace: str = VARIABLES
    ) -> Any:
        """The object of the session with this container and name; `make` creates a missing one.

        Resources of two namespaces may have the same name.
        """

    def forget(self, container: str, name: str, namespace: str = VARIABLES) -> None:
        """Remove an object from the state of the session."""

    def add_temporary(self, device: str, name: str, resource: Resource) -> bool:
        """Store a resource of this iteration; false if the device has another of its name."""

    def remove_temporary(self, device: str, name: str, resource: Resource) -> bool:
        """Remove a resource of this iteration; false if it is not there under the name."""

    def generator(self, seed: int, seed2: int, stream: str | None = None, position: int = 0) -> Any:
        """A `numpy.random.Generator` for this execution of the running node, until the next call.

        With the name of a `stream`, it is that of a resource, at a position. No schedule, and no
        pass, changes its numbers; see `random_streams`.
        """

    def print(self, text: str, stream: str = "stderr") -> None:
        """Print a line for the graph."""

    def require_readable(self, path: str) -> None:
        """Raise Unsupported if the graph may not read this file; called before it is opened."""

    def run_module(self, call: Any, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """The results of a `ModuleCall`, which runs in a process of its own."""

    def append_to_file(self, path: str, data: bytes) -> None:
        """Append to a file. Raises Unsupported if the graph may not write it."""


class Resource:
    """Referent of a handle: a variable, stack, tensor array, or table."""

    __slots__ = ()
    # resources of two namespaces may have the same name in a container
    namespace: ClassVar[str] = VARIABLES

    def checkpoint(self) -> Callable[[], None]:
        """A function that returns the resource to its present state."""
        names = [name for kind in type(self).__mro__ for name in getattr(kind, "__slots__", ())]
        held = {name: getattr(self, name) for name in names if hasattr(self, name)}
        held |= {name: x.copy() for name, x in held.items() if isinstance(x, list | dict)}

        def restore() -> None:
            for name, value in held.items():
                setattr(self, name, value)

        return restore

    def copy(self) -> Resource | None:
        """An independent resource of the same content, or None if it outlives no run."""
        return None


def explain_wrong_handle(error: AttributeError) -> str:
    """Explain the failure of a kernel whose handle refers to an unsuitable object.

    Empty for any other cause: the error is then a bug in cfgraph.
    """
    value, wanted = error.obj, error.name or ""
    if not any(hasattr(kind, wanted) for kind in Resource.__subclasses__()):
        return ""
    if isinstance(value, Resource):
        return f"the handle refers to {value!r}, which this op does not accept"
    if isinstance(value, np.ndarray) and value.dtype == object:
        return f"the handle {value.tolist()} refers to nothing in this run"
    return ""
