"""Runs on a GPU or stand-in: the place of each computation, copies, and waits of the host."""

from __future__ import annotations

import builtins
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.backends.gpu import context as card_module
from cfgraph.backends.gpu.context import GpuContext
from cfgraph.backends.gpu.stream import GpuStream
from cfgraph.errors import ExecutionError, Unsupported, UsageError
from cfgraph.ir.shapes import AbstractTensor
from cfgraph.runtime.cost_model import CostModel
from cfgraph.runtime.engine.step import State
from tests.backends.gpu import cuda
from tests.backends.gpu.stand_in import library
from tests.recorder import Recorder

VARIABLE = """
x = Placeholder() {dtype=float32, shape=[?]} @"DEVICE"
v = VarHandleOp() {dtype=float32, shape=[?], shared_name="v"} @"DEVICE"
init = AssignVariableOp(v, x) {dtype=float32} @"DEVICE"
more = AssignAddVariableOp(v, x) {dtype=float32} @"DEVICE"
read = ReadVariableOp(v) {dtype=float32} @"DEVICE"
double = AddV2(read, read) @"DEVICE"
"""

LOOP = """
x = Placeholder() {dtype=float32, shape=[]} @"/gpu:0"
start = Enter(x) {frame_name="loop", parallel_iterations=4} @"/gpu:0"
merge = Merge(start, next) @"/gpu:0"
limit = Const(^merge) {dtype=float32, value=float32[]:100.0} @"/gpu:0"
less = Less(merge, limit) @"/gpu:0"
cond = LoopCond(less) @"/gpu:0"
switch = Switch(merge, cond) @"/gpu:0"
body = Identity(switch:1) @"/gpu:0"
twice = AddV2(body, body) @"/gpu:0"
next = NextIteration(twice) @"/gpu:0"
out = Exit(switch:0) @"/gpu:0"
"""

CROSSING = """
x = Placeholder() {dtype=float32, shape=[?]} @"/gpu:0"
a = Square(x) @"/gpu:0"
b = Neg(a) @"/gpu:1"
c = Exp(b) @"/cpu:0"
d = AddV2(c, a) @"/gpu:1"
"""


def session(text: str, gpu: GpuContext | str, **options: Any) -> cfgraph.Session:
    graph = cfgraph.loads(text.encode(), "graph")
    return cfgraph.Session(graph, devices="cpu:0,gpu:0-1", gpu=gpu, **options)


def variable(device: str, state: State, gpu: GpuContext | str) -> cfgraph.Session:
    return session(VARIABLE.replace("DEVICE", device), gpu, state=state)


def test_a_variable_stays_on_the_card_and_is_wherever_a_later_run_wants_it(
    card: GpuContext,
) -> None:
    state = State()
    variable("/gpu:0", state, card).run([], {"x": [1.0, 2.0]}, ["init"])
    (cell,) = state.objects()
    assert type(cell.value) is card.array
    assert variable("/gpu:1", state, card).run("double:0")[0].tolist() == [2, 4]
    assert type(cell.value) is card.array
    variable("/cpu:0", state, card).run([], {"x": [1.0, 1.0]}, ["more"])
    assert type(cell.value) is np.ndarray
    variable("/gpu:0", state, card).run([], {"x": [1.0, 1.0]}, ["more"])
    assert type(cell.value) is card.array
    assert variable("/gpu:0", state, "simulated").run("double:0")[0].tolist() == [6, 8]
    assert type(cell.value) is np.ndarray


def test_a_variable_on_the_card_is_not_copied_from_run_to_run() -> None:
    state, gpu = State(), GpuContext(library)
    run = variable("/gpu:0", state, gpu)
    run.run([], {"x": [1.0, 2.0]}, ["init"])
    (cell,) = state.objects()
    before = cell.value
    assert run.run("double:0")[0].tolist() == [2, 4]
    assert cell.value is before


def test_a_variable_that_is_read_by_reference_is_where_it_is_read(card: GpuContext) -> None:
    text = """
v = VariableV2() {dtype=float32, shape=[2]} @"DEVICE"
x = Placeholder() {dtype=float32, shape=[2]} @"DEVICE"
init = Assign(v, x) @"DEVICE"
double = AddV2(v, v) @"DEVICE"
"""
    state = State()
    for device in ("/gpu:0", "/cpu:0", "/gpu:1"):
        run = session(text.replace("DEVICE", device), card, state=state)
        if not len(state):
            run.run([], {"x": [1.0, 2.0]}, ["init"])
        assert run.run("double:0")[0].tolist() == [2, 4]


def test_a_predicate_that_is_read_by_reference_is_brought_to_the_host(
    card: GpuContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
b = Placeholder() {dtype=bool, shape=[]} @"/gpu:0"
x = Placeholder() {dtype=float32, shape=[]} @"/gpu:0"
v = VariableV2() {dtype=bool, shape=[]} @"/gpu:0"
not = LogicalNot(b) @"/gpu:0"
init = Assign(v, not) {T=bool} @"/gpu:0"
s = Switch(x, v) @"/gpu:0"
out = Neg(s:0) @"/gpu:0"
"""
    run, moved = session(text, card), list[Any]()
    run.run([], {"b": True}, ["init"])
    to_host = GpuStream.to_host
    monkeypatch.setattr(
        GpuStream, "to_host", lambda stream, x: (moved.append(x), to_host(stream, x))[1]
    )
    assert run.run("out", {"x": 2.0}) == [-2]
    assert any(str(getattr(value, "dtype", "")) == "bool" for value in moved)


def test_two_gpus_use_a_variable_in_one_run_each_by_a_handle_of_its_own(
    card: GpuContext,
) -> None:
    text = """
x = Placeholder() {dtype=float32, shape=[?]} @"/gpu:0"
one = VarHandleOp() {dtype=float32, shape=[?], shared_name="v"} @"/gpu:0"
other = VarHandleOp() {dtype=float32, shape=[?], shared_name="v"} @"/gpu:1"
init = AssignVariableOp(one, x) {dtype=float32} @"/gpu:0"
read = ReadVariableOp(other, ^init) {dtype=float32} @"/gpu:1"
more = AssignAddVariableOp(one, read) {dtype=float32} @"/gpu:0"
last = ReadVariableOp(other, ^more) {dtype=float32} @"/gpu:1"
"""
    x = np.arange(40_000, dtype=np.float32)
    read, last = session(text, card).run(["read:0", "last:0"], {"x": x})
    np.testing.assert_array_equal(read, x)
    np.testing.assert_array_equal(last, 2 * x)


REFERENCES = """
one = VariableV2() {dtype=float32, shape=[2], shared_name="v"} @"/gpu:0"
x = Const() {dtype=float32, value=float32[2]:[1,2]} @"/gpu:0"
init = Assign(one, x) @"/gpu:0"
other = VariableV2() {dtype=float32, shape=[2], SHARED} @"/DEVICE"
double = AddV2(other, other) @"/DEVICE"
"""


@pytest.mark.parametrize("device", ["gpu:1", "cpu:0"])
def test_references_to_one_variable_on_two_devices_are_refused_on_a_card(
    device: str, card: GpuContext
) -> None:
    text = REFERENCES.replace("DEVICE", device)
    with pytest.raises(Unsupported, match=r"'v' is one variable for VariableV2 '\w+' on") as found:
        session(text.replace("SHARED", 'shared_name="v"'), card).run(["double:0"], {}, ["init"])
    assert found.value.code == "CFG403"
    assert "VarHandleOp" in str(found.value.hint)
    run = session(text.replace("SHARED", 'shared_name="w"'), card)
    with pytest.raises(ExecutionError, match="uninitialized value w"):
        run.run(["double:0"], {}, ["init"])


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RuntimeError("CUBLAS_STATUS_ALLOC_FAILED"), "CFG711"),
        (type("CUDARuntimeError", (RuntimeError,), {"status": 700})("illegal address"), None),
    ],
    ids=["no memory", "lost"],
)
def test_a_card_that_fails_is_no_reason_to_compute_on_the_host(
    error: Exception, code: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*inputs: object) -> None:
        raise error

    monkeypatch.setattr(library, "square", fails)
    with pytest.raises(cfgraph.CfgraphError, match=r"out of memory|has failed") as found:
        session(CROSSING, GpuContext(library)).run("d:0", {"x": [1.0]})
    assert found.value.node == "a"
    assert code is None or found.value.code == code


def test_a_loop_whose_predicate_is_computed_on_the_card_ends(card: GpuContext) -> None:
    assert session(LOOP, card).run("out:0", {"x": 3.0}) == [192]


def test_the_host_waits_for_predicates_and_fetches_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[int] = []
    wait = cuda.Event.synchronize
    monkeypatch.setattr(cuda.Stream, "wait_event", lambda self, event: wait(event))
    monkeypatch.setattr(cuda.Event, "done", property(lambda self: False))

    def counted(event: cuda.Event) -> None:
        waits.append(1)
        wait(event)

    monkeypatch.setattr(cuda.Event, "synchronize", counted)
    session(LOOP, GpuContext(library)).run("out:0", {"x": 3.0})
    # seven tests of the predicate, and the final value
    assert len(waits) == 8


@pytest.mark.smallest
def test_values_cross_between_gpus_and_the_host_and_back(card: GpuContext) -> None:
    x = np.linspace(-1, 1, 20_000, dtype=np.float32)
    for schedule in ({}, {"schedule": "random", "schedule_seed": 3}):
        run = session(CROSSING, card, **schedule)
        a, d = run.run(["a:0", "d:0"], {"x": x})
        np.testing.assert_allclose(a, x * x)
        np.testing.assert_allclose(d, np.exp(-x * x) + x * x, rtol=1e-6)
        assert not run.report("gpu").on_host


def test_what_a_run_holds_and_copies_is_counted_as_on_a_simulated_gpu(
    card: GpuContext,
) -> None:
    x = np.ones(20_000, np.float32)
    results = []
    for gpu in (card, "simulated"):
        graph = cfgraph.loads(CROSSING.encode(), "graph")
        run = cfgraph.Session(graph, devices="cpu:0,gpu:0-1", gpu=gpu, memory={})
        run.run(["d:0"], {"x": x})
        copies = {
            name: (one.to_host, one.to_device, one.from_devices) for name, one in run.memory.items()
        }
        results.append((copies, {name: one.peak for name, one in run.memory.items()}))
    assert results[0] == results[1]


def test_a_trace_of_a_run_on_the_card_has_values_of_numpy(card: GpuContext) -> None:
    recorder = Recorder(values=True)
    session(CROSSING, card).run(["d:0"], {"x": [1.0, 2.0]}, trace=recorder)
    values = [value for event in recorder.events for value in event.outputs]
    assert values
    assert not any(isinstance(value, card.array) for value in values)


def test_a_deferred_observer_has_the_cards_times_and_outlines_of_what_is_large(
    card: GpuContext,
) -> None:
    recorder = Recorder(values=True)
    recorder.deferred = True  # type: ignore[attr-defined]
    session(CROSSING, card).run(["d:0"], {"x": np.ones(50_000, np.float32)}, trace=recorder)
    (square,) = (event for event in recorder.events if event.node == "a")
    assert isinstance(square.outputs[0], AbstractTensor)
    assert 0 < square.start_ns < square.end_ns


def test_a_kernel_that_the_gpu_lacks_runs_on_the_host_and_is_reported(card: GpuContext) -> None:
    text = 'x = Placeholder() {dtype=float64, shape=[?]} @"/gpu:0"\ny = Dawsn(x) @"/gpu:0"\n'
    text += 'z = Neg(y) @"/gpu:0"'
    run = session(text, card)
    for _ in range(2):
        assert run.run("z:0", {"x": [0.0]})[0].tolist() == [0]
        assert list(run.report("gpu").on_host) == ["Dawsn"]


@pytest.mark.parametrize("memory", [None, {}])
def test_a_gpu_without_free_memory_names_the_node_and_the_owners(
    memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(*args: Any) -> Any:
        message = "Out of memory allocating 4,096 bytes"
        raise MemoryError(message)

    run = session(CROSSING, GpuContext(library), memory=memory)
    monkeypatch.setattr(library, "square", exhausted)
    with pytest.raises(ExecutionError, match="gpu:0 is out of memory: Out of memory all") as caught:
        run.run(["d:0"], {"x": np.ones(1024, np.float32)})
    assert (caught.value.node, caught.value.device, caught.value.code) == ("a", "gpu:0", "CFG711")
    held = "owned by values outside of loops 4 KiB"
    assert (held in caught.value.message) is (memory is not None)
    assert caught.value.hint


def full(*args: Any, **options: Any) -> Any:
    message = "Out of memory allocating 4,096 bytes (allocated so far: 0 bytes)."
    raise MemoryError(message)


@pytest.mark.parametrize(
    ("breaks", "node"), [("asarray", "x"), ("ascontiguousarray", "t")], ids=["feed", "fetch"]
)
def test_a_card_that_has_no_memory_for_a_feed_or_a_fetch_names_it(
    breaks: str, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = 'x = Placeholder() {dtype=float32, shape=[?,?]} @"/gpu:0"\n'
    text += (
        'p = Const() {dtype=int32, value=int32[2]:[1,0]} @"/gpu:0"\nt = Transpose(x, p) @"/gpu:0"'
    )
    run = session(text, GpuContext(library), memory={})
    monkeypatch.setattr(library, breaks, full)
    with pytest.raises(ExecutionError, match="gpu:0 is out of memory: Out of memory") as caught:
        run.run(["t:0"], {"x": np.ones((2, 3), np.float32)})
    assert (caught.value.node, caught.value.device, caught.value.code) == (node, "gpu:0", "CFG711")


def test_lists_go_between_devices_with_what_they_hold(card: GpuContext) -> None:
    text = """
x = Placeholder() {dtype=float32, shape=[2,3]} @"/gpu:0"
shape = Const() {dtype=int32, value=int32[1]:[3]} @"/gpu:0"
list = TensorListFromTensor(x, shape) @"/gpu:0"
zero = Const() {dtype=int32, value=int32[]:0} @"HERE"
size = Const() {dtype=int32, value=int32[1]:[3]} @"HERE"
item = TensorListGetItem(list, zero, size) {element_dtype=float32} @"HERE"
all = TensorListStack(list, size) {element_dtype=float32} @"HERE"
y = AddV2(all, item) @"HERE"
"""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for here in ("/cpu:0", "/gpu:0", "/gpu:1"):
        run = session(text.replace("HERE", here), card)
        np.testing.assert_array_equal(run.run("y:0", {"x": x})[0], x + x[0])


def test_an_unknown_kind_of_gpu_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown kind of gpu"):
        cfgraph.Session(cfgraph.Graph(), gpu="virtual")


def test_a_run_without_a_card_never_imports_cupy() -> None:
    code = (
        "import sys, cfgraph; g = cfgraph.loads(b'x = Const() {dtype=int32, value=int32[]:1}',"
        "'graph'); cfgraph.Session(g, devices='gpu:0').run('x:0'); assert 'cupy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


PAGE = """
================================================================
Failed to import CuPy.
================================================================
"""


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        (ImportError("libcudart.so.13: cannot open shared object file"), "libcudart.so.13: cannot"),
        (None, "Failed to import CuPy"),
    ],
)
def test_a_cupy_that_cannot_be_imported_is_said_in_one_line(
    cause: Exception | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(name: str, *args: Any, **options: Any) -> Any:
        if name == "cupy":
            raise ImportError(PAGE) from cause
        return found(name, *args, **options)

    found = builtins.__import__
    monkeypatch.setattr(card_module, "has_gpu", lambda: True)
    monkeypatch.setattr(builtins, "__import__", broken)
    with pytest.raises(Unsupported, match="CuPy cannot be imported") as caught:
        card_module.gpu_context.__wrapped__()
    assert said in caught.value.message
    assert "\n" not in caught.value.message
    assert "pip install 'cfgraph-tools[gpu]'" in caught.value.message


def test_a_card_is_taken_where_there_is_one_but_not_in_virtual_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = GpuContext(library)
    graph = cfgraph.loads(CROSSING.encode(), "graph")

    def runs_on(**options: Any) -> str:
        run = cfgraph.Session(graph, devices="cpu:0,gpu:0-1", **options)
        run.run("d:0", {"x": [1.0]})
        name: str = run.report("gpu").name
        return name

    assert not runs_on()
    monkeypatch.setattr(card_module, "has_gpu", lambda: True)
    monkeypatch.setattr(card_module, "gpu_context", lambda: found)
    assert runs_on() == found.name
    assert not runs_on(gpu="simulated")
    assert not runs_on(costs=CostModel())

    def broken() -> GpuContext:
        raise Unsupported("CuPy is not there")

    monkeypatch.setattr(card_module, "gpu_context", broken)
    assert not runs_on()
    with pytest.raises(Unsupported):
        runs_on(gpu="real")
