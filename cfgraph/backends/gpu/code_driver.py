"""Generated code on one real GPU: its kernels and copies are those that tokens would call.

The code is that of the compiled engine, over a plan that is bound to the GPU (`plan.py`). All of it
runs in one thread, and queues its kernels on one stream, whose order is the order of the code:

- An array is read only by kernels that are queued after the one that makes it. Memory of an array
  that the code drops returns to the pool of the stream, where only later kernels of it take it.
- Copies of the other streams keep arrays and buffers until their events have passed (`stream.py`).
- What the host reads is an input that a line of its own copies, once for all that test it.
- No other thread may raise an exception in the code, between a copy that was started and the event
  that protects its buffer: a run with a deadline stays with tokens, which look at the clock between
  nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from cfgraph.backends.gpu.driver import GpuDriver, fetched_to_host, gpu_error
from cfgraph.backends.gpu.plan import GpuPlan
from cfgraph.backends.gpu.stream import fatal_error
from cfgraph.ir.devices import short_device_name
from cfgraph.ir.graph import Graph, Output
from cfgraph.ir.role import Role
from cfgraph.limits import current_limits
from cfgraph.runtime.compiled.code_position import located
from cfgraph.runtime.compiled.compiled_run import CompiledRun, Function
from cfgraph.runtime.compiled.engine import CompiledDriver, compile_run
from cfgraph.runtime.compiled.loop_watch import LoopWatch
from cfgraph.runtime.engine.plan import Plan, RunSpec
from cfgraph.runtime.engine.step import RunStep
from cfgraph.runtime.program import NotCompiled
from cfgraph.runtime.run_executor import ExecutorReport


def code_driver(
    bound: GpuPlan, graph: Graph, plan: Plan, step: RunStep, fetches: Sequence[Output]
) -> GpuCodeDriver | None:
    """The driver of generated code for a plan that is bound to a GPU, None if it has no code.

    One that sends messages, also to itself, has none: their variables would be those of the host.
    """
    if any(map(plan.nodes_of_role, (Role.SEND, Role.RECV))):
        return None
    spec = RunSpec(graph, tuple(fetches), (), tuple(plan.feeds[i] for i in range(len(plan.feeds))))
    try:
        with bound.streams[plan.device].current(), graph.paused_gc():
            compiled = compile_run(spec, [plan])  # its constants are arrays on the GPU
    except NotCompiled:
        return None
    tokens = partial(GpuDriver, bound, graph, [plan], step, fetches)
    return GpuCodeDriver(bound, compiled, spec, step, tokens)


class GpuCodeDriver(CompiledDriver):
    """Runs generated code on one GPU; `make_tokens` makes the driver that explains errors."""

    def __init__(
        self,
        bound: GpuPlan,
        compiled: CompiledRun,
        spec: RunSpec,
        step: RunStep,
        make_tokens: Callable[[], GpuDriver],
    ) -> None:
        super().__init__(compiled, spec, step, make_tokens)
        plan = compiled.plan
        self._bound, self._stream = bound, bound.streams[plan.device]
        self._device = short_device_name(plan.device)
        self._moved_feeds = [i for i, fed in plan.feeds.items() if not bound.is_host(plan, fed)]

    def reports(self) -> list[ExecutorReport]:
        """The GPU, and the ops that ran on the host."""
        return [self._bound.report((self._device,))]

    def prepare_variables(self) -> None:
        """Leave variables where the last run had them, and wait for the streams of earlier runs."""
        self._bound.prepare_variables(self.step.state)

    def token_reason(self) -> str:
        """The reason why tokens must run this run, or empty."""
        if current_limits().deadline != math.inf:
            return "a run on a GPU has a deadline"
        return super().token_reason()

    def call(self, function: Function, feeds: Sequence[Any], iterations: Any) -> Sequence[Any]:
        """The fetched values of the function, whose copies to the host have started."""
        stream, values = self._stream, [*feeds]
        with stream.current():
            for index in self._moved_feeds:
                with self._errors_at(self.compiled.plan.feeds[index]):
                    values[index] = stream.to_device(values[index])
            results = function(self.step, values, iterations)
            if len(results) > 1:
                for output, value in zip(self.fetches, results, strict=True):
                    with self._errors_at(output):
                        stream.start_copy(value)
        return results

    @contextmanager
    def _errors_at(self, output: Output) -> Iterator[None]:
        """Context of the copy of a fed or fetched value, whose errors have its node."""
        try:
            yield
        except (MemoryError, RuntimeError) as error:
            raise gpu_error(error, self._device, output.node) from error

    def explain(self, error: Exception, watch: LoopWatch) -> None:
        """Raise an error as tokens do; a GPU that failed, or has no memory, is not tried again."""
        fatal = gpu_error(error, self._device)
        cause = error.__cause__
        if fatal is not error or (isinstance(cause, Exception) and fatal_error(cause)):
            raise located(self.compiled, fatal.with_traceback(error.__traceback__)) from error
        super().explain(error, watch)

    def fetched_to_host(self, index: int, value: Any) -> Any:
        """The value of a fetch in host memory."""
        if self.tokens is not None:
            return self.tokens.fetched_to_host(index, value)
        as_error = partial(gpu_error, device=self._device, node=self.fetches[index].node)
        return fetched_to_host(self._stream, value, as_error)
