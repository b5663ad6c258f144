"""The request of a kernel to run again once another node has changed a resource."""

from __future__ import annotations

from typing import Any


class Blocked(Exception):
    """A kernel waits for another node to change a resource, whose `version` counts changes.

    The executor runs it again, with the same inputs, after a change. If the run ends before,
    `resource.withdraw(key)` undoes what it has begun.
    """

    def __init__(self, resource: Any, purpose: str, key: Any = None) -> None:
        super().__init__(purpose)
        self.resource, self.purpose, self.version = resource, purpose, resource.version
        self.key = key
