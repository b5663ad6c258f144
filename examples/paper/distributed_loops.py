"""Graphs of loops over several devices: one that counts on each, and one of layers in a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

# a layer: weights of SIDE x SIDE by SIDE x COLUMNS, float32
SIDE: Final = 2048
COLUMNS: Final = 64


def counting_loop(leader: str, devices: Sequence[str], *, barrier: bool, parallel: int) -> str:
    """The text of a loop with a variable on each device, which counts there up to `n`.

    The leader evaluates the predicate. With a barrier, an iteration starts when all devices have
    ended the previous one.
    """
    frame = f'{{frame_name="loop", parallel_iterations={parallel}}}'
    first = f'@"{leader}"'
    after = "".join(f", ^add{k}" for k in range(len(devices))) if barrier else ""
    lines = [
        f"n = Placeholder() {{dtype=int32, shape=[]}} {first}",
        f"zero = Const() {{dtype=int32, value=int32[]:0}} {first}",
        f"start = Enter(zero) {frame} {first}",
        f'limit = Enter(n) {{frame_name="loop", is_constant=true, '
        f"parallel_iterations={parallel}}} {first}",
        f"i = Merge(start, next) {first}",
        f"less = Less(i, limit) {first}",
        f"cond = LoopCond(less) {first}",
        f"switch = Switch(i, cond) {first}",
        f"body = Identity(switch:1) {first}",
        f"one = Const(^body{after}) {{dtype=int32, value=int32[]:1}} {first}",
        f"add = AddV2(body, one) {first}",
        f"next = NextIteration(add) {first}",
    ]
    for k, device in enumerate(devices):
        at = f'@"{device}"'
        lines += [
            f"zero{k} = Const() {{dtype=float32, value=float32[]:0}} {at}",
            f"enter{k} = Enter(zero{k}) {frame} {at}",
            f"merge{k} = Merge(enter{k}, next{k}) {at}",
            f"switch{k} = Switch(merge{k}, cond) {at}",
            f"body{k} = Identity(switch{k}:1) {at}",
            f"one{k} = Const(^body{k}) {{dtype=float32, value=float32[]:1}} {at}",
            f"add{k} = AddV2(body{k}, one{k}) {at}",
            f"next{k} = NextIteration(add{k}) {at}",
            f"exit{k} = Exit(switch{k}) {at}",
            f"out{k} = Identity(exit{k}) {at}",
        ]
    return "\n".join(lines) + "\n"


def layered_loop(layers: int, *, parallel: int) -> str:
    """The text of a loop that sends a matrix through a layer on each GPU, and adds the results."""
    frame = f'frame_name="loop", parallel_iterations={parallel}'
    first, last = '@"/device:CPU:0"', f'@"/device:GPU:{layers - 1}"'
    lines = [
        f"n = Placeholder() {{dtype=int32, shape=[]}} {first}",
        f"limit = Enter(n) {{{frame}, is_constant=true}} {first}",
        f"zero = Const() {{dtype=int32, value=int32[]:0}} {first}",
        f"start = Enter(zero) {{{frame}}} {first}",
        f"i = Merge(start, next) {first}",
        f"less = Less(i, limit) {first}",
        f"cond = LoopCond(less) {first}",
        f"switch = Switch(i, cond) {first}",
        f"body = Identity(switch:1) {first}",
        f"number = Cast(body) {{DstT=float32}} {first}",
        f"one = Const(^body) {{dtype=int32, value=int32[]:1}} {first}",
        f"add = AddV2(body, one) {first}",
        f"next = NextIteration(add) {first}",
        f"nothing = Const() {{dtype=float32, value=float32[]:0}} {first}",
        f"empty = Enter(nothing) {{{frame}}} {first}",
        f"sum = Merge(empty, more) {first}",
        f"so_far = Switch(sum, cond) {first}",
        f"added = AddV2(so_far:1, loss) {first}",
        f"more = NextIteration(added) {first}",
        f"total = Exit(so_far) {first}",
        f"out = Identity(total) {first}",
        f'x = Const() {{dtype=float32, value=float32[{SIDE},{COLUMNS}]:(0)}} @"/device:GPU:0"',
        f'enter = Enter(x) {{{frame}, is_constant=true}} @"/device:GPU:0"',
        'layer = Mul(enter, number) @"/device:GPU:0"',
        f"all = Const() {{dtype=int32, value=int32[2]:[0,1]}} {last}",
        f"axes = Enter(all) {{{frame}, is_constant=true}} {last}",
        f"loss = Sum(layer{layers - 1}, axes) {last}",
    ]
    for k in range(layers):
        at = f'@"/device:GPU:{k}"'
        below = f"layer{k - 1}" if k else "layer"
        lines += [
            f"w{k} = Const() {{dtype=float32, value=float32[{SIDE},{SIDE}]:(0)}} {at}",
            f"weights{k} = Enter(w{k}) {{{frame}, is_constant=true}} {at}",
            f"layer{k} = MatMul(weights{k}, {below}) {at}",
        ]
    return "\n".join(lines) + "\n"
