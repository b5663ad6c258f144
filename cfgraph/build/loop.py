"""`while_loop`: one node with a function for the condition and one for the body."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cfgraph.build.attributes import as_shape
from cfgraph.build.blame import misuse
from cfgraph.build.body import Body
from cfgraph.build.conditional import scalar
from cfgraph.build.functional import LOWERED, add_functional, base_dtype, share_captures
from cfgraph.build.structure import Different, as_name, flatten, in_order_of, pack
from cfgraph.build.tensor import Operation, Operators, Tensor
from cfgraph.ir import dtypes
from cfgraph.ir.attrs import Func
from cfgraph.ir.graph import Output
from cfgraph.ir.names import did_you_mean
from cfgraph.ir.shapes import SCALAR, UNKNOWN, Shape

if TYPE_CHECKING:
    from cfgraph.build.builder import Builder

_COUNTER: Final = "loop_counter"


class Loop:
    """One loop: its variables, then its condition and its body as they are written."""

    def __init__(
        self, builder: Builder, name: str, body: Callable[..., Any], loop_vars: Any, shapes: Any
    ) -> None:
        self.builder = builder
        self.outer = builder.body
        self.name = name
        self.spread = isinstance(loop_vars, list | tuple) and not hasattr(loop_vars, "_fields")
        self.start = flatten(loop_vars)
        self.parameters = _parameters(body) if self.spread else []
        self.paths = [_named(path, self.parameters) or "0" for path in self.start.paths]
        self.inputs = [
            builder.tensor(leaf, name=f"{name}/{as_name(path, 'var')}")
            for leaf, path in zip(self.start.leaves, self.paths, strict=True)
        ]
        self.shapes = self._shapes(shapes)
        self.functions = [builder.function_name(f"{name}_{part}") for part in ("cond", "body")]
        self.cond = self._open("the condition")
        self.body = self._open("the body")
        self.going: Tensor | None = None
        self.results: list[Output] = []

    def _open(self, what: str) -> Body:
        body = Body(self.builder, self.outer, f"{what} of {self.name!r}")
        for path, item, shape in zip(self.paths, self.inputs, self.shapes, strict=True):
            body.argument(as_name(path, "var"), item.dtype.base, shape)
        return body

    def _shapes(self, given: Any) -> list[Shape]:
        """The shapes that the variables keep: those at the beginning, unless others are said."""
        if given is None:
            return [item.shape for item in self.inputs]
        if isinstance(given, dict):
            given = self._named_shapes(given)
        said = list(given) if isinstance(given, list | tuple) else [given]
        if len(said) != len(self.inputs):
            message = f"{self.name!r} has {len(self.inputs)} loop variables, not {len(said)}"
            raise misuse(message, hint="say a shape, or None, for each in shape_invariants")
        shapes = [as_shape(shape) for shape in said]
        for path, item, shape in zip(self.paths, self.inputs, shapes, strict=True):
            if not _covers(shape, item.shape):
                message = f"loop variable {path!r} begins as {item.shape}, not as {shape}"
                raise misuse(message, hint="shape_invariants say what holds from the beginning on")
        return shapes

    def _named_shapes(self, given: dict[str, Any]) -> list[Any]:
        """One shape for each variable: what is said by its name, or that of the beginning."""
        for name in given:
            if name not in self.paths:
                message = f"{self.name!r} has no loop variable {name!r}"
                hint = did_you_mean(name, self.paths) or f"it has {', '.join(self.paths)}"
                raise misuse(message, hint=hint)
        return [
            given.get(path, item.shape) for path, item in zip(self.paths, self.inputs, strict=True)
        ]

    def arguments(self, body: Body) -> tuple[Any, ...]:
        """What the condition or the body is called with."""
        tensors = [Tensor(body, item) for item in body.arguments[: len(self.inputs)]]
        packed = pack(self.start.structure, tensors)
        return tuple(packed) if self.spread else (packed,)

    def take_condition(self, result: Any) -> None:
        """What the condition gave."""
        if result is None or isinstance(result, Operation | list | tuple | dict):
            message = f"the condition of {self.name!r} gives {result!r}, not one bool"
            raise misuse(message)
        self.going = scalar(self.builder, result, dtypes.bool_, "condition")

    def take_body(self, result: Any) -> None:
        """What the body gave: the variables of the next iteration."""
        if self.spread and len(self.start.structure.parts) == 1 and not _is_sequence(result):
            result = (result,)
        flat = flatten(result)
        for operation in flat.operations:
            self.body.require(operation)
        if not flat.leaves and not self.inputs:
            return
        try:
            leaves = in_order_of(self.start.structure, flat)
        except Different as found:
            path = _named(found.path, self.parameters)
            what = f"loop variable {path!r} of {self.name!r} is"
            what = what if path else f"the loop variables of {self.name!r} are"
            message = (
                f"{what} {found.wanted} when the loop begins, {found.found} after an iteration"
            )
            hint = "return the loop variables in the structure of loop_vars"
            raise misuse(message, hint=hint) from None
        self.results = [self._result(place, leaf) for place, leaf in enumerate(leaves)]

    def _result(self, place: int, leaf: Any) -> Output:
        wanted, path = self.inputs[place].dtype.base, self.paths[place]
        if isinstance(leaf, Operators) and leaf.dtype.base is not wanted:
            message = (
                f"loop variable {path!r} of {self.name!r} is {wanted} when the loop begins and "
                f"{leaf.dtype.base} after an iteration"
            )
            raise misuse(message, hint="insert a Cast, or begin with the other type")
        output = self.body.resolve(
            self.builder.tensor(leaf, wanted, name=f"{as_name(path, 'var')}_next")
        )
        shape = self.body.shapes.get(output, UNKNOWN)
        if not _covers(self.shapes[place], shape):
            message = (
                f"loop variable {path!r} of {self.name!r} has the shape {self.shapes[place]} when "
                f"the loop begins and {shape} after an iteration"
            )
            kept = self.shapes[place].join(shape).dims
            said = None if kept is None else list(kept)
            raise misuse(message, hint=f"shape_invariants={{{path!r}: {said}}}, if that is meant")
        return output

    # -- the node --------------------------------------------------------------------------------

    def finish(self, parallel_iterations: int, maximum: Any) -> Any:
        """Add the node; the loop variables as they are in the end."""
        counter = self._counter(maximum)
        user = [self._variable(place) for place in range(len(self.inputs))]
        rows = [*counter, *user, *self._invariants()]
        stateful = self._define(rows)
        cond, body = (Func(name) for name in self.functions)
        attrs = {
            "T": tuple(base_dtype(row.start) for row in rows),
            "cond": cond,
            "body": body,
            "output_shapes": tuple(row.shape for row in rows),
            "parallel_iterations": parallel_iterations,
            **LOWERED,
        }
        op = "While" if stateful else "StatelessWhile"
        inputs = [row.start for row in rows]
        node = add_functional(self.outer, (self.cond, self.body), op, inputs, self.name, attrs)
        if not user:
            return Operation(self.outer, node)
        ports = range(len(counter), len(counter) + len(user))
        outputs = [Tensor(self.outer, Output(node, port)) for port in ports]
        return pack(self.start.structure, outputs)

    def _variable(self, place: int) -> _Row:
        return _Row(
            self.outer.resolve(self.inputs[place]),
            self.shapes[place],
            self.cond.arguments[place],
            self.body.arguments[place],
            self.results[place],
        )

    def _counter(self, maximum: Any) -> list[_Row]:
        """A variable that counts, where there is a maximum, or nothing else that goes around.

        TensorFlow wants a variable that is no resource in every loop.
        """
        going = [item.dtype for item in self.inputs]
        going += [base_dtype(item) for body in (self.cond, self.body) for item in body.captures]
        if maximum is None and any(dtype is not dtypes.resource for dtype in going):
            return []
        dtype = maximum.dtype.base if isinstance(maximum, Operators) else dtypes.int32
        start = self.builder.tensor(0, dtype, name=f"{self.name}/{_COUNTER}")
        in_cond, in_body = (
            body.argument(_COUNTER, dtype, SCALAR) for body in (self.cond, self.body)
        )
        with self.builder.writing(self.cond):
            if maximum is not None:
                limit = scalar(self.builder, maximum, dtype, "maximum_iterations")
                self.going = (Tensor(self.cond, in_cond) < limit) & self.going
        with self.builder.writing(self.body):
            stepped = self.body.resolve(Tensor(self.body, in_body) + 1)
        return [_Row(self.outer.resolve(start), SCALAR, in_cond, in_body, stepped)]

    def _invariants(self) -> list[_Row]:
        """What the loop reads from outside and hands around unchanged."""
        captured = share_captures(self.outer, (self.cond, self.body))
        return [
            _Row(
                outer,
                self.outer.shapes.get(outer, UNKNOWN),
                self.cond.captures[outer],
                self.body.captures[outer],
                self.body.captures[outer],
            )
            for outer in captured
        ]

    def _define(self, rows: list[_Row]) -> bool:
        """Put condition and body into the library; true if one of them has side effects."""
        library = self.builder.graph.functions
        cond, body = self.functions
        going = [self.cond.resolve(self.going)] if self.going is not None else []
        library[cond] = self.cond.define(
            cond, [row.in_cond for row in rows], going, ["go_on"], library
        )
        library[body] = self.body.define(
            body,
            [row.in_body for row in rows],
            [row.after for row in rows],
            [f"{row.in_body.node.name}_out" for row in rows],
            library,
        )
        return any(library[name].definition.stateful for name in self.functions)


class _Row(NamedTuple):
    """One tensor that goes around: where it begins, and what stands for it in the functions."""

    start: Output
    shape: Shape
    in_cond: Output
    in_body: Output
    after: Output


def _covers(wide: Shape, narrow: Shape) -> bool:
    """True if all that is known by `wide` is known by `narrow` too."""
    if wide.dims is None or narrow.dims is None:
        return wide.dims is None
    return len(wide.dims) == len(narrow.dims) and all(
        a is None or a == b for a, b in zip(wide.dims, narrow.dims, strict=True)
    )


def _is_sequence(value: Any) -> bool:
    return isinstance(value, list | tuple) and not hasattr(value, "_fields")


def _parameters(function: Callable[..., Any]) -> list[str]:
    """The names of what a function is called with, as far as it says."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def _named(path: str, parameters: list[str]) -> str:
    """A path that begins with a parameter's name where it is known, not with its place."""
    place = re.match(r"\d+", path)
    if place is None or int(place[0]) >= len(parameters):
        return path
    return parameters[int(place[0])] + path[place.end() :]
