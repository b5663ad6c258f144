from __future__ import annotations

import pytest

import cfgraph.ops  # noqa: F401 - fills the registry
from cfgraph.ir import dtypes
from cfgraph.ir.graph import Graph, Versions
from cfgraph.ir.serde.graph_def import graph_from_bytes, graph_to_bytes
from cfgraph.ir.text.parser import parse_graph
from cfgraph.ir.text.printer import print_graph
from tests.ir.text_form import lossless_text
from tests.ir.wire import wire_field, wire_message


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
    text = lossless_text('node { name: "x" op: "a b" attr { key: "a=\\"" value { b: true } } }')
    assert text == 'x = "a b"() {"a=\\""=true}\n'


def test_a_device_follows_the_attributes() -> None:
    node = 'node { name: "x" op: "A" device: "/gpu:\\"0" }'
    assert lossless_text(node) == 'x = A() @"/gpu:\\"0"\n'


def test_inputs_keep_the_words_of_the_file() -> None:
    source = 'node { name: "a" op: "A" }'
    reader = (
        'node { name: "x" op: "B" input: "a:0" input: "a" input: "a:12" input: "^a" input: "^a" }'
    )
    assert lossless_text(source + reader) == "a = A()\nx = B(a:0, a, a:12, ^a, ^a)\n"


def test_versions_and_gradients_are_lines() -> None:
    pbtxt = """
    versions { producer: 27 min_consumer: 12 bad_consumers: [1, 2] }
    library { gradient { function_name: "f" gradient_func: "g h" } }
    """
    text = 'versions producer=27 min_consumer=12 bad_consumers=(1, 2)\ngradient f = "g h"\n'
    assert lossless_text(pbtxt) == text


@pytest.mark.parametrize(
    ("pbtxt", "text"),
    [
        ("", "unset"),
        ("type_id: TFT_TENSOR args { type_id: TFT_FLOAT }", "tensor[float]"),
        (
            "type_id: TFT_PRODUCT args { type_id: TFT_VAR s: 'T' } args { type_id: 57 i: -3 }",
            'product[var"T", 57=-3]',
        ),
        ("type_id: TFT_LITERAL s: ''", 'literal""'),
    ],
)
def test_a_full_type_follows_the_device(pbtxt: str, text: str) -> None:
    node = f'node {{ name: "x" op: "A" device: "d" experimental_type {{ {pbtxt} }} }}'
    assert lossless_text(node) == f'x = A() @"d" type {text}\n'


@pytest.mark.parametrize(
    "pbtxt",
    ["versions { }", "library { }", "version: 3", "library { } versions { producer: 1 }"],
)
def test_even_empty_messages_stay(pbtxt: str) -> None:
    assert lossless_text(pbtxt)


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


def test_undetermined_attributes_stay_absent() -> None:
    graph = parse_graph("x = Placeholder()\ny = Mul(x, x)\nz = Unknown(y)\nw = Mul(z, z)\n")
    assert not any(node.attrs for node in graph)


def test_a_node_that_really_lacks_an_attribute_is_exact() -> None:
    pbtxt = """
    node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } }
    node { name: "y" op: "Mul" input: "x" input: "x" }
    node { name: "z" op: "Mul" input: "y" input: "y" }
    """
    assert lossless_text(pbtxt) == (
        "x = Placeholder() {dtype=float32}\ny = Mul(x, x) exact\nz = Mul(y, y)\n"
    )


# -- unknown fields and debug information ----------------------------------------------------------


def test_what_has_no_words_is_an_extra() -> None:
    node = """node { name: "x" op: "A"
        experimental_debug_info { original_node_names: "m" } }"""
    graph = """debug_info { files: "a.py" } version: 3
        library { registered_gradients { gradient_func: "g" registered_op_type: "A" } }"""
    text = lossless_text(node + graph)
    assert text.startswith('x = A() extra raw"')
    assert text.splitlines()[-1].startswith('extra raw"')


def test_an_attribute_with_unknown_fields_is_raw() -> None:
    value = wire_message((6, 1), (1000, "?"))
    data = wire_field(1, wire_message((1, "x"), (2, "A"), (5, wire_message((1, "T"), (2, value)))))
    text = print_graph(graph_from_bytes(data))
    assert text.startswith('x = A() {T=raw"')
    graph = parse_graph(text)
    assert graph["x"].attrs == {"T": dtypes.float32}
    assert graph_to_bytes(graph) == data
