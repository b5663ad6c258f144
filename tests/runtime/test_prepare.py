from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cfgraph
from cfgraph.errors import InvalidInput
from cfgraph.runtime.session import Session
from tests.passes.functional_graphs import calls, conditional, graph_of, loop
from tests.runtime.partitioned_graphs import A, B

GRAPHS = Path(__file__).parents[2] / "fixtures" / "graphs"
FEEDS = {"pred:0": True, "x0:0": 1, "x1:0": 2}


def test_a_functional_graph_runs_and_stays_as_it_is() -> None:
    graph = graph_of(loop(2, 1, 1))
    names = list(graph.nodes)
    feeds = {"x0:0": 4, "x1:0": 1, "x2:0": 3}
    assert Session(graph).run(["while:0", "while:1", "while:2"], feeds) == [10, 7, 3]
    assert list(graph.nodes) == names


@pytest.mark.parametrize(("fetch", "expected"), [("b:0", 18), ("c:0", -18)])
def test_a_run_on_several_devices_leaves_those_of_the_graph(fetch: str, expected: int) -> None:
    # c:0 needs the whole graph, and b:0 a part of it
    graph = graph_of(
        "x = Placeholder() {dtype=float32, shape=[]}\n"
        f'a = AddV2(x, x) {{T=float32}} @"{A}"\n'
        f'b = Mul(a, x) {{T=float32}} @"{B}"\n'
        "c = Neg(b) {T=float32}\n"
    )
    devices = {node.name: node.device for node in graph}
    for engine in ("auto", "tokens"):
        session = Session(graph, devices="cpu:0-1", engine=engine)
        assert session.run([fetch], {"x:0": np.float32(3)}) == [expected]
        assert {node.name: node.device for node in graph} == devices
        (prepared,) = session._prepared
        compiled = prepared.run.compiled
        if engine == "auto":
            assert compiled is not None
            chosen = {node.name: device for node, device in compiled.device_of.items()}
            assert (chosen["a"], chosen["b"]) == (A, B)


@pytest.mark.parametrize("outputs", [1, 2])
def test_an_output_of_a_functional_node_can_be_fed(outputs: int) -> None:
    port = outputs - 1
    text = conditional(2, outputs) + f"out = Neg(if:{port}) {{T=int32}}\n"
    session = Session(graph_of(text))
    tensors = ["out:0", f"if:{port}"]
    assert session.run(tensors, {f"if:{port}": 7, **FEEDS}) == [-7, 7]
    assert session.run(["out:0"], {f"if:{port}": 7}) == [-7]
    assert session.run(["out:0"], FEEDS) == [-3]


@pytest.mark.parametrize("engine", ["tokens", "compiled", "auto"])
def test_the_index_of_a_device_is_that_of_the_chosen_one(engine: str) -> None:
    b = cfgraph.Builder()
    b.DeviceIndex(device_names=[b"CPU", b"GPU"], name="index")
    b.graph.set_device(b.graph["index"], "/device:GPU:0")
    options = {"engine": engine, "devices": "cpu:0-1", "soft_placement": True}
    assert Session(b.graph, **options).run(["index:0"]) == [0]


def test_a_call_by_the_name_of_its_function_can_be_fed() -> None:
    text = calls(1) + "named = outer(call0)\nout = Neg(named) {T=int32}\n"
    assert Session(graph_of(text)).run(["out:0"], {"named:0": 7}) == [-7]
    assert Session(graph_of(text)).run(["out:0", "call0:0"], {"call0:0": 7, "x:0": 1}) == [-8, 7]


def test_a_function_that_nobody_calls_may_be_wrong() -> None:
    wrong = (
        "function wrong(x: int32) -> (y: int32) {\n  z = Neg(x) {T=int32}\n  return y = z:0:7\n}\n"
    )
    graph = graph_of(loop(2, 1, 1) + wrong)
    assert Session(graph).run(["while:0"], {"x0:0": 4, "x1:0": 1, "x2:0": 3}) == [10]
    with pytest.raises(InvalidInput, match="'y' of the function is 'z:0:7'"):
        cfgraph.lower(graph)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators have other rules")
def test_a_run_reuses_the_memory_that_the_one_before_freed() -> None:
    code = (
        "import resource, sys\n"
        "import numpy as np\n"
        "import cfgraph\n"
        "session = cfgraph.Session(cfgraph.load(sys.argv[1]))\n"
        "feeds = {'W:0': np.ones((512, 1024), np.float32)}\n"
        "feeds['x:0'] = np.ones((30, 32, 256), np.float32)\n"
        "faults = []\n"
        "for _ in range(3):\n"
        "    session.run(['loss:0', 'dW:0'], feeds)\n"
        "    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)\n"
        "print(faults[-1] - faults[-2])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(GRAPHS / "lstm_grad.pb")], capture_output=True, check=True
    )
    # the stacks alone have 2,000 pages
    assert int(done.stdout) < 1000
