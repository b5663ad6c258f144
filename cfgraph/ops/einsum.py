"""Sums of products, in Einstein's notation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import ModuleType
from typing import Any

from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.ops.adjoint import Adjoint, Partials
from cfgraph.ops.einsum_gradients import of_operand
from cfgraph.ops.inference import InferenceContext
from cfgraph.ops.matmul import contraction
from cfgraph.ops.op import Dims, Kernel, Op, OpError
from cfgraph.ops.precision import widened
from cfgraph.ops.writes import written


class Einsum(Op):
    """The sum of products that the equation says, such as `ij,jk->ik`."""

    signature = "inputs: N*T -> output: T"
    attrs = "equation: string"
    uncompiled_types = "bool, int8, int16, uint8, uint16, uint32"

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        terms, result = parse(node.attr("equation").decode(), len(node.inputs))
        labels = result.replace("...", "")
        once = "".join(dict.fromkeys(labels))
        repeats, dots = len(labels) > len(once), "..." if "..." in result else ""
        equation = f"{','.join(terms)}->{dots + once if repeats else result}"
        spread = _spread(xp, result) if repeats else None

        def einsum(*inputs: Any) -> Any:
            _check(terms, inputs)
            value = xp.einsum(equation, *inputs, optimize=len(inputs) > 1)
            return spread(value) if spread else value

        return widened(einsum, node.attr("T"))

    @classmethod
    def flops(cls, inputs: Sequence[Dims], outputs: Sequence[Dims]) -> float:
        return contraction(inputs, outputs) if len(inputs) > 1 else super().flops(inputs, outputs)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        terms, result = parse(context.attr("equation").decode(), len(context.inputs))
        sizes: dict[str, int | None] = {}
        batch: Shape | None = Shape(())
        for term, have in zip(terms, context.inputs, strict=True):
            if have.dims is None:
                batch = None if "..." in term else batch
                continue
            labels = term.replace("...", "")
            middle = len(have.dims) - len(labels)
            if middle < 0 or (middle and "..." not in term):
                message = f"shape {have} does not fit the labels {term!r}"
                raise ValueError(message)
            start = term.find("...") if "..." in term else len(labels)
            dims = have.dims[:start] + have.dims[start + middle :]
            for label, size in zip(labels, dims, strict=True):
                known = Shape((sizes.get(label),)).merge(Shape((size,)))
                sizes[label] = (known.dims or (None,))[0]
            if batch is not None:
                batch = batch.broadcast(Shape(have.dims[start : start + middle]))
        start = result.find("...")
        if start < 0:
            return [Shape(sizes.get(label) for label in result)]
        if batch is None:
            return [UNKNOWN_SHAPE]
        before, after = result[:start], result[start + 3 :]
        head, tail = (Shape(sizes.get(label) for label in part) for part in (before, after))
        return [head + batch + tail]

    @staticmethod
    def gradient(g: Adjoint, node: Node, dz: Output) -> Partials:
        terms, result = parse(node.attr("equation").decode(), len(node.inputs))
        return [partial(of_operand, g, node, dz, terms, result, i) for i in range(len(terms))]


def parse(equation: str, count: int) -> tuple[list[str], str]:
    """The labels of each input and of the result. Raises OpError where it is no equation."""
    left, arrow, result = equation.partition("->")
    terms = left.split(",")
    if not arrow or len(terms) != count:
        message = f"Expecting {count} labels in input subscript and one arrow in {equation!r}"
        raise OpError(message)
    for part in (*terms, result):
        labels = part.replace("...", "", 1)
        if not labels.isalpha() and labels:
            message = f"Invalid characters in einsum equation {equation!r}"
            raise OpError(message)
    for label in result.replace("...", ""):
        if not any(label in term for term in terms):
            message = f"Einsum output label {label!r} is in no input of {equation!r}"
            raise OpError(message)
    return terms, result


def _check(terms: Sequence[str], inputs: Sequence[Any]) -> None:
    """NumPy lets a size of 1 broadcast under a label; an einsum of TensorFlow does not."""
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


def _spread(xp: ModuleType, result: str) -> Kernel:
    """Lay a value along the diagonal of every label that the result repeats."""
    once = "".join(dict.fromkeys(result.replace("...", "")))

    def spread(value: Any) -> Any:
        batch = value.shape[: value.ndim - len(once)]
        sizes = dict(zip(once, value.shape[len(batch) :], strict=True))
        places = dict(zip(once, xp.indices(value.shape[len(batch) :]), strict=True))
        start = max(result.find("..."), 0)
        labels = result.replace("...", "")
        full = xp.zeros(batch + tuple(sizes[label] for label in labels), value.dtype)
        full = written(full, (..., *(places[label] for label in labels)), value)
        return xp.moveaxis(full, range(len(batch)), range(start, start + len(batch)))

    return spread
