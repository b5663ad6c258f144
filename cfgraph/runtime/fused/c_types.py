"""The element types that a generated kernel knows, as C names them, and literals of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import ml_dtypes
import numpy as np


@dataclass(frozen=True, slots=True)
class CType:
    """An element type: `stored` in memory, `computed` with; `kind` says which operators it has.

    A half-width float is computed as `float` and rounded behind each operation, as NumPy does:
    `load`, `store` and `rounded` name the functions of the prelude for it.
    """

    name: str
    kind: str  # float, int, uint, bool
    bits: int
    stored: str
    computed: str
    unsigned: str = ""  # what an integer wraps around in, at least as wide as `unsigned int`
    half: str = ""  # half, bfloat: of the prelude's functions

    @property
    def suffix(self) -> str:
        """What the C library puts behind the names of its functions for this type."""
        return "f" if self.computed == "float" else ""


def _types() -> dict[np.dtype[Any], CType]:
    rows = [
        CType("bool", "bool", 8, "bool", "bool"),
        CType("int8", "int", 8, "signed char", "signed char", "unsigned int"),
        CType("int16", "int", 16, "short", "short", "unsigned int"),
        CType("int32", "int", 32, "int", "int", "unsigned int"),
        CType("int64", "int", 64, "long long", "long long", "unsigned long long"),
        CType("uint8", "uint", 8, "unsigned char", "unsigned char", "unsigned int"),
        CType("uint16", "uint", 16, "unsigned short", "unsigned short", "unsigned int"),
        CType("uint32", "uint", 32, "unsigned int", "unsigned int", "unsigned int"),
        CType(
            "uint64", "uint", 64, "unsigned long long", "unsigned long long", "unsigned long long"
        ),
        CType("float16", "float", 16, "unsigned short", "float", half="half"),
        CType("bfloat16", "float", 16, "unsigned short", "float", half="bfloat"),
        CType("float32", "float", 32, "float", "float"),
        CType("float64", "float", 64, "double", "double"),
    ]
    special = {"bfloat16": np.dtype(ml_dtypes.bfloat16)}
    return {special[row.name] if row.name in special else np.dtype(row.name): row for row in rows}


TYPES: Final = _types()
BOOL: Final = TYPES[np.dtype(bool)]


def literal(value: Any, kind: CType) -> str:
    """A number as C writes one of this type; exact."""
    if kind.kind == "bool":
        return "true" if value else "false"
    if kind.kind == "float":
        return _float(value, kind)
    number = int(value)
    if kind.kind == "uint":
        return f"({kind.computed}){number}ull"
    # the least number has no literal: its digits are those of one too many
    least = number == -(1 << 63)
    return f"({kind.computed})({number + 1}ll - 1)" if least else f"({kind.computed})({number}ll)"


def _float(value: Any, kind: CType) -> str:
    wide = kind.computed == "double"
    number = np.float64(value) if wide else np.float32(value)
    if np.isfinite(number):
        text = float(number).hex()
        return f"({text}{kind.suffix})"
    bits = number.view(np.uint64 if wide else np.uint32)
    return f"cf_double_of({bits}ull)" if wide else f"cf_float_of({bits}u)"
