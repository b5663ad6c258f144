"""A machine for generated kernels without a card: the same source, compiled as C++, on NumPy.

Its arrays are a class of their own, as a card's are, so that what is on the host can be told apart.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from cfgraph.runtime.fused.prelude import PRELUDE

COMPILER: Final = shutil.which("g++") or shutil.which("clang++")
WHY_NOT: Final = "no C++ compiler is here to compile kernels without a card"
_SHIM: Final = """\
#include <math.h>
#define __global__
#define __launch_bounds__(n)
struct cf_place { int x; };
static thread_local cf_place blockIdx, threadIdx, blockDim, gridDim;
"""
_FLAGS: Final = ("-O0", "-std=gnu++17", "-fPIC", "-shared", "-ffp-contract=off", "-w")
_HEAD = re.compile(r'extern "C" __global__ void __launch_bounds__\(\d+\) (\w+)\(\n(.*?)\) \{', re.S)


class Array(np.ndarray):
    """An array of the machine."""


class Kernels:
    """Kernels compiled together, in a folder of their own."""

    def __init__(self, folder: Path, kernels: Sequence[str]) -> None:
        text = "\n".join([_SHIM, PRELUDE, *kernels, *(_entry(kernel) for kernel in kernels)])
        name = hashlib.sha256(text.encode()).hexdigest()[:16]
        source, built = folder / f"{name}.cpp", folder / f"{name}.so"
        source.write_text(text)
        assert COMPILER is not None
        command = [COMPILER, *_FLAGS, str(source), "-o", str(built), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[:4000]
        self._library = ctypes.CDLL(str(built))

    def launch(self, name: str, blocks: int, threads: int, given: Sequence[Any]) -> None:
        """Run every thread of every block, one after the other."""
        held = [_bits(value) for value in given]
        pointers = (ctypes.c_void_p * len(held))(*(item.ctypes.data for item in held))
        self._library[f"run_{name}"](blocks, threads, pointers)


class Host:
    """The machine. Each source that it is asked for is compiled by itself."""

    array = Array

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sources: dict[str, Kernels] = {}
        self.launches = 0

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        return np.empty(shape, dtype).view(Array)

    def to_device(self, value: np.ndarray) -> Array:
        return np.array(value).view(Array)

    def function(self, source: str, name: str) -> Any:
        if source not in self.sources:
            self.sources[source] = Kernels(self.folder, [source.removeprefix(PRELUDE)])
        made = self.sources[source]

        def launch(blocks: int, threads: int, given: Sequence[Any]) -> None:
            self.launches += 1
            made.launch(name, blocks, threads, given)

        return launch


def _bits(value: Any) -> np.ndarray:
    """The bytes of an argument: of an array its address."""
    if isinstance(value, Array):
        return np.array(value.__array_interface__["data"][0], np.uint64)
    return np.asarray(value)


def _entry(kernel: str) -> str:
    """A function that takes the arguments of a launch as CUDA does: an array of pointers."""
    found = _HEAD.search(kernel)
    assert found is not None
    name, declared = found.groups()
    types = [part.rsplit(" ", 1)[0] for part in re.split(r",\s*", declared.strip())]
    given = ", ".join(f"*({_plain(kind)}*)a[{place}]" for place, kind in enumerate(types))
    return f"""
extern "C" void run_{name}(int blocks, int threads, void **a) {{
  gridDim.x = blocks, blockDim.x = threads;
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
    for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x) {name}({given});
}}"""


def _plain(declared: str) -> str:
    pointer = "__restrict__" in declared
    base = declared.replace("*__restrict__", "").replace("const ", "").strip()
    return f"{'const ' if 'const' in declared else ''}{base}{' *' if pointer else ''}"


class Batch(Host):
    """A machine that compiles all kernels it was asked for at once, when the first one runs.

    `roughness`: how much farther its functions may be from NumPy's than those of the C library.
    """

    roughness = 1

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        # kernels, under names of their own, by their sources
        self.texts: dict[str, str] = {}
        self._compiled: Any = None

    def to_host(self, value: Any) -> np.ndarray:
        return np.asarray(value)

    def compiled(self, kernels: list[str]) -> Any:
        return Kernels(self.folder, kernels)

    def function(self, source: str, name: str) -> Any:
        if source not in self.texts:
            kernel = source.removeprefix(PRELUDE)
            own = f"{name}_{len(self.texts)}"
            self.texts[source] = kernel.replace(f" {name}(", f" {own}(")
        own = f"{name}_{list(self.texts).index(source)}"

        def launch(blocks: int, threads: int, given: Sequence[Any]) -> None:
            if self._compiled is None:
                self._compiled = self.compiled(list(self.texts.values()))
            self._compiled.launch(own, blocks, threads, given)

        return launch
