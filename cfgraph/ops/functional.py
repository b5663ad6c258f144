"""Functional control flow and calls: signatures and facts. They are lowered before a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.ops.inference import InferenceContext
from cfgraph.ops.op import Op, lookup


def is_functional(graph: Graph, nodes: Iterable[Node]) -> bool:
    """True if one of the nodes calls a function that must be lowered before a run."""
    ops = {node.op for node in nodes}
    return any(op in graph.functions or _is_lowered(lookup(op)) for op in ops)


def is_launch(op: type[Op] | None) -> bool:
    """True for the call of a cluster."""
    return getattr(op, "functional", "") == "launch"


def _is_lowered(op: type[Op] | None) -> bool:
    return op is not None and not op.runnable and bool(getattr(op, "functional", ""))


class Functional(Op, abstract=True):
    """An op that runs functions: `functional` is the kind, `functions` the attrs that name them.

    The functions' arguments are the inputs from `first_argument` on.
    """

    runnable = False
    functional: ClassVar[str]
    functions: ClassVar[tuple[str, ...]]
    first_argument: ClassVar[int] = 0

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        declared = cls.parsed().attrs.get("output_shapes") and context.attr("output_shapes")
        if not declared or len(declared) != context.output_count:
            return [UNKNOWN_SHAPE] * context.output_count
        return list(declared)


class StatelessIf(Functional):
    """Call one of two functions, without side effects."""

    signature = "cond: Tcond, input: Tin -> output: Tout"
    attrs = (
        "Tin: list(type) >= 0, Tout: list(type) >= 0, then_branch: func, else_branch: func,"
        " output_shapes: list(shape) = []"
    )
    functional = "if"
    functions = ("then_branch", "else_branch")
    first_argument = 1
    in_line = True


class If(StatelessIf):
    """Call one of two functions."""

    stateful = True
    in_line = False


class _If(StatelessIf):
    """Call one of two functions; the form of old files."""

    attrs = "Tin: list(type) >= 1, Tout: list(type) >= 1, then_branch: func, else_branch: func"
    stateful = True
    in_line = False


class StatelessCase(Functional):
    """Call the function that the index says, the last one where it is out of range."""

    signature = "branch_index: int32, input: Tin -> output: Tout"
    attrs = (
        "Tin: list(type) >= 0, Tout: list(type) >= 0, branches: list(func) >= 1,"
        " output_shapes: list(shape) = []"
    )
    functional = "case"
    functions = ("branches",)
    first_argument = 1


class Case(StatelessCase):
    """Call the function that the index says, with side effects."""

    stateful = True


class StatelessWhile(Functional):
    """Call the body as long as the condition holds, without side effects."""

    signature = "input: T -> output: T"
    attrs = (
        "T: list(type) >= 0, cond: func, body: func, output_shapes: list(shape) = [],"
        " parallel_iterations: int = 10"
    )
    functional = "while"
    functions = ("cond", "body")
    in_line = True


class While(StatelessWhile):
    """Call the body as long as the condition holds."""

    stateful = True
    in_line = False


class _While(StatelessWhile):
    """Call the body as long as the condition holds; the form of old files."""

    attrs = "T: list(type) >= 0, cond: func, body: func"
    stateful = True
    in_line = False


class For(Functional):
    """Call the body with each index from start to limit, and what the call before gave."""

    signature = "start: int32, limit: int32, delta: int32, input: T -> output: T"
    attrs = "T: list(type) >= 0, body: func"
    functional = "for"
    functions = ("body",)
    first_argument = 3


class PartitionedCall(Functional):
    """Call a function."""

    signature = "args: Tin -> output: Tout"
    attrs = (
        "Tin: list(type) >= 0, Tout: list(type) >= 0, f: func, config: string = '',"
        " config_proto: string = '', executor_type: string = ''"
    )
    functional = "call"
    functions = ("f",)


class StatefulPartitionedCall(PartitionedCall):
    """Call a function that has side effects."""

    stateful = True


class RemoteCall(Functional):
    """Call a function on the device that input 0 names."""

    signature = "target: string, args: Tin -> output: Tout"
    attrs = "Tin: list(type) >= 1, Tout: list(type) >= 1, f: func"
    functional = "call"
    functions = ("f",)
    first_argument = 1
    stateful = True
    host_inputs = (0,)


class SymbolicGradient(Functional):
    """The gradient of a function, given its inputs and the gradients of its outputs."""

    signature = "input: Tin -> output: Tout"
    attrs = "Tin: list(type) >= 1, Tout: list(type) >= 1, f: func"
    functional = "gradient"
    functions = ("f",)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        if len(context.inputs) < context.output_count:
            return [UNKNOWN_SHAPE] * context.output_count
        return list(context.inputs[: context.output_count])


class XlaLaunch(Functional):
    """Call a function that is compiled as a whole; the runtime has the kernel."""

    signature = (
        "constants: Tconstants, args: Targs, resources: Nresources*resource -> results: Tresults"
    )
    attrs = (
        "Tconstants: list(type) >= 0, Targs: list(type) >= 0, Nresources: int >= 0,"
        " Tresults: list(type) >= 0, function: func"
    )
    runnable = True
    functional = "launch"
    functions = ("function",)
    stateful = True


class PythonCall(Op, abstract=True):
    """A call into the Python process that built the graph, which a file cannot hold."""

    runnable = False
    stateful = True


class PyFunc(PythonCall):
    """Call a Python function by token."""

    signature = "input: Tin -> output: Tout"
    attrs = "token: string, Tin: list(type) >= 0, Tout: list(type) >= 0"


class PyFuncStateless(PyFunc):
    """Call a Python function without side effects by token."""

    stateful = False


class EagerPyFunc(PythonCall):
    """Call a Python function on eager tensors by token."""

    signature = "input: Tin -> output: Tout"
    attrs = "token: string, is_async: bool = false, Tin: list(type) >= 0, Tout: list(type) >= 0"


class Argument(Op, abstract=True):
    """One argument of a function's body."""

    runnable = False
    stateful = True
    is_input = True
    role = "arg"


class _Arg(Argument):
    """One argument of a function's body."""

    signature = "-> output: T"
    attrs = "index: int >= 0"


class _DeviceArg(Argument):
    """One argument of a function's body, in the device's memory."""

    signature = "-> output: T"
    attrs = "index: int >= 0"


class _Retval(Op):
    """One result of a function's body."""

    signature = "input: T ->"
    attrs = "index: int >= 0"
    runnable = False
    stateful = True
    role = "retval"


class _DeviceRetval(_Retval):
    """One result of a function's body, in the device's memory."""
