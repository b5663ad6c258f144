"""What elementwise ops share: broadcasting shapes, and a kernel that is one ufunc or operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, ClassVar

from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import Shape
from cfgraph.ops.inference import InferenceContext
from cfgraph.ops.op import Kernel, Op


class SameShape(Op, abstract=True):
    """Every output has the shape of input 0."""

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [context.inputs[0]] * context.output_count


class Pointwise(Op, abstract=True):
    """Inputs broadcast; the kernel is `function`: an operator, or a name in the array namespace."""

    function: ClassVar[str | Callable[..., Any] | None] = None

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        if cls.function is None:
            return super().bind(node, xp)
        return getattr(xp, cls.function) if isinstance(cls.function, str) else cls.function

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        result = context.inputs[0]
        for other in context.inputs[1:]:
            result = result.broadcast(other)
        return [result]
