"""Function bodies compiled by XLA through jax, one per input signature."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from cfgraph.errors import CfgraphError, Unsupported, install_hint
from cfgraph.ir.function_graph import FunctionGraph, FunctionInstances
from cfgraph.ops.families.variables import Variable
from cfgraph.ops.opdef.evaluation import constant_arguments, is_known
from cfgraph.runtime.gpu.context import has_gpu
from cfgraph.runtime.jax.dlpack import ArrayTransfer, DlpackTransfer, HostTransfer
from cfgraph.runtime.jax.lowering import TRACING_STEP, jax_line

if TYPE_CHECKING:
    from cfgraph.runtime.gpu.stream import GpuStream


def has_jax() -> bool:
    """True where the extra `xla` is installed."""
    return find_spec("jax") is not None


@cache
def load_jax() -> Any:
    """The module jax, made ready. Raises Unsupported where the extra is not installed."""
    first = "jax" not in sys.modules
    # on a card others need memory, too
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    try:
        import jax
    except ImportError as error:
        message = f"XLA is not there: {error}"
        raise Unsupported(message, hint=install_hint("xla"), code="CFG710") from None
    if first:
        # a small cluster costs half as much when nobody waits for another thread
        jax.config.update("jax_cpu_enable_async_dispatch", False)
        if not has_gpu():
            jax.config.update("jax_platforms", "cpu")
    return jax


def gpu_transfer(stream: GpuStream) -> ArrayTransfer:
    """The way of values between a gpu on a card and XLA there.

    Raises Unsupported where jax has no CUDA.
    """
    library = load_jax()
    try:
        (device, *_) = library.local_devices(backend="cuda")
    except (RuntimeError, ValueError) as error:
        message = f"jax does not use the card: {str(error).partition(chr(10))[0]}"
        raise Unsupported(message, hint="install jax[cuda13]", code="CFG710") from None
    context = stream.context

    def from_jax(value: Any) -> Any:
        # jax gives memory to what it runs next as soon as nobody has it: kernels that are still to
        # read it must have run by then
        return stream.lend(context.xp.from_dlpack(value))

    return DlpackTransfer(library, device, context.array, from_jax, stream.to_host)


@contextmanager
def xla_context() -> Iterator[None]:
    """Where compiled bodies are made and run: all 64 bits, on the CPU."""
    jax = load_jax()
    with jax.enable_x64(True), jax.default_device(jax.local_devices(backend="cpu")[0]):
        yield


class TraceableFunction:
    """A function's body bound to jax.numpy; `constant` are the arguments that are known by value.

    `handover` is the way of all values, that of the host unless it is given. Raises Unsupported,
    with the node, where something in it cannot be compiled at all.
    """

    def __init__(
        self,
        function: FunctionGraph,
        constants: int,
        instances: FunctionInstances,
        transfer: ArrayTransfer | None = None,
    ) -> None:
        self.transfer = transfer or HostTransfer()
        self.line = jax_line(load_jax(), function, instances)
        self.constant = constant_arguments(function, instances).union(range(constants))

    def compile(self, inputs: Sequence[Any]) -> CompiledFunction:
        """The body for inputs of these shapes and types, and these values of constant ones."""
        return CompiledFunction(self, inputs)

    def explain_failure(self, error: Exception) -> str:
        """Why the body could not be compiled, in a line."""
        node = self.line.failed(error)
        text = error.message if isinstance(error, CfgraphError) else str(error).partition("\n")[0]
        return f"{node.name}: {text}" if node else f"{type(error).__name__}: {text}"


class CompiledFunction:
    """A compiled body for one signature; making it compiles, and runs it once.

    What an output is was found while the body was traced: computed, known, or an input handed on.
    """

    def __init__(self, body: TraceableFunction, inputs: Sequence[Any]) -> None:
        self._line, self._transfer = body.line, body.transfer
        self._variables = [
            index for index, value in enumerate(inputs) if isinstance(value, Variable)
        ]
        self._arrays = [
            index
            for index, value in enumerate(inputs)
            if index not in body.constant and not isinstance(value, Variable)
        ]
        self._same = [first_occurrence(inputs, index) for index in self._variables]
        self._valued = [index for index in self._variables if inputs[index].value is not None]
        traced = {*self._arrays}
        self._inputs: list[Any] = [
            None if index in traced else value for index, value in enumerate(inputs)
        ]
        self._output_readers: list[OutputReader] = []
        self._written: list[tuple[int, OutputReader]] = []
        self._form = "none"
        self._as_is = isinstance(self._transfer, HostTransfer)
        self._call = load_jax().jit(self._trace)
        results = self._computed(inputs)
        if not self._as_is:  # what cannot be taken back shows here
            for value in results:
                self._transfer.from_jax(value, value.ndim == 0)
        # whether an output is a scalar, where all are computed
        self._scalars = [reader.scalar for reader in self._output_readers if reader.index >= 0]
        self._plain = len(self._scalars) == len(self._output_readers) and not self._written

    def run(self, inputs: Sequence[Any]) -> Any:
        """Compute the outputs, as the handover has them, and assign to variables."""
        from_jax = self._transfer.from_jax
        computed = self._computed(inputs)
        if self._plain:
            results = [
                from_jax(value, scalar)
                for value, scalar in zip(computed, self._scalars, strict=True)
            ]
        else:
            arrays = [from_jax(value, value.ndim == 0) for value in computed]
            for index, reader in self._written:
                inputs[index].assign(reader.read(inputs, arrays))
            results = [reader.read(inputs, arrays) for reader in self._output_readers]
        if self._form == "single":
            return results[0]
        return tuple(results) if results else None

    def _arguments(self, inputs: Sequence[Any]) -> list[Any]:
        """What the compiled function takes: arrays, and the values of variables that have one."""
        arguments = [inputs[index] for index in self._arrays]
        if self._valued:
            arguments += [inputs[index].value for index in self._valued]
        return arguments

    def _computed(self, inputs: Sequence[Any]) -> Any:
        """What the compiled function gives."""
        arguments = self._arguments(inputs)
        if self._as_is:
            return self._call(*arguments)
        with self._transfer.device_scope():
            return self._call(*map(self._transfer.to_jax, arguments))

    def _trace(self, *traced: Any) -> list[Any]:
        """Run the body on what stands for its inputs; note what each output is."""
        values, traced_values = list(self._inputs), iter(traced)
        for index in self._arrays:
            values[index] = next(traced_values)
        traced_variables: dict[int, tuple[Variable, Any]] = {}
        for index, first in zip(self._variables, self._same, strict=True):
            value = next(traced_values) if index in self._valued else None
            if first == index:
                traced_variables[index] = _traced_variable(self._inputs[index], value), value
            values[index] = traced_variables[first][0]
        result = self._line.run(TRACING_STEP, *values)
        computed: list[Any] = []
        is_tuple = isinstance(result, tuple)
        self._form = "several" if is_tuple else "none" if result is None else "single"
        outputs = result if is_tuple else () if result is None else (result,)
        self._output_readers = [_output_reader(output, values, computed) for output in outputs]
        self._written = [
            (index, _output_reader(variable.value, values, computed))
            for index, (variable, initial) in traced_variables.items()
            if variable.value is not initial
        ]
        return computed


@dataclass(frozen=True, slots=True)
class OutputReader:
    """How a value comes back: computed at a place, known, or handed on from an input."""

    index: int = -1
    scalar: bool = False
    source: int = -1
    known: Any = None

    def read(self, inputs: Sequence[Any], computed: Sequence[Any]) -> Any:
        """The value."""
        if self.index >= 0:
            return computed[self.index]
        return inputs[self.source] if self.source >= 0 else self.known


def first_occurrence(inputs: Sequence[Any], index: int) -> int:
    """The first place of an input that may be given more than once."""
    return next(first for first, value in enumerate(inputs) if value is inputs[index])


def _traced_variable(variable: Variable, value: Any) -> Variable:
    return Variable(
        variable.dtype,
        variable.shape,
        variable.name,
        container=variable.container,
        resource=variable.resource,
        value=value,
    )


def _output_reader(output: Any, values: Sequence[Any], computed: list[Any]) -> OutputReader:
    """How an output comes from the inputs and from what is computed; adds to what is computed."""
    for index, value in enumerate(values):
        if output is value:
            return OutputReader(source=index)
    if is_known(output):
        return OutputReader(known=output)
    computed.append(output)
    return OutputReader(len(computed) - 1, output.ndim == 0)
