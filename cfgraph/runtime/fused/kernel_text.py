"""One CUDA kernel as text: loads, the statements of its expressions, stores; a loop over elements.

Inputs of the shape that is walked, without gaps, are read at the element's own place; scalars once;
any other by strides over the dimensions that are left when those that need no telling apart are
merged. Sizes and strides are arguments: the text is the same for all shapes of a pattern.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from cfgraph.runtime.fused.c_types import CType
from cfgraph.runtime.fused.expressions import Dims, Statement
from cfgraph.runtime.fused.prelude import PRELUDE

THREADS: Final = 256
FLAT, ONE, GIVEN = "flat", "one", "given"
Way = str | tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Parameter:
    """An input of a kernel: its type, and the way to its elements.

    `flat` at the element's place, `one` element for all, `given` by value; else for each dimension
    whether it counts.
    """

    name: str
    kind: CType
    way: Way


@dataclass(frozen=True, slots=True)
class Pattern:
    """All that the text of a kernel depends on. `outputs` are names of statements or inputs.

    `rank` is that of the merged dimensions; `wide` where places need 64 bits.
    """

    parameters: tuple[Parameter, ...]
    statements: tuple[Statement, ...]
    outputs: tuple[tuple[str, CType], ...]
    rank: int
    wide: bool


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of the kernel: how C declares it, and what it is."""

    declared: str
    what: str  # count, input, output, size, stride
    place: int = 0
    axis: int = 0


def arguments(pattern: Pattern) -> list[Argument]:
    """The arguments of a kernel in their order."""
    index = "long long" if pattern.wide else "int"
    found = [Argument(f"const {index} count", "count")]
    for place, item in enumerate(pattern.parameters):
        star = "" if item.way == GIVEN else " *__restrict__"
        name = item.name if item.way == GIVEN and not item.kind.half else f"p_{item.name}"
        found.append(Argument(f"const {item.kind.stored}{star} {name}", "input", place))
    for place, (_, kind) in enumerate(pattern.outputs):
        found.append(Argument(f"{kind.stored} *__restrict__ out{place}", "output", place))
    used = [item.way for item in pattern.parameters if isinstance(item.way, tuple)]
    if used:
        for axis in range(1, pattern.rank):
            found.append(Argument(f"const {index} size{axis}", "size", 0, axis))
    for place, item in enumerate(pattern.parameters):
        if isinstance(item.way, tuple):
            for axis, counts in enumerate(item.way):
                if counts:
                    declared = f"const {index} s_{item.name}_{axis}"
                    found.append(Argument(declared, "stride", place, axis))
    return found


def kernel_text(pattern: Pattern, name: str) -> str:
    """The kernel alone; a source is the prelude and kernels behind it."""
    return "\n".join(_lines(pattern, name))


def source_of(*kernels: str) -> str:
    """A whole source."""
    return "\n".join([PRELUDE, *kernels])


def _lines(pattern: Pattern, name: str) -> Iterator[str]:
    index = "long long" if pattern.wide else "int"
    declared = ",\n    ".join(item.declared for item in arguments(pattern))
    yield f'extern "C" __global__ void __launch_bounds__({THREADS}) {name}(\n    {declared}) {{'
    for item in pattern.parameters:
        yield from _load_once(item)
    yield f"  const {index} step = ({index})gridDim.x * blockDim.x;"
    yield f"  {index} i = ({index})blockIdx.x * blockDim.x + threadIdx.x;"
    yield "  for (; i < count; i += step) {"
    if any(isinstance(item.way, tuple) for item in pattern.parameters):
        yield from _places(pattern.rank, index)
    for item in pattern.parameters:
        yield from _load(item)
    for statement in pattern.statements:
        yield f"    const {statement.kind.computed} {statement.name} = {statement.text};"
    for place, (output, kind) in enumerate(pattern.outputs):
        value = f"cf_{kind.half}_store({output})" if kind.half else output
        yield f"    out{place}[i] = {value};"
    yield "  }"
    yield "}"


def _load_once(item: Parameter) -> Iterator[str]:
    """What is one value for all elements."""
    if item.way == ONE or (item.way == GIVEN and item.kind.half):
        yield f"  {_loaded(item, f'p_{item.name}' + ('[0]' if item.way == ONE else ''))}"


def _load(item: Parameter) -> Iterator[str]:
    if item.way == FLAT:
        yield f"    {_loaded(item, f'p_{item.name}[i]')}"
    elif isinstance(item.way, tuple):
        counting = [axis for axis, counts in enumerate(item.way) if counts]
        place = " + ".join(f"i{axis} * s_{item.name}_{axis}" for axis in counting)
        yield f"    {_loaded(item, f'p_{item.name}[{place}]')}"


def _loaded(item: Parameter, text: str) -> str:
    value = f"cf_{item.kind.half}_load({text})" if item.kind.half else text
    return f"const {item.kind.computed} {item.name} = {value};"


def _places(rank: int, index: str) -> Iterator[str]:
    """The place in each merged dimension, the last one first."""
    rest = "i"
    for axis in range(rank - 1, 0, -1):
        yield f"    const {index} i{axis} = {rest} % size{axis}, r{axis} = {rest} / size{axis};"
        rest = f"r{axis}"
    yield f"    const {index} i0 = {rest};"


def merged(shape: Dims, strides: Sequence[Dims]) -> tuple[Dims, list[Dims]]:
    """The dimensions that must be told apart, and the strides of each input over them."""
    axes = [axis for axis, size in enumerate(shape) if size != 1]
    sizes, found = list[int](), [list[int]() for _ in strides]
    for axis in axes:
        size = shape[axis]
        if sizes and all(
            one[-1] == item[axis] * size for one, item in zip(found, strides, strict=True)
        ):
            sizes[-1] *= size
            for one, item in zip(found, strides, strict=True):
                one[-1] = item[axis]
        else:
            sizes.append(size)
            for one, item in zip(found, strides, strict=True):
                one.append(item[axis])
    return tuple(sizes), [tuple(one) for one in found]
