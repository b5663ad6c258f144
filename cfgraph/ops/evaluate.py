"""A function's body without Switch and its like, as one callable over arrays of a namespace.

Each node is bound once. The calls then stand in one generated function, in the order of the edges:

    def body(step, a0, a1):
        v0 = k0(a0, a1)
        v1 = k1(step, v0); del v0
        return v1

A value is let go behind its last reader. The line that an error comes from says which node failed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType, ModuleType
from typing import Any

import numpy as np

from cfgraph.errors import CfgraphError, Unsupported
from cfgraph.ir import registry
from cfgraph.ir.function_graph import FunctionGraph
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.topological_order import topological_order
from cfgraph.ops.op import KERNEL_FAILURES, Kernel, Op, OpError, lookup

Bind = Callable[[Node, type[Op]], Kernel]
SlotsOf = Callable[[Node, type[Op]], Collection[int]]


@dataclass(frozen=True, slots=True)
class Call:
    """One call in a straight line: the kernel of a node, its inputs and its outputs."""

    node: Node
    inputs: tuple[Output, ...]
    outputs: tuple[Output, ...]
    kernel: Kernel
    takes_step: bool = False

    @classmethod
    def of(cls, node: Node, bind: Bind) -> Call:
        """The call of one node."""
        outputs = tuple(node.output(port) for port in range(registry.output_count(node) or 0))
        op = _op(node)
        return cls(node, tuple(node.inputs), outputs, bind(node, op), op.stateful)


class StraightLine:
    """A function's body as one callable: `run(step, *arguments)` gives its outputs.

    One output comes bare, several as a tuple, none as None. `bind` gives each node's kernel; that
    of a stateful one takes the step first. `order` are the nodes that run, arguments left out.

    Raises Unsupported, with the node, for control flow, calls, references, and ops without a
    kernel.
    """

    def __init__(self, function: FunctionGraph, bind: Bind) -> None:
        self.order = ordered(function)
        self.returned = function.returns
        self.calls = [Call.of(node, bind) for node in self.order]
        kernels: dict[str, Any] = {
            f"k{place}": call.kernel for place, call in enumerate(self.calls)
        }
        source = "\n".join(_source(function, self.calls))
        exec(compile(source, f"<function {function.name}>", "exec"), kernels)
        self.run: Callable[..., Any] = kernels["body"]

    def failed(self, error: Exception) -> Node | None:
        """The node whose kernel an error comes from; None where it comes from elsewhere."""
        code: CodeType = self.run.__code__
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code is not code:
            trace = trace.tb_next
        place = -1 if trace is None else trace.tb_lineno - 2
        if not 0 <= place < len(self.calls):
            return None
        return self.calls[place].node

    def located(self, error: Exception, caller: str) -> Exception:
        """The error with the inner node's name, behind that of the node that runs the function."""
        node = self.failed(error)
        if node is None:
            return error
        name = f"{caller}/{node.name}"
        if isinstance(error, CfgraphError):
            error.node = name
            return error
        if isinstance(error, KERNEL_FAILURES):
            return OpError(str(error) or type(error).__name__, node=name)
        error.add_note(f"while running node '{name}'")
        return error


def ordered(function: FunctionGraph) -> list[Node]:
    """The nodes that a function's outputs and effects need, sources first, arguments left out.

    Raises Unsupported for what cannot run in a straight line.
    """
    found = function.needed()
    order = topological_order([node for node in function.graph if node in found]).nodes
    arguments = set(function.arguments)
    nodes = [node for node in order if node not in arguments]
    for node in nodes:
        _require_straight(function, node)
    return nodes


def _require_straight(function: FunctionGraph, node: Node) -> None:
    op = lookup(node.op)
    what = ""
    if op is None or not (op.runnable or op.in_line):
        what = f"op {node.op!r}, which has no kernel"
    elif op.role:
        what = f"control flow ({node.op})"
    elif any(dtype.is_ref for dtype in _types(node)):
        what = f"a reference to a variable ({node.op})"
    if what:
        message = f"the function {function.name!r} cannot run in a straight line: it has {what}"
        raise Unsupported(message, node=f"{function.name}/{node.name}", code="CFG709")


def _types(node: Node) -> list[Any]:
    return [*(registry.input_types(node) or []), *(registry.output_types(node) or [])]


def _op(node: Node) -> type[Op]:
    op = lookup(node.op)
    assert op is not None
    return op


def _source(function: FunctionGraph, calls: Sequence[Call]) -> Iterator[str]:
    """The lines of the generated function; names in it are made here, none comes from a file."""
    names = {argument.output(): f"a{place}" for place, argument in enumerate(function.arguments)}
    last: dict[Output, Call] = {}
    for call in calls:
        last.update(dict.fromkeys(call.inputs, call))
    for item in function.returns:
        last.pop(item, None)
    yield f"def body({', '.join(['step', *names.values()])}):"
    for place, call in enumerate(calls):
        given = [names[item] for item in call.inputs]
        if call.takes_step:
            given.insert(0, "step")
        for item in call.outputs:
            names[item] = f"v{len(names)}"
        targets = ", ".join(names[item] for item in call.outputs)
        made = f"k{place}({', '.join(given)})"
        gone = [names[item] for item in dict.fromkeys(call.inputs) if last.get(item) is call]
        freed = f"; del {', '.join(gone)}" if gone else ""
        yield f"    {targets}{' = ' if targets else ''}{made}{freed}"
    yield f"    return {', '.join(names[item] for item in function.returns) or 'None'}"


def numpy_kernel(node: Node, op: type[Op]) -> Kernel:
    """The kernel of a node over NumPy arrays."""
    return op.prepare(node, np) if op.stateful else op.bind(node, np)


def _constant_slots(node: Node, op: type[Op]) -> Collection[int]:
    return op.slots_of(node, op.constant_inputs)


def static_nodes(order: Sequence[Node], slots_of: SlotsOf = _constant_slots) -> frozenset[Node]:
    """The nodes, arguments among them, whose values a compiler must know before it compiles.

    Those that an op's constant inputs need, `slots_of` a node; what depends on shapes alone needs
    no value.
    """
    found: set[Node] = set()
    for node in reversed(order):
        op = _op(node)
        if node in found and not op.of_shapes:
            found.update(item.node for item in node.inputs)
        found.update(node.inputs[slot].node for slot in slots_of(node, op))
    return frozenset(found)


def traced_kernels(xp: ModuleType, static: frozenset[Node]) -> Bind:
    """Kernels for a body that is traced: arrays of `xp` go through, what is known stays NumPy.

    A node runs on NumPy where all its inputs are NumPy values and a constant input needs it, or it
    cannot be traced. Raises Unsupported, from the kernel, for what cannot be traced.
    """

    def bind(node: Node, op: type[Op]) -> Kernel:
        if op.stateful:
            return op.prepare(node, xp)
        known = op.bind(node, np)
        if not node.inputs:
            return known
        constant = sorted(op.slots_of(node, op.constant_inputs))
        traced = op.bind(node, xp) if op.traceable else None

        def compute(*inputs: Any) -> Any:
            if (node in static or traced is None) and all(map(is_known, inputs)):
                return known(*inputs)
            if traced is None:
                message = f"{node.op} cannot be traced"
                raise Unsupported(message)
            for slot in constant:
                if not is_known(inputs[slot]):
                    message = f"input {slot} of {node.op} is not known when it is compiled"
                    raise Unsupported(message)
            return traced(*inputs)

        return compute

    return bind


def is_known(value: Any) -> bool:
    """True for a NumPy value, which is known while a body is traced."""
    return isinstance(value, np.ndarray | np.generic)
