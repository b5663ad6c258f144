"""Updates of variables that outputs wait for, but do not read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.runtime.engine.step import State
from tests.analysis.graph_text import graph

# the power iteration of a spectral norm, as in BigGAN: `u` is stored whenever `w` is used
NORM = """
    x = Placeholder() {dtype=float32, shape=[?,2]}
    w = VarHandleOp() {dtype=float32, shape=[2,2], shared_name="w"}
    u = VarHandleOp() {dtype=float32, shape=[1,2], shared_name="u"}
    w/read = ReadVariableOp(w) {dtype=float32}
    u/read = ReadVariableOp(u) {dtype=float32}
    v = MatMul(u/read, w/read)
    u/new = MatMul(v, w/read) {transpose_b=true}
    u/assign = AssignVariableOp(u, u/new) {dtype=float32}
    group = NoOp(^u/assign)
    w/used = Identity(w/read, ^group)
    y = MatMul(x, w/used)
"""
VALUES = {"w": np.array([[1, 2], [3, 4]], np.float32), "u": np.array([[0.5, 1]], np.float32)}


def test_an_update_that_is_only_awaited_stays_and_the_option_is_named() -> None:
    found = graph(NORM)
    report = cfgraph.freeze(found, VALUES, outputs=["y"])
    assert {item.name: item.frozen for item in report.variables} == {"u": False, "w": True}
    (warning,) = report.warnings
    assert "u/assign" in warning
    assert "--drop-updates" in warning


def test_an_update_that_is_only_awaited_is_dropped_on_request() -> None:
    found = graph(NORM)
    report = cfgraph.freeze(found, VALUES, outputs=["y"], drop_updates=True)
    assert report.updates == ("u/assign",)
    assert any("u/assign" in warning for warning in report.warnings)
    assert {node.name for node in found} == {"x", "w", "y"}
    (y,) = cfgraph.Session(found).run(["y"], {"x": [[1.0, 1.0]]})
    assert y.tolist() == [[4.0, 6.0]]


@pytest.mark.parametrize(
    "order",
    [
        "after = ReadVariableOp(u, ^u/assign) {dtype=float32}",
        "after = ReadVariableOp(u, ^group) {dtype=float32}",
        "after = ReadVariableOp(u, ^w/used) {dtype=float32}",
        """step = Identity(u, ^group)
        after = ReadVariableOp(step) {dtype=float32}""",
        """again = VarHandleOp() {dtype=float32, shape=[1,2], shared_name="u"}
        after = ReadVariableOp(again, ^y) {dtype=float32}""",
    ],
)
def test_an_update_stays_if_its_variable_is_read_after_it(order: str) -> None:
    text = NORM + order + "\n z = MatMul(y, after) {transpose_b=true}\n"
    original, found = graph(text), graph(text)
    report = cfgraph.freeze(found, VALUES, outputs=["z"], drop_updates=True)
    assert report.updates == ()
    (warning,) = report.warnings
    assert "kept updates" in warning
    assert "u/assign" in warning
    before, after = (_initialized_run(item, "z") for item in (original, found))
    assert before.tolist() == after.tolist()


def _initialized_run(found: cfgraph.Graph, fetch: str) -> Any:
    """The value of a tensor after a run that gives the variables of NORM their values."""
    text = """
        w = VarHandleOp() {dtype=float32, shape=[2,2], shared_name="w"}
        u = VarHandleOp() {dtype=float32, shape=[1,2], shared_name="u"}
        new_w = Placeholder() {dtype=float32, shape=[2,2]}
        new_u = Placeholder() {dtype=float32, shape=[1,2]}
        set_w = AssignVariableOp(w, new_w) {dtype=float32}
        set_u = AssignVariableOp(u, new_u) {dtype=float32}
    """
    state, feeds = State(), {f"new_{name}": value for name, value in VALUES.items()}
    cfgraph.Session(graph(text), state=state).run([], feeds, ["set_w", "set_u"])
    (value,) = cfgraph.Session(found, state=state).run([fetch], {"x": [[1.0, 1.0]]})
    return value


def test_an_update_through_a_reference_that_is_read_stays() -> None:
    references = graph("""
        x = Placeholder() {dtype=float32, shape=[]}
        v = VariableV2() {dtype=float32, shape=[]}
        add = AssignAdd(v, x) {T=float32}
        y = Mul(add, x)
        z = Identity(v, ^add)
    """)
    for output in ("y", "z"):
        found = cfgraph.loads(cfgraph.dumps(references))
        report = cfgraph.freeze(found, {"v": 1.0}, outputs=[output], drop_updates=True)
        assert report.updates == ()
        assert "add" in found


def test_an_update_in_a_branch_goes_and_the_branch_stays() -> None:
    found = graph("""
        x = Placeholder() {dtype=float32, shape=[]}
        p = Placeholder() {dtype=bool, shape=[]}
        v = VarHandleOp() {dtype=float32, shape=[], shared_name="v"}
        s = Switch(x, p)
        h = Switch(v, p)
        add = AssignAddVariableOp(h:1, s:1) {dtype=float32}
        t = Neg(s:1)
        kept = Identity(t, ^add)
        m = Merge(s:0, kept)
        read = ReadVariableOp(v) {dtype=float32}
        y = Mul(m, read)
    """)
    cfgraph.freeze(found, {"v": 3.0}, outputs=["y"], drop_updates=True)
    assert not {node.op for node in found} & {"AssignAddVariableOp", "VarHandleOp"}
    session = cfgraph.Session(found)
    assert session.run(["y"], {"x": 2.0, "p": True}) == [-6.0]
    assert session.run(["y"], {"x": 2.0, "p": False}) == [6.0]
