"""Graphs cut by hand into partitions, in the readable form, for tests of several devices."""

from __future__ import annotations

import re

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
    """The machine that drives a loop on a device without its predicate; `cm_DEVICE` starts it."""
    text = CONTROL_LOOP.replace("FRAME", frame).replace("PARALLEL", str(parallel))
    return text.replace("PRED", predicate).replace("_D", f"_{device}")


def partitioned(**parts: str) -> str:
    """One graph from a text a device, in which `SEND A->B key` and `RECV A->B key type` stand for
    the attributes of a transfer.
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
    a = """
n = Placeholder() {dtype=int32, shape=[]}
zero = Const() {dtype=int32, value=int32[]:0}
enter = Enter(zero) {frame_name="loop", parallel_iterations=PARALLEL}
limit = Enter(n) {frame_name="loop", is_constant=true, parallel_iterations=PARALLEL}
merge = Merge(enter, next)
less = Less(merge, limit)
cond = LoopCond(less)
switch = Switch(merge, cond)
body = Identity(switch:1)
s_cond = _Send(cond) {SEND A->B cond}
s_body = _Send(body) {SEND A->B body}
add = _Recv(^merge) {RECV B->A sum int32}
next = NextIteration(add)
exit = Exit(switch)
out = Identity(exit)
""".replace("PARALLEL", str(parallel))
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
