"""Names: syntax of node names, texts of attributes, and "did you mean" hints."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Container, Iterable, Sequence
from heapq import nlargest
from itertools import islice
from typing import Final

from cfgraph.errors import UsageError

# TensorFlow's rule; a leading `_` is reserved for nodes that its runtime creates
NODE_NAME: Final = re.compile(r"[A-Za-z0-9._][A-Za-z0-9_./>-]*\Z").match
# bounds of fuzzy matching, which is slow
_MAX_CANDIDATES: Final = 20_000
_MAX_NAME_LENGTH: Final = 200
_MAX_COMPARED: Final = 20
_MIN_SIMILARITY: Final = 0.6
# names that a hint lists
_MAX_LISTED: Final = 4


def require_names(names: Iterable[object]) -> None:
    """Raise UsageError for a tensor or node in place of its name."""
    for name in names:
        if not isinstance(name, str):
            message = f"a name is expected, as a string, got {type(name).__name__}"
            text = getattr(name, "name", None)
            raise UsageError(message, hint=f"use {text!r}" if isinstance(text, str) else None)


def name_list(names: str | Iterable[str]) -> list[str]:
    """One name or several as a list. Raises UsageError for anything else."""
    if isinstance(names, str):
        return [names]
    is_list = isinstance(names, Iterable) and not isinstance(names, bytes)
    if not is_list or hasattr(names, "name"):  # a tensor is a tuple
        require_names([names])
    several = list(names)
    require_names(several)
    return several


def unused_name(base: str, *used: Container[str]) -> str:
    """The first of `base`, `base_1`, `base_2`, … that is in none of these collections."""
    name, number = base, 0
    while any(name in names for names in used):
        number += 1
        name = f"{base}_{number}"
    return name


def decode_text(data: bytes) -> str:
    """The text of a string attribute; bytes that are not UTF-8 become escapes such as `\\xff`."""
    return data.decode("utf-8", "backslashreplace")


def decode_key(data: bytes) -> str:
    """The text of a string attribute that names a resource; distinct bytes have distinct texts."""
    return data.decode("utf-8", "surrogateescape")


def encode_key(text: str) -> bytes:
    """The bytes of which `decode_key` returns the text."""
    return text.encode("utf-8", "surrogateescape")


def first_names(names: Sequence[str], most: int | None) -> str:
    """The first `most` names and the number of the others, or all names if `most` is None."""
    hidden = 0 if most is None else len(names) - most
    return ", ".join(names[:most]) + (f" and {hidden} more" if hidden > 0 else "")


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """Hint with the closest known name, or None."""
    close = closest_name(name, known)
    return f"did you mean {close!r}?" if close is not None else None


def known_names_hint(name: str, nodes: Collection[str], owner: str = "the graph") -> str | None:
    """Hint with the closest name, else with the closest end of one, else with some names."""
    hint = did_you_mean(name, nodes)
    if hint is None:
        scopes = name.count("/") + 1
        ends = {"/".join(node.split("/")[-scopes:]): node for node in reversed([*nodes])}
        close = closest_name(name, ends)
        if close == name:
            return f"write the complete name, {ends[close]!r}"
        hint = None if close is None else f"did you mean {close!r}, as in {ends[close]!r}?"
    if hint is None and nodes:
        hint = f"{owner} has {first_names(list(nodes), _MAX_LISTED)}"
    return hint


def closest_name(
    name: str, known: Iterable[str], similarity: float = _MIN_SIMILARITY
) -> str | None:
    """The known name most similar to `name`, or None below a `similarity` from 0 to 1.

    Of many names, only those with the longest common beginning and end are compared.
    """
    candidates = list(islice(known, _MAX_CANDIDATES + 1))
    if len(candidates) > _MAX_CANDIDATES or len(name) > _MAX_NAME_LENGTH:
        return None
    for item in candidates:
        if item.casefold() == name.casefold():
            return item
    # the ratio of two names is at most twice the length of the shorter one by that of both
    shortest = similarity * len(name) / (2 - similarity)
    longest = min(_MAX_NAME_LENGTH, (2 - similarity) * len(name) / similarity)
    candidates = [item for item in candidates if shortest <= len(item) <= longest]
    if len(candidates) > _MAX_COMPARED:
        backwards = name[::-1]
        candidates = nlargest(
            _MAX_COMPARED,
            candidates,
            lambda item: _prefix_length(name, item) + _prefix_length(backwards, item[::-1]),
        )
    return next(iter(difflib.get_close_matches(name, candidates, 1, similarity)), None)


def _prefix_length(a: str, b: str) -> int:
    """The length of the common beginning of two texts, by bisection."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def misspelled_op_hint(name: str, known: Iterable[str]) -> str | None:
    """Hint with the op that a name misspells, or None.

    A name that is merely similar is most often an op of TensorFlow's that is unknown to cfgraph; so
    are names that differ in a digit, such as `Conv3D` and `Conv2D`.
    """
    if not _MIN_OP_NAME < len(name) <= _MAX_NAME_LENGTH:
        return None
    match = next((op for op in sorted(known) if op != name and _is_typo(name, op)), None)
    return f"did you mean {match!r}?" if match else None


_MIN_OP_NAME: Final = 4


def _is_typo(name: str, op: str) -> bool:
    """True if they differ by one edit, a transposition, case, or a missing `Op`."""
    a, b = name.lower(), op.lower()
    if abs(len(a) - len(b)) > len("op"):
        return False
    start = 0
    while start < min(len(a), len(b)) and a[start] == b[start]:
        start += 1
    a, b = a[start:], b[start:]
    while a and b and a[-1] == b[-1]:
        a, b = a[:-1], b[:-1]
    if any(sign.isdigit() for sign in a + b):
        return False
    swapped = len(a) == len(b) and len(a) == len("xy") and a == b[::-1]
    return swapped or max(len(a), len(b)) <= 1 or (not a and b == "op")
