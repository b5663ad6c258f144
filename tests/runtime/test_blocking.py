"""Nodes that wait for other nodes of the same run to change a queue."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.ops.opdef.blocking import Blocked
from cfgraph.runtime.cost_model import CostModel
from cfgraph.runtime.engine.step import ParkedToken, RunStep
from tests.runtime.graphs import LOOP

QUEUE = """
queue = FIFOQueueV2() {component_types=(float32), shapes=([]), capacity=2}
x = Placeholder() {dtype=float32, shape=[]}
put = QueueEnqueueV2(queue, x) {Tcomponents=(float32)}
rows = Const() {dtype=float32, value=float32[5]: [1,2,3,4,5]}
put_all = QueueEnqueueManyV2(queue, rows) {Tcomponents=(float32)}
get = QueueDequeueV2(queue) {component_types=(float32)}
five = Const() {dtype=int32, value=int32[]: 5}
get_all = QueueDequeueManyV2(queue, five) {component_types=(float32)}
size = QueueSizeV2(queue)
close = QueueCloseV2(queue)
cancel = QueueCloseV2(queue) {cancel_pending_enqueues=true}
"""


@pytest.fixture
def session() -> cfgraph.Session:
    return cfgraph.Session(cfgraph.loads(QUEUE.encode(), "graph"))


def run(session: cfgraph.Session, fetches: list[str], *targets: str, x: float = 0) -> list[Any]:
    return session.run(fetches, {"x:0": np.float32(x)}, targets=list(targets))


def code_of(session: cfgraph.Session, fetches: list[str], *targets: str) -> str | None:
    with pytest.raises(cfgraph.ExecutionError) as failed:
        run(session, fetches, *targets)
    return failed.value.code


def test_a_dequeue_waits_for_an_enqueue_of_the_same_run(session: cfgraph.Session) -> None:
    assert run(session, ["get:0"], "put", x=5) == [5]


def test_many_elements_pass_a_queue_that_has_room_for_two(session: cfgraph.Session) -> None:
    (values,) = run(session, ["get_all:0"], "put_all")
    assert values.tolist() == [1, 2, 3, 4, 5]
    assert run(session, ["size:0"]) == [0]


def test_a_run_in_which_only_waiting_nodes_are_left_names_them(session: cfgraph.Session) -> None:
    with pytest.raises(cfgraph.ExecutionError, match=r"'get'.*waits for an element") as failed:
        run(session, ["get:0"])
    assert (failed.value.code, failed.value.node) == ("CFG708", "get")
    assert code_of(session, [], "put_all") == "CFG708"
    # the run left what fitted, and nothing that waits
    assert run(session, ["size:0"]) == [2]
    run(session, [], "close")
    assert run(session, ["get:0"]) == [1]


def test_a_hang_returns_the_elements_that_it_has_removed(session: cfgraph.Session) -> None:
    run(session, [], "put", x=7)
    assert code_of(session, ["get_all:0"]) == "CFG708"
    assert run(session, ["get:0"]) == [7]


def test_a_closed_empty_queue_fails_at_once(session: cfgraph.Session) -> None:
    run(session, [], "close")
    assert code_of(session, ["get:0"]) == "CFG705"
    assert code_of(session, [], "put") == "CFG705"
    assert code_of(session, [], "close") == "CFG705"
    run(session, [], "cancel")


def test_cancelling_wakes_an_enqueue_that_waits(session: cfgraph.Session) -> None:
    assert code_of(session, [], "put_all", "cancel") == "CFG705"


@pytest.mark.parametrize("seed", range(3))
def test_blocking_works_on_any_schedule(seed: int) -> None:
    graph = cfgraph.loads(QUEUE.encode(), "graph")
    session = cfgraph.Session(graph, schedule="random", schedule_seed=seed)
    assert run(session, ["get_all:0"], "put_all")[0].tolist() == [1, 2, 3, 4, 5]


def test_nodes_that_wait_again_and_again_retain_one_attempt_each(
    session: cfgraph.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked: list[Blocked] = []
    park = RunStep.park

    def record(step: RunStep, token: ParkedToken) -> None:
        park(step, token)
        assert len(step._attempts) <= 2
        blocked.append(token.blocked)

    monkeypatch.setattr(RunStep, "park", record)
    run(session, ["get_all:0"], "put_all")
    assert len(blocked) > 2
    assert all(each.__traceback__ is None for each in blocked)


def test_a_peek_waits_for_a_negative_index() -> None:
    text = """
    x = Const() {dtype=float32, value=float32[]: 1}
    last = Const() {dtype=int32, value=int32[]: -1}
    put = Stage(x) {dtypes=(float32), shared_name="s"}
    peek = StagePeek(last, ^put) {dtypes=(float32), shared_name="s"}
    """
    session = cfgraph.Session(cfgraph.loads(text.encode(), "graph"))
    with pytest.raises(cfgraph.ExecutionError, match="waits for an element"):
        session.run(["peek:0"])


def test_tuples_of_other_types_than_staged_are_refused() -> None:
    graph = cfgraph.loads(
        b"""
x = Placeholder() {dtype=float32, shape=[]}
stage = Stage(x) {dtypes=(float32), shared_name="s"}
wrong = Unstage() {dtypes=(int32), shared_name="s"}
right = Unstage() {dtypes=(float32), shared_name="s"}
""",
        "graph",
    )
    session = cfgraph.Session(graph)
    session.run([], {"x:0": np.float32(3)}, targets=["stage"])
    with pytest.raises(cfgraph.ExecutionError, match="types float32 is staged"):
        session.run(["wrong:0"])
    assert session.run(["right:0"]) == [3]


def test_virtual_time_goes_on_while_nodes_wait() -> None:
    session = cfgraph.Session(cfgraph.loads(QUEUE.encode(), "graph"), costs=CostModel())
    run(session, ["get_all:0"], "put_all")
    # three enqueues with two dequeues between them, each at least 1 µs
    assert (session.elapsed or 0.0) > 4.5e-6


STAGING = """
x = Placeholder() {dtype=float32, shape=[?]}
stage = Stage(x) {dtypes=(float32), memory_limit=20, shared_name="s"}
unstage = Unstage() {dtypes=(float32), memory_limit=20, shared_name="s"}
size = StageSize() {dtypes=(float32), memory_limit=20, shared_name="s"}
queue = FIFOQueueV2() {component_types=(float32), shapes=([]), shared_name="s"}
elements = QueueSizeV2(queue)
variable = VarHandleOp() {dtype=float32, shape=[], shared_name="s"}
assign = AssignVariableOp(variable, one) {dtype=float32}
read = ReadVariableOp(variable) {dtype=float32}
one = Const() {dtype=float32, value=float32[]: 1}
"""


def test_staged_tuples_fit_the_memory_limit() -> None:
    session = cfgraph.Session(cfgraph.loads(STAGING.encode(), "graph"))
    three = {"x:0": np.ones(3, np.float32)}
    session.run([], three, targets=["stage"])
    with pytest.raises(cfgraph.ExecutionError, match=r"'stage'.*waits for memory") as failed:
        session.run([], three, targets=["stage"])
    assert failed.value.waits == {"stage": "waits for memory of <StagingArea 's' of 1 elements>"}
    # a tuple that leaves makes room
    assert session.run(["unstage:0"], three, targets=["stage"])[0].tolist() == [1, 1, 1]
    assert session.run(["size:0"]) == [1]
    with pytest.raises(cfgraph.ExecutionError, match="'24' bytes into Staging Area with a memory"):
        session.run([], {"x:0": np.ones(6, np.float32)}, targets=["stage"])


def test_a_cleared_area_has_its_memory_again() -> None:
    clear = 'clear = StageClear() {dtypes=(float32), memory_limit=20, shared_name="s"}'
    session = cfgraph.Session(cfgraph.loads((STAGING + clear).encode(), "graph"))
    for value in (1, 2):
        session.run([], {"x:0": np.full(5, value, np.float32)}, targets=["stage"])
        session.run([], targets=["clear"])
    session.run([], {"x:0": np.full(5, 3, np.float32)}, targets=["stage"])
    assert session.run(["unstage:0"])[0].tolist() == [3] * 5


def test_many_tuples_are_staged_in_linear_time() -> None:
    staging = 'Stage(tuple) {dtypes=(int32,), memory_limit=100000, shared_name="s"}'
    source = LOOP.replace("PARALLEL", "10") + f"tuple = Identity(body)\nstage = {staging}"
    session = cfgraph.Session(cfgraph.loads(source.encode(), "graph"))
    start = time.process_time()
    session.run([], {"n:0": np.int32(3000)}, targets=["stage"])
    assert time.process_time() - start < 1  # quadratic: 2.3 s


def test_staged_lists_have_a_size() -> None:
    text = """
elements = Const() {dtype=float32, value=float32[2]: [1, 2]}
shape = Const() {dtype=int32, value=int32[0]: []}
list = TensorListFromTensor(elements, shape) {element_dtype=float32, shape_type=int32}
stage = Stage(list) {dtypes=(variant,), memory_limit=30, shared_name="s"}
size = StageSize() {dtypes=(variant,), memory_limit=30, shared_name="s"}
"""
    session = cfgraph.Session(cfgraph.loads(text.encode(), "graph"))
    session.run([], targets=["stage"])
    assert session.run(["size:0"]) == [1]
    with pytest.raises(cfgraph.ExecutionError, match="waits for memory"):
        session.run([], targets=["stage"])


def test_resources_of_different_types_may_share_a_name() -> None:
    session = cfgraph.Session(cfgraph.loads(STAGING.encode(), "graph"))
    session.run([], {"x:0": np.ones(2, np.float32)}, targets=["stage", "assign"])
    assert session.run(["size:0", "elements:0", "read:0"]) == [1, 0, 1]


@pytest.mark.parametrize("count", [[1, 2], []])
def test_the_number_of_elements_is_a_scalar(count: list[int]) -> None:
    five, n = "five = Const() {dtype=int32, value=int32[]: 5}", "n = Placeholder() {dtype=int32}"
    text = QUEUE.replace(five, n)
    session = cfgraph.Session(cfgraph.loads(text.replace("five", "n").encode(), "graph"))
    with pytest.raises(cfgraph.ExecutionError, match=r"n must be a scalar, got the shape \[\d\]"):
        session.run(["get_all:0"], {"n:0": np.array(count, np.int32)})


def test_a_gradient_is_taken_once_enough_are_applied() -> None:
    text = """
    sum = ResourceConditionalAccumulator() {dtype=float32, shape=[], reduction_type="SUM"}
    step = Const() {dtype=int64, value=int64[]: 0}
    x = Placeholder() {dtype=float32, shape=[]}
    two = Const() {dtype=int32, value=int32[]: 2}
    first = ResourceAccumulatorApplyGradient(sum, step, x) {dtype=float32}
    second = ResourceAccumulatorApplyGradient(sum, step, x) {dtype=float32}
    late = ResourceAccumulatorApplyGradient(sum, step, x) {dtype=float32}
    take = ResourceAccumulatorTakeGradient(sum, two) {dtype=float32}
    """
    session = cfgraph.Session(cfgraph.loads(text.encode(), "graph"))
    assert run(session, ["take:0"], "first", "second", x=3) == [6]
    run(session, [], "late", x=4)  # its step is over
    with pytest.raises(cfgraph.ExecutionError, match="waits for gradients") as failed:
        run(session, ["take:0"])
    assert failed.value.code == "CFG708"
