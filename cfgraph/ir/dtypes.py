"""Element types of tensors, numbered as in TensorFlow's files."""

from __future__ import annotations

from typing import Any, ClassVar, Final

_REF_OFFSET: Final = 100
# kinds of types whose elements are numbers
NUMERIC_KINDS: Final = ("float", "int", "uint", "complex", "bool")


class DType:
    """One element type; interned, so that `is` compares. `number` is the value in a file.

    The number of a reference type (`Ref(float32)`) is the number of its base type plus 100. Unknown
    numbers are preserved, so that a file survives a round trip.

    `kind` is `float`, `int`, `uint`, `complex`, `bool`, `string`, `resource`, `variant` or `none`.
    `is_differentiable` is true for types that carry gradients: non-integer numbers, resources, and
    variants.
    """

    __slots__ = ("_numpy", "base", "is_differentiable", "is_ref", "kind", "name", "number")
    _known: ClassVar[dict[int, DType]] = {}

    number: int
    name: str
    is_ref: bool
    base: DType
    kind: str
    is_differentiable: bool

    def __init__(self, number: int) -> None:
        self.number = number
        self.is_ref = _REF_OFFSET < number < 2 * _REF_OFFSET
        self.base = DType.from_number(number - _REF_OFFSET) if self.is_ref else self
        if self.is_ref:
            self.name = f"Ref({self.base.name})"
        else:
            self.name = _DTYPE_TABLE[number][0] if number in _DTYPE_TABLE else f"dtype_{number}"
        row = _DTYPE_TABLE.get(self.base.number)
        self.kind = row[2] if row else "none"
        self.is_differentiable = self.kind in ("float", "complex", "resource", "variant")
        self._numpy: Any = None

    @classmethod
    def from_number(cls, number: int) -> DType:
        """The type with this number."""
        known = cls._known.get(number)
        if known is None:
            known = cls._known[number] = cls(number)
        return known

    @classmethod
    def from_name(cls, name: str) -> DType:
        """The type with this name (`float32`, `Ref(float32)`, `DT_FLOAT`, `float`, `f32`).

        Raises KeyError for an unknown name.
        """
        if name.startswith("Ref(") and name.endswith(")"):
            return cls.from_name(name[4:-1]).ref
        if name.startswith("dtype_") and name[6:].isdigit():
            return cls.from_number(int(name[6:]))
        return cls.from_number(_NUMBER_BY_NAME[name])

    @property
    def ref(self) -> DType:
        """The reference type over this one."""
        return self if self.is_ref else DType.from_number(self.number + _REF_OFFSET)

    @property
    def is_floating(self) -> bool:
        """True for the real floating types."""
        return self.kind == "float"

    @property
    def is_complex(self) -> bool:
        """True for complex64 and complex128."""
        return self.kind == "complex"

    @property
    def is_integer(self) -> bool:
        """True for signed and unsigned integers, quantized ones included."""
        return self.kind in ("int", "uint")

    @property
    def is_object(self) -> bool:
        """True for strings, resources and variants: held as Python objects."""
        return self.kind in ("string", "resource", "variant")

    @property
    def is_handle(self) -> bool:
        """True for resources and references: the tensor refers to state."""
        return self.is_ref or self.kind == "resource"

    @property
    def is_opaque(self) -> bool:
        """True for variants: only the ops of a variant know its content and its zeros."""
        return self.kind == "variant"

    @property
    def real(self) -> DType:
        """The type of the real part of a complex type; any other type itself."""
        return {complex64: float32, complex128: float64}.get(self.base, self)

    @property
    def numpy(self) -> Any:
        """The NumPy dtype of its arrays (`object` for strings, resources, variants).

        Raises TypeError if there is none.
        """
        if self._numpy is None:
            self._numpy = _numpy_dtype(self)
        return self._numpy

    @classmethod
    def from_numpy(cls, dtype: Any) -> DType:
        """The type of a NumPy dtype; `object` and text dtypes are strings.

        Raises TypeError for an unsupported dtype.
        """
        import numpy as np

        dtype = np.dtype(dtype)
        if dtype.kind in "OSU":
            return string
        number = _NUMBER_BY_NUMPY_NAME.get(dtype.name)
        if number is None:
            message = f"no tensor type for the NumPy type {dtype}"
            raise TypeError(message)
        return cls.from_number(number)

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, tuple[int]]:
        return DType.from_number, (self.number,)


def _numpy_dtype(dtype: DType) -> Any:
    import numpy as np

    row = _DTYPE_TABLE.get(dtype.base.number)
    if row is None or row[1] is None:
        message = f"tensors of type {dtype.name} have no NumPy representation"
        raise TypeError(message)
    if hasattr(np, row[1]):
        return np.dtype(getattr(np, row[1]))
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, row[1]))


# number: name, attribute of numpy or ml_dtypes, kind, TensorFlow's name, short name
_DTYPE_TABLE: Final[dict[int, tuple[str, str | None, str, str, str]]] = {
    0: ("invalid", None, "none", "DT_INVALID", ""),
    1: ("float32", "float32", "float", "DT_FLOAT", "f32"),
    2: ("float64", "float64", "float", "DT_DOUBLE", "f64"),
    3: ("int32", "int32", "int", "DT_INT32", "i32"),
    4: ("uint8", "uint8", "uint", "DT_UINT8", "u8"),
    5: ("int16", "int16", "int", "DT_INT16", "i16"),
    6: ("int8", "int8", "int", "DT_INT8", "i8"),
    7: ("string", "object_", "string", "DT_STRING", "str"),
    8: ("complex64", "complex64", "complex", "DT_COMPLEX64", "c64"),
    9: ("int64", "int64", "int", "DT_INT64", "i64"),
    10: ("bool", "bool_", "bool", "DT_BOOL", "b"),
    11: ("qint8", "int8", "int", "DT_QINT8", ""),
    12: ("quint8", "uint8", "uint", "DT_QUINT8", ""),
    13: ("qint32", "int32", "int", "DT_QINT32", ""),
    14: ("bfloat16", "bfloat16", "float", "DT_BFLOAT16", "bf16"),
    15: ("qint16", "int16", "int", "DT_QINT16", ""),
    16: ("quint16", "uint16", "uint", "DT_QUINT16", ""),
    17: ("uint16", "uint16", "uint", "DT_UINT16", "u16"),
    18: ("complex128", "complex128", "complex", "DT_COMPLEX128", "c128"),
    19: ("float16", "float16", "float", "DT_HALF", "f16"),
    20: ("resource", "object_", "resource", "DT_RESOURCE", ""),
    21: ("variant", "object_", "variant", "DT_VARIANT", ""),
    22: ("uint32", "uint32", "uint", "DT_UINT32", "u32"),
    23: ("uint64", "uint64", "uint", "DT_UINT64", "u64"),
    24: ("float8_e5m2", "float8_e5m2", "float", "DT_FLOAT8_E5M2", "f8e5m2"),
    25: ("float8_e4m3fn", "float8_e4m3fn", "float", "DT_FLOAT8_E4M3FN", "f8e4m3fn"),
    26: ("float8_e4m3fnuz", "float8_e4m3fnuz", "float", "DT_FLOAT8_E4M3FNUZ", ""),
    27: ("float8_e4m3b11fnuz", "float8_e4m3b11fnuz", "float", "DT_FLOAT8_E4M3B11FNUZ", ""),
    28: ("float8_e5m2fnuz", "float8_e5m2fnuz", "float", "DT_FLOAT8_E5M2FNUZ", ""),
    29: ("int4", "int4", "int", "DT_INT4", "i4"),
    30: ("uint4", "uint4", "uint", "DT_UINT4", "u4"),
    31: ("int2", "int2", "int", "DT_INT2", "i2"),
    32: ("uint2", "uint2", "uint", "DT_UINT2", "u2"),
    33: ("float4_e2m1fn", "float4_e2m1fn", "float", "DT_FLOAT4_E2M1FN", ""),
}
_QUANTIZED: Final = (11, 12, 13, 15, 16)
_NUMBER_BY_NUMPY_NAME: Final = {
    row[1].rstrip("_"): number
    for number, row in _DTYPE_TABLE.items()
    if row[1] and row[1] != "object_" and number not in _QUANTIZED
}
_NUMBER_BY_NAME: Final = (
    {row[0]: number for number, row in _DTYPE_TABLE.items()}
    | {row[3]: number for number, row in _DTYPE_TABLE.items()}
    | {row[3] + "_REF": number + _REF_OFFSET for number, row in _DTYPE_TABLE.items() if number}
    | {row[4]: number for number, row in _DTYPE_TABLE.items() if row[4]}
    | {"float": 1, "double": 2, "half": 19, "str": 7}
)

invalid = DType.from_number(0)
float32 = DType.from_number(1)
float64 = DType.from_number(2)
int32 = DType.from_number(3)
uint8 = DType.from_number(4)
int16 = DType.from_number(5)
int8 = DType.from_number(6)
string = DType.from_number(7)
complex64 = DType.from_number(8)
int64 = DType.from_number(9)
bool_ = DType.from_number(10)
bfloat16 = DType.from_number(14)
uint16 = DType.from_number(17)
complex128 = DType.from_number(18)
float16 = DType.from_number(19)
resource = DType.from_number(20)
variant = DType.from_number(21)
uint32 = DType.from_number(22)
uint64 = DType.from_number(23)
