"""Sets of element types, in the notation of attribute declarations."""

from __future__ import annotations

from typing import Final

FLOATS: Final = "bfloat16, float16, float32, float64"
COMPLEX: Final = "complex64, complex128"
SIGNED: Final = "int8, int16, int32, int64"
UNSIGNED: Final = "uint8, uint16, uint32, uint64"
INTEGERS: Final = f"{SIGNED}, {UNSIGNED}"
REAL: Final = f"{FLOATS}, {INTEGERS}"
QUANTIZED: Final = "qint8, quint8, qint16, quint16, qint32"
NUMBERS: Final = f"{REAL}, {COMPLEX}"
ALL_NUMBERS: Final = f"{NUMBERS}, {QUANTIZED}"
INDEX: Final = "{int32, int64}"


def one_of(*types: str, attr: str = "T") -> str:
    """Declare a type attribute that allows the union of these types and sets."""
    return f"{attr}: {{{', '.join(types)}}}"
