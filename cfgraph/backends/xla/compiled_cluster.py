"""Clusters that XLA compiles: a function per signature, and the argument that changed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, Final

import numpy as np

from cfgraph.backends.xla.background import BACKGROUND, Job
from cfgraph.backends.xla.compile import (
    CompilationFailed,
    CompiledFunction,
    TraceableFunction,
    first_occurrences,
)
from cfgraph.backends.xla.compile_process import RemoteFunction
from cfgraph.backends.xla.deferred_checks import DeferredCheckFailed, guard_arguments
from cfgraph.backends.xla.jax_library import has_jax, require_jax
from cfgraph.backends.xla.tensor_lists import UnknownCapacity
from cfgraph.backends.xla.transfer import HostTransfer
from cfgraph.errors import ProcessLost, Unsupported
from cfgraph.ir.attrs import content_key
from cfgraph.ir.dtypes import DType
from cfgraph.ir.function_graph import FunctionInstances
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import Shape
from cfgraph.limits import current_limits
from cfgraph.ops.families.variables import Variable
from cfgraph.ops.opdef.op import Kernel, function_calls
from cfgraph.runtime.cluster_runner import Cluster, ClusterRunner, ClusterTarget, Compilation
from cfgraph.stack_position import is_of_signal_handler

# signatures of one cluster that stay compiled; the oldest is dropped first
MAX_SIGNATURES: Final = 64
# constants with more elements are not described by their values
_MAX_CONSTANT_ELEMENTS: Final = 8
# stop compiling a cluster that exceeds this count without enough runs per compilation
_MAX_COMPILATIONS: Final = 10
_MIN_RUNS_PER_COMPILATION: Final = 50
# cost of one call of a compiled function, in calls of kernels on this many elements each
_CALL_COST_IN_KERNELS: Final = 20
_CALL_COST_IN_ELEMENTS: Final = 1000
_UNKNOWN_SIZE: Final = 1 << 30

InputSignature = tuple[Any, ...]


class XlaCompiler:
    """XLA, through jax."""

    is_installed = staticmethod(has_jax)
    require = staticmethod(require_jax)

    @staticmethod
    def cluster(
        cluster: Cluster,
        node: Node,
        instances: FunctionInstances,
        target: ClusterTarget | None,
    ) -> Cluster:
        """A cluster that XLA compiles, or one with the reason why it cannot."""
        body: TraceableFunction | RemoteFunction
        try:
            if target is None:
                body = RemoteFunction(node, cluster.function, instances)
            else:
                constants, transfer = len(node.attr("Tconstants")), target.transfer()
                body = TraceableFunction(cluster.function, constants, instances, transfer)
        except Unsupported as error:
            cluster.refused = _reason(error)
            return cluster
        members = {item.name: getattr(cluster, item.name) for item in fields(cluster)}
        return CompiledCluster(**members, traceable=body)


@dataclass(slots=True, kw_only=True)
class CompiledCluster(Cluster):
    """A cluster that XLA compiles per signature of its inputs.

    It has `stopped_compiling` after too many compilations. `lengths` are those of lists on NumPy
    kernels, by signature.
    """

    traceable: TraceableFunction | RemoteFunction
    stopped_compiling: bool = False
    compiled: dict[InputSignature, CompiledFunction | None] = field(default_factory=dict)
    seen: dict[InputSignature, None] = field(default_factory=dict)
    last: InputSignature | None = None
    # texts of the constant arguments at the last compilation
    last_constants: tuple[str, ...] = ()
    lengths: dict[InputSignature, Mapping[Node, int]] = field(default_factory=dict)
    # compilations beside the runs, and signatures that need lengths
    pending: dict[InputSignature, Job[CompiledFunction | str]] = field(default_factory=dict)
    unknown: set[InputSignature] = field(default_factory=set)

    @property
    def is_compiled(self) -> bool:
        """True: calls run compiled functions."""
        return True

    def call_kernel(self, node: Node, fused: Kernel, runner: ClusterRunner, device: str) -> Kernel:
        """The kernel of a call, which compiles a function per signature."""
        return _XlaCall(self, node, fused, runner, device).run

    def difference(self, current: InputSignature, call: Node, constants: Sequence[str]) -> str:
        """A description of the difference between the last compiled signature and another one.

        `call` has the inputs, and `constants` are the texts of the constant ones.
        """
        last = self.last
        if last is None:
            return ""
        names = [argument.name for argument in self.function.arguments]
        origins = [_origin(name, x) for name, x in zip(names, call.inputs, strict=False)]
        differences = list[str]()
        for name, origin, old, new in zip(names, origins, last[0], current[0], strict=False):
            if old != new:
                differences.append(f"{name} is {_shape_text(new)}, was {_shape_text(old)}{origin}")
        constant = sorted(self.traceable.constant)
        for number, index in enumerate(constant):
            if last[1][number] == current[1][number] or last[0][index] != current[0][index]:
                continue
            before, after = self.last_constants[number], constants[number]
            values = f"is {after}, was {before}" if before and after else "has another value"
            differences.append(f"constant {names[index]} {values}{origins[index]}")
        return "; ".join(differences) or "variables are shared differently"


def _reason(error: Unsupported) -> str:
    return f"{error.node}: {error.message}" if error.node else error.message


def _origin(argument: str, tensor: Output) -> str:
    """The tensor that a call passes, in parentheses, unless it is named as the argument."""
    return "" if argument == tensor.node.name else f" ({tensor.name})"


def constant_text(value: Any) -> str:
    """The text of a small constant, else empty."""
    array = np.asarray(value)
    return str(array.tolist()) if array.size <= _MAX_CONSTANT_ELEMENTS else ""


def _shape_text(shape: Any) -> str:
    if len(shape) == len(("type", "shape")) and isinstance(shape[0], DType):
        return f"{shape[0]}{Shape(shape[1])}" if shape[1] is not None else "without a value"
    return str(Shape(shape))


class _XlaCall:
    """One cluster call through XLA, which compiles a function per signature."""

    def __init__(
        self, cluster: CompiledCluster, node: Node, fused: Kernel, owner: ClusterRunner, device: str
    ) -> None:
        self.cluster, self.node, self.fused, self.device = cluster, node, fused, device
        self.owner, self.lazy, self.auto_engine = owner, owner.lazy, owner.auto_engine
        self.body = cluster.traceable
        self.constant = sorted(self.body.constant)
        # the arguments whose values the host must know when they are on a GPU
        self.constant_slots = (
            set() if isinstance(self.body.transfer, HostTransfer) else self.body.constant
        )
        types = cluster.function.input_types
        handles = [index for index, dtype in enumerate(types) if dtype.kind == "resource"]
        # several handles may refer to one variable
        self.handles = handles if len(handles) > 1 else []
        # the constants of the last call, and their bytes in its signature; replaced as a pair
        self.last_constants: tuple[tuple[Any, ...], InputSignature] = (), ()

    def run(self, step: Any, *inputs: Any) -> Any:
        """Compute the outputs; a new signature of inputs compiles the function again."""
        cluster = self.cluster
        if self.constant_slots:
            inputs = tuple(
                self.body.transfer.host_value(value) if index in self.constant_slots else value
                for index, value in enumerate(inputs)
            )
        key = self.signature(inputs)
        body = self.body
        if body.has_loops and (limits := current_limits()).bounds_loops:
            body = body.with_limits()
            key = *key, len(guard_arguments(limits))
        try:
            compiled = cluster.compiled[key]
        except KeyError:
            with cluster.lock:
                try:
                    compiled = self.compile(step, key, inputs, body)
                except UnknownCapacity:
                    return self.measure(step, key, inputs)
        if compiled is None:
            return self.fused(step, *inputs)
        try:
            result = compiled.run(inputs, step)
        except DeferredCheckFailed:
            reason = "a list grows, a matrix has no finite result, or rounding decides an assertion"
        except RuntimeError as error:  # of XLA, such as exhausted memory; nothing is assigned
            if is_of_signal_handler(error):
                raise
            reason = str(error).partition("\n")[0]
        else:
            cluster.count_call(fused=False)
            return result
        result = self.fused(step, *inputs)  # reports an index or a limit
        self.reject(step, key, inputs, reason)
        return result

    def signature(self, inputs: Sequence[Any]) -> InputSignature:
        """The key of a compiled function: shapes, values of constants, types of variables."""
        shapes = tuple([_input_signature(value) for value in inputs])
        if self.handles:
            shapes += tuple(first_occurrences(inputs, self.handles))
        if not self.constant:
            return shapes, ()
        constants = tuple([inputs[index] for index in self.constant])
        last, contents = self.last_constants
        if len(constants) != len(last) or any(
            a is not b for a, b in zip(constants, last, strict=True)
        ):
            contents = tuple(map(content_key, constants))
            self.last_constants = constants, contents
        return shapes, contents

    def compile(
        self,
        step: Any,
        key: InputSignature,
        inputs: Sequence[Any],
        body: TraceableFunction | RemoteFunction,
    ) -> CompiledFunction | None:
        """Compile a new signature; return None if NumPy kernels run it."""
        cluster = self.cluster
        if key in cluster.compiled:  # by another run meanwhile
            return cluster.compiled[key]
        if cluster.stopped_compiling:
            return None
        if not self.owner.signatures.may_compile:
            self.owner.signatures.missed += 1
            return None
        if self.auto_engine and _is_small(cluster, inputs):
            cluster.small = True
            _store(cluster.compiled, key, None)
            return None
        if self.lazy and key not in cluster.seen:
            _store(cluster.seen, key, None)
            return None
        if self.owner.compiles_later:
            self.compile_later(key, inputs, body)
            return None
        compiled: CompiledFunction | None = None
        refused, start = "", time.perf_counter()
        if _changes_too_often(cluster):
            refused, cluster.stopped_compiling = "its signature changes too often", True
        else:
            try:
                compiled = body.compile(inputs, cluster.lengths.get(key), self.owner.cache)
            except CompilationFailed as error:
                refused = str(error)
            except UnknownCapacity:
                raise
            except ProcessLost as error:
                if not self.auto_engine:
                    raise
                refused = error.message
            except Unsupported as error:
                self.refuse(key, error)
                return None
        seconds = time.perf_counter() - start
        self.owner.signatures.compiled += 1
        compilation = self.record(key, inputs, compiled, seconds, refused)
        step.note(self.device, str(compilation), seconds)
        return compiled

    def refuse(self, key: InputSignature, error: Unsupported) -> None:
        """Run the cluster on NumPy kernels, since it cannot be traced."""
        self.cluster.refused, self.cluster.stopped_compiling = _reason(error), True
        _store(self.cluster.compiled, key, None)

    def compile_later(
        self, key: InputSignature, inputs: Sequence[Any], body: TraceableFunction | RemoteFunction
    ) -> None:
        """Start a compilation, whose function later runs call.

        Raises UnknownCapacity if an earlier one needs the lengths of lists.
        """
        cluster, signatures = self.cluster, self.owner.signatures
        if key in cluster.unknown and key not in cluster.lengths:
            raise UnknownCapacity("the lengths of lists are not known")
        pending = cluster.pending.get(key)
        if pending is None:
            if len(cluster.pending) >= _MAX_COMPILATIONS:
                cluster.stopped_compiling = True
                signatures.missed += 1
                return
            assert isinstance(body, RemoteFunction)
            pending = BACKGROUND.start(partial(self.complete, key, _snapshot(inputs), body))
            if not pending.is_done:
                cluster.pending[key] = pending
        signatures.pending = *signatures.pending, pending

    def complete(
        self, key: InputSignature, inputs: Sequence[Any], body: RemoteFunction
    ) -> CompiledFunction | str:
        """Compile in the thread beside the runs; a text is the reason why NumPy kernels run it.

        Raises ProcessLost.
        """
        cluster, start = self.cluster, time.perf_counter()
        compiled, refused = None, ""
        try:
            if cluster.stopped_compiling:
                return ""
            compiled = body.compile_later(inputs, cluster.lengths.get(key), self.owner.cache)
        except CompilationFailed as error:
            refused = str(error)
        except UnknownCapacity:
            cluster.unknown.add(key)
        except Unsupported as error:
            self.refuse(key, error)
            return cluster.refused
        finally:
            with cluster.lock:
                if compiled is not None or refused:
                    self.record(key, inputs, compiled, time.perf_counter() - start, refused)
                cluster.pending.pop(key, None)
        return compiled or refused

    def measure(self, step: Any, key: InputSignature, inputs: Sequence[Any]) -> Any:
        """Run on NumPy kernels, and store the lengths of lists, for which the next run compiles."""
        cluster = self.cluster
        cluster.growths.clear()
        result = self.fused(step, *inputs)
        _store(
            cluster.lengths,
            key,
            {node: growth.largest for node, growth in [*cluster.growths.items()]},
        )
        self.owner.signatures.compiled += 1
        return result

    def reject(self, step: Any, key: InputSignature, inputs: Sequence[Any], reason: str) -> None:
        """Run a signature on NumPy kernels from now on, since its compiled function fails."""
        self.owner.signatures.failed = reason
        with self.cluster.lock:
            compilation = self.record(key, inputs, None, 0.0, reason)
        step.note(self.device, str(compilation), 0.0)

    def record(
        self,
        key: InputSignature,
        inputs: Sequence[Any],
        compiled: CompiledFunction | None,
        seconds: float,
        refused: str,
    ) -> Compilation:
        """Store the result of a compilation; returns its description."""
        cluster = self.cluster
        constants = tuple([constant_text(inputs[index]) for index in self.constant])
        changed = cluster.difference(key, self.node, constants)
        compilation = Compilation(
            cluster.name,
            self.node.name,
            seconds,
            changed,
            refused,
            is_stored=compiled is not None and compiled.is_stored,
            local_reason="" if compiled is None else compiled.local_reason,
        )
        cluster.compilations.append(compilation)
        cluster.last, cluster.last_constants = key, constants
        _store(cluster.compiled, key, compiled)
        return compilation


def _snapshot(inputs: Sequence[Any]) -> list[Any]:
    """The inputs as they are now: arrays may change after the run, values of variables do not."""
    copies: dict[int, Any] = {}
    for value in inputs:
        if id(value) not in copies:
            is_variable = isinstance(value, Variable)
            copies[id(value)] = value.copy() if is_variable else np.array(value)
    return [copies[id(value)] for value in inputs]


def _store(entries: dict[InputSignature, Any], key: InputSignature, entry: Any) -> None:
    """Store the entry of a signature, and drop the oldest beyond the limit."""
    while len(entries) >= MAX_SIGNATURES:
        del entries[next(iter(entries))]
    entries[key] = entry


def _input_signature(value: Any) -> Any:
    """The part of a signature for one input; its dtype is fixed by the function."""
    if isinstance(value, Variable):
        return value.dtype, None if value.value is None else value.value.shape
    return value.shape


def _is_small(cluster: CompiledCluster, inputs: Sequence[Any]) -> bool:
    """True if the kernels finish before a compiled function would be called.

    A cluster with a loop is never small, since its trip count is unknown.
    """
    if any(function_calls(node.op).kind == "while" for node in cluster.line.order):
        return False
    largest = max((int(getattr(value, "size", _UNKNOWN_SIZE)) for value in inputs), default=0)
    return len(cluster.line.order) * (1 + largest / _CALL_COST_IN_ELEMENTS) < _CALL_COST_IN_KERNELS


def _changes_too_often(cluster: CompiledCluster) -> bool:
    count = len(cluster.compilations)
    return count >= _MAX_COMPILATIONS and cluster.calls < _MIN_RUNS_PER_COMPILATION * count
