"""Function bodies as straight lines of nodes: their order, their constants, and their limits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from types import ModuleType
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np

from cfgraph.errors import Unsupported
from cfgraph.ir.attrs import functions_in
from cfgraph.ir.dtypes import variant
from cfgraph.ir.function_graph import FunctionGraph, FunctionInstances
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.traversal import topological_order
from cfgraph.limits import current_limits
from cfgraph.ops.opdef.op import (
    Elementwise,
    Op,
    SameShape,
    is_a,
    lookup,
    row_operation,
    strip_identities,
)

# bound on calls in each other, far from the end of Python's stack: a call takes nine frames
_MAX_CALL_DEPTH: Final = 64
# bound on regions in each other that become calls, which a cluster and its body call
MAX_NESTED_CALLS: Final = 60
SlotsOf = Callable[[Node, type[Op]], Collection[int]]


# with the edits of the graph until then
_orders: WeakKeyDictionary[FunctionGraph, tuple[int, Sequence[Node]]] = WeakKeyDictionary()


def execution_order(function: FunctionGraph) -> Sequence[Node]:
    """The nodes that outputs and effects of a function need, in topological order.

    Arguments are excluded. Raises Unsupported for nodes that cannot run in a straight line.
    """
    edits, known = function.graph.edits, _orders.get(function)
    if known is None or known[0] != edits:
        known = _orders[function] = edits, _straight_line(function)
    return known[1]


def _straight_line(function: FunctionGraph) -> Sequence[Node]:
    needed = function.needed()
    order = topological_order([node for node in function.graph if node in needed]).nodes
    arguments = set(function.arguments)
    nodes = [node for node in order if node not in arguments]
    for node in nodes:
        _require_straight_line(function, node)
    return nodes


def _require_straight_line(function: FunctionGraph, node: Node) -> None:
    op = lookup(node.op)
    what = ""
    if op is None or not (op.compilation.runnable or op.calls.inlined):
        what = f"op {node.op!r}, which has no kernel"
    elif op.role:
        what = f"control flow ({node.op})"
    elif any(dtype.is_ref for dtype in _node_types(node)):
        what = f"a reference to a variable ({node.op})"
    if what:
        message = f"function {function.name!r} cannot run as straight-line code: it contains {what}"
        raise Unsupported(message, node=f"{function.name}/{node.name}", code="CFG709")


def _node_types(node: Node) -> list[Any]:
    return [*(node.input_types or []), *(node.output_types or [])]


def required_op(node: Node) -> type[Op]:
    """The op of a node of a function that `execution_order` accepts."""
    op = lookup(node.op)
    assert op is not None
    return op


def _constant_input_slots(node: Node, op: type[Op]) -> Collection[int]:
    return op.constant_slots(node)


def compile_time_nodes(
    order: Sequence[Node], slots_of: SlotsOf = _constant_input_slots
) -> frozenset[Node]:
    """The nodes and arguments whose values a compiler must know.

    Constant inputs, which `slots_of` a node determines, need them. Ops that depend only on shapes
    need no values, and no handle determines what a variable contains.
    """
    static: set[Node] = set()
    for node in reversed(order):
        op = required_op(node)
        if node in static:
            sources = determining_inputs(node, op)
            static.update(item.node for item in sources if not _is_handle(item))
        static.update(node.inputs[slot].node for slot in slots_of(node, op))
    return frozenset(static)


# operations on the rows of a list by which nothing but the length and the type is known
_OF_LENGTHS: Final = ("count", "empty", "of", "push", "put", "reserve", "shape", "sum", "zeros")


def determining_inputs(node: Node, op: type[Op]) -> Sequence[Output]:
    """The inputs whose values determine what a compiler knows of the outputs of a node.

    Of a list it knows the length, which follows from other lists or from constant inputs.
    """
    if op.algebra.shape_only:
        return ()
    if row_operation(node) in _OF_LENGTHS:
        return [item for item in node.inputs if item.dtype is variant]
    return node.inputs


def _is_handle(tensor: Output) -> bool:
    return tensor.dtype is not None and tensor.dtype.kind == "resource"


def called_functions(
    node: Node, op: type[Op], instances: FunctionInstances
) -> tuple[FunctionGraph, ...]:
    """The functions that run inline in the caller of a node; none for any other node."""
    if not op.calls.inlined:
        return ()
    functions = [func for key in op.calls.functions for func in functions_in(node.attr(key))]
    return tuple(instances.get(func.name, func.attrs) for func in functions)


def constant_slots(node: Node, op: type[Op], instances: FunctionInstances | None) -> frozenset[int]:
    """The input slots with compile-time values, including slots that called functions require."""
    if not op.calls.inlined or op.calls.kind == "combine":
        return op.constant_slots(node)
    if instances is None:
        return frozenset()
    first = op.calls.first_argument
    return frozenset(
        first + index
        for function in called_functions(node, op, instances)
        for index in constant_arguments(function, instances)
    )


def constant_arguments(
    function: FunctionGraph, instances: FunctionInstances | None
) -> frozenset[int]:
    """The arguments of a function that need compile-time values."""
    known: dict[FunctionGraph, frozenset[int]] = {} if instances is None else instances.constants
    if function not in known:
        known[function] = frozenset()  # ends a recursion
        static = compile_time_nodes(
            execution_order(function), lambda node, op: constant_slots(node, op, instances)
        )
        indexed = enumerate(function.arguments)
        known[function] = frozenset(index for index, argument in indexed if argument in static)
    return known[function]


def require_bounded(
    function: FunctionGraph, instances: FunctionInstances, depth: int = _MAX_CALL_DEPTH
) -> None:
    """Raise Unsupported if a body with the functions that it calls has too many nodes.

    A recursive function has no end of them. Functions that call each other deeper than `depth` are
    refused as well.
    """
    counts: dict[FunctionGraph, int] = {}
    depths: dict[FunctionGraph, int] = {}
    for current, callees in _callees_first(function, instances):
        counts[current] = len(current.graph) + sum(counts[callee] for callee in callees)
        depths[current] = 1 + max((depths[callee] for callee in callees), default=0)
        if depths[current] > depth:
            message = f"loops and conditionals are nested more than {depth} deep"
            raise Unsupported(message, node=current.name, code="CFG709")
    current_limits().check_nodes(counts[function], function.name)


def reachable_nodes(function: FunctionGraph, instances: FunctionInstances) -> Iterator[Node]:
    """The nodes of a function and of those that it calls in loops, conditionals, and calls."""
    for current, _ in _callees_first(function, instances):
        yield from current.graph


def _callees_first(
    function: FunctionGraph, instances: FunctionInstances
) -> Iterator[tuple[FunctionGraph, list[FunctionGraph]]]:
    """The functions that a function calls in loops and conditionals, and their callees, in order.

    Raises Unsupported for recursion.
    """
    callees: dict[FunctionGraph, list[FunctionGraph]] = {}
    done, todo = set[FunctionGraph](), [function]
    while todo:
        current = todo[-1]
        if current in done:
            todo.pop()
        elif current in callees:
            done.add(todo.pop())
            yield current, callees[current]
        else:
            callees[current] = _callees(current.graph, instances)
            for callee in callees[current]:
                if callee in callees and callee not in done:
                    message = f"function {callee.name!r} calls itself"
                    raise Unsupported(message, node=current.name, code="CFG134")
                todo.append(callee)


def _callees(graph: Graph, instances: FunctionInstances) -> list[FunctionGraph]:
    ops = {name: op for name in graph.ops if (op := lookup(name)) is not None and op.calls.inlined}
    calls = [node for node in graph if node.op in ops] if ops else []
    return [callee for node in calls for callee in called_functions(node, ops[node.op], instances)]


def loop_invariant_arguments(body: FunctionGraph) -> tuple[bool, ...]:
    """Flags of the loop variables that the body returns unchanged."""
    pairs = zip(body.arguments, body.returns, strict=True)
    return tuple(result == argument.output() for argument, result in pairs)


class ScalarFunction:
    """A function of scalars as one of arrays, element by element; it returns a tuple.

    `operation` is the `function` of the op that computes its only result from its two arguments.
    """

    def __init__(self, function: FunctionGraph, run: Callable[..., Any], xp: ModuleType) -> None:
        self.operation = _binary_operation(function)
        self._count, self._xp = len(function.returns), xp
        self._run = run
        if not all(map(_keeps_elements, execution_order(function))):
            self._run = xp.vectorize(run) if xp is not np else partial(_by_element, run, function)

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        made = self._run(*arrays)
        results = made if self._count > 1 else (made,)
        return tuple(self._xp.broadcast_arrays(*results, *arrays)[: self._count])


def _binary_operation(function: FunctionGraph) -> Any:
    """The `function` of the op of the only node between two arguments and a result, or None."""
    if len(function.returns) != 1 or len(function.arguments) != 2:
        return None
    node = strip_identities(function.returns[0]).node
    operands = {strip_identities(x).node for x in node.inputs}
    is_all = len(node.inputs) == 2 and operands == {*function.arguments}
    return required_op(node).function if is_all else None


def _keeps_elements(node: Node) -> bool:
    """True for a node whose results for arrays consist of those for their elements."""
    is_mapped = is_a(node, Elementwise) or (is_a(node, SameShape) and len(node.inputs) == 1)
    return is_mapped or not node.inputs


def _by_element(run: Callable[..., Any], function: FunctionGraph, *arrays: Any) -> Any:
    """The results of a function of scalars for each element of NumPy arrays."""
    operands = np.broadcast_arrays(*arrays)
    results = [np.empty(operands[0].shape, dtype.numpy) for dtype in function.output_types]
    for place in np.ndindex(operands[0].shape):
        made = run(*(x[place] for x in operands))
        for result, value in zip(results, made if len(results) > 1 else (made,), strict=True):
            result[place] = value
    return tuple(results) if len(results) > 1 else results[0]
