"""Sizes of padded and dilated values, which operations of StableHLO have inside of XLA."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, Final

# numbers and truth values, complex numbers of two widths
_ELEMENT: Final = re.compile(r"u?i(\d+)|bf(16)|f(16|32|64)|f(\d)E\d+M\d+\w*|complex<f(32|64)>")
_INTEGER_BITS: Final = frozenset({1, 2, 4, 8, 16, 32, 64})
# dimensions, bits of an element, and a description
PaddedValue = tuple[list[int], int, str]


def element_bits(element: str) -> int:
    """The bits of an element of a tensor; 0 for a type of unknown form."""
    match = _ELEMENT.fullmatch(element)
    if match is None:
        return 0
    bits = next(int(text) for text in match.groups() if text)
    if element.startswith("complex"):
        return 2 * bits
    return bits if match[1] is None or bits in _INTEGER_BITS else 0


def padded_values(operation: Any) -> Iterator[PaddedValue]:
    """The padded operands and dilated windows of an operation."""
    reader = _READERS.get(operation.name)
    if reader is not None:
        yield from reader(operation)


def _pad(operation: Any) -> Iterator[PaddedValue]:
    low, high, interior = (
        _integers(operation, f"{name}_padding{side}")
        for name, side in (("edge", "_low"), ("edge", "_high"), ("interior", ""))
    )
    dilations = [count + 1 for count in interior]
    yield _padded(
        operation.operands[0], "a padded operand", dilations, [*zip(low, high, strict=True)]
    )


def _reduce_window(operation: Any) -> Iterator[PaddedValue]:
    dilations = _integers(operation, "base_dilations")
    operands = list(operation.operands)
    for operand in operands[: len(operands) // 2]:
        yield _padded(operand, "a padded operand", dilations, _pairs(operation))
    yield _window(operation, operands[0])


def _select_and_scatter(operation: Any) -> Iterator[PaddedValue]:
    yield _padded(operation.operands[0], "a padded operand", (), _pairs(operation))
    yield _window(operation, operation.operands[0])


def _convolution(operation: Any) -> Iterator[PaddedValue]:
    from jaxlib.mlir.dialects import stablehlo

    numbers = stablehlo.ConvDimensionNumbers(operation.attributes["dimension_numbers"])
    image, kernel = list(operation.operands)[:2]
    for operand, axes, name, pairs in (
        (image, numbers.input_spatial_dimensions, "lhs", _pairs(operation)),
        (kernel, numbers.kernel_spatial_dimensions, "rhs", ()),
    ):
        rank = len(operand.type.shape)
        dilations, padding = [1] * rank, [(0, 0)] * rank
        for axis, dilation, pair in zip_longest(
            axes, _integers(operation, f"{name}_dilation"), pairs
        ):
            dilations[axis] = 1 if dilation is None else dilation
            padding[axis] = pair or (0, 0)
        yield _padded(operand, f"the {name}, padded and dilated,", dilations, padding)


_READERS: Final[dict[str, Callable[[Any], Iterator[PaddedValue]]]] = {
    "stablehlo.pad": _pad,
    "stablehlo.reduce_window": _reduce_window,
    "stablehlo.select_and_scatter": _select_and_scatter,
    "stablehlo.convolution": _convolution,
}


def _integers(operation: Any, name: str) -> list[int]:
    """The integers of an attribute; none if it has its default."""
    if name not in operation.attributes:
        return []
    value = operation.attributes[name]
    return [int(value[number]) for number in range(len(value))]


def _pairs(operation: Any) -> list[tuple[int, int]]:
    """The padding before and after each dimension."""
    if "padding" not in operation.attributes:
        return []
    value = operation.attributes["padding"]
    numbers = [int(value[number]) for number in range(len(value))]
    return [*zip(numbers[::2], numbers[1::2], strict=True)]


def _window(operation: Any, operand: Any) -> PaddedValue:
    sizes = _integers(operation, "window_dimensions")
    dilations = _integers(operation, "window_dilations")
    dims = [_extent(size, dilation or 1) for size, dilation in zip_longest(sizes, dilations)]
    return dims, element_bits(str(operand.type.element_type)), "the window"


def _padded(
    operand: Any, description: str, dilations: Sequence[int], padding: Sequence[tuple[int, int]]
) -> PaddedValue:
    dims = [
        _extent(max(size, 0), dilation or 1, *(pair or (0, 0)))
        for size, dilation, pair in zip_longest(operand.type.shape, dilations, padding)
    ]
    return dims, element_bits(str(operand.type.element_type)), f"{description} {operand.type}"


def _extent(size: int, dilation: int, low: int = 0, high: int = 0) -> int:
    """The size of a dimension with its padding, at least 1; what is cut off counts, too."""
    return max(1, (size - 1) * abs(dilation) + 1 + abs(low) + abs(high))
