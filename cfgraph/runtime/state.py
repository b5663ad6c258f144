"""State that outlives a run: variables and other resources, by container and name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import RLock
from typing import Any

from cfgraph.ops.families.variables import Variable


class State:
    """Resources of a session. Any later session accepts them, also for a graph that has grown.

    A stateful kernel runs with `lock`, so that concurrent runs interleave between nodes only.
    """

    def __init__(self) -> None:
        self.lock = RLock()
        self._objects: dict[tuple[str, str], Any] = {}
        # copies a value to host memory, if values may be elsewhere
        self.to_host: Callable[[Any], Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """The state without its lock, for copy and pickle."""
        return {key: value for key, value in vars(self).items() if key != "lock"}

    def __setstate__(self, fields: dict[str, Any]) -> None:
        vars(self).update(fields, lock=RLock())

    def get_or_make(self, container: str, name: str, make: Callable[[], Any]) -> Any:
        """The object of this container and name, made on first use."""
        key = (container, name)
        value = self._objects.get(key)
        if value is None:
            with self.lock:
                value = self._objects.get(key)
                if value is None:
                    value = self._objects[key] = make()
        return value

    def copy(self) -> State:
        """A state with copies of the variables; other resources are not copied."""
        copied = State()
        for key, value in self.variables():
            copied._objects[key] = value.copy()
        return copied

    def forget(self, container: str, name: str) -> None:
        """Drop an object, if it exists."""
        self._objects.pop((container, name), None)

    def move_to_host(self) -> None:
        """Move the values of all variables to host memory."""
        to_host, self.to_host = self.to_host, None
        if to_host is None:
            return
        for _, value in self.variables():
            value.value = to_host(value.value)

    def variables(self) -> Iterator[tuple[tuple[str, str], Variable]]:
        """The variables, each with its container and name."""
        for key, value in list(self._objects.items()):
            if isinstance(value, Variable):
                yield key, value

    def objects(self) -> Iterator[Any]:
        """The objects, in the order in which they were made."""
        return iter(list(self._objects.values()))

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(list(self._objects))

    def __len__(self) -> int:
        return len(self._objects)
