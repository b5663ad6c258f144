"""Grammar of feed values: the syntax of `--feed x=VALUE` and `--expect y=VALUE`.

VALUE  := "@" FILE.npy | "@" FILE.npz "[" KEY "]" | "@-"      an array from a file or stdin
        | TYPE "@" FILE                                        raw little-endian bytes
        | [TYPE ":"] JSON                                      numbers, true, NaN, "text", lists
        | [TYPE ":"] GENERATOR                                 zeros, ones, full(7), arange,
                                                               uniform(-1,1), normal(0,1)
TYPE   := f32, float32, DT_FLOAT, … with the sizes where there are any: f32[2,3]
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from cfgraph.errors import UsageError
from cfgraph.ir.dtypes import DType

GENERATORS: Final = ("zeros", "ones", "full", "arange", "uniform", "normal")
_TYPED: Final = re.compile(r"([A-Za-z_]\w*)(?:\[([^\]]*)\])?([:@])")
_GENERATED: Final = re.compile(rf"({'|'.join(GENERATORS)})(?:\((.*)\))?\Z", re.DOTALL)
_KEYED: Final = re.compile(r"(.+)\[([^\]]*)\]\Z", re.DOTALL)


class ValueSpec(NamedTuple):
    """A value as it was written, taken apart; `form` says which fields matter.

    `file`: `text` is the path, `key` an archive's key. `raw`: `text` is the path. `json`: `text` is
    JSON. `generated`: `text` names the generator, `arguments` are its own.
    """

    form: str
    text: str
    dtype: DType | None = None
    sizes: tuple[int, ...] | None = None
    key: str | None = None
    arguments: str | None = None


def split_feed(text: str, what: str = "feed") -> tuple[str, str]:
    """The name and the value of `NAME=VALUE`. Raises UsageError where it is not that."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        message = f"{text!r} is no {what}"
        raise UsageError(message, hint="write NAME=VALUE, as in x=3.5 or x=@x.npy", code="CFG033")
    if not value.strip():
        message = f"{name.strip()} is given no value"
        raise UsageError(message, hint=f"as in {name.strip()}=3.5", code="CFG033")
    return name.strip(), value.strip()


def parse_value(text: str) -> ValueSpec:
    """Take a value apart. Raises UsageError where it has a type that there is not."""
    if text.startswith("@"):
        keyed = _KEYED.match(text[1:])
        if keyed and not keyed[1].endswith("/"):
            return ValueSpec("file", keyed[1], key=keyed[2])
        return ValueSpec("file", text[1:])
    dtype, sizes = None, None
    if typed := _TYPED.match(text):
        dtype, sizes = _dtype(typed[1]), _sizes(typed[2])
        text = text[typed.end() :].strip()
        if typed[3] == "@":
            return ValueSpec("raw", text, dtype, sizes)
    if generated := _GENERATED.match(text):
        return ValueSpec("generated", generated[1], dtype, sizes, arguments=generated[2])
    return ValueSpec("json", text, dtype, sizes)


def _dtype(name: str) -> DType:
    try:
        dtype = DType.from_name(name)
        _ = dtype.numpy
    except (KeyError, TypeError):
        message = f"there is no tensor type {name!r}"
        hint = "as in f32, f64, bf16, i32, i64, u8, bool, c64, str"
        raise UsageError(message, hint=hint, code="CFG033") from None
    return dtype


def _sizes(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    if not all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts):
        message = f"[{text}] is no shape of a value"
        raise UsageError(message, hint="write all sizes, as in f32[2,3]", code="CFG033")
    return tuple(int(part) for part in parts)
