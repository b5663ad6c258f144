"""Functions of the Builder, and functional nodes that call bodies."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cfgraph.build.body import BodyBuilder
from cfgraph.build.structure import FlattenedValue, flatten, pack, path_as_name
from cfgraph.build.tensor import BuilderTensor, Operation
from cfgraph.build.user_frame import misuse_error
from cfgraph.ir.attrs import Func
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape

if TYPE_CHECKING:
    from cfgraph.build.builder import Builder


def share_captures(outer: BodyBuilder, bodies: Sequence[BodyBuilder]) -> list[Output]:
    """Give each body an argument for each tensor captured by any of them; returns these tensors."""
    captured = list(dict.fromkeys(item for body in bodies for item in body.captures))
    for body in bodies:
        for item in captured:
            body.capture(item, outer)
    return captured


def add_functional_node(
    outer: BodyBuilder,
    bodies: Sequence[BodyBuilder],
    op: str,
    inputs: Sequence[Output],
    name: str,
    attrs: Mapping[str, Any],
) -> Node:
    """Add the node that calls the bodies; it inherits their outer control inputs."""
    node = outer.add(op, inputs, outer.name_for(name), attrs)
    for body in bodies:
        for operation in body.outer_controls.values():
            if operation.body is outer:
                outer.graph.add_control(node, operation.node)
            else:
                outer.outer_controls[operation.node] = operation
    return node


# TensorFlow lowers conditionals and loops that have this attribute
LOWERING_ATTRS: Final = {"_lower_using_switch_merge": True}


def base_dtype(output: Output) -> DType:
    """The type of a tensor as a function argument, without reference."""
    dtype = output.dtype
    assert dtype is not None
    return dtype.base


class _TracedFunction(NamedTuple):
    """A function traced for arguments of one signature."""

    name: str
    body: BodyBuilder
    result: FlattenedValue
    outputs: list[Output]
    op: str

    @property
    def shapes(self) -> list[Shape]:
        """Shapes of the outputs, as far as tracing the function has inferred them."""
        return [self.body.shapes.get(item, UNKNOWN_SHAPE) for item in self.outputs]


class BuiltFunction:
    """A Python function whose calls become calls in the graph.

    It is traced once per signature: structure, types, and shapes of the arguments. Captured outer
    tensors are passed to every call.
    """

    def __init__(self, builder: Builder, function: Callable[..., Any], name: str) -> None:
        self.builder = builder
        self.function = function
        self.name = name
        self.home = builder.body
        self._written: dict[Any, _TracedFunction | None] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Add a call; returns the function's result."""
        caller, flat = self.builder.body, flatten(self._bound(args, kwargs))
        tensors = [
            self.builder.tensor(leaf, name=f"{self.name}/{path_as_name(path)}")
            for leaf, path in zip(flat.leaves, flat.paths, strict=True)
        ]
        key = (flat.structure, tuple((item.dtype, item.shape) for item in tensors))
        if key not in self._written:
            self._written[key] = None
            try:
                self._written[key] = self._write(flat, tensors)
            finally:
                if self._written[key] is None:
                    del self._written[key]
        written = self._written[key]
        if written is None:
            message = f"function {self.name!r} calls itself"
            raise misuse_error(message, hint="recursion is not supported; write a loop")
        captured = [BuilderTensor(self.home, outer) for outer in written.body.captures]
        inputs = [caller.resolve(item) for item in (*tensors, *captured)]
        return self._call(caller, written, inputs)

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Arguments by parameter name."""
        try:
            bound = inspect.signature(self.function).bind(*args, **kwargs)
        except TypeError as error:
            message = f"function {self.name!r}: {error}"
            raise misuse_error(message) from None
        bound.apply_defaults()
        return dict(bound.arguments)

    def _write(self, flat: FlattenedValue, tensors: list[BuilderTensor]) -> _TracedFunction:
        builder, library = self.builder, self.builder.graph.functions
        name = builder.function_name(self.name)
        body = BodyBuilder(builder, self.home, f"function {self.name!r}")
        arguments = [
            body.argument(path_as_name(path), item.dtype.base, item.shape)
            for path, item in zip(flat.paths, tensors, strict=True)
        ]
        values = pack(flat.structure, [BuilderTensor(body, item) for item in arguments])
        bound = inspect.signature(self.function).bind_partial()
        bound.arguments.update(values)
        with builder.writing(body):
            result = flatten(self.function(*bound.args, **bound.kwargs))
            for operation in result.operations:
                body.require(operation)
            leaves = [builder.tensor(leaf) for leaf in result.leaves]
            outputs = [body.resolve(leaf) for leaf in leaves]
        arguments += body.captures.values()
        names = [path_as_name(path, "output") for path in result.paths]
        library[name] = body.define(name, arguments, outputs, names, library)
        stateful = library[name].definition.stateful
        op = "StatefulPartitionedCall" if stateful else "PartitionedCall"
        return _TracedFunction(name, body, result, outputs, op)

    def _call(self, caller: BodyBuilder, written: _TracedFunction, inputs: list[Output]) -> Any:
        attrs = {
            "Tin": tuple(base_dtype(item) for item in inputs),
            "Tout": tuple(base_dtype(item) for item in written.outputs),
            "f": Func(written.name),
        }
        node = add_functional_node(caller, (written.body,), written.op, inputs, self.name, attrs)
        if not written.outputs:
            return Operation(caller, node)
        for port, shape in enumerate(written.shapes):
            caller.shapes[Output(node, port)] = shape
        tensors = [
            BuilderTensor(caller, Output(node, port)) for port in range(len(written.outputs))
        ]
        return pack(written.result.structure, tensors)
