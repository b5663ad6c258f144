"""Nested tuples, lists, dicts, and named tuples of tensors: flattening and packing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cfgraph.build.tensor import Operation


@dataclass(frozen=True, slots=True)
class Structure:
    """The structure of a value: a `leaf`, `nothing` (None, an operation), or children by key.

    Lists and tuples are both a `sequence`.
    """

    kind: str
    type: type | None = None
    keys: tuple[Any, ...] = ()
    parts: tuple[Structure, ...] = ()

    def __str__(self) -> str:
        if self.kind in ("leaf", "nothing"):
            return "*" if self.kind == "leaf" else "None"
        if self.kind == "sequence":
            return f"({', '.join(map(str, self.parts))})"
        pairs = zip(self.keys, self.parts, strict=True)
        return "{" + ", ".join(f"{key}: {child}" for key, child in pairs) + "}"


@dataclass(frozen=True, slots=True)
class FlattenedValue:
    """A flattened value: its leaves, their paths, and the operations among them."""

    structure: Structure
    leaves: tuple[Any, ...]
    paths: tuple[str, ...]
    operations: tuple[Operation, ...]


class StructureMismatch(Exception):
    """Two values differ in structure at `path`."""

    def __init__(self, path: str, expected: Structure, actual: Structure) -> None:
        super().__init__(path)
        self.path, self.expected, self.actual = path, expected, actual


def flatten(value: Any) -> FlattenedValue:
    """Flatten nested tuples, lists, and dicts into leaves."""
    leaves: list[Any] = []
    paths: list[str] = []
    operations: list[Operation] = []

    def visit(value: Any, path: str) -> Structure:
        if isinstance(value, Operation):
            operations.append(value)
        if value is None or isinstance(value, Operation):
            return Structure("nothing")
        items = _children(value)
        if items is None:
            leaves.append(value)
            paths.append(path)
            return Structure("leaf")
        kind, keys, children = items
        visited = [
            visit(child, _child_path(path, key)) for key, child in zip(keys, children, strict=True)
        ]
        return Structure(kind, type(value), tuple(keys), tuple(visited))

    structure = visit(value, "")
    return FlattenedValue(structure, tuple(leaves), tuple(paths), tuple(operations))


def leaves_in_order(reference: Structure, flat: FlattenedValue) -> tuple[Any, ...]:
    """The leaves of a value in the order of a reference structure.

    Raises StructureMismatch if the structures differ. Keys of dicts may have any order.
    """
    leaves = iter(flat.leaves)
    placed: list[tuple[tuple[Any, ...], Any]] = []
    order: list[tuple[Any, ...]] = []
    _match_structures(reference, flat.structure, "", (), order, placed, leaves)
    by_key = dict(placed)
    return tuple(by_key[key] for key in order)


def _match_structures(
    reference: Structure,
    structure: Structure,
    path: str,
    key: tuple[Any, ...],
    order: list[tuple[Any, ...]],
    placed: list[tuple[tuple[Any, ...], Any]],
    leaves: Iterator[Any],
) -> None:
    same_keys = set(reference.keys) == set(structure.keys)
    if reference.kind != structure.kind or not same_keys:
        raise StructureMismatch(path, reference, structure)
    if reference.kind == "leaf":
        placed.append((key, next(leaves)))
        order.append(key)
        return
    expected = dict(zip(reference.keys, reference.parts, strict=True))
    inner: dict[Any, list[tuple[Any, ...]]] = {}
    for name, child in zip(structure.keys, structure.parts, strict=True):
        inner[name] = []
        below = _child_path(path, name)
        _match_structures(expected[name], child, below, (*key, name), inner[name], placed, leaves)
    for name in reference.keys:
        order.extend(inner[name])


def pack(structure: Structure, leaves: Sequence[Any]) -> Any:
    """Rebuild a value from its structure and leaves."""
    rest = iter(leaves)

    def make(structure: Structure) -> Any:
        if structure.kind == "leaf":
            return next(rest)
        if structure.kind == "nothing":
            return None
        parts = [make(child) for child in structure.parts]
        if structure.kind == "sequence":
            return parts if structure.type is list else tuple(parts)
        if structure.kind == "named" and structure.type is not None:
            return structure.type(*parts)
        return dict(zip(structure.keys, parts, strict=True))

    return make(structure)


def path_as_name(path: str, default: str = "value") -> str:
    """A path as a valid name: `state.pair[0]` is `state_pair_0`, `0` is `value_0`."""
    name = re.sub(r"\W+", "_", path, flags=re.ASCII).strip("_")
    return f"{default}_{name}" if name[:1].isdigit() else name or default


def _children(value: Any) -> tuple[str, Sequence[Any], Sequence[Any]] | None:
    """Kind, keys, and children of a container, or None for a leaf."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return "named", value._fields, value
    if isinstance(value, list | tuple):
        return "sequence", range(len(value)), value
    if isinstance(value, dict):
        return "dict", list(value), list(value.values())
    return None


def _child_path(path: str, key: Any) -> str:
    if not path:
        return str(key)
    return f"{path}[{key}]" if isinstance(key, int) else f"{path}.{key}"
