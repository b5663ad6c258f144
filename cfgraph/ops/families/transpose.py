"""Permutations of dimensions and their inverses."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import Shape, vector_shape
from cfgraph.ops.opdef.facts import CompilerSupport, HostPlacement
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradients
from cfgraph.ops.opdef.op import Kernel, Op, OpError
from cfgraph.ops.opdef.shape_functions import (
    InferenceContext,
    require_rank,
    shape_of_rank,
    static_ints,
)


class Transpose(Op):
    """Permutation of dimensions: dimension i of the result is dimension perm[i] of the input."""

    signature = "x: T, perm: Tperm -> y: T"
    attrs = "Tperm: {int32, int64} = int32"
    placement = HostPlacement(host_inputs=(1,))
    compilation = CompilerSupport(constant_inputs=(1,))

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        return _transpose

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        data, perm = context.inputs[0], static_ints(context, 1)
        perm_shape = require_rank(context.inputs[1], 1)
        rank = data.rank if data.rank is not None else (perm_shape.dims or (None,))[0]
        if rank is None or perm is None or data.dims is None:
            return [shape_of_rank(rank)]
        if sorted(axis % rank if -rank <= axis < rank else rank for axis in perm) != [*range(rank)]:
            message = f"{perm} is not a permutation of the dimensions of {data}"
            raise ValueError(message)
        return [Shape(data.dims[axis] for axis in perm)]

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        return g.Transpose(dz, _inverse_permutation(g, node.inputs[1])), None


def _transpose(value: Any, perm: Any) -> Any:
    try:
        return value.transpose(perm.tolist())
    except (ValueError, TypeError):
        raise OpError(_permutation_error(value, perm)) from None


def _permutation_error(value: Any, perm: Any) -> str:
    if perm.shape != (value.ndim,):
        return (
            f"transpose expects a vector of size {value.ndim}. "
            f"But input(1) is a vector of size {perm.size}"
        )
    return f"{perm.tolist()} is no permutation of {value.ndim} dimensions"


class ConjugateTranspose(Transpose):
    """Complex conjugate of the transpose."""

    signature = "x: T, perm: Tperm -> y: T"
    attrs = "Tperm: {int32, int64} = int32"

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        if not node.attr("T").is_complex:
            return _transpose
        return lambda value, perm: xp.conj(_transpose(value, perm))

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        return g.ConjugateTranspose(dz, _inverse_permutation(g, node.inputs[1])), None


def _inverse_permutation(g: GradientBuilder, perm: Output) -> Output:
    known = g.known_value(perm)
    if known is None or perm.dtype is None:
        return g.InvertPermutation(perm)
    return g.const(np.argsort(known % known.size), perm.dtype)


class InvertPermutation(Op):
    """Inverse of a permutation."""

    signature = "x: T -> y: T"
    attrs = "T: {int32, int64} = int32"
    placement = HostPlacement(host_inputs=(0,))
    compilation = CompilerSupport(constant_inputs=(0,))

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("T").numpy
        return lambda perm: np.array(_invert(perm.tolist()), dtype)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [context.inputs[0].merge(vector_shape())]


def _invert(perm: Any) -> list[int]:
    if not isinstance(perm, list):
        message = "invert_permutation expects a 1D vector."
        raise OpError(message)
    result = [-1] * len(perm)
    for source, target in enumerate(perm):
        if not isinstance(target, int):
            message = "invert_permutation expects a 1D vector."
            raise OpError(message)
        if not 0 <= target < len(perm):
            message = f"{target} is not between 0 and {len(perm)}"
            raise OpError(message)
        if result[target] != -1:
            message = f"{target} is duplicated in the input."
            raise OpError(message)
        result[target] = source
    return result
