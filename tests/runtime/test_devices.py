"""Several devices: each has an executor of its own, and they meet at the rendezvous."""

from __future__ import annotations

import numpy as np
import pytest

from tests.runtime.devices import counting, partitioned
from tests.runtime.graphs import session


@pytest.mark.parametrize("parallel", [1, 2, 10])
@pytest.mark.parametrize("count", [0, 1, 2, 57])
def test_a_loop_on_two_devices_counts(parallel: int, count: int) -> None:
    assert session(counting(parallel)).run(["out:0"], {"n": count}) == [count]


@pytest.mark.parametrize("seed", range(5))
def test_no_interleaving_of_devices_changes_a_value(seed: int) -> None:
    both = session(counting(), schedule="random", schedule_seed=seed)
    assert both.run(["out:0"], {"n": 20}) == [20]


GATED = partitioned(
    A="""
x = Placeholder() {dtype=float32, shape=[]}
q = Placeholder() {dtype=bool, shape=[]}
sent = Switch(x, q)
send = _Send(sent:1) {SEND A->B x}
""",
    B="""
p = Placeholder() {dtype=bool, shape=[]}
side = Switch(p, p)
gate = Identity(side:1)
recv = _Recv(^gate) {RECV A->B x float32}
plain = Neg(recv)
merge = Merge(recv, recv)
out = Neg(merge)
""",
)


@pytest.mark.parametrize("schedule", ["fifo", "random"])
@pytest.mark.parametrize("gate", [False, True])
@pytest.mark.parametrize("message", [False, True])
def test_a_merge_takes_a_message_whatever_the_control_inputs_of_its_recv(
    gate: bool, message: bool, schedule: str
) -> None:
    feeds = {"x": np.float32(2), "p": gate, "q": message}
    run = session(GATED, schedule=schedule)
    out, plain = run.run(["out:0", "plain:0"], feeds, allow_dead=True)
    assert out == (-2 if message else None)
    assert plain == (-2 if message and gate else None)
