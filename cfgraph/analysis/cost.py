"""Cost estimates of a graph: work, bytes, and the number of executions of nodes in loops.

The estimates serve to choose between devices. They assume `SIZE` for an unknown dimension,
`ELEMENTS` elements for a tensor of unknown rank, and `ITERATIONS` iterations for a loop of unknown
length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import prod
from typing import Final

from cfgraph.analysis.loops.frame import Frame, Frames
from cfgraph.ir.devices import DeviceName
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.ops.families.comparison import Less, LessEqual, LogicalAnd
from cfgraph.ops.opdef.op import Dims, lookup
from cfgraph.ops.shape_inference import StaticShapes

SIZE: Final = 32
_UNKNOWN_ELEMENTS: Final = 1024
ITERATIONS: Final = 10
_MAX_ITERATIONS: Final = 1e9
_DEFAULT_KIND: Final = "CPU"


@dataclass(frozen=True, slots=True)
class DeviceSpeed:
    """Throughput of a device per second, and the seconds that launching a kernel takes."""

    flops: float
    bytes: float
    launch: float


@dataclass(frozen=True, slots=True)
class DeviceLink:
    """Transfer cost between devices: seconds per message, and bytes per second."""

    latency: float
    bytes: float

    def seconds(self, size: float) -> float:
        """The transfer time of a tensor of a size in bytes."""
        return self.latency + size / self.bytes


@dataclass(frozen=True, slots=True)
class Costs:
    """Speeds by kind of device, and the link between any two; the defaults are round figures."""

    speeds: Mapping[str, DeviceSpeed] = field(
        default_factory=lambda: {
            "CPU": DeviceSpeed(5e10, 2e10, 1e-6),
            "GPU": DeviceSpeed(1e13, 1e12, 5e-6),
        }
    )
    link: DeviceLink = DeviceLink(1e-5, 1.6e10)

    def kind_of(self, device: str) -> str:
        """The kind of a device name; CPU for a kind without a speed."""
        parts = DeviceName.parse(device)
        kind = (parts and parts.kind) or _DEFAULT_KIND
        return kind if kind in self.speeds else _DEFAULT_KIND

    def seconds(self, kind: str, flops: float, size: float) -> float:
        """The time of a kernel with this many operations and bytes moved."""
        speed = self.speeds[kind]
        return speed.launch + max(flops / speed.flops, size / speed.bytes)


@dataclass(frozen=True, slots=True, eq=False)
class _TensorSize:
    """Estimated size of a tensor; there is one object per shape and type."""

    dims: Dims
    bytes: int


class CostEstimates:
    """Estimates of the work per node, the bytes per output, and the executions per frame."""

    def __init__(self, shapes: StaticShapes, graph_frames: Frames) -> None:
        self._shapes = shapes
        self._known: dict[tuple[tuple[int | None, ...] | None, DType | None], _TensorSize] = {}
        self._sizes: dict[Node, tuple[_TensorSize, ...]] = {}
        self._works: dict[
            tuple[str, tuple[_TensorSize, ...], tuple[_TensorSize, ...]], tuple[float, int]
        ] = {}
        self.runs: dict[Frame, float] = {graph_frames.root: 1.0}
        for frame in graph_frames.all:
            if frame.parent is not None:
                count = self.runs[frame.parent] * self._iterations(frame)
                self.runs[frame] = min(count, _MAX_ITERATIONS)

    def work(self, node: Node) -> tuple[float, int]:
        """Operations, and bytes read and written, all zero for a node that forwards its input."""
        op = lookup(node.op)
        if op is not None and (op.role or op.aliasing.is_identity or not node.inputs):
            return 0.0, 0
        outputs, read = self._made(node), tuple([self._size(tensor) for tensor in node.inputs])
        key = (node.op, read, outputs)
        known = self._works.get(key)
        if known is None:
            moved = sum(size.bytes for size in (*outputs, *read))
            dims = [size.dims for size in read], [size.dims for size in outputs]
            flops = float(moved) if op is None or not outputs else op.flops(*dims)
            known = self._works[key] = flops, moved
        return known

    def size(self, output: Output) -> int:
        """The bytes of a tensor."""
        return self._size(output).bytes

    def _size(self, output: Output) -> _TensorSize:
        node, port = output
        sizes = self._sizes.get(node) or self._made(node)
        return sizes[port] if port < len(sizes) else self._known_size(UNKNOWN_SHAPE, None)

    def _made(self, node: Node) -> tuple[_TensorSize, ...]:
        """Sizes of the outputs of a node."""
        known = self._sizes.get(node)
        if known is None:
            shapes = self._shapes.node_shapes(node)
            types = _types(node, len(shapes))
            known = self._sizes[node] = tuple(map(self._known_size, shapes, types))
        return known

    def _known_size(self, shape: Shape, dtype: DType | None) -> _TensorSize:
        """The size of a tensor of a shape and type, or zero without a type."""
        key = (shape.dims, dtype)
        known = self._known.get(key)
        if known is None:
            raw = (_UNKNOWN_ELEMENTS,) if shape.dims is None else shape.dims
            dims = tuple(SIZE if dim is None else dim for dim in raw)
            known = self._known[key] = _TensorSize(
                dims, _element_bytes(dtype) * prod(dims) if dtype else 0
            )
        return known

    def _iterations(self, frame: Frame) -> float:
        """The number of iterations: the bound of a counter in the predicate, if it is known."""
        bounds = [self._bound(node.inputs[0]) for node in frame.loop_conds if node.inputs]
        return min((bound for bound in bounds if bound is not None), default=ITERATIONS)

    def _bound(self, predicate: Output) -> float | None:
        """The constant that a counter from 0 is compared with, or None."""
        pending, limits, seen = [predicate], list[float](), {predicate}
        while pending:
            node = pending.pop().node
            op = lookup(node.op)
            if op is None or len(node.inputs) != 2:
                continue
            if issubclass(op, LogicalAnd):
                pending.extend(source for source in node.inputs if source not in seen)
                seen.update(node.inputs)
            elif issubclass(op, Less | LessEqual):
                limit = self._shapes.value(node.inputs[1])
                if limit is not None and limit.size == 1:
                    limits.append(max(float(limit.reshape(-1)[0]), 0.0))
        return min(limits, default=None)


def _types(node: Node, count: int) -> Sequence[DType | None]:
    """Types of the outputs of a node, with None for each unknown type."""
    if count == 1:
        return (node.output().dtype,)
    types = node.output_types or ()
    return (*types, *[None] * (count - len(types)))


@cache
def _element_bytes(dtype: DType) -> int:
    """Bytes per element, or the size of a reference for objects and unknown types."""
    base = dtype.base
    return 8 if base.is_object or base.kind == "none" else int(base.numpy.itemsize)
