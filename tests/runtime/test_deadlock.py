"""A deadlock report names the waiting Recvs, and the reason why each Send did not run."""

from __future__ import annotations

from typing import Any

import pytest

from cfgraph.errors import ExecutionError, InvalidInput
from tests.analysis.test_check_loops import LATE
from tests.runtime.graphs import session
from tests.runtime.partitioned_graphs import A, B, counting, nesting, partitioned


def without(text: str, *names: str) -> str:
    lines = text.splitlines()
    return "\n".join(line for line in lines if line.partition(" ")[0] not in names) + "\n"


def device_lines(device: str) -> list[str]:
    return [line for line in counting().splitlines() if line.endswith(f'@"{device}"')]


def deadlock_error(text: str, feeds: dict[str, Any], fetch: str = "out:0") -> ExecutionError:
    with pytest.raises(ExecutionError) as caught:
        session(text).run([fetch], feeds)
    assert caught.value.code == "CFG708"
    return caught.value


def test_a_recv_whose_send_is_not_in_the_graph() -> None:
    error = deadlock_error(without(counting(), "s_sum"), {"n": 3})
    assert "'add' on cpu:0, frame /loop[0], waits for 'sum' from cpu:1" in error.message
    assert "the graph has no such _Send" in error.message
    assert (error.node, error.frame, error.device) == ("add", "/loop[0]", "cpu:0")
    assert "a _Send and its _Recv" in (error.hint or "")


def test_a_missing_part_is_named_with_what_to_feed() -> None:
    text = without(counting(), "s_sum", *(line.split()[0] for line in device_lines(B)))
    error = deadlock_error(text, {"n": 3})
    assert "from cpu:1: the graph has no node there" in error.message
    assert "name the folder that contains all parts" in (error.hint or "")
    assert "--feed" not in (error.hint or ""), "a Recv of a loop cannot be fed"


def test_a_send_of_that_name_between_other_devices_is_named() -> None:
    text = counting().replace(
        f'tensor_name="sum", send_device="{B}"', 'tensor_name="sum", send_device="C"', 1
    )
    assert f"the one of that name goes from {B} to {A}" in deadlock_error(text, {"n": 3}).message


def test_a_device_without_a_control_loop_stays_in_its_first_iteration() -> None:
    text = without(counting(), "cn_B").replace("Merge(ce_B, cn_B)", "Merge(ce_B)")
    error = deadlock_error(text, {"n": 3})
    assert (
        "frame /loop[1], waits for 'sum' from cpu:1: the loop 'loop' ended there at iteration 0"
        in error.message
    )
    assert "control loop: partition the original graph again" in (error.hint or "")


def test_a_loop_that_never_begins_on_the_device_that_should_send() -> None:
    text = counting().replace("Enter(c_B)", "Enter(c_late)") + partitioned(
        B="""
c_late = Const(^never) {dtype=float32, value=float32[0]:[]}
never = _Recv() {RECV A->B never float32}
"""
    )
    first, second = deadlock_error(text, {"n": 3}).message.splitlines()[1:]
    assert "'never' on cpu:1, frame /, waits for 'never' from cpu:0: the graph has no such" in first
    assert "did not start there: 'ce_B' did not run, as 'never' waits for its message" in second


def test_a_send_that_waits_for_an_input_that_never_comes() -> None:
    text = partitioned(
        A="x = _Recv() {RECV B->A x float32}\ny = Neg(x)\ns_y = _Send(y) {SEND A->B y}",
        B="z = _Recv() {RECV A->B y float32}\nout = Neg(z)\ns_x = _Send(out) {SEND B->A x}",
    )
    first, second = deadlock_error(text, {}).message.splitlines()[1:]
    assert (
        "'x' on cpu:0, frame /, waits for 'x' from cpu:1: 's_x' did not run there, as 'z' waits"
        in first
    )
    assert (
        "'z' on cpu:1, frame /, waits for 'y' from cpu:0: 's_y' did not run there, as 'x' waits"
        in second
    )


def test_a_recv_outside_of_the_loop_that_its_send_is_in() -> None:
    text = counting().replace("r_body = _Recv(^cm_B)", "r_body = _Recv()")
    text = text.replace("one = Const(^cm_B)", "one = Const()")
    message = deadlock_error(text, {"n": 3}).message
    assert "'s_body' is in the loop 'loop', the Recv is not" in message
    assert "'s_sum' is not in the loop 'loop'" in message


def test_a_deadlock_names_the_frame_path_of_nested_loops() -> None:
    text = nesting().replace("i_j = Enter(b_zero)", "i_j = Enter(o_one)")
    error = deadlock_error(text, {"n_outer": 2, "n_inner": 2})
    assert error.frame == "/outer[2]/inner[1]"
    assert "'next_in' forwarded nothing to /outer[2]/inner[1]" in error.message


def test_a_recv_that_waits_in_each_iteration_is_listed_once() -> None:
    counter = """
n = Placeholder() {dtype=int32, shape=[]}
zero = Const() {dtype=int32, value=int32[]:0}
enter = Enter(zero) {frame_name="loop", parallel_iterations=20}
limit = Enter(n) {frame_name="loop", is_constant=true, parallel_iterations=20}
merge = Merge(enter, next)
less = Less(merge, limit)
cond = LoopCond(less)
switch = Switch(merge, cond)
one = Const(^switch) {dtype=int32, value=int32[]:1}
add = AddV2(switch:1, one)
next = NextIteration(add)
lost = _Recv(^merge) {RECV B->A lost int32}
used = Neg(lost)
out = Exit(switch)
"""
    text = partitioned(A=counter, B="other = Const() {dtype=int32, value=int32[]:0}")
    with pytest.raises(ExecutionError) as caught:
        session(text).run(targets=["used"], feeds={"n": 15})
    first, second = caught.value.message.splitlines()
    assert "16 Recvs wait" in first
    assert "'lost' on cpu:0, frame /loop[0] to /loop[15] (16 iterations), waits for" in second


def test_two_transfers_of_one_key_are_refused() -> None:
    text = counting().replace('tensor_name="body"', 'tensor_name="cond"')
    with pytest.raises(InvalidInput, match=r"'r_cond' has the same key: 'cond' from .*CPU:0 to"):
        session(text).run(["out:0"], {"n": 3})


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (f'Identity(exit) @"{A}"', f'Identity(exit) @"{B}"', "crosses devices: 'exit' is on"),
        (f'Identity(exit) @"{A}"', "Identity(exit)", "'out' of a partitioned graph has no device"),
    ],
)
def test_a_partitioned_graph_is_cut_everywhere(before: str, after: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        session(counting().replace(before, after)).run(["out:0"], {"n": 3})
    assert caught.value.code == "CFG430"


def missing_value(text: str, engine: str) -> str:
    with pytest.raises(ExecutionError) as caught:
        session(text, engine=engine).run(["v_out", "c_out"], {"x": 1})
    assert caught.value.code == "CFG707"
    return caught.value.message


@pytest.mark.parametrize("engine", ["tokens", "auto"])
def test_a_loop_whose_enter_waits_for_its_exit_names_the_iterations_that_it_needs(
    engine: str,
) -> None:
    enough = session(LATE.replace("PARALLEL", "4"), engine=engine)
    assert enough.run(["v_out", "c_out"], {"x": 1}) == [8, 22]
    message = missing_value(LATE.replace("PARALLEL", "1"), engine)
    assert "the loop 'loop' stopped at /loop[0]: with parallel_iterations=1 no" in message
    assert "its Enter 'c_first' has a value, which waits for 'v_out'" in message
    assert "parallel_iterations=4 would run" in message


def test_an_exit_that_waits_for_an_enter_which_waits_for_it_is_explained() -> None:
    text = LATE.replace("PARALLEL", "10").replace("(v_sw:1, v_sw:1)", "(v_sw:1, c_sw:1)")
    message = missing_value(text, "tokens")
    reason = "stopped at /loop[3] before 'v_out' ran, for which its Enter 'c_first' waits"
    assert message.count(reason) == 1
