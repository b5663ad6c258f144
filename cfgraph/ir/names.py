"""Names of nodes and tensors: syntax, parsing, and "did you mean" hints."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Final

# TensorFlow's rule; a leading `_` is reserved for nodes that its runtime creates
NODE_NAME: Final = re.compile(r"[A-Za-z0-9._][A-Za-z0-9_./>-]*\Z").match
_MAX_DIGITS: Final = 20  # longer than any port number
# bounds of fuzzy matching, which is slow
_MAX_CANDIDATES: Final = 20_000
_MAX_NAME_LENGTH: Final = 200


def decode_text(data: bytes) -> str:
    """The text of a string attribute; bytes that are not UTF-8 become escapes such as `\\xff`."""
    return data.decode("utf-8", "backslashreplace")


def decode_key(data: bytes) -> str:
    """The text of a string attribute that names a resource; distinct bytes have distinct texts."""
    return data.decode("utf-8", "surrogateescape")


def split_tensor_name(name: str) -> tuple[str, int | None]:
    """`a` is output 0 of a, `a:1` output 1, `^a` the operation itself (None).

    Digits after the last colon win over a leading `^`, as in TensorFlow.
    """
    base, colon, digits = name.rpartition(":")
    port = port_number(digits) if colon and base else None
    if port is not None:
        return base, port
    if name.startswith("^"):
        return name[1:], None
    return name, 0


def node_name(name: str) -> str:
    """The node of `a`, `a:1` or `^a`."""
    return split_tensor_name(name.removeprefix("^"))[0]


def port_number(digits: str) -> int | None:
    """The number that a string of digits represents, or None for any other string."""
    is_number = digits.isascii() and digits.isdigit() and len(digits) < _MAX_DIGITS
    return int(digits) if is_number else None


def first_names(names: Sequence[str], most: int | None) -> str:
    """The first `most` names and the number of the others, or all names if `most` is None."""
    hidden = 0 if most is None else len(names) - most
    return ", ".join(names[:most]) + (f" and {hidden} more" if hidden > 0 else "")


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """Hint with the closest known name, or None."""
    candidates = [item for item in known if len(item) <= _MAX_NAME_LENGTH]
    if len(candidates) > _MAX_CANDIDATES or len(name) > _MAX_NAME_LENGTH:
        return None
    close = difflib.get_close_matches(name, candidates, 1)
    return f"did you mean {close[0]!r}?" if close else None


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
