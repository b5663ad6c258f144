"""Stacks that save values of forward loops for backward loops; each execution creates one."""

from __future__ import annotations

from types import ModuleType
from typing import Any, Final

import numpy as np

from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node
from cfgraph.ir.names import decode_key
from cfgraph.ir.shapes import SCALAR_SHAPE, Shape
from cfgraph.ops.opdef.facts import HostPlacement, SideEffects
from cfgraph.ops.opdef.op import Kernel, Op, OpError, define_op
from cfgraph.ops.opdef.resources import Resource

_UNLIMITED = 2**31 - 1


class Stack(Resource):
    """Stack of tensors of one dtype; the value of a stack handle."""

    __slots__ = ("closed", "dtype", "items", "max_size", "name", "names")
    shape = ()

    def __init__(
        self, dtype: DType, name: str, max_size: int = _UNLIMITED, names: Any = None
    ) -> None:
        self.dtype = dtype
        self.name = name
        self.names = names  # content of a legacy handle, a tensor of two strings
        self.max_size = max_size
        self.items: list[Any] = []
        self.closed = False

    def push(self, value: Any, dtype: DType) -> None:
        """Push a value."""
        if dtype is not self.dtype:
            raise OpError(f"Must have type {self.dtype} but got {dtype}")
        self._check_open()
        if len(self.items) >= self.max_size:
            raise OpError(f"Stack[{self.name}] overflowed its max_size ({self.max_size})")
        self.items.append(value)

    def pop(self, dtype: DType) -> Any:
        """Pop the most recently pushed value."""
        if dtype is not self.dtype:
            raise OpError(f"Stack[{self.name}] holds {self.dtype}, not {dtype}")
        if self.items:
            return self.items.pop()
        self._check_open()
        raise OpError(f"Stack[{self.name}] is empty when calling Pop().")

    def close(self) -> None:
        """Free the content; later operations raise OpError."""
        self.items.clear()
        self.closed = True

    def _check_open(self) -> None:
        if self.closed:
            raise OpError(f"Stack[{self.name}] has already been closed.")

    def __repr__(self) -> str:
        return f"<Stack {self.name!r} of {len(self.items)} {self.dtype}>"


class StackHandle(Op, abstract=True):
    """Base class of the ops that create a stack and return its handle."""

    attrs = "elem_type: type, stack_name: string = ''"
    effects = SideEffects(stateful=True, atomic=True)


class StackV2(StackHandle):
    """New stack that holds at most `max_size` values; a negative size means no limit."""

    signature = "max_size: host int32 -> handle: resource"

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype, name = node.attr("elem_type"), decode_key(node.attr("stack_name")) or node.name

        def make(step: Any, max_size: Any) -> Stack:
            if max_size.shape != ():
                message = f"Stack size must be a scalar, but had shape: {Shape(max_size.shape)}"
                raise OpError(message)
            return Stack(dtype, name, int(max_size) if max_size >= 0 else _UNLIMITED)

        return make

    shape = staticmethod(lambda context: [SCALAR_SHAPE])


class Stack_(StackHandle, name="Stack"):
    """New stack without a limit, with a legacy handle."""

    signature = "-> handle: Ref(string)"

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype, name = node.attr("elem_type"), decode_key(node.attr("stack_name")) or node.name
        names = np.array(
            [b"_stacks", f"{name}_{node.name}".encode(errors="surrogateescape")], object
        )
        return lambda step: Stack(dtype, name, names=names)


class StackPushV2(Op):
    """Push a value and forward it."""

    signature = "handle: host resource, elem: T -> output: T"
    attrs = "swap_memory: bool = false"
    effects = SideEffects(stateful=True, atomic=True)
    placement = HostPlacement(swap_role="push")
    batching = staticmethod(lambda g, node: g.copy(node, g.shared(0), g.value(1)))

    @staticmethod
    def kernel(xp: ModuleType, T: DType, /, step: Any, stack: Stack, value: Any) -> Any:
        stack.push(value, T)
        return value

    shape = staticmethod(lambda context: [context.inputs[1]])


class StackPopV2(Op):
    """Pop the most recently pushed value."""

    signature = "handle: host resource -> elem: elem_type"
    effects = SideEffects(stateful=True, atomic=True)
    placement = HostPlacement(swap_role="pop")
    batching = staticmethod(lambda g, node: g.copy(node, g.shared(0)))
    kernel = staticmethod(lambda xp, elem_type, /, step, stack: stack.pop(elem_type))


class StackCloseV2(Op):
    """Free a stack before the run ends."""

    signature = "handle: host resource ->"
    effects = SideEffects(stateful=True, atomic=True)
    kernel = staticmethod(lambda xp, step, stack: stack.close())


_ACCESSES: Final[tuple[type[Op], ...]] = (StackPushV2, StackPopV2, StackCloseV2)
for _op in _ACCESSES:
    define_op(
        __name__,
        _op.name.removesuffix("V2"),
        _op,
        f"{_op.name} with a legacy handle.",
        signature=_op.signature.replace("host resource", "host Ref(string)"),
    )
