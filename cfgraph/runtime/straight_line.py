"""Function bodies as straight-line code over arrays of a namespace.

Each node is bound once. One `Program` has the calls in topological order, a line for each:

    def body(step, v0, v1):
        v0 = k0(v0, v1); v1 = None
        v0 = k1(step, v0)
        return v0

A value is freed after its last reader. The line number of an error identifies the node that failed.
StatelessWhile, StatelessIf, StatelessCase, and PartitionedCall call the functions of their bodies.
Switch and the other primitives are not supported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from traceback import walk_tb
from types import FrameType, ModuleType
from typing import Any, Final

import numpy as np

from cfgraph.errors import CfgraphError, Unsupported
from cfgraph.ir.function_graph import FunctionGraph, FunctionInstances
from cfgraph.ir.graph import Node, Output
from cfgraph.limits import Limits, check_deadline, current_limits
from cfgraph.ops.opdef.facts import CallKind
from cfgraph.ops.opdef.function_bodies import (
    ScalarFunction,
    called_functions,
    execution_order,
    required_op,
)
from cfgraph.ops.opdef.kernel_errors import kernel_error
from cfgraph.ops.opdef.op import (
    KERNEL_FAILURES,
    Kernel,
    Op,
    bound_kernel,
    lookup,
    numpy_kernel,
)
from cfgraph.ops.opdef.random_streams import GRAPH, StreamScope, call_labels
from cfgraph.runtime.program import Program
from cfgraph.stack_position import frame_variables, is_of_signal_handler

KernelBinder = Callable[[Node, type[Op]], Kernel]


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One call of a straight line: the kernel, inputs, and outputs of a node."""

    node: Node
    inputs: tuple[Output, ...]
    outputs: tuple[Output, ...]
    kernel: Kernel
    takes_step: bool = False

    @classmethod
    def from_node(cls, node: Node, bind: KernelBinder) -> KernelCall:
        """Bind the kernel of a node to its attributes."""
        outputs = tuple(node.outputs)
        op = lookup(node.op)
        assert op is not None  # it is in an execution order
        return cls(node, tuple(node.inputs), outputs, bind(node, op), op.effects.stateful)


class StraightLine:
    """A function body as one callable: `run(step, *arguments)` returns its outputs.

    A single output is returned bare, several as a tuple, none as None. `bind` returns the kernel of
    a node; the kernel of a stateful node takes the step as its first argument. `order` lists the
    nodes without arguments. The kernels are bound at once, the code is made on first use. A line
    `draws` if it, or one that it calls, has a stateful random node.

    Raises Unsupported, with the node, for control flow, calls, references, and ops without a
    kernel.
    """

    def __init__(self, function: FunctionGraph, bind: KernelBinder) -> None:
        self.order = execution_order(function)
        self.returned = function.returns
        self.calls = [KernelCall.from_node(node, bind) for node in self.order]
        self.arguments = function.arguments
        self.draws = False
        self._name = function.name

    @cached_property
    def run(self) -> Callable[..., Any]:
        """The function of the step and the arguments."""
        program, values = self._program()
        source, owners = program.source()
        kernels: dict[str, Any] = {value.name: value.content for value in program.constants}
        kernels[_LINE] = self  # for errors: the functions on a stack are those that failed
        exec(compile(source, f"<function {self._name}>", "exec"), kernels)
        run: Callable[..., Any] = kernels[_FUNCTION]
        self._values, self._owners = values, owners
        return run

    def _program(self) -> tuple[Program, dict[Output, Any]]:
        """The code of the calls, and the variables of tensors.

        No name comes from the graph, so that no file injects code.
        """
        program = Program("step", _FUNCTION, is_whole=True)
        values = {x.output(): program.parameter() for x in self.arguments}
        for call in self.calls:
            fields = ", ".join(["step"] * call.takes_step + ["{}"] * len(call.inputs))
            operands = [program.constant(call.kernel, "k"), *(values[x] for x in call.inputs)]
            values |= {output: program.variable() for output in call.outputs}
            program.add(f"{{}}({fields})", operands, [values[x] for x in call.outputs])
        returned = [values[output] for output in self.returned]
        program.add(f"return {', '.join(['{}'] * len(returned))}", returned)
        return program, values

    def failed(self, error: Exception) -> Node | None:
        """The node whose kernel raised an error, or None."""
        nodes = (call.node for line, call, _ in _positions(error) if line is self)
        return next(nodes, None)

    def _call_at(self, number: int) -> KernelCall | None:
        owner = self._owners[number - 1]
        return self.calls[owner] if 0 <= owner < len(self.calls) else None

    def located(self, error: Exception, caller: str, arguments: Sequence[Output] = ()) -> Exception:
        """The error with the name of the inner node, prefixed by the name of the calling node.

        `arguments` are the tensors that the caller passes.
        """
        positions = [*_positions(error)]
        if not positions or positions[0][0] is not self or is_of_signal_handler(error):
            return error
        name = "/".join([*filter(None, [caller]), *(call.node.name for _, call, _ in positions)])
        if isinstance(error, CfgraphError):
            error.node = name
            return error
        if isinstance(error, KERNEL_FAILURES):
            line, call, frame = positions[-1]
            passed = _passed_arguments(positions, arguments)
            inputs = line._input_values(call, frame)
            failure = kernel_error(error, call.node, inputs, arguments=passed)
            failure.node = name
            return failure
        error.add_note(f"while running node '{name}'")
        return error

    def _input_values(self, call: KernelCall, frame: FrameType) -> list[Any]:
        """The inputs of a call in a frame of the function."""
        variables = frame_variables(frame)
        names = [self._values[item].name for item in call.inputs]
        return [variables[name] for name in names] if variables.keys() >= {*names} else []


# the name of the StraightLine among the globals of its function, and that of the function
_LINE: Final = "line"
_FUNCTION: Final = "body"


_Position = tuple[StraightLine, KernelCall, FrameType]


def _positions(error: Exception) -> Iterator[_Position]:
    """The calls of straight lines in which an error was raised, the innermost last."""
    for frame, number in walk_tb(error.__traceback__):
        if frame.f_code.co_name == _FUNCTION and _LINE in frame.f_globals:
            line = frame.f_globals[_LINE]
            call = line._call_at(number)
            if call is not None:
                yield line, call, frame


def _passed_arguments(
    positions: Sequence[_Position], arguments: Sequence[Output]
) -> dict[Node, Output]:
    """The outputs that arguments of nested functions stand for, other than those of loops.

    The arguments of a loop are values of its last iteration.
    """
    passed: dict[Node, Output] = {}
    for line, call, _ in positions:
        passed.update(zip(line.arguments, arguments, strict=False))
        calls = required_op(call.node).calls
        arguments = () if calls.kind == "while" else call.inputs[calls.first_argument :]
    return passed


def traced_kernels(xp: ModuleType, static: frozenset[Node]) -> KernelBinder:
    """Kernels for tracing a body over arrays of `xp`; static values remain NumPy arrays.

    A node with only NumPy inputs runs on NumPy if a constant input needs it, or if it cannot be
    traced. Methods of arrays of NumPy take no traced operands, so that other inputs become arrays
    of `xp`. A kernel that cannot be traced raises Unsupported when called.
    """

    def bind(node: Node, op: type[Op]) -> Kernel:
        if op.effects.stateful:
            return bound_kernel(node, op, xp)
        known = bound_kernel(node, op, np)
        if not node.inputs:
            return known
        traced = bound_kernel(node, op, xp) if op.compilation.traceable else None
        return traced_kernel(node, op, xp, known, traced, is_static=node in static)

    return bind


def traced_kernel(
    node: Node,
    op: type[Op],
    xp: ModuleType,
    known: Kernel,
    traced: Kernel | None,
    *,
    is_static: bool,
) -> Kernel:
    """The kernel that chooses between one over NumPy arrays and one that is traced."""
    unchanged = op.constant_slots(node)
    constant = sorted(unchanged)

    def compute(*inputs: Any) -> Any:
        if (is_static or traced is None) and all(map(is_known, inputs)):
            return known(*inputs)
        if traced is None:
            raise Unsupported(f"{node.op} cannot be traced")
        for slot in constant:
            if not is_known(inputs[slot]):
                raise Unsupported(f"input {slot} of {node.op} is not a compile-time constant")
        return traced(
            *(
                xp.asarray(value) if type(value) is np.ndarray and slot not in unchanged else value
                for slot, value in enumerate(inputs)
            )
        )

    return compute


def is_known(value: Any) -> bool:
    """True for a NumPy value, which is static while a body is traced."""
    return isinstance(value, np.ndarray | np.generic)


def compile_numpy(
    function: FunctionGraph,
    instances: FunctionInstances,
    plain: KernelBinder,
    compiled: dict[FunctionGraph, StraightLine] | None = None,
) -> StraightLine:
    """Compile a function body for NumPy arrays; `plain` binds nodes other than control flow.

    `compiled` has the functions that are called and compiled already. Raises Unsupported like
    StraightLine, and for effects in functions that a node without effects calls.
    """
    known = {} if compiled is None else compiled
    draws = False

    def compiled_once(callee: FunctionGraph, kernels: KernelBinder) -> StraightLine:
        if callee not in known:
            known[callee] = compile_numpy(callee, instances, kernels, known)
        return known[callee]

    def bind(node: Node, op: type[Op]) -> Kernel:
        nonlocal draws
        check_deadline()
        inner = called_functions(node, op, instances)
        if not inner:
            draws |= op.effects.stateful and op.effects.random
            return plain(node, op)
        if op.calls.kind == "combine":
            return library_kernel(node, op, instances)
        kernels = plain if op.effects.stateful else pure_kernels(plain)
        lines = [compiled_once(each, kernels) for each in inner]
        draws |= any(line.draws for line in lines)
        return numpy_control_kernel(node, op, lines)

    line = StraightLine(function, bind)
    line.draws = draws
    return line


def pure_kernels(bind: KernelBinder) -> KernelBinder:
    """Restrict kernels to functions without effects, which loops and conditionals call."""

    def bound(node: Node, op: type[Op]) -> Kernel:
        if op.effects.stateful:
            message = f"{node.op} has effects or depends on state in a function that must be pure"
            raise Unsupported(message, node=node, code="CFG709")
        return bind(node, op)

    return bound


@dataclass(frozen=True, slots=True)
class ScopedStep:
    """The step in a function that a node calls, whose random nodes have the streams of a scope."""

    step: Any
    scope: StreamScope

    def inside(self, call: Node, label: str, iteration: int | None = None) -> ScopedStep:
        """The step in a function that a call in this one calls."""
        return ScopedStep(self.step, self.scope.inside(call, label, iteration))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.step, name)


def scoped_step(step: Any) -> ScopedStep:
    """The step with its scope, at first that of the call which runs."""
    return step if isinstance(step, ScopedStep) else ScopedStep(step, GRAPH.inside(step.node))


def numpy_control_kernel(node: Node, op: type[Op], lines: Sequence[StraightLine]) -> Kernel:
    """The kernel of a loop, conditional, or call over NumPy arrays; its functions may draw."""
    kind, labels = op.calls.kind, call_labels(op.calls.kind, len(lines))
    draws = any(line.draws for line in lines)

    # functions that call each other twice run exponentially often
    def run_call(step: Any, *values: Any) -> Any:
        check_deadline()
        return lines[0].run(scoped_step(step).inside(node, "") if draws else step, *values)

    def run_branch(step: Any, selector: Any, *values: Any) -> Any:
        check_deadline()
        number = branch_number(kind, selector, len(lines))
        inner = scoped_step(step).inside(node, labels[number]) if draws else step
        return lines[number].run(inner, *values)

    if kind == "while":
        kernel = _loop_kernel(node, *lines)
    else:
        kernel = run_call if kind == "call" else run_branch
    return kernel if op.effects.stateful else partial(kernel, None)


def combining_kernel(
    node: Node,
    op: type[Op],
    functions: Sequence[FunctionGraph],
    bodies: Sequence[Callable[..., Any]],
    xp: ModuleType = np,
) -> Kernel:
    """The kernel of a node that combines elements by functions, whose bodies take a step."""
    pairs = zip(functions, bodies, strict=True)
    return op.bind_functions(
        node, xp, [ScalarFunction(function, partial(body, None), xp) for function, body in pairs]
    )


def library_kernel(node: Node, op: type[Op], instances: FunctionInstances) -> Kernel:
    """The NumPy kernel of a node that combines elements by functions of a library."""
    functions, plain = called_functions(node, op, instances), pure_kernels(numpy_kernel)
    lines = [compile_numpy(function, instances, plain) for function in functions]
    return combining_kernel(node, op, functions, [line.run for line in lines])


def branch_number(kind: CallKind, selector: Any, count: int) -> int:
    """The branch that the predicate of an If or the index of a Case selects among `count`."""
    if kind == "case":
        return int(selector) if 0 <= selector < count else count - 1
    return 0 if selector else 1


def _loop_kernel(node: Node, cond: StraightLine, body: StraightLine) -> Kernel:
    """The kernel of a loop, which counts iterations only for limits of the context, and draws."""
    count, draws = len(body.returned), cond.draws or body.draws

    def run(step: Any, *values: Any) -> Any:
        limits, holds, next_values = current_limits(), cond.run, body.run
        if limits.bounds_loops or draws:
            return run_bounded(step, limits, values)
        if count == 1:
            (value,) = values
            while holds(step, value):
                value = next_values(step, value)
            return value
        while holds(step, *values):
            values = next_values(step, *values) or ()
        return values or None

    def run_bounded(step: Any, limits: Limits, values: tuple[Any, ...]) -> Any:
        iterations, holds, next_values = 0, cond.run, body.run

        def inside(label: str) -> Any:
            return scoped_step(step).inside(node, label, iterations) if draws else step

        while holds(inside("cond"), *values):
            limits.check_iteration(iterations, node.name)
            result = next_values(inside("body"), *values)
            iterations += 1
            values = result if count > 1 else (result,) if count else ()
        return values[0] if count == 1 else values or None

    return run
