from __future__ import annotations

import pickle

import ml_dtypes
import numpy as np
import pytest

from cfgraph.ir import dtypes
from cfgraph.ir.dtypes import DType
from cfgraph.proto import types_pb2

NUMBERED = [(name, number) for name, number in types_pb2.DataType.items() if number]
PLAIN = [(name, number) for name, number in NUMBERED if number < 100]


@pytest.mark.parametrize(("name", "number"), NUMBERED)
def test_every_type_of_the_format_has_the_name_of_the_format(name: str, number: int) -> None:
    assert DType.from_name(name) is DType.from_number(number)


@pytest.mark.parametrize("number", [number for _, number in PLAIN])
def test_the_name_of_a_type_leads_back_to_it(number: int) -> None:
    dtype = DType.from_number(number)
    assert DType.from_name(dtype.name) is dtype
    assert DType.from_name(dtype.ref.name) is dtype.ref
    assert repr(dtype) == dtype.name


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("float", dtypes.float32),
        ("f32", dtypes.float32),
        ("double", dtypes.float64),
        ("half", dtypes.float16),
        ("i64", dtypes.int64),
        ("str", dtypes.string),
        ("bf16", dtypes.bfloat16),
        ("Ref(f32)", dtypes.float32.ref),
        ("DT_FLOAT_REF", dtypes.float32.ref),
        ("dtype_57", DType.from_number(57)),
        ("Ref(dtype_57)", DType.from_number(157)),
    ],
)
def test_types_have_other_names_too(name: str, dtype: DType) -> None:
    assert DType.from_name(name) is dtype


@pytest.mark.parametrize("name", ["", "f33", "FLOAT", "Ref()", "Ref(x)", "dtype_", "dtype_-1", "T"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(KeyError):
        DType.from_name(name)


@pytest.mark.parametrize("number", [0, 34, 99, 100, 200, 1000, -1, -(2**31)])
def test_numbers_that_nobody_knows_are_kept(number: int) -> None:
    dtype = DType.from_number(number)
    assert dtype.number == number
    assert not dtype.is_ref
    assert dtype.kind == "none"
    with pytest.raises(TypeError, match="have no NumPy representation"):
        _ = dtype.numpy


def test_a_reference_knows_its_base() -> None:
    ref = dtypes.int32.ref
    assert ref.number == 103
    assert ref.is_ref
    assert ref.base is dtypes.int32
    assert ref.ref is ref
    assert ref.is_integer
    assert ref.numpy == np.int32
    assert dtypes.int32.base is dtypes.int32


def test_types_are_one_object_each() -> None:
    assert pickle.loads(pickle.dumps(dtypes.float32.ref)) is dtypes.float32.ref


@pytest.mark.parametrize(
    ("dtype", "array"),
    [
        *((dtypes.float32, np.float32), (dtypes.bool_, np.bool_), (dtypes.complex64, np.complex64)),
        *((dtypes.bfloat16, ml_dtypes.bfloat16), (DType.from_number(25), ml_dtypes.float8_e4m3fn)),
        *(
            (DType.from_number(29), ml_dtypes.int4),
            (dtypes.string, object),
            (dtypes.resource, object),
        ),
        *((DType.from_number(11), np.int8), (DType.from_number(16), np.uint16)),
    ],
)
def test_a_type_has_an_array_type(dtype: DType, array: type) -> None:
    assert dtype.numpy == np.dtype(array)


@pytest.mark.parametrize("number", [n for _, n in PLAIN if DType.from_number(n).kind != "none"])
def test_the_array_type_leads_back_but_for_quantized_types_and_objects(number: int) -> None:
    dtype = DType.from_number(number)
    back = DType.from_numpy(dtype.numpy)
    if dtype.is_object:
        assert back is dtypes.string
    elif dtype.name.startswith(("qint", "quint")):
        assert back.name == dtype.name[1:]
    else:
        assert back is dtype


@pytest.mark.parametrize("text", ["U3", "S2", "O"])
def test_text_is_a_string(text: str) -> None:
    assert DType.from_numpy(text) is dtypes.string


@pytest.mark.parametrize("array", ["M8[s]", "m8[s]", "V3", [("a", "f4")], np.longdouble])
def test_array_types_without_a_counterpart_are_refused(array: object) -> None:
    with pytest.raises(TypeError, match="no tensor type"):
        DType.from_numpy(array)


def test_kinds_part_the_types() -> None:
    facts = [DType.from_number(n) for _, n in PLAIN]
    for dtype in facts:
        parts = (dtype.is_floating, dtype.is_complex, dtype.is_integer, dtype.is_object)
        assert sum(parts) == (0 if dtype is dtypes.bool_ else 1), dtype
