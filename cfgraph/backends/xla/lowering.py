"""Lowering of a function body, with the loops and conditionals in it, to jax.

While a body is traced, a variable has a traced value, which its kernels read and replace in the
order of the body. A loop carries the variables that it may assign, and each branch of a conditional
returns those that any branch may. Such a variable needs a value of one shape, before and after."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np

from cfgraph.analysis.loops.while_loop import InductionVariable, call_counters, call_trip_count
from cfgraph.backends.xla.deferred_checks import FAILED, all_hold, current_guard
from cfgraph.backends.xla.tensor_lists import JaxTensorList, kept_lists, list_kernel
from cfgraph.backends.xla.traced_draws import TracingStep
from cfgraph.errors import Unsupported
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import int32, int64
from cfgraph.ir.function_graph import FunctionGraph, FunctionInstances
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import Shape
from cfgraph.ops.families.constants import Const
from cfgraph.ops.families.variables import Variable
from cfgraph.ops.kernels.array_namespace import (
    KnownRange,
    collected_checks,
    earlier_checks,
    known_ranges,
    require,
)
from cfgraph.ops.opdef.facts import CallKind
from cfgraph.ops.opdef.function_bodies import (
    called_functions,
    compile_time_nodes,
    constant_slots,
    execution_order,
    loop_invariant_arguments,
)
from cfgraph.ops.opdef.op import Kernel, Op, may_write, numpy_kernel, strip_identities
from cfgraph.ops.opdef.random_streams import call_labels
from cfgraph.passes.functionalize.function_body import constant_texts
from cfgraph.runtime.straight_line import (
    KernelBinder,
    StraightLine,
    branch_number,
    combining_kernel,
    compile_numpy,
    is_known,
    library_kernel,
    numpy_control_kernel,
    pure_kernels,
    traced_kernel,
    traced_kernels,
)

# XLA multiplies the sizes of a value as 64-bit integers with a sign
_MAX_ELEMENTS: Final = 1 << 62
# iterations of a loop that may go on after a check in it has failed
_MAX_FAILED_ITERATIONS: Final = 1 << 12


class JaxLine(NamedTuple):
    """A body for jax to trace. Its scope collects conditions, certainly if `has_checks`.

    `written` are the arguments that are variables it may assign.
    """

    line: StraightLine
    has_checks: bool
    has_loops: bool
    written: frozenset[int]
    draws: bool


# bytes of a constant that is an argument: an executable contains the smaller ones
_MIN_WEIGHT_BYTES: Final = 1 << 16
_WEIGHTS: Final[ContextVar[Mapping[Node, Any]]] = ContextVar("_WEIGHTS")


@contextmanager
def passed_weights(weights: Mapping[Node, Any]) -> Iterator[None]:
    """Scope of a trace in which large constants are these arguments."""
    token = _WEIGHTS.set(weights)
    try:
        yield
    finally:
        _WEIGHTS.reset(token)


def is_weight(value: TensorValue) -> bool:
    """True for a constant that is so large that it should be an argument."""
    if value.dtype.kind in ("string", "variant", "resource"):
        return False
    array = value.array  # one that repeats an element has it once
    return bool(array.nbytes >= _MIN_WEIGHT_BYTES and any(array.strides))


def jax_line(
    jax: Any,
    function: FunctionGraph,
    instances: FunctionInstances,
    *,
    guarded: bool = False,
    weights: dict[Node, str] | None = None,
) -> JaxLine:
    """A function's body for jax to trace. Raises Unsupported, with the node, if impossible.

    The loops of a `guarded` one look at the limits of `guarded_loops`, in checks. Large constants
    that need not be known are `passed_weights`; `weights` gets their nodes and functions.
    """
    order = execution_order(function)
    static = compile_time_nodes(order, lambda node, op: constant_slots(node, op, instances))
    bounds = compile_time_nodes(order, lambda node, op: _bound_slots(node, op, instances))
    ordinary = _with_bounded_results(
        _without_stateful_ops(traced_kernels(jax.numpy, static | bounds)), jax.Array
    )

    has_checks = has_loops = draws = False
    assigned: set[Output] = set()

    def bind(node: Node, op: type[Op]) -> Kernel:
        nonlocal has_checks, has_loops, draws
        inner = called_functions(node, op, instances)
        is_passed = weights is not None and issubclass(op, Const) and node not in static
        if weights is not None and is_passed and is_weight(node.attr("value")):
            weights[node] = function.name
            return lambda: _WEIGHTS.get()[node]
        if not inner:
            on_lists = list_kernel(jax, node, op)
            has_checks |= on_lists is not None
            if op.compilation.traces_effects and op.effects.random:
                draws, kernel = True, ordinary(node, op)
                return lambda step, *inputs: kernel(step.of(node), *inputs)
            if may_write(node) and not op.effects.only_checks:
                assigned.update(map(strip_identities, node.inputs))
            return on_lists or ordinary(node, op)
        lines = [jax_line(jax, body, instances, guarded=guarded, weights=weights) for body in inner]
        if op.calls.kind == "combine":
            known = library_kernel(node, op, instances)
            combined = _combination(jax, node, op, inner, lines)
            return traced_kernel(node, op, jax.numpy, known, combined, is_static=node in static)
        written = frozenset[int]().union(*(line.written for line in lines))
        first = op.calls.first_argument
        assigned.update(strip_identities(node.inputs[first + index]) for index in written)
        is_loop = op.calls.kind == "while"
        has_loops |= is_loop or any(line.has_loops for line in lines)
        draws |= any(line.draws for line in lines)
        has_checks |= any(line.has_checks for line in lines) or (is_loop and guarded)
        if is_loop and lines[0].written:
            message = "the condition of the loop assigns a variable"
            raise Unsupported(message, node=node)
        if is_loop:
            invariant = loop_invariant_arguments(inner[1])
            with_step: Kernel = _Loop(jax, node, inner, lines, invariant, written).run
        elif op.calls.kind == "call":
            call = lines[0].line.run
            with_step = lambda step, *values: call(step.inside(node, ""), *values)  # noqa: E731
        else:
            with_step = _conditional(jax, node, lines, op.calls.kind, written)
        if op.effects.stateful:
            return with_step
        traced = partial(with_step, TracingStep())
        if node not in static:
            return traced
        known_kernel = numpy_control_kernel(
            node, op, [compile_numpy(body, instances, pure_kernels(numpy_kernel)) for body in inner]
        )
        return lambda *values: (
            known_kernel(*values) if all(map(is_known, values)) else traced(*values)
        )

    line = StraightLine(function, bind)
    arguments = enumerate(line.arguments)
    written = frozenset(index for index, each in arguments if each.output() in assigned)
    return JaxLine(line, has_checks, has_loops, written, draws)


def _bound_slots(node: Node, op: type[Op], instances: FunctionInstances) -> frozenset[int]:
    """The inputs of a loop that may determine the number of its iterations, if they are known."""
    if op.calls.kind != "while":
        return frozenset()
    cond, first = called_functions(node, op, instances)[0], op.calls.first_argument
    needed = cond.needed()
    return frozenset(
        first + index
        for index, argument in enumerate(cond.arguments)
        if argument in needed and cond.input_types[index] in (int32, int64)
    )


def _combination(
    jax: Any,
    node: Node,
    op: type[Op],
    functions: Sequence[FunctionGraph],
    lines: Sequence[JaxLine],
) -> Kernel:
    """The kernel of a node that combines elements by functions, which have no checks."""
    if any(line.has_checks for line in lines):
        raise Unsupported(f"{node.op} combines elements by a function that checks", node=node)
    return combining_kernel(node, op, functions, [line.line.run for line in lines], jax.numpy)


def _without_stateful_ops(bind: KernelBinder) -> KernelBinder:
    """Reject stateful ops, except ops whose only state is variables."""

    def bound(node: Node, op: type[Op]) -> Kernel:
        texts = constant_texts(node, op)
        types = [x for slot, x in enumerate(node.input_types or []) if slot not in texts]
        reads = op.compilation.traces_effects or any(dtype.kind == "resource" for dtype in types)
        if op.effects.stateful and not reads:
            message = f"{node.op} has effects and cannot be compiled"
            raise Unsupported(message, node=node)
        is_forwarded = op.aliasing.is_identity and not any(
            dtype.kind == "string" for dtype in types
        )
        if not is_forwarded and any(dtype.kind in ("string", "variant") for dtype in types):
            message = f"{node.op} on {types[0]} cannot be compiled"
            raise Unsupported(message, node=node)
        return bind(node, op)

    return bound


def _with_bounded_results(bind: KernelBinder, array: type[Any]) -> KernelBinder:
    """Reject values whose sizes XLA cannot multiply, which ends its process: empty ones, too."""

    def bound(node: Node, op: type[Op]) -> Kernel:
        kernel = bind(node, op)

        def compute(*inputs: Any) -> Any:
            result = kernel(*inputs)
            for value in result if isinstance(result, tuple | list) else (result,):
                dims = value.shape if isinstance(value, array) else ()
                if prod(filter(None, dims)) > _MAX_ELEMENTS:
                    raise Unsupported(f"XLA has no value of shape {list(dims)}", node=node)
            return result

        return compute

    return bound


class _TracedVariables:
    """Variables whose values are a part of the state of a loop or of the results of branches."""

    def __init__(self, values: Sequence[Any], written: Collection[int]) -> None:
        # several handles may refer to one variable
        self.cells: list[Variable] = list(dict.fromkeys(values[index] for index in sorted(written)))

    def values(self, jax: Any, like: Sequence[Any] = ()) -> tuple[Any, ...]:
        """The current values.

        Raises Unsupported for a variable without a value, or of another shape than those of `like`.
        """
        for cell in self.cells:
            if cell.value is None:
                message = f"the variable {cell.name} may have no value where others have one"
                raise Unsupported(message)
        values = tuple(jax.numpy.asarray(cell.value) for cell in self.cells)
        for cell, value, other in zip(self.cells, values, like, strict=False):
            if value.shape != other.shape:
                shapes = f"from {Shape(other.shape)} to {Shape(value.shape)}"
                message = f"an iteration changes the shape of the variable {cell.name} {shapes}"
                raise Unsupported(message)
        return values

    def assign(self, values: Sequence[Any]) -> None:
        """Replace the values."""
        for cell, value in zip(self.cells, values, strict=True):
            cell.value = value

    @contextmanager
    def scope(self, values: Sequence[Any]) -> Iterator[None]:
        """Scope in which the variables first have other values."""
        before = [cell.value for cell in self.cells]
        self.assign(values)
        try:
            yield
        finally:
            self.assign(before)


class _Loop:
    """A loop as a kernel; invariant values are not carried, and stay constant if they were.

    A loop with checks, or after checks, ends when one fails, unless it is known to end anyway after
    a few iterations: XLA then need not read a condition between them. It carries their conjunction
    as the last value. One that is guarded or draws carries the number of its iterations instead,
    which a failed check sets beyond each limit. Tracing finds the checks of kernels: the loop is
    then traced again. If the iterations are known, indices that count them need no checks.
    """

    def __init__(
        self,
        jax: Any,
        node: Node,
        functions: Sequence[FunctionGraph],
        lines: Sequence[JaxLine],
        invariant: Sequence[bool],
        written: Collection[int],
    ) -> None:
        self.jax, self.node, self.written = jax, node, written
        self.functions = functions
        # one in an iteration that failed might never end
        self.has_inner_loops = any(line.has_loops for line in lines)
        self.draws = any(line.draws for line in lines)
        self.condition, self.body = (_as_tuple(line) for line in lines)
        self.carried = [index for index, is_invariant in enumerate(invariant) if not is_invariant]
        self.kept_lists = list(kept_lists(functions[1]))
        # as far as earlier traces have found checks, and whether they probably do
        self.condition_has_checks, self.body_has_checks = lines[0].has_checks, False
        self.may_check = lines[1].has_checks

    def run(self, step: TracingStep, *values: Any) -> Any:
        """Trace the loop with these first values."""
        trace = _LoopTrace(self, step, values)
        result = trace.run()
        if not trace.is_complete:
            result = _LoopTrace(self, step, values).run()
        return result[0] if len(result) == 1 else tuple(result) if result else None


class _LoopTrace:
    """One trace of a loop, with the checks that are known before it."""

    def __init__(self, loop: _Loop, step: TracingStep, values: Sequence[Any]) -> None:
        self.loop, self.step, self.values = loop, step, values
        self.variables = _TracedVariables(values, loop.written)
        self.guard = current_guard()
        self.repeats_condition = loop.condition_has_checks
        self.counts = loop.draws or self.guard is not None
        self.iterations = self._few_iterations()
        self.ends_by_itself = self.iterations is not None
        self.counters = self._counters() if self.iterations else {}
        # they may guard a loop that would not end without them
        self.earlier = [] if self.ends_by_itself else earlier_checks()
        self.has_checks = (
            loop.condition_has_checks
            or loop.body_has_checks
            or (loop.may_check and not self.ends_by_itself)
            or self.guard is not None
            or bool(self.earlier)
        )
        # a number of iterations that goes on after a failed check cannot say so
        self.counts_checks = self.counts and self.has_checks and not self.ends_by_itself
        self.has_flag = self.has_checks and not self.counts_checks

    def _few_iterations(self) -> int | None:
        """The most iterations, if the condition soon ends the loop, whatever else it computes."""
        if self.guard is not None or self.loop.has_inner_loops:
            return None
        cond, body = self.loop.functions
        count = call_trip_count(cond, body, self.values)
        return count if count is not None and count <= _MAX_FAILED_ITERATIONS else None

    def _counters(self) -> dict[int, InductionVariable]:
        """The carried values that count the iterations, without overflow."""
        assert self.iterations is not None
        cond, body = self.loop.functions
        found = call_counters(cond, body, self.values)
        return {
            index: counter
            for index, counter in found.items()
            if counter.fits(self.iterations, self.values[index].dtype)
        }

    @property
    def is_complete(self) -> bool:
        """True if the trace has found no further checks."""
        loop = self.loop
        return loop.condition_has_checks == self.repeats_condition and (
            self.has_checks or not loop.body_has_checks
        )

    def run(self) -> list[Any]:
        """The values after the loop."""
        loop, jax = self.loop, self.loop.jax
        start = tuple(_as_jax(jax, self.values[index]) for index in loop.carried)
        start += self.variables.values(jax)
        start += (self._counted(jax.numpy.int64(0), self.earlier),) * self.counts
        start += (all_hold(jax, self.earlier),) * self.has_flag
        start = _with_list_shapes(jax, self._step, start)
        state = jax.lax.while_loop(self._continues, self._step, start) if start else start
        result = self._final_values(state)
        if self.is_complete:
            self.variables.assign(self._assigned(state))
            if self.has_checks:
                require(self._holds(state))
            if self.repeats_condition:
                loop.condition(self._inside("cond", state), *result)
        return result

    def _inside(self, label: str, state: Sequence[Any]) -> TracingStep:
        """The step in a function of the loop."""
        return self.step.inside(self.loop.node, label, self._count(state))

    def _count(self, state: Sequence[Any]) -> Any:
        """The number of iterations before a state, 0 if nothing counts them."""
        return state[-2 if self.has_flag else -1] if self.counts else 0

    def _counted(self, count: Any, checks: Sequence[Any]) -> Any:
        """The number of iterations, beyond each limit if a check has failed."""
        if not checks or not self.counts_checks:
            return count
        jax = self.loop.jax
        return jax.numpy.where(all_hold(jax, checks), count, jax.numpy.int64(FAILED))

    def _holds(self, state: Sequence[Any]) -> Any:
        """The conjunction of the checks before a state."""
        if self.has_flag:
            return state[-1]
        limit = FAILED - 1 if self.guard is None else self.guard.max_iterations
        return self._count(state) <= limit

    def _all_values(self, state: Sequence[Any]) -> list[Any]:
        """The values of the loop, of which the state has those that are carried."""
        values = list(self.values)
        for index, value in zip(self.loop.carried, state, strict=False):
            values[index] = value
        for index in self.loop.kept_lists:
            first, current = self.values[index], values[index]
            if isinstance(first, JaxTensorList) and is_known(first.length):
                values[index] = current.replaced(current.data, first.length, current.written)
        return values

    def _final_values(self, state: Sequence[Any]) -> list[Any]:
        """The values after the loop, of which counters are known if the iterations are."""
        values = self._all_values(state)
        cond, body = self.loop.functions
        count = call_trip_count(cond, body, self.values, exact=True) if self.counters else None
        for index, counter in self.counters.items():
            if count is not None:
                values[index] = np.asarray(counter.after(count), self.values[index].dtype)[()]
        return values

    def _assigned(self, state: Sequence[Any]) -> Sequence[Any]:
        """The values of variables in a state."""
        first = len(self.loop.carried)
        return state[first : first + len(self.variables.cells)]

    def _continues(self, state: Any) -> Any:
        """True if the condition of the loop holds in a state, and if need be all checks so far."""
        loop, jax = self.loop, self.loop.jax
        earlier, assigned = self._earlier_checks(state), self._assigned(state)
        with collected_checks(earlier) as checks, self.variables.scope(assigned):
            values = self._all_values(state)
            holds = jax.numpy.asarray(loop.condition(self._inside("cond", state), *values)[0])
        loop.condition_has_checks |= bool(checks)
        return jax.numpy.logical_and(holds, *earlier) if earlier else holds

    def _earlier_checks(self, state: Any) -> list[Any]:
        """The conjunction of the checks before a state, if the loop ends when one fails.

        XLA computes a condition, and what is invariant in a body, also after a failed check.
        """
        return [self._holds(state)] if self.has_checks and not self.ends_by_itself else []

    def _step(self, state: Any) -> Any:
        """The state after an iteration."""
        loop, jax = self.loop, self.loop.jax
        values, assigned = self._all_values(state), self._assigned(state)
        earlier = self._earlier_checks(state)
        with (
            collected_checks(earlier) as checks,
            self.variables.scope(assigned),
            known_ranges(self._ranges(values)),
        ):
            if self.repeats_condition:  # the condition itself returns no checks
                loop.condition(self._inside("cond", state), *values)
            results = loop.body(self._inside("body", state), *values)
            after = tuple(_as_jax(jax, results[index]) for index in loop.carried)
            after += self.variables.values(jax, like=assigned)
        loop.body_has_checks |= bool(checks)
        count = self._count(state) + 1
        if self.guard is not None:
            checks += self.guard.checks(jax, count, after)
        if self.counts:
            after += (self._counted(count, checks),)
        return (*after, all_hold(jax, [state[-1], *checks])) if self.has_flag else after

    def _ranges(self, values: Sequence[Any]) -> Iterator[KnownRange]:
        """The ranges of the counters among the values before an iteration."""
        for index, counter in self.counters.items():
            assert self.iterations
            least, largest = sorted((counter.start, counter.after(self.iterations - 1)))
            yield KnownRange(values[index], least, largest)


def _with_list_shapes(jax: Any, body: Callable[[Any], Any], start: tuple[Any, ...]) -> Any:
    """The first state of a loop; a list without a shape gets that of the list after the body."""
    if not any(isinstance(value, JaxTensorList) and value.data is None for value in start):
        return start
    results = jax.eval_shape(body, start)
    return tuple(
        a.shaped(jax, b) if isinstance(a, JaxTensorList) else a
        for a, b in zip(start, results, strict=True)
    )


def _conditional(
    jax: Any, node: Node, lines: Sequence[JaxLine], kind: CallKind, written: Collection[int]
) -> Kernel:
    """A conditional; only the taken branch if the predicate or index is constant.

    Branches return also the variables that one of them may assign, and those with checks, as the
    last value, their conjunction. Tracing finds the checks of kernels: the conditional is then
    traced again.
    """
    branches, labels = [_as_tuple(line) for line in lines], call_labels(kind, len(lines))
    has_checks = any(line.has_checks for line in lines)

    def on_arrays(
        branch: Callable[..., tuple[Any, ...]],
        variables: _TracedVariables,
        returns_checks: bool,
        *values: Any,
    ) -> Any:
        nonlocal has_checks
        before = [cell.value for cell in variables.cells]
        with collected_checks(earlier_checks()) as checks, variables.scope(before):
            results = tuple(_as_jax(jax, value) for value in branch(*values))
            results += variables.values(jax)
        has_checks |= bool(checks)
        return (*results, all_hold(jax, checks)) if returns_checks else results

    def traced(
        step: TracingStep,
        selector: Any,
        variables: _TracedVariables,
        returns_checks: bool,
        *values: Any,
    ) -> Any:
        bound = [
            partial(on_arrays, branch, variables, returns_checks, step.inside(node, label), *values)
            for branch, label in zip(branches, labels, strict=True)
        ]
        if kind == "if":
            return jax.lax.cond(selector, *bound)
        last = len(bound) - 1
        is_valid = (selector >= 0) & (selector < last)
        return jax.lax.switch(jax.numpy.where(is_valid, selector, last), bound)

    def run(step: TracingStep, selector: Any, *values: Any) -> Any:
        if is_known(selector):
            number = branch_number(kind, selector, len(branches))
            result = branches[number](step.inside(node, labels[number]), *values)
        else:
            variables = _TracedVariables(values, written)
            returns_checks = has_checks
            result = traced(step, selector, variables, returns_checks, *values)
            if has_checks and not returns_checks:
                result = traced(step, selector, variables, True, *values)
                returns_checks = True
            if returns_checks:
                *result, holds = result
                require(holds)
            count = len(result) - len(variables.cells)
            variables.assign(result[count:])
            result = result[:count]
        return result[0] if len(result) == 1 else tuple(result) if result else None

    return run


def _as_jax(jax: Any, value: Any) -> Any:
    """The value as a jax array or tensor list."""
    return value if isinstance(value, JaxTensorList) else jax.numpy.asarray(value)


def _as_tuple(body: JaxLine) -> Callable[..., tuple[Any, ...]]:
    """A callable of the body whose result is always a tuple."""
    run, count = body.line.run, len(body.line.returned)

    def call(step: TracingStep, *values: Any) -> tuple[Any, ...]:
        result = run(step, *values)
        return result if count > 1 else (result,) if count else ()

    return call
