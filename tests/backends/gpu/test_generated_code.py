"""Generated code on one GPU: values, copies, and errors are those of tokens."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.backends.gpu.context import GpuContext
from cfgraph.errors import CfgraphError
from cfgraph.ir.dtypes import bfloat16
from cfgraph.ir.graph import Graph
from tests.backends.gpu import cuda
from tests.backends.gpu.stand_in import Array, Faults, library

LOOP = """
x = Placeholder() {dtype=float32, shape=[]}
start = Enter(x) {frame_name="loop"}
merge = Merge(start, next)
limit = Const(^merge) {dtype=float32, value=float32[]:100.0}
less = Less(merge, limit)
cond = LoopCond(less)
switch = Switch(merge, cond)
body = Identity(switch:1)
twice = AddV2(body, body)
next = NextIteration(twice)
out = Exit(switch:0)
"""

BRANCHES = """
x = Placeholder() {dtype=float32, shape=[2]}
n = Placeholder() {dtype=int32, shape=[]}
zero = Const() {dtype=int32, value=int32[]:0}
sum = Sum(x, zero)
limit = Const() {dtype=float32, value=float32[]:3.0}
less = Less(sum, limit)
s = Switch(x, less)
count = Switch(n, less)
big = Neg(s:0)
small = Exp(s:1)
more = AddV2(count:0, count:0)
y = Merge(big, small)
k = Merge(more, count:1)
float = Cast(k) {SrcT=int32, DstT=float32}
z = Mul(y, float)
"""

# the condition reads on the card what the loop counts on the host
COUNTED = """
x = Placeholder() {dtype=float32, shape=[]}
zero = Const() {dtype=int32, value=int32[]:0}
start = Enter(zero) {frame_name="loop"}
limit = Enter(x) {frame_name="loop", is_constant=true}
merge = Merge(start, next)
number = Cast(merge) {SrcT=int32, DstT=float32}
less = Less(number, limit)
cond = LoopCond(less)
switch = Switch(merge, cond)
body = Identity(switch:1)
one = Const(^body) {dtype=int32, value=int32[]:1}
more = AddV2(body, one)
next = NextIteration(more)
out = Exit(switch:0)
"""

COUNTER = """
x = Placeholder() {dtype=float32, shape=[?]}
v = VarHandleOp() {dtype=float32, shape=[?], shared_name="v"}
init = AssignVariableOp(v, x) {dtype=float32}
more = AssignAddVariableOp(v, x) {dtype=float32}
read = ReadVariableOp(v, ^more) {dtype=float32}
double = AddV2(read, read)
"""


def session(text: str, gpu: GpuContext | str, **options: Any) -> cfgraph.Session:
    graph = cfgraph.loads(text.encode(), "graph")
    return cfgraph.Session(graph, devices="gpu:0", soft_placement=True, gpu=gpu, **options)


def error_of(run: cfgraph.Session, *args: Any, **options: Any) -> CfgraphError:
    with pytest.raises(CfgraphError) as caught:
        run.run(*args, **options)
    return caught.value


def test_a_loop_on_one_card_runs_as_code(card: GpuContext) -> None:
    run = session(LOOP, card)
    assert [*run.run("out:0", {"x": 3.0}), *run.run("out:0", {"x": 200.0})] == [192, 200]
    assert not run.fallback


def test_a_value_that_a_condition_reads_is_copied_once_an_iteration() -> None:
    run = session(LOOP, GpuContext(library))
    before = Array.waits
    run.run("out:0", {"x": 1.0})
    # seven iterations and the last test, and the fetch
    assert Array.waits - before <= 9


@pytest.mark.parametrize("x", [[1.0, 1.5], [2.0, 2.5]])
def test_branches_have_the_values_of_tokens(x: list[float], card: GpuContext) -> None:
    feeds, fetches = {"x": x, "n": 3}, ["y:0", "k:0", "z:0"]
    run, tokens = session(BRANCHES, card), session(BRANCHES, card, engine="tokens")
    for have, want in zip(run.run(fetches, feeds), tokens.run(fetches, feeds), strict=True):
        np.testing.assert_array_equal(have, want)
    assert (run.fallback, tokens.fallback) == ("", "the engine is tokens")


def test_a_dead_fetch_is_explained_as_by_tokens(card: GpuContext) -> None:
    feeds = {"x": [1.0, 1.5], "n": 3}
    run, tokens = session(BRANCHES, card), session(BRANCHES, card, engine="tokens")
    have, want = (str(error_of(one, "big:0", feeds)) for one in (run, tokens))
    assert have == want


def test_an_observed_run_or_one_with_a_deadline_uses_tokens(card: GpuContext) -> None:
    run = session(LOOP, card)
    assert run.run("out:0", {"x": 3.0}, timeout=60) == [192]
    assert "deadline" in run.fallback
    assert run.run("out:0", {"x": 3.0}, trace=True) == [192]
    assert run.fallback
    assert run.run("out:0", {"x": 3.0}) == [192]
    assert not run.fallback


def test_an_endless_loop_ends_at_its_limit_with_what_its_condition_reads(card: GpuContext) -> None:
    run = session(LOOP, card)
    error = error_of(run, "out:0", {"x": 0.0}, max_iterations=10)
    assert (error.code, error.node) == ("CFG704", "next")
    assert "merge" in str(error)
    assert run.run("out:0", {"x": 64.0}, max_iterations=1) == [128]


def test_what_a_condition_reads_at_its_limit_is_that_of_tokens(card: GpuContext) -> None:
    runs = session(COUNTED, card), session(COUNTED, card, engine="tokens")
    have, want = (str(error_of(run, "out:0", {"x": 99.0}, max_iterations=6)) for run in runs)
    assert have == want
    assert "'merge': 4, 5, 6" in have


def test_a_variable_stays_on_the_card_between_runs_of_code(card: GpuContext) -> None:
    run = session(COUNTER, card)
    run.run([], {"x": [1.0, 2.0]}, ["init"])
    (cell,) = run.state.objects()
    for total in (2, 3):
        assert run.run("double:0", {"x": [1.0, 2.0]})[0].tolist() == [2 * total, 4 * total]
        assert not run.fallback
        assert type(cell.value) is card.array
    on_cpu = cfgraph.Session(cfgraph.loads(COUNTER.encode(), "graph"), state=run.state)
    assert on_cpu.run("double:0", {"x": [0.0, 0.0]})[0].tolist() == [6, 12]


@pytest.mark.parametrize("place", range(4))
def test_a_kernel_that_fails_runs_on_the_host_and_its_effect_happens_once(place: int) -> None:
    run = session(COUNTER, GpuContext(library))
    run.run([], {"x": [1.0, 2.0]}, ["init"])
    with Faults.at(place):
        assert run.run("double:0", {"x": [1.0, 2.0]})[0].tolist() == [4, 8]
    assert run.run("double:0", {"x": [1.0, 2.0]})[0].tolist() == [6, 12]


def test_a_chain_of_large_integers_leaves_what_was_fed_alone(card: GpuContext) -> None:
    text = """
x = Placeholder() {dtype=int32, shape=[?]}
a = AddV2(x, x)
b = Neg(a)
c = Neg(b)
y = Sub(c, x)
"""
    x = np.arange(1 << 16, dtype=np.int32)
    run = session(text, card)
    for _ in range(2):
        np.testing.assert_array_equal(run.run("y:0", {"x": x})[0], np.arange(1 << 16))
    np.testing.assert_array_equal(x, np.arange(1 << 16))


def test_large_values_of_a_dtype_that_the_card_lacks_are_computed_once_on_the_host() -> None:
    add = SimpleNamespace(types=["ff->f"])
    without_bfloat16 = GpuContext(SimpleNamespace(**{**vars(library), "add": add}))
    text = """
x = Placeholder() {dtype=bfloat16, shape=[?]}
v = VarHandleOp() {dtype=bfloat16, shape=[?], shared_name="v"}
init = AssignVariableOp(v, x) {dtype=bfloat16}
more = AssignAddVariableOp(v, x) {dtype=bfloat16}
read = ReadVariableOp(v, ^more) {dtype=bfloat16}
twice = AddV2(read, read)
y = Relu(twice)
"""
    run, x = session(text, without_bfloat16), np.ones(1 << 17, dtype=bfloat16.numpy)
    run.run([], {"x": x}, ["init"])
    assert set(run.run("y:0", {"x": x})[0]) == {4}
    assert not run.fallback


def test_messages_of_a_card_to_itself_are_sent_by_tokens(card: GpuContext) -> None:
    names = 'tensor_name="m", send_device="/gpu:0", recv_device="/gpu:0", send_device_incarnation=1'
    text = f"""
x = Placeholder() {{dtype=float32, shape=[?]}} @"/gpu:0"
a = Neg(x) @"/gpu:0"
send = _Send(a) {{{names}}} @"/gpu:0"
m = _Recv(^send) {{tensor_type=float32, {names}}} @"/gpu:0"
y = Exp(m) @"/gpu:0"
"""
    run = cfgraph.Session(cfgraph.loads(text.encode(), "graph"), gpu=card)
    np.testing.assert_allclose(run.run("y:0", {"x": [0.0, -1.0]})[0], np.exp([0, 1]), rtol=1e-6)
    assert run.fallback == "devices are GPUs"


def test_an_error_of_a_kernel_has_the_node_and_iteration_of_tokens() -> None:
    text = LOOP.replace("limit)", "limit:0)") + "bad = Reshape(out, size)\nsize = Const() "
    text += "{dtype=int32, value=int32[1]:[3]}\n"
    runs = [session(text, GpuContext(library), **options) for options in ({}, {"engine": "tokens"})]
    have, want = (error_of(run, "bad:0", {"x": 3.0}) for run in runs)
    assert str(have) == str(want)
    assert (have.node, have.code) == ("bad", want.code)


@pytest.mark.parametrize("changes_state", [False, True])
def test_memory_that_is_not_there_is_an_error_with_its_node(
    monkeypatch: pytest.MonkeyPatch, *, changes_state: bool
) -> None:
    text = COUNTER + "more_of_it = Exp(double)\n"
    run, calls = session(text, GpuContext(library)), []

    def full(*_: object) -> None:
        calls.append(1)
        message = "cudaErrorMemoryAllocation: out of memory"
        raise MemoryError(message)

    run.run([], {"x": [1.0, 2.0]}, ["init"])
    fetches = "more_of_it:0" if changes_state else "plain:0"
    if not changes_state:
        run = session(text + "plain = Exp(x)\n", GpuContext(library))
    monkeypatch.setattr(library, "exp", full)
    error = error_of(run, fetches, {"x": [1.0, 2.0]})
    assert (error.code, error.device) == ("CFG711", "gpu:0")
    assert error.node == fetches.removesuffix(":0")
    assert calls == [1]


@pytest.mark.parametrize(("size", "node"), [(1 << 17, "x"), (1, "a")], ids=["feed", "fetch"])
def test_a_copy_that_the_host_has_no_memory_for_is_an_error_with_its_node(
    monkeypatch: pytest.MonkeyPatch, size: int, node: str
) -> None:
    text = "x = Placeholder() {dtype=float32, shape=[?]}\na = Neg(x)\nb = Exp(x)\n"
    run, feeds = session(text, GpuContext(library)), {"x": np.zeros(size, np.float32)}
    assert run.run(["a:0", "b:0"], feeds)[1][0] == 1

    def full(size: int) -> None:
        message = "cudaErrorMemoryAllocation: out of memory"
        raise MemoryError(message)

    monkeypatch.setattr(cuda, "alloc_pinned_memory", full)
    error = error_of(run, ["a:0", "b:0"], feeds)
    assert (error.code, error.device, error.node) == ("CFG711", "gpu:0", node)


def test_a_run_follows_what_earlier_runs_queued_on_other_streams(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu = GpuContext(library)
    run, waits = session(LOOP, gpu), list[Any]()
    other = gpu.stream("gpu:1")
    monkeypatch.setattr(
        cuda.Stream, "wait_event", lambda stream, event: waits.append((stream, event.stream))
    )
    run.run("out:0", {"x": 3.0})
    assert (gpu.stream("gpu:0").compute, other.compute) in waits


def test_a_graph_built_for_one_card_agrees_with_the_cpu(card: GpuContext) -> None:
    b = cfgraph.Builder()
    x = b.placeholder("x", "float32", [3, 4])

    def body(i: Any, h: Any, total: Any) -> Any:
        h = b.Tanh(b.MatMul(h, b.Transpose(x, b.const([1, 0]))))
        h = b.MatMul(h, x)
        return b.AddV2(i, b.const(1)), h, b.AddV2(total, b.Sum(h, b.const([0, 1])))

    start = [b.const(0), x, b.const(0.0, "float32")]
    _, h, total = b.while_loop(lambda i, h, total: b.Less(i, b.const(5)), body, start)
    b.Identity(h, name="h")
    b.Identity(total, name="total")
    graph: Graph = b.graph
    feeds = {"x": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)}
    on_card = cfgraph.Session(graph, devices="gpu:0", gpu=card)
    have, want = (one.run(["h:0", "total:0"], feeds) for one in (on_card, cfgraph.Session(graph)))
    for mine, expected in zip(have, want, strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-5, atol=1e-5)
    assert not on_card.fallback
