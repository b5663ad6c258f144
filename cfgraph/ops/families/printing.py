"""Formatted text, printing, assertions, and timestamps."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.errors import InvalidInput
from cfgraph.ir import registry
from cfgraph.ir.functions import BodyNode
from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import SCALAR_SHAPE
from cfgraph.ops.families.strings import string_array
from cfgraph.ops.kernels.array_namespace import holds
from cfgraph.ops.opdef.facts import CompilerSupport, FileAccess, HostPlacement, SideEffects
from cfgraph.ops.opdef.op import Kernel, Op, OpError, SameShape
from cfgraph.ops.opdef.resources import Step

_ESCAPES = {
    **{byte: f"\\{byte:03o}".encode() for byte in (*range(32), 127)},
    **{ord(a): b"\\" + a.encode() for a in "\\'\""},
    ord("\n"): rb"\n",
    ord("\r"): rb"\r",
    ord("\t"): rb"\t",
}


def escape_bytes(text: bytes) -> bytes:
    """A byte string with unprintable ASCII characters escaped as in C."""
    return b"".join(_ESCAPES.get(byte) or bytes([byte]) for byte in text)


def shortest_number(value: float, digits: int, max_digits: int, kind: Any) -> str:
    """A number with `digits` digits, or `max_digits` if those do not restore the same value."""
    text = f"%.{digits}g" % value
    return text if math.isnan(value) or kind(float(text)) == value else f"%.{max_digits}g" % value


def format_element(value: Any, *, quoted: bool) -> bytes:
    """The text of one element."""
    if isinstance(value, bytes):
        return b'"' + escape_bytes(value) + b'"' if quoted else escape_bytes(value)
    dtype = value.dtype
    if dtype == np.bool_:
        return b"1" if value else b"0"
    if np.issubdtype(dtype, np.integer):
        return str(int(value)).encode()
    if dtype == np.float64:
        return shortest_number(float(value), 15, 17, np.float64).encode()
    return shortest_number(float(value), 6, 9, np.float32).encode()


def is_showable(array: Any) -> bool:
    """True for arrays whose elements can be printed: all but complex and non-string objects."""
    if array.dtype == object:
        return all(isinstance(value, bytes) for value in array.ravel())
    return bool(array.dtype.kind != "c")


def format_flat(value: Any, limit: int) -> bytes:
    """The first `limit` elements of a tensor, rows in brackets, without an outer bracket."""
    array = np.asarray(value)
    count = array.size if limit < 0 else min(limit, array.size)
    ellipsis = b"..." if array.size > count else b""
    if not is_showable(array):
        return b" ".join([b"?"] * count) + ellipsis
    elements = list(array.ravel())
    if array.ndim == 0:
        return b" ".join(format_element(v, quoted=False) for v in elements[:count]) + ellipsis
    output: list[bytes] = []
    _flat_rows(elements, array.shape, count, 0, 0, output)
    return b"".join(output) + ellipsis


def _flat_rows(
    elements: list[Any],
    shape: tuple[int, ...],
    limit: int,
    dim: int,
    written: int,
    output: list[bytes],
) -> int:
    """Append the text of one subarray to `output`; return the total number of elements written."""
    if written >= limit:
        return written
    if dim == len(shape) - 1:
        for index in range(shape[dim]):
            if written >= limit:
                if dim:
                    output.append(b"...")
                return written
            output.append(
                (b" " if index else b"") + format_element(elements[written], quoted=False)
            )
            written += 1
        return written
    for _ in range(shape[dim]):
        if written >= limit:
            break
        output.append(b"[")
        written = _flat_rows(elements, shape, limit, dim + 1, written, output)
        output.append(b"]")
    return written


def format_nested(value: Any, limit: int) -> bytes:
    """A tensor in nested brackets with the first and last `limit` elements of each dimension."""
    array = np.asarray(value)
    count = array.size if limit < 0 else min(limit, array.size)
    if not is_showable(array):
        marks = b" ".join([b"?"] * count) + (b"..." if 0 <= limit < array.size else b"")
        return b"[" + marks + b"]" if array.ndim else marks
    if array.ndim == 0 and count == 0:
        return b"..."
    return _nested_rows(array, count, 0, array.ndim)


def _nested_rows(array: Any, ends: int, dim: int, rank: int) -> bytes:
    if dim == rank:
        return format_element(array.item() if array.dtype == object else array[()], quoted=True)
    gap = b" " if dim == rank - 1 else b"\n" * (rank - 1 - dim) + b" " * (dim + 1)
    count = len(array)
    rows = [_nested_rows(row, ends, dim + 1, rank) for row in _rows(array, 0, min(ends, count))]
    if count > 2 * ends:
        rows.append(b"...")
    last = [
        _nested_rows(row, ends, dim + 1, rank)
        for row in _rows(array, max(ends, count - ends), count)
    ]
    text = gap.join(rows + last)
    # TensorFlow also puts the separator before a leading ellipsis
    return b"[" + (gap + text if ends == 0 and count else text) + b"]"


def _rows(array: Any, start: int, stop: int) -> list[Any]:
    return [array[index, ...] for index in range(start, stop)]


_FILE = "file://"
_STREAMS = {
    "stdout": "stdout",
    "stderr": "stderr",
    "log(info)": "stderr",
    "log(warning)": "stderr",
    "log(error)": "stderr",
}


def bracket_values(values: Sequence[Any], limit: int, gap: bytes = b"") -> str:
    """The bracketed texts of tensors, each limited to its first `limit` elements."""
    return gap.join(b"[" + format_flat(v, limit) + b"]" for v in values).decode(errors="replace")


class StringFormat(Op):
    """A template with its placeholders replaced by tensors."""

    signature = "inputs: T -> output: string"
    attrs = (
        "T: list(type) >= 0, template: string = '%s', placeholder: string = '%s', "
        "summarize: int = 3"
    )

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        if not node.attr("placeholder"):
            raise OpError("attribute 'placeholder' is empty, expected the text that inputs replace")
        pieces = node.attr("template").split(node.attr("placeholder"))
        limit, count = node.attr("summarize"), len(node.attr("T"))
        if len(pieces) - 1 != count:
            raise OpError(
                "num placeholders in template and num inputs must match: "
                f"{len(pieces) - 1} vs. {count}"
            )

        def fill(*inputs: Any) -> Any:
            texts = [
                format_nested(value, limit) + literal
                for value, literal in zip(inputs, pieces[1:], strict=True)
            ]
            return string_array([pieces[0] + b"".join(texts)], ())

        return fill

    shape = staticmethod(lambda context: [SCALAR_SHAPE])


class Assert(Op):
    """Fail with the values of `data` as the message unless the condition holds."""

    signature = "condition: host bool, data: T ->"
    attrs = "T: list(type) >= 1, summarize: int = 3"
    effects = SideEffects(stateful=True, only_checks=True)
    compilation = CompilerSupport(traces_effects=True)

    @staticmethod
    def kernel(xp: ModuleType, summarize: int, /, step: Step, condition: Any, *data: Any) -> None:
        if condition.ndim:
            raise OpError(f"In[0] should be a scalar: {list(condition.shape)}")
        if not holds(xp, condition):
            raise OpError(f"assertion failed: {bracket_values(data, summarize, b' ')}")


class FaultyNode(Op, name=registry.internal_name("FaultyNode")):
    """Fail with the error that verification reported for the node of this name."""

    signature = "inputs: Tin -> outputs: Tout"
    attrs = (
        "Tin: list(type) >= 0, Tout: list(type) >= 0, code: string, message: string, hint: string"
    )
    effects = SideEffects(stateful=True)
    placement = HostPlacement(host_only=True)

    @staticmethod
    def error(node: Node | BodyNode, name: str) -> InvalidInput:
        """The error, at a node of this name."""
        texts = {
            key: node.attrs[key].decode(errors="replace") for key in ("code", "message", "hint")
        }
        return InvalidInput(
            texts["message"], node=name, code=texts["code"], hint=texts["hint"] or None
        )

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        def fail(step: Step, *inputs: Any) -> None:
            raise cls.error(node, node.name)

        return fail


class Print(SameShape):
    """Identity that prints `data` on the first `first_n` executions."""

    signature = "input: T, data: U -> output: T"
    attrs = "U: list(type) >= 0, message: string = '', first_n: int = -1, summarize: int = 3"
    effects = SideEffects(stateful=True)
    placement = HostPlacement(host_only=True)

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        limit, first_n = node.attr("summarize"), node.attr("first_n")
        message, count = node.attr("message").decode(errors="replace"), 0

        def show(step: Step, value: Any, *data: Any) -> Any:
            nonlocal count
            if first_n < 0 or count < first_n:
                count += 1
                step.print(f"{message}{bracket_values(data, limit)}\n")
            return value

        return show

    gradient = staticmethod(lambda g, node, dy: [dy, *[None] * (len(node.inputs) - 1)])


class PrintV2(Op):
    """Print a string to a stream, or append it to a file (`file://PATH`)."""

    signature = "input: string ->"
    attrs = "output_stream: string = 'stderr', end: string = '\n'"
    effects = SideEffects(stateful=True)
    placement = HostPlacement(host_only=True)

    @classmethod
    def file_access(cls, node: Node | BodyNode) -> FileAccess:
        """Write access for a file, none for a stream."""
        stream = node.attrs.get("output_stream")
        return "write" if isinstance(stream, bytes) and stream.startswith(_FILE.encode()) else ""

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        stream, end = node.attr("output_stream").decode(errors="surrogateescape"), node.attr("end")
        if stream not in _STREAMS and not stream.startswith(_FILE):
            message = f"Unknown output stream: {stream}, Valid streams are: {' '.join(_STREAMS)}"
            raise OpError(message)

        def show(step: Step, text: Any) -> None:
            if text.ndim:
                raise OpError(f"Input is expected to be scalar, but got {list(text.shape)}")
            line = text.item() + end
            if stream.startswith(_FILE):
                step.append_to_file(stream.removeprefix(_FILE), line)
            else:
                step.print(line.decode(errors="replace"), _STREAMS[stream])

        return show


class Timestamp(Op):
    """The current time in seconds since 1970 (Unix epoch)."""

    signature = "-> ts: float64"
    effects = SideEffects(stateful=True)
    run = staticmethod(lambda step, node, *inputs: np.float64(time.time()))
    shape = staticmethod(lambda context: [SCALAR_SHAPE])
