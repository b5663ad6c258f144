"""Lowering of a function body, with the loops and conditionals in it, to jax.

The size is known when the list is compiled. The fact `row_operation` of an op names its operation
on the rows. The first element determines their shape if nothing else does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final, NoReturn

from cfgraph.errors import Unsupported
from cfgraph.ir import registry
from cfgraph.ir.dtypes import DType
from cfgraph.ir.function_graph import FunctionGraph, FunctionInstances
from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import Shape
from cfgraph.ops.families.tensor_list import element_shape_of
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
    numpy_kernel,
    pure_kernels,
    traced_kernels,
)
from cfgraph.ops.opdef.op import Kernel, Op


class JaxTensorList:
    """Rows of fixed capacity, `length` of them in use; no data while their shape is unknown."""

    __slots__ = ("capacity", "data", "dtype", "length")

    def __init__(self, dtype: DType, capacity: int, data: Any, length: Any) -> None:
        self.dtype = dtype
        self.capacity = capacity
        self.data = data
        self.length = length

    ndim = 0

    def shaped(self, jax: Any, reference: JaxTensorList) -> JaxTensorList:
        """The list with rows of the shape of `reference`, if it has none yet."""
        if self.data is not None or reference.data is None:
            return self
        data = jax.numpy.zeros(reference.data.shape, reference.data.dtype)
        return JaxTensorList(self.dtype, self.capacity, data, self.length)


def list_kernel(jax: Any, node: Node, op: type[Op]) -> Kernel | None:
    """The kernel of an op on lists, or None for other ops and for lists without fixed capacity."""
    name = op.compilation.row_operation
    if not name:
        return None
    _register(jax)
    return _KERNELS[name](jax, node)


@cache
def _register(jax: Any) -> None:
    jax.tree_util.register_pytree_node(
        JaxTensorList,
        lambda elements: ((elements.data, elements.length), (elements.dtype, elements.capacity)),
        lambda known, parts: JaxTensorList(*known, *parts),
    )


def _blank(jax: Any, dtype: DType, capacity: Any, shape: Any) -> Any:
    """Rows of zeros, or None if their shape is unknown."""
    element_shape = element_shape_of(shape)
    if element_shape.dims is None or not element_shape.is_full:
        return None
    return _zeros(jax, dtype, capacity, element_shape)


def _zeros(jax: Any, dtype: DType, capacity: int, shape: Shape) -> Any:
    # a loop that never runs is compiled too, and indexing needs at least one row
    return jax.numpy.zeros((max(capacity, 1), *shape), dtype.numpy)


def _empty(jax: Any, node: Node) -> Kernel:
    dtype = node.attr("element_dtype")

    def empty(shape: Any, capacity: Any) -> JaxTensorList:
        if capacity < 0:
            message = "the capacity of the list is not known at compile time"
            raise Unsupported(message)
        data = _blank(jax, dtype, int(capacity), shape)
        return JaxTensorList(dtype, int(capacity), data, jax.numpy.int32(0))

    return empty


def _reserve(jax: Any, node: Node) -> Kernel:
    dtype = node.attr("element_dtype")

    def reserve(shape: Any, count: Any) -> JaxTensorList:
        data = _blank(jax, dtype, int(count), shape)
        return JaxTensorList(dtype, int(count), data, jax.numpy.int32(count))

    return reserve


def _from_tensor(jax: Any, node: Node) -> Kernel:
    dtype = node.attr("element_dtype")

    def from_tensor(tensor: Any, shape: Any) -> JaxTensorList:
        tensor, count = jax.numpy.asarray(tensor), len(tensor)
        if not count:
            tensor = _zeros(jax, dtype, 1, Shape(tensor.shape[1:]))
        return JaxTensorList(dtype, count, tensor, jax.numpy.int32(count))

    return from_tensor


def _push(jax: Any, node: Node) -> Kernel:
    def push(elements: JaxTensorList, value: Any) -> JaxTensorList:
        data = _put_row(jax, elements, elements.length, value)
        return JaxTensorList(elements.dtype, elements.capacity, data, elements.length + 1)

    return push


def _pop(jax: Any, node: Node) -> Kernel:
    def pop(elements: JaxTensorList, shape: Any) -> tuple[JaxTensorList, Any]:
        last = elements.length - 1
        value = _row(jax, elements, last, shape)
        return JaxTensorList(elements.dtype, elements.capacity, elements.data, last), value

    return pop


def _put(jax: Any, node: Node) -> Kernel:
    def put(elements: JaxTensorList, index: Any, value: Any) -> JaxTensorList:
        return JaxTensorList(
            elements.dtype,
            elements.capacity,
            _put_row(jax, elements, index, value),
            elements.length,
        )

    return put


def _get(jax: Any, node: Node) -> Kernel:
    return lambda elements, index, shape: _row(jax, elements, index, shape)


def _take(jax: Any, node: Node) -> Kernel:
    return lambda elements, indices, shape: _data(jax, elements, shape)[indices]


def _all(jax: Any, node: Node) -> Kernel:
    return lambda elements, shape: _data(jax, elements, shape)[: elements.capacity]


def _count(jax: Any, node: Node) -> Kernel:
    return lambda elements: elements.length


def _put_row(jax: Any, elements: JaxTensorList, index: Any, value: Any) -> Any:
    value = jax.numpy.asarray(value)
    data = elements.data
    if data is None:
        data = _zeros(jax, elements.dtype, elements.capacity, Shape(value.shape))
    if data.shape[1:] != value.shape:
        shapes = f"{Shape(value.shape)} and {Shape(data.shape[1:])}"
        message = f"the list has elements of shapes {shapes}"
        raise Unsupported(message)
    return jax.lax.dynamic_update_index_in_dim(data, value, index, 0)


def _row(jax: Any, elements: JaxTensorList, index: Any, shape: Any) -> Any:
    return jax.lax.dynamic_index_in_dim(_data(jax, elements, shape), index, 0, keepdims=False)


def _data(jax: Any, elements: JaxTensorList, shape: Any) -> Any:
    data = elements.data
    if data is None:
        data = _blank(jax, elements.dtype, elements.capacity, shape)
    if data is None:
        message = "the shape of the list's elements is not known at compile time"
        raise Unsupported(message)
    return data


_KERNELS: Final[Mapping[str, Callable[[Any, Node], Kernel]]] = {
    "empty": _empty,
    "reserve": _reserve,
    "of": _from_tensor,
    "push": _push,
    "pop": _pop,
    "put": _put,
    "get": _get,
    "take": _take,
    "all": _all,
    "count": _count,
}


class _TracingStep:
    """Placeholder of the step during tracing; every access fails."""

    def __getattr__(self, name: str) -> NoReturn:
        message = "it depends on the state of the run"
        raise Unsupported(message)


TRACING_STEP: Final[Any] = _TracingStep()


def jax_line(jax: Any, function: FunctionGraph, instances: FunctionInstances) -> StraightLine:
    """A function's body for jax to trace. Raises Unsupported, with the node, if impossible."""
    order = execution_order(function)
    static = compile_time_nodes(order, lambda node, op: constant_slots(node, op, instances))
    ordinary = _without_stateful_ops(traced_kernels(jax.numpy, static))

    def bind(node: Node, op: type[Op]) -> Kernel:
        inner = called_functions(node, op, instances)
        if not inner:
            return list_kernel(jax, node, op) or ordinary(node, op)
        lines = [jax_line(jax, _without_effects(body), instances) for body in inner]
        known_kernel = numpy_control_kernel(
            op, [compile_numpy(body, instances, pure_kernels(numpy_kernel)) for body in inner]
        )
        if op.calls.kind == "while":
            traced = _while_loop(jax, lines, loop_invariant_arguments(inner[1]))
        else:
            traced = _conditional(jax, lines)
        if node not in static:
            return traced
        return lambda *values: (
            known_kernel(*values) if all(map(is_known, values)) else traced(*values)
        )

    return StraightLine(function, bind)


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


def _while_loop(jax: Any, lines: Sequence[StraightLine], invariant: Sequence[bool]) -> Kernel:
    """A loop; invariant values are not carried, and stay constant if they were."""
    condition, step = (_as_tuple(line) for line in lines)
    carried = [index for index, is_invariant in enumerate(invariant) if not is_invariant]

    def run(*values: Any) -> Any:
        def filled(state: Sequence[Any]) -> list[Any]:
            all_values = list(values)
            for index, value in zip(carried, state, strict=True):
                all_values[index] = value
            return all_values

        def cond(state: Any) -> Any:
            return jax.numpy.asarray(condition(*filled(state))[0])

        def body(state: Any) -> Any:
            results = step(*filled(state))
            return tuple(_as_jax(jax, results[index]) for index in carried)

        start = tuple(_as_jax(jax, values[index]) for index in carried)
        if any(isinstance(value, JaxTensorList) and value.data is None for value in start):
            results = jax.eval_shape(body, start)
            start = tuple(
                a.shaped(jax, b) if isinstance(a, JaxTensorList) else a
                for a, b in zip(start, results, strict=True)
            )
        result = filled(jax.lax.while_loop(cond, body, start) if carried else start)
        return result[0] if len(result) == 1 else tuple(result) if result else None

    return run


def _conditional(jax: Any, lines: Sequence[StraightLine]) -> Kernel:
    """A conditional; only the taken branch if the predicate is constant."""
    then, otherwise = (_as_tuple(line) for line in lines)

    def run(pred: Any, *values: Any) -> Any:
        if is_known(pred):
            result = (then if pred else otherwise)(*values)
        else:
            branches = [_on_arrays(jax, branch, values) for branch in (then, otherwise)]
            result = jax.lax.cond(pred, *branches)
        return result[0] if len(result) == 1 else tuple(result) if result else None

    return run


def _on_arrays(
    jax: Any, branch: Callable[..., tuple[Any, ...]], values: Sequence[Any]
) -> Callable[[], Any]:
    return lambda: tuple(_as_jax(jax, value) for value in branch(*values))


def _as_jax(jax: Any, value: Any) -> Any:
    """The value as a jax array or tensor list."""
    return value if isinstance(value, JaxTensorList) else jax.numpy.asarray(value)


def _as_tuple(line: StraightLine) -> Callable[..., tuple[Any, ...]]:
    """A callable of the line whose result is always a tuple."""
    run, count = line.run, len(line.returned)

    def call(*values: Any) -> tuple[Any, ...]:
        result = run(TRACING_STEP, *values)
        return result if count > 1 else (result,) if count else ()

    return call
