"""Executables that another process compiled, loaded and called by jaxlib without jax.

jaxlib needs no more than types and a device to transfer arrays. Its modules are internal: a version
that lacks what is used here raises NotLoadable, and so does a module with a handler that is not
known by name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np

_TARGET: Final = re.compile(r'custom_call_target="([^"]*)"')
_LAPACK: Final = "lapack_"
# a call from compiled code into Python, of a function by its index
_CALLBACK: Final = "xla_ffi_python_cpu_callback"
_CALLBACK_INDEX: Final = re.compile(rf'"{_CALLBACK}".*index = (\d+)')
_OTHER_CALLBACK: Final = "callback"
# two or four elements in a byte, in the arrays of XLA but not in those of NumPy
_PACKED: Final = frozenset({"int2", "uint2", "int4", "uint4", "float4_e2m1fn"})


class NotLoadable(Exception):
    """An executable that this process cannot load, for the reason in the message."""


def custom_calls(text: str) -> list[str]:
    """The names of the handlers that the text of a module needs."""
    return sorted({*_TARGET.findall(text)})


def callback_count(text: str) -> int:
    """The number of functions of Python that the text of a module needs."""
    return 1 + max(map(int, _CALLBACK_INDEX.findall(text)), default=-1)


@cache
def machine() -> tuple[str, ...]:
    """The versions of jax and jaxlib, and the instructions of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = [f"model name {os.uname().machine} {os.uname().nodename}"]
    names = ("model name", "flags", "Features")
    return (
        version("jax"),
        version("jaxlib"),
        *sorted({line for line in lines if line.startswith(names)}),
    )


@dataclass(frozen=True, slots=True)
class ArrayType:
    """A shape and dtype, as jaxlib reads the abstract value of an array."""

    shape: tuple[int, ...]
    dtype: Any
    weak_type: ClassVar[bool] = False


class LoadedExecutable:
    """A function on NumPy arrays; `weights` are its last arguments in each call.

    Weights are not copied if they are aligned. `types` are those of the arguments before them and
    of the results; a result of a dtype that buffers lack is transferred as integers. Compiled code
    calls `callbacks`.

    Raises NotLoadable.
    """

    def __init__(
        self,
        data: bytes,
        calls: Sequence[str],
        arguments: Sequence[ArrayType],
        results: Sequence[ArrayType],
        weights: Sequence[Any],
        callbacks: Sequence[Callable[..., Any]],
    ) -> None:
        if packed := _PACKED.intersection(x.dtype.name for x in (*arguments, *results, *weights)):
            raise NotLoadable(f"jax converts arrays of {', '.join(sorted(packed))}")
        try:
            self._jaxlib = _client()
            for name in calls:
                _register(name)
            self._executable = self._jaxlib.load(data, callbacks)
            self._handlers = [
                self._jaxlib.result_handler(ArrayType(type_.shape, transferred(type_.dtype)))
                for type_ in results
            ]
            self._weights = [self.place(value) for value in weights]
        except NotLoadable:
            raise
        except Exception as error:  # any of them means that jaxlib is another one
            raise NotLoadable(
                f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            ) from error
        self._arguments, self._results = arguments, results

    def place(self, array: Any) -> Any:
        """The argument of an aligned array, without a copy."""
        return self._jaxlib.put(ArrayType(array.shape, array.dtype), array)

    def __call__(self, *arguments: Any) -> list[Any]:
        put = self._jaxlib.put
        buffers = [
            put(type_, value) if isinstance(value, np.ndarray | np.generic) else value
            for type_, value in zip(self._arguments, arguments, strict=True)
        ]
        outputs = self._executable.execute_sharded([*buffers, *self._weights])
        computed = outputs.consume_with_handlers(self._handlers)
        return [
            array if array.dtype == type_.dtype else array.view(type_.dtype)
            for array, type_ in zip(map(np.asarray, computed), self._results, strict=True)
        ]


def transferred(dtype: Any) -> Any:
    """The dtype of results of a dtype: itself, or integers for one that is not NumPy's own."""
    is_own = dtype.isbuiltin == 1 or dtype.name in _PACKED
    return dtype if is_own else np.dtype(f"uint{8 * dtype.itemsize}")


class _Jaxlib:
    """The client of jaxlib on the CPU."""

    def __init__(self) -> None:
        # jaxlib reports at level 0 that it starts
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
        self._module: Any = import_module("jaxlib.xla_client")
        self._client = self._module.make_cpu_client(asynchronous=False)
        self._devices = [self._client.local_devices()[0]]
        replicated = self._module.HloSharding.replicate()

        class Sharding(self._module.SingleDeviceSharding):  # type: ignore[misc,name-defined]
            """The sharding of an array on one device."""

            memory_kind = None

            def _to_xla_hlo_sharding(self, _: int) -> Any:
                return replicated

        self._sharding = Sharding(self._devices[0])

    def load(self, data: bytes, callbacks: Sequence[Callable[..., Any]]) -> Any:
        """The executable of its serialized form."""
        devices = self._module.DeviceList((self._devices[0],))
        options = self._module.CompileOptions()
        return self._client.deserialize_executable(data, devices, options, [*callbacks])

    def put(self, type_: ArrayType, value: Any) -> Any:
        """An array of jaxlib over the same memory, if that is aligned."""
        return self._module.batched_device_put(
            type_, self._sharding, [value], self._devices, enable_x64=True
        )

    def result_handler(self, type_: Any) -> Any:
        """The function that makes arrays of results."""
        return self._module.array_result_handler(type_, self._sharding, True, True)


_client = cache(_Jaxlib)


@cache
def _register(name: str) -> None:
    """Register the handler of a name. Raises NotLoadable for another call into Python."""
    if _OTHER_CALLBACK in name and name != _CALLBACK:
        raise NotLoadable(f"it calls {name}")
    if name.startswith(_LAPACK):
        _register_lapack()


@cache
def _register_lapack() -> None:
    """Register the handlers of LAPACK, which are those of SciPy."""
    lapack: Any = import_module("jaxlib.lapack")
    register = import_module("jaxlib.xla_client").register_custom_call_target
    lapack._lapack.initialize()
    for platform, targets in lapack.registrations().items():
        for name, value, api_version in targets:
            register(name, value, platform=platform, api_version=api_version)
