from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format

import cfgraph.ops  # noqa: F401 - fills the registry
from cfgraph.errors import InvalidInput
from cfgraph.ir import dtypes
from cfgraph.ir.attrs import Func, Placeholder, Tensor
from cfgraph.ir.functions import BodyNode, Definition, Function
from cfgraph.ir.graph import Graph, Versions
from cfgraph.ir.serde import graph_from_bytes, graph_to_bytes
from cfgraph.ir.shapes import Shape
from cfgraph.ir.signature import Arg, Attr
from cfgraph.ir.text import parse_graph, print_graph
from cfgraph.proto import attr_value_pb2, graph_pb2
from tests.ir.wire import field, message


def encoded(pbtxt: str) -> bytes:
    """The deterministic bytes of a GraphDef in protobuf text."""
    proto = text_format.Parse(pbtxt, graph_pb2.GraphDef())
    data: bytes = proto.SerializeToString(deterministic=True)
    return data


def text_of(pbtxt: str) -> str:
    """The readable form of a graph in protobuf text, once it has proved to lose nothing."""
    data = encoded(pbtxt)
    text = print_graph(graph_from_bytes(data))
    assert graph_to_bytes(parse_graph(text)) == data
    assert print_graph(parse_graph(text)) == text
    return text


def attr_text(pbtxt: str) -> str:
    text = text_of(f'node {{ name: "x" op: "Thing" attr {{ key: "a" value {{ {pbtxt} }} }} }}')
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
    # NaNs with other bits have no words
    (
        r"dtype: DT_FLOAT tensor_shape { dim { size: 2 } } "
        r'tensor_content: "\001\000\300\177\000\000\300\377"',
        'float32[2]:raw"AQDAfwAAwP8="',
    ),
    # the typed list, as it is
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
    # no words at all
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
    graph = parse_graph(text_of(f'node {{ name: "x" op: "Thing" {exotic} }}'))
    value = graph["x"].attrs["a"]
    assert isinstance(value, Tensor)
    assert value.array == np.float32(2)


def test_python_values_print_as_the_file_will_hold_them() -> None:
    graph = Graph()
    attrs = {"f": 0.1, "big": 1e300, "s": "text", "n": np.int64(3), "l": [1, 2]}
    graph.create("x", "Thing", attrs=attrs)
    text = print_graph(graph)
    assert text == 'x = Thing() {big=inf, f=0.1, l=(1, 2), n=3, s="text"}\n'
    assert graph_to_bytes(parse_graph(text)) == graph_to_bytes(graph)


# -- what a writer may write -----------------------------------------------------------------------


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
        ("$T", Placeholder("T")),
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


def test_comments_blank_lines_and_blanks_mean_nothing() -> None:
    plain = parse_graph('x = A() {s="#"}\ny = B(x, ^x)\n')
    loose = '\ufeff# a comment\r\n\r\n\tx=A( ){ s = "#" }# more\r\n  y = B ( x,^x )\r\n'
    assert graph_to_bytes(parse_graph(loose)) == graph_to_bytes(plain)


def test_nodes_may_stand_in_any_order() -> None:
    graph = parse_graph("m = Merge(e, n)\nn = NextIteration(m)\ne = Enter(x)\nx = Source()\n")
    assert [node.name for node in graph] == ["m", "n", "e", "x"]
    assert graph["m"].inputs == (graph["e"].output(), graph["n"].output())
    assert graph["n"].inputs == (graph["m"].output(),)


def test_words_of_the_language_are_names_too() -> None:
    words = ("function", "versions", "gradient", "extra", "return", "attr", "stateful", "raw", "1")
    text = "".join(f"{word} = {word}() {{{word}=true}}\n" for word in words)
    assert print_graph(parse_graph(text)) == text


def test_an_odd_op_or_attribute_is_quoted() -> None:
    text = text_of('node { name: "x" op: "a b" attr { key: "a=\\"" value { b: true } } }')
    assert text == 'x = "a b"() {"a=\\""=true}\n'


def test_a_device_follows_the_attributes() -> None:
    node = 'node { name: "x" op: "A" device: "/gpu:\\"0" }'
    assert text_of(node) == 'x = A() @"/gpu:\\"0"\n'


def test_inputs_keep_the_words_of_the_file() -> None:
    source = 'node { name: "a" op: "A" }'
    reader = (
        'node { name: "x" op: "B" input: "a:0" input: "a" input: "a:12" input: "^a" input: "^a" }'
    )
    assert text_of(source + reader) == "a = A()\nx = B(a:0, a, a:12, ^a, ^a)\n"


def test_versions_and_gradients_are_lines() -> None:
    pbtxt = """
    versions { producer: 27 min_consumer: 12 bad_consumers: [1, 2] }
    library { gradient { function_name: "f" gradient_func: "g h" } }
    """
    text = 'versions producer=27 min_consumer=12 bad_consumers=(1, 2)\ngradient f = "g h"\n'
    assert text_of(pbtxt) == text


@pytest.mark.parametrize(
    "pbtxt",
    ["versions { }", "library { }", "version: 3", "library { } versions { producer: 1 }"],
)
def test_even_empty_messages_stay(pbtxt: str) -> None:
    assert text_of(pbtxt)


def test_an_empty_graph_is_an_empty_text() -> None:
    assert print_graph(Graph()) == ""
    assert len(parse_graph("")) == 0
    assert parse_graph("# nothing\n").versions == Versions()


# -- attributes that follow from the inputs --------------------------------------------------------

LOOP = """
i = Const() {dtype=int32, value=int32[]:0}
merge = Merge(next, enter)
enter = Enter(i) {frame_name="f"}
ten = Const(^merge) {dtype=int32, value=int32[]:10}
less = Less(merge, ten)
cond = LoopCond(less)
switch = Switch(merge, cond)
body = Identity(switch:1)
one = Const(^body) {dtype=int32, value=int32[]:1}
add = AddV2(body, one)
next = NextIteration(add)
exit = Exit(switch)
sum = AddN(exit, exit, exit)
both = IdentityN(exit, cond)
"""


def test_what_follows_from_the_inputs_may_be_left_out() -> None:
    graph = parse_graph(LOOP)
    assert graph["merge"].attrs == {"N": 2, "T": dtypes.int32}
    assert graph["less"].attrs == {"T": dtypes.int32}
    assert graph["exit"].attrs == {"T": dtypes.int32}
    assert graph["sum"].attrs == {"N": 3, "T": dtypes.int32}
    assert graph["both"].attrs == {"T": (dtypes.int32, dtypes.bool_)}


def test_what_is_written_is_never_changed() -> None:
    graph = parse_graph(LOOP + "odd = Identity(exit) {T=float32}\n")
    assert graph["odd"].attrs == {"T": dtypes.float32}


def test_a_default_is_not_written_out() -> None:
    text = "x = Const() {dtype=float32, value=float32[1]:[1.0]}\n"
    axis = "axis = Const() {dtype=int32, value=int32[]:0}\n"
    graph = parse_graph(text + axis + "sum = Sum(x, axis)\n")
    assert graph["sum"].attrs == {"T": dtypes.float32}


def test_what_cannot_be_told_stays_away() -> None:
    graph = parse_graph("x = Placeholder()\ny = Mul(x, x)\nz = Unknown(y)\nw = Mul(z, z)\n")
    assert not any(node.attrs for node in graph)


def test_a_node_that_really_lacks_an_attribute_is_exact() -> None:
    pbtxt = """
    node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } }
    node { name: "y" op: "Mul" input: "x" input: "x" }
    node { name: "z" op: "Mul" input: "y" input: "y" }
    """
    assert text_of(pbtxt) == (
        "x = Placeholder() {dtype=float32}\ny = Mul(x, x) exact\nz = Mul(y, y)\n"
    )


# -- functions -------------------------------------------------------------------------------------

FUNCTION = """\
function scale(x: T {_user_specified_name="x", _output_shapes=([2])}, more: N*float32, list: L, \
r: Ref(T)) -> (y: T, z: int32) {
  attr T: type = float32 in (float32, int32)
  attr N: int >= 1
  attr L: list(type) >= 2
  attr note: string = "n"
  attrs {_noinline=true}
  stateful
  two = Const() {dtype=$T, value=float32[]:2.0}
  mul = Mul(x, two:output:0, ^two) {T=$T} @"/device:CPU:0"
  call = PartitionedCall(more:1) {Tin=(float32), Tout=(float32), f=@other{T=$T}}
  return y = mul:z:0
  return z = list
  control_return c = two
  control_return d
}
"""


def test_a_function_is_a_block() -> None:
    text = FUNCTION.replace('_user_specified_name="x", _output_shapes=([2])', "")
    assert print_graph(parse_graph(text)) == "\n" + text


def test_a_block_says_what_the_function_is() -> None:
    definition = parse_graph(FUNCTION).functions["scale"].definition
    assert definition.inputs == (
        Arg("x", None, "T"),
        Arg("more", dtypes.float32, None, "N"),
        Arg("list", None, "L"),
        Arg("r", None, "T", is_ref=True),
    )
    assert definition.outputs == (Arg("y", None, "T"), Arg("z", dtypes.int32, None))
    assert definition.attr_defs["T"] == Attr(
        "T", "type", dtypes.float32, True, None, (dtypes.float32, dtypes.int32)
    )
    assert definition.attr_defs["L"] == Attr("L", "list(type)", minimum=2)
    assert [node.name for node in definition.nodes] == ["two", "mul", "call"]
    assert definition.nodes[1].inputs == ("x", "two:output:0", "^two")
    assert definition.returns == {"y": "mul:z:0", "z": "list"}
    assert definition.control_outputs == ("c", "d")
    assert definition.control_returns == {"c": "two"}
    assert definition.attrs == {"_noinline": True}
    assert definition.arg_attrs == {
        0: {"_output_shapes": (Shape((2,)),), "_user_specified_name": b"x"}
    }
    assert definition.stateful


def test_a_definition_made_in_python_prints_and_parses() -> None:
    graph = Graph()
    node = BodyNode("n", "Neg", ("x",), "", {"T": Placeholder("T")})
    graph.functions["neg"] = Function(
        "neg",
        Definition(
            (Arg("x", None, "T"),),
            (Arg("y", None, "T"),),
            {"T": Attr("T", "type")},
            (node,),
            {"y": "n:y:0"},
        ),
    )
    assert graph_to_bytes(parse_graph(print_graph(graph))) == graph_to_bytes(graph)


SIGNATURES = [
    'input_arg { name: "x" type: DT_FLOAT description: "what" }',
    'input_arg { name: "x" type_attr: "float32" } attr { name: "float32" type: "type" }',
    'input_arg { name: "x" type_list_attr: "T" } attr { name: "T" type: "list(type)" }',
    'input_arg { name: "r" type: DT_RESOURCE handle_data { dtype: DT_FLOAT shape { } } }',
    'input_arg { name: "x" type: DT_FLOAT experimental_full_type { type_id: TFT_TENSOR } }',
    'attr { name: "a" type: "odd kind" description: "what" }',
    'attr { name: "a" type: "int" has_minimum: true }',
    'summary: "s" description: "d" is_commutative: true deprecation { version: 3 }',
    'output_arg { name: "a b" type: DT_FLOAT } control_output: "c d"',
    "is_stateful: true is_distributed_communication: true",
    'attr { name: "a" type: "float" default_value { } allowed_values { list { } } }',
]


@pytest.mark.parametrize("signature", SIGNATURES)
def test_a_signature_stays_whole_in_a_block(signature: str) -> None:
    text = text_of(f'library {{ function {{ signature {{ name: "f" {signature} }} }} }}')
    assert text.startswith("\nfunction f(")


@pytest.mark.parametrize(
    "rest",
    [
        'ret { key: "y" value: "n:z:0" } control_ret { key: "c" value: "n" }',
        'arg_attr { key: 7 value { attr { key: "a" value { b: true } } } }',
        "resource_arg_unique_id { key: 0 value: 3 }",
        'node_def { name: "n" op: "N" input: "" input: "a b:0" experimental_type { type_id: 3 } }',
        'node_def { name: "" op: "" } node_def { name: "" op: "" }',
        'attr { key: "" value { } }',
    ],
)
def test_a_function_stays_whole(rest: str) -> None:
    assert "function f" in text_of(f'library {{ function {{ signature {{ name: "f" }} {rest} }} }}')


@pytest.mark.parametrize(
    "signature",
    [
        'input_arg { name: "x" type: DT_FLOAT_REF }',
        'input_arg { name: "x" type: DT_FLOAT type_attr: "T" type_list_attr: "T" }',
        'control_output: "c" control_output: "c"',
        'attr { name: "a" type: "int" } attr { name: "a" type: "int" }',
    ],
)
def test_a_function_without_words_is_kept_in_base64(signature: str) -> None:
    text = text_of(f'library {{ function {{ signature {{ name: "f" {signature} }} }} }}')
    assert text.startswith('\nfunction f raw"')


def test_a_function_without_a_name_stays() -> None:
    assert text_of("library { function { } }").startswith('\nfunction "" raw"')


# -- unknown fields and debug information ----------------------------------------------------------


def test_what_has_no_words_is_an_extra() -> None:
    node = """node { name: "x" op: "A"
        experimental_debug_info { original_node_names: "m" }
        experimental_type { type_id: TFT_TENSOR args { type_id: TFT_FLOAT } } }"""
    graph = """debug_info { files: "a.py" } version: 3
        library { registered_gradients { gradient_func: "g" registered_op_type: "A" } }"""
    text = text_of(node + graph)
    assert text.startswith('x = A() extra raw"')
    assert text.splitlines()[-1].startswith('extra raw"')


def test_an_attribute_with_unknown_fields_is_raw() -> None:
    value = message((6, 1), (1000, "?"))
    data = field(1, message((1, "x"), (2, "A"), (5, message((1, "T"), (2, value)))))
    text = print_graph(graph_from_bytes(data))
    assert text.startswith('x = A() {T=raw"')
    graph = parse_graph(text)
    assert graph["x"].attrs == {"T": dtypes.float32}
    assert graph_to_bytes(graph) == data


# -- errors ----------------------------------------------------------------------------------------

ERRORS = [
    (
        "x",
        "line 1, column 1: a node such as 'z = Mul(x, y)', or a function, was expected, found 'x'",
    ),
    ("x = A()\n\ny = B(x", "line 3, column 8: ',' or ')' was expected, found the end of the line"),
    ("x = A(", "line 1, column 7: an input was expected, found the end of the line"),
    ("x = ", "line 1, column 5: the op of the node was expected, found the end of the line"),
    ("x = A() {", "line 1, column 10: the name of an attribute was expected"),
    ("x = A() {a}", "line 1, column 11: '=' was expected, found '}'"),
    ("x = A() {a=1 b=2}", "line 1, column 14: ',' or '}' was expected, found 'b'"),
    ("x = A() {a=1, a=2}", "the attribute 'a' is given twice"),
    ("x = A() {a=what}", "line 1, column 12: a value was expected, found 'what'"),
    ("x = A() {a=}", "line 1, column 12: a value was expected, found '}'"),
    ('x = A() {a="b}', "line 1, column 12: the string has no end"),
    (r'x = A() {a="\q"}', "line 1, column 12: an escape is one of"),
    ("x = A() {a=99999999999999999999}", "line 1, column 12: an integer from -9223372036854775808"),
    ("x = A() {a=9223372036854775808}", "an integer from"),
    ("x = A() {a=(1, 2.0)}", "line 1, column 16: elements of one kind were expected, found '2.0'"),
    ("x = A() {a=(1 2)}", "',' or ')' was expected"),
    ("x = A() {a=(())}", "an element of a list was expected"),
    ("x = A() {a=($T)}", "an element of a list was expected"),
    ('x = A() {a=(raw"")}', "an element of a list was expected"),
    ("x = A() {a=[2,-1]}", "an integer from 0"),
    ("x = A() {a=[2,x]}", "an integer was expected, found 'x'"),
    ("x = A() {a=[2 3]}", "',' or ']' was expected"),
    ("x = A() {a=Ref(bad)}", "a value was expected, found 'Ref'"),
    ("x = A() {a=float32[?]:1}", "the known shape of a tensor was expected"),
    ("x = A() {a=float32[2]:[1]}", "line 1, column 25: ',' was expected, found ']'"),
    ("x = A() {a=float32[2]:[1,2,3]}", "']' was expected, found ','"),
    ("x = A() {a=float32[2]:[1,x]}", "a number was expected, found 'x'"),
    ("x = A() {a=float32[999999999999]:()}", "the elements of a float32[999999999999]"),
    ("x = A() {a=int8[]:300}", "an element is out of the range of int8"),
    ("x = A() {a=uint8[]:-1}", "the elements of a uint8[] were expected"),
    ("x = A() {a=bool[]:1}", "true or false was expected"),
    ("x = A() {a=complex64[]:x}", "a number such as 1.0+2.0j was expected"),
    ("x = A() {a=string[]:1}", "a string was expected"),
    ("x = A() {a=resource[]:()}", "a resource cannot be written"),
    ('x = A() {a=float32[2]:raw"AAAA"}', "8 wanted"),
    ('x = A() {a=raw"?"}', "line 1, column 15: base64 was expected"),
    ('x = A() {a=raw"AAAA"}', "line 1, column 12: an attribute that can be decoded was expected"),
    ('x = A() extra raw"AAAA"', "a node whose base64 can be decoded was expected"),
    ('extra raw"AAAA"', "an extra that can be decoded was expected"),
    ("x = A() @cpu", "line 1, column 10: a device in quotes was expected, found 'cpu'"),
    (r'x = A() @"\xff"', "a device in quotes must be UTF-8"),
    ("x = A() {} y", "line 1, column 12: nothing more was expected, found 'y'"),
    ("x = A()) {}", "line 1, column 8: nothing more was expected, found ')'"),
    ("versions producer=x", "line 1, column 19: an integer was expected, found 'x'"),
    ("versions producer=99999999999", "an integer from -2147483648 to 2147483647 was expected"),
    ("versions what=1", "'producer', 'min_consumer' or 'bad_consumers' was expected"),
    ("versions bad_consumers=1", "numbers such as (1, 2) were expected"),
    ("versions bad_consumers=(true)", "numbers such as (1, 2) were expected"),
    ("gradient f = g\ngradient f = h", "line 2, column 12: the gradient of 'f' is given twice"),
    ("function f() -> () {", "function 'f' has no end: a line '}' was expected"),
    (
        "function f() -> () {\n}\nfunction f() -> () {\n}",
        "line 3, column 10: function 'f' is defined",
    ),
    ("function f() -> () {\nwhat\n}", "line 2, column 1: a node, 'return', or '}' was expected"),
    ("function f() -> () {}", "line 1, column 21: nothing more was expected, found '}'"),
    ("function f(x) -> () {\n}", "line 1, column 13: ':' was expected, found ')'"),
    ("function f(x: ) -> () {\n}", "a type, or the attribute that holds it was expected"),
    ("function f(x: T y: T) -> () {\n}", "',' or ')' was expected, found 'y'"),
    ("function f() -> () {\nreturn x = y\nreturn x = z\n}", "the output 'x' is returned twice"),
    ("function f() -> () {\ncontrol_return x\ncontrol_return x\n}", "'x' is returned twice"),
    ("function f() -> () {\nattr T: type\nattr T: type\n}", "'T' is declared twice"),
    ('function f raw"AAAA"', "a function that can be encoded was expected"),
    ("\x7f", "a node such as"),
]


@pytest.mark.parametrize(("text", "message"), ERRORS)
def test_an_error_says_where_and_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_graph(text)
    assert message in caught.value.message
    assert caught.value.message.startswith("line ")
    assert caught.value.code == "CFG004"


def test_faults_of_the_graph_are_all_found() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_graph("x = A(nowhere)\nx = A()\ny = B(^x, x)\n")
    codes = {finding.code for finding in caught.value.findings}
    assert codes == {"CFG104", "CFG105", "CFG106"}


def test_attributes_nest_as_deep_as_a_file_allows() -> None:
    value = attr_value_pb2.AttrValue()
    inner = value
    for _ in range(30):
        inner.func.name = "f"
        inner = inner.func.attr["a"]
    inner.i = 1
    data = field(
        1, message((1, "x"), (2, "A"), (5, message((1, "a"), (2, value.SerializeToString()))))
    )
    text = print_graph(graph_from_bytes(data))
    assert text == "x = A() {a=" + "@f{a=" * 30 + "1" + "}" * 31 + "\n"
    assert graph_to_bytes(parse_graph(text)) == data
    deeper = text.replace("@f{a=1}", "@f{a=@f{a=1}}")
    with pytest.raises(InvalidInput, match="no more than 30 levels of nesting"):
        parse_graph(deeper)
