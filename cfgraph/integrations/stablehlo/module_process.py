"""StableHLO modules for runs, tables, and pages: a child process reads and runs them.

MLIR's reader and XLA are not made for hostile bytes: a module may end their process, or keep it for
ever. Here that is an error with the code CFG715.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from math import prod
from typing import Any, Final

import numpy as np

from cfgraph.backends.xla.jax_library import has_jax
from cfgraph.errors import Unsupported, install_hint
from cfgraph.integrations.stablehlo.module_bodies import ModuleBody, bodies_from_json
from cfgraph.limits import current_limits, reserve_array
from cfgraph.ops.opdef.op import OpError
from cfgraph.ops.opdef.stablehlo_modules import ModuleCall
from cfgraph.processes.child_process import ChildPool, ChildProcess, ChildProgram
from cfgraph.processes.messages import ProcessMessage
from cfgraph.processes.shared_arrays import (
    MIN_SHARED_BYTES,
    SharedArray,
    shared_memory,
)

_PROGRAM: Final = ChildProgram(
    module="cfgraph.integrations.stablehlo.module_program",
    task="reads and runs StableHLO modules",
    code="CFG715",
    hint="the module may be damaged or hostile; `explain CFG715` has more",
)
# to read and check a module that ends by itself: a least time, and one per byte
_READING_SECONDS: Final = 2.0
_SECONDS_PER_BYTE: Final = 10 / (1 << 20)
# compiled modules that are kept, each with the shapes of its inputs
_KEPT: Final = 64
# a shape, and the name of a type
ArrayType = tuple[tuple[int, ...], str]


@lru_cache(maxsize=16)
def module_bodies(data: bytes, prefix: str = "") -> tuple[ModuleBody, ...]:
    """The functions and regions of a module, `main` first, each before its regions.

    Their names start with `prefix`.

    Raises Unsupported without jax, OpError for data that are no module.
    """
    with _leased() as process:
        return process.bodies(data, prefix)


def module_text(data: bytes) -> str:
    """The text of a module, with large constants elided.

    Raises Unsupported without jax, OpError for data that are no module.
    """
    with _leased() as process:
        return process.text(data)


def run_module(call: ModuleCall, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Execute a module on NumPy arrays.

    Raises Unsupported without jax, or for a module that needs what cfgraph lacks, OpError for
    inputs that do not fit.
    """
    call.require_supported()
    index = call.platform_index
    platform = index if len(call.platforms) > 1 else None
    with _leased() as process:
        return process.run(call, platform, list(map(np.asarray, inputs)))


class ModuleProcess(ChildProcess):
    """A child process, and the modules that it has compiled."""

    def __init__(self) -> None:
        super().__init__(_PROGRAM)
        self._compiled: OrderedDict[tuple[ModuleCall, tuple[ArrayType, ...]], _CompiledModule] = (
            OrderedDict()
        )
        self._forgotten: list[int] = []
        self._numbers = count()

    def bodies(self, data: bytes, prefix: str) -> tuple[ModuleBody, ...]:
        """Read the functions and regions of a module."""
        reply = self._read("bodies", data, prefix=prefix)
        with self.checked_answer():
            return bodies_from_json(reply.header["bodies"])

    def text(self, data: bytes) -> str:
        """Read a module, and print it."""
        return str(self._read("text", data).header.get("text"))

    def run(self, call: ModuleCall, platform: int | None, inputs: list[Any]) -> tuple[Any, ...]:
        """Run a module, which is compiled for the shapes and types of its inputs once."""
        signature = tuple((value.shape, _type_name(value, n)) for n, value in enumerate(inputs))
        compiled = self._compiled.pop((call, signature), None)
        if compiled is None:
            compiled = self._compile(call, platform, signature)
        try:
            _reserve(compiled.types)
            results = self._run(compiled, inputs)
        except BaseException:  # what the process has in shared memory is unknown then
            self._forgotten.append(compiled.number)
            raise
        self._compiled[call, signature] = compiled
        return results

    def _run(self, compiled: _CompiledModule, inputs: list[Any]) -> tuple[Any, ...]:
        changed = [n for n, shared in compiled.arguments.items() if shared.store(inputs[n])]
        inline = {str(n): value for n, value in enumerate(inputs) if n not in compiled.arguments}
        reply = self._request("run", inline, number=compiled.number, changed=changed)
        with self.checked_answer():
            return tuple(
                compiled.results[n].array.copy()
                if n in compiled.results
                else _checked_array(reply.arrays[str(n)], shape, name)
                for n, (shape, name) in enumerate(compiled.types)
            )

    def _compile(
        self, call: ModuleCall, platform: int | None, signature: tuple[ArrayType, ...]
    ) -> _CompiledModule:
        number = next(self._numbers)
        names = [np.dtype(item).name for item in call.output_types]
        reply = self._read(
            "check",
            call.data,
            number=number,
            platform=platform,
            checks_shapes="shape_assertions" not in call.disabled_checks,
            signature=signature,
            output_types=names,
        )
        with self.checked_answer():
            shapes = [tuple(map(int, shape)) for shape in reply.header["results"]]
            types: list[ArrayType] = list(zip(shapes, names, strict=True))
        _reserve(types)
        arguments, results = _large(signature), _large(types)
        shared = [*(signature[n] for n in arguments), *(types[n] for n in results)]
        self._forget(sum(map(_byte_size, shared)))
        descriptors, arrays = shared_memory(shared)
        if not descriptors:  # the values are sent with messages
            arguments, results, shared = [], [], []
        try:
            self._request(
                "compile",
                descriptors=descriptors,
                number=number,
                forgotten=self._forgotten,
                shared_arguments=arguments,
                shared_results=results,
                shared_types=shared,
            )
        finally:
            for item in descriptors:
                os.close(item)
        self._forgotten = []
        return _CompiledModule(
            number,
            dict(zip(arguments, arrays, strict=False)),
            dict(zip(results, arrays[len(arguments) :], strict=True)),
            types,
        )

    def _forget(self, size: int) -> None:
        """Forget the modules that were not run for longest, beyond the limits on all."""
        while self._compiled:
            used = sum(item.shared_bytes for item in self._compiled.values())
            if len(self._compiled) < _KEPT and used + size <= current_limits().max_bytes:
                return
            _, oldest = self._compiled.popitem(last=False)
            self._forgotten.append(oldest.number)

    def _read(self, kind: str, data: bytes, **fields: Any) -> ProcessMessage:
        """Send a module that is read and checked, which has a time limit of its own."""
        seconds = _READING_SECONDS + len(data) * _SECONDS_PER_BYTE
        arrays = {"module": np.frombuffer(data, np.uint8)}
        return self._request(kind, arrays, seconds=seconds, **fields)

    def _request(
        self,
        kind: str,
        arrays: dict[str, Any] | None = None,
        *,
        descriptors: Sequence[int] = (),
        seconds: float = float("inf"),
        **fields: Any,
    ) -> ProcessMessage:
        header = {"kind": kind, "max_bytes": current_limits().max_bytes, **fields}
        header["descriptors"] = len(descriptors)
        return self.request(ProcessMessage(header, arrays or {}), descriptors, seconds)


@dataclass(frozen=True, eq=False, slots=True)
class _CompiledModule:
    """A module in the child process, by number, and the memory of its large values."""

    number: int
    arguments: dict[int, SharedArray]
    results: dict[int, SharedArray]
    types: list[ArrayType]

    @property
    def shared_bytes(self) -> int:
        """The bytes of its values in shared memory."""
        return sum(item.array.nbytes for item in (*self.arguments.values(), *self.results.values()))


_POOL: Final = ChildPool(ModuleProcess)


def _leased() -> AbstractContextManager[ModuleProcess]:
    if not has_jax():
        raise Unsupported("jax is not installed", hint=install_hint("xla"), code="CFG710")
    return _POOL.leased()


def _type_name(value: Any, number: int) -> str:
    """The name of the type of an input. Raises OpError for one that has no numbers."""
    if value.dtype.hasobject:
        raise OpError(f"input {number} of the module is not an array of numbers")
    return str(value.dtype.name)


def _large(types: Sequence[ArrayType]) -> list[int]:
    """The numbers of the values that are large."""
    return [n for n, item in enumerate(types) if _byte_size(item) >= MIN_SHARED_BYTES]


def _byte_size(item: ArrayType) -> int:
    shape, name = item
    return prod(shape) * np.dtype(name).itemsize


def _reserve(types: Sequence[ArrayType]) -> None:
    """Raise ExecutionError for a result beyond the memory limit."""
    for shape, name in types:
        reserve_array(shape, np.dtype(name).itemsize, "a result of the module")


def _checked_array(array: Any, shape: tuple[int, ...], name: str) -> Any:
    """A result. Raises TypeError for one of another type."""
    if (array.shape, array.dtype) != (shape, np.dtype(name)):
        raise TypeError(f"a result of type {array.dtype.name}{list(array.shape)}")
    return array
