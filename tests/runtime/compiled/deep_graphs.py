"""Graphs of deeply nested loops and conditionals."""

from __future__ import annotations

import cfgraph
from cfgraph.ir.graph import Graph

LOOP = """
x{i} = Enter({outer}) {{frame_name="loop{i}"}}
n{i} = Enter({limit}) {{frame_name="loop{i}", is_constant=true}}
one{i} = Enter({one}) {{frame_name="loop{i}", is_constant=true}}
start{i} = Enter({zero}) {{frame_name="loop{i}"}}
m{i} = Merge(x{i}, next{i})
count{i} = Merge(start{i}, counted{i})
less{i} = Less(count{i}, n{i})
cond{i} = LoopCond(less{i})
s{i} = Switch(m{i}, cond{i})
c{i} = Switch(count{i}, cond{i})
body{i} = Identity(s{i}:1)
zero{i} = ZerosLike(body{i})
add{i} = AddV2(c{i}:1, one{i})
counted{i} = NextIteration(add{i})
exit{i} = Exit(s{i})
"""


def nested_loops(depth: int, innermost: str = "") -> Graph:
    """Loops of `n` iterations; each adds 1 in each iteration. `innermost` ends the body."""
    lines = [
        "n = Placeholder() {dtype=int32, shape=[]}",
        "x = Placeholder() {dtype=int32, shape=[]}",
        "one = Const() {dtype=int32, value=int32[]:1}",
        "zero = Const() {dtype=int32, value=int32[]:0}",
    ]
    for i in range(depth):
        names = {"outer": f"body{i - 1}", "limit": f"n{i - 1}", "one": f"one{i - 1}"}
        zero = f"zero{i - 1}"
        if not i:
            names, zero = {"outer": "x", "limit": "n", "one": "one"}, "zero"
        lines.append(LOOP.format(i=i, zero=zero, **names))
    last = depth - 1
    lines.append(
        innermost.replace("{i}", str(last)) if innermost else f"inner = Identity(body{last})"
    )
    inner = "inner"
    for i in reversed(range(depth)):
        lines.append(f"sum{i} = AddV2({inner}, one{i})\nnext{i} = NextIteration(sum{i})")
        inner = f"exit{i}"
    lines.append("out = Identity(exit0)")
    return cfgraph.loads("\n".join(lines).encode(), "graph")


def nested_conditionals(depth: int, innermost: str = "") -> Graph:
    """Conditionals, each in the branch of the one before that is taken if `p` is true."""
    lines = [
        "p = Placeholder() {dtype=bool, shape=[]}",
        "x = Placeholder() {dtype=int32, shape=[]}",
        "one = Const() {dtype=int32, value=int32[]:1}",
    ]
    value, predicate = "x", "p"
    for i in range(depth):
        lines.append(
            f"s{i} = Switch({value}, {predicate})\n"
            f"q{i} = Switch({predicate}, {predicate})\n"
            f"no{i} = Neg(s{i})\n"
            f"yes{i} = AddV2(s{i}:1, one)\n"
            f"ok{i} = LogicalNot(q{i}:1)\n"
            f"again{i} = LogicalNot(ok{i})"
        )
        value, predicate = f"yes{i}", f"again{i}"
    lines.append(
        innermost.replace("{i}", str(depth - 1)) if innermost else f"inner = Identity({value})"
    )
    inner = "inner"
    for i in reversed(range(depth)):
        lines.append(f"m{i} = Merge(no{i}, {inner})")
        inner = f"m{i}"
    lines.append(f"out = Identity({inner})")
    return cfgraph.loads("\n".join(lines).encode(), "graph")
