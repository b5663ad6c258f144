from __future__ import annotations

import gc
import weakref
from pathlib import Path

import numpy as np
import pytest

import cfgraph
from cfgraph.analysis.loops.frames import frames
from cfgraph.analysis.verify.verify import require_valid, verify
from cfgraph.ir import dtypes
from cfgraph.ir.attrs import EncodedAttr, TensorValue
from cfgraph.ir.functions import BodyNode, Function, FunctionDefinition
from cfgraph.ir.graph import Output, Versions
from cfgraph.ir.library import copy_graph
from cfgraph.ir.signature import ArgDef, AttrDef
from cfgraph.ops.shape_inference import infer_shapes
from tests.analysis.graph_text import LOOP, codes_and_nodes, findings, graph
from tests.conformance import recorded

X = "x = Placeholder() {dtype=float32}"


def errors(of: cfgraph.Graph) -> list[tuple[str, str | None]]:
    return codes_and_nodes(tuple(finding for finding in verify(of) if finding.level == "error"))


def test_a_sound_graph_has_no_findings() -> None:
    assert verify(graph(LOOP)) == ()
    require_valid(graph(LOOP))


# -- caching ---------------------------------------------------------------------------------------


def test_a_graph_is_verified_once_until_it_changes() -> None:
    of = graph(X, "y = Neg(x:1) {T=float32}")
    first = verify(of)
    assert verify(of) is first
    of.set_input(of["y"], 0, of["x"].output())
    assert verify(of) == ()


def test_a_copy_of_a_function_without_findings_depends_on_what_it_calls() -> None:
    head = "(x: float32) -> (y: float32) {"
    call = "PartitionedCall(x) {Tin=(float32), Tout=(float32), f=@g}"
    of = graph(
        X,
        f"function f{head}\n  c = {call}\n  return y = c:output:0\n}}",
        f"function g{head}\n  a = Neg(x) {{T=float32}}\n  return y = a:y:0\n}}",
    )
    assert verify(of) == ()
    copy = copy_graph(of)
    takes, returns = (ArgDef(name, dtypes.int32, None) for name in ("x", "y"))
    definition = FunctionDefinition((takes,), (returns,), returns={"y": "x"})
    copy.functions["g"] = Function("g", definition)
    assert errors(copy) == [("CFG132", "f/c"), ("CFG132", "f/c")]
    del copy.functions["g"]
    assert errors(copy) == [("CFG133", "f/c")]
    assert verify(copy_graph(of)) == ()


@pytest.mark.parametrize(
    "change",
    [
        lambda of: of.set_attr(of["y"], "T", dtypes.int32),
        lambda of: of.set_device(of["y"], "nowhere"),
        lambda of: of.add_control(of["x"], of["y"]),
        lambda of: of.set_inputs(of["y"], ()),
        lambda of: of.create("z", "Nobody"),
        lambda of: of.rename(of["y"], "-y"),
        lambda of: setattr(of, "versions", Versions(1, 99_999)),
        lambda of: of.gradient_functions.update(f="g"),
    ],
)
def test_every_change_is_seen(change: object) -> None:
    of = graph(X, "y = Neg(x)")
    assert verify(of) == ()
    change(of)  # type: ignore[operator]
    assert verify(of) != ()


def test_a_change_of_devices_is_seen_by_the_rules_that_read_them() -> None:
    of = graph(X, "y = Neg(x:1) {T=float32}", "z = Neg(x) {T=float32}")
    before, known = verify(of), frames(of)
    of.set_device(of["z"], "nowhere")
    assert codes_and_nodes(verify(of)) == [*codes_and_nodes(before), ("CFG402", "z")]
    assert frames(of) is known
    of.set_device(of["z"], "/cpu:0")
    assert verify(of) == before


def test_a_changed_library_is_seen() -> None:
    function = "function f(a: float32) -> (b: float32) {\n  return b = a\n}"
    of = graph(X, "y = f(x)", function)
    assert verify(of) == ()
    del of.functions["f"]
    assert codes_and_nodes(verify(of)) == [("CFG101", "y")]


def test_what_is_kept_does_not_keep_the_graph_alive() -> None:
    of = graph(X)
    verify(of)
    gone = weakref.ref(of)
    del of
    gc.collect()
    assert gone() is None


def test_the_first_error_is_the_message_and_all_are_findings() -> None:
    of = graph(
        X, "y = Neg(x:1) {T=float32}", "z = Neg(x:2) {T=float32}", '_note = Neg(x) @"nowhere"'
    )
    with pytest.raises(cfgraph.InvalidInput) as caught:
        require_valid(of)
    assert (caught.value.code, caught.value.node) == ("CFG108", "y")
    assert "x:1" in caught.value.message
    assert "1 more" in caught.value.message
    assert [finding.node for finding in caught.value.findings] == ["y", "z"]


def test_warnings_and_notes_are_no_reason_to_refuse() -> None:
    of = graph(X, '_y = Neg(x) @"nowhere"', "z = Frobnicate(x)")
    assert {finding.level for finding in verify(of)} == {"warning", "note"}
    require_valid(of)


# -- graphs that no file can contain
# ----------------------------------------------------------------


def test_a_control_input_that_is_listed_twice_is_a_warning() -> None:
    of = graph(X, "y = Neg(x, ^x)")
    of["y"].controls *= 2
    of.set_attr(of["y"], "_changed", True)
    assert codes_and_nodes(verify(of)) == [("CFG116", "y")]


def test_an_input_from_another_graph_is_an_error() -> None:
    of, other = graph(X), graph("x = Placeholder() {dtype=float32}", "n = NoOp()")
    of.create("y", "Neg", (other["x"].output(),), (other["n"],), {"T": dtypes.float32})
    assert errors(of) == [("CFG105", "y"), ("CFG105", "y")]


def test_a_negative_port_is_an_error_even_of_an_unknown_op() -> None:
    of = graph(X, "u = Frobnicate(x)")
    of.create("y", "Neg", (Output(of["u"], -1),), attrs={"T": dtypes.float32})
    assert errors(of) == [("CFG108", "y")]


def test_no_op_has_so_many_outputs_as_a_damaged_file_may_claim() -> None:
    of = graph("u = Frobnicate()", f"y = Neg(u:{10**18}) {{T=float32}}")
    assert errors(of) == [("CFG108", "y")]
    assert infer_shapes(of)[of["y"].output()].dims is None


def test_a_python_value_that_is_no_attribute_is_an_error() -> None:
    of = graph(X)
    of.create("a", "Neg", (of["x"].output(),), attrs={"T": "float32"})
    of.create("b", "Neg", (of["x"].output(),), attrs={"T": [dtypes.float32]})
    assert errors(of) == [("CFG113", "a"), ("CFG113", "b")]


def test_an_unset_attribute_is_an_error() -> None:
    of = graph(X)
    of.create("a", "Neg", (of["x"].output(),), attrs={"T": EncodedAttr(b"")})
    (finding,) = verify(of)
    assert finding.code == "CFG113"
    assert "unset" in finding.message


def test_true_is_no_integer_and_one_is_no_bool() -> None:
    of = graph(X, "y = Merge(x, x) {N=2}")
    # a valid value first: a cached verdict must not excuse invalid values
    of.create("a", "MatMul", (of["x"].output(),) * 2, attrs={"T": dtypes.float32})
    for name, value in (("b", True), ("c", 1), ("d", 1.0)):
        attrs = {"T": dtypes.float32, "transpose_a": value}
        of.create(name, "MatMul", (of["x"].output(),) * 2, attrs=attrs)
    assert errors(of) == [("CFG113", "c"), ("CFG113", "d")]


def test_constants_made_in_memory_are_sound() -> None:
    of = cfgraph.Graph()
    value = TensorValue(np.zeros((2, 3), np.float32))
    of.create("c", "Const", attrs={"dtype": dtypes.float32, "value": value})
    assert verify(of) == ()


# -- types -----------------------------------------------------------------------------------------


def test_a_reference_stands_for_its_value_but_not_the_other_way_round() -> None:
    of = graph("v = VariableV2() {dtype=float32, shape=[]}", X, "a = Assign(v, x)", "y = Neg(a)")
    assert errors(of) == []
    of.set_input(of["a"], 0, of["x"].output())
    (finding,) = [finding for finding in verify(of) if finding.level == "error"]
    assert (finding.code, finding.node) == ("CFG301", "a")


def test_unknown_ops_have_any_outputs_of_any_type() -> None:
    of = graph(
        X, "u = Frobnicate(x)", "y = Add(u:3, x) {T=float32}", "s = Switch(u, u:1) {T=int32}"
    )
    assert codes_and_nodes(verify(of)) == [("CFG101", "u")]


def test_an_unknown_op_is_reported_once_with_the_number_of_its_nodes() -> None:
    (finding,) = verify(graph(X, *[f"u{number} = Frobnicate(x)" for number in range(9)]))
    assert (finding.code, finding.node) == ("CFG101", "u0")
    assert "9 nodes" in finding.message
    assert len(finding.related) == 8


def test_lists_of_inputs_are_counted_and_typed_one_by_one() -> None:
    of = graph(
        X,
        "i = Placeholder() {dtype=int32}",
        "good = IdentityN(x, i) {T=(float32, int32)}",
        "bad = IdentityN(x, i) {T=(float32, float32)}",
        "few = IdentityN(x) {T=(float32, float32)}",
        "y = Neg(good:1) {T=int32}",
        "z = Neg(good:2) {T=int32}",
    )
    assert errors(of) == [("CFG301", "bad"), ("CFG107", "few"), ("CFG108", "z")]


def test_a_count_of_billions_takes_neither_time_nor_memory() -> None:
    huge = 1 << 60
    of = graph(
        X,
        f"m = Merge(x, x) {{T=float32, N={huge}}}",
        f"s = Split(d, x) {{T=float32, num_split={huge}}}",
        "d = Const() {dtype=int32, value=int32[]:0}",
        f"y = Neg(s:{huge - 1}) {{T=float32}}",
        f"z = Neg(s:{huge}) {{T=float32}}",
    )
    assert errors(of) == [("CFG107", "m"), ("CFG108", "z")]


def test_a_constant_in_the_place_of_a_type_is_not_decoded() -> None:
    huge = 'raw"Qg0IARIJEgcIgICAgIAg"'
    lines = [f"y{number} = Neg(x) {{T={huge}}}" for number in range(2)]
    assert codes_and_nodes(verify(graph(X, *lines)))[:2] == [("CFG113", "y0"), ("CFG113", "y1")]


# -- functions -------------------------------------------------------------------------------------

GENERIC = """
    y = twice(x) {T=float32}
    function twice(a: "T") -> (b: "T") {
      attr T: type
      sum = Add(a, a) {T=$T}
      return b = sum:z:0
    }
"""


def test_the_body_of_a_generic_function_is_checked_as_far_as_types_are_known() -> None:
    assert verify(graph(X, GENERIC)) == ()
    wrong = GENERIC.replace("Add(a, a)", "Add(a, a, a)")
    assert errors(graph(X, wrong)) == [("CFG107", "twice/sum")]


def test_a_call_of_a_generic_function_has_the_types_that_it_says() -> None:
    of = graph(X, GENERIC, "z = Neg(y) {T=int32}")
    assert errors(of) == [("CFG301", "z")]


def test_loops_in_functions_are_held_to_the_same_rules() -> None:
    of = graph(
        X,
        "y = f(x)",
        """
        function f(a: float32) -> (b: float32) {
          k = Const() {dtype=float32, value=float32[]:1}
          e = Enter(a) {T=float32, frame_name="loop"}
          sum = Add(e:output:0, k:output:0) {T=float32}
          out = Exit(sum:z:0) {T=float32}
          return b = out:output:0
        }
        """,
    )
    (finding,) = verify(of)
    assert (finding.code, finding.node, finding.frame) == ("CFG201", "f/sum", "/loop")
    assert finding.related == ("f/e", "f/k")


def test_faults_in_some_of_many_functions_are_reported_in_these() -> None:
    def function(number: int, *body: str) -> str:
        return "\n".join([f"function f{number}(x: float32) -> (y: float32) {{", *body, "}"])

    sound = "a = Neg(x) {T=float32}", "return y = a:y:0"
    functions = [function(number, *sound) for number in range(600)]
    functions[300] = function(300, "a = Neg(x) {T=int32}", "return y = a:y:0")
    functions[599] = function(599, "a = Unknown(x)", "return y = b:y:0")
    found = codes_and_nodes(verify(graph(X, *functions)))
    assert found == [
        ("CFG301", "f300"),
        ("CFG301", "f300/a"),
        ("CFG131", "f599"),
        ("CFG101", "f599/a"),
    ]


def test_loops_of_two_functions_may_have_one_name() -> None:
    def function(name: str, condition: str) -> str:
        return f"""
        function {name}(x: float32, p: bool) -> (y: float32) {{
          e = Enter(x) {{T=float32, frame_name="loop"}}
          bound = Enter(p) {{T=bool, frame_name="loop", is_constant=true}}
          m = Merge(e:output:0, n:output:0) {{T=float32, N=2}}
          c = {condition}
          s = Switch(m:output:0, c:output:0) {{T=float32}}
          n = NextIteration(s:output_true:0) {{T=float32}}
          out = Exit(s:output_false:0) {{T=float32}}
          return y = out:output:0
        }}
        """

    first = function("f", "LoopCond(bound:output:0)")
    second = function("g", "Identity(bound:output:0) {T=bool}")
    assert codes_and_nodes(verify(graph(first, second))) == [("CFG213", "g/e")]


def test_lists_of_outputs_are_resolved_by_name_and_index() -> None:
    body = """
        function f(a: float32) -> (b: float32) {
          n = IdentityN(a, a) {T=(float32, float32)}
          m = Merge(n:output:1, a) {T=float32, N=2}
          w = Neg(m:value_index:0) {T=int32}
          u = Neg(m:output:0) {T=float32}
          return b = u:y:0
        }
    """
    assert verify(graph(X, "y = f(x)", body)) == ()
    wrong = body.replace("n:output:1", "n:output:2")
    assert errors(graph(X, "y = f(x)", wrong)) == [("CFG108", "f/m")]


def test_a_list_argument_has_as_many_tensors_as_the_caller_says() -> None:
    of = graph(
        X,
        "y = f(x, x) {Ts=(float32, float32)}",
        """
        function f(a: "Ts") -> (b: float32) {
          attr Ts: list(type)
          n = Neg(a:1) {T=float32}
          return b = n:y:0
        }
        """,
    )
    assert verify(of) == ()
    of.set_attr(of["y"], "Ts", (dtypes.float32,))
    assert errors(of) == [("CFG107", "y")]


@pytest.mark.parametrize(
    "text", ["n:y:" + "9" * 5000, "n:y:0:0", "n:y:٣", "a:0:0", "n:0", "n", '""']
)
def test_an_input_that_is_no_tensor_of_a_body_is_an_error(text: str) -> None:
    of = graph(X, "y = f(x)")
    nodes = (
        BodyNode("n", "Neg", ("a",), attrs={"T": dtypes.float32}),
        BodyNode("m", "Neg", (text,), attrs={"T": dtypes.float32}),
    )
    a, b = ArgDef("a", dtypes.float32, None), ArgDef("b", dtypes.float32, None)
    of.functions["f"] = Function(
        "f", FunctionDefinition((a,), (b,), nodes=nodes, returns={"b": "m:y:0"})
    )
    assert errors(of) == [("CFG130", "f/m")]


def test_what_a_function_declares_of_its_attributes_may_be_nonsense() -> None:
    of = graph(X, 'y = f(x) {K="k", L=3}')
    a = ArgDef("a", dtypes.float32, None)
    declared = {
        "K": AttrDef("K", "string", minimum=3, allowed=EncodedAttr(b"\x18\x01")),  # type: ignore[arg-type]
        "L": AttrDef("L", "list(", minimum=3),
    }
    of.functions["f"] = Function("f", FunctionDefinition((a,), (a,), declared, returns={"a": "a"}))
    assert errors(of) == [("CFG113", "y")]


def test_a_control_input_in_a_function_resolves() -> None:
    body = """
        function f(a: float32) -> (b: float32) {
          n = NoOp()
          m = Neg(a, ^n, ^a) {T=float32}
          return b = m:y:0
        }
    """
    assert verify(graph(X, "y = f(x)", body)) == ()
    assert errors(graph(X, "y = f(x)", body.replace("^n", "^o"))) == [("CFG130", "f/m")]


def test_functions_that_share_a_callee_do_not_recur() -> None:
    body = "function {}(a: float32) -> (b: float32) {{\n  c = {}(a)\n  return b = c:b:0\n}}"
    leaf = "function leaf(a: float32) -> (b: float32) {\n  return b = a\n}"
    of = graph(X, "y = f(x)", body.format("f", "leaf"), body.format("g", "leaf"), leaf)
    assert verify(of) == ()


# -- cycles ----------------------------------------------------------------------------------------


def test_each_cycle_is_reported_once_from_its_first_node() -> None:
    of = graph(
        "b = NoOp(^a)",
        "a = NoOp(^b)",
        "d = NoOp(^c)",
        "c = NoOp(^d, ^b)",
        "after = NoOp(^c)",
    )
    reported = verify(of)
    assert codes_and_nodes(reported) == [("CFG109", "b"), ("CFG109", "d")]
    assert "'b' -> 'a' -> 'b'" in reported[0].message


def test_a_node_that_reads_itself_is_a_cycle() -> None:
    (finding,) = verify(graph("a = NoOp(^a)"))
    assert "'a' -> 'a'" in finding.message


def test_a_long_cycle_is_abbreviated() -> None:
    lines = [f"n{number} = NoOp(^n{(number + 1) % 5000})" for number in range(5000)]
    (finding,) = verify(graph(*lines))
    assert len(finding.message) < 300
    assert len(finding.related) == 4999


def test_cycles_that_overlap_everywhere_take_linear_time() -> None:
    # inner cycles within outer ones: listing each in full would take quadratic time
    of = cfgraph.Graph()
    size = 40_000
    nodes = [of.create(f"n{number}", "NoOp") for number in range(size)]
    for number in range(size - 1):
        of.add_control(nodes[number], nodes[number + 1])
    for number in range(size // 2, size):
        of.add_control(nodes[number], nodes[size - 1 - number])
    assert sum(len(finding.related) for finding in verify(of)) < 2 * size


def test_a_loop_variable_that_never_changes_is_no_fault() -> None:
    swapped = LOOP.replace("Merge(e, n)", "Merge(n, e)").replace(
        "NextIteration(body)", "NextIteration(m)"
    )
    assert errors(graph(swapped)) == []


def test_the_next_iteration_of_one_variable_may_feed_two_merges() -> None:
    assert verify(graph(LOOP, "m2 = Merge(e, n) {T=float32, N=2}")) == ()


# -- size ------------------------------------------------------------------------------------------


def test_thirty_thousand_nodes_are_verified_without_a_deep_stack() -> None:
    of = cfgraph.Graph()
    last = of.create("x", "Placeholder", attrs={"dtype": dtypes.float32})
    for number in range(30_000):
        last = of.create(f"n{number}", "Neg", (last.output(),), attrs={"T": dtypes.float32})
    assert verify(of) == ()


def test_many_dangling_names_are_reported_quickly() -> None:
    lines = [f'n{number} = NoOp() {{_class=("loc:@m{number}")}}' for number in range(5000)]
    assert len(findings("\n".join(lines))) == 5000


# -- real graphs -----------------------------------------------------------------------------------


def test_the_example_graphs_are_sound(fixtures: Path) -> None:
    files = sorted((fixtures / "graphs").glob("*.pb"))
    assert files
    assert {file.name: verify(cfgraph.load(file)) for file in files} == {
        file.name: () for file in files
    }


@pytest.mark.slow
def test_recorded_graphs_have_errors_only_where_tensorflow_refused_them() -> None:
    runs = [run for case in recorded.cases() for run in case.get("runs", ())]
    refused = {run["graph"] for run in runs if "error" in run}
    entries = recorded.archive().namelist()
    names = [entry[7:-3] for entry in entries if entry.startswith("graphs/")]
    wrong = {name: reported for name in names if (reported := errors(recorded.graph(name)))}
    # two loops' values are added (ControlFlowTest.testDifferentFrame)
    assert wrong == {"a3262cbaacde5794": [("CFG201", "Add")]}
    assert wrong.keys() <= refused


def test_a_call_returned_by_its_name_alone_hints_at_the_name_of_its_output() -> None:
    (finding,) = findings("""
function negated(x: float32) -> (y: float32) {
  n = Neg(x)
  return n
}
function f(x: float32) -> (z: float32) {
  call = negated(x)
  return call
}
""")
    assert finding.code == "CFG131"
    assert finding.hint is not None
    assert "write call:y:0" in finding.hint


def test_the_body_of_a_polymorphic_function_fits_the_attributes_of_each_call() -> None:
    body = """
        function f(a: N*T) -> (b: T) {
          attr T: type
          attr N: int
          n = AddN(a:0, a:1) {T=$T, N=$N}
          return b = n:sum:0
        }
        function g(a: float32) -> (b: float32) {
          n = f(a, a) {T=float32, N=2}
          return b = n:b:0
        }
    """
    assert verify(graph(X, "y = g(x)", body)) == ()
    assert verify(graph(X, "y = f(x, x) {T=float32, N=2}", body)) == ()
    assert errors(graph(X, "y = f(x, x, x) {T=float32, N=3}", body)) == [("CFG107", "f/n")]
    inner = body.replace("f(a, a) {T=float32, N=2}", "f(a, a, a) {T=float32, N=3}")
    assert errors(graph(X, "y = g(x)", inner)) == [("CFG107", "f/n")]


def test_polymorphic_functions_are_verified_in_bounded_time() -> None:
    names = [f"A{number}" for number in range(24)]
    attrs = "\n".join(f"attr {name}: int" for name in names)
    functions = []
    for level in range(24):
        calls = [
            ", ".join(f"{name}={bit if name == names[level] else f'${name}'}" for name in names)
            for bit in range(2)
        ]
        last = level == 23
        nodes = [
            f"n{bit} = {'NoOp()' if last else f'f{level + 1}() {{{calls[bit]}}}'}"
            for bit in range(2)
        ]
        functions.append(f"function f{level}() -> () {{\n{attrs}\n" + "\n".join(nodes) + "\n}")
    zeros = ", ".join(f"{name}=0" for name in names)
    assert verify(graph("", f"y = f0() {{{zeros}}}", "\n".join(functions))) == ()
