"""The GPUs of a run: real ones, or NumPy in their place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from cfgraph.backends.gpu import context
from cfgraph.backends.gpu.context import GpuContext, available_gpu
from cfgraph.errors import CfgraphError, UsageError

# late imports: `doctor` and `devices` only look for a GPU

if TYPE_CHECKING:
    from cfgraph.ir.graph import Graph, Output
    from cfgraph.runtime.engine.plan import Plan
    from cfgraph.runtime.engine.step import RunStep
    from cfgraph.runtime.memory.accounting import MemoryMeter
    from cfgraph.runtime.preparation.engines import DeviceFacts
    from cfgraph.runtime.preparation.run_config import RunConfig
    from cfgraph.runtime.run_executor import RunExecutor
    from cfgraph.runtime.trace.events import Observer

GPU_KINDS: Final = ("simulated", "real")


class GpuBackend:
    """GPUs of this machine, through CuPy."""

    @staticmethod
    def requested(kind: Any, *, is_virtual: bool) -> GpuContext | str:
        """The GPU that a session requests: a real one, or `simulated`.

        Raises UsageError for an unknown kind, and for a real GPU with a virtual clock, Unsupported
        for a real GPU that cannot be used.
        """
        if isinstance(kind, GpuContext):
            return kind
        if kind not in GPU_KINDS:
            raise UsageError(f"unknown kind of gpu {kind!r}", hint=f"one of {', '.join(GPU_KINDS)}")
        if kind == "real" and is_virtual:
            message = "the virtual clock does not run on a real GPU"
            raise UsageError(message, hint="simulate it")
        return context.gpu_context() if kind == "real" else str(kind)

    @staticmethod
    def facts() -> DeviceFacts | str:
        """The GPU of this machine, or the reason why NumPy simulates it."""
        try:
            gpu = context.gpu_context()
            memory = int(gpu.xp.cuda.Device().mem_info[1])
            from cfgraph.runtime.preparation.engines import DeviceFacts

            return DeviceFacts(f"CuPy {gpu.xp.__version__}", memory, gpu.name)
        except CfgraphError as error:
            return error.message
        except RuntimeError as error:  # of CUDA
            return str(error).splitlines()[0]

    @staticmethod
    def is_real(config: RunConfig) -> bool:
        """True if runs use a real GPU, and so wait for each other."""
        return available_gpu(config.gpu) is not None

    @staticmethod
    def driver(
        graph: Graph,
        plans: Sequence[Plan],
        step: RunStep,
        fetches: Sequence[Output],
        config: RunConfig,
        observer: Observer | None,
        meter: MemoryMeter | None,
    ) -> RunExecutor | None:
        """The executor of plans with GPUs, None if NumPy simulates them.

        Generated code runs all of a graph on one GPU, unless the run is observed, counts memory, or
        requests tokens; tokens run what has no code.
        """
        gpu = available_gpu(config.gpu)
        if gpu is None:
            return None
        from cfgraph.backends.gpu.driver import GpuDriver
        from cfgraph.backends.gpu.plan import GpuPlan

        bound = GpuPlan(plans, gpu)
        if (
            observer is None
            and meter is None
            and not config.requested_tokens_reason
            and len(plans) == 1
        ):
            from cfgraph.backends.gpu.code_driver import code_driver

            driver = code_driver(bound, graph, plans[0], step, fetches)
            if driver is not None:
                return driver
        return GpuDriver(bound, graph, plans, step, fetches, observer, meter)
