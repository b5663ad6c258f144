"""What outlives a run: variables and other resources, by container and name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


class State:
    """The objects of a session. Any later Session takes it, also one on a grown graph."""

    def __init__(self) -> None:
        self._objects: dict[tuple[str, str], Any] = {}

    def get_or_make(self, container: str, name: str, make: Callable[[], Any]) -> Any:
        """The object of this container and name; made if it is not there."""
        key = (container, name)
        found = self._objects.get(key)
        if found is None:
            found = self._objects[key] = make()
        return found

    def forget(self, container: str, name: str) -> None:
        """Drop an object, if it is there."""
        self._objects.pop((container, name), None)

    def objects(self) -> Iterator[Any]:
        """The objects, in the order in which they were made."""
        return iter(self._objects.values())

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._objects)

    def __len__(self) -> int:
        return len(self._objects)
