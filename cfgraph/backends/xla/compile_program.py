"""The program of the child process that traces, compiles, and times functions.

A request has the graph of a function and the inputs of a call; the answer has the executable and
its layout as plain data.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from time import perf_counter
from typing import Any, Final

import numpy as np

from cfgraph.backends.xla.compile import CompilationFailed, FunctionTrace, TraceableFunction
from cfgraph.backends.xla.jax_library import load_jax, xla_context
from cfgraph.backends.xla.loaded_executable import callback_count, custom_calls, transferred
from cfgraph.backends.xla.tensor_lists import UnknownCapacity
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import DType
from cfgraph.ir.files import loads
from cfgraph.ir.function_graph import FunctionInstances
from cfgraph.ir.functions import Function
from cfgraph.ir.shapes import Shape
from cfgraph.limits import limited
from cfgraph.ops.families.variables import Variable
from cfgraph.ops.opdef.function_bodies import reachable_nodes
from cfgraph.ops.opdef.op import lookup
from cfgraph.processes.child_program import serve
from cfgraph.processes.messages import ProcessMessage
from cfgraph.processes.shared_arrays import received_arrays

# calls that are timed, and the seconds after which no other one starts
_TIMED_CALLS: Final = 5
_TIMED_SECONDS: Final = 1.0
# until a deadline that does not pass here
_FAR_SECONDS: Final = 1e9


def compile_function(request: ProcessMessage, descriptors: list[int]) -> ProcessMessage:
    """Compile the function of a request; run it if the request has the values of its inputs."""
    header, arrays = request.header, received_arrays(request, descriptors)
    if lacking := _lacking_op(header["foreign"]):
        return ProcessMessage({"lacking": lacking})
    # whose process looks at the clock as it runs the function
    far = _FAR_SECONDS if header["has_deadline"] else None
    with xla_context(), limited(timeout=far):
        try:
            return _RequestedCompilation(header, arrays).answer()
        except UnknownCapacity:
            return ProcessMessage({"needs_lengths": True})
        except CompilationFailed as error:
            return ProcessMessage({"failed": str(error)})


def _lacking_op(foreign: Mapping[str, str]) -> str:
    """The first op of another package that this process cannot import by its module, or empty."""
    for name, module in foreign.items():
        try:
            import_module(module)
        except (Exception, SystemExit):  # of code that is not ours
            return name
        if lookup(name) is None:
            return name
    return ""


class _RequestedCompilation:
    """The compilation of one request."""

    def __init__(self, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        self.header = header
        self.weights = {(x[0], x[1]): arrays[x[2]] for x in header["weights"]}
        graph = loads(arrays["graph"].tobytes())
        for name, function in graph.functions.items():
            graph.functions[name] = _with_weights(function, self.weights)
        self.instances = FunctionInstances(graph.functions)
        call = graph[header["call"]].attr("function")
        self.function = self.instances.get(call.name, call.attrs)
        self.inputs = [_input(item, arrays, n) for n, item in enumerate(header["inputs"])]
        for index, first in header["same"]:
            self.inputs[index] = self.inputs[first]
        self.types = list[Any]()

    def answer(self) -> ProcessMessage:
        """Trace, compile, and time the function."""
        start = perf_counter()
        try:
            trace, lowered = self.traced(passes_weights=True)
        except CompilationFailed:
            if not self.weights:
                raise
            # a kernel may need the elements of a large constant
            trace, lowered = self.traced(passes_weights=False)
        with _explained():
            compiled = compile_lowered(lowered, self.header["options"])
            executable = compiled.runtime_executable()
            data = np.frombuffer(executable.serialize(), np.uint8)
        seconds = perf_counter() - start
        weights = [[function, node.name] for node, function in trace.weights.items()]
        arguments = trace.layout.arguments(self.inputs)
        layout, known = trace.layout.to_json()
        times = list[float]()
        if self.header["is_timed"]:
            times = timed_calls(compiled, [*arguments, *(self.weights[x, y] for x, y in weights)])
        text = executable.hlo_modules()[0].to_string()
        header = {
            "layout": layout,
            "weights": weights,
            "arguments": [_type_to_json(value) for value in arguments],
            "results": [_type_to_json(value) for value in self.types],
            "calls": custom_calls(text),
            "callbacks": callback_count(text),
            "seconds": seconds,
            "least": min(times, default=None),
        }
        return ProcessMessage(header, {"executable": data, **known})

    def traced(self, *, passes_weights: bool) -> tuple[FunctionTrace, Any]:
        """The trace of the function, and its form for XLA."""
        constants = self.header["constants"]
        body = TraceableFunction(
            self.function,
            constants,
            self.instances,
            guarded=self.header["guarded"],
            passes_weights=passes_weights,
        )
        nodes = [*reachable_nodes(self.function, self.instances)]
        lengths = self.header["lengths"]
        known = None if lengths is None else {nodes[index]: size for index, size in lengths}
        with body.explained_failures():
            trace = FunctionTrace(body, self.inputs, known)
            weights = [self.weights[name, node.name] for node, name in body.weights.items()]
            arguments = [*trace.layout.arguments(self.inputs), *weights]
            return trace, trace_function(lambda *traced: self.results(trace, traced), arguments)

    def results(self, trace: FunctionTrace, traced: Sequence[Any]) -> list[Any]:
        """The results of a trace, as they are transferred."""
        jax = load_jax()
        self.types = trace.run(*traced)
        return [
            jax.lax.bitcast_convert_type(value, dtype)
            if (dtype := transferred(value.dtype)) != value.dtype
            else value
            for value in self.types
        ]


def trace_function(function: Any, arguments: Sequence[Any]) -> Any:
    """Trace a function of arrays; an unused argument stays one."""
    return load_jax().jit(function, keep_unused=True).lower(*arguments)


def compile_lowered(lowered: Any, options: Mapping[str, Any]) -> Any:
    """Compile a traced function with options of XLA."""
    return lowered.compile(dict(options) or None)


def timed_calls(compiled: Any, arguments: Sequence[Any]) -> list[float]:
    """The seconds that calls of a compiled function take, after a first one."""
    times = list[float]()
    compiled(*arguments)
    while len(times) < _TIMED_CALLS and sum(times) < _TIMED_SECONDS:
        start = perf_counter()
        for value in compiled(*arguments):
            np.asarray(value)
        times.append(perf_counter() - start)
    return times


@contextmanager
def _explained() -> Iterator[None]:
    """Context for XLA. Raises CompilationFailed for its errors."""
    try:
        yield
    except Exception as error:
        text = str(error).partition("\n")[0]
        raise CompilationFailed(f"{type(error).__name__}: {text}") from error


def _type_to_json(value: Any) -> list[Any]:
    return [[*value.shape], value.dtype.name]


def _with_weights(function: Function, weights: Mapping[tuple[str, str], Any]) -> Function:
    """A function whose large constants have their values, which come apart from the graph."""
    definition = function.definition
    nodes = tuple(
        replace(node, attrs={**node.attrs, "value": TensorValue(weights[function.name, node.name])})
        if (function.name, node.name) in weights
        else node
        for node in definition.nodes
    )
    return Function(function.name, replace(definition, nodes=nodes))


def _input(item: Mapping[str, Any], arrays: Mapping[str, Any], index: int) -> Any:
    """An input of the call: a value, a variable with one, or the type of an array."""
    value = arrays.get(f"input {index}")
    if value is None and item["shape"] is not None:
        value = load_jax().ShapeDtypeStruct(tuple(item["shape"]), np.dtype(item["dtype"]))
    elif value is not None and not value.ndim:
        value = value[()]
    if "variable" not in item:
        return value
    declared = item["variable"]
    dtype = DType.from_number(declared["dtype"])
    shape = Shape(declared["shape"] if declared["shape"] is None else tuple(declared["shape"]))
    return Variable(dtype, shape, declared["name"], resource=declared["resource"], value=value)


def import_jax() -> None:
    """Import jax, which takes most of the time of a start."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    with xla_context():
        pass


def main(connection: int) -> None:
    """Import jax, and answer requests."""
    import_jax()
    serve(socket.socket(fileno=connection), {"compile": compile_function})
