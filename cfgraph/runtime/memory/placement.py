"""Placement of tensors in host or device memory, and the buffers behind values.

As in TensorFlow's GPU kernels, host memory holds int32 arithmetic (shapes and counters), handles,
strings, and what the signature of an op marks. Control flow forwards a
tensor where it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from cfgraph.ir import dtypes
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.role import FORWARDING_ROLES, Role
from cfgraph.ir.shapes import AbstractTensor
from cfgraph.ops.opdef.op import Op, is_cluster_call

if TYPE_CHECKING:
    from cfgraph.runtime.engine.plan import NodePlan


Buffer: TypeAlias = np.ndarray | AbstractTensor


def buffer_of(value: Any) -> Buffer | None:
    """The object that owns the bytes of a value, shared by views, or None for uncounted values."""
    if isinstance(value, np.ndarray):
        if not value.ndim or value.dtype == object:
            return None
        while isinstance(value.base, np.ndarray):
            value = value.base
        return cast(Buffer, value)
    if isinstance(value, AbstractTensor) and value.shape:
        return value.base or value
    if is_gpu_array(value) and value.shape:
        return cast(Buffer, value if value.base is None else value.base)
    return None


def is_gpu_array(value: Any) -> bool:
    """True for an array in GPU memory, of any library."""
    return hasattr(type(value), "__cuda_array_interface__")


def copy_of_value(value: Any) -> Any:
    """A copy of the value with a separate buffer."""
    if isinstance(value, np.ndarray):
        return value.copy() if value.dtype != object else value
    if isinstance(value, AbstractTensor):
        return AbstractTensor(value.dtype, value.shape)
    return value.copy() if is_gpu_array(value) else value


class MemoryPlacement:
    """Placement of one device's tensors: `is_host` of an output, `crossings` of all."""

    def __init__(self, nodes: Mapping[Node, NodePlan]) -> None:
        self._nodes = nodes
        self._known: dict[Output, bool] = {}
        self._readers: dict[Output, list[tuple[Node, int]]] = {}
        for node in nodes:
            for slot, output in enumerate(node.inputs):
                self._readers.setdefault(output, []).append((node, slot))

    def is_host(self, output: Output) -> bool:
        """True for an output in host memory."""
        known = self._known.get(output)
        if known is not None:
            return known
        chain = [output]
        # a loop-carried value is placed like its initial value
        while (source := self._forwarded_source(chain[-1])) is not None and source not in chain:
            chain.append(source)
        is_host_memory = self._known.get(chain[-1])
        if is_host_memory is None:
            is_host_memory = self._is_made_on_host(chain[-1])
        self._known.update(dict.fromkeys(chain, is_host_memory))
        return is_host_memory

    def crossings(self) -> Iterator[tuple[Node, int, bool]]:
        """The inputs that need a copy, each with its slot and True for a copy to the host.

        One copy serves all consumers of an output.
        """
        for output, readers in self._readers.items():
            copied: set[bool] = set()
            for node, slot in readers:
                needs_host = self.needs_host(node, slot)
                if (
                    needs_host is not None
                    and needs_host is not self.is_host(output)
                    and needs_host not in copied
                ):
                    copied.add(needs_host)
                    yield node, slot, needs_host

    def needs_host(self, node: Node, slot: int) -> bool | None:
        """True for an input that must be in host memory, False on the device, None for either."""
        op = self._nodes[node].op
        if slot in op.host_slots(node):
            return True
        types = node.input_types
        if types is None or types[slot].is_object or types[slot].is_ref:
            return True
        if (
            op.role
            or op.aliasing.is_identity
            or op.algebra.shape_only
            or op.placement.swap_role
            or is_cluster_call(op)
        ):
            return None
        return op.placement.host_only or is_host_arithmetic(node, op)

    def _forwarded_source(self, output: Output) -> Output | None:
        """The output that a node forwards as this one, or None for a computed output."""
        plan = self._nodes.get(output.node)
        if plan is None or not output.node.inputs:
            return None
        op = plan.op
        if op.role is Role.MERGE:
            return output.node.inputs[0] if output.port == 0 else None
        if op.role in FORWARDING_ROLES:
            return output.node.inputs[0]
        if op.aliasing.is_identity:
            return output.node.inputs[output.port]
        return output.node.inputs[-1] if op.placement.swap_role == "push" else None

    def _is_made_on_host(self, output: Output) -> bool:
        """True for an output that its node computes in host memory."""
        plan, dtype = self._nodes.get(output.node), output.dtype
        if dtype is None or dtype.is_ref or dtype.is_object:
            return True
        if plan is None or not (output.node.inputs or plan.op.role):
            return dtype is dtypes.int32
        op = plan.op
        if op.role is Role.RECV or is_cluster_call(op):
            readers = self._readers.get(output, [])
            needs_host = bool(readers) and all(
                self.needs_host(*reader) is True for reader in readers
            )
            return needs_host or dtype is dtypes.int32
        if (
            op.role is Role.MERGE
            or output.port in op.parsed().host_outputs
            or op.algebra.shape_only
            or op.placement.host_only
        ):
            return True
        return is_host_arithmetic(output.node, op)


def is_host_arithmetic(node: Node, op: type[Op]) -> bool:
    """True for int32 arithmetic, whose inputs and outputs are in host memory."""
    host = op.host_slots(node)
    reads = [t for slot, t in enumerate(node.input_types or []) if slot not in host]
    writes = node.output_types or []
    return (
        bool(writes or reads)
        and all(map(_is_host_dtype, reads))
        and all(_is_host_dtype(dtype) or dtype is dtypes.bool_ for dtype in writes)
    )


def _is_host_dtype(dtype: DType) -> bool:
    return dtype.is_ref or dtype.is_object or dtype is dtypes.int32
