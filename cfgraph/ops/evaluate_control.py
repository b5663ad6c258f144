"""Loops and conditionals in the body of a function: the functions that they call, as callables.

Only what has no side effects can stand in a straight line: StatelessWhile and StatelessIf.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cfgraph.errors import Unsupported
from cfgraph.ir.function_graph import FunctionGraph, FunctionInstances
from cfgraph.ir.graph import Node
from cfgraph.ops.evaluate import Bind, StraightLine, numpy_kernel, ordered, static_nodes
from cfgraph.ops.op import Kernel, Op

LineOf = Callable[[FunctionGraph], StraightLine]


def called(node: Node, op: type[Op], instances: FunctionInstances) -> tuple[FunctionGraph, ...]:
    """The functions that a loop or a conditional calls; none for any other node."""
    if not op.in_line:
        return ()
    found = [node.attr(name) for name in getattr(op, "functions", ())]
    return tuple(instances.get(func.name, func.attrs) for func in found)


def constant_slots(node: Node, op: type[Op], instances: FunctionInstances | None) -> frozenset[int]:
    """The inputs that a compiler must know by value, also those that functions need so."""
    if not op.in_line:
        return op.slots_of(node, op.constant_inputs)
    if instances is None:
        return frozenset()
    first: int = getattr(op, "first_argument", 0)
    return frozenset(
        first + place
        for function in called(node, op, instances)
        for place in constant_arguments(function, instances)
    )


def constant_arguments(
    function: FunctionGraph, instances: FunctionInstances | None
) -> frozenset[int]:
    """The arguments of a function that a compiler must know by value."""
    static = static_nodes(ordered(function), lambda node, op: constant_slots(node, op, instances))
    places = enumerate(function.arguments)
    return frozenset(place for place, argument in places if argument in static)


def invariant(body: FunctionGraph) -> tuple[bool, ...]:
    """For each variable of a loop whether its body hands it on as it is."""
    pairs = zip(body.arguments, body.returns, strict=True)
    return tuple(result == argument.output() for argument, result in pairs)


def numpy_line(function: FunctionGraph, instances: FunctionInstances, plain: Bind) -> StraightLine:
    """A function's body over NumPy arrays; `plain` binds what is no control flow.

    Raises Unsupported, with the node, as a StraightLine does, and for effects in what is called.
    """

    def bind(node: Node, op: type[Op]) -> Kernel:
        inner = called(node, op, instances)
        if not inner:
            return plain(node, op)
        lines = [numpy_line(one, instances, pure(plain)) for one in inner]
        return numpy_control(op, lines)

    return StraightLine(function, bind)


def pure(bind: Bind) -> Bind:
    """Kernels for a function that a loop or a conditional calls, which may have no effects."""

    def bound(node: Node, op: type[Op]) -> Kernel:
        if op.stateful:
            message = f"{node.op} has effects, or hangs on state, in what has none"
            raise Unsupported(message, node=node, code="CFG709")
        return bind(node, op)

    return bound


def numpy_function(function: FunctionGraph, instances: FunctionInstances) -> StraightLine:
    """A function's body over NumPy arrays."""
    return numpy_line(function, instances, numpy_kernel)


def numpy_control(op: type[Op], lines: Sequence[StraightLine]) -> Kernel:
    """The kernel of a loop or a conditional over NumPy arrays."""
    if getattr(op, "functional", "") == "while":
        return _loop(*lines)
    then, other = (line.run for line in lines)
    return lambda pred, *values: then(None, *values) if pred else other(None, *values)


def _loop(cond: StraightLine, body: StraightLine) -> Kernel:
    holds, step = cond.run, body.run

    def run_one(value: Any) -> Any:
        while holds(None, value):
            value = step(None, value)
        return value

    def run_some(*values: Any) -> Any:
        while holds(None, *values):
            values = step(None, *values)
        return values

    def run_none() -> None:
        while holds(None):
            pass

    count = len(body.returned)
    return run_one if count == 1 else run_some if count else run_none
