"""Staging of tuples of tensors under a name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cfgraph.ir.graph import Node
from cfgraph.ir.names import decode_key
from cfgraph.ir.shapes import SCALAR_SHAPE, Shape
from cfgraph.ops.families.queues import Queue
from cfgraph.ops.families.split import as_outputs
from cfgraph.ops.opdef.blocking import Blocked
from cfgraph.ops.opdef.facts import HostPlacement, SideEffects
from cfgraph.ops.opdef.op import Op, OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext

_STAGED = (
    "capacity: int >= 0 = 0, memory_limit: int >= 0 = 0, {types}, container: string = '', "
    "shared_name: string = ''"
)
_SOME_TYPES = _STAGED.format(types="dtypes: list(type) >= 1")
_ANY_TYPES = _STAGED.format(types="dtypes: list(type)")


class _Staging(Op, abstract=True):
    """An op on the tuples that are staged under a name."""

    effects = SideEffects(stateful=True, blocking=True)
    placement = HostPlacement(host_only=True)
    attrs = _SOME_TYPES

    @classmethod
    def run(cls, step: Any, node: Node, *inputs: Any) -> Any:
        name = decode_key(node.attr("shared_name")) or node.name
        capacity = node.attr("capacity") or -1

        def make() -> Queue:
            return Queue(name, tuple(node.attr("dtypes")), (), capacity)

        staged = step.resource(decode_key(node.attr("container")), name, make)
        return cls.access(step, node, staged, *inputs)

    @classmethod
    def access(cls, step: Any, node: Node, staged: Queue, *inputs: Any) -> Any:
        """Read or change the staged tuples."""
        raise NotImplementedError


class Stage(_Staging):
    """Stage a tuple of tensors; wait while there is no room."""

    signature = "values: dtypes"

    @classmethod
    def access(cls, step: Any, node: Node, staged: Queue, *inputs: Any) -> Any:
        staged.enqueue(step, 1, lambda start, end: [inputs][start:end])


class Unstage(_Staging):
    """Remove the first staged tuple; wait for one."""

    signature = "-> values: dtypes"

    @classmethod
    def access(cls, step: Any, node: Node, staged: Queue, *inputs: Any) -> Any:
        if staged.elements:
            _check_types(node, staged.elements[0])
        return as_outputs(staged.dequeue(step, 1)[0])


class StagePeek(_Staging):
    """The staged tuple at an index; wait for it."""

    signature = "index: int32 -> values: dtypes"

    @classmethod
    def access(cls, step: Any, node: Node, staged: Queue, *inputs: Any) -> Any:
        index = int(inputs[0])
        if not 0 <= index < len(staged.elements):  # TensorFlow waits for a negative one, too
            raise Blocked(staged, "for an element")
        _check_types(node, staged.elements[index])
        return as_outputs(staged.elements[index])


def _check_types(node: Node, element: Sequence[Any]) -> None:
    types = tuple(np.asarray(x).dtype for x in element)
    if types != tuple(dtype.numpy for dtype in node.attr("dtypes")):
        staged = ", ".join(map(str, types))
        message = f"a tuple of the types {staged} is staged"
        raise OpError(message)


class StageSize(_Staging):
    """The number of staged tuples."""

    signature = "-> size: int32"
    attrs = _ANY_TYPES
    effects = SideEffects(stateful=True)

    @classmethod
    def access(cls, step: Any, node: Node, staged: Queue, *inputs: Any) -> Any:
        return np.int32(len(staged.elements))

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [SCALAR_SHAPE]


class StageClear(_Staging):
    """Remove all staged tuples."""

    signature = ""
    attrs = _ANY_TYPES
    effects = SideEffects(stateful=True)

    @classmethod
    def access(cls, step: Any, node: Node, staged: Queue, *inputs: Any) -> Any:
        staged.elements.clear()
        staged.version += 1
