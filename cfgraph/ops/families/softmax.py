"""Softmax, log-softmax, and cross entropy."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import Shape, ShapeError
from cfgraph.ops.kernels.array_namespace import (
    defer_check,
    reduced_rows,
    rounds_each_step,
    updated_at,
)
from cfgraph.ops.kernels.half_reductions import reduced_half
from cfgraph.ops.opdef.gradient_api import (
    GradientBuilder,
    InputGradients,
    int32_constant,
    sum_to_shape,
)
from cfgraph.ops.opdef.op import Op, OpError, SameShape
from cfgraph.ops.opdef.shape_functions import InferenceContext

_FLOATS = "T: {float16, bfloat16, float32, float64}"


class LogitsOp(SameShape, abstract=True):
    """Function applied to each vector of logits along the last dimension."""

    attrs = _FLOATS
    adapter = rounds_each_step


class Softmax(LogitsOp):
    """Softmax over the last dimension: exp(x) / sum(exp(x))."""

    signature = "logits: T -> softmax: T"

    @staticmethod
    def kernel(xp: ModuleType, logits: Any) -> Any:
        check_logits_rank(logits)
        if logits.size == 0:
            return logits
        if xp is not np:
            raised = xp.exp(logits - xp.max(logits, axis=-1, keepdims=True))
            return raised / xp.sum(raised, axis=-1, keepdims=True)
        raised = _shifted_logits(logits)
        np.exp(raised, raised)
        if logits.dtype.itemsize == 2:
            return raised * (1 / _sum_of_classes(raised))
        return np.divide(raised, np.add.reduce(raised, -1, keepdims=True), raised)

    gradient = staticmethod(lambda g, node, dy: [_softmax_gradient(g, dy, node.output())])


def _softmax_gradient(g: GradientBuilder, dy: Output, shares: Output) -> Output:
    """Gradient with respect to the logits: (dy - sum(dy * y)) * y."""
    return g.Mul(g.Sub(dy, _class_sum(g, g.Mul(dy, shares))), shares)


def _class_sum(g: GradientBuilder, x: Output) -> Output:
    return g.Sum(x, int32_constant(g, [-1]), keep_dims=True)


class LogSoftmax(LogitsOp):
    """Logarithm of the softmax over the last dimension."""

    signature = "logits: T -> logsoftmax: T"

    @staticmethod
    def kernel(xp: ModuleType, logits: Any) -> Any:
        check_logits_rank(logits)
        return logits if logits.size == 0 else log_softmax(xp, logits)

    gradient = staticmethod(
        lambda g, node, dy: [g.Sub(dy, g.Mul(_class_sum(g, dy), g.Exp(node.output())))]
    )


def log_softmax(xp: ModuleType, logits: Any) -> Any:
    """Logarithm of the softmax over the last dimension, stable for large logits."""
    if xp is not np:
        shifted = logits - xp.max(logits, axis=-1, keepdims=True)
        return shifted - xp.log(xp.sum(xp.exp(shifted), axis=-1, keepdims=True))
    shifted = _shifted_logits(logits)
    total = _sum_of_classes(np.exp(shifted))
    return np.subtract(shifted, np.log(total, total), shifted)


def _sum_of_classes(value: Any) -> Any:
    """The sum over the last dimension, which the result keeps with size 1."""
    if value.dtype.itemsize == 2:
        return reduced_half(np.add, value, [value.ndim - 1])[..., None]
    return np.add.reduce(value, -1, keepdims=True)


def _shifted_logits(logits: Any) -> Any:
    """A new array: the logits minus the largest of each vector."""
    return logits - reduced_rows(np.maximum, logits, keep=True)


def check_logits_rank(logits: Any) -> None:
    """Raise OpError for scalar logits."""
    if logits.ndim == 0:
        raise OpError("logits must have >= 1 dimension, got []")


def _half_cross_entropy(features: Any, labels: Any) -> tuple[Any, Any]:
    """Loss and gradient of half-precision floats, in the steps of TensorFlow's `xent_op.h`."""
    shifted = _shifted_logits(features)
    raised = np.exp(shifted)
    total = _sum_of_classes(raised)
    losses = labels * (np.log(total) - shifted)
    return _sum_of_classes(losses)[:, 0], raised / total - labels


class CrossEntropyOp(Op, abstract=True):
    """Loss of each row of logits, and its gradient with respect to the logits."""

    adapter = rounds_each_step


def _logits_gradient(
    g: GradientBuilder, node: Node, dloss: Output | None, dback: Output | None
) -> Output:
    """Gradient with respect to the logits, from the gradients of both outputs."""
    terms = []
    if dloss is not None:
        terms.append(g.Mul(_column(g, dloss), node.output(1)))
    if dback is not None:
        terms.append(_softmax_gradient(g, dback, g.Softmax(node.inputs[0])))
    return terms[0] if len(terms) == 1 else g.AddV2(*terms)


def _column(g: GradientBuilder, x: Output) -> Output:
    return g.ExpandDims(x, int32_constant(g, -1))


class SoftmaxCrossEntropyWithLogits(CrossEntropyOp):
    """Cross entropy of softmax(features) and rows of label probabilities, and its gradient."""

    signature = "features: T, labels: T -> loss: T, backprop: T"
    attrs = _FLOATS

    @staticmethod
    def kernel(xp: ModuleType, features: Any, labels: Any) -> Any:
        if max(features.ndim, labels.ndim) != 2:
            raise OpError(
                "logits and labels must be either 2-dimensional, or broadcasted to be 2-dimensional"
            )
        features, labels = xp.broadcast_arrays(features, labels)
        if features.size == 0:
            return xp.zeros(features.shape[:1], dtype=features.dtype), features
        if xp is np and features.dtype.itemsize == 2:
            return _half_cross_entropy(features, labels)
        logs = log_softmax(xp, features)
        return xp.sum(labels * -logs, axis=1), xp.exp(logs) - labels

    @staticmethod
    def gradient(
        g: GradientBuilder, node: Node, dloss: Output | None, dback: Output | None
    ) -> InputGradients:
        logits, labels = node.inputs

        def labels_gradient() -> Output:
            terms = [] if dback is None else [g.Neg(dback)]
            if dloss is not None:
                terms.append(g.Mul(_column(g, dloss), g.Neg(g.LogSoftmax(logits))))
            total = terms[0] if len(terms) == 1 else g.AddV2(*terms)
            return sum_to_shape(g, total, labels, logits)

        return lambda: sum_to_shape(
            g, _logits_gradient(g, node, dloss, dback), logits, labels
        ), labels_gradient

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        shape = context.inputs[0].broadcast(context.inputs[1])
        if shape.rank is None:
            shape = Shape((None, None))
        if shape.rank != 2:
            raise ShapeError(f"logits and labels must make a matrix, not {shape}")
        return [shape[:1], shape]


class SparseSoftmaxCrossEntropyWithLogits(CrossEntropyOp):
    """Cross entropy of softmax(features) and one class label per row, and its gradient."""

    signature = "features: T, labels: Tlabels -> loss: T, backprop: T"
    attrs = _FLOATS + ", Tlabels: {int32, int64} = int64"

    @staticmethod
    def kernel(xp: ModuleType, features: Any, labels: Any) -> Any:
        check_classes(xp, features, labels)
        if features.size == 0:
            return xp.zeros(features.shape[:1], dtype=features.dtype), features
        logs = log_softmax(xp, features)
        shares, label_index = xp.exp(logs), (xp.arange(len(labels)), labels)
        if xp is np:
            loss = -logs[label_index]
            shares[label_index] -= features.dtype.type(1)
            return loss, shares
        return -logs[label_index], updated_at(
            shares, label_index, shares[label_index] - features.dtype.type(1)
        )

    gradient = staticmethod(
        lambda g, node, dloss, dback: (lambda: _logits_gradient(g, node, dloss, dback), None)
    )

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        features, labels = context.inputs
        features = features.merge(Shape((None, None)))
        rows = features[:1].merge(labels)
        return [rows, Shape(rows) + features[1:]]


def check_classes(xp: ModuleType, features: Any, labels: Any) -> None:
    """Raise OpError for labels that do not fit the logits; accelerators may defer the check."""
    if features.ndim != 2:
        raise OpError(f"logits must be 2-D, but got shape {list(features.shape)}")
    if labels.ndim != 1:
        raise OpError(f"labels must be 1-D, but got shape {list(labels.shape)}")
    if len(labels) != len(features):
        raise OpError(
            "logits and labels must have the same first dimension, "
            f"got logits shape {list(features.shape)} and labels shape {list(labels.shape)}"
        )
    classes = features.shape[1]
    if len(labels) and classes == 0:
        raise OpError(f"Must have at least one class, but got logits shape {list(features.shape)}")
    if xp is not np:
        defer_check(lambda: (labels >= 0) & (labels < classes))
        return
    # read as unsigned, a negative label is too large: one comparison checks both bounds
    if np.count_nonzero(labels.view(f"u{labels.dtype.itemsize}") >= classes):
        invalid = labels[(labels < 0) | (labels >= classes)]
        raise OpError(
            f"Received a label value of {invalid[0]} which is outside the valid range of "
            f"[0, {classes}).  Label values: {' '.join(map(str, labels.tolist()))}"
        )
