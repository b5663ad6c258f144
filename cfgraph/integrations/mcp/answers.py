"""Answers of bounded size: the longest lists and texts are cut, and the cuts are named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

_MIN_ITEMS: Final = 3
_MIN_TEXT: Final = 200


def bounded(document: dict[str, Any], limit: int) -> dict[str, Any]:
    """A document of at most about `limit` bytes of JSON; its member `cut` lists what was cut.

    Lists and texts get shorter by half, the largest first, until the document fits.
    """
    cuts: dict[str, dict[str, Any]] = {}
    size = _size(document)
    while size > limit:
        largest = max(_cuttable(document, ""), key=lambda item: item[0], default=None)
        if largest is None:
            break
        saved, path, owner, key = largest
        value = owner[key]
        cut = cuts.setdefault(path, {"path": path, "of": len(value)})
        length = len(value) // 2
        owner[key] = value[:length]
        cut["kept"] = length
        size -= saved
        document["cut"] = [*cuts.values()]
    return document


def _size(value: Any) -> int:
    return len(json.dumps(value))


def _cuttable(value: Any, path: str) -> Iterator[tuple[int, str, Any, Any]]:
    """Lists and texts that can be halved: the bytes that it saves, path, owner, and key."""
    members = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in members:
        name = f"{path}.{key}" if path else str(key)
        if name == "cut":
            continue
        is_long_text = isinstance(item, str) and len(item) > _MIN_TEXT
        is_long_list = isinstance(item, list) and len(item) > _MIN_ITEMS
        if is_long_text or is_long_list:
            yield _size(item) - _size(item[: len(item) // 2]), name, value, key
        if isinstance(item, dict | list):
            yield from _cuttable(item, name)
