from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cfgraph.errors import InvalidInput
from cfgraph.ir import dtypes
from cfgraph.ir.attrs import AttrPlaceholder, Func, TensorValue
from cfgraph.ir.graph import Graph
from cfgraph.ir.serde.graph_def import graph_from_bytes, graph_to_bytes
from cfgraph.ir.shapes import Shape
from cfgraph.ir.text.parser import parse_graph
from cfgraph.ir.text.printer import print_graph
from cfgraph.proto import attr_value_pb2
from tests.ir.text_form import lossless_text
from tests.ir.wire import wire_field, wire_message


def attr_text(pbtxt: str) -> str:
    text = lossless_text(
        f'node {{ name: "x" op: "Thing" attr {{ key: "a" value {{ {pbtxt} }} }} }}'
    )
    return text.removeprefix("x = Thing() {a=").removesuffix("}\n")


def attr_of(text: str) -> Any:
    return parse_graph(f"x = Thing() {{a={text}}}")["x"].attrs["a"]


ATTRS = [
    ("i: 0", "0"),
    ("i: -9223372036854775808", "-9223372036854775808"),
    ("f: 0.1", "0.1"),
    ("f: 3", "3.0"),
    ("f: -0.0", "-0.0"),
    ("f: 1e-45", "1e-45"),
    ("f: 3.4028235e38", "3.4028235e+38"),
    ("f: inf", "inf"),
    ("f: -inf", "-inf"),
    ("f: nan", "nan"),
    ("b: true", "true"),
    ("b: false", "false"),
    ('s: ""', '""'),
    ('s: "VALID"', '"VALID"'),
    (r's: "a\"b\\c\nd\te\rf\001"', r'"a\"b\\c\nd\te\rf\x01"'),
    (r's: "\303\251 \377\000"', r'"é \xff\x00"'),
    (r's: "\342\200\250 # {"', r'"\xe2\x80\xa8 # {"'),
    ("type: DT_FLOAT", "float32"),
    ("type: DT_INT64_REF", "Ref(int64)"),
    ("type: DT_INVALID", "invalid"),
    ("type: 57", "dtype_57"),
    ("shape { }", "[]"),
    ("shape { unknown_rank: true }", "?"),
    ("shape { dim { size: 2 } dim { size: -1 } dim { } }", "[2,?,0]"),
    ('shape { dim { size: 2 name: "b" } dim { size: 3 } }', "[b=2,3]"),
    ('shape { dim { size: 2 name: "a b" } }', '["a b"=2]'),
    ('func { name: "f" }', "@f"),
    ('func { name: "a b" }', '@"a b"'),
    (
        'func { name: "f" attr { key: "T" value { type: DT_BOOL } }'
        ' attr { key: "n" value { i: 3 } } }',
        "@f{T=bool, n=3}",
    ),
    ('placeholder: "T"', "$T"),
    ("list { }", "()"),
    ("list { i: 1 i: 2 }", "(1, 2)"),
    ("list { f: 1 f: 0.5 }", "(1.0, 0.5)"),
    ("list { b: true b: false }", "(true, false)"),
    ('list { s: "a" s: "" }', '("a", "")'),
    ("list { type: DT_FLOAT type: DT_INT32 }", "(float32, int32)"),
    ("list { shape { dim { size: 2 } } shape { unknown_rank: true } shape { } }", "([2], ?, [])"),
    ('list { func { name: "f" } func { name: "g" } }', "(@f, @g)"),
    ("list { tensor { dtype: DT_INT32 tensor_shape { } int_val: 1 } }", "(int32[]:1)"),
    ("", 'raw""'),
    ("list { i: 1 f: 2 }", 'raw"CgkaAQEiBAAAAEA="'),
    ("shape { dim { size: -2 } }", 'raw"Og0SCwj+//////////8B"'),
    ("type: -3", 'raw"MP3//////////wE="'),
]


@pytest.mark.parametrize(("pbtxt", "text"), ATTRS, ids=[row[1] for row in ATTRS])
def test_an_attribute_reads_well_and_loses_nothing(pbtxt: str, text: str) -> None:
    assert attr_text(pbtxt) == text


TENSORS = [
    ("dtype: DT_FLOAT tensor_shape { } float_val: 0.1", "float32[]:0.1"),
    ("dtype: DT_HALF tensor_shape { } half_val: 11878", "float16[]:0.1"),
    ("dtype: DT_BFLOAT16 tensor_shape { } half_val: 16256", "bfloat16[]:1"),
    ("dtype: DT_FLOAT8_E5M2 tensor_shape { } float8_val: '<'", "float8_e5m2[]:1"),
    ("dtype: DT_BOOL tensor_shape { } bool_val: true", "bool[]:true"),
    ("dtype: DT_QINT8 tensor_shape { } int_val: -3", "qint8[]:-3"),
    (
        "dtype: DT_UINT64 tensor_shape { } uint64_val: 18446744073709551615",
        "uint64[]:18446744073709551615",
    ),
    (
        "dtype: DT_COMPLEX64 tensor_shape { } scomplex_val: 1.5 scomplex_val: -2",
        "complex64[]:1.5-2.0j",
    ),
    (
        "dtype: DT_COMPLEX128 tensor_shape { } dcomplex_val: -0.0 dcomplex_val: nan",
        "complex128[]:-0.0+nanj",
    ),
    (r'dtype: DT_STRING tensor_shape { } string_val: "a\n"', r'string[]:"a\n"'),
    (
        'dtype: DT_STRING tensor_shape { dim { size: 2 } } string_val: "a" string_val: "b"',
        'string[2]:["a","b"]',
    ),
    (
        r"dtype: DT_INT16 tensor_shape { dim { size: 2 } dim { size: 1 } } "
        r'tensor_content: "\001\000\002\000"',
        "int16[2,1]:[[1],[2]]",
    ),
    (
        r"dtype: DT_FLOAT tensor_shape { dim { size: 2 } } "
        r'tensor_content: "\000\000\300\177\000\000\300\377"',
        "float32[2]:[nan,-nan]",
    ),
    # NaNs with other bits have no text form
    (
        r"dtype: DT_FLOAT tensor_shape { dim { size: 2 } } "
        r'tensor_content: "\001\000\300\177\000\000\300\377"',
        'float32[2]:raw"AQDAfwAAwP8="',
    ),
    # the typed list, unchanged
    ("dtype: DT_INT32 tensor_shape { dim { size: 3 } } int_val: 1", "int32[3]:(1)"),
    ("dtype: DT_INT32 tensor_shape { dim { size: 2 } } int_val: [1, 2, 3]", "int32[2]:(1, 2, 3)"),
    ("dtype: DT_INT32 tensor_shape { dim { size: 3 } }", "int32[3]:()"),
    ("dtype: DT_FLOAT tensor_shape { dim { } }", "float32[0]:()"),
    ('dtype: DT_STRING tensor_shape { dim { size: 9 } } string_val: "a"', 'string[9]:("a")'),
    ("dtype: DT_FLOAT tensor_shape { } tensor_content: '1234'", 'float32[]:raw"MTIzNA=="'),
    (
        r'dtype: DT_STRING tensor_shape { } tensor_content: "\001a"',
        'string[]:raw"AWE="',
    ),
    (
        "dtype: DT_UINT8 tensor_shape { dim { size: 65 } } tensor_content: '" + "a" * 65 + "'",
        'uint8[65]:raw"' + "YWFh" * 21 + 'YWE="',
    ),
    # no text form at all
    ("dtype: DT_FLOAT tensor_shape { } float_val: 1 version_number: 7", None),
    ("dtype: DT_FLOAT tensor_shape { } float_val: 1 int_val: 1", None),
    ("dtype: DT_FLOAT float_val: 1", None),
    ("dtype: DT_FLOAT tensor_shape { dim { size: 1 name: 'n' } } float_val: 1", None),
    ("dtype: DT_INT8 tensor_shape { } int_val: 300", None),
    ("dtype: DT_COMPLEX64 tensor_shape { } scomplex_val: 1", None),
    ("dtype: DT_FLOAT tensor_shape { unknown_rank: true }", None),
    ("dtype: DT_RESOURCE tensor_shape { } resource_handle_val { name: 'v' }", None),
    ("dtype: DT_VARIANT tensor_shape { } variant_val { type_name: 'v' }", None),
    ("", None),
]


@pytest.mark.parametrize(("pbtxt", "text"), TENSORS)
def test_a_tensor_reads_well_and_loses_nothing(pbtxt: str, text: str | None) -> None:
    got = attr_text(f"tensor {{ {pbtxt} }}")
    assert got == text if text is not None else got.startswith('raw"')


def test_a_raw_attribute_is_read_as_what_it_is() -> None:
    exotic = 'attr { key: "a" value { tensor { dtype: DT_FLOAT float_val: 2 } } }'
    graph = parse_graph(lossless_text(f'node {{ name: "x" op: "Thing" {exotic} }}'))
    value = graph["x"].attrs["a"]
    assert isinstance(value, TensorValue)
    assert value.array == np.float32(2)


def test_python_values_print_as_the_file_will_hold_them() -> None:
    graph = Graph()
    attrs = {"f": 0.1, "big": 1e300, "s": "text", "n": np.int64(3), "l": [1, 2]}
    graph.create("x", "Thing", attrs=attrs)
    text = print_graph(graph)
    assert text == 'x = Thing() {big=inf, f=0.1, l=(1, 2), n=3, s="text"}\n'
    assert graph_to_bytes(parse_graph(text)) == graph_to_bytes(graph)


# -- layouts that a writer may choose ------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("+3", 3),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("f32", dtypes.float32),
        ("DT_INT32", dtypes.int32),
        ("Ref(float)", dtypes.float32.ref),
        ("( 1 ,2, )", (1, 2)),
        ("(1)", (1,)),
        ("[ 2 , ? ]", Shape((2, None))),
        ("$T", AttrPlaceholder("T")),
        ("@f{}", Func("f")),
        (r'"\x41\u"'.replace(r"\u", "B"), b"AB"),
        ("0.1", float(np.float32(0.1))),
    ],
)
def test_values_may_be_written_in_other_words(text: str, value: Any) -> None:
    assert attr_of(text) == value


@pytest.mark.parametrize(
    ("text", "array"),
    [
        ("f32[2]:[1,2]", np.array([1, 2], np.float32)),
        ("i32[2,2]:[[1, 2], [3, 4]]", np.array([[1, 2], [3, 4]], np.int32)),
        ("bool[]:false", np.array(False)),
        ("c64[1]:[1]", np.array([1], np.complex64)),
        ("float64[3]:(0.5)", np.full(3, 0.5)),
        ("f16[]:1e9", np.array(np.inf, np.float16)),
    ],
)
def test_tensors_may_be_written_in_other_words(text: str, array: Any) -> None:
    value = attr_of(text)
    assert value.array.dtype == array.dtype
    assert value.array.tolist() == array.tolist()


def test_attributes_nest_as_deep_as_a_file_allows() -> None:
    value = attr_value_pb2.AttrValue()
    inner = value
    for _ in range(32):
        inner.func.name = "f"
        inner = inner.func.attr["a"]
    inner.i = 1
    data = wire_field(
        1,
        wire_message(
            (1, "x"), (2, "A"), (5, wire_message((1, "a"), (2, value.SerializeToString())))
        ),
    )
    text = print_graph(graph_from_bytes(data))
    assert text == "x = A() {a=" + "@f{a=" * 32 + "1" + "}" * 33 + "\n"
    assert graph_to_bytes(parse_graph(text)) == data
    deeper = text.replace("@f{a=1}", "@f{a=@f{a=1}}")
    with pytest.raises(InvalidInput, match="no more than 32 levels of nesting were expected"):
        parse_graph(deeper)
