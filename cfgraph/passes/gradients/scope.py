"""Scope in which gradient nodes are added: the top of the graph, and base of the other scopes."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from cfgraph.analysis.loops.path_conditions import BranchDecision, PathCondition
from cfgraph.analysis.resource_handles import variable_of_handle
from cfgraph.errors import Unsupported
from cfgraph.ir import dtypes
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import Shape
from cfgraph.ops.families.resource_variables import declared_shape
from cfgraph.ops.opdef.op import lookup, role_of
from cfgraph.passes.gradients.context import GradientContext

if TYPE_CHECKING:
    from cfgraph.passes.gradients.backward_loop import BackwardLoop


class GradientScope:
    """The top of the graph: tensors of the graph are read as they are.

    Implements `cfgraph.ops.opdef.gradient_api.GradientBuilder`. Equal nodes are made once.
    """

    def __init__(self, work: GradientContext) -> None:
        self.work = work
        self.source = work.scope
        self._same: dict[Any, Output] = {}

    def __getattr__(self, op: str) -> Callable[..., Output]:
        if lookup(op) is None:
            raise AttributeError(op)

        def add(*inputs: Any, name: str = "", **attrs: Any) -> Output:
            return self.add(op, inputs, name, attrs)

        self.__dict__[op] = add
        return add

    def add(self, op: str, inputs: Iterable[Any], name: str, attrs: dict[str, Any]) -> Output:
        """Add a node, or find one that is equal; its output 0."""
        given = _encoded_attributes(attrs) if attrs else attrs
        tensors = self.forward_values(self._tensors(inputs))
        key = (op, tensors, *sorted(given.items())) if given else (op, tensors)
        found = None if _is_stateful(op) else self._same.get(key)
        if found is None:
            node = self.work.add(op, tensors, name or op, **given)
            found = self._same[key] = node.output()
        return found

    def new(
        self,
        op: str,
        inputs: Iterable[Output],
        name: str,
        controls: Iterable[Node] = (),
        **attrs: Any,
    ) -> Node:
        """Add a node whose inputs can be read here."""
        return self.work.add(op, inputs, name, controls, **attrs)

    def after(self, x: Output, *others: Output) -> Output:
        """A tensor as it is, once the others are there too."""
        here, *waits = [self.read(item) for item in (x, *others)]
        key = ("after", here, *waits)
        found = self._same.get(key)
        if found is None:
            controls = dict.fromkeys(item.node for item in waits)
            found = self._same[key] = self.new("Identity", [here], "barrier", controls).output()
        return found

    def read(self, x: Output) -> Output:
        """A tensor of the graph as it can be read here."""
        return x

    def forward_values(self, tensors: tuple[Output, ...]) -> tuple[Output, ...]:
        """Tensors of the graph as they can be read here."""
        return tensors

    def const(self, value: Any, dtype: DType) -> Output:
        """A constant."""
        array = np.asarray(value, dtype.numpy)
        key = ("Const", dtype, array.shape, array.tobytes())
        found = self._same.get(key)
        if found is None:
            found = self._same[key] = self.constant(array, dtype)
        return found

    def constant(self, array: Any, dtype: DType) -> Output:
        """A new constant that can be read here."""
        node = self.work.add("Const", (), "Const", dtype=dtype, value=TensorValue(array))
        return node.output()

    def shape(self, x: Output, dtype: DType = dtypes.int32) -> Output:
        """The shape of a tensor; a constant where it is known."""
        known = self.known_shape(x)
        if known.is_full:
            return self.const(list(known), dtype)
        return self.measured(x, dtype)

    def measured(self, x: Output, dtype: DType) -> Output:
        """The shape of a tensor, found when it is there."""
        op = "VariableShape" if _is_resource(x) else "Shape"
        return self.add(op, (x,), "Shape", {"out_type": dtype})

    def known_shape(self, x: Output) -> Shape:
        """What is known of a tensor's shape; of a resource, that of its variable."""
        known = self.work.known.shape(x)
        # a handle is a scalar
        return declared_shape(x) if not known.dims and _is_resource(x) else known

    def known_value(self, x: Output) -> Any | None:
        """The value of a tensor where it is known."""
        return self.work.known.value(x)

    def zeros_like(self, x: Output) -> Output:
        """Zeros of the shape and type of a tensor, live where it is."""
        if not _is_resource(x):
            return self.add("ZerosLike", (x,), "zeros", {})
        # a handle that comes through a Switch may be dead; a shape that is known never is
        shape = self.measured(x, dtypes.int32) if x.node.inputs else self.shape(x)
        return self._zeros(x, shape)

    def filled(self, x: Output) -> Output:
        """Zeros of the shape and type of a tensor, from its shape alone."""
        return self._zeros(x, self.shape(x))

    def _zeros(self, x: Output, shape: Output) -> Output:
        dtype = x.dtype
        if _is_resource(x):
            dtype, _ = variable_of_handle(self.work.graph, _variable_node(x).output())
        if dtype is None:
            raise _unknown_variable(x)
        return self.add("Fill", (shape, self.const(0, dtype.base)), "zeros", {})

    # -- what a backward loop asks of the site around it -----------------------------------------

    @property
    def top(self) -> GradientScope:
        """The top of the graph."""
        return self

    def capture_outer(self, x: Output) -> Output:
        """A tensor from the top of the graph, as it can be read here."""
        return x

    def enter_forward(self, x: Output) -> Output:
        """A tensor from the top of the graph, where the graph itself can read it."""
        return x

    def behind(self) -> list[Node]:
        """What the counter of a loop begins behind."""
        return []

    def wait_for(self, inner: BackwardLoop, guard: PathCondition) -> None:
        """Go on when a loop, entered under a guard, has ended."""

    def residual_decisions(self, decisions: Iterable[BranchDecision]) -> list[BranchDecision]:
        """These decisions without those that fall wherever nodes are added here."""
        return list(decisions)

    def push(self, stack: Output, x: Output) -> Node:
        """Push a gradient."""
        return self.new("StackPushV2", [stack, x], "g_acc_push")

    def pop(self, handle: Output, pushed: Node) -> Output:
        """Pop what a node has pushed."""
        dtype = pushed.inputs[1].dtype
        assert dtype is not None
        return self.new("StackPopV2", [handle], "g_acc_pop", elem_type=dtype.base).output()

    def again(self, node: Node) -> Output:
        """A Const of a loop as a constant of the graph."""
        key = ("again", node)
        found = self._same.get(key)
        if found is None:
            attrs = {name: node.attr(name) for name in ("dtype", "value")}
            found = self._same[key] = self.new("Const", (), "Const", **attrs).output()
        return found

    def switch(self, x: Output, pred: Output, sides: int) -> Node:
        """A Switch of so many sides; on a number it is that of a Case."""
        if pred.dtype is dtypes.bool_:
            return self.new("Switch", (x, pred), "Switch")
        return self.new("_SwitchN", (x, pred), "Switch", num_outs=sides)

    def under(self, x: Output, decisions: Iterable[BranchDecision]) -> Output:
        """A tensor, live only where these decisions fall."""
        for item in decisions:
            key = ("Switch", x, self.read(item.pred))
            if key not in self._same:
                self._same[key] = self.switch(x, key[2], item.sides).output()
            x = self._same[key].node.output(item.port)
        return x

    def _tensors(self, given: Iterable[Any]) -> tuple[Output, ...]:
        """The inputs, with constants of the type of the first tensor in the place of numbers."""
        items = tuple(given)
        for item in items:
            if type(item) is not Output:
                return tuple(self._with_constants(items))
        return items

    def _with_constants(self, given: Iterable[Any]) -> Iterator[Output]:
        items = tuple(_flatten(given))
        dtype = next((item.dtype for item in items if isinstance(item, Output)), None)
        assert dtype is not None, "a number needs a tensor beside it"
        for item in items:
            yield item if isinstance(item, Output) else self.const(item, dtype.base)


def _encoded_attributes(given: dict[str, Any]) -> dict[str, Any]:
    """Attributes as nodes have them: text as bytes."""
    return {key: item.encode() if isinstance(item, str) else item for key, item in given.items()}


def _flatten(items: Iterable[Any]) -> Iterator[Any]:
    for item in items:
        if isinstance(item, Output | numbers.Number | np.generic):
            yield item
        elif isinstance(item, Node):
            yield item.output()
        else:
            yield from _flatten(item)


def _is_stateful(op: str) -> bool:
    definition = lookup(op)
    return definition is None or definition.effects.stateful


def _variable_node(handle: Output) -> Node:
    """The node that made a variable's handle. Raises Unsupported where it is not known."""
    here = handle
    while role_of(here.node) or not here.node.attrs.get("dtype"):
        if not here.node.inputs:
            raise _unknown_variable(handle)
        here = here.node.inputs[0]
    return here.node


def _unknown_variable(handle: Output) -> Unsupported:
    message = f"{handle.name} does not say what its variable holds"
    return Unsupported(message, node=handle.node, code="CFG502")


def _is_resource(x: Output) -> bool:
    return x.dtype is not None and x.dtype.kind == "resource"
