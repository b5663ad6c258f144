"""Generated arrays: zeros, ones, full, arange, uniform, and normal; equal in every run."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, Final, NoReturn
from zlib import crc32

import numpy as np

from cfgraph.errors import UsageError
from cfgraph.ir import dtypes
from cfgraph.ir.dtypes import DType
from cfgraph.runtime.feeds.literals import fit_dtype, integer_limits, parse_literal

MAX_GENERATED_BYTES: Final = 2 << 30


def generate(
    name: str, arguments: str | None, dtype: DType, sizes: tuple[int, ...], key: str, seed: int
) -> Any:
    """The array that a generator makes; what is drawn depends on `key` and `seed` alone.

    Raises UsageError where the generator cannot make that type, or its arguments are wrong.
    """
    count = math.prod(sizes)
    if count * dtype.numpy.itemsize > MAX_GENERATED_BYTES:
        message = f"{dtype}{list(sizes)} takes more than {MAX_GENERATED_BYTES} bytes"
        raise UsageError(message, code="CFG033")
    if name == "full":
        return np.broadcast_to(_constant(arguments, dtype), sizes).copy()
    if name == "zeros" and dtype is dtypes.string:
        return np.full(sizes, b"", object)
    if dtype.is_object:
        _reject_dtype(name, dtype)
    return _GENERATORS[name](_GeneratorCall(name, arguments, dtype, count, key, seed)).reshape(
        sizes
    )


class _GeneratorCall:
    """One call of a generator."""

    def __init__(
        self, name: str, arguments: str | None, dtype: DType, count: int, key: str, seed: int
    ) -> None:
        self.name, self.dtype, self.count = name, dtype, count
        self.arguments = _numbers(name, arguments)
        self.source = np.random.Generator(
            np.random.Philox(key=seed % 2**64 | crc32(key.encode()) << 64)
        )

    def pair(self, first: float, second: float) -> tuple[float, float]:
        """Its two arguments, or the default ones."""
        if len(self.arguments) not in (0, 2):
            hint = f"write {self.name}({first},{second})"
            raise UsageError(f"{self.name} takes two arguments", hint=hint, code="CFG033")
        return (self.arguments[0], self.arguments[1]) if self.arguments else (first, second)

    def nothing(self) -> None:
        """Refuse arguments."""
        if self.arguments:
            raise UsageError(f"{self.name} takes no arguments", code="CFG033")


def _reject_dtype(name: str, dtype: DType) -> NoReturn:
    raise UsageError(f"{name} cannot make a tensor of type {dtype}", code="CFG034")


def _constant(arguments: str | None, dtype: DType) -> Any:
    if not arguments:
        raise UsageError("full takes one argument", hint="as in full(7)", code="CFG033")
    value = parse_literal(arguments, dtype)
    if value.ndim:
        raise UsageError("full takes a single value", hint="as in full(7)", code="CFG033")
    return value


def _numbers(name: str, arguments: str | None) -> list[float]:
    try:
        found: list[Any] = json.loads(f"[{arguments or ''}]")
    except ValueError:
        found = [None]
    if any(type(item) not in (int, float) or not math.isfinite(item) for item in found):
        raise UsageError(f"{name}({arguments}) needs numbers", code="CFG033")
    return found


def _zeros(draw: _GeneratorCall) -> Any:
    draw.nothing()
    return np.zeros(draw.count, draw.dtype.numpy)


def _ones(draw: _GeneratorCall) -> Any:
    draw.nothing()
    return np.ones(draw.count, np.int8).astype(draw.dtype.numpy)


def _arange(draw: _GeneratorCall) -> Any:
    draw.nothing()
    if draw.dtype.kind == "bool":
        _reject_dtype(draw.name, draw.dtype)
    if draw.count and draw.dtype.is_integer and draw.count - 1 > integer_limits(draw.dtype)[1]:
        message = f"{draw.count - 1} is out of range for {draw.dtype}"
        raise UsageError(message, code="CFG034")
    return fit_dtype(np.arange(draw.count, dtype=np.int64), draw.dtype)


def _uniform(draw: _GeneratorCall) -> Any:
    dtype = draw.dtype
    if dtype.kind == "bool":
        draw.nothing()
        return draw.source.random(draw.count) < 0.5
    if dtype.is_integer and not draw.arguments:
        hint = f"as in uniform(0,10), which stops before 10; for {dtype}"
        raise UsageError("uniform needs a range for integers", hint=hint, code="CFG033")
    low, high = draw.pair(0, 1)
    if low > high:
        raise UsageError(f"uniform({low},{high}) is an empty range", code="CFG033")
    if dtype.is_integer:
        return _integers(draw, low, high)
    return fit_dtype(low + (high - low) * draw.source.random(draw.count), dtype)


def _integers(draw: _GeneratorCall, low: float, high: float) -> Any:
    least, greatest = integer_limits(draw.dtype)
    if low != int(low) or high != int(high) or not least <= low < high <= greatest + 1:
        message = f"uniform({low},{high}) is no range of {draw.dtype}"
        raise UsageError(message, code="CFG034")
    wide = np.uint64 if draw.dtype.kind == "uint" else np.int64
    return draw.source.integers(int(low), int(high), draw.count, wide).astype(draw.dtype.numpy)


def _normal(draw: _GeneratorCall) -> Any:
    if draw.dtype.kind not in ("float", "complex"):
        _reject_dtype(draw.name, draw.dtype)
    mean, deviation = draw.pair(0, 1)
    return fit_dtype(mean + deviation * draw.source.standard_normal(draw.count), draw.dtype)


_GENERATORS: Final[dict[str, Callable[[_GeneratorCall], Any]]] = {
    "zeros": _zeros,
    "ones": _ones,
    "arange": _arange,
    "uniform": _uniform,
    "normal": _normal,
}
