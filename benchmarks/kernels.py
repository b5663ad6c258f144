"""Microseconds per call of the kernels of loops, small inputs first, compared with NumPy's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from types import ModuleType
from typing import Any

import numpy as np

import cfgraph.ops  # noqa: F401 - fills the registry
from benchmarks.measurement import Row, alternating_times
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import DType, float32, int32
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.shapes import Shape
from cfgraph.ops.opdef.op import Kernel, lookup

CALLS = 10_000
TINY = 10
LENGTH = 100


@dataclass(frozen=True)
class Work:
    """An op on some inputs, and a NumPy function that computes the same or a share of it."""

    name: str
    op: str
    inputs: Sequence[Any] = ()
    attrs: dict[str, Any] = field(default_factory=dict)
    plain: Callable[..., Any] | None = None
    share: float = 1.0


def scalars() -> Iterator[Work]:
    """Ops of counters, predicates, and indices."""
    one, two, yes = np.int32(3), np.int32(10), np.True_
    real = np.float32(0.5)
    for op, plain in (("AddV2", np.add), ("Sub", np.subtract), ("Mul", np.multiply)):
        yield Work(f"{op}, int32 scalars", op, [one, two], plain=plain)
        yield Work(f"{op}, float32 scalars", op, [real, real], plain=plain)
    for op, plain in (("Less", np.less), ("Greater", np.greater), ("Equal", np.equal)):
        yield Work(f"{op}, int32 scalars", op, [one, two], plain=plain)
    yield Work("LogicalAnd, scalars", "LogicalAnd", [yes, yes], plain=np.logical_and)
    yield Work("LogicalNot, scalar", "LogicalNot", [yes], plain=np.logical_not)
    yield Work("Maximum, int32 scalars", "Maximum", [one, two], plain=np.maximum)
    yield Work("Maximum, float32 scalars", "Maximum", [real, real], plain=np.maximum)
    yield Work("FloorDiv, int32 scalars", "FloorDiv", [two, one], plain=np.floor_divide)
    yield Work("FloorMod, int32 scalars", "FloorMod", [two, one], plain=np.remainder)
    yield Work("Identity, scalar", "Identity", [one])
    yield Work("Const, scalar", "Const", attrs={"value": TensorValue(np.array(1, np.int32))})
    yield Work("Cast, int32 to float32", "Cast", [one], {"DstT": float32}, np.float32)
    yield Work("Select, scalars", "Select", [yes, one, two], plain=np.where)
    yield Work("SelectV2, scalars", "SelectV2", [yes, one, two], plain=np.where)
    yield Work("Neg, float32 scalar", "Neg", [real], plain=np.negative)
    yield Work("Sqrt, float32 scalar", "Sqrt", [real], plain=np.sqrt)
    yield Work("Tanh, float32 scalar", "Tanh", [real], plain=np.tanh)
    yield Work("Sigmoid, float32 scalar", "Sigmoid", [real])


def shapes() -> Iterator[Work]:
    """Ops that compute shapes."""
    sizes, axis, row = np.array([2, 3, 4], np.int32), np.int32(0), np.zeros((2, 3, 4), np.float32)
    at, behind = np.array([1], np.int32), np.array([2], np.int32)
    step, first, last = np.array([1], np.int32), np.int32(0), np.int32(10)
    taken = {"shrink_axis_mask": 1}
    yield Work("Shape", "Shape", [row], plain=np.shape)
    yield Work("Rank", "Rank", [row], plain=np.ndim)
    yield Work("Size", "Size", [row], plain=np.size)
    yield Work("StridedSlice, element of a shape", "StridedSlice", [sizes, at, behind, step], taken)
    yield Work("StridedSlice, part of a shape", "StridedSlice", [sizes, at, behind, step])
    yield Work("Slice, part of a shape", "Slice", [sizes, at, step])
    yield Work("GatherV2, element of a shape", "GatherV2", [sizes, np.int32(1), axis])
    yield Work("GatherV2, two of a shape", "GatherV2", [sizes, sizes[:2] - 1, axis])
    yield Work("Gather, scalar index", "Gather", [row, np.int32(1)])
    yield Work("ConcatV2, shapes", "ConcatV2", [sizes, at, axis])
    yield Work("Pack, scalars", "Pack", [first, last])
    yield Work("Unpack, shape", "Unpack", [sizes], {"num": 3})
    yield Work("Split, matrix in 4", "Split", [np.int32(1), np.zeros((2, 8))], {"num_split": 4})
    yield Work("Prod of a shape", "Prod", [sizes, np.array([0], np.int32)], plain=np.prod)
    yield Work("Sum, 2x3x4 over one axis", "Sum", [row, np.array([0], np.int32)], plain=np.sum)
    yield Work("Sum, 2x3x4 over all", "Sum", [row, np.array([0, 1, 2], np.int32)])
    yield Work("Max, 2x3x4 over one axis", "Max", [row, np.array([1], np.int32)])
    yield Work("Mean, 2x3x4 over one axis", "Mean", [row, np.array([1], np.int32)])
    yield Work("Fill", "Fill", [sizes, np.float32(0)], plain=np.full)
    yield Work("ZerosLike", "ZerosLike", [row], plain=np.zeros_like)
    yield Work("Range", "Range", [first, last, np.int32(1)], plain=np.arange)
    yield Work("Reshape", "Reshape", [row, np.array([6, 4], np.int32)], plain=np.reshape)
    yield Work("ExpandDims", "ExpandDims", [row, axis], plain=np.expand_dims)
    yield Work("Squeeze", "Squeeze", [np.zeros((1, 3))], {"squeeze_dims": (0,)}, np.squeeze)
    yield Work("Transpose", "Transpose", [row, np.array([1, 0, 2], np.int32)], plain=np.transpose)
    yield Work("Tile", "Tile", [row, np.array([1, 2, 1], np.int32)], plain=np.tile)
    yield Work("BroadcastGradientArgs, equal", "BroadcastGradientArgs", [sizes, sizes])
    yield Work("BroadcastGradientArgs", "BroadcastGradientArgs", [sizes, sizes[1:]])


def layers(*, tiny: bool) -> Iterator[Work]:
    """Ops of the cell of an LSTM."""
    random = np.random.default_rng(0)

    def floats(*sizes: int) -> np.ndarray:
        return random.standard_normal(sizes).astype(np.float32)

    rows, width = (2, 4) if tiny else (32, 256)
    state, x, w = floats(rows, width), floats(rows, 2 * width), floats(2 * width, 4 * width)
    gates, bias, parts = floats(rows, 4 * width), floats(4 * width), {"num_split": 4}
    size = f"{rows}x{width}"
    product = f"MatMul, {rows}x{2 * width}x{4 * width}"
    yield Work(product, "MatMul", [x, w], plain=np.matmul, share=0.02)
    yield Work("BiasAdd", "BiasAdd", [gates, bias], plain=np.add, share=0.1)
    yield Work("Split of the gates", "Split", [np.int32(1), gates], parts, share=0.1)
    yield Work("ConcatV2 of input and state", "ConcatV2", [state, state, np.int32(1)], share=0.1)
    yield Work(f"Sigmoid, {size}", "Sigmoid", [state], share=0.1)
    yield Work(f"Tanh, {size}", "Tanh", [state], plain=np.tanh, share=0.1)
    yield Work(f"SigmoidGrad, {size}", "SigmoidGrad", [state, state], share=0.1)
    yield Work(f"TanhGrad, {size}", "TanhGrad", [state, state], share=0.1)
    yield Work(f"Mul, {size}", "Mul", [state, state], plain=np.multiply, share=0.1)
    yield Work(f"AddV2, {size}", "AddV2", [state, state], plain=np.add, share=0.1)
    yield Work(f"Relu, {size}", "Relu", [state], share=0.1)
    yield Work(f"ReluGrad, {size}", "ReluGrad", [state, state], share=0.1)
    yield Work(f"Softmax, {size}", "Softmax", [state], share=0.1)


def containers() -> Iterator[tuple[str, Callable[[], object]]]:
    """Filling and emptying what loops keep their values in."""
    value, places = np.zeros((2, 2), np.float32), [np.int32(i) for i in range(LENGTH)]
    make = _stateful("TensorArrayV3", [np.int32(LENGTH)], {"dtype": float32})
    write = _stateful("TensorArrayWriteV3", ["resource", np.int32(0), value, np.float32(0)])
    read = _stateful("TensorArrayReadV3", ["resource", np.int32(0), np.float32(0)], _FLOATS)
    stack = _stateful("StackV2", [np.int32(-1)], {"elem_type": float32})
    push = _stateful("StackPushV2", ["resource", value])
    pop = _stateful("StackPopV2", ["resource"], {"elem_type": float32})

    def array() -> None:
        handle, flow = make(None, np.int32(LENGTH))
        for place in places:
            flow = write(None, handle, place, value, flow)
        for place in places:
            read(None, handle, place, flow)

    def pile() -> None:
        handle = stack(None, np.int32(-1))
        for _ in places:
            push(None, handle, value)
        for _ in places:
            pop(None, handle)

    yield "TensorArrayWriteV3 and TensorArrayReadV3", array
    yield "StackPushV2 and StackPopV2", pile


_FLOATS = {"dtype": float32}


def _node(op: str, inputs: Sequence[Any], attrs: dict[str, Any]) -> Node:
    graph = Graph()
    feeds = []
    for place, value in enumerate(inputs):
        known = isinstance(value, np.ndarray | np.generic)
        dtype = DType.from_numpy(value.dtype) if known else DType.from_name(value)
        shape = Shape(value.shape if known else None)
        feeds.append(
            Output(graph.add("Placeholder", name=f"x{place}", dtype=dtype, shape=shape), 0)
        )
    if op == "Const":
        attrs = {**attrs, "dtype": int32}
    return graph.add(op, *feeds, name="measured", attrs=attrs)


def _stateful(op: str, inputs: Sequence[Any], attrs: dict[str, Any] | None = None) -> Kernel:
    found = lookup(op)
    assert found is not None
    return found.prepare(_node(op, inputs, attrs or {}), np)


def _again(kernel: Kernel, inputs: Sequence[Any], calls: int) -> Callable[[], None]:
    """Call the kernel many times, as the executor does."""

    def work() -> None:
        for _ in repeat(None, calls):
            kernel(*inputs)

    return work


def measure(tf: ModuleType | None, *, tiny: bool) -> Iterator[Row]:
    """Each kernel, bound once, on values that are there."""
    repeats = 1 if tiny else 7
    with np.errstate(all="ignore"):
        for work in (*scalars(), *shapes(), *layers(tiny=tiny)):
            found = lookup(work.op)
            assert found is not None
            kernel = found.bind(_node(work.op, work.inputs, work.attrs), np)
            calls = TINY if tiny else int(CALLS * work.share)
            ours = _again(kernel, work.inputs, calls)
            plain = work.plain and _again(work.plain, _arguments(work), calls)
            mine, theirs = alternating_times(ours, plain, repeats)
            scale = 1e6 / calls
            yield Row(work.name, mine * scale, "µs", theirs and theirs * scale)
        for name, fill in containers():
            once, _ = alternating_times(fill, None, repeats if tiny else 100)
            yield Row(name, once * 1e6 / LENGTH, "µs")


def _arguments(work: Work) -> Sequence[Any]:
    """The arguments of NumPy's function, with integers and tuples where it expects them."""
    last = work.inputs[-1]
    if work.op in ("Sum", "Prod"):
        return [work.inputs[0], tuple(last.tolist())]
    if work.op in ("Reshape", "Transpose", "Tile", "Fill"):
        return [v.tolist() if v.ndim == 1 else v for v in work.inputs]
    return work.inputs
