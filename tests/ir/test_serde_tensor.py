from __future__ import annotations

import math
import struct
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cfgraph.errors import InvalidInput
from cfgraph.ir import dtypes
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import DType
from cfgraph.ir.serde.attrs import attr_from_bytes, attr_to_bytes
from tests.ir.wire import varint, wire_field, wire_message

FLOAT, DOUBLE, INT32, UINT8, INT16, INT8, STRING, COMPLEX64, INT64, BOOL = range(1, 11)
QINT8, QUINT8, QINT32, BFLOAT16, QINT16, QUINT16, UINT16, COMPLEX128, HALF = range(11, 20)
RESOURCE, VARIANT, UINT32, UINT64, F8E5M2, F8E4M3FN = range(20, 26)
INT4, UINT4, INT2, UINT2 = range(29, 33)


def shape(*dims: int) -> bytes:
    return b"".join(wire_field(2, wire_field(1, dim) if dim else b"") for dim in dims)


def proto(dtype: int, dims: tuple[int, ...], *fields: tuple[int, Any]) -> bytes:
    return wire_message((1, dtype), (2, shape(*dims)), *fields)


def tensor(data: bytes) -> TensorValue:
    value = attr_from_bytes(wire_field(8, data))
    assert isinstance(value, TensorValue)
    return value


def array(data: bytes) -> Any:
    return tensor(data).array


def packed(form: str, *values: Any) -> bytes:
    return struct.pack(f"<{len(values)}{form}", *values)


def varints(*values: int) -> bytes:
    return b"".join(map(varint, values))


# dtype, field of the typed list, its bytes, the elements
LISTS: list[tuple[int, int, bytes, list[Any]]] = [
    (FLOAT, 5, packed("f", 1.5, -2.0), [1.5, -2.0]),
    (DOUBLE, 6, packed("d", 1.1, math.inf), [1.1, math.inf]),
    (INT32, 7, varints(-1, 2**31 - 1), [-1, 2**31 - 1]),
    (INT16, 7, varints(-1, 2**15 - 1), [-1, 2**15 - 1]),
    (INT8, 7, varints(-128, 127), [-128, 127]),
    (UINT8, 7, varints(0, 255), [0, 255]),
    (UINT16, 7, varints(1, 65535), [1, 65535]),
    (QINT8, 7, varints(-128, 127), [-128, 127]),
    (QUINT8, 7, varints(1, 255), [1, 255]),
    (QINT16, 7, varints(-5, 5), [-5, 5]),
    (QUINT16, 7, varints(1, 65535), [1, 65535]),
    (QINT32, 7, varints(-(2**31), 3), [-(2**31), 3]),
    (INT4, 7, varints(-8, 7), [-8, 7]),
    (UINT4, 7, varints(0, 15), [0, 15]),
    (INT2, 7, varints(-2, 1), [-2, 1]),
    (UINT2, 7, varints(0, 3), [0, 3]),
    (COMPLEX64, 9, packed("f", 1.0, -2.0, 0.5, 3.0), [1 - 2j, 0.5 + 3j]),
    (INT64, 10, varints(-(2**63), 2**63 - 1), [-(2**63), 2**63 - 1]),
    (BOOL, 11, varints(1, 0), [True, False]),
    (COMPLEX128, 12, packed("d", 1.0, -2.0, 0.5, 3.0), [1 - 2j, 0.5 + 3j]),
    (HALF, 13, varints(0x3C00, 0xC000), [1.0, -2.0]),
    (BFLOAT16, 13, varints(0x3F80, 0xC000), [1.0, -2.0]),
    (UINT32, 16, varints(1, 2**32 - 1), [1, 2**32 - 1]),
    (UINT64, 17, varints(1, 2**64 - 1), [1, 2**64 - 1]),
    (F8E5M2, 18, bytes((0x3C, 0xC0)), [1.0, -2.0]),
    (F8E4M3FN, 18, bytes((0x38, 0xC0)), [1.0, -2.0]),
]
LIST_IDS = [repr(DType.from_number(row[0])) for row in LISTS]


@pytest.mark.parametrize(("dtype", "number", "content", "expected"), LISTS, ids=LIST_IDS)
def test_a_typed_list_gives_the_elements(
    dtype: int, number: int, content: bytes, expected: list[Any]
) -> None:
    got = array(proto(dtype, (2,), (number, content)))
    assert got.dtype == DType.from_number(dtype).numpy
    assert got.tolist() == expected


@pytest.mark.parametrize(("dtype", "number", "content", "expected"), LISTS, ids=LIST_IDS)
def test_a_short_list_repeats_its_last_element(
    dtype: int, number: int, content: bytes, expected: list[Any]
) -> None:
    got = array(proto(dtype, (2, 2), (number, content)))
    assert got.tolist() == [expected, [expected[1]] * 2]


@pytest.mark.parametrize(("dtype", "number", "content", "expected"), LISTS, ids=LIST_IDS)
def test_the_surplus_of_a_long_list_is_ignored(
    dtype: int, number: int, content: bytes, expected: list[Any]
) -> None:
    assert array(proto(dtype, (1,), (number, content))).tolist() == expected[:1]


@pytest.mark.parametrize(("dtype", "number", "content", "expected"), LISTS, ids=LIST_IDS)
def test_an_empty_list_means_zeros(
    dtype: int, number: int, content: bytes, expected: list[Any]
) -> None:
    got = array(proto(dtype, (3,)))
    assert got.dtype == DType.from_number(dtype).numpy
    assert got.tolist() == [0, 0, 0]


@pytest.mark.parametrize(("dtype", "number", "content", "expected"), LISTS, ids=LIST_IDS)
def test_a_shape_without_elements_ignores_the_list(
    dtype: int, number: int, content: bytes, expected: list[Any]
) -> None:
    got = array(proto(dtype, (2, 0), (number, content)))
    assert got.shape == (2, 0)
    assert got.dtype == DType.from_number(dtype).numpy


@pytest.mark.parametrize(("dtype", "number", "content", "expected"), LISTS, ids=LIST_IDS)
def test_raw_content_wins_over_the_list(
    dtype: int, number: int, content: bytes, expected: list[Any]
) -> None:
    raw = np.array(expected[::-1], object).astype(DType.from_number(dtype).numpy).tobytes()
    got = array(proto(dtype, (2,), (4, raw), (number, content)))
    assert got.dtype == DType.from_number(dtype).numpy
    assert got.tolist() == expected[::-1]


@pytest.mark.parametrize(("dtype", "number", "content", "expected"), LISTS, ids=LIST_IDS)
def test_an_array_is_written_so_that_it_reads_back(
    dtype: int, number: int, content: bytes, expected: list[Any]
) -> None:
    values = np.array(expected, object).astype(DType.from_number(dtype).numpy)
    for tensor in (values, values[:1], values[:0], values[1].reshape(()), values.reshape(1, 2)):
        again = attr_from_bytes(attr_to_bytes(TensorValue(tensor)))
        assert again.array.dtype == tensor.dtype
        assert again.array.shape == tensor.shape
        assert again.array.tobytes() == tensor.tobytes()


def test_unpacked_lists_are_read_too() -> None:
    unpacked = proto(FLOAT, (2,), (5, 1.0), (5, 2.0))
    assert array(unpacked).tolist() == [1.0, 2.0]


def test_a_scalar_takes_one_element() -> None:
    got = array(proto(INT32, (), (7, varints(7))))
    assert got.shape == ()
    assert got == 7


def test_booleans_in_raw_content_take_a_byte_each() -> None:
    assert array(proto(BOOL, (3,), (4, b"\x00\x01\x01"))).tolist() == [False, True, True]


def test_complex_numbers_in_raw_content_are_pairs() -> None:
    raw = packed("f", 1.0, 2.0, 3.0, -4.0)
    assert array(proto(COMPLEX64, (2,), (4, raw))).tolist() == [1 + 2j, 3 - 4j]


def test_half_a_complex_number_is_no_element() -> None:
    got = array(proto(COMPLEX64, (2,), (9, packed("f", 1.0, 2.0, 3.0))))
    assert got.tolist() == [1 + 2j, 1 + 2j]


def test_only_the_low_bits_of_half_values_count() -> None:
    assert array(proto(HALF, (1,), (13, varints(0x7FFF3C00)))).tolist() == [1.0]


def test_bfloat16_in_raw_content_is_two_bytes_little_endian() -> None:
    got = array(proto(BFLOAT16, (2,), (4, bytes.fromhex("803f 00c0"))))
    assert got.dtype == ml_dtypes.bfloat16
    assert got.tolist() == [1.0, -2.0]


@pytest.mark.parametrize(("dtype", "expected"), [(UINT8, 255), (INT8, -1), (UINT16, 65535)])
def test_numbers_beyond_the_type_are_cut_to_its_bits(dtype: int, expected: int) -> None:
    assert array(proto(dtype, (1,), (7, varints(-1)))).tolist() == [expected]
    assert array(proto(dtype, (1,), (7, varints(2**31 - 1)))).tolist() == [expected]
    assert array(proto(dtype, (1,), (7, varints(-(2**31))))).tolist() == [0]


def test_nan_keeps_its_bits() -> None:
    bits = bytes.fromhex("0100c07f 0000c0ff")
    assert array(proto(FLOAT, (2,), (4, bits))).tobytes() == bits
    assert array(proto(FLOAT, (2,), (5, bits))).tobytes() == bits


# -- strings, resources, variants -----------------------------------------------------------------


def test_strings_are_bytes_and_repeat_the_last() -> None:
    got = array(proto(STRING, (2, 2), (8, b"a\xff"), (8, b"b")))
    assert got.dtype == object
    assert got.tolist() == [[b"a\xff", b"b"], [b"b", b"b"]]


def test_no_strings_at_all_are_empty_ones() -> None:
    assert array(proto(STRING, (2,))).tolist() == [b"", b""]


def test_surplus_strings_are_ignored() -> None:
    assert array(proto(STRING, (1,), (8, b"a"), (8, b"b"))).tolist() == [b"a"]


def test_strings_in_raw_content_are_lengths_and_then_payloads() -> None:
    long = b"x" * 300
    content = varints(1, 300, 0) + b"a" + long
    assert array(proto(STRING, (3,), (4, content))).tolist() == [b"a", long, b""]


@pytest.mark.parametrize(
    "content",
    [b"\x05ab", b"\x01\x01a", b"\x80", b"\x01\x01abc", b"\xff" * 12, varint(2**62) + b"a"],
    ids=["payload", "second", "length", "surplus", "endless", "huge"],
)
def test_damaged_string_content_is_refused(content: bytes) -> None:
    with pytest.raises(InvalidInput, match="string tensor"):
        _ = array(proto(STRING, (2,), (4, content)))


def test_a_resource_is_padded_with_the_default_handle_not_the_last() -> None:
    got = array(proto(RESOURCE, (2,), (14, wire_message((3, "v")))))
    assert got[0].name == "v"
    assert got[1] == b""


def test_a_variant_keeps_its_message() -> None:
    got = array(proto(VARIANT, (), (15, wire_message((1, "tensorflow::TensorList"), (2, b"\x01")))))
    assert got[()].type_name == "tensorflow::TensorList"


def test_a_resource_in_raw_content_has_no_value() -> None:
    with pytest.raises(InvalidInput, match="has no value"):
        _ = array(proto(RESOURCE, (), (4, b"\x00")))


def test_variants_in_raw_content_are_messages_after_their_lengths() -> None:
    message = wire_message((1, "tensorflow::TensorList"))
    content = bytes([len(message), 0]) + message
    first, second = array(proto(VARIANT, (2,), (4, content)))
    assert [first.type_name, second.type_name] == ["tensorflow::TensorList", ""]


@pytest.mark.parametrize("content", [b"\x02", b"\x01\x0f", b"\x03abc"])
def test_invalid_variants_in_raw_content_are_an_error(content: bytes) -> None:
    with pytest.raises(InvalidInput):
        _ = array(proto(VARIANT, (), (4, content)))


def test_strings_are_written_as_a_list() -> None:
    data = attr_to_bytes(TensorValue(np.array([b"a", b""], object)))
    assert data == wire_field(8, proto(STRING, (2,), (8, b"a"), (8, b"")))


# -- output --------------------------------------------------------------------------------------


def test_one_element_is_written_to_the_typed_list() -> None:
    data = attr_to_bytes(TensorValue(np.float32(1.5)))
    assert data == wire_field(8, wire_message((1, FLOAT), (2, b""), (5, packed("f", 1.5))))


def test_more_elements_are_written_as_raw_content() -> None:
    data = attr_to_bytes(TensorValue(np.array([[1], [2]], np.int16)))
    assert data == wire_field(8, proto(INT16, (2, 1), (4, packed("h", 1, 2))))


def test_a_column_of_a_larger_array_is_written_in_row_major_order() -> None:
    data = attr_to_bytes(TensorValue(np.arange(6, dtype=np.uint8).reshape(2, 3).T))
    assert data == wire_field(8, proto(UINT8, (3, 2), (4, bytes((0, 3, 1, 4, 2, 5)))))


def test_a_tensor_from_a_file_is_written_as_it_came() -> None:
    data = wire_field(8, proto(INT32, (5,), (7, varints(1, 2))))
    assert attr_to_bytes(attr_from_bytes(data)) == data


# -- contradictions ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (proto(0, (2,)), "CFG020"),
        (proto(FLOAT + 100, (2,), (5, packed("f", 1.0))), "CFG020"),
        (proto(99, (2,)), "CFG020"),
        (proto(FLOAT, (-1,)), "CFG021"),
        (wire_message((1, FLOAT), (2, wire_field(3, 1))), "CFG021"),
        (proto(FLOAT, (2**40,), (5, packed("f", 1.0))), "CFG021"),
        (proto(FLOAT, (2**20, 2**20, 2**20)), "CFG021"),
        (proto(FLOAT, (2**62, 0)), "CFG021"),
        (proto(FLOAT, (1,) * 65), "CFG021"),
        (proto(DOUBLE, (2**31,), (6, packed("d", 1.0, 2.0))), "CFG021"),
        (proto(STRING, (2**31,), (8, b"a"), (8, b"b")), "CFG021"),
        (proto(FLOAT, (2,), (4, b"\x00" * 7)), "CFG022"),
        (proto(FLOAT, (2,), (4, b"\x00" * 12)), "CFG022"),
    ],
    ids=[
        *("no-type", "reference", "unknown-type", "unknown-size", "unknown-rank", "huge"),
        *("huge-product", "huge-empty", "rank-65", "huge-list", "huge-strings", "short", "long"),
    ],
)
def test_a_tensor_that_contradicts_itself_is_refused(data: bytes, code: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        _ = array(data)
    assert caught.value.code == code


def test_type_and_shape_are_known_without_decoding() -> None:
    damaged = tensor(proto(FLOAT, (2, 3), (4, b"\x00")))
    assert damaged.dtype is dtypes.float32
    assert damaged.shape.dims == (2, 3)


def test_one_repeated_element_takes_no_memory() -> None:
    got = array(proto(DOUBLE, (2**30,), (6, packed("d", 1.5))))
    assert got.strides == (0,)
    assert got[2**29] == 1.5
