"""Virtual time: the times of the cost model, to the nanosecond, and the values of any run."""

from __future__ import annotations

import cProfile
import gc
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import cfgraph
from cfgraph.errors import ExecutionError, InvalidInput, UsageError
from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import AbstractTensor
from cfgraph.runtime.cost_model import CostModel, read_costs
from examples.paper.distributed_loops import counting_loop
from tests.recorder import Recorder
from tests.runtime.graphs import session
from tests.runtime.partitioned_graphs import counting, partitioned

COSTS = """
schema = "cfgraph.costs/1"
[devices."*"]
flops = 1e9
bytes = 1e9
launch = 1e-6
control = 5e-7
[links."*>*"]
latency = 1e-5
bandwidth = 1e9
[kernels."cpu:1"]
Square = 3e-6
"""
RELAY = partitioned(
    A="x = Const() {dtype=float32, value=float32[2]:[1,2]}\ns_x = _Send(x) {SEND A->B x}",
    B="r_x = _Recv() {RECV A->B x float32}\nneg = Neg(r_x)\nout = Square(neg)",
)


@pytest.fixture
def costs(tmp_path: Path) -> CostModel:
    file = tmp_path / "costs.toml"
    file.write_text(COSTS)
    return read_costs(str(file))


def test_every_token_begins_and_ends_when_the_model_says(costs: CostModel) -> None:
    recorder = Recorder()
    relay = session(RELAY, costs=costs)
    (value,) = relay.run(["out:0"], trace=recorder)
    assert value.tolist() == [1, 4]
    assert {event.node: (event.start_ns, event.end_ns) for event in recorder.events} == {
        "x": (0, 500),  # control: no kernel is launched
        "s_x": (500, 1000),
        # 8 bytes at 1 ns, then the latency
        "r_x": (11008, 11508),
        # launch, and 16 bytes read and written
        "neg": (11508, 12524),
        "out": (12524, 15524),  # the table
    }
    assert relay.elapsed == pytest.approx(15.524e-6, rel=1e-12)


def test_values_are_those_of_any_run_and_times_those_of_every_run(costs: CostModel) -> None:
    runs = []
    for _ in range(2):
        recorder = Recorder()
        assert session(counting(), costs=costs).run(["out:0"], {"n": 9}, trace=recorder) == [9]
        runs.append(recorder.events)
    assert runs[0] == runs[1]


def test_a_device_does_one_token_after_the_other(costs: CostModel) -> None:
    recorder = Recorder()
    session(counting(), costs=costs).run(["out:0"], {"n": 5}, trace=recorder)
    for device in ("cpu:0", "cpu:1"):
        spans = [(one.start_ns, one.end_ns) for one in recorder.events if one.device == device]
        assert spans == sorted(spans)
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))


@pytest.mark.parametrize(("duplex", "arrivals"), [("full", (3, 3)), ("half", (3, 5))])
def test_a_wire_takes_one_message_at_a_time_each_way_or_both(
    duplex: str, arrivals: tuple[int, int]
) -> None:
    text = partitioned(
        A="x = Placeholder() {dtype=float32, shape=[2]}\ns = _Send(x) {SEND A->B x}\n"
        "out_a = _Recv() {RECV B->A y float32}",
        B="y = Placeholder() {dtype=float32, shape=[2]}\nt = _Send(y) {SEND B->A y}\n"
        "out_b = _Recv() {RECV A->B x float32}",
    )
    model = CostModel(
        {"*": {"launch": 1.0, "control": 0.0}},
        {"cpu:*>cpu:*": {"latency": 1.0, "bandwidth": 4.0, "duplex": duplex}},
    )
    recorder = Recorder()
    feeds = {"x": [1.0, 2.0], "y": [3.0, 4.0]}
    session(text, costs=model).run(["out_a:0", "out_b:0"], feeds, trace=recorder)
    seconds = sorted(one.start_ns // 10**9 for one in recorder.events if one.kind == "recv")
    assert tuple(seconds) == arrivals


def test_overlap_pays_as_far_as_parallel_iterations_let_it(costs: CostModel) -> None:
    """The message of an iteration takes longer than its work; the loop itself stays on A."""
    text = counting(9).replace("add = _Recv(^merge)", "unread = _Recv(^merge)") + partitioned(
        A="step = Const(^body) {dtype=int32, value=int32[]:1}\nadd = AddV2(body, step)"
    )
    elapsed = {}
    for parallel in (1, 9):
        run = session(text.replace("iterations=9", f"iterations={parallel}"), costs=costs)
        assert run.run(["out:0"], {"n": 50}, ["unread"]) == [50]
        elapsed[parallel] = run.elapsed or 0.0
    assert elapsed[1] > 2 * elapsed[9]


def test_a_run_ends_at_an_iteration_on_all_devices(costs: CostModel) -> None:
    cpus = [f"/device:CPU:{k}" for k in range(3)]
    text = counting_loop(cpus[0], cpus, barrier=False, parallel=4)
    graph = cfgraph.loads(text.encode(), "graph")
    stopping = cfgraph.Session(graph, devices="cpu:0-2", costs=costs)
    fetches = [f"out{place}:0" for place in range(3)]
    assert stopping.run(fetches, {"n": 10**6}, until_iteration=20) == [None] * 3
    assert stopping.stopped_at == 20
    first = stopping.elapsed or 0.0
    stopping.run(fetches, {"n": 10**6}, until_iteration=40)
    assert (stopping.elapsed or 0.0) == pytest.approx(2 * first, rel=0.1)
    assert stopping.run(fetches, {"n": 3}, until_iteration=20) == [3] * 3
    assert stopping.stopped_at is None


def test_a_deadlock_is_explained_in_virtual_time_too(costs: CostModel) -> None:
    text = RELAY.replace('tensor_name="x"', 'tensor_name="z"', 1)
    with pytest.raises(ExecutionError, match="'r_x' on cpu:1, frame /, waits for 'x' from cpu:0"):
        session(text, costs=costs).run(["out:0"])


def test_virtual_time_has_one_schedule() -> None:
    with pytest.raises(UsageError, match="only the fifo schedule"):
        session(RELAY, costs=CostModel(), schedule="random")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[devices", "the file is not valid TOML"),
        ('schema = "cfgraph.costs/9"', "schema is 'cfgraph.costs/9'"),
        ("[device]", "device is unknown; did you mean 'devices'"),
        ('[devices."gpu:0"]\nflop = 1', "devices.\"gpu:0\".flop is unknown; did you mean 'flops'"),
        ('[devices."gpu:0"]\nflops = 0', 'devices."gpu:0".flops is 0, expected a positive'),
        ('[devices."gpu:0"]\nflops = "1"', 'devices."gpu:0".flops is not a number'),
        ('[links."gpu:0"]\nlatency = 1', "does not name source and destination"),
        ('[links."a>b"]\nduplex = "no"', "expected 'full' or 'half'"),
        ("[kernels]\nMatMul = 1", 'kernels."MatMul" is not a table'),
    ],
)
def test_a_cost_model_that_is_wrong_is_refused_by_entry(
    text: str, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "costs.toml"
    file.write_text(text)
    with pytest.raises(InvalidInput) as caught:
        read_costs(str(file))
    assert message in caught.value.message
    assert caught.value.path == str(file)


# -- without values --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "fetches"),
    [
        ("lstm_grad.pb", ["loss:0", "dW:0"]),
        ("eight_devices_barrier.pb", ["out0:0", "out7:0"]),
    ],
)
def test_the_clock_shows_the_same_without_values(
    name: str, fetches: list[str], fixtures: Path, costs: CostModel
) -> None:
    graph = cfgraph.load(fixtures / "graphs" / name)
    feeds = {
        "eight_devices_barrier.pb": {"n:0": 5},
        "lstm_grad.pb": {
            "W:0": np.ones((512, 1024), np.float32),
            "x:0": np.ones((3, 32, 256), np.float32),
        },
    }[name]
    whole = cfgraph.Session(graph, devices="cpu:0-7", costs=costs)
    bare = cfgraph.Session(graph, devices="cpu:0-7", costs=costs)
    values = whole.run(fetches, feeds)
    outlines = bare.run(fetches, feeds, without_values=True)
    assert bare.elapsed == whole.elapsed
    for value, outline in zip(values, outlines, strict=True):
        assert isinstance(outline, AbstractTensor)
        assert (outline.shape, outline.dtype) == (value.shape, value.dtype)
        assert (outline.nbytes, outline.ndim) == (value.nbytes, value.ndim)


def test_what_a_predicate_needs_is_computed_on_the_other_device_too(costs: CostModel) -> None:
    run = session(counting(), costs=costs)
    assert run.run(["out:0"], {"n": 4}, without_values=True) == [4]


def test_a_shape_that_depends_on_values_names_its_node(costs: CostModel) -> None:
    text = "x = Placeholder() {dtype=float32, shape=[3]}\ny = Neg(x)\nout = Where(y)\n"
    with pytest.raises(ExecutionError, match="the shape of out:0 depends on values") as caught:
        session(text, costs=costs).run(["out:0"], {"x": [1, 0, 2]}, without_values=True)
    assert caught.value.node == "out"


def test_values_are_left_out_in_virtual_time_only() -> None:
    with pytest.raises(UsageError, match="only a run with a virtual clock"):
        session(RELAY).run(["out:0"], without_values=True)


def calls_until(devices: int) -> int:
    """Function calls of a run of 6 iterations of a loop on this many GPUs."""
    gpus = [f"/device:GPU:{k}" for k in range(devices)]
    text = counting_loop("/device:CPU:0", gpus, barrier=False, parallel=32)
    loop = cfgraph.Session(
        cfgraph.loads(text.encode(), "graph"),
        devices=f"cpu:0,gpu:0-{devices - 1}",
        costs=CostModel(),
    )
    fetches, feeds = [f"out{k}:0" for k in range(devices)], {"n:0": np.int32(100)}
    loop.run(fetches, feeds, until_iteration=1, without_values=True)
    profile = cProfile.Profile()
    profile.runcall(loop.run, fetches, feeds, until_iteration=6, without_values=True)
    return sum(entry.callcount for entry in profile.getstats())


def test_a_run_that_stops_at_an_iteration_looks_at_no_other_device() -> None:
    few, many = calls_until(8), calls_until(64)
    assert many < 9 * few


@pytest.mark.parametrize(("device", "count"), [("gpu:0", 500), ("cpu:0", 1000)])
def test_only_what_launches_a_kernel_is_charged_a_launch(
    costs: CostModel, device: str, count: int
) -> None:
    graph = cfgraph.loads(
        b"x = Const() {dtype=float32, value=float32[2]:[1,2]}\n"
        b"same = Identity(x)\nshape = Shape(same)\nfirst = Sum(shape, axis)\n"
        b"axis = Const() {dtype=int32, value=int32[]:0}\n",
        "graph",
    )
    recorder = Recorder()
    cfgraph.Session(graph, devices=device, costs=costs).run(["first:0"], trace=recorder)
    took = {event.node: event.end_ns - event.start_ns for event in recorder.events}
    assert {took[name] for name in ("x", "same", "shape", "axis")} == {500}
    assert took["first"] // 100 * 100 == count


def test_a_cost_model_retains_no_nodes() -> None:
    def run(model: CostModel) -> None:
        b = cfgraph.Builder()
        b.Tanh(b.placeholder("x", "float32", []), name="mortal")
        cfgraph.Session(b.graph, costs=model).run(["mortal:0"], {"x:0": 1.0})

    model = CostModel()
    run(model)
    for _ in range(2):  # what the first one ends may end more
        gc.collect()
    nodes = [each for each in gc.get_objects() if isinstance(each, Node)]
    assert "mortal" not in [node.name for node in nodes]
