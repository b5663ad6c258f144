"""Sums of products in Einstein notation, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from cfgraph.ir.graph import Node, Output
from cfgraph.ir.names import decode_text
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape, ShapeError
from cfgraph.ops.families.matmul import matmul_flops
from cfgraph.ops.kernels.array_namespace import computed_in_float32, updated_at
from cfgraph.ops.opdef.facts import CompilerSupport
from cfgraph.ops.opdef.gradient_api import (
    GradientBuilder,
    InputGradients,
    conjugate,
    int32_constant,
    sum_to_shape,
)
from cfgraph.ops.opdef.op import Dims, Kernel, Op, OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext

ELLIPSIS = "..."


def operand_gradient(
    g: GradientBuilder, node: Node, dz: Output, terms: Sequence[str], result: str, number: int
) -> Output:
    """Gradient of one operand: for `ij,jk->ik`, the gradient of `ij` is `ik,jk->ij`.

    The gradient is repeated along a label that only this operand has, and summed over broadcast
    dimensions of its ellipsis.
    """
    x, term, dtype = node.inputs[number], terms[number], node.attr("T")
    remaining = [
        (t, conjugate(g, y))
        for i, (t, y) in enumerate(zip(terms, node.inputs, strict=True))
        if i != number
    ]
    known = result + "".join(t for t, _ in remaining)
    labels = term.replace(ELLIPSIS, "")
    dots = ELLIPSIS if ELLIPSIS in known else ""
    shared = "".join(dict.fromkeys(label for label in labels if label in known))
    alone = "".join(dict.fromkeys(label for label in labels if label not in known))
    # TensorFlow's Einsum accepts at most two operands
    left = ",".join([result, *(t for t, _ in remaining)])
    broadcasts = any(ELLIPSIS in t for t, _ in remaining)
    whole = dots + labels if broadcasts else term
    first = dots + shared if alone else whole
    dx = dz
    if left != first:
        dx = _einsum(g, f"{left}->{first}", [dz, *(y for _, y in remaining)])
    if alone:
        ones = g.Fill(_label_sizes(g, x, term, alone), g.const(1, dtype))
        dx = _einsum(g, f"{dots}{shared},{alone}->{whole}", [dx, ones])
    if not broadcasts:
        return dx
    if ELLIPSIS not in term or term.startswith(ELLIPSIS):
        return sum_to_shape(g, dx, x, dx, fixed=len(labels))
    x = _einsum(g, f"{term}->{ELLIPSIS}{labels}", [x])
    return _einsum(
        g, f"{ELLIPSIS}{labels}->{term}", [sum_to_shape(g, dx, x, dx, fixed=len(labels))]
    )


def _einsum(g: GradientBuilder, equation: str, inputs: Sequence[Output]) -> Output:
    return g.Einsum(inputs, equation=equation)


def _label_sizes(g: GradientBuilder, x: Output, term: str, labels: str) -> Output:
    """Sizes of an operand along some labels of its term."""
    before, _, after = term.partition(ELLIPSIS)
    positions = [
        before.index(label) if label in before else after.index(label) - len(after)
        for label in labels
    ]
    dims = g.known_shape(x).dims
    if dims is not None and None not in (known := [dims[position] for position in positions]):
        return int32_constant(g, known)
    shape = g.shape(x)
    bounds = [
        tuple(int32_constant(g, bound) for bound in ([position], [position + 1], [1]))
        for position in positions
    ]
    parts = [
        g.StridedSlice(shape, *bound, end_mask=int(position == -1))
        for position, bound in zip(positions, bounds, strict=True)
    ]
    return parts[0] if len(parts) == 1 else g.ConcatV2(parts, int32_constant(g, 0))


class Einsum(Op):
    """Sum of products according to an Einstein equation such as `ij,jk->ik`."""

    signature = "inputs: N*T -> output: T"
    attrs = "equation: string"
    compilation = CompilerSupport(uncompiled_types="bool, int8, int16, uint8, uint16, uint32")

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        terms, result = parse_equation(decode_text(node.attr("equation")), len(node.inputs))
        labels = result.replace("...", "")
        once = "".join(dict.fromkeys(labels))
        repeats, dots = len(labels) > len(once), "..." if "..." in result else ""
        equation = f"{','.join(terms)}->{dots + once if repeats else result}"
        spread = _spread_diagonals(xp, result) if repeats else None
        dtype = node.attr("T")
        if xp is np and len(terms) == 2 and not repeats and (dtype.is_floating or dtype.is_complex):
            return computed_in_float32(_pair_kernel(terms, result, equation), dtype)

        def einsum(*inputs: Any) -> Any:
            _check_label_sizes(terms, inputs)
            value = xp.einsum(equation, *inputs, optimize=len(inputs) > 1)
            return spread(value) if spread else value

        return computed_in_float32(einsum, dtype)

    @classmethod
    def flops(cls, inputs: Sequence[Dims], outputs: Sequence[Dims]) -> float:
        return matmul_flops(inputs, outputs) if len(inputs) > 1 else super().flops(inputs, outputs)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        terms, result = parse_equation(decode_text(context.attr("equation")), len(context.inputs))
        sizes: dict[str, int | None] = {}
        batch: Shape | None = Shape(())
        for term, shape in zip(terms, context.inputs, strict=True):
            if shape.dims is None:
                batch = None if "..." in term else batch
                continue
            labels = term.replace("...", "")
            middle = len(shape.dims) - len(labels)
            if middle < 0 or (middle and "..." not in term):
                raise ShapeError(f"shape {shape} does not fit the labels {term!r}")
            start = term.find("...") if "..." in term else len(labels)
            dims = shape.dims[:start] + shape.dims[start + middle :]
            for label, size in zip(labels, dims, strict=True):
                known = Shape((sizes.get(label),)).merge(Shape((size,)))
                sizes[label] = (known.dims or (None,))[0]
            if batch is not None:
                batch = batch.broadcast(Shape(shape.dims[start : start + middle]))
        start = result.find("...")
        if start < 0:
            return [Shape(sizes.get(label) for label in result)]
        if batch is None:
            return [UNKNOWN_SHAPE]
        before, after = result[:start], result[start + 3 :]
        head, tail = (Shape(sizes.get(label) for label in part) for part in (before, after))
        return [head + batch + tail]

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        terms, result = parse_equation(decode_text(node.attr("equation")), len(node.inputs))
        return [partial(operand_gradient, g, node, dz, terms, result, i) for i in range(len(terms))]


def _pair_kernel(terms: Sequence[str], result: str, equation: str) -> Kernel:
    """A kernel for two NumPy arrays, as one product of matrices if the equation allows it."""
    last: tuple[Any, PairProduct | None] = (None, None)

    def einsum(x: Any, y: Any) -> Any:
        nonlocal last
        key, known = (x.shape, y.shape), last
        if key != known[0]:
            _check_label_sizes(terms, (x, y))
            last = known = key, _pair_product(terms, result, x.shape, y.shape)
        product = known[1]
        if product is None:
            return np.einsum(equation, x, y, optimize=["einsum_path", (0, 1)])
        left = x.transpose(product.x_order).reshape(product.x_sizes)
        right = y.transpose(product.y_order).reshape(product.y_sizes)
        return (left @ right).reshape(product.sizes).transpose(product.order)

    return einsum


class PairProduct(NamedTuple):
    """Orders of dimensions and sizes that turn an equation into a product of matrices."""

    x_order: list[int]
    x_sizes: list[int]
    y_order: list[int]
    y_sizes: list[int]
    sizes: list[int]
    order: list[int]


def _pair_product(
    terms: Sequence[str], result: str, x_shape: Dims, y_shape: Dims
) -> PairProduct | None:
    """The product for these shapes; None if labels repeat, are summed alone, or broadcast."""
    x, y = (_axis_names(term, len(s)) for term, s in zip(terms, (x_shape, y_shape), strict=True))
    sizes = dict(zip(x + y, x_shape + y_shape, strict=True))
    fits = all(sizes[name] == size for name, size in zip(x, x_shape, strict=True))
    out = [name for name in sizes if isinstance(name, int)]
    z = _axis_names(result, len(result.replace(ELLIPSIS, "")) + len(out))
    alone = (set(x) ^ set(y)) - set(z)
    if alone or not fits or len(set(x)) < len(x) or len(set(y)) < len(y) or not set(out) <= set(z):
        return None
    batch = [name for name in x if name in y and name in z]
    summed = [name for name in x if name in y and name not in z]
    left, right = ([name for name in names if name in z and name not in batch] for names in (x, y))
    b, m, k, n = (math.prod(sizes[i] for i in names) for names in (batch, left, summed, right))
    many = [b] if batch else []
    made = batch + left + right
    return PairProduct(
        [x.index(name) for name in batch + left + summed],
        [*many, m, k],
        [y.index(name) for name in batch + summed + right],
        [*many, k, n],
        [sizes[name] for name in made],
        [made.index(name) for name in z],
    )


def _axis_names(term: str, rank: int) -> list[str | int]:
    """A name per dimension: its label, or its number from the end of the ellipsis."""
    before, dots, after = term.partition(ELLIPSIS)
    count = rank - len(before) - len(after)
    return [*before, *range(count if dots else 0, 0, -1), *after]


def parse_equation(equation: str, count: int) -> tuple[list[str], str]:
    """Labels of each input and of the result. Raises OpError for a malformed equation."""
    left, arrow, result = equation.partition("->")
    terms = left.split(",")
    if not arrow or len(terms) != count:
        raise OpError(f"Expecting {count} labels in input subscript and one arrow in {equation!r}")
    for part in (*terms, result):
        labels = part.replace("...", "", 1)
        if not labels.isalpha() and labels:
            raise OpError(f"Invalid characters in einsum equation {equation!r}")
    for label in result.replace("...", ""):
        if not any(label in term for term in terms):
            raise OpError(f"Einsum output label {label!r} is in no input of {equation!r}")
    return terms, result


def _check_label_sizes(terms: Sequence[str], inputs: Sequence[Any]) -> None:
    """Reject unequal sizes of one label: NumPy broadcasts a size of 1, TensorFlow does not."""
    sizes: dict[str, int] = {}
    for term, value in zip(terms, inputs, strict=True):
        labels = term.replace("...", "")
        start = term.find("...") if "..." in term else len(labels)
        middle = value.ndim - len(labels)
        if middle < 0 or (middle and "..." not in term):
            message = f"Expected input of {len(labels)} dimensions for {term!r}, has {value.ndim}"
            raise OpError(message)
        dims = value.shape[:start] + value.shape[start + middle :]
        for label, size in zip(labels, dims, strict=True):
            if sizes.setdefault(label, size) != size:
                message = f"Expected dimension {sizes[label]} at label {label!r} but got {size}"
                raise OpError(message)


def _spread_diagonals(xp: ModuleType, result: str) -> Kernel:
    """Kernel that writes a value to the diagonal of every label that the result repeats."""
    once = "".join(dict.fromkeys(result.replace("...", "")))

    def spread(value: Any) -> Any:
        batch = value.shape[: value.ndim - len(once)]
        sizes = dict(zip(once, value.shape[len(batch) :], strict=True))
        indices = dict(zip(once, xp.indices(value.shape[len(batch) :]), strict=True))
        start = max(result.find("..."), 0)
        labels = result.replace("...", "")
        full = xp.zeros(batch + tuple(sizes[label] for label in labels), value.dtype)
        full = updated_at(full, (..., *(indices[label] for label in labels)), value)
        return xp.moveaxis(full, range(len(batch)), range(start, start + len(batch)))

    return spread
