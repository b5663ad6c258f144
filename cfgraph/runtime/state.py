"""State that outlives a run: variables and other resources, by container and name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from cfgraph.ops.families.variables import Variable


class State:
    """The objects of a session. Any later Session takes it, also one on a grown graph."""

    def __init__(self) -> None:
        self._objects: dict[tuple[str, str], Any] = {}
        # brings a value to the host, where some are elsewhere
        self.to_host: Callable[[Any], Any] | None = None

    def get_or_make(self, container: str, name: str, make: Callable[[], Any]) -> Any:
        """The object of this container and name; made if it is not there."""
        key = (container, name)
        value = self._objects.get(key)
        if value is None:
            value = self._objects[key] = make()
        return value

    def copy(self) -> State:
        """Variables of their own with the same values; nothing else outlives the runs of both."""
        copied = State()
        for key, value in self.variables():
            copied._objects[key] = value.copy()
        return copied

    def forget(self, container: str, name: str) -> None:
        """Drop an object, if it is there."""
        self._objects.pop((container, name), None)

    def move_to_host(self) -> None:
        """Bring the values of all variables to the host's memory."""
        to_host, self.to_host = self.to_host, None
        if to_host is None:
            return
        for _, value in self.variables():
            value.value = to_host(value.value)

    def variables(self) -> Iterator[tuple[tuple[str, str], Variable]]:
        """The variables, each with its container and name."""
        for key, value in self._objects.items():
            if isinstance(value, Variable):
                yield key, value

    def objects(self) -> Iterator[Any]:
        """The objects, in the order in which they were made."""
        return iter(self._objects.values())

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._objects)

    def __len__(self) -> int:
        return len(self._objects)
