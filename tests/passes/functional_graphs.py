"""Functional graphs of any size, in the text format."""

from __future__ import annotations

import cfgraph
from cfgraph.ir.graph import Graph
from tests.analysis.graph_text import graph as graph_of

PLACEHOLDER = "{dtype=int32, shape=[]}"


def arguments(names: list[str]) -> str:
    """Arguments of a function, all int32."""
    return ", ".join(f"{name}: int32" for name in names)


def loop(changed: int, invariants: int, read: int) -> str:
    """A While over variables that change, invariants that are read, and ones that are not.

    The condition reads nothing but the first variable; each variable has 1 added.
    """
    names = [f"x{i}" for i in range(changed + invariants)]
    lines = [f"{name} = Placeholder() {PLACEHOLDER}" for name in names]
    lines.append(f"while = StatelessWhile({', '.join(names)}) {{cond=@cond, body=@body}}")
    lines += ["", f"function cond({arguments(names)}) -> (r: bool) {{"]
    lines.append("  ten = Const() {dtype=int32, value=int32[]:10}")
    lines += ["  less = Less(x0, ten:output:0) {T=int32}", "  return r = less:z:0", "}"]
    lines.append(f"function body({arguments(names)}) -> ({arguments([f'r{n}' for n in names])}) {{")
    lines.append("  one = Const() {dtype=int32, value=int32[]:1}")
    for place, name in enumerate(names):
        if place < changed:
            step = names[changed + place % read] if read else "one:output:0"
            lines.append(f"  add{place} = AddV2({name}, {step}) {{T=int32}}")
            lines.append(f"  return r{name} = add{place}:z:0")
        else:
            lines.append(f"  return r{name} = {name}")
    return "\n".join([*lines, "}", ""])


def conditional(tensors: int, outputs: int, form: str = "StatelessIf") -> str:
    """A conditional with this number of outer tensors and outputs."""
    names = [f"x{i}" for i in range(tensors)]
    lines = ["pred = Placeholder() {dtype=bool, shape=[]}"]
    lines += [f"{name} = Placeholder() {PLACEHOLDER}" for name in names]
    types = ", ".join(["int32"] * outputs)
    branches = f"Tout=({types}), then_branch=@sum, else_branch=@product"
    lines.append(f"if = {form}(pred, {', '.join(names)}) {{{branches}}}")
    for name, op in (("sum", "AddV2"), ("product", "Mul")):
        returns = arguments([f"r{i}" for i in range(outputs)])
        lines += ["", f"function {name}({arguments(names)}) -> ({returns}) {{"]
        for i in range(outputs):
            x, y = names[i % tensors], names[(i + 1) % tensors]
            lines += [f"  n{i} = {op}({x}, {y}) {{T=int32}}", f"  return r{i} = n{i}:z:0"]
        lines.append("}")
    return "\n".join([*lines, ""])


def calls(count: int) -> str:
    """A chain of calls of one function, which calls another."""
    lines = [f"x = Placeholder() {PLACEHOLDER}"]
    for place in range(count):
        source = f"call{place - 1}" if place else "x"
        lines.append(f"call{place} = PartitionedCall({source}) {{Tout=(int32), f=@outer}}")
    lines.append("""
function outer(x: int32) -> (y: int32) {
  inner = inner(x)
  return y = inner:y:0
}
function inner(x: int32) -> (y: int32) {
  one = Const() {dtype=int32, value=int32[]:1}
  add = AddV2(x, one:output:0) {T=int32}
  return y = add:z:0
}""")
    return "\n".join([*lines, ""])


def nested(depth: int) -> str:
    """A conditional in a conditional in …: adds 1 at each level, as long as the predicate is true.

    The other side returns what came in.
    """
    lines = ["pred = Placeholder() {dtype=bool, shape=[]}", f"x = Placeholder() {PLACEHOLDER}"]
    attrs = "Tcond=bool, Tin=(bool, int32), Tout=(int32), else_branch=@leave"
    lines.append(f"if = StatelessIf(pred, pred, x) {{{attrs}, then_branch=@f{depth - 1}}}")
    for level in range(depth):
        lines += ["", f"function f{level}(pred: bool, x: int32) -> (y: int32) {{"]
        lines.append("  one = Const() {dtype=int32, value=int32[]:1}")
        lines.append("  add = AddV2(x, one:output:0) {T=int32}")
        if level:
            branch = f"then_branch=@f{level - 1}"
            lines.append(f"  if = StatelessIf(pred, pred, add:z:0) {{{attrs}, {branch}}}")
        lines += [f"  return y = {'if:output:0' if level else 'add:z:0'}", "}"]
    lines.append("\nfunction leave(pred: bool, x: int32) -> (y: int32) {\n  return y = x\n}")
    return "\n".join([*lines, ""])


def lowered(text: str) -> Graph:
    """Parse a graph and lower it."""
    graph = graph_of(text)
    assert cfgraph.lower(graph)
    return graph
