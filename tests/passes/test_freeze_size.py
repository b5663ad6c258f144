"""A frozen graph has each weight once, and nothing that no output needs."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import cfgraph
from cfgraph.ir.graph import Graph
from tests.analysis.graph_text import graph


def frozen(folder: Path, name: str, checkpoint: str, output: str, **values: bool) -> Graph:
    found = cfgraph.load(folder / name)
    state = cfgraph.restore(folder / checkpoint, found)
    cfgraph.freeze(found, state, outputs=[output], values=values)
    return found


def unread(found: Graph) -> list[str]:
    return [node.name for node in found if not node.uses]


@pytest.mark.parametrize(("name", "most"), [("ref", 14_800), ("res", 14_125)])
def test_a_weight_with_many_readers_is_stored_once(fixtures: Path, name: str, most: int) -> None:
    folder = fixtures / "freezing" / "weights"
    found = frozen(folder, f"{name}.pb", f"{name}.ckpt", "out")
    big = [node for node in found if node.op == "Const" and node.attr("value").array.size > 100]
    assert [node.name for node in big] == ["W"]
    assert unread(found) == ["out"]
    assert len(cfgraph.dumps(found)) <= most


def test_inference_computes_no_statistics_of_training(fixtures: Path) -> None:
    folder = fixtures / "freezing" / "moments"
    found = frozen(folder, "train.pb", "model.ckpt", "logits_set", phase_train=False)
    computed = Counter(node.op for node in found if node.op != "Const")
    assert computed == Counter(["Placeholder", "Conv2D", "Mul", "AddV2", "Relu", "Mean"])
    assert unread(found) == ["logits_set"]
    assert not any(node.controls for node in found)
    (y,) = cfgraph.Session(found).run(["logits_set"], {"input": np.load(folder / "x.npy")})
    truth = json.loads((folder / "truth.json").read_text())["infer"]
    np.testing.assert_allclose(y, truth, rtol=1e-5)


def test_scalars_are_stored_once_too() -> None:
    found = graph("""
        x = Placeholder() {dtype=float32, shape=[]}
        v = VarHandleOp() {dtype=float32, shape=[], shared_name="v"}
        a = ReadVariableOp(v) {dtype=float32}
        b = ReadVariableOp(v) {dtype=float32}
        p = Mul(x, a)
        q = Sub(p, b)
        y = Neg(q)
    """)
    cfgraph.freeze(found, {"v": 2.0}, outputs=["y"])
    assert [node.name for node in found if node.op == "Const"] == ["v"]


def test_a_weight_that_is_also_read_transposed_is_stored_once() -> None:
    found = graph("""
        x = Placeholder() {dtype=float32, shape=[1,100]}
        v = VarHandleOp() {dtype=float32, shape=[100,100], shared_name="v"}
        a = ReadVariableOp(v) {dtype=float32}
        order = Const() {dtype=int32, value=int32[2]:[1,0]}
        b = Transpose(a, order)
        h = MatMul(x, a)
        y = MatMul(h, b)
    """)
    cfgraph.freeze(found, {"v": np.ones([100, 100], np.float32)}, outputs=["y"])
    assert sum(node.op == "Const" for node in found) == 2
    assert len(cfgraph.dumps(found)) < 45_000


def test_a_check_of_values_is_still_awaited() -> None:
    found = graph("""
        x = Placeholder() {dtype=float32, shape=[?]}
        checked = CheckNumerics(x) {message="no number"}
        mean = Neg(x)
        v = VarHandleOp() {dtype=float32, shape=[], shared_name="v"}
        a = ReadVariableOp(v, ^checked, ^mean) {dtype=float32}
        y = Mul(x, a)
    """)
    cfgraph.freeze(found, {"v": 2.0}, outputs=["y"])
    assert "mean" not in found
    with pytest.raises(cfgraph.errors.CfgraphError, match="no number"):
        cfgraph.Session(found).run(["y"], {"x": [float("nan")]})
