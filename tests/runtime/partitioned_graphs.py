"""Hand-partitioned graphs in the text format, for tests of several devices."""

from __future__ import annotations

import re

from tests.runtime.graphs import loop

A, B, C = (f"/job:localhost/replica:0/task:0/device:CPU:{number}" for number in range(3))
_NAMES = {"A": A, "B": B, "C": C}

_SEND = re.compile(r"SEND ([A-Z])->([A-Z]) (\w+)")
_RECV = re.compile(r"RECV ([A-Z])->([A-Z]) (\w+) (\w+)")

CONTROL_LOOP = """
c_D = Const() {dtype=float32, value=float32[0]:[]}
ce_D = Enter(c_D) {frame_name="FRAME", parallel_iterations=PARALLEL}
cm_D = Merge(ce_D, cn_D)
cs_D = Switch(cm_D, PRED)
cn_D = NextIteration(cs_D:1)
"""


def control_loop(device: str, predicate: str, frame: str = "loop", parallel: int = 10) -> str:
    """The control loop of a device without the predicate; `cm_DEVICE` starts it."""
    text = CONTROL_LOOP.replace("FRAME", frame).replace("PARALLEL", str(parallel))
    return text.replace("PRED", predicate).replace("_D", f"_{device}")


def partitioned(**parts: str) -> str:
    """One graph from a text per device.

    In the texts `SEND A->B key` and `RECV A->B key type` stand for the attributes of a transfer.
    """
    lines = []
    for device, text in parts.items():
        whole = _SEND.sub(lambda m: _key(m[1], m[2], m[3]), text)
        whole = _RECV.sub(lambda m: f"tensor_type={m[4]}, " + _key(m[1], m[2], m[3]), whole)
        lines += [f'{line} @"{_NAMES[device]}"' for line in whole.splitlines() if line]
    return "\n".join(lines) + "\n"


def _key(source: str, destination: str, name: str) -> str:
    return (
        f'tensor_name="{name}", send_device="{_NAMES[source]}", send_device_incarnation=1, '
        f'recv_device="{_NAMES[destination]}"'
    )


def counting(parallel: int = 10) -> str:
    """A loop on A that counts to `n`, its addition on B."""
    a = loop(parallel).replace(
        "one = Const(^body) {dtype=int32, value=int32[]:1}\nadd = AddV2(body, one)",
        "s_cond = _Send(cond) {SEND A->B cond}\n"
        "s_body = _Send(body) {SEND A->B body}\n"
        "add = _Recv(^merge) {RECV B->A sum int32}",
    )
    b = (
        control_loop("B", "r_cond", parallel=parallel)
        + """
r_cond = _Recv(^cm_B) {RECV A->B cond bool}
r_body = _Recv(^cm_B) {RECV A->B body int32}
one = Const(^cm_B) {dtype=int32, value=int32[]:1}
sum = AddV2(r_body, one)
s_sum = _Send(sum) {SEND B->A sum}
"""
    )
    return partitioned(A=a, B=b)


def nesting(parallel: int = 10) -> str:
    """Two nested loops on A whose innermost addition is on B: `out` is `n_outer * n_inner`."""
    a = """
n_outer = Placeholder() {dtype=int32, shape=[]}
n_inner = Placeholder() {dtype=int32, shape=[]}
zero = Const() {dtype=int32, value=int32[]:0}
one = Const() {dtype=int32, value=int32[]:1}
o_limit = Enter(n_outer) {frame_name="outer", is_constant=true, PARALLEL}
o_inner = Enter(n_inner) {frame_name="outer", is_constant=true, PARALLEL}
o_one = Enter(one) {frame_name="outer", is_constant=true, PARALLEL}
o_i = Enter(zero) {frame_name="outer", PARALLEL}
o_sum = Enter(zero) {frame_name="outer", PARALLEL}
m_i = Merge(o_i, next_i)
m_sum = Merge(o_sum, next_sum)
less = Less(m_i, o_limit)
cond = LoopCond(less)
s_cond = _Send(cond) {SEND A->B cond}
sw_i = Switch(m_i, cond)
sw_sum = Switch(m_sum, cond)
add_i = AddV2(sw_i:1, o_one)
next_i = NextIteration(add_i)
i_limit = Enter(o_inner) {frame_name="inner", is_constant=true, PARALLEL}
i_one = Enter(o_one) {frame_name="inner", is_constant=true, PARALLEL}
body = Identity(sw_i:1)
b_zero = Const(^body) {dtype=int32, value=int32[]:0}
i_j = Enter(b_zero) {frame_name="inner", PARALLEL}
i_sum = Enter(sw_sum:1) {frame_name="inner", PARALLEL}
m_j = Merge(i_j, next_j)
m_in = Merge(i_sum, next_in)
less_in = Less(m_j, i_limit)
cond_in = LoopCond(less_in)
s_cond_in = _Send(cond_in) {SEND A->B cond_in}
sw_j = Switch(m_j, cond_in)
sw_in = Switch(m_in, cond_in)
add_j = AddV2(sw_j:1, i_one)
next_j = NextIteration(add_j)
s_in = _Send(sw_in:1) {SEND A->B in}
r_more = _Recv(^m_j) {RECV B->A more int32}
next_in = NextIteration(r_more)
x_in = Exit(sw_in)
next_sum = NextIteration(x_in)
x_sum = Exit(sw_sum)
out = Identity(x_sum)
""".replace("PARALLEL", f"parallel_iterations={parallel}")
    outer = control_loop("B", "r_cond", "outer", parallel)
    inner = control_loop("I", "r_cond_in", "inner", parallel)
    inner = inner.replace("c_I = Const() {dtype=float32, value=float32[0]:[]}\n", "")
    inner = inner.replace("Enter(c_I)", "Enter(cm_B)")
    b = (
        outer
        + inner
        + """
r_cond = _Recv(^cm_B) {RECV A->B cond bool}
r_cond_in = _Recv(^cm_I) {RECV A->B cond_in bool}
r_in = _Recv(^cm_I) {RECV A->B in int32}
b_one = Const(^cm_I) {dtype=int32, value=int32[]:1}
more = AddV2(r_in, b_one)
s_more = _Send(more) {SEND B->A more}
"""
    )
    return partitioned(A=a, B=b)
