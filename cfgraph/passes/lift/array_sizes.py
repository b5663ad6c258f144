"""Which indices are those of a whole array: from the first element to the last, in order."""

from __future__ import annotations

from collections.abc import Collection

from cfgraph.ir.graph import Node, Output
from cfgraph.ops.op import behind_identities, is_a, lookup
from cfgraph.ops.ranges import Range
from cfgraph.ops.shape_inference import Shapes


def names_all(indices: Output, made: Node, sizes: Collection[Node], shapes: Shapes) -> bool:
    """True for 0, 1, 2, … up to the size of an array; `sizes` are the nodes that ask for that."""
    node = behind_identities(indices).node
    if not is_a(node, Range):
        return False
    start, limit, step = (behind_identities(item) for item in node.inputs)
    if (_number(start, shapes), _number(step, shapes)) != (0, 1):
        return False
    return limit.node in sizes or _same_number(limit, behind_identities(made.inputs[0]), shapes)


def _same_number(one: Output, other: Output, shapes: Shapes) -> bool:
    """True if two numbers are equal: known ones, or computed alike from the same tensors."""
    todo = [(one, other)]
    seen = set(todo)
    for mine, theirs in todo:
        if mine == theirs or _same_value(mine, theirs, shapes):
            continue
        if mine.port != theirs.port or not _alike(mine.node, theirs.node):
            return False
        for pair in zip(mine.node.inputs, theirs.node.inputs, strict=True):
            if pair not in seen:
                seen.add(pair)
                todo.append(pair)
    return True


def _alike(one: Node, other: Node) -> bool:
    """True for nodes that make the same of the same inputs; those without any are not told."""
    op = lookup(one.op)
    if op is None or op.stateful or op.role or not one.inputs or one.op != other.op:
        return False
    if len(one.inputs) != len(other.inputs):
        return False
    mine, theirs = ({k: v for k, v in node.attrs.items() if k[0] != "_"} for node in (one, other))
    return mine == theirs


def _same_value(one: Output, other: Output, shapes: Shapes) -> bool:
    mine, theirs = shapes.value(one), shapes.value(other)
    if mine is None or theirs is None or mine.shape != theirs.shape:
        return False
    return mine.dtype == theirs.dtype and bool((mine == theirs).all())


def _number(item: Output, shapes: Shapes) -> int | None:
    value = shapes.value(item)
    return None if value is None or value.ndim else int(value)
