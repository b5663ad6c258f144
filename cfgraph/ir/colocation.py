"""Colocation groups: an attribute names the nodes with which a node shares its device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

COLOCATION_ATTR: Final = "_class"
_PREFIX: Final = b"loc:@"


def colocation_groups(attrs: Mapping[str, Any]) -> tuple[Any, ...]:
    """The groups of a node with these attributes; none if the attribute is not a list."""
    groups = attrs.get(COLOCATION_ATTR)
    return groups if isinstance(groups, tuple) else ()


def colocated_name(group: Any) -> str | None:
    """The node that a group names, or None for anything else in the list."""
    if not isinstance(group, bytes) or not group.startswith(_PREFIX):
        return None
    return group[len(_PREFIX) :].decode("utf-8", "backslashreplace")


def colocated_names(attrs: Mapping[str, Any]) -> list[str]:
    """The nodes that the groups of a node with these attributes name."""
    names = map(colocated_name, colocation_groups(attrs))
    return [name for name in names if name is not None]


def colocation_group(name: str) -> bytes:
    """The group of the node with this name."""
    return _PREFIX + name.encode()


def renamed_groups(groups: Any, new_name: Callable[[str], str | None]) -> Any:
    """Groups under the new names of their nodes; a node without one keeps its name."""
    if not isinstance(groups, tuple):
        return groups
    return tuple(_renamed(group, new_name) for group in groups)


def _renamed(group: Any, new_name: Callable[[str], str | None]) -> Any:
    name = colocated_name(group)
    renamed = None if name is None else new_name(name)
    return group if renamed is None else colocation_group(renamed)


def without_groups(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes without colocation."""
    return {key: value for key, value in attrs.items() if key != COLOCATION_ATTR}
