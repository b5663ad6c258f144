"""Compilation of functions in a child process, which alone imports jax and traces.

    this process                                 child process
    graph, inputs of a call ──▶ request ───────▶ trace, compile, run on the inputs
    load by jaxlib ◀── layout, executable ◀───── serialize

The child may die in XLA or never answer, which is an error with a code. Executables are stored as
they are sent, in a cache of the user. A loop with a deadline looks at the clock by a function of
the process that loads it. A function is traced in this process instead if it has an op of a module
that the child cannot import, or jaxlib cannot load its executable.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import inf
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cfgraph.backends.xla.background import BACKGROUND
from cfgraph.backends.xla.compile import (
    CompilationFailed,
    CompiledFunction,
    FunctionLayout,
    TraceableFunction,
    first_occurrences,
)
from cfgraph.backends.xla.deferred_checks import look_at_clock
from cfgraph.backends.xla.loaded_executable import (
    ArrayType,
    LoadedExecutable,
    NotLoadable,
    machine,
)
from cfgraph.backends.xla.lowering import is_weight
from cfgraph.backends.xla.tensor_lists import UnknownCapacity
from cfgraph.backends.xla.transfer import HostTransfer, is_aligned
from cfgraph.errors import ProcessLost
from cfgraph.ir.attrs import TensorValue, aligned_copy
from cfgraph.ir.files import dumps
from cfgraph.ir.function_graph import FunctionGraph, FunctionInstances
from cfgraph.ir.functions import Function
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.library import called_functions
from cfgraph.limits import current_limits, run_interruptibly
from cfgraph.ops.families.constants import Const
from cfgraph.ops.families.variables import Variable
from cfgraph.ops.opdef.function_bodies import (
    constant_arguments,
    reachable_nodes,
    require_bounded,
)
from cfgraph.ops.opdef.op import function_calls, lookup
from cfgraph.processes.child_process import ChildPool, ChildProcess, ChildProgram
from cfgraph.processes.messages import (
    MessageError,
    ProcessMessage,
    message_from_bytes,
    message_parts,
)
from cfgraph.processes.shared_arrays import shared_message
from cfgraph.stack_position import is_of_signal_handler

if TYPE_CHECKING:
    from cfgraph.runtime.code_cache import CacheEntry, CodeCache

_PROGRAM: Final = ChildProgram(
    module="cfgraph.backends.xla.compile_program",
    task="traces and compiles for XLA",
    code="CFG716",
    hint="another engine runs the graph, such as --engine compiled; `explain CFG716` has more",
)
_CALL: Final = "call"
# the package whose ops the child has
_OWN: Final = "cfgraph"
# of a processor, that this process uses while the child runs: its times are then disturbed
_DISTURBED_SHARE: Final = 0.1
# for a compilation that nobody waits for
_MOST_SECONDS: Final = 600.0
# a pass that a compilation leaves out after a process died in it
_FUSION: Final = "fusion"
_WITHOUT_FUSION: Final = {"xla_disable_hlo_passes": _FUSION}
_DIGEST_BYTES: Final = hashlib.sha256().digest_size


class RemoteFunction:
    """A function that a child process traces and compiles, for the host.

    `node` calls it. `constant` are the arguments that are known by value. The loops of a `guarded`
    one obey the limits of the context.

    Raises Unsupported for a body that calls itself, or expands to too many nodes.
    """

    transfer = HostTransfer()

    def __init__(
        self,
        node: Node,
        function: FunctionGraph,
        instances: FunctionInstances,
        *,
        guarded: bool = False,
    ) -> None:
        require_bounded(function, instances)
        self._arguments = node, function, instances
        self._constants, self._is_guarded = len(node.attr("Tconstants")), guarded
        self._nodes = [*reachable_nodes(function, instances)]
        self.has_loops = any(function_calls(item.op).kind == "while" for item in self._nodes)
        self.constant = constant_arguments(function, instances).union(range(self._constants))

    @cached_property
    def _local(self) -> TraceableFunction:
        """The function as this process traces it."""
        _, function, instances = self._arguments
        return TraceableFunction(function, self._constants, instances, guarded=self._is_guarded)

    @cached_property
    def _foreign(self) -> dict[str, str]:
        """The ops of other packages, with the modules that define them."""
        modules = {item.op: getattr(lookup(item.op), "__module__", _OWN) for item in self._nodes}
        return {op: name for op, name in modules.items() if name.partition(".")[0] != _OWN}

    @cached_property
    def _guarded(self) -> RemoteFunction:
        return RemoteFunction(*self._arguments, guarded=True)

    def with_limits(self) -> RemoteFunction:
        """The same function with guarded loops."""
        return self._guarded

    @cached_property
    def _source(self) -> _CallSource:
        """The graph of the function without its large constants, and those."""
        node, _, instances = self._arguments
        return _CallSource.from_call(node, instances.library)

    def compile(
        self,
        inputs: Sequence[Any],
        lengths: Mapping[Node, int] | None = None,
        cache: CodeCache | None = None,
    ) -> CompiledFunction:
        """Compile as a TraceableFunction does, with its errors; executables are in the `cache`.

        Raises ProcessLost if the child dies or gives no answer, Unsupported if it cannot trace the
        body.
        """
        request = self.request(inputs, lengths)
        try:
            return self.loaded(request, self.answer(request, cache), inputs)
        except NotLoadable as error:
            compiled = self._local.compile(inputs, lengths)
            compiled.local_reason = str(error)
            return compiled

    def request(
        self, inputs: Sequence[Any], lengths: Mapping[Node, int] | None, *, is_timed: bool = False
    ) -> CompileRequest:
        """The request for these inputs, with their values if it `is_timed`."""
        indices = {node: index for index, node in enumerate(self._nodes)}
        firsts = first_occurrences(inputs, range(len(inputs)))
        arrays = {}
        for index, value in enumerate(inputs):
            content = value.value if isinstance(value, Variable) else value
            if content is not None and (index in self.constant or is_timed):
                arrays[f"input {index}"] = content
        header = {
            "kind": "compile",
            "call": _CALL,
            "constants": self._constants,
            "guarded": self._is_guarded,
            "has_deadline": self._is_guarded and current_limits().deadline != inf,
            "foreign": self._foreign,
            "inputs": [_input_to_json(value) for value in inputs],
            "same": [
                [index, firsts[index]]
                for index, value in enumerate(inputs)
                if isinstance(value, Variable) and firsts[index] != index
            ],
            "lengths": lengths and [[indices[node], size] for node, size in lengths.items()],
        }
        return CompileRequest(self._source, header, arrays, is_timed)

    def answer(self, request: CompileRequest, cache: CodeCache | None) -> CompileAnswer:
        """The answer to a request, from the `cache` or of the child.

        Raises as `compile` does, and NotLoadable if the child lacks an op.
        """
        entry = None
        if cache is not None and not self._foreign:  # the code of another package may change
            entry = cache.executable(*machine(), request.key(self.constant))
        answer = None if entry is None else _stored_answer(entry)
        if answer is not None:
            return CompileAnswer(answer, is_stored=True)
        answer = _checked_answer(request)
        # an executable that contains a large constant is not identified by the key
        if entry is not None and len(answer.header["weights"]) == len(self._source.weights):
            data = b"".join(message_parts(answer))
            entry.store(hashlib.sha256(data).digest() + data)
        return CompileAnswer(answer)

    def loaded(
        self, request: CompileRequest, answer: CompileAnswer, inputs: Sequence[Any]
    ) -> CompiledFunction:
        """The function of an answer, loaded and run once. Raises NotLoadable, CompilationFailed."""
        header, arrays = answer.message.header, answer.message.arrays
        load = partial(
            LoadedExecutable,
            arrays["executable"].tobytes(),
            header["calls"],
            [_type_from_json(item) for item in header["arguments"]],
            [_type_from_json(item) for item in header["results"]],
            [_aligned(self._source.weights[x, y]) for x, y in header["weights"]],
            [look_at_clock] * header["callbacks"],
        )
        layout = FunctionLayout.from_json(header["layout"], arrays)
        # an import of jaxlib that is interrupted cannot be repeated
        call = run_interruptibly(load)
        try:
            return CompiledFunction(layout, call, inputs, is_stored=answer.is_stored)
        except RuntimeError as error:  # of XLA in the first call, such as exhausted memory
            if is_of_signal_handler(error):
                raise
            raise CompilationFailed(str(error).partition("\n")[0]) from error

    def compile_later(
        self,
        inputs: Sequence[Any],
        lengths: Mapping[Node, int] | None,
        cache: CodeCache | None,
    ) -> CompiledFunction:
        """Compile while runs go on, with the times of the child; jax is never imported here.

        Raises CompilationFailed, and the errors of `compile`.
        """
        request = self.request(inputs, lengths, is_timed=True)
        wall, own = perf_counter(), process_time()
        try:
            answer = self.answer(request, cache)
            share = (process_time() - own) / max(perf_counter() - wall, 1e-9)
            with BACKGROUND.uninterrupted:
                compiled = self.loaded(request, answer, inputs)
        except NotLoadable as error:
            raise CompilationFailed(str(error)) from error
        compiled.least_seconds = answer.message.header["least"]
        compiled.is_disturbed = share > _DISTURBED_SHARE
        return compiled


def _aligned(weight: TensorValue) -> Any:
    """The array of a constant, which is moved once if XLA would copy it for each executable."""
    if not is_aligned(weight.array):
        array = aligned_copy(weight.array)
        array.flags.writeable = False
        weight.move(array)
    return weight.array


@dataclass(frozen=True)
class _CallSource:
    """A graph that calls a function, without the large constants, which are `weights`.

    They are named by function and node.
    """

    graph: bytes
    weights: Mapping[tuple[str, str], TensorValue]

    @classmethod
    def from_call(cls, node: Node, library: Mapping[str, Function]) -> _CallSource:
        """The source of a call."""
        graph, weights = Graph(), dict[tuple[str, str], TensorValue]()
        graph.create(_CALL, node.op, attrs=dict(node.attrs))
        graph.functions = dict(library)
        names = called_functions(graph)
        graph.functions = {
            name: _without_weights(function, weights)
            for name, function in library.items()
            if name in names
        }
        return cls(dumps(graph), weights)


def _without_weights(function: Function, weights: dict[tuple[str, str], TensorValue]) -> Function:
    """A function without the elements of its large constants, which are added to `weights`."""
    nodes = list(function.definition.nodes)
    for index, node in enumerate(nodes):
        value = node.attrs.get("value")
        if node.op == Const.__name__ and isinstance(value, TensorValue) and is_weight(value):
            weights[function.name, node.name] = value
            empty = TensorValue(np.zeros(0, value.dtype.numpy))
            nodes[index] = replace(node, attrs={**node.attrs, "value": empty})
    return Function(function.name, replace(function.definition, nodes=tuple(nodes)))


@dataclass(frozen=True)
class CompileRequest:
    """A request to compile a function for some inputs; `arrays` has those that are sent."""

    source: _CallSource
    header: Mapping[str, Any]
    arrays: Mapping[str, Any]
    is_timed: bool

    def key(self, constant: frozenset[int]) -> str:
        """A digest of what determines the executable: of weights and most inputs, the types."""
        names = (f"input {index}" for index in sorted(constant))
        known = {name: self.arrays[name] for name in names if name in self.arrays}
        types = [[*key, *_type_to_json(value)] for key, value in self.source.weights.items()]
        message = ProcessMessage({**self.header, "weights": types}, known)
        digest = hashlib.sha256(self.source.graph)
        for part in message_parts(message):
            digest.update(part)
        return digest.hexdigest()

    def message(self, options: Mapping[str, str]) -> ProcessMessage:
        """The message with options of XLA."""
        weights = {f"weight {n}": x.array for n, x in enumerate(self.source.weights.values())}
        names = [[*key, f"weight {n}"] for n, key in enumerate(self.source.weights)]
        header = {
            **self.header,
            "weights": names,
            "options": options,
            "is_timed": self.is_timed,
            "max_bytes": current_limits().max_bytes,
        }
        graph = np.frombuffer(self.source.graph, np.uint8)
        return ProcessMessage(header, {"graph": graph, **self.arrays, **weights})


@dataclass(frozen=True)
class CompileAnswer:
    """The answer of the child, which may come from a cache."""

    message: ProcessMessage
    is_stored: bool = False


_POOL: Final = ChildPool(lambda: ChildProcess(_PROGRAM))
_YIELDING_POOL: Final = ChildPool(lambda: ChildProcess(replace(_PROGRAM, yields=True)))
BACKGROUND.releases.append(_YIELDING_POOL.close)


def _checked_answer(request: CompileRequest) -> ProcessMessage:
    """The answer of the child. Raises the errors of `RemoteFunction.compile`."""
    try:
        answer = _send(request, {})
    except ProcessLost as error:
        if _FUSION not in f"{error.message} {error.failed_check}".lower():
            raise
        answer = _send(request, _WITHOUT_FUSION)
    if lacking := answer.header.get("lacking"):
        message = f"another process cannot import {lacking}, an op of another package"
        raise NotLoadable(message)
    if answer.header.get("needs_lengths"):
        message = "the capacity of a list is not known at compile time"
        raise UnknownCapacity(message)
    if failure := answer.header.get("failed"):
        raise CompilationFailed(str(failure))
    return answer


def _send(request: CompileRequest, options: Mapping[str, str]) -> ProcessMessage:
    message, descriptors = shared_message(request.message(options))
    header = {**message.header, "descriptors": len(descriptors)}
    pool, seconds = (_YIELDING_POOL, _MOST_SECONDS) if request.is_timed else (_POOL, inf)
    try:
        with BACKGROUND.waiting() if request.is_timed else nullcontext(), pool.leased() as process:
            return process.request(ProcessMessage(header, message.arrays), descriptors, seconds)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _stored_answer(entry: CacheEntry) -> ProcessMessage | None:
    """The answer in a cache, or None if there is none, or it is damaged."""
    data = entry.load() or b""
    digest, content = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
    if not content or hashlib.sha256(content).digest() != digest:
        return None
    try:
        return message_from_bytes(content)
    except MessageError:
        return None


def _input_to_json(value: Any) -> dict[str, Any]:
    """The type of an input: of an array, or of a variable."""
    if not isinstance(value, Variable):
        return {"shape": [*value.shape], "dtype": value.dtype.name}
    content, dims = value.value, value.shape.dims
    declared = {
        "dtype": value.dtype.number,
        "shape": None if dims is None else [*dims],
        "name": value.name,
        "resource": value.resource,
    }
    shape = None if content is None else [*content.shape]
    dtype = None if content is None else content.dtype.name
    return {"shape": shape, "dtype": dtype, "variable": declared}


def _type_to_json(value: Any) -> list[Any]:
    return [[*value.shape], value.dtype.name]


def _type_from_json(item: Sequence[Any]) -> ArrayType:
    shape, name = item
    return ArrayType(tuple(shape), np.dtype(name))
