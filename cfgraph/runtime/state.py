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
        self.home: Callable[[Any], Any] | None = None

    def get_or_make(self, container: str, name: str, make: Callable[[], Any]) -> Any:
        """The object of this container and name; made if it is not there."""
        key = (container, name)
        found = self._objects.get(key)
        if found is None:
            found = self._objects[key] = make()
        return found

    def copy(self) -> State:
        """Variables of their own with the same values; nothing else outlives the runs of both."""
        twin = State()
        for key, found in self.variables():
            twin._objects[key] = found.copy()
        return twin

    def forget(self, container: str, name: str) -> None:
        """Drop an object, if it is there."""
        self._objects.pop((container, name), None)

    def move_to_host(self) -> None:
        """Bring the values of all variables to the host's memory."""
        home, self.home = self.home, None
        if home is None:
            return
        for _, found in self.variables():
            found.value = home(found.value)

    def variables(self) -> Iterator[tuple[tuple[str, str], Variable]]:
        """The variables, each with its container and name."""
        for key, found in self._objects.items():
            if isinstance(found, Variable):
                yield key, found

    def objects(self) -> Iterator[Any]:
        """The objects, in the order in which they were made."""
        return iter(self._objects.values())

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._objects)

    def __len__(self) -> int:
        return len(self._objects)
