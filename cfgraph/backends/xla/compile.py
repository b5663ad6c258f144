"""Function bodies compiled by XLA through jax, one per input signature.

On the host jax takes NumPy arrays directly. GPU arrays are passed by the DLPack protocol, in which
each side waits for the stream of the other, not for the GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cfgraph.backends.xla.deferred_checks import (
    DeferredCheckFailed,
    all_hold,
    guard_arguments,
    guarded_loops,
)
from cfgraph.backends.xla.jax_library import load_jax, xla_context
from cfgraph.backends.xla.lowering import TRACING_STEP, jax_line
from cfgraph.backends.xla.stored_executables import stored_executables
from cfgraph.backends.xla.tensor_lists import JaxTensorList, UnknownCapacity, largest_lengths
from cfgraph.backends.xla.transfer import (
    AlignedArguments,
    ArrayTransfer,
    HostTransfer,
)
from cfgraph.errors import CfgraphError, RunTimeout, Unsupported
from cfgraph.ir.function_graph import FunctionGraph, FunctionInstances
from cfgraph.ir.graph import Node
from cfgraph.limits import current_limits, run_interruptibly
from cfgraph.ops.families.constants import Const
from cfgraph.ops.families.variables import Variable
from cfgraph.ops.kernels.array_namespace import collected_checks
from cfgraph.ops.opdef.function_bodies import constant_arguments, require_bounded
from cfgraph.runtime.straight_line import is_known

if TYPE_CHECKING:
    from cfgraph.runtime.code_cache import CodeCache

# constants of a function whose executable is stored: it has them, and compressing takes long
_MOST_STORED_BYTES: Final = 32 << 20


class CompilationFailed(Exception):
    """XLA does not compile a function, for the reason in the message."""


class TraceableFunction:
    """A function's body bound to jax.numpy; `constant` are the arguments that are known by value.

    `transfer` moves arrays, by default on the host. Raises Unsupported, with the node, for a body
    that cannot be compiled. The loops of a `guarded` one obey the limits of the context.
    """

    def __init__(
        self,
        function: FunctionGraph,
        constants: int,
        instances: FunctionInstances,
        transfer: ArrayTransfer | None = None,
        *,
        guarded: bool = False,
    ) -> None:
        self._arguments = function, constants, instances, transfer
        self.is_guarded = guarded
        self._guarded: TraceableFunction | None = None
        self.transfer = transfer or HostTransfer()
        # tracing copies the functions that are called
        require_bounded(function, instances)
        self.line, _, self.has_loops = jax_line(load_jax(), function, instances, guarded=guarded)
        self.constant = constant_arguments(function, instances).union(range(constants))
        self._constant_bytes = sum(
            node.attr("value").array.nbytes for node in function.graph if node.op == Const.__name__
        )

    def compile(
        self,
        inputs: Sequence[Any],
        lengths: Mapping[Node, int] | None = None,
        cache: CodeCache | None = None,
    ) -> CompiledFunction:
        """Compile for the shapes and dtypes of these inputs, and the values of constant ones.

        `lengths` are the largest lengths of lists that are extended, by the node that makes one.
        On the host executables come from the `cache`, or are stored there.

        Raises CompilationFailed, UnknownCapacity if it needs `lengths`, RunTimeout at the deadline,
        and what handlers of signals raise.
        """
        if not isinstance(self.transfer, HostTransfer):  # streams of a GPU belong to a thread
            return self._compile(inputs, lengths)

        if self._constant_bytes > _MOST_STORED_BYTES:
            cache = None

        def work() -> CompiledFunction:
            with xla_context(), stored_executables(cache) as stored:  # of this thread
                compiled = self._compile(inputs, lengths)
                compiled.is_stored = stored.compiled_nothing
                return compiled

        return run_interruptibly(work)

    def _compile(
        self, inputs: Sequence[Any], lengths: Mapping[Node, int] | None
    ) -> CompiledFunction:
        try:
            return CompiledFunction(self, inputs, lengths)
        except (RunTimeout, UnknownCapacity):
            raise
        except Exception as error:
            raise CompilationFailed(self._explain_failure(error)) from error

    def with_limits(self) -> TraceableFunction:
        """The same function with guarded loops."""
        if self._guarded is None:
            self._guarded = TraceableFunction(*self._arguments, guarded=True)
        return self._guarded

    def _explain_failure(self, error: Exception) -> str:
        """The reason why compilation failed, in one line."""
        node = self.line.failed(error)
        text = error.message if isinstance(error, CfgraphError) else str(error).partition("\n")[0]
        return f"{node.name}: {text}" if node else f"{type(error).__name__}: {text}"


class CompiledFunction:
    """A body compiled for one signature; construction compiles it and runs it once.

    Tracing records the origin of each output: computed, constant, or a forwarded input. The last
    computed value of a body with checks is their conjunction. `is_stored` is true if a cache had
    the executable.
    """

    is_stored = False

    def __init__(
        self,
        body: TraceableFunction,
        inputs: Sequence[Any],
        lengths: Mapping[Node, int] | None = None,
    ) -> None:
        self._lengths = lengths
        self._line, self._transfer, self._has_checks = body.line, body.transfer, False
        self._guards = len(guard_arguments(current_limits())) if body.is_guarded else 0
        self._variables = [
            index for index, value in enumerate(inputs) if isinstance(value, Variable)
        ]
        self._arrays = [
            index
            for index, value in enumerate(inputs)
            if index not in body.constant and not isinstance(value, Variable)
        ]
        self._same = first_occurrences(inputs, self._variables)
        self._valued = [index for index in self._variables if inputs[index].value is not None]
        traced = {*self._arrays}
        self._inputs: list[Any] = [
            None if index in traced else value for index, value in enumerate(inputs)
        ]
        self._output_readers: list[OutputReader] = []
        self._written: list[tuple[int, OutputReader]] = []
        self._form = "none"
        self._call = load_jax().jit(self._trace)
        on_host = isinstance(self._transfer, HostTransfer)
        self._aligned = AlignedArguments(self._arguments(inputs)) if on_host else None
        results = self._computed(inputs)
        if self._aligned is not None:
            self._aligned.stop_if_shared(results)
        else:  # fails early if a result cannot be transferred
            for value in results:
                self._transfer.from_jax(value, value.ndim == 0)
        # for computed outputs: true if it is a scalar
        self._scalars = [reader.scalar for reader in self._output_readers if reader.index >= 0]
        self._plain = len(self._scalars) == len(self._output_readers) and not self._written

    def run(self, inputs: Sequence[Any]) -> Any:
        """Compute the outputs, and assign to variables.

        Raises DeferredCheckFailed, with nothing assigned, if a check fails.
        """
        from_jax = self._transfer.from_jax
        computed = self._computed(inputs)
        if self._has_checks:
            *computed, holds = computed
            if not holds:
                raise DeferredCheckFailed
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
        """The arguments of the compiled function: arrays, and values of initialized variables."""
        arguments = [inputs[index] for index in self._arrays]
        if self._valued:
            arguments += [inputs[index].value for index in self._valued]
        return [*guard_arguments(current_limits()), *arguments] if self._guards else arguments

    def _computed(self, inputs: Sequence[Any]) -> Any:
        """The results of the compiled function."""
        arguments = self._arguments(inputs)
        if self._aligned is not None:
            passed, arrays = self._aligned.acquire(arguments)
            results = [np.asarray(value) for value in self._call(*passed)]
            self._aligned.release(arrays)
            return results
        with self._transfer.device_scope():
            return self._call(*map(self._transfer.to_jax, arguments))

    def _trace(self, *traced: Any) -> list[Any]:
        """Run the body on tracers; record the origin of each output."""
        values, traced_values = list(self._inputs), iter(traced[self._guards :])
        for index in self._arrays:
            values[index] = next(traced_values)
        traced_variables: dict[int, tuple[Variable, Any]] = {}
        for index, first in zip(self._variables, self._same, strict=True):
            value = next(traced_values) if index in self._valued else None
            if first == index:
                traced_variables[index] = self._inputs[index].with_value(value), value
            values[index] = traced_variables[first][0]
        with (
            collected_checks() as checks,
            guarded_loops(traced[: self._guards]),
            largest_lengths(self._lengths),
        ):
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
        self._has_checks = bool(checks)
        if checks:
            computed.append(all_hold(load_jax(), checks))
        return computed


@dataclass(frozen=True, slots=True)
class OutputReader:
    """Origin of an output: a computed result, a constant, or a forwarded input."""

    index: int = -1
    scalar: bool = False
    source: int = -1
    known: Any = None

    def read(self, inputs: Sequence[Any], computed: Sequence[Any]) -> Any:
        """The value of the output."""
        if self.index >= 0:
            return computed[self.index]
        return inputs[self.source] if self.source >= 0 else self.known


def first_occurrences(inputs: Sequence[Any], indices: Iterable[int]) -> list[int]:
    """The indices of the first occurrences of some inputs."""
    first: dict[int, int] = {}
    for index, value in enumerate(inputs):
        first.setdefault(id(value), index)
    return [first[id(inputs[index])] for index in indices]


def _output_reader(output: Any, values: Sequence[Any], computed: list[Any]) -> OutputReader:
    """The origin of an output; a computed one is appended to `computed`."""
    for index, value in enumerate(values):
        if output is value:
            return OutputReader(source=index)
    if is_known(output):
        return OutputReader(known=output)
    if isinstance(output, JaxTensorList):
        message = "it returns a list"
        raise Unsupported(message)
    computed.append(output)
    return OutputReader(len(computed) - 1, output.ndim == 0)
