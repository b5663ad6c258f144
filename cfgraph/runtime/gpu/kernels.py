"""CuPy kernels of nodes, and cluster bodies made of them.

In a cluster values live where the executor would put them: int32 arithmetic and handles stay on
the host. A kernel that fails on the GPU runs on the host from then on. Where CuPy has no bfloat16
loop, the float32 result is rounded.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cfgraph.ir import registry
from cfgraph.ir.dtypes import bfloat16
from cfgraph.ir.function_graph import FunctionGraph, FunctionInstances
from cfgraph.ir.graph import Node
from cfgraph.ops.families.constants import identity
from cfgraph.ops.opdef.evaluation import KernelBinder, StraightLine, compile_numpy, is_known
from cfgraph.ops.opdef.op import Kernel, Op, OpError
from cfgraph.runtime.gpu.memory_pool import fatal_error
from cfgraph.runtime.gpu.stream import GpuStream
from cfgraph.runtime.memory.placement import is_host_arithmetic


def with_bfloat16_outputs(node: Node, kernel: Kernel) -> Kernel:
    """The kernel of a node on a card, what it gives of bfloat16 rounded to it."""
    types = registry.output_types(node) or []
    if bfloat16 not in types:
        return kernel
    wanted = [bfloat16.numpy if dtype is bfloat16 else None for dtype in types]

    def run(*inputs: Any) -> Any:
        made = kernel(*inputs)
        if len(wanted) == 1:
            return _rounded(made, wanted[0])
        return tuple(map(_rounded, made, wanted))

    return run


def _rounded(value: Any, wanted: Any) -> Any:
    if wanted is None or getattr(value, "dtype", wanted) == wanted:
        return value
    return value.astype(wanted)


def gpu_line(
    function: FunctionGraph, instances: FunctionInstances, on_host: KernelBinder, lane: GpuStream
) -> StraightLine:
    """A function's body on a gpu; `on_host` binds a node's kernel over NumPy arrays."""

    def bind(node: Node, op: type[Op]) -> Kernel:
        return _GpuNode(node, op, on_host(node, op), lane).kernel()

    return compile_numpy(function, instances, bind)


class _GpuNode:
    """One node of a body."""

    def __init__(self, node: Node, op: type[Op], host: Kernel, lane: GpuStream) -> None:
        self.node, self.op, self.host, self.lane = node, op, host, lane

    def kernel(self) -> Kernel:
        """What the node does with values that are where they are."""
        op = self.op
        if op.aliasing.is_identity or op.algebra.shape_only or op.calls.inlined:
            return self.host
        if not self.node.inputs and not op.effects.stateful:
            return self._constant()
        if op.placement.host_only or is_host_arithmetic(self.node, op):
            return self._on_host
        return self._on_card()

    def _constant(self) -> Kernel:
        """A number stays on the host, as what is no tensor does; an array goes over once."""
        known: list[Any] = []

        def constant() -> Any:
            if not known:
                value = self.host()
                hosts = not isinstance(value, np.ndarray) or value.dtype == np.int32
                known.append(value if hosts else self.lane.to_device(value))
            return known[0]

        return constant

    def _on_host(self, *inputs: Any) -> Any:
        """The node's result by its kernel over NumPy arrays."""
        return self.host(*map(self.lane.to_host, inputs))

    def _on_card(self) -> Kernel:
        op, node, lane = self.op, self.node, self.lane
        array, xp = lane.card.array, lane.card.xp
        try:
            found = with_bfloat16_outputs(
                node, op.prepare(node, xp) if op.effects.stateful else op.bind(node, xp)
            )
        except Exception:
            return self._on_host
        hosts = op.slots_of(node, op.placement.host_inputs)
        # a stateful kernel has the step before the inputs
        moves = [lane.to_host if slot in hosts else self._over for slot in range(len(node.inputs))]
        if op.effects.stateful:
            moves.insert(0, identity)
        # of numbers that the host has it makes others, or an array, which is the card's
        fills = op.effects.stateful or bool(op.placement.host_inputs)
        works = True

        def run(*inputs: Any) -> Any:
            nonlocal works
            if not works or not (fills or any(type(item) is array for item in inputs)):
                return self._on_host(*inputs)
            try:
                return found(*(move(item) for move, item in zip(moves, inputs, strict=True)))
            except OpError:
                raise
            except Exception as error:
                instead = fatal_error(error)
                if instead is not None:
                    raise instead from error
                result = self._on_host(*inputs)
                works = False
                return result

        return run

    def _over(self, value: Any) -> Any:
        """A value for a kernel of the card: a number may come from the host."""
        return value if is_known(value) and not value.ndim else self.lane.to_device(value)
