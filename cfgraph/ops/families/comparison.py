"""Comparisons of two tensors, logical ops, and selection."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import SCALAR_SHAPE, UNKNOWN_SHAPE, Shape
from cfgraph.ops.families.arithmetic import BinaryOp
from cfgraph.ops.opdef.batching import BatchBuilder
from cfgraph.ops.opdef.facts import AlgebraicFacts
from cfgraph.ops.opdef.gradient_api import (
    GradientBuilder,
    InputGradients,
    select_gradient,
    sum_to_shape,
)
from cfgraph.ops.opdef.op import ALL_NUMBERS, REAL, Elementwise, Kernel, Op, OpError, one_of
from cfgraph.ops.opdef.shape_functions import InferenceContext


class ComparisonOp(Elementwise, abstract=True):
    """Ordered comparison with broadcasting, which is false if either operand is NaN."""

    signature = "x: T, y: T -> z: bool"
    attrs = one_of(REAL)


class Less(ComparisonOp):
    """Elementwise x < y."""

    function = operator.lt


class LessEqual(ComparisonOp):
    """Elementwise x <= y."""

    function = operator.le


class Greater(ComparisonOp):
    """Elementwise x > y."""

    function = operator.gt


class GreaterEqual(ComparisonOp):
    """Elementwise x >= y."""

    function = operator.ge


class EqualityOp(ComparisonOp, abstract=True):
    """Equality test. Incompatible shapes are an error or, on request, compare as unequal."""

    attrs = "incompatible_shape_error: bool = true"
    algebra = AlgebraicFacts(commutes=True)
    mismatch_result: ClassVar[bool]

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        compare = super().bind(node, xp)
        if node.attr("incompatible_shape_error"):
            return compare
        otherwise = np.bool_(cls.mismatch_result)
        return lambda x, y: compare(x, y) if _broadcast_equality(x, y) else otherwise

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        if context.attr("incompatible_shape_error"):
            return super().shape(context)
        if not all(shape.is_full for shape in context.inputs):
            return [UNKNOWN_SHAPE]
        try:
            return super().shape(context)
        except ValueError:
            return [SCALAR_SHAPE]

    @classmethod
    def shape_slots(cls, node: Node) -> Sequence[int]:
        return super().shape_slots(node) if node.attr("incompatible_shape_error") else ()


def _broadcast_equality(x: Any, y: Any) -> bool:
    if x.shape == y.shape or not x.ndim or not y.ndim:
        return True
    sizes = zip(reversed(x.shape), reversed(y.shape), strict=False)
    return all(a == b or 1 in (a, b) for a, b in sizes)


class Equal(EqualityOp):
    """Elementwise x == y."""

    algebra = replace(EqualityOp.algebra, boolean_semantics="equal")
    function = operator.eq
    mismatch_result = False


class NotEqual(EqualityOp):
    """Elementwise x != y."""

    algebra = replace(EqualityOp.algebra, boolean_semantics="differ")
    function = operator.ne
    mismatch_result = True


class ApproximateEqual(Elementwise):
    """Elementwise |x - y| <= tolerance, for tensors of equal shape."""

    signature = "x: T, y: T -> z: bool"
    attrs = f"{one_of(ALL_NUMBERS)}, tolerance: float = 1e-05"
    # TensorFlow declares it commutative, but the difference of unsigned numbers wraps
    algebra = AlgebraicFacts(commutes=False)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("T").numpy
        tolerance = dtype.type(node.attr("tolerance"))

        def close(x: Any, y: Any) -> Any:
            if x.shape != y.shape:
                raise OpError(
                    "x and y must be of the same shape. "
                    f"x shape: {list(x.shape)}. y shape: {list(y.shape)}"
                )
            return xp.abs(x - y) <= tolerance

        return close

    shape = staticmethod(lambda context: [context.inputs[0].merge(context.inputs[1])])


class LogicalAnd(BinaryOp):
    """Elementwise logical AND."""

    attrs = ""
    signature = "x: bool, y: bool -> z: bool"
    algebra = AlgebraicFacts(
        commutes=True, boolean_semantics="and", neutral_second=1, neutral_first=1
    )
    function = operator.and_


class LogicalOr(BinaryOp):
    """Elementwise logical OR."""

    attrs = ""
    signature = "x: bool, y: bool -> z: bool"
    algebra = AlgebraicFacts(
        commutes=True, boolean_semantics="or", neutral_second=0, neutral_first=0
    )
    function = operator.or_


class LogicalNot(Elementwise):
    """Elementwise logical NOT."""

    signature = "x: bool -> y: bool"
    algebra = AlgebraicFacts(boolean_semantics="not", involutive=True)
    function = "logical_not"


class Select(Op):
    """Elements of t where the condition is true, else of e; a vector condition selects rows."""

    signature = "condition: bool, t: T, e: T -> output: T"

    @staticmethod
    def batching(g: BatchBuilder, node: Node) -> Output:
        rank, condition = g.rank(node.inputs[1]), g.shared(0)
        if g.rank(node.inputs[0]) == 1:  # a vector selects along the first axis
            for _ in range(1, rank):
                condition = g.ExpandDims(condition, g.const(-1))
        chosen: Output = g.SelectV2(condition, g.aligned(1, rank), g.aligned(2, rank))
        return chosen

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        return _select if xp is np else super().bind(node, xp)

    @staticmethod
    def kernel(xp: ModuleType, condition: Any, t: Any, e: Any) -> Any:
        if t.shape != e.shape:
            message = f"'then' and 'else' must be of one shape: {list(t.shape)}, {list(e.shape)}"
            raise OpError(message)
        if condition.ndim and condition.shape != t.shape:
            if condition.ndim != 1 or t.ndim == 0 or condition.shape[0] != t.shape[0]:
                raise OpError(
                    "'condition' must be a scalar, of the shape of 't', or a vector of its rows: "
                    f"{list(condition.shape)} against {list(t.shape)}"
                )
            condition = condition.reshape((-1, *(1,) * (t.ndim - 1)))
        return xp.where(condition, t, e)

    shape = staticmethod(lambda context: [context.inputs[1].merge(context.inputs[2])])

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        condition = node.inputs[0]
        rank = g.known_shape(condition).rank
        if rank is not None and rank in (0, g.known_shape(node.output()).rank):
            return (
                None,
                lambda: select_gradient(g, dz, condition),
                lambda: select_gradient(g, dz, condition, negated=True),
            )
        return (
            None,
            lambda: g.Select(condition, dz, g.ZerosLike(dz)),
            lambda: g.Select(condition, g.ZerosLike(dz), dz),
        )


def _select(condition: Any, t: Any, e: Any) -> Any:
    if condition.ndim or t.shape != e.shape:
        return Select.kernel(np, condition, t, e)
    return t if condition else e


class SelectV2(Elementwise):
    """Elements of t where the condition is true, else of e; all three inputs broadcast."""

    signature = "condition: bool, t: T, e: T -> output: T"
    function = "where"

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        return _select_broadcast if xp is np else super().bind(node, xp)

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        condition, t, e = node.inputs
        return (
            None,
            lambda: sum_to_shape(g, select_gradient(g, dz, condition), t, node.output()),
            lambda: sum_to_shape(
                g, select_gradient(g, dz, condition, negated=True), e, node.output()
            ),
        )


def _select_broadcast(condition: Any, t: Any, e: Any) -> Any:
    if condition.ndim or t.shape != e.shape:
        return np.where(condition, t, e)
    return t if condition else e
