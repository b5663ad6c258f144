"""Staging of tuples of tensors under a name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node
from cfgraph.ir.names import decode_key
from cfgraph.ir.shapes import SCALAR_SHAPE
from cfgraph.ops.families.queues import Element, Queue
from cfgraph.ops.families.split import as_outputs
from cfgraph.ops.opdef.blocking import Blocked
from cfgraph.ops.opdef.facts import HostPlacement, SideEffects
from cfgraph.ops.opdef.op import Op, OpError

# bytes of a string without its characters, as TensorFlow counts, or of another object
_OBJECT_BYTES: Final = 24


class StagingArea(Queue):
    """Staged tuples: at most `capacity` of them, and of `memory_limit` bytes, unless it is 0."""

    __slots__ = ("memory_limit", "used")
    namespace = "staging areas"

    def __init__(self, name: str, types: Sequence[DType], capacity: int, memory_limit: int) -> None:
        super().__init__(name, types, (), capacity or -1)
        self.memory_limit = memory_limit
        self.used = 0  # bytes of the elements, if they are limited

    def put(self, element: Element) -> None:
        super().put(element)
        self.used += self._bytes_of(element)

    def take_next(self, step: Any) -> Element:
        element = super().take_next(step)
        self.used -= self._bytes_of(element)
        return element

    def restore(self, elements: list[Element]) -> None:
        super().restore(elements)
        self.used += sum(map(self._bytes_of, elements))

    def clear(self) -> None:
        """Remove all elements."""
        self.elements.clear()
        self.used = 0
        self.version += 1

    def require_memory(self, element: Element) -> None:
        """Raise OpError for a tuple that never fits, and Blocked for one that does not fit now."""
        size = self._bytes_of(element)
        if size > self.memory_limit:
            raise OpError(
                f"Attempted to insert tensors with combined size of '{size}' bytes into Staging "
                f"Area with a memory limit of '{self.memory_limit}'."
            )
        if self.used + size > self.memory_limit:
            raise Blocked(self, "for memory")

    def _bytes_of(self, element: Element) -> int:
        return sum(map(_tensor_bytes, map(np.asarray, element))) if self.memory_limit else 0


def _tensor_bytes(x: Any) -> int:
    if x.dtype != object:
        return int(x.nbytes)
    return int(_OBJECT_BYTES * x.size + sum(len(y) for y in x.flat if isinstance(y, bytes)))


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

        def make() -> StagingArea:
            capacity, memory_limit = node.attr("capacity"), node.attr("memory_limit")
            return StagingArea(name, node.attr("dtypes"), capacity, memory_limit)

        container = decode_key(node.attr("container"))
        staged = step.resource(container, name, make, StagingArea.namespace)
        return cls.access(step, node, staged, *inputs)

    @classmethod
    def access(cls, step: Any, node: Node, staged: StagingArea, *inputs: Any) -> Any:
        """Read or change the staged tuples."""
        raise NotImplementedError


class Stage(_Staging):
    """Stage a tuple of tensors; wait while there is no room."""

    signature = "values: dtypes"

    @classmethod
    def access(cls, step: Any, node: Node, staged: StagingArea, *inputs: Any) -> Any:
        staged.require_memory(inputs)
        staged.enqueue(step, 1, lambda start, end: [inputs][start:end])


class Unstage(_Staging):
    """Remove the first staged tuple; wait for one."""

    signature = "-> values: dtypes"

    @classmethod
    def access(cls, step: Any, node: Node, staged: StagingArea, *inputs: Any) -> Any:
        if staged.elements:
            _check_types(node, staged.elements[0])
        return as_outputs(staged.dequeue(step, 1)[0])


class StagePeek(_Staging):
    """The staged tuple at an index; wait for it."""

    signature = "index: int32 -> values: dtypes"

    @classmethod
    def access(cls, step: Any, node: Node, staged: StagingArea, *inputs: Any) -> Any:
        index = int(inputs[0])
        if not 0 <= index < len(staged.elements):  # TensorFlow waits for a negative one, too
            raise Blocked(staged, "for an element")
        _check_types(node, staged.elements[index])
        return as_outputs(staged.elements[index])


def _check_types(node: Node, element: Sequence[Any]) -> None:
    types = tuple(np.asarray(x).dtype for x in element)
    if types != tuple(dtype.numpy for dtype in node.attr("dtypes")):
        staged = ", ".join(map(str, types))
        raise OpError(f"a tuple of the types {staged} is staged")


class StageSize(_Staging):
    """The number of staged tuples."""

    signature = "-> size: int32"
    attrs = _ANY_TYPES
    effects = SideEffects(stateful=True)

    @classmethod
    def access(cls, step: Any, node: Node, staged: StagingArea, *inputs: Any) -> Any:
        return np.int32(len(staged.elements))

    shape = staticmethod(lambda context: [SCALAR_SHAPE])


class StageClear(_Staging):
    """Remove all staged tuples."""

    signature = ""
    attrs = _ANY_TYPES
    effects = SideEffects(stateful=True)

    @classmethod
    def access(cls, step: Any, node: Node, staged: StagingArea, *inputs: Any) -> Any:
        staged.clear()
