from __future__ import annotations

import json

import numpy as np
import pytest

import cfgraph
from cfgraph.ir.attrs import Func
from cfgraph.ir.dtypes import float32
from cfgraph.ir.functions import BodyNode, Function, FunctionDefinition
from cfgraph.ir.graph import Graph
from cfgraph.ir.library import select_implementation
from cfgraph.ir.signature import ArgDef
from tests.shell import run_line


def implementation(name: str, op: str, **attrs: bytes) -> Function:
    x, y = ArgDef("x", float32, None), ArgDef("y", float32, None)
    body = BodyNode("z", op, ("x",), attrs={"T": float32})
    return Function(name, FunctionDefinition((x,), (y,), {}, (body,), {"y": "z:y:0"}, attrs=attrs))


def called(device: str = "") -> Graph:
    """A call of `any`, whose sibling for a CPU negates instead of squaring."""
    graph = Graph()
    for function in (
        implementation("any", "Square", api_implements=b"f"),
        implementation("cpu", "Neg", api_implements=b"f", api_preferred_device=b"CPU"),
        implementation("gpu", "Exp", api_implements=b"f", api_preferred_device=b"GPU"),
        implementation("other", "Neg", api_implements=b"g", api_preferred_device=b"TPU"),
    ):
        graph.functions[function.name] = function
    x = graph.add("Placeholder", name="x", dtype=float32)
    attrs = {"Tin": (float32,), "Tout": (float32,), "f": Func("any", {})}
    call = graph.create("call", "PartitionedCall", attrs=attrs, device=device)
    graph.connect(call, [x.output()], [])
    return graph


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("", "cpu"),
        ("/device:CPU:1", "cpu"),
        ("/job:w/device:GPU:0", "gpu"),
        ("/device:TPU:0", "any"),
    ],
)
def test_the_device_of_a_call_selects_the_implementation(device: str, name: str) -> None:
    assert select_implementation(called().functions, "any", device) == name


def test_a_run_and_lowering_take_the_selected_implementation() -> None:
    x = np.array([3.0], np.float32)
    assert cfgraph.Session(called()).run(["call:0"], {"x": x})[0].tolist() == [-3.0]
    graph = called("/device:TPU:0")
    cfgraph.lower(graph)
    assert [node.op for node in graph if node.op in ("Neg", "Square")] == ["Square"]
    assert list(graph.functions) == ["other"]


def test_explain_names_the_implementation_that_a_call_runs(tmp_path) -> None:
    cfgraph.save(called(), tmp_path / "g.pb")
    text = run_line("cfgraph explain g.pb call", tmp_path)
    assert "cpu" in text.stdout
    document = json.loads(run_line("cfgraph explain g.pb call --json", tmp_path).stdout)
    assert document["result"]["node"]["implementation"] == "cpu"
