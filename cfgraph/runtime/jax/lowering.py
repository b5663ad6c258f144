"""Lowering of a function body, with the loops and conditionals in it, to jax."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, NoReturn

from cfgraph.errors import Unsupported
from cfgraph.ir import registry
from cfgraph.ir.function_graph import FunctionGraph, FunctionInstances
from cfgraph.ir.graph import Node
from cfgraph.ops.opdef.array_namespace import collected_checks, require
from cfgraph.ops.opdef.evaluation import (
    KernelBinder,
    StraightLine,
    called_functions,
    compile_numpy,
    compile_time_nodes,
    constant_slots,
    execution_order,
    is_known,
    loop_invariant_arguments,
    numpy_control_kernel,
    pure_kernels,
    traced_kernels,
)
from cfgraph.ops.opdef.op import Kernel, Op, numpy_kernel
from cfgraph.runtime.jax.deferred_checks import all_hold, current_guard
from cfgraph.runtime.jax.tensor_lists import JaxTensorList, list_kernel


class _TracingStep:
    """Placeholder of the step during tracing; every access fails."""

    def __getattr__(self, name: str) -> NoReturn:
        message = "it depends on the state of the run"
        raise Unsupported(message)


TRACING_STEP: Final[Any] = _TracingStep()


class JaxLine(NamedTuple):
    """A body for jax to trace. Its scope collects conditions, certainly if `has_checks`."""

    line: StraightLine
    has_checks: bool
    has_loops: bool


def jax_line(
    jax: Any, function: FunctionGraph, instances: FunctionInstances, *, guarded: bool = False
) -> JaxLine:
    """A function's body for jax to trace. Raises Unsupported, with the node, if impossible.

    The loops of a `guarded` one look at the limits of `guarded_loops`, in checks.
    """
    order = execution_order(function)
    static = compile_time_nodes(order, lambda node, op: constant_slots(node, op, instances))
    ordinary = _without_stateful_ops(traced_kernels(jax.numpy, static))

    has_checks = has_loops = False

    def bind(node: Node, op: type[Op]) -> Kernel:
        nonlocal has_checks, has_loops
        inner = called_functions(node, op, instances)
        if not inner:
            on_lists = list_kernel(jax, node, op)
            has_checks |= on_lists is not None
            return on_lists or ordinary(node, op)
        lines = [
            jax_line(jax, _without_effects(body), instances, guarded=guarded) for body in inner
        ]
        known_kernel = numpy_control_kernel(
            node, op, [compile_numpy(body, instances, pure_kernels(numpy_kernel)) for body in inner]
        )
        is_loop = op.calls.kind == "while"
        has_loops |= is_loop or any(line.has_loops for line in lines)
        has_checks |= any(line.has_checks for line in lines) or (is_loop and guarded)
        if is_loop:
            traced = _while_loop(jax, lines, loop_invariant_arguments(inner[1]))
        else:
            traced = _conditional(jax, lines)
        if node not in static:
            return traced
        return lambda *values: (
            known_kernel(*values) if all(map(is_known, values)) else traced(*values)
        )

    line = StraightLine(function, bind)
    return JaxLine(line, has_checks, has_loops)


def _without_effects(function: FunctionGraph) -> FunctionGraph:
    """The function. Raises Unsupported if it has effects, since tracing may run it repeatedly."""
    refuse = pure_kernels(lambda node, op: lambda: None)
    for node in execution_order(function):
        op = registry.lookup(node.op)
        if op is not None:
            refuse(node, op)
    return function


def _without_stateful_ops(bind: KernelBinder) -> KernelBinder:
    """Reject stateful ops, except ops whose only state is variables."""

    def bound(node: Node, op: type[Op]) -> Kernel:
        types = registry.input_types(node) or []
        if op.effects.stateful and not any(dtype.kind == "resource" for dtype in types):
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


def _while_loop(jax: Any, lines: Sequence[JaxLine], invariant: Sequence[bool]) -> Kernel:
    """A loop; invariant values are not carried, and stay constant if they were.

    A loop with checks carries their conjunction as the last value, and ends when one fails; a
    guarded one carries the number of its iterations before it. Tracing finds the checks of kernels:
    the loop is then traced again.
    """
    condition, step = (_as_tuple(line) for line in lines)
    carried = [index for index, is_invariant in enumerate(invariant) if not is_invariant]
    condition_checked, body_checked = (line.has_checks for line in lines)

    def run(*values: Any) -> Any:
        result, is_complete = traced(*values)
        return result if is_complete else traced(*values)[0]

    def traced(*values: Any) -> tuple[Any, bool]:
        nonlocal condition_checked, body_checked
        guard = current_guard()
        has_checks = condition_checked or body_checked or guard is not None
        repeats_condition = condition_checked

        def filled(state: Sequence[Any]) -> list[Any]:
            all_values = list(values)
            for index, value in zip(carried, state, strict=False):
                all_values[index] = value
            return all_values

        def cond(state: Any) -> Any:
            nonlocal condition_checked
            with collected_checks() as checks:
                holds = jax.numpy.asarray(condition(*filled(state))[0])
            condition_checked |= bool(checks)
            return jax.numpy.logical_and(holds, state[-1]) if has_checks else holds

        def body(state: Any) -> Any:
            nonlocal body_checked
            with collected_checks() as checks:
                if repeats_condition:  # the condition itself returns no checks
                    condition(*filled(state))
                results = step(*filled(state))
            body_checked |= bool(checks)
            after = tuple(_as_jax(jax, results[index]) for index in carried)
            if guard is not None:
                count = state[-2] + 1
                checks.append(guard.holds(jax, count, after))
                after += (count,)
            return (*after, all_hold(jax, [state[-1], *checks])) if has_checks else after

        start = tuple(_as_jax(jax, values[index]) for index in carried)
        start += _counters(jax, guarded=guard is not None, checked=has_checks)
        start = _with_list_shapes(jax, body, start)
        state = jax.lax.while_loop(cond, body, start) if start else start
        is_complete = condition_checked == repeats_condition and (has_checks or not body_checked)
        result = filled(state)
        if has_checks and is_complete:
            require(state[-1])
        if repeats_condition and is_complete:
            condition(*result)
        return result[0] if len(result) == 1 else tuple(result) if result else None, is_complete

    return run


def _counters(jax: Any, *, guarded: bool, checked: bool) -> tuple[Any, ...]:
    """The number of iterations of a guarded loop, and the conjunction of its checks."""
    return (jax.numpy.int64(0),) * guarded + (jax.numpy.bool_(True),) * checked


def _with_list_shapes(jax: Any, body: Callable[[Any], Any], start: tuple[Any, ...]) -> Any:
    """The first state of a loop; a list without a shape gets that of the list after the body."""
    if not any(isinstance(value, JaxTensorList) and value.data is None for value in start):
        return start
    results = jax.eval_shape(body, start)
    return tuple(
        a.shaped(jax, b) if isinstance(a, JaxTensorList) else a
        for a, b in zip(start, results, strict=True)
    )


def _conditional(jax: Any, lines: Sequence[JaxLine]) -> Kernel:
    """A conditional; only the taken branch if the predicate is constant.

    Branches with checks return their conjunction as the last value. Tracing finds the checks of
    kernels: the conditional is then traced again.
    """
    then, otherwise = (_as_tuple(line) for line in lines)
    has_checks = any(line.has_checks for line in lines)

    def on_arrays(
        branch: Callable[..., tuple[Any, ...]], returns_checks: bool, *values: Any
    ) -> Any:
        nonlocal has_checks
        with collected_checks() as checks:
            results = tuple(_as_jax(jax, value) for value in branch(*values))
        has_checks |= bool(checks)
        return (*results, all_hold(jax, checks)) if returns_checks else results

    def traced(pred: Any, returns_checks: bool, *values: Any) -> Any:
        branches = [
            partial(on_arrays, branch, returns_checks, *values) for branch in (then, otherwise)
        ]
        return jax.lax.cond(pred, *branches)

    def run(pred: Any, *values: Any) -> Any:
        if is_known(pred):
            result = (then if pred else otherwise)(*values)
        else:
            returns_checks = has_checks
            result = traced(pred, returns_checks, *values)
            if has_checks and not returns_checks:
                result, returns_checks = traced(pred, True, *values), True
            if returns_checks:
                *result, holds = result
                require(holds)
        return result[0] if len(result) == 1 else tuple(result) if result else None

    return run


def _as_jax(jax: Any, value: Any) -> Any:
    """The value as a jax array or tensor list."""
    return value if isinstance(value, JaxTensorList) else jax.numpy.asarray(value)


def _as_tuple(body: JaxLine) -> Callable[..., tuple[Any, ...]]:
    """A callable of the body whose result is always a tuple."""
    run, count = body.line.run, len(body.line.returned)

    def call(*values: Any) -> tuple[Any, ...]:
        result = run(TRACING_STEP, *values)
        return result if count > 1 else (result,) if count else ()

    return call
