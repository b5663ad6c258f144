from __future__ import annotations

import pytest

import cfgraph.ops  # noqa: F401 - fills the registry
from cfgraph.errors import InvalidInput
from cfgraph.ir import dtypes
from cfgraph.ir.attrs import AttrPlaceholder
from cfgraph.ir.functions import BodyNode, Function, FunctionDefinition
from cfgraph.ir.graph import Graph
from cfgraph.ir.serde.graph_def import graph_to_bytes
from cfgraph.ir.shapes import Shape
from cfgraph.ir.signature import ArgDef, AttrDef
from cfgraph.ir.text.parser import parse_graph
from cfgraph.ir.text.printer import print_graph
from tests.ir.text_form import lossless_text

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
        ArgDef("x", None, "T"),
        ArgDef("more", dtypes.float32, None, "N"),
        ArgDef("list", None, "L"),
        ArgDef("r", None, "T", is_ref=True),
    )
    assert definition.outputs == (ArgDef("y", None, "T"), ArgDef("z", dtypes.int32, None))
    assert definition.attr_defs["T"] == AttrDef(
        "T", "type", dtypes.float32, True, None, (dtypes.float32, dtypes.int32)
    )
    assert definition.attr_defs["L"] == AttrDef("L", "list(type)", minimum=2)
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
    node = BodyNode("n", "Neg", ("x",), "", {"T": AttrPlaceholder("T")})
    graph.functions["neg"] = Function(
        "neg",
        FunctionDefinition(
            (ArgDef("x", None, "T"),),
            (ArgDef("y", None, "T"),),
            {"T": AttrDef("T", "type")},
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
    text = lossless_text(f'library {{ function {{ signature {{ name: "f" {signature} }} }} }}')
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
    assert "function f" in lossless_text(
        f'library {{ function {{ signature {{ name: "f" }} {rest} }} }}'
    )


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
    text = lossless_text(f'library {{ function {{ signature {{ name: "f" {signature} }} }} }}')
    assert text.startswith('\nfunction f raw"')


def test_a_function_without_a_name_stays() -> None:
    assert lossless_text("library { function { } }").startswith('\nfunction "" raw"')


def test_a_body_may_leave_out_names_of_outputs_and_types() -> None:
    short = """
function f(x: float32, n: int32) -> (y: float32, z: int32) {
  two = Const() {dtype=float32, value=float32[]:2.0}
  sum = AddV2(mul, x)
  mul = Mul(x, two)
  parts = Split(n, sum) {num_split=2}
  both = Pack(parts:1, parts)
  return both, n
}
"""
    long = """
function f(x: float32, n: int32) -> (y: float32, z: int32) {
  two = Const() {dtype=float32, value=float32[]:2.0}
  sum = AddV2(mul:z:0, x) {T=float32}
  mul = Mul(x, two:output:0) {T=float32}
  parts = Split(n, sum:z:0) {T=float32, num_split=2}
  both = Pack(parts:output:1, parts:output:0) {N=2, T=float32}
  return y = both:output:0
  return z = n
}
"""
    assert print_graph(parse_graph(short)) == long
    assert print_graph(parse_graph(long)) == long


def test_what_a_file_leaves_out_of_a_body_stays_out() -> None:
    nodes = (
        BodyNode("a", "Neg", ("x",), attrs={"T": dtypes.float32}),
        BodyNode("b", "Neg", ("a",), attrs={"T": dtypes.float32}),
        BodyNode("c", "Neg", ("a:y:0",)),
    )
    x, y = ArgDef("x", dtypes.float32, None), ArgDef("y", dtypes.float32, None)
    graph = Graph()
    graph.functions["f"] = Function(
        "f", FunctionDefinition((x,), (y,), nodes=nodes, returns={"y": "c"})
    )
    text = print_graph(graph)
    assert graph_to_bytes(parse_graph(text)) == graph_to_bytes(graph)
    assert text.count("exact") == 2
    assert 'return y = "c"' in text


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("return x", "',' and a tensor for the output 'z' was expected"),
        ("return x, x, x", "nothing more was expected, found ','"),
        ("return", "an input was expected"),
    ],
)
def test_a_return_without_names_has_a_tensor_for_each_output(line: str, message: str) -> None:
    text = f"function f(x: int32) -> (y: int32, z: int32) {{\n  {line}\n}}\n"
    with pytest.raises(InvalidInput, match=message):
        parse_graph(text)


def test_a_number_of_an_output_that_no_node_has_is_kept_as_it_is() -> None:
    long = "9" * 5000
    body = f"a = Neg(x)\n  b = Neg(a:{long})\n  c = Neg(a:y:{long})"
    graph = parse_graph(f"function f(x: float32) -> () {{\n  {body}\n}}")
    nodes = graph.functions["f"].definition.nodes
    assert [node.inputs for node in nodes] == [("x",), (f"a:{long}",), (f"a:y:{long}",)]
    text = print_graph(graph)
    assert print_graph(parse_graph(text)) == text
