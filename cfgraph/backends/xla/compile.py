"""Function bodies compiled by XLA through jax, one per input signature.

On the host jax takes NumPy arrays directly. GPU arrays are passed by the DLPack protocol, in which
each side waits for the stream of the other, not for the GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from itertools import count
from typing import Any, Final

import numpy as np

from cfgraph.backends.xla.deferred_checks import (
    CallDeadline,
    DeferredCheckFailed,
    LoopGuard,
    all_hold,
    guard_arguments,
    guarded_loops,
)
from cfgraph.backends.xla.jax_library import load_jax, xla_context
from cfgraph.backends.xla.lowering import jax_line, passed_weights
from cfgraph.backends.xla.tensor_lists import JaxTensorList, UnknownCapacity, largest_lengths
from cfgraph.backends.xla.traced_draws import Draw, TracingStep, drawn_streams
from cfgraph.backends.xla.transfer import (
    LARGEST,
    AlignedArguments,
    ArrayFunction,
    ArrayTransfer,
    BoundArguments,
    HostTransfer,
)
from cfgraph.errors import CfgraphError, RunTimeout, Unsupported
from cfgraph.ir.function_graph import FunctionGraph, FunctionInstances
from cfgraph.ir.graph import Node
from cfgraph.limits import current_limits, run_interruptibly
from cfgraph.ops.families.variables import Variable
from cfgraph.ops.kernels.array_namespace import collected_checks
from cfgraph.ops.opdef.function_bodies import constant_arguments, require_bounded
from cfgraph.runtime.straight_line import is_known

# its fusions of products end the process for some convolutions
_ON_GPU: Final = {"xla_gpu_enable_triton_gemm": False}
# of the words of streams, after the keys
_COUNTER_ROWS: Final = 2


class CompilationFailed(Exception):
    """XLA does not compile a function, for the reason in the message."""


class TraceableFunction:
    """A function's body bound to jax.numpy; `constant` are the arguments that are known by value.

    `transfer` moves arrays, by default on the host. Raises Unsupported, with the node, for a body
    that cannot be compiled. The loops of a `guarded` one obey the limits of the context. With
    `passes_weights` its large constants are arguments, too, of the functions and nodes in
    `weights`.
    """

    def __init__(
        self,
        function: FunctionGraph,
        constants: int,
        instances: FunctionInstances,
        transfer: ArrayTransfer | None = None,
        *,
        guarded: bool = False,
        passes_weights: bool = False,
    ) -> None:
        self._arguments = function, constants, instances, transfer
        self.is_guarded = guarded
        self._guarded: TraceableFunction | None = None
        self.transfer = transfer or HostTransfer()
        # tracing copies the functions that are called
        require_bounded(function, instances)
        self.weights: dict[Node, str] = {}
        weights = self.weights if passes_weights else None
        body = jax_line(load_jax(), function, instances, guarded=guarded, weights=weights)
        self.line, self.has_loops = body.line, body.has_loops
        self.draws = [*dict.fromkeys(drawn_streams(function, instances))] if body.draws else []
        self.constant = constant_arguments(function, instances).union(range(constants))

    def compile(
        self,
        inputs: Sequence[Any],
        lengths: Mapping[Node, int] | None = None,
        cache: object = None,
    ) -> CompiledFunction:
        """Compile for the shapes and dtypes of these inputs, and the values of constant ones.

        `lengths` are the largest lengths of lists that are extended, by the node that makes one.
        Nothing is stored in a `cache`.

        Raises CompilationFailed, UnknownCapacity if it needs `lengths`, RunTimeout at the deadline,
        and what handlers of signals raise.
        """
        if not isinstance(self.transfer, HostTransfer):  # streams of a GPU belong to a thread
            return self._compile(inputs, lengths)
        return run_interruptibly(lambda: self._compile(inputs, lengths))

    def _compile(
        self, inputs: Sequence[Any], lengths: Mapping[Node, int] | None
    ) -> CompiledFunction:
        with self.explained_failures(), xla_context():
            trace = FunctionTrace(self, inputs, lengths)
            on_host = isinstance(self.transfer, HostTransfer)
            call = load_jax().jit(trace.run, compiler_options=None if on_host else _ON_GPU)
            return CompiledFunction(trace.layout, _InContext(call), inputs, self.transfer)

    @contextmanager
    def explained_failures(self) -> Iterator[None]:
        """Context in which it is compiled. Raises CompilationFailed for errors of jax."""
        try:
            yield
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


class _InContext:
    """A function that jax compiled, which is called with 64-bit types."""

    def __init__(self, call: Callable[..., Sequence[Any]]) -> None:
        self._call = call

    def __call__(self, *arguments: Any) -> Sequence[Any]:
        with xla_context():
            return self._call(*arguments)

    def place(self, array: Any) -> Any:
        """The array itself."""
        return array


class CompiledFunction:
    """A body compiled for one signature; construction runs it once.

    `call` computes its results from the arguments of the layout. `is_stored` is true if a cache had
    the executable; `local_reason` says why this process traced it. A process that compiled it
    beside this one took `least_seconds` for a call on the same inputs; they are disturbed if this
    process used a processor meanwhile.
    """

    local_reason = ""
    least_seconds: float | None = None
    is_disturbed = False

    def __init__(
        self,
        layout: FunctionLayout,
        call: ArrayFunction,
        inputs: Sequence[Any],
        transfer: ArrayTransfer | None = None,
        *,
        is_stored: bool = False,
    ) -> None:
        self._transfer, self._layout, self._call = transfer or HostTransfer(), layout, call
        self.is_stored = is_stored
        on_host = isinstance(self._transfer, HostTransfer)
        arguments = layout.arguments(inputs)
        self._aligned = AlignedArguments(arguments, call.place) if on_host else None
        self._on_device = BoundArguments(self._transfer.to_jax)
        results = self._computed(inputs)
        read = layout.read_positions(arguments)
        if self._aligned is not None:
            self._aligned.stop_if_shared(results)
            self._aligned.bound.retain(read)
        else:
            # the import of an array lets XLA wait for the kernels that are queued
            self._on_device.retain(read[1:])
            for value in results:  # fails early if a result cannot be transferred
                self._transfer.from_jax(value, value.ndim == 0)

    def run(self, inputs: Sequence[Any], step: Any = None) -> Any:
        """Compute the outputs, and assign to variables; what it draws are numbers of the step.

        Raises DeferredCheckFailed, with nothing assigned, if a check fails.
        """
        return self._layout.read(inputs, self._computed(inputs, step), self._transfer.from_jax)

    def _computed(self, inputs: Sequence[Any], step: Any = None) -> Any:
        """The results of the compiled function."""
        arguments = self._layout.arguments(inputs, step)
        if self._aligned is not None:
            if self._layout.guards == len(LoopGuard._fields):
                return self._computed_in_time(arguments)
            return self._computed_on_host(arguments)
        with xla_context(), self._transfer.device_scope():
            return self._call(*map(self._on_device.argument, count(), arguments))

    def _computed_on_host(self, arguments: Sequence[Any]) -> list[Any]:
        assert self._aligned is not None
        passed, arrays = self._aligned.acquire(arguments)
        results = [np.asarray(value) for value in self._call(*passed)]
        self._aligned.release(arrays)
        return results

    def _computed_in_time(self, arguments: list[Any]) -> list[Any]:
        """The results on the host of code that looks at the clock.

        It has its own thread: XLA reports the end of a call by a signal or its deadline as an error
        of its own if it comes in a callback.
        """
        position = LoopGuard._fields.index("deadline")
        call = CallDeadline(float(arguments[position]))
        arguments[position] = np.float64(call.deadline)

        def compute() -> list[Any]:
            try:
                return self._computed_on_host(arguments)
            finally:
                call.release()

        return run_interruptibly(compute, call.abandon)


class FunctionTrace:
    """The trace of a body for one signature of its inputs, which determines the layout."""

    def __init__(
        self,
        body: TraceableFunction,
        inputs: Sequence[Any],
        lengths: Mapping[Node, int] | None = None,
    ) -> None:
        self._line, self._lengths, self.weights = body.line, lengths, dict(body.weights)
        variables = [index for index, value in enumerate(inputs) if isinstance(value, Variable)]
        self.layout = FunctionLayout(
            guards=len(guard_arguments(current_limits())) if body.is_guarded else 0,
            draws=body.draws,
            arrays=[
                index
                for index, value in enumerate(inputs)
                if index not in body.constant and not isinstance(value, Variable)
            ],
            valued=[index for index in variables if inputs[index].value is not None],
        )
        self._same = dict(zip(variables, first_occurrences(inputs, variables), strict=True))
        traced = {*self.layout.arrays}
        self._inputs: list[Any] = [
            None if index in traced else value for index, value in enumerate(inputs)
        ]

    def run(self, *traced: Any) -> list[Any]:
        """Run the body on tracers; record the origin of each output in the layout."""
        layout, step = self.layout, TracingStep()
        values, traced_values = list(self._inputs), iter(traced[layout.guards :])
        if layout.draws:
            step = TracingStep.start(load_jax().numpy, layout.draws, next(traced_values))
        for index in layout.arrays:
            values[index] = next(traced_values)
        traced_variables: dict[int, tuple[Variable, Any]] = {}
        for index, first in self._same.items():
            value = next(traced_values) if index in layout.valued else None
            if first == index:
                traced_variables[index] = self._inputs[index].with_value(value), value
            values[index] = traced_variables[first][0]
        with (
            collected_checks() as checks,
            passed_weights(dict(zip(self.weights, traced_values, strict=True))),
            guarded_loops(traced[: layout.guards]),
            largest_lengths(self._lengths),
        ):
            result = self._line.run(step, *values)
        computed: list[Any] = []
        is_tuple = isinstance(result, tuple)
        layout.form = "several" if is_tuple else "none" if result is None else "single"
        outputs = result if is_tuple else () if result is None else (result,)
        layout.outputs = [_output_reader(output, values, computed) for output in outputs]
        layout.written = [
            (index, _output_reader(variable.value, values, computed))
            for index, (variable, initial) in traced_variables.items()
            if variable.value is not initial
        ]
        layout.has_checks = bool(checks)
        if checks:
            computed.append(all_hold(load_jax(), checks))
        return computed


@dataclass(slots=True)
class FunctionLayout:
    """The arguments and results of a compiled function.

    `arrays` and `valued` are the indices of inputs that it takes: arrays, and variables with a
    value, after the `guards` and, if it has `draws`, the words of their streams. The `form` of the
    outputs is `single`, `several`, or `none`; each is computed, constant, or a forwarded input, and
    so is a value that is `written` to a variable. The last computed value of a body with checks is
    their conjunction.
    """

    guards: int
    draws: list[Draw]
    arrays: list[int]
    valued: list[int]
    form: str = "none"
    outputs: list[OutputReader] = field(default_factory=list)
    written: list[tuple[int, OutputReader]] = field(default_factory=list)
    has_checks: bool = False

    def arguments(self, inputs: Sequence[Any], step: Any = None) -> list[Any]:
        """The arguments of the compiled function: arrays, and values of initialized variables.

        Without a step, its random numbers are those of no run.
        """
        arguments = [inputs[index] for index in self.arrays]
        if self.draws:
            count = len(self.draws) + _COUNTER_ROWS
            words = (
                np.zeros((count, 2), np.uint64) if step is None else step.stream_words(self.draws)
            )
            arguments.insert(0, words)
        if self.valued:
            arguments += [inputs[index].value for index in self.valued]
        return [*guard_arguments(current_limits()), *arguments] if self.guards else arguments

    def read_positions(self, arguments: Sequence[Any]) -> list[int]:
        """The positions of arguments that are values of variables it only reads, but large ones.

        A large value is not retained: the variable may have another one by now.
        """
        written = {index for index, _ in self.written}
        first = len(arguments) - len(self.valued)
        return [
            position
            for position, index in enumerate(self.valued, first)
            if index not in written and arguments[position].nbytes <= LARGEST
        ]

    def read(
        self, inputs: Sequence[Any], computed: Sequence[Any], convert: Callable[[Any, bool], Any]
    ) -> Any:
        """The outputs, after variables are assigned; `convert` takes an array and if it is scalar.

        Raises DeferredCheckFailed, with nothing assigned, if a check fails.
        """
        if self.has_checks:
            *computed, holds = computed
            if not holds:
                raise DeferredCheckFailed
        arrays = [convert(value, value.ndim == 0) for value in computed]
        for index, reader in self.written:
            inputs[index].assign(reader.read(inputs, arrays))
        results = [reader.read(inputs, arrays) for reader in self.outputs]
        if self.form == "single":
            return results[0]
        return tuple(results) if results else None

    def to_json(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The layout as JSON values, and its constants by name."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        known = dict[str, Any]()
        values["outputs"] = [reader.to_json(known) for reader in self.outputs]
        values["written"] = [[index, reader.to_json(known)] for index, reader in self.written]
        return values, known

    @classmethod
    def from_json(cls, values: Mapping[str, Any], known: Mapping[str, Any]) -> FunctionLayout:
        """The layout of JSON values and constants."""
        outputs = [OutputReader.from_json(item, known) for item in values["outputs"]]
        written = [(n, OutputReader.from_json(item, known)) for n, item in values["written"]]
        return cls(**{**values, "outputs": outputs, "written": written})


@dataclass(frozen=True, slots=True)
class OutputReader:
    """Origin of an output: a computed result, a constant, or a forwarded input."""

    index: int = -1
    source: int = -1
    known: Any = None

    def read(self, inputs: Sequence[Any], computed: Sequence[Any]) -> Any:
        """The value of the output."""
        if self.index >= 0:
            return computed[self.index]
        return inputs[self.source] if self.source >= 0 else self.known

    def to_json(self, known: dict[str, Any]) -> list[Any]:
        """The reader as JSON values; its constant is added to `known`."""
        name = ""
        if self.known is not None:
            name = f"known {len(known)}"
            known[name] = self.known
        return [self.index, self.source, name]

    @classmethod
    def from_json(cls, values: Sequence[Any], known: Mapping[str, Any]) -> OutputReader:
        """The reader of JSON values."""
        index, source, name = values
        return cls(index, source, known[name] if name else None)


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
    return OutputReader(len(computed) - 1)
