"""Products of matrices in a loop, by MKL if it is installed: it copies a weight only once.

OpenBLAS copies the right matrix into its own order for each product, which takes as long as
multiplying few rows by it. MKL multiplies by a copy that is made before. Sums differ from those of
OpenBLAS in the order of additions only.

All large products of a loop are computed so: the threads of two libraries wait busily for work, and
hinder each other.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from cfgraph.ops.kernels.matrix_products import multiply

# multiplications of a product below which MKL, or a second thread, saves nothing
_MIN_MULTIPLICATIONS: Final = 1 << 20
_MIN_OF_THREADS: Final = 1 << 23
_MIN_SIDE: Final = 16
# a recurrent layer has up to four, and copying one again takes as long as a product
_MAX_COPIES: Final = 16
_ALIGNMENT: Final = 64
# constants of CBLAS and MKL
_ROW_MAJOR, _BY_ROWS, _BY_COLUMNS, _PACKED, _RIGHT_MATRIX = 101, 111, 112, 151, 162
_INT32_SIZES: Final = 0

# by the memory of the right matrix, and the rows of the left one. The end of a run frees them: one
# that another run still needs is made again
packed_copies: dict[tuple[Any, ...], _PackedMatrix] = {}


def multiply_in_loop(left: Any, right: Any, *, repeats: bool = False) -> Any:
    """The product of two matrices; `repeats` if other iterations multiply by the same right one."""
    packed = _packed(left, right, repeats=repeats)
    return multiply(left, right) if packed is None else packed.product(left)


def add_product(total: Any, left: Any, right: Any, *, overwrites: bool) -> Any:
    """The sum of a matrix and a product in a loop; may overwrite `total` if `overwrites`."""
    packed = _packed(left, right, repeats=True)
    if packed is not None:
        return packed.product(left, total if overwrites else total.copy())
    result = multiply(left, right)
    return np.add(result, total, result)


def _packed(left: Any, right: Any, *, repeats: bool) -> _PackedMatrix | None:
    """The right matrix in the order of MKL; None if NumPy computes the product."""
    if left.size * right.shape[1] < _MIN_MULTIPLICATIONS or not _can_be_packed(left, right):
        return None
    library = packing_library()
    if library is None or not repeats:
        return None if library is None else _PackedMatrix(library, right, len(left))
    key = right.ctypes.data, right.shape, right.strides, len(left)
    packed = packed_copies.get(key)
    if packed is None:
        if len(packed_copies) >= _MAX_COPIES:
            packed_copies.clear()
        packed = packed_copies[key] = _PackedMatrix(library, right, len(left))
    return packed


def _can_be_packed(left: Any, right: Any) -> bool:
    return (
        left.__class__ is right.__class__ is np.ndarray
        and left.dtype == right.dtype
        and left.dtype.char in "fd"
        and len(left) > 1
        and min(right.shape) >= _MIN_SIDE
    )


class PackingLibrary:
    """MKL, with as many threads as the BLAS of NumPy."""

    def __init__(self, mkl: ctypes.CDLL, numpy_threads: Callable[[], int]) -> None:
        mkl.MKL_Set_Interface_Layer(_INT32_SIZES)
        mkl.MKL_Set_Dynamic(0)  # some sums depend on the number of threads
        self.numpy_threads = numpy_threads
        self.set_threads = mkl.MKL_Set_Num_Threads_Local
        integer: Any = ctypes.c_int
        address: Any = ctypes.c_void_p
        # by the character of a dtype
        self.routines: dict[str, tuple[Any, Any, Any]] = {}
        for char, prefix, real in (("f", "s", ctypes.c_float), ("d", "d", ctypes.c_double)):
            names = (f"cblas_{prefix}gemm_{name}" for name in ("pack_get_size", "pack", "compute"))
            size, pack, compute = (mkl[name] for name in names)
            size.restype, pack.restype, compute.restype = ctypes.c_size_t, None, None
            size.argtypes = [integer] * 4
            pack.argtypes = [*[integer] * 6, real, address, integer, address]
            factors = [address, integer] * 2
            compute.argtypes = [*[integer] * 6, *factors, real, address, integer]
            self.routines[char] = size, pack, compute


class _PackedMatrix:
    """A copy of a right matrix in the order of MKL, for left ones with a number of rows.

    It refers to the matrix, so that no kernel reuses its memory.
    """

    def __init__(self, library: PackingLibrary, right: Any, rows: int) -> None:
        self.right, self.library = right, library
        inner, columns = right.shape
        is_small = rows * right.size < _MIN_OF_THREADS
        self._threads: Callable[[], int] = (lambda: 1) if is_small else library.numpy_threads
        size, pack, self._compute = library.routines[right.dtype.char]
        sizes = rows, columns, inner
        self._buffer = np.empty(size(_RIGHT_MATRIX, *sizes) + _ALIGNMENT, np.uint8)
        self._address = -(-self._buffer.ctypes.data // _ALIGNMENT) * _ALIGNMENT
        right, order, stride = _stored(right)
        source = 1.0, right.ctypes.data, stride
        self._call(pack, _ROW_MAJOR, _RIGHT_MATRIX, order, *sizes, *source, self._address)

    def product(self, left: Any, total: Any = None) -> Any:
        """The product of a matrix and this one, added to `total`, which has its shape and rows."""
        left, order, stride = _stored(left)
        rows, (inner, columns) = len(left), self.right.shape
        result = np.empty((rows, columns), self.right.dtype) if total is None else total
        factors = left.ctypes.data, stride, self._address, columns
        sizes = rows, columns, inner
        out = float(total is not None), result.ctypes.data, columns
        self._call(self._compute, _ROW_MAJOR, order, _PACKED, *sizes, *factors, *out)
        return result

    def _call(self, routine: Any, *arguments: Any) -> None:
        before = self.library.set_threads(self._threads())
        routine(*arguments)
        self.library.set_threads(before)


def _stored(matrix: Any) -> tuple[Any, int, int]:
    """A matrix, or a copy, that BLAS can read; its order, and the numbers from line to line."""
    for order, line, number in ((_BY_ROWS, 0, 1), (_BY_COLUMNS, 1, 0)):
        stride, excess = divmod(matrix.strides[line], matrix.itemsize)
        is_dense = matrix.strides[number] == matrix.itemsize
        if is_dense and not excess and stride >= matrix.shape[number]:
            return matrix, order, stride
    return np.ascontiguousarray(matrix), _BY_ROWS, matrix.shape[1]


@lru_cache(maxsize=1)
def packing_library() -> PackingLibrary | None:
    """MKL from the package `mkl`, loaded at the first call; None beside another BLAS than OpenBLAS.

    It is not loaded beside an OpenMP library of LLVM or Intel: a second one ends the process.
    """
    # where the package is installed, which has no Python module
    path = next(Path(sys.prefix, "lib").glob("libmkl_rt.so.*"), None)
    if path is None:
        return None
    from threadpoolctl import ThreadpoolController

    libraries = ThreadpoolController()
    openblas = libraries.select(internal_api="openblas").lib_controllers
    openmp = path.with_name("libiomp5.so")
    others = libraries.select(prefix=["libiomp", "libomp"]).lib_controllers
    if not openblas or any(Path(other.filepath) != openmp for other in others):
        return None
    try:
        ctypes.CDLL(str(openmp))  # without it, MKL ends the process
        return PackingLibrary(ctypes.CDLL(str(path)), openblas[0].get_num_threads)
    except (OSError, AttributeError):
        return None
