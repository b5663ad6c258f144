"""Small ops that lowering reads or leaves behind: truth, stand-ins, lists of tensors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import SCALAR_SHAPE, UNKNOWN_SHAPE, Shape
from cfgraph.ops.adjoint import pass_on
from cfgraph.ops.array import same
from cfgraph.ops.elements import EMPTY
from cfgraph.ops.inference import InferenceContext
from cfgraph.ops.op import Kernel, Op, OpError


class ToBool(Op):
    """True for a scalar that is not zero or empty, and for any other tensor that has elements."""

    signature = "input: T -> output: bool"
    logic = "truth"

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("T")
        if dtype.is_complex or dtype.kind in ("resource", "variant"):
            return lambda value: _no_truth(dtype, value)
        return _string_truth if dtype.kind == "string" else _truth

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [SCALAR_SHAPE]


def _truth(value: Any) -> Any:
    return value != 0 if value.ndim == 0 else np.bool_(value.size > 0)


def _no_truth(dtype: DType, value: Any) -> Any:
    if value.ndim:
        return np.bool_(value.size > 0)
    message = f"{dtype} cannot be converted to a boolean"
    raise OpError(message)


def _string_truth(value: Any) -> Any:
    return np.bool_(len(value[()]) > 0 if value.ndim == 0 else value.size > 0)


class FakeParam(Op):
    """A stand-in for a value that the branch not taken would have given."""

    signature = "-> output: dtype"
    attrs = "shape: shape"

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype, shape = node.attr("dtype"), node.attr("shape")
        if dtype.kind in ("variant", "resource"):
            return lambda: EMPTY
        sizes = [0 if size is None else size for size in shape.dims or ()]
        fill = b"" if dtype.kind == "string" else 0
        stand_in = np.full([0] if shape.dims is None else sizes, fill, dtype.numpy)
        return lambda: xp.asarray(stand_in) if dtype.kind != "string" else stand_in

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [context.attr("shape")]


class DeviceIndex(Op):
    """The place of this node's kind of device in a list of kinds; their number if it is not in."""

    signature = "-> index: int32"
    attrs = "device_names: list(string)"
    stateful = True

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        match = re.search(r"device:([A-Za-z_]+)", node.device)
        kind = match[1].upper().encode() if match else b"CPU"
        names = node.attr("device_names")
        index = np.int32(names.index(kind) if kind in names else len(names))
        return lambda step: index

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [SCALAR_SHAPE]


class Regroup(Op, abstract=True):
    """The outputs are the inputs, grouped into other arguments."""

    gradient = staticmethod(pass_on)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        return same if len(node.inputs) == 1 else _all

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        if len(context.inputs) != context.output_count:
            return [UNKNOWN_SHAPE] * context.output_count
        return list(context.inputs)


def _all(*values: Any) -> tuple[Any, ...]:
    return values


class _ListToArray(Regroup):
    """Tensors of a list of types, as N of one type."""

    signature = "input: Tin -> output: N*T"
    attrs = "Tin: list(type) >= 1"


class _ArrayToList(Regroup):
    """N tensors of one type, as tensors of a list of types."""

    signature = "input: N*T -> output: out_types"
    attrs = "out_types: list(type) >= 1"
