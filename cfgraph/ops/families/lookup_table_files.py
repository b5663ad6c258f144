"""Lookup tables that are initialized from a text file, such as a vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, Final

import numpy as np

from cfgraph.errors import InvalidInput
from cfgraph.ir.dtypes import DType
from cfgraph.ir.file_io import read_file
from cfgraph.ir.graph import Node
from cfgraph.ir.names import decode_key, decode_text
from cfgraph.limits import check_deadline
from cfgraph.ops.families.lookup_tables import LookupTable
from cfgraph.ops.opdef.facts import HostPlacement, SideEffects
from cfgraph.ops.opdef.op import Kernel, Op, OpError
from cfgraph.ops.opdef.resources import Step

# values of key_index and value_index that select no column
WHOLE_LINE: Final = -2
LINE_NUMBER: Final = -1
_DEADLINE_LINES: Final = 10_000
_INT_BITS: Final = {"int32": 32, "int64": 64}


class InitializeTableFromTextFileV2(Op):
    """Initialize a table from the lines of a text file."""

    signature = "table_handle: resource, filename: string ->"
    attrs = (
        "key_index: int >= -2, value_index: int >= -2, vocab_size: int >= -1 = -1,"
        " delimiter: string = '\t', offset: int = 0"
    )
    effects = SideEffects(stateful=True, initializes=True, does_io=True)
    placement = HostPlacement(host_only=True)

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        columns = (node.attr("key_index"), node.attr("value_index"))
        size, offset = node.attr("vocab_size"), node.attr("offset")
        delimiter = node.attr("delimiter")
        delimiter = delimiter.encode() if isinstance(delimiter, str) else delimiter
        if len(delimiter) != 1:
            raise OpError(f"delimiter must be one character, got {decode_text(delimiter)!r}")

        def initialize(step: Step, table: LookupTable, filename: Any) -> None:
            path = decode_key(
                filename.item() if filename.ndim == 0 else filename.reshape(()).item()
            )
            dtypes = (table.key, table.value)
            keys, values = _read_columns(step, path, columns, dtypes, delimiter, size, offset)
            table.fill(keys, values)

        return initialize


class InitializeTableFromTextFile(InitializeTableFromTextFileV2):
    """Initialize a table from the lines of a text file (older string handle)."""

    signature = "table_handle: Ref(string), filename: string ->"


def _read_columns(
    step: Step,
    path: str,
    columns: tuple[int, int],
    dtypes: tuple[DType, DType],
    delimiter: bytes,
    size: int,
    offset: int,
) -> tuple[Any, Any]:
    """Keys and values of a file. Raises OpError for a file that does not fit."""
    parsers = [_parser(*pair) for pair in zip(columns, dtypes, strict=True)]
    expected = max(columns) + 1
    rows: list[tuple[Any, Any]] = []
    for number, line in enumerate(_lines(step, path)):
        if number % _DEADLINE_LINES == 0:
            check_deadline()
        if number == size:
            break
        if not line:
            raise OpError(f"Invalid content in {path}: empty line found at line {number}")
        tokens = line.split(delimiter) if expected > 0 else []
        if len(tokens) < expected:
            counts = f"expected {expected} got {len(tokens)}"
            place = f"{path} line {number} ({decode_text(line)})"
            raise OpError(f"Invalid number of columns in {place} : {counts}")
        key, value = (
            _field(column, parse, line, tokens, number + offset)
            for column, parse in zip(columns, parsers, strict=True)
        )
        rows.append((key, value))
    if size not in (-1, len(rows)):
        raise OpError(f"Invalid vocab_size in {path}: expected {size} but got {len(rows)}")
    keys, values = zip(*rows, strict=True) if rows else ((), ())
    return _vector(keys, dtypes[0]), _vector(values, dtypes[1])


def _lines(step: Step, path: str) -> Iterator[bytes]:
    step.require_readable(path)
    try:
        data = read_file(path)
    except InvalidInput as error:
        raise OpError(f"{path}: {error.message}", code=error.code) from None
    lines = data.replace(b"\r", b"").split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    return iter(lines)


def _field(
    column: int, parse: Callable[[bytes], Any], line: bytes, tokens: list[bytes], number: int
) -> Any:
    if column == LINE_NUMBER:
        return number
    text = line if column == WHOLE_LINE else tokens[column]
    try:
        if b"_" in text and parse is not bytes:  # Python's separator of digits
            raise ValueError
        return parse(text)
    except (ValueError, OverflowError):
        raise OpError(f"Field {decode_text(text)} in line {number} is not a valid number") from None


def _parser(column: int, dtype: DType) -> Callable[[bytes], Any]:
    """The conversion of one field. Raises OpError for a type that a column cannot have."""
    if column == LINE_NUMBER and dtype.name != "int64":
        raise OpError(f"a line number has dtype int64, the table has {dtype}")
    if column == WHOLE_LINE and dtype.name not in ("string", "int64"):
        raise OpError(f"a whole line has dtype string or int64, the table has {dtype}")
    if dtype.kind == "string":
        return bytes
    if dtype.name in _INT_BITS:
        bits = _INT_BITS[dtype.name]
        return lambda text: _parse_int(text, bits)
    if dtype.name in ("float32", "float64"):
        return float
    raise OpError(f"a column of a file cannot have dtype {dtype}")


def _parse_int(text: bytes, bits: int) -> int:
    if len(text) > bits:
        raise ValueError
    number = int(text)
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise OverflowError
    return number


def _vector(items: tuple[Any, ...], dtype: DType) -> Any:
    vector = np.empty(len(items), dtype.numpy)
    vector[:] = items
    return vector
