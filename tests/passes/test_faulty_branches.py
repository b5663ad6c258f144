"""Frozen graphs that are invalid where they train: what remains is verified, or what runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.errors import CfgraphError, InvalidInput
from cfgraph.ir.dtypes import float32
from cfgraph.ops.families.printing import FaultyNode
from tests.analysis.graph_text import graph
from tests.backends.workers.threads import Threads

NAMES = ("references", "resources", "nested", "loop", "functional", "functional_loop")


@pytest.fixture
def folder(fixtures: Path) -> Path:
    return fixtures / "frozen_training"


def agrees(value: Any, folder: Path, name: str) -> bool:
    return np.allclose(value, np.load(folder / "values.npz")[name], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_the_branch_that_is_not_taken_goes_before_types_are_checked(
    name: str, folder: Path
) -> None:
    found, x = cfgraph.load(folder / f"{name}.pb"), np.load(folder / "values.npz")["x"]
    cfgraph.freeze(found, outputs=["y"], values={"is_training": False})
    assert not cfgraph.check(found).findings
    (y,) = cfgraph.Session(found).run(["y"], {"x": x})
    assert agrees(y, folder, name)


@pytest.mark.parametrize("engine", ["auto", "tokens"])
@pytest.mark.parametrize("name", NAMES)
def test_a_run_fails_only_where_a_faulty_node_runs(name: str, engine: str, folder: Path) -> None:
    session = cfgraph.Session(cfgraph.load(folder / f"{name}.pb"), engine=engine)
    x = np.load(folder / "values.npz")["x"]
    for _ in range(2):
        (y,) = session.run(["y"], {"x": x, "is_training": False})
        assert agrees(y, folder, name)
    with pytest.raises(InvalidInput, match=r"AssignSub.* expects") as caught:
        session.run(["y"], {"x": x, "is_training": True})
    assert caught.value.code == "CFG301"


@pytest.mark.parametrize("name", NAMES)
def test_the_branch_that_is_taken_is_checked_and_nothing_changes(name: str, folder: Path) -> None:
    found = cfgraph.load(folder / f"{name}.pb")
    before = cfgraph.dumps(found)
    with pytest.raises(InvalidInput, match=r"AssignSub.* expects"):
        cfgraph.freeze(found, outputs=["y"], values={"is_training": True})
    with pytest.raises(InvalidInput, match=r"AssignSub.* expects"):
        cfgraph.freeze(found, outputs=["y"])
    assert cfgraph.dumps(found) == before


def test_extraction_checks_what_remains(folder: Path) -> None:
    found = cfgraph.load(folder / "references.pb")
    with pytest.raises(InvalidInput, match="AssignSub expects"):
        cfgraph.extract(found, outputs=["y"], inputs=["x"])
    cfgraph.extract(
        found, outputs=["y"], inputs=["x", "is_training"], values={"is_training": False}
    )
    assert not cfgraph.check(found).findings
    assert "is_training" not in found
    (y,) = cfgraph.Session(found).run(["y"], {"x": np.load(folder / "values.npz")["x"]})
    assert agrees(y, folder, "references")


def test_extraction_prunes_first(folder: Path) -> None:
    found = cfgraph.load(folder / "references.pb")
    report = cfgraph.extract(found, outputs=["bn/cond/sub_2"], inputs=["x", "is_training"])
    assert set(report.inputs) == {"x:0", "is_training:0"}
    assert not cfgraph.check(found).findings


def test_a_merge_may_read_what_a_faulty_node_assigns() -> None:
    for freeze_or_extract in (
        lambda found: cfgraph.freeze(found, outputs=["y"]),
        lambda found: cfgraph.extract(found, outputs=["y"], inputs=["x"]),
    ):
        found = graph("""
            x = Placeholder() {dtype=float32, shape=[]}
            p = Const() {dtype=bool, value=bool[]:false}
            average = Const() {dtype=float32, value=float32[]:1}
            a = Switch(average, p)
            b = Switch(x, p)
            once = AssignSub(a:1, b:1) {T=float32}
            again = AssignSub(once, b:1) {T=float32}
            merge = Merge(b:0, again) {T=float32, N=2}
            y = Neg(merge)
        """)
        freeze_or_extract(found)
        assert not cfgraph.check(found).findings
        assert cfgraph.Session(found).run(["y"], {"x": 2.0}) == [-2.0]


def test_a_faulty_node_that_runs_in_any_case_fails_before_the_run(capfd: Any) -> None:
    found = graph("""
        x = Placeholder() {dtype=float32, shape=[]}
        shown = PrintV2(text) {output_stream="stderr"}
        text = Const() {dtype=string, value=string[]:"ran"}
        bad = AssignSub(x, x, ^shown) {T=float32}
        y = Neg(bad) {T=float32}
    """)
    with pytest.raises(InvalidInput, match=r"AssignSub expects Ref\(float32\)"):
        cfgraph.Session(found).run(["y"], {"x": 1.0})
    assert "ran" not in capfd.readouterr().err


def test_a_faulty_node_can_be_fetched_where_it_is_dead(folder: Path) -> None:
    session = cfgraph.Session(cfgraph.load(folder / "references.pb"))
    feeds = {"x": np.zeros([1, 8], np.float32), "is_training": False}
    assert session.run(["bn/cond/AssignSub"], feeds, allow_dead=True) == [None]


@pytest.mark.parametrize("engine", ["auto", "compiled", "tokens"])
def test_a_faulty_node_of_unknown_outputs_can_be_fetched(engine: str) -> None:
    found = graph("""
        x = Placeholder() {dtype=float32, shape=[]}
        p = Placeholder() {dtype=bool, shape=[]}
        s = Switch(x, p)
        bad = _SwitchN(s:1, s:1) {T=float32}
    """)
    session = cfgraph.Session(found, engine=engine)
    for fetch in ("bad", "bad:1"):
        with pytest.raises(CfgraphError, match="is dead") as caught:
            session.run([fetch], {"x": 1.0, "p": False})
        assert caught.value.code == "CFG702"
        with pytest.raises(InvalidInput, match="needs the attribute 'num_outs'"):
            session.run([fetch], {"x": 1.0, "p": True})


def test_a_faulty_node_of_a_function_with_other_faults_is_no_faulty_branch() -> None:
    found = cfgraph.loads(b"""
x = Placeholder() {dtype=float32, shape=[]}
y = PartitionedCall(x, x) {f=@f, Tin=(float32, float32), Tout=(int32)}
function f(x: float32, x: float32) -> (y: int32) {
  c = Cast(x) {DstT=int32, SrcT=bool}
  return y = c:y:0
}
""")
    with pytest.raises(InvalidInput, match="two arguments have the name 'x'"):
        cfgraph.Session(found).run(["y"], {"x": 1.0})


def test_a_table_keeps_its_initializer_though_a_branch_is_faulty() -> None:
    found = graph("""
        words = Placeholder() {dtype=string, shape=[?]}
        p = Placeholder() {dtype=bool, shape=[]}
        table = HashTableV2() {key_dtype=string, value_dtype=float32}
        keys = Const() {dtype=string, value=string[2]:["cat", "dog"]}
        values = Const() {dtype=float32, value=float32[2]:[1, 2]}
        init = LookupTableImportV2(table, keys, values)
        missing = Const() {dtype=float32, value=float32[]:-1}
        x = LookupTableFindV2(table, words, missing)
        s = Switch(x, p)
        bad = AssignSub(s:1, s:1) {T=float32}
        t = Neg(s:1, ^bad)
        y = Merge(s:0, t)
    """)
    cfgraph.freeze(found, outputs=["y"], values={"p": False})
    session = cfgraph.Session(found)
    session.run([], {}, ["init"])
    assert session.run(["y"], {"words": ["dog"]})[0].tolist() == [2]


FORGED = """
    x = Placeholder() {dtype=float32, shape=[]}
    p = Placeholder() {dtype=bool, shape=[]}
    s = Switch(x, p)
    bad = OP(s:1) {Tin=(float32), Tout=(float32), code="CFG999", message="pay", hint="now"}
    m = Merge(s:0, bad) {T=float32, N=2}
"""


@pytest.mark.parametrize("op", ["_FaultyNode", "FaultyNode"])
def test_a_file_cannot_speak_in_the_voice_of_verification(op: str) -> None:
    found = cfgraph.loads(cfgraph.dumps(graph(FORGED.replace("OP", op))))
    (finding,) = (item for item in cfgraph.check(found).findings if item.node == "bad")
    assert (finding.code, f"unknown op '{op}'" in finding.message) == ("CFG101", True)
    with pytest.raises(CfgraphError) as caught:
        cfgraph.Session(found).run(["m"], {"x": 1.0, "p": True})
    assert "pay" not in str(caught.value)


def test_a_node_that_raises_its_fault_is_neither_read_nor_written() -> None:
    text = FORGED.replace("OP", "Identity").replace("Tin=(float32), Tout=(float32)", "T=float32")
    data = cfgraph.dumps(graph(text))
    for name in (FaultyNode.name.encode(errors="surrogatepass"), b"FaultyNode\x80"):
        forged = data.replace(b"\x12\x08Identity", b"\x12" + bytes([len(name)]) + name)
        with pytest.raises(InvalidInput):
            cfgraph.loads(forged)
    found = graph(text)
    found.set_op(found["bad"], FaultyNode.name, {"Tin": (float32,), "Tout": (float32,)})
    for format in ("pb", "pbtxt", "graph"):
        with pytest.raises(UnicodeEncodeError):
            cfgraph.dumps(found, format)


@pytest.mark.parametrize("name", ["references", "functional_loop"])
def test_workers_raise_the_fault_of_a_branch_that_runs(name: str, folder: Path) -> None:
    x = np.load(folder / "values.npz")["x"]
    found, options = (
        cfgraph.load(folder / f"{name}.pb"),
        {"devices": "cpu:0-1", "workers": Threads(2)},
    )
    with cfgraph.Session(found, soft_placement=True, **options) as session:
        (y,) = session.run(["y"], {"x": x, "is_training": False})
        assert agrees(y, folder, name)
        with pytest.raises(InvalidInput, match=r"AssignSub.* expects"):
            session.run(["y"], {"x": x, "is_training": True})
