"""Parts of a variable behind a resource handle, picked by indices."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.ops import gather_gradients
from cfgraph.ops.gather import index_vectors, take, take_batched, with_depth
from cfgraph.ops.inference import InferenceContext
from cfgraph.ops.op import Kernel, Op, OpError
from cfgraph.ops.resource_variables import declared_shape, reader
from cfgraph.ops.variables import Variable


class ResourceGather(Op):
    """The rows of a variable that indices name, the first dimensions batched."""

    signature = "resource: resource, indices: Tindices -> output: dtype"
    attrs = (
        "batch_dims: int = 0, validate_indices: bool = true, dtype: type, Tindices: {int32, int64}"
    )
    stateful = True
    reads_only = True

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        read, batch = reader(node.attr("dtype")), node.attr("batch_dims")

        def gather(step: Any, cell: Variable, indices: Any) -> Any:
            array = read(step, cell)
            if not array.ndim:
                message = "the variable must have rows, its shape is []"
                raise OpError(message)
            return (
                take_batched(xp, array, indices, batch, batch)
                if batch
                else take(xp, array, indices, 0)
            )

        return gather

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        params, batch = declared_shape(context.node.inputs[0]), context.attr("batch_dims")
        return [UNKNOWN_SHAPE if batch or params.dims is None else context.inputs[1] + params[1:]]

    gradient = staticmethod(gather_gradients.of_gather)


class ResourceGatherNd(Op):
    """The slices of a variable that index vectors name."""

    signature = "resource: resource, indices: Tindices -> output: dtype"
    attrs = "dtype: type, Tindices: {int32, int64}"
    stateful = True
    reads_only = True

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        read = reader(node.attr("dtype"))

        def gather(step: Any, cell: Variable, indices: Any) -> Any:
            array, indices = with_depth(xp, read(step, cell), indices)
            where, _ = index_vectors(xp, indices, array.shape, check=True)
            return array[(*where, ...)]

        return gather

    gradient = staticmethod(gather_gradients.of_gather_nd)
