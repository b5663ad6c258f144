"""CuPy kernels of nodes, and cluster bodies made of them.

In a cluster values live where the executor would put them: int32 arithmetic and handles stay on
the host. A kernel that fails on the GPU runs on the host from then on. Where CuPy has no bfloat16
loop, the float32 result is rounded.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

import numpy as np

from cfgraph.backends.gpu.stream import GpuStream, fatal_error
from cfgraph.backends.xla.jax_library import load_jax
from cfgraph.backends.xla.transfer import DlpackTransfer
from cfgraph.errors import Unsupported
from cfgraph.ir.dtypes import bfloat16
from cfgraph.ir.function_graph import FunctionGraph, FunctionInstances
from cfgraph.ir.graph import Node
from cfgraph.ops.families.constants import identity
from cfgraph.ops.opdef.op import Kernel, Op, OpError
from cfgraph.ops.opdef.resources import Resource
from cfgraph.runtime.memory.placement import is_host_arithmetic
from cfgraph.runtime.straight_line import KernelBinder, StraightLine, compile_numpy, is_known

# a ufunc of CuPy starts in two thirds of the time of an operator on its arrays
_UFUNCS: Final[dict[Any, str]] = {
    operator.add: "add",
    operator.sub: "subtract",
    operator.mul: "multiply",
    operator.neg: "negative",
}


def bind_on_gpu(node: Node, op: type[Op], xp: ModuleType) -> Kernel:
    """The kernel of a node on a GPU, with its bfloat16 outputs rounded."""
    kernel = op.prepare(node, xp) if op.effects.stateful else op.bind(node, xp)
    if kernel in _UFUNCS:
        kernel = getattr(xp, _UFUNCS[kernel])
    types = node.output_types or []
    if bfloat16 not in types:
        return kernel
    dtypes = [bfloat16.numpy if dtype is bfloat16 else None for dtype in types]

    def run(*inputs: Any) -> Any:
        results = kernel(*inputs)
        if len(dtypes) == 1:
            return _rounded(results, dtypes[0])
        return tuple(map(_rounded, results, dtypes))

    return run


def undo_of_effects(inputs: Iterable[Any]) -> Callable[[], None]:
    """A function that undoes what a kernel that fails has done to the resources of its inputs.

    Whether a kernel runs on the GPU is known once it has: what it has read and cleared, or written,
    would otherwise be so when the host repeats it.
    """
    restores = [value.checkpoint() for value in inputs if isinstance(value, Resource)]

    def undo() -> None:
        for restore in restores:
            restore()

    return undo


def nothing_to_undo() -> None:
    """Undo nothing: the kernel reads and changes no resource."""


def _rounded(value: Any, dtype: Any) -> Any:
    """The value in a dtype; unchanged without one."""
    if dtype is None or getattr(value, "dtype", dtype) == dtype:
        return value
    return value.astype(dtype)


@dataclass(frozen=True, slots=True)
class GpuTarget:
    """The stream of a GPU that clusters run on."""

    stream: GpuStream

    def line(
        self, function: FunctionGraph, instances: FunctionInstances, bind_host: KernelBinder
    ) -> StraightLine:
        """A function's body on a GPU; `bind_host` binds a node's kernel over NumPy arrays."""

        def bind(node: Node, op: type[Op]) -> Kernel:
            return _GpuNode(node, op, bind_host(node, op), self.stream).kernel()

        return compile_numpy(function, instances, bind)

    def transfer(self) -> DlpackTransfer:
        """The transfer of arrays to XLA on the GPU. Raises Unsupported without CUDA in jax."""
        stream, library = self.stream, load_jax()
        try:
            (device, *_) = library.local_devices(backend="cuda")
        except (RuntimeError, ValueError) as error:
            message = f"jax does not use the GPU: {str(error).partition(chr(10))[0]}"
            raise Unsupported(message, hint="install jax[cuda13]", code="CFG710") from None
        arrays = stream.library

        def from_jax(value: Any) -> Any:
            # jax reuses memory as soon as it is unreferenced, but queued kernels may still read it
            return stream.lend(arrays.xp.from_dlpack(value))

        return DlpackTransfer(library, device, arrays.array, from_jax, stream.to_host)


class _GpuNode:
    """One node of a cluster body."""

    def __init__(self, node: Node, op: type[Op], host_kernel: Kernel, stream: GpuStream) -> None:
        self.node, self.op, self.host_kernel, self.stream = node, op, host_kernel, stream

    def kernel(self) -> Kernel:
        """The kernel for inputs that may be on the host or on the GPU."""
        op = self.op
        if op.calls.kind == "combine":
            return self._run_on_host
        if op.aliasing.is_identity or op.algebra.shape_only or op.calls.inlined:
            return self.host_kernel
        if not self.node.inputs and not op.effects.stateful:
            return self._constant()
        if op.placement.host_only or is_host_arithmetic(self.node, op):
            return self._run_on_host
        return self._gpu_kernel()

    def _constant(self) -> Kernel:
        """A constant: scalars and non-tensors stay on the host, an array is copied once."""
        known: list[Any] = []

        def constant() -> Any:
            if not known:
                value = self.host_kernel()
                hosts = not isinstance(value, np.ndarray) or value.dtype == np.int32
                known.append(value if hosts else self.stream.to_device(value))
            return known[0]

        return constant

    def _run_on_host(self, *inputs: Any) -> Any:
        """Run the NumPy kernel on inputs that are copied to the host."""
        return self.host_kernel(*map(self.stream.to_host, inputs))

    def _gpu_kernel(self) -> Kernel:
        op, node, stream = self.op, self.node, self.stream
        array, xp = stream.library.array, stream.library.xp
        try:
            kernel = bind_on_gpu(node, op, xp)
        except Exception:
            return self._run_on_host
        hosts = op.host_slots(node)
        # a stateful kernel takes the step before the inputs
        moves = [
            stream.to_host if slot in hosts else self._to_device for slot in range(len(node.inputs))
        ]
        if op.effects.stateful:
            moves.insert(0, identity)
        # these kernels may return GPU arrays although all inputs are on the host
        fills = op.effects.stateful or bool(op.parsed().host_inputs)
        is_usable = True

        def run(*inputs: Any) -> Any:
            nonlocal is_usable
            if not is_usable or not (fills or any(type(value) is array for value in inputs)):
                return self._run_on_host(*inputs)
            undo = undo_of_effects(inputs)
            try:
                return kernel(*(move(value) for move, value in zip(moves, inputs, strict=True)))
            except OpError:
                raise
            except Exception as error:
                fatal = fatal_error(error)
                if fatal is not None:
                    raise fatal from error
                undo()
                result = self._run_on_host(*inputs)
                is_usable = False
                return result

        return run

    def _to_device(self, value: Any) -> Any:
        """Copy an input to the GPU; a scalar may stay on the host."""
        return value if is_known(value) and not value.ndim else self.stream.to_device(value)
