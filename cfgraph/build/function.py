"""Functions that are written once and called often."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from cfgraph.build.blame import misuse
from cfgraph.build.body import Body
from cfgraph.build.functional import add_functional, base_dtype
from cfgraph.build.structure import Flat, as_name, flatten, pack
from cfgraph.build.tensor import Operation, Tensor
from cfgraph.ir.attrs import Func
from cfgraph.ir.graph import Output
from cfgraph.ir.shapes import UNKNOWN, Shape

if TYPE_CHECKING:
    from cfgraph.build.builder import Builder


class _Written(NamedTuple):
    """A function as it was written for arguments of one kind."""

    name: str
    body: Body
    result: Flat
    outputs: list[Output]
    op: str

    @property
    def shapes(self) -> list[Shape]:
        """The shapes of what it gives."""
        return [self.body.shapes.get(item, UNKNOWN) for item in self.outputs]


class BuiltFunction:
    """A Python function whose calls are calls in the graph.

    It is run once for each kind of arguments: their structure, types and shapes. What it reads
    from outside is handed to every call.
    """

    def __init__(self, builder: Builder, function: Callable[..., Any], name: str) -> None:
        self.builder = builder
        self.function = function
        self.name = name
        self.home = builder.body
        self._written: dict[Any, _Written | None] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Add a call; what the function gives."""
        caller, flat = self.builder.body, flatten(self._bound(args, kwargs))
        tensors = [
            self.builder.tensor(leaf, name=f"{self.name}/{as_name(path)}")
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
            raise misuse(message, hint="write it as a loop")
        captured = [Tensor(self.home, outer) for outer in written.body.captures]
        inputs = [caller.resolve(item) for item in (*tensors, *captured)]
        return self._call(caller, written, inputs)

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments by the names of the parameters."""
        try:
            bound = inspect.signature(self.function).bind(*args, **kwargs)
        except TypeError as error:
            message = f"function {self.name!r}: {error}"
            raise misuse(message) from None
        bound.apply_defaults()
        return dict(bound.arguments)

    def _write(self, flat: Flat, tensors: list[Tensor]) -> _Written:
        builder, library = self.builder, self.builder.graph.functions
        name = builder.function_name(self.name)
        body = Body(builder, self.home, f"function {self.name!r}")
        arguments = [
            body.argument(as_name(path), item.dtype.base, item.shape)
            for path, item in zip(flat.paths, tensors, strict=True)
        ]
        given = pack(flat.structure, [Tensor(body, item) for item in arguments])
        bound = inspect.signature(self.function).bind_partial()
        bound.arguments.update(given)
        with builder.writing(body):
            result = flatten(self.function(*bound.args, **bound.kwargs))
            for operation in result.operations:
                body.require(operation)
            leaves = [builder.tensor(leaf) for leaf in result.leaves]
            outputs = [body.resolve(leaf) for leaf in leaves]
        arguments += body.captures.values()
        names = [as_name(path, "output") for path in result.paths]
        library[name] = body.define(name, arguments, outputs, names, library)
        stateful = library[name].definition.stateful
        op = "StatefulPartitionedCall" if stateful else "PartitionedCall"
        return _Written(name, body, result, outputs, op)

    def _call(self, caller: Body, written: _Written, inputs: list[Output]) -> Any:
        attrs = {
            "Tin": tuple(base_dtype(item) for item in inputs),
            "Tout": tuple(base_dtype(item) for item in written.outputs),
            "f": Func(written.name),
        }
        node = add_functional(caller, (written.body,), written.op, inputs, self.name, attrs)
        if not written.outputs:
            return Operation(caller, node)
        for port, shape in enumerate(written.shapes):
            caller.shapes[Output(node, port)] = shape
        tensors = [Tensor(caller, Output(node, port)) for port in range(len(written.outputs))]
        return pack(written.result.structure, tensors)
