"""The compiler of kernels by itself: it needs no card, only its library."""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

from cfgraph.runtime.fused.cuda import OPTIONS

WHY_NOT: Final = "NVRTC is not here: nvidia-cuda-nvrtc, which comes with the extra `gpu`"


@cache
def library() -> Any:
    """NVRTC, or None where it is not installed."""
    for path in _candidates():
        try:
            return ctypes.CDLL(str(path))
        except OSError:
            continue
    return None


def _candidates() -> Iterator[Path | str]:
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec else ():
        yield from sorted(Path(folder).glob("*/lib/libnvrtc.so.*"))
    yield from ("libnvrtc.so.13", "libnvrtc.so.12")


def compiled(source: str, architecture: str) -> bytes:
    """Machine code for `sm_90` and its like, PTX for `compute_90`; AssertionError says why not.

    The options are those that a run gives to CuPy, and what CuPy adds to them.
    """
    real = architecture.startswith("sm")
    options = (*OPTIONS, f"-arch={architecture}", "--device-as-default-execution-space")
    nvrtc, program = library(), ctypes.c_void_p()
    made = nvrtc.nvrtcCreateProgram(
        ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None
    )
    assert made == 0
    given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    failed = nvrtc.nvrtcCompileProgram(program, len(options), given)
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    assert not failed, log.value.decode()[:4000]
    get = "CUBIN" if real else "PTX"
    nvrtc[f"nvrtcGet{get}Size"](program, ctypes.byref(size))
    code = ctypes.create_string_buffer(size.value)
    nvrtc[f"nvrtcGet{get}"](program, code)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return code.raw
