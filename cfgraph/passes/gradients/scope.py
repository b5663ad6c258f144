"""Scope in which gradient nodes are added: the root frame, and the base of the other scopes."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import numpy as np

from cfgraph.analysis.loops.branch_decisions import BranchDecision, PathCondition
from cfgraph.analysis.resource_handles import variable_of_handle
from cfgraph.errors import Unsupported
from cfgraph.ir import dtypes
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import Shape
from cfgraph.ops.families.resource_variables import declared_shape
from cfgraph.ops.opdef.op import is_identity, lookup, role_of
from cfgraph.passes.gradients.context import GradientContext

_MAX_INT32: Final = 2**31 - 1


class GradientScope:
    """Scope of the root frame, in which forward values can be used directly.

    Implements `cfgraph.ops.opdef.gradient_api.GradientBuilder`. Equal nodes are added once.
    `outer` is the scope that contains this one; methods walk it in a loop, since loops may be
    nested too deeply for recursion.
    """

    outer: GradientScope | None = None

    def __init__(self, ctx: GradientContext) -> None:
        self.ctx = ctx
        self.source = ctx.name
        self._cache: dict[Any, Output] = {}

    def __getattr__(self, op: str) -> Callable[..., Output]:
        if lookup(op) is None:
            raise AttributeError(op)

        def add(*inputs: Any, name: str = "", **attrs: Any) -> Output:
            return self.add(op, inputs, name, attrs)

        self.__dict__[op] = add
        return add

    def add(self, op: str, inputs: Iterable[Any], name: str, attrs: dict[str, Any]) -> Output:
        """Output 0 of a node with these inputs and attributes; added unless there is an equal one.

        Forward values among the inputs are made available in this scope.
        """
        encoded = _encoded_attributes(attrs) if attrs else attrs
        tensors = self.forward_values(self._tensors(inputs))
        key = (op, tensors, *sorted(encoded.items())) if encoded else (op, tensors)
        x = None if _is_stateful(op) else self._cache.get(key)
        if x is None:
            x = self._cache[key] = self.ctx.add(op, tensors, name or op, **encoded).output()
        return x

    def with_control_deps(self, x: Output, *deps: Output) -> Output:
        """A tensor, unchanged, that waits until the other tensors are computed."""
        value, *waits = [self.forward_value(item) for item in (x, *deps)]
        key = ("after", value, *waits)
        barrier = self._cache.get(key)
        if barrier is None:
            controls = dict.fromkeys(item.node for item in waits)
            barrier = self.ctx.add("Identity", [value], "barrier", controls).output()
            self._cache[key] = barrier
        return barrier

    def forward_value(self, x: Output) -> Output:
        """A tensor of the forward graph, available in this scope."""
        return x

    def forward_values(self, tensors: tuple[Output, ...]) -> tuple[Output, ...]:
        """Tensors of the forward graph, available in this scope."""
        return tensors

    def const(self, value: Any, dtype: DType) -> Output:
        """A constant; equal ones are added once."""
        array = np.asarray(value, dtype.numpy)
        key = ("Const", dtype, array.shape, array.tobytes())
        x = self._cache.get(key)
        if x is None:
            scopes = [self]
            while (outer := scopes[-1].outer) is not None and key not in outer._cache:
                scopes.append(outer)
            for scope in reversed(scopes):
                x = scope._cache[key] = scope.constant(array, dtype)
            assert x is not None
        return x

    def constant(self, array: Any, dtype: DType) -> Output:
        """Add a constant that is available in this scope."""
        node = self.ctx.add("Const", (), "Const", dtype=dtype, value=TensorValue(array))
        return node.output()

    # -- shapes and zeros ------------------------------------------------------------------------

    def shape(self, x: Output, dtype: DType = dtypes.int32) -> Output:
        """The shape of a tensor; a constant if it is static."""
        key = ("shape of", x, dtype)
        size = self._cache.get(key)
        if size is None:
            size = self._cache[key] = self._shape(x, dtype)
        return size

    def _shape(self, x: Output, dtype: DType) -> Output:
        known = self.known_shape(x)
        if known.is_full:
            largest = max((size or 0 for size in known), default=0)
            if dtype is dtypes.int32 and largest > _MAX_INT32:
                message = f"a dimension of {x.name!r} has {largest} elements"
                hint = f"a gradient supports at most {_MAX_INT32}"
                raise Unsupported(message, node=x.node, hint=hint)
            return self.const(list(known), dtype)
        return self.runtime_shape(x, dtype)

    def runtime_shape(self, x: Output, dtype: DType) -> Output:
        """The shape of a tensor, computed at run time."""
        op = "VariableShape" if _is_resource(x) else "Shape"
        return self.add(op, (x,), "Shape", {"out_type": dtype})

    def known_shape(self, x: Output) -> Shape:
        """Static shape of a tensor; for a resource, the shape of its variable."""
        known = self.ctx.static.shape(x)
        # a handle is a scalar
        return declared_shape(x) if not known.dims and _is_resource(x) else known

    def have_equal_shapes(self, x: Output, y: Output) -> bool:
        """True if two tensors of one iteration have the same shape in every run."""
        sources = self.ctx.sources_of_shapes
        return sources.source_of(x) == sources.source_of(y)

    def known_value(self, x: Output) -> Any | None:
        """Static value of a tensor, or None."""
        return self.ctx.static.value(x)

    def zeros_like(self, x: Output) -> Output:
        """Zeros of the shape and type of a tensor, live where it is."""
        if not _is_resource(x):
            return self.add("ZerosLike", (x,), "zeros", {})
        # a handle that passes a Switch may be dead; a static shape never is
        shape = self.runtime_shape(x, dtypes.int32) if x.node.inputs else self.shape(x)
        return self._zeros(x, shape)

    def zeros_from_shape(self, x: Output) -> Output:
        """Zeros of the shape and type of a tensor, computed from its shape alone."""
        return self._zeros(x, self.shape(x))

    def _zeros(self, x: Output, shape: Output) -> Output:
        dtype = x.dtype
        if _is_resource(x):
            dtype, _ = variable_of_handle(self.ctx.graph, _variable_node(x).output())
        if dtype is None:
            raise _unknown_variable(x)
        return self.add("Fill", (shape, self.const(0, dtype.base)), "zeros", {})

    # -- interface to the scopes of inner loops --------------------------------------------------

    def scopes(self) -> list[GradientScope]:
        """This scope and the scopes that contain it, up to that of the root frame."""
        scopes = [self]
        while (outer := scopes[-1].outer) is not None:
            scopes.append(outer)
        return scopes

    @property
    def top(self) -> GradientScope:
        """The scope of the root frame."""
        return self.scopes()[-1]

    def capture_outer(self, x: Output) -> Output:
        """A tensor from the root frame, available in this scope."""
        for scope in reversed(self.scopes()):
            x = scope.enter(x)
        return x

    def enter(self, x: Output) -> Output:
        """A tensor of the outer scope, available in this scope."""
        return x

    def enter_forward(self, x: Output) -> Output:
        """A tensor from the root frame, available to forward nodes of this scope."""
        return x

    def start_after(self) -> list[Node]:
        """Control inputs of the start of an inner loop's trip counter."""
        return []

    def wait_for(self, finished: Callable[[], Node], guard: PathCondition) -> None:
        """Wait for an inner backward loop that is entered under a guard.

        `finished` adds the node that runs when the loop has ended. The top waits for nothing.
        """

    def residual_decisions(self, decisions: Iterable[BranchDecision]) -> list[BranchDecision]:
        """Drop the decisions implied by this scope."""
        return list(decisions)

    def push(self, stack: Output, x: Output) -> Node:
        """Push a gradient on a stack."""
        return self.ctx.add("StackPushV2", [stack, x], "g_acc_push")

    def pop(self, handle: Output, push: Node) -> Output:
        """Pop the value that a node pushed."""
        dtype = push.inputs[1].dtype
        assert dtype is not None
        return self.ctx.add("StackPopV2", [handle], "g_acc_pop", elem_type=dtype.base).output()

    def clone_const(self, node: Node) -> Output:
        """A copy of a Const of a loop."""
        key = ("again", node)
        x = self._cache.get(key)
        if x is None:
            attrs = {name: node.attr(name) for name in ("dtype", "value")}
            x = self._cache[key] = self.ctx.add("Const", (), "Const", **attrs).output()
        return x

    def switch(self, x: Output, pred: Output, sides: int) -> Node:
        """Add a Switch with this number of sides, or a _SwitchN if its predicate is a number."""
        if pred.dtype is dtypes.bool_:
            return self.ctx.add("Switch", (x, pred), "Switch")
        return self.ctx.add("_SwitchN", (x, pred), "Switch", num_outs=sides)

    def guarded_by(self, x: Output, decisions: Iterable[BranchDecision]) -> Output:
        """A tensor that is live only under these branch decisions."""
        for decision in decisions:
            key = ("Switch", x, self.forward_value(decision.pred))
            if key not in self._cache:
                self._cache[key] = self.switch(x, key[2], decision.test.branches).output()
            x = self._cache[key].node.output(decision.output.port)
        return x

    def guarded_within(self, x: Output, inner: PathCondition, outer: PathCondition) -> Output:
        """A tensor, live under `outer`, that is live only under `inner`."""
        if not inner.starts_with(outer):
            return self.guarded_by(x, inner.beyond(outer))
        trail: list[PathCondition] = []
        guarded = None
        while guarded is None and inner is not outer:
            guarded = self._cache.get(("guarded", x, inner))
            if guarded is None:
                trail.append(inner)
                assert inner.outer is not None
                inner = inner.outer
        guarded = guarded or x
        for condition in reversed(trail):
            assert condition.decision is not None
            guarded = self.guarded_by(guarded, [condition.decision])
            self._cache["guarded", x, condition] = guarded
        return guarded

    # -- inputs ----------------------------------------------------------------------------------

    def _tensors(self, inputs: Iterable[Any]) -> tuple[Output, ...]:
        """Inputs with numbers replaced by constants of the type of the first tensor."""
        items = tuple(inputs)
        for item in items:
            if type(item) is not Output:
                return tuple(self._with_constants(items))
        return items

    def _with_constants(self, inputs: Iterable[Any]) -> Iterator[Output]:
        items = tuple(_flatten(inputs))
        dtype = next((item.dtype for item in items if isinstance(item, Output)), None)
        assert dtype is not None, "a number needs a tensor among the inputs"
        for item in items:
            yield item if isinstance(item, Output) else self.const(item, dtype.base)


def _encoded_attributes(attrs: dict[str, Any]) -> dict[str, Any]:
    """Attributes as stored in nodes: text as bytes."""
    return {key: item.encode() if isinstance(item, str) else item for key, item in attrs.items()}


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
    """The node that created a variable's handle. Raises Unsupported if it is unknown."""
    source = handle
    while role_of(source.node) or not source.node.attrs.get("dtype"):
        if not source.node.inputs:
            raise _unknown_variable(handle)
        # an identity of several tensors returns each at the port of its input
        slot = source.port if is_identity(source.node) else 0
        source = source.node.inputs[slot]
    return source.node


def _unknown_variable(handle: Output) -> Unsupported:
    message = f"the dtype of the variable of {handle.name} is unknown"
    return Unsupported(message, node=handle.node, code="CFG502")


def _is_resource(x: Output) -> bool:
    dtype = x.dtype
    return dtype is not None and dtype.kind == "resource"
