"""The program of the child process that reads, checks, compiles, and runs StableHLO modules."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final

import numpy as np

from cfgraph.backends.xla.jax_library import load_jax, xla_context
from cfgraph.errors import CfgraphError
from cfgraph.integrations.stablehlo.compiler import (
    CheckedCall,
    StaticModule,
    compiled,
    static_module,
)
from cfgraph.integrations.stablehlo.module_bodies import bodies_to_json
from cfgraph.integrations.stablehlo.module_reader import read_bodies, read_text, reason
from cfgraph.ops.opdef.op import OpError
from cfgraph.processes.child_program import Handler, serve
from cfgraph.processes.messages import ProcessMessage
from cfgraph.processes.shared_arrays import mapped_arrays

_NO_MODULE: Final = "the module cannot be read"


@dataclass(slots=True)
class _Executable:
    """A compiled module, its arguments (those in shared memory stay), and its shared results."""

    call: Callable[..., Sequence[Any]]
    shared: Mapping[int, Any]
    shared_results: Mapping[int, Any]
    placed: dict[int, Any]


class ModuleProgram:
    """The modules of one process, by number."""

    def __init__(self) -> None:
        self._checked: dict[int, StaticModule] = {}
        self._executables: dict[int, _Executable] = {}

    def handlers(self) -> Mapping[str, Handler]:
        """The functions that answer each kind of request."""
        return {
            "bodies": _reading(self.bodies),
            "text": _reading(self.text),
            "check": _reading(self.check),
            "compile": self.compile,
            "run": self.run,
        }

    def bodies(self, request: ProcessMessage, _: list[int]) -> ProcessMessage:
        """Read the functions and regions of a module."""
        bodies = read_bodies(_module(request), request.header["prefix"])
        return ProcessMessage({"bodies": bodies_to_json(bodies)})

    def text(self, request: ProcessMessage, _: list[int]) -> ProcessMessage:
        """Read a module, and print it."""
        return ProcessMessage({"text": read_text(_module(request))})

    def check(self, request: ProcessMessage, _: list[int]) -> ProcessMessage:
        """Read and check the module of a call, for the shapes and types of its inputs."""
        header = request.header
        call = CheckedCall(
            _module(request),
            header["platform"],
            header["checks_shapes"],
            tuple((tuple(shape), np.dtype(name)) for shape, name in header["signature"]),
            tuple(np.dtype(name) for name in header["output_types"]),
        )
        checked = static_module(call)
        self._checked = {header["number"]: checked}
        return ProcessMessage({"results": [shape for shape, _ in checked.results]})

    def compile(self, request: ProcessMessage, descriptors: list[int]) -> ProcessMessage:
        """Compile the module that was checked last; map the memory of its large values."""
        header = request.header
        for number in header["forgotten"]:
            self._executables.pop(number, None)
        checked = self._checked.pop(header["number"])
        arrays = []
        for descriptor in descriptors:
            arrays += mapped_arrays(descriptor, header["shared_types"])
            os.close(descriptor)
        shared = dict(zip(header["shared_arguments"], arrays, strict=False))
        results = dict(zip(header["shared_results"], arrays[len(shared) :], strict=True))
        call = compiled(checked)
        self._executables[header["number"]] = _Executable(call, shared, results, {})
        return ProcessMessage({})

    def run(self, request: ProcessMessage, _: list[int]) -> ProcessMessage:
        """Run a compiled module on the arguments of a request, and on those in shared memory."""
        executable = self._executables[request.header["number"]]
        arguments = {int(name): value for name, value in request.arrays.items()}
        try:
            results = self._run(executable, arguments, request.header["changed"])
        except Exception as error:
            raise OpError(f"XLA: {reason(error)}") from None
        inline = {}
        for number, value in enumerate(results):
            if number in executable.shared_results:
                np.copyto(executable.shared_results[number], value)
            else:
                inline[str(number)] = value
        return ProcessMessage({}, inline)

    def _run(
        self, executable: _Executable, arguments: dict[int, Any], changed: Sequence[int]
    ) -> Sequence[Any]:
        with xla_context():
            for number in changed:
                executable.placed[number] = load_jax().device_put(executable.shared[number])
            values = arguments | executable.placed
            ordered = [values[number] for number in range(len(values))]
            return [np.asarray(value) for value in executable.call(*ordered)]


def _module(request: ProcessMessage) -> bytes:
    """The bytes of the module of a request."""
    data: bytes = request.arrays["module"].tobytes()
    return data


def _reading(handler: Handler) -> Handler:
    """A handler that reports the exceptions of MLIR's bindings as errors of the module."""

    @wraps(handler)
    def reported(request: ProcessMessage, descriptors: list[int]) -> ProcessMessage:
        try:
            return handler(request, descriptors)
        except (CfgraphError, MemoryError):
            raise
        except Exception as error:
            raise OpError(f"{_NO_MODULE}: {type(error).__name__}: {error}") from error

    return reported


def main(connection: int) -> None:
    """Import jax, which takes most of the time of a start, and answer requests."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    with xla_context():
        pass
    serve(socket.socket(fileno=connection), ModuleProgram().handlers())
