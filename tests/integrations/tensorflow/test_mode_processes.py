"""Processes of TensorFlow that fail, with a stand-in that misbehaves."""

from __future__ import annotations

import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import cfgraph
from cfgraph.comparison.equivalence import ComparisonRunOptions
from cfgraph.comparison.reduce.subject import Subject
from cfgraph.errors import ExecutionError, ProcessLost, Unsupported, UsageError
from cfgraph.integrations.tensorflow.mode_comparison import compare_modes
from cfgraph.integrations.tensorflow.modes import MODES
from cfgraph.integrations.tensorflow.processes import PROGRAM, ModeFailure, ModePool
from cfgraph.integrations.tensorflow.reduce_mode import start_oracle
from cfgraph.limits import limited
from cfgraph.processes.messages import (
    ConnectionEnded,
    MessageError,
    ProcessMessage,
    receive,
    send,
)

STAND_IN = replace(PROGRAM, module="tests.integrations.tensorflow.misbehaving_worker")
MODE = MODES["autojit"]
NAMES = [
    "fine",
    "abort",
    "killed",
    "exits",
    "hang",
    "stops_listening",
    "garbage",
    "memory",
    "error",
    "no_kernel",
    "no_registered_kernel",
    "no_registered_op",
    "host_killed",
    "differs",
]


@pytest.fixture(scope="module")
def pool() -> Iterator[ModePool]:
    with ModePool(STAND_IN, memory=1 << 30) as pool:
        yield pool


def planted() -> cfgraph.Graph:
    lines = [f"{name} = Const() {{dtype=float32, value=float32[]:3}}" for name in NAMES[:-1]]
    lines.append("differs = Const() {dtype=float32, value=float32[]:4}")
    return cfgraph.loads("\n".join(["versions producer=1", *lines]).encode())


def compare(pool: ModePool, fetch: str) -> cfgraph.comparison.differences.RunDiff:
    return compare_modes(pool, planted(), MODE, options=ComparisonRunOptions(fetches=(fetch,)))


def test_what_a_process_prints_is_no_answer(pool: ModePool) -> None:
    assert not compare(pool, "fine")


@pytest.mark.smallest
def test_another_value_is_a_difference(pool: ModePool) -> None:
    delta = compare(pool, "differs")
    assert [gap.what for gap in delta.gaps] == ["differs:0"]
    assert delta.first is not None
    assert delta.first.node == "differs"


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("abort", "TensorFlow (autojit) is ended by SIGABRT"),
        ("killed", "TensorFlow (autojit) is ended by SIGKILL"),
        ("exits", "TensorFlow (autojit) ends with exit status 7"),
        ("hang", "TensorFlow (autojit) hangs: no answer within 0.5 s"),
        ("stops_listening", "TensorFlow (autojit) is ended by SIGKILL"),
        ("garbage", "TensorFlow (autojit) answers with garbage: a message cannot start with"),
        ("memory", "TensorFlow (autojit) runs out of memory (exit status 1)"),
        ("error", "TensorFlow (autojit) reports InvalidArgumentError: planted at {{node a}} [1,2]"),
    ],
)
def test_a_failing_process_is_a_finding(
    pool: ModePool, fault: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as shorter:
        if fault in ("hang", "stops_listening"):
            shorter.setattr(pool, "seconds", 0.5)
        delta = compare(pool, fault)
    assert isinstance(delta.failure, ExecutionError)
    assert delta.failure.message.startswith(message)
    assert not compare(pool, "fine"), "the next process is another one"


def test_the_last_lines_of_a_dead_process_are_reported(pool: ModePool) -> None:
    failure = compare(pool, "abort").failure
    assert failure is not None
    assert failure.hint is not None
    assert failure.hint.splitlines()[-1] == "F planted.cc:7] Check failed: planted"


def test_a_mode_that_lacks_a_kernel_is_unsupported(pool: ModePool) -> None:
    with pytest.raises(Unsupported, match="cannot run the graph: UnimplementedError: planted"):
        compare(pool, "no_kernel")


@pytest.mark.parametrize("fault", ["no_registered_kernel", "no_registered_op"])
def test_a_kernel_or_op_that_is_not_registered_is_unsupported(pool: ModePool, fault: str) -> None:
    with pytest.raises(Unsupported, match="cannot run the graph: InvalidArgumentError"):
        compare(pool, fault)


def test_a_killed_host_is_replaced_once(pool: ModePool) -> None:
    assert not compare(pool, "fine")
    process = pool._process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    assert not compare(pool, "fine"), "no process of the lost host is used"


def test_a_silent_host_is_not_asked_again() -> None:
    with ModePool(STAND_IN, memory=1 << 30) as pool:
        assert not compare(pool, "fine")
        process = pool._process
        assert process is not None
        process.program = replace(STAND_IN, idle_seconds=0.2)
        os.kill(process.pid, signal.SIGSTOP)
        with pytest.raises(ProcessLost, match="gave no answer"):
            compare(pool, "fine")
        assert pool._process is process


def test_no_process_outlives_the_pool() -> None:
    with ModePool(STAND_IN, memory=1 << 30) as pool:
        assert not compare(pool, "fine")
        assert pool._process is not None
        parent = pool._process.pid
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    deadline = time.monotonic() + 60
    while any(Path("/proc", pid, "exe").exists() for pid in (str(parent), *children)):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_host_that_is_killed_again_is_an_error(pool: ModePool) -> None:
    with pytest.raises(ExecutionError, match="the process that imported TensorFlow ended"):
        compare(pool, "host_killed")
    assert not compare(pool, "fine")


def test_a_message_that_nothing_reads_ends_at_its_deadline() -> None:
    near, far = socket.socketpair()
    large = ProcessMessage({}, {"x": np.zeros(1 << 24, np.uint8)})
    with near, far:
        with pytest.raises(TimeoutError):
            send(near, large, time.monotonic() + 0.1)
        with pytest.raises(TimeoutError):
            receive(near, time.monotonic() + 0.01)
        send(far, ProcessMessage({}))
        assert receive(near).header == {}
        assert near.gettimeout() is None, "the time of the last message is over"


def test_equal_failures_have_one_signature(pool: ModePool) -> None:
    first, second = (
        pool.request(MODE, ProcessMessage({"fetches": ["error"]})).failure for _ in range(2)
    )
    assert first is not None
    assert second is not None
    assert first.signature == second.signature
    assert first.signature[2] == "planted at"


TRACED = "Graph execution error:\n\nDetected at node Pad defined at (most recent call last):\n"
TRACES = ["<stack traces unavailable>\n", '  File "model.py", line 3, in call\n\n', ""]


@pytest.mark.parametrize("trace", TRACES)
@pytest.mark.parametrize("count", ["", "2 root error(s) found.\n"])
def test_the_reason_of_a_failure_follows_its_trace(trace: str, count: str) -> None:
    text = f"{TRACED}{trace}{count}Input 1 of op Pad must be a constant.\n\t [[{{{{node Pad}}}}]]"
    failure = ModeFailure("error", text, "InvalidArgumentError")
    assert failure.reason == "Input 1 of op Pad must be a constant."
    assert failure.signature[2] == "Input # of op Pad must be a constant."


def test_a_race_is_not_what_is_left_of_a_fault(pool: ModePool) -> None:
    four = "{dtype=float32, value=float32[]:4}"
    lines = [f"a = Const() {four}", f"b = Const() {four}", "m = Merge(a, b) {N=2, T=float32}"]
    graph = cfgraph.loads("\n".join(["versions producer=1", *lines]).encode())
    options = ComparisonRunOptions(fetches=("m:0",), cases=1)
    oracle, _ = start_oracle(pool, graph, MODE, None, options)
    oracle.kind = ("value",)
    assert oracle.allow_races, "the graph has one from the start"
    oracle.allow_races = False
    assert not oracle.is_interesting(Subject((graph,)))


def test_the_deadline_of_a_command_is_not_a_hang(pool: ModePool) -> None:
    with pytest.raises(cfgraph.errors.RunTimeout), limited(timeout=0.2):
        compare(pool, "hang")


def test_a_missing_tensorflow_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tensorflow.py").write_text("raise ImportError(\"No module named 'tensorflow'\")")
    monkeypatch.syspath_prepend(tmp_path)
    error = r"^TensorFlow cannot be started\n[^\0]*\[interop\]"
    with ModePool() as pool, pytest.raises(Unsupported, match=error):
        pool.request(MODE, ProcessMessage({}))


def test_variables_of_references_are_rejected(pool: ModePool) -> None:
    graph = cfgraph.loads(
        b"versions producer=1\nv = VariableV2() {dtype=float32, shape=[]}\n"
        b"y = Identity(v) {T=float32}\n"
    )
    with pytest.raises(Unsupported, match="v is a variable") as caught:
        compare_modes(pool, graph, MODE)
    hint = caught.value.hint or ""
    assert "cfgraph run GRAPH --target INIT --save-variables ck, then cfgraph freeze" in hint
    assert "freeze GRAPH --variables ck -o frozen.pb" in hint


@pytest.mark.parametrize(
    ("dtype", "handles", "reason"),
    [("float32", 2, "w has several handles"), ("string", 1, "v has no value")],
)
def test_a_variable_needs_one_handle_and_a_value(
    pool: ModePool, dtype: str, handles: int, reason: str
) -> None:
    attrs = f'{{dtype={dtype}, shape=[], shared_name="v"}}'
    texts = [f"{n} = VarHandleOp() {attrs}\nr{n} = VarIsInitializedOp({n})\n" for n in "vw"]
    text = "".join(texts[:handles])
    with pytest.raises(Unsupported, match=reason):
        compare_modes(pool, cfgraph.loads(text.encode(), format="graph"), MODE)


def test_a_graph_without_outputs_cannot_be_compared(pool: ModePool) -> None:
    with pytest.raises(UsageError, match="no output"):
        compare_modes(pool, cfgraph.Graph(), MODE)


@pytest.mark.parametrize("value", [np.float32([[1], [2]]), np.array(b"a\0", object)], ids=str)
def test_an_array_arrives_as_it_was_sent(value: np.ndarray) -> None:
    near, far = socket.socketpair()
    with near, far:
        sender = threading.Thread(target=send, args=(near, ProcessMessage({"a": 1}, {"x": value})))
        sender.start()
        message = receive(far)
        sender.join()
    assert message.header == {"a": 1}
    assert message.arrays["x"].dtype == value.dtype
    assert message.arrays["x"].shape == value.shape
    assert message.arrays["x"].tolist() == value.tolist()


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", ConnectionEnded),
        (b"cfg1\0\0", ConnectionEnded),
        (b"x" * 64, MessageError),
        (struct.pack("<4sQQ", b"cfg1", 1 << 60, 0), MessageError),
        (struct.pack("<4sQQ", b"cfg1", 2, 0) + b"[]", MessageError),
        (struct.pack("<4sQQ", b"cfg1", 2, 0) + b"\xff\xff", MessageError),
        (
            struct.pack("<4sQQ", b"cfg1", 66, 3)
            + b'{"header":{},"arrays":[{"name":"x","dtype":"int32","shape":[2]}]}'.ljust(66)
            + b"PK\0",
            MessageError,
        ),
    ],
)
def test_other_bytes_are_no_message(data: bytes, error: type[Exception]) -> None:
    near, far = socket.socketpair()
    with far:
        near.sendall(data)
        near.close()
        with pytest.raises(error):
            receive(far)


def test_what_depends_on_random_numbers_is_not_compared(pool: ModePool) -> None:
    graph = cfgraph.loads(
        b"versions producer=1\nfine = Const() {dtype=float32, value=float32[]:3}\n"
        b"shape = Const() {dtype=int32, value=int32[0]:[]}\n"
        b"noise = RandomUniform(shape) {dtype=float32, seed=1, seed2=2}\ny = Neg(noise)\n"
    )
    delta = compare_modes(pool, graph, MODE, options=ComparisonRunOptions(fetches=("y", "fine")))
    assert not delta
    assert delta.fetches == ("fine:0",)
    assert [item.message for item in delta.notices] == [
        "not compared: y:0 depends on random numbers, which are others in TensorFlow"
    ]
    with pytest.raises(Unsupported, match=r"^y:0 depends on random numbers"):
        compare_modes(pool, graph, MODE, options=ComparisonRunOptions(fetches=("y",)))
