"""Static trip counts of loops whose bounds are constants."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from cfgraph.analysis.loops.while_loop import loop_variable
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.role import Role
from cfgraph.ops.families.arithmetic import Add, AddV2, Sub
from cfgraph.ops.families.comparison import Greater, GreaterEqual, Less, LessEqual
from cfgraph.ops.opdef.op import Op, lookup, role_of, strip_identities
from cfgraph.ops.shape_inference import StaticShapes

# additional iterations if both sides are equal, and the direction of counting
_COMPARISONS: Final[dict[type[Op], tuple[int, int]]] = {
    Less: (0, 1),
    LessEqual: (1, 1),
    Greater: (0, -1),
    GreaterEqual: (1, -1),
}


class InductionVariable(NamedTuple):
    """A loop variable with a constant integer start and step."""

    start: int
    step: int


def static_trip_count(cond: Node, shapes: StaticShapes) -> int | None:
    """An upper bound on the iterations of a loop, or None if it is not static."""
    return _max_trip_count(cond.inputs[0], shapes)


class AffineBound(NamedTuple):
    """Number of iterations as (sign * limit + offset) / step, rounded up."""

    limit: Output
    sign: int
    offset: int
    step: int


def affine_bound(cond: Node, shapes: StaticShapes) -> AffineBound | None:
    """An upper bound on the iterations that depends on a tensor of the loop, or None.

    A negative bound means no iteration.
    """
    todo = [cond.inputs[0]]
    for pred in todo:
        node = strip_identities(pred).node
        op = lookup(node.op)
        if op is not None and op.algebra.boolean_semantics == "and":
            todo += node.inputs
        elif op in _COMPARISONS and (bound := _comparison_bound(node, _COMPARISONS[op], shapes)):
            return bound
    return None


def _comparison_bound(
    node: Node, compared: tuple[int, int], shapes: StaticShapes
) -> AffineBound | None:
    equal, way = compared
    lhs, rhs = node.inputs
    for tensor, limit, sign in ((lhs, rhs, way), (rhs, lhs, -way)):
        counter = _induction_variable(tensor, shapes)
        if counter is not None and sign * counter.step > 0:
            return AffineBound(limit, sign, equal - sign * counter.start, sign * counter.step)
    return None


def _max_trip_count(pred: Output, shapes: StaticShapes) -> int | None:
    """An upper bound on how often a predicate holds."""
    origin = strip_identities(pred)
    op = lookup(origin.node.op)
    if op is not None and op.algebra.boolean_semantics == "and":
        known = [_max_trip_count(tensor, shapes) for tensor in origin.node.inputs]
        return min((count for count in known if count is not None), default=None)
    compared = None if op is None else _COMPARISONS.get(op)
    if compared is None:
        return None
    equal, way = compared
    lhs, rhs = origin.node.inputs
    for tensor, limit, sign in ((lhs, rhs, way), (rhs, lhs, -way)):
        counter, end = _induction_variable(tensor, shapes), _static_integer(limit, shapes)
        if counter is not None and end is not None:
            return _iterations_to(counter, end, equal, sign)
    return None


def _iterations_to(counter: InductionVariable, end: int, equal: int, sign: int) -> int | None:
    """The number of iterations until a counter reaches its end, or None if it never does."""
    distance = sign * (end - counter.start) + equal
    if distance <= 0:
        return 0
    step = sign * counter.step
    return None if step <= 0 else -(-distance // step)


def _induction_variable(x: Output, shapes: StaticShapes) -> InductionVariable | None:
    variable = loop_variable(strip_identities(x).node)
    if variable is None:
        return None
    start = _static_integer(variable.initial, shapes)
    step = _step_of(variable.updated, variable.merge, shapes)
    return None if start is None or step is None else InductionVariable(start, step)


def _step_of(after: Output, merge: Node, shapes: StaticShapes) -> int | None:
    """The constant that an iteration adds to a variable, or None."""
    node = strip_identities(after).node
    op = lookup(node.op)
    if op not in (Add, AddV2, Sub):
        return None
    lhs, rhs = node.inputs
    if _merge_of(lhs) is merge:
        step = _static_integer(rhs, shapes)
        return -step if step is not None and op is Sub else step
    return _static_integer(lhs, shapes) if _merge_of(rhs) is merge and op is not Sub else None


def _merge_of(x: Output) -> Node:
    """The node that produces a value, ignoring Identity nodes and one Switch.

    For a loop variable that the body reads, this is the variable's Merge.
    """
    origin = strip_identities(x)
    if role_of(origin.node) is Role.SWITCH:
        origin = strip_identities(origin.node.inputs[0])
    return origin.node


def _static_integer(x: Output, shapes: StaticShapes) -> int | None:
    """The value of a static integer scalar, or None."""
    value: Any = shapes.value(x)
    return (
        int(value) if value is not None and value.ndim == 0 and value.dtype.kind in "iu" else None
    )
