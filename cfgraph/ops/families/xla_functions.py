"""Operations of XLA that combine elements by a function of scalars: reductions, sorts, updates."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from types import ModuleType
from typing import Any, NoReturn

import numpy as np

from cfgraph.errors import Unsupported
from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import Shape
from cfgraph.ops.families.xla_operations import INDICES
from cfgraph.ops.kernels.array_namespace import checked_axis
from cfgraph.ops.kernels.xla_arrays import (
    combined_at,
    folded,
    folded_from,
    is_traced,
    padded,
    padded_shape,
    sorted_order,
    window_count,
    windows,
)
from cfgraph.ops.kernels.xla_windows import WindowNumbers
from cfgraph.ops.opdef.facts import FunctionCalls
from cfgraph.ops.opdef.function_bodies import ScalarFunction
from cfgraph.ops.opdef.op import ALL_NUMBERS, Kernel, Op, OpError, one_of
from cfgraph.ops.opdef.shape_functions import InferenceContext, shape_of_rank, static_ints


class CombiningOp(Op, abstract=True):
    """An op whose kernel `combine(xp, functions, arguments, inputs)` calls functions of scalars.

    The functions take arrays, too, and combine their elements. They always return a tuple.
    """

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        def refuse(*_: Any) -> NoReturn:
            raise Unsupported(f"{node.op} runs where its function is known", node=node)

        return refuse


def _calls(*functions: str) -> FunctionCalls:
    return FunctionCalls(kind="combine", functions=functions, inlined=True)


class XlaVariadicReduceV2(CombiningOp):
    """Tensors of one shape, reduced together over dimensions by a function."""

    signature = "inputs: T, init_values: T -> outputs: T"
    attrs = "T: list(type) >= 1, dimensions_to_reduce: list(int), reducer: func"
    calls = _calls("reducer")

    @classmethod
    def bind_functions(
        cls, node: Node, xp: ModuleType, functions: Sequence[ScalarFunction]
    ) -> Kernel:
        axes, combine = node.attr("dimensions_to_reduce"), functions[0]

        def reduce(*inputs: Any) -> Any:
            values, inits = inputs[: len(inputs) // 2], inputs[len(inputs) // 2 :]
            if any(x.shape != values[0].shape for x in values) or any(x.ndim for x in inits):
                raise OpError("inputs must have one shape, and initial values must be scalars")
            dims = [checked_axis(axis, values[0].ndim) for axis in axes]
            if not dims:
                results = values
            elif is_traced(xp):
                from jax import lax

                results = lax.reduce(values, inits, lambda x, y: combine(*x, *y), dims)
            else:
                rows = tuple(_reduced_first(x, dims) for x in values)
                results = folded_from(xp, combine, inits, rows)
            return results[0] if len(results) == 1 else tuple(results)

        return reduce

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        count, shape = context.output_count, context.inputs[0]
        for other in context.inputs[1:count]:
            shape = shape.merge(other)
        axes = context.attr("dimensions_to_reduce")
        rest = (
            None if shape.dims is None else [n for i, n in enumerate(shape.dims) if i not in axes]
        )
        return [Shape(rest)] * count


def _reduced_first(x: Any, axes: Sequence[int]) -> Any:
    """The elements to reduce as the first dimension."""
    rest = [i for i in range(x.ndim) if i not in axes]
    sizes = [x.shape[i] for i in rest]
    return x.transpose((*axes, *rest)).reshape((prod(x.shape[i] for i in axes), *sizes))


class XlaVariadicReduce(XlaVariadicReduceV2):
    """Tensors of one type and shape, reduced together over dimensions by a function."""

    signature = "input: N*T, init_value: N*T -> output: N*T"
    attrs = (
        f"N: int >= 1, {one_of(ALL_NUMBERS, 'bool')}, dimensions_to_reduce: list(int), "
        "reducer: func"
    )


class XlaReduce(XlaVariadicReduceV2):
    """Tensor reduced over dimensions by a function, from an initial value."""

    signature = "input: T, init_value: T -> output: T"
    attrs = f"{one_of(ALL_NUMBERS, 'bool')}, dimensions_to_reduce: list(int), reducer: func"


class XlaReduceWindow(CombiningOp):
    """Windows of a tensor, each reduced by a function from an initial value."""

    signature = (
        "input: T, init_value: T, window_dimensions: const Tindices, "
        "window_strides: const Tindices, base_dilations: const Tindices, "
        "window_dilations: const Tindices, padding: const Tindices -> output: T"
    )
    attrs = f"{one_of(ALL_NUMBERS, 'bool')}, {INDICES}, computation: func"
    calls = _calls("computation")

    @classmethod
    def bind_functions(
        cls, node: Node, xp: ModuleType, functions: Sequence[ScalarFunction]
    ) -> Kernel:
        combine = functions[0]

        def reduce(x: Any, init: Any, *geometry: Any) -> Any:
            sizes, strides, base, dilations, padding = (value.tolist() for value in geometry)
            if is_traced(xp):
                from jax import lax

                pairs = [tuple(row) for row in padding]
                return lax.reduce_window(
                    x,
                    init,
                    lambda a, b: combine(a, b)[0],
                    sizes,
                    strides,
                    pairs,
                    base,
                    dilations,
                )
            config = [(*row, step - 1) for row, step in zip(padding, base, strict=True)]
            view = windows(padded(xp, x, init, config), sizes, strides, dilations)
            places = view.shape[: x.ndim]
            rows = view.reshape((prod(places), prod(sizes))).T
            return folded_from(xp, combine, (init,), (rows,))[0].reshape(places)

        return reduce

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        sizes, strides, base, dilations = (static_ints(context, slot) for slot in range(2, 6))
        padding, rank = context.value(6), context.inputs[0].rank
        if sizes is None or strides is None or base is None or dilations is None or padding is None:
            return [shape_of_rank(rank)]
        config = [(*row, step - 1) for row, step in zip(padding.tolist(), base, strict=True)]
        whole = padded_shape(context.inputs[0].merge(shape_of_rank(len(sizes))), config)
        geometry = zip(whole, sizes, strides, dilations, strict=True)
        return [Shape(None if n is None else window_count(n, *rest) for n, *rest in geometry)]


class XlaScatter(CombiningOp):
    """Operand with windows of updates combined at indices; windows outside are dropped."""

    signature = "operand: T, scatter_indices: Tindices, updates: T -> output: T"
    attrs = (
        "update_computation: func, dimension_numbers: string, indices_are_sorted: bool, "
        f"{one_of(ALL_NUMBERS, 'bool')}, {INDICES}"
    )
    calls = _calls("update_computation")

    @classmethod
    def bind_functions(
        cls, node: Node, xp: ModuleType, functions: Sequence[ScalarFunction]
    ) -> Kernel:
        numbers = WindowNumbers.from_scatter(node.attr("dimension_numbers"))

        def scatter(x: Any, starts: Any, updates: Any) -> Any:
            places, updates = numbers.scatter_positions(xp, x.shape, starts, updates)
            flat = combined_at(xp, x.reshape(-1), places, updates, functions[0])
            return flat.reshape(x.shape)

        return scatter

    shape = staticmethod(lambda context: [context.inputs[0]])


class XlaSelectAndScatter(CombiningOp):
    """Elements of a source, each added where `select` picks an element of its window."""

    signature = (
        "operand: T, window_dimensions: const Tindices, window_strides: const Tindices, "
        "padding: const Tindices, source: T, init_value: T -> output: T"
    )
    attrs = f"{one_of(ALL_NUMBERS)}, {INDICES}, select: func, scatter: func"
    calls = _calls("select", "scatter")

    @classmethod
    def bind_functions(
        cls, node: Node, xp: ModuleType, functions: Sequence[ScalarFunction]
    ) -> Kernel:
        select, scatter = functions

        def run(x: Any, sizes: Any, strides: Any, padding: Any, source: Any, init: Any) -> Any:
            config = [(*row, 0) for row in padding.tolist()]
            numbers = np.arange(x.size).reshape(x.shape)
            view = windows(
                padded(np, numbers, -1, config), sizes.tolist(), strides.tolist(), [1] * x.ndim
            )
            if view.shape[: x.ndim] != source.shape:
                raise OpError(f"{list(view.shape[: x.ndim])} windows, source {list(source.shape)}")
            places = view.reshape((source.size, -1)).T
            flat = x.reshape(-1)

            def chosen(a: Any, b: Any) -> tuple[Any]:
                keeps_first = select(flat[a], flat[b])[0]
                return (xp.where((b < 0) | ((a >= 0) & keeps_first), a, b),)

            picked = folded(xp, chosen, (xp.asarray(places),))[0]
            target = xp.full(x.size, init, x.dtype)
            index = xp.where(picked < 0, x.size, picked)
            return combined_at(xp, target, index, source, scatter).reshape(x.shape)

        return run

    shape = staticmethod(lambda context: [context.inputs[0]])


class XlaVariadicSort(CombiningOp):
    """Tensors of one shape, sorted together in a dimension by a function that compares."""

    signature = "inputs: T, dimension: const int32 -> outputs: T"
    attrs = "T: list(type) >= 1, comparator: func, is_stable: bool"
    calls = _calls("comparator")

    @classmethod
    def bind_functions(
        cls, node: Node, xp: ModuleType, functions: Sequence[ScalarFunction]
    ) -> Kernel:
        def sort(*inputs: Any) -> Any:
            *values, dimension = inputs
            if any(x.shape != values[0].shape for x in values):
                raise OpError("inputs must have one shape")
            axis = checked_axis(dimension, values[0].ndim)
            rows = [xp.moveaxis(x, axis, -1) for x in values]

            def less(a: Any, b: Any) -> Any:
                pairs = [xp.take_along_axis(x, place, -1) for x in rows for place in (a, b)]
                return functions[0](*pairs)[0]

            order = sorted_order(xp, less, rows[0].shape)
            results = [xp.moveaxis(xp.take_along_axis(x, order, -1), -1, axis) for x in rows]
            return results[0] if len(results) == 1 else tuple(results)

        return sort

    shape = staticmethod(lambda context: list(context.inputs[:-1]))
