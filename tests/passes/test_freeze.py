"""Each way in which a handle is used: variables become constants, or stay with a reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.errors import Unsupported, UsageError
from cfgraph.ir.library import copy_graph
from tests.analysis.graph_text import graph

V = """
    v = VarHandleOp() {dtype=float32, shape=[2], shared_name="v"}
    u = VarHandleOp() {dtype=float32, shape=[2], shared_name="u"}
    p = Placeholder() {dtype=bool, shape=[]}
    x = Placeholder() {dtype=float32, shape=[2]}
"""
VALUES = {"v": [1.0, 2.0], "u": [3.0, 4.0]}


def frozen(text: str, outputs: str = "y", **options: Any) -> tuple[cfgraph.Graph, dict[str, str]]:
    """The frozen graph, and the reason of each variable, empty for a constant."""
    found = graph(V + text)
    report = cfgraph.freeze(found, VALUES, outputs=outputs.split(","), **options)
    return found, {item.name: item.reason for item in report.variables}


def value(found: cfgraph.Graph, **feeds: Any) -> list[float]:
    (result,) = cfgraph.Session(found).run(["y"], feeds)
    return list(np.asarray(result).tolist())


def test_questions_about_a_variable_are_answered() -> None:
    found, reasons = frozen(
        """
        shape = VariableShape(v)
        known = VarIsInitializedOp(v)
        r = VariableV2() {dtype=float32, shape=[], shared_name="r"}
        y = Cast(shape) {DstT=float32}
    """,
        "y,known",
    )
    assert reasons == {"v": ""}
    assert value(found) == [2.0]
    assert cfgraph.Session(found).run(["known"]) == [True]


def test_all_handles_of_a_name_are_one_variable() -> None:
    text = """
        same = VarHandleOp() {dtype=float32, shape=[2], shared_name="v"}
        a = ReadVariableOp(v) {dtype=float32}
        b = ReadVariableOp(same, ^assign) {dtype=float32}
        assign = AssignVariableOp(same, x) {dtype=float32}
        y = AddV2(a, b)
    """
    found, reasons = frozen(text)
    assert reasons == {"v": "assigned by assign (AssignVariableOp)"}
    assert "VarHandleOp" in found.ops
    _, reasons = frozen(text, "a")
    assert reasons == {"v": ""}


FUNCTIONS = """
    function read(h: resource) -> (r: float32) {
      stateful
      r = ReadVariableOp(h) {dtype=float32}
      return r = r:value:0
    }
    function add(h: resource) -> (r: float32) {
      stateful
      one = Const() {dtype=float32, value=float32[2]:[1, 1]}
      add = AssignAddVariableOp(h, one:output:0) {dtype=float32}
      r = ReadVariableOp(h, ^add) {dtype=float32}
      return r = r:value:0
      control_return add = add
    }
    function first(a: resource, b: resource) -> (r: resource) {
      return r = a
    }
    function second(a: resource, b: resource) -> (r: resource) {
      return r = b
    }
"""


def test_reasons_name_the_node_in_a_function() -> None:
    branches = "then_branch=@add, else_branch=@read"
    call = f"y = If(p, v) {{Tcond=bool, Tin=(resource), Tout=(float32), {branches}}}\n"
    _, reasons = frozen(call + FUNCTIONS)
    assert reasons == {"v": "assigned by y/add (AssignAddVariableOp)"}
    found, reasons = frozen(call + FUNCTIONS, values={"p": False})
    assert reasons == {"v": ""}
    assert value(found) == [1.0, 2.0]
    assert not found.functions


def test_a_handle_that_may_be_that_of_two_variables_stays() -> None:
    choose = """
        h = StatelessIf(p, v, u) {Tcond=bool, Tin=(resource, resource), Tout=(resource),
            then_branch=@first, else_branch=@second}
        y = ReadVariableOp(h) {dtype=float32}
    """
    joined = " ".join(choose.split("\n            "))
    found, reasons = frozen(joined + FUNCTIONS)
    assert set(reasons.values()) == {"h returns a handle that is not always the same"}
    found, reasons = frozen(joined + FUNCTIONS, values={"p": True})
    assert reasons == {"v": ""}
    assert value(found) == [1.0, 2.0]
    _, reasons = frozen("""
        a = Switch(v, p)
        b = Switch(u, p)
        h = Merge(a:1, b)
        y = ReadVariableOp(h) {dtype=float32}
    """)
    assert all("may also be" in reason for reason in reasons.values())
    assert len(reasons) == 2


def test_a_variable_without_a_value_and_a_returned_handle_stay() -> None:
    text = """
        t = VarHandleOp() {dtype=float32, shape=[2], shared_name="t"}
        y = ReadVariableOp(t) {dtype=float32}
        h = Identity(v)
    """
    _, reasons = frozen(text, "y,h")
    assert reasons == {"t": "has no value", "v": "an output of the graph is its handle"}


def test_values_of_inputs_are_checked_and_a_failure_changes_nothing() -> None:
    found = graph(V + "y = ReadVariableOp(v) {dtype=float32}\n z = Neg(x)")
    before = cfgraph.dumps(found)
    for options, message in (
        ({"outputs": ["y"], "values": {"x": [1.0]}}, "shape"),
        ({"outputs": ["y"], "values": {"x": "a"}}, "is not float32"),
        ({"outputs": ["y"], "values": {"v": 1.0}}, "no constant"),
        ({"outputs": ["y"], "values": {"q": 1.0}}, "no node 'q'"),
        ({"outputs": []}, "no outputs"),
        ({"outputs": ["q"]}, "no node 'q'"),
    ):
        with pytest.raises(UsageError, match=message):
            cfgraph.freeze(found, VALUES, **options)
    assert cfgraph.dumps(found) == before
    parts = copy_graph(found)
    cfgraph.place(parts, devices=["cpu:0", "cpu:1"], seed=3)
    cfgraph.partition(parts)
    if any(node.op == "_Send" for node in parts):
        with pytest.raises(Unsupported, match="partitioned"):
            cfgraph.freeze(parts, VALUES, outputs=["y"])


def test_any_tensor_can_be_set() -> None:
    found, _ = frozen(
        """
        n = Neg(x)
        parts = Split(axis, n) {num_split=2}
        axis = Const() {dtype=int32, value=int32[]:0}
        y = AddV2(parts:0, parts:1)
    """,
        values={"parts:1": [5.0]},
    )
    assert value(found, x=[1.0, 2.0]) == [4.0]


def test_a_variable_of_a_node_in_a_function_stays() -> None:
    found, reasons = frozen("""
        loop = While(x) {T=(float32), cond=@small, body=@step}
        read = ReadVariableOp(v, ^loop) {dtype=float32}
        y = AddV2(read, loop)

        function small(x: float32) -> (r: bool) {
          ten = Const() {dtype=float32, value=float32[]:10}
          zero = Const() {dtype=int32, value=int32[1]:[0]}
          sum = Sum(x, zero:output:0) {T=float32}
          r = Less(sum:output:0, ten:output:0) {T=float32}
          return r = r:z:0
        }
        function step(x: float32) -> (r: float32) {
          stateful
          w = VarHandleOp() {dtype=float32, shape=[2], shared_name="v"}
          one = Const() {dtype=float32, value=float32[2]:[1, 1]}
          add = AssignAddVariableOp(w:resource:0, one:output:0) {dtype=float32}
          r = AddV2(x, one:output:0, ^add) {T=float32}
          return r = r:z:0
          control_return add = add
        }
    """)
    assert reasons == {"v": "step/w (VarHandleOp) may access it in a function"}
    session = cfgraph.Session(found)
    assert "ReadVariableOp" in session.graph.ops


def test_values_of_variables_are_checked() -> None:
    text = V + "y = ReadVariableOp(v) {dtype=float32}"
    text += """
    n = VarHandleOp() {dtype=int32, shape=[], shared_name="n"}
    """
    for values, message in (
        ({"v": "abc"}, "the value of v is not float32"),
        ({"n": 1.5}, "the value of n is not int32"),
        ({"n": 2**40}, "the value of n is not int32"),
        ({"v": [1.0]}, r"the value of v has shape \[1\], expected \[2\]"),
    ):
        with pytest.raises(UsageError, match=message):
            cfgraph.freeze(graph(text), values, outputs=["y"])
    warned = cfgraph.freeze(graph(text), {"V": [1.0, 2.0]}, outputs=["y"])
    assert warned.warnings == ("the graph has no variable named V",)
    k = graph("k = Placeholder() {dtype=int32, shape=[]}\ny = Neg(k)")
    with pytest.raises(UsageError, match="the value of k:0 is not int32"):
        cfgraph.freeze(k, outputs=["y"], values={"k": 1.5})


def test_a_table_of_a_branch_that_never_runs_goes() -> None:
    found = graph("""
        p = Placeholder() {dtype=bool, shape=[]}
        word = Placeholder() {dtype=string, shape=[]}
        table = HashTableV2() {key_dtype=string, value_dtype=int64, shared_name="t"}
        keys = Const() {dtype=string, value=string[1]:["a"]}
        ids = Const() {dtype=int64, value=int64[1]:[3]}
        init = LookupTableImportV2(table, keys, ids)
        s = Switch(word, p)
        none = Const() {dtype=int64, value=int64[]:-1}
        looked = LookupTableFindV2(table, s:1, none)
        length = StringLength(s:0)
        cast = Cast(length) {DstT=int64}
        joined = Merge(looked, cast)
        y = Identity(joined)
    """)
    kept = copy_graph(found)
    assert [table.initializers for table in cfgraph.freeze(kept, outputs=["y"]).tables] == [
        ("init",)
    ]
    report = cfgraph.freeze(found, outputs=["y"], values={"p": False})
    assert report.tables == ()
    assert not report.warnings
    assert not {"HashTableV2", "LookupTableImportV2"} & found.ops


def test_names_of_all_rounds_are_composed() -> None:
    text = """
        one = ReadVariableOp(u) {dtype=float32}
        m = Mul(x, read)
        i = Identity(m)
        read = ReadVariableOp(v) {dtype=float32}
        y = AddV2(i, one)
    """
    found = graph(V + text)
    report = cfgraph.freeze(found, {"v": [1.0, 1.0], "u": [0.5, 0.5]}, outputs=["y"])
    assert report.names["i:0"] == ("x:0",)
    assert report.names["m:0"] == ("x:0",)
    assert all(name.rpartition(":")[0] in found for (name,) in report.names.values())


def test_a_handle_that_is_an_input_is_named() -> None:
    found = graph("""
        h = Placeholder() {dtype=resource, shape=[]}
        y = ReadVariableOp(h) {dtype=float32}
    """)
    (warning,) = cfgraph.freeze(found, outputs=["y"]).warnings
    assert warning == "no variables for the inputs h:0, which are handles; freeze the SavedModel"
