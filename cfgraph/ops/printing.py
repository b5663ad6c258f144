"""Ops that speak to people: formatted text, printing, assertions, and the clock."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import SCALAR_SHAPE, Shape
from cfgraph.ops.adjoint import Adjoint, Partials
from cfgraph.ops.inference import InferenceContext
from cfgraph.ops.op import Kernel, Op, OpError
from cfgraph.ops.pointwise import SameShape
from cfgraph.ops.step import Step
from cfgraph.ops.tensor_text import flat, nested
from cfgraph.ops.text_arrays import text_array

_FILE = "file://"
_STREAMS = {
    "stdout": "stdout",
    "stderr": "stderr",
    "log(info)": "stderr",
    "log(warning)": "stderr",
    "log(error)": "stderr",
}


def bracketed(values: Sequence[Any], limit: int, gap: bytes = b"") -> str:
    """Tensors, each cut short and in brackets."""
    return gap.join(b"[" + flat(v, limit) + b"]" for v in values).decode(errors="replace")


class StringFormat(Op):
    """A template with tensors in the place of its placeholders."""

    signature = "inputs: T -> output: string"
    attrs = (
        "T: list(type) >= 0, template: string = '%s', placeholder: string = '%s', "
        "summarize: int = 3"
    )
    traceable = False

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        pieces = node.attr("template").split(node.attr("placeholder"))
        limit, count = node.attr("summarize"), len(node.attr("T"))
        if len(pieces) - 1 != count:
            message = (
                "num placeholders in template and num inputs must match: "
                f"{len(pieces) - 1} vs. {count}"
            )
            raise OpError(message)

        def fill(*inputs: Any) -> Any:
            texts = [
                nested(value, limit) + rest for value, rest in zip(inputs, pieces[1:], strict=True)
            ]
            return text_array([pieces[0] + b"".join(texts)], ())

        return fill

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [SCALAR_SHAPE]


class Assert(Op):
    """Fail with some tensors as the message unless the condition holds."""

    signature = "condition: bool, data: T ->"
    attrs = "T: list(type) >= 1, summarize: int = 3"
    stateful = True
    traceable = False
    host_inputs = (0,)

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        limit = node.attr("summarize")

        def check(step: Step, condition: Any, *data: Any) -> None:
            if condition.ndim:
                message = f"In[0] should be a scalar: {list(condition.shape)}"
                raise OpError(message)
            if not condition:
                message = f"assertion failed: {bracketed(data, limit, b' ')}"
                raise OpError(message)

        return check


class Print(SameShape):
    """Its first input; the others are printed, the first few times."""

    signature = "input: T, data: U -> output: T"
    attrs = "U: list(type) >= 0, message: string = '', first_n: int = -1, summarize: int = 3"
    stateful = True
    host_only = True
    traceable = False

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        limit, most = node.attr("summarize"), node.attr("first_n")
        message, done = node.attr("message").decode(errors="replace"), 0

        def show(step: Step, value: Any, *data: Any) -> Any:
            nonlocal done
            if most < 0 or done < most:
                done += 1
                step.print(f"{message}{bracketed(data, limit)}\n")
            return value

        return show

    @staticmethod
    def gradient(g: Adjoint, node: Node, dy: Output) -> Partials:
        return [dy, *[None] * (len(node.inputs) - 1)]


class PrintV2(Op):
    """Print a string to a stream, or to the end of a file."""

    signature = "input: string ->"
    attrs = "output_stream: string = 'stderr', end: string = '\n'"
    stateful = True
    host_only = True
    traceable = False

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        stream, end = node.attr("output_stream").decode(), node.attr("end")
        if stream not in _STREAMS and not stream.startswith(_FILE):
            message = f"Unknown output stream: {stream}, Valid streams are: {' '.join(_STREAMS)}"
            raise OpError(message)

        def show(step: Step, text: Any) -> None:
            if text.ndim:
                message = f"Input is expected to be scalar, but got {list(text.shape)}"
                raise OpError(message)
            line = text.item() + end
            if stream.startswith(_FILE):
                with open(stream.removeprefix(_FILE), "ab") as file:
                    file.write(line)
            else:
                step.print(line.decode(errors="replace"), _STREAMS[stream])

        return show


class Timestamp(Op):
    """Seconds since 1970."""

    signature = "-> ts: float64"
    stateful = True
    traceable = False

    @classmethod
    def run(cls, step: Step, node: Node, *inputs: Any) -> Any:
        return np.float64(time.time())

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [SCALAR_SHAPE]
