"""`while_loop`: one node with a function for the condition and one for the body."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cfgraph.build.body import BodyBuilder
from cfgraph.build.conditional import scalar_selector
from cfgraph.build.conversions import as_shape
from cfgraph.build.function import LOWERING_ATTRS, add_functional_node, base_dtype, share_captures
from cfgraph.build.structure import StructureMismatch, flatten, leaves_in_order, pack, path_as_name
from cfgraph.build.tensor import BuilderTensor, Operation, TensorOperators
from cfgraph.build.user_frame import misuse_error
from cfgraph.ir import dtypes
from cfgraph.ir.attrs import Func
from cfgraph.ir.graph import Output
from cfgraph.ir.names import did_you_mean
from cfgraph.ir.shapes import SCALAR_SHAPE, UNKNOWN_SHAPE, Shape
from cfgraph.ops.opdef.op import SWAP_MEMORY_ATTR

if TYPE_CHECKING:
    from cfgraph.build.builder import Builder

_COUNTER_NAME: Final = "loop_counter"


class LoopWriter:
    """One loop: its variables, then its condition and body under construction."""

    def __init__(
        self, builder: Builder, name: str, body: Callable[..., Any], loop_vars: Any, shapes: Any
    ) -> None:
        self.builder = builder
        self.outer = builder.body
        self.name = name
        self.spread = isinstance(loop_vars, list | tuple) and not hasattr(loop_vars, "_fields")
        self.start = flatten(loop_vars)
        self.parameters = _parameter_names(body) if self.spread else []
        self.paths = [_parameter_path(path, self.parameters) or "0" for path in self.start.paths]
        self.inputs = [
            builder.tensor(leaf, name=f"{name}/{path_as_name(path, 'var')}")
            for leaf, path in zip(self.start.leaves, self.paths, strict=True)
        ]
        self.shapes = self._shapes(shapes)
        self.functions = [builder.function_name(f"{name}_{role}") for role in ("cond", "body")]
        self.cond = self._open("the condition")
        self.body = self._open("the body")
        self.swap_memory = False
        self.back_prop = True
        self.condition: BuilderTensor | None = None
        self.results: list[Output] = []

    def _open(self, what: str) -> BodyBuilder:
        body = BodyBuilder(self.builder, self.outer, f"{what} of {self.name!r}")
        for path, item, shape in zip(self.paths, self.inputs, self.shapes, strict=True):
            body.argument(path_as_name(path, "var"), item.dtype.base, shape)
        return body

    def _shapes(self, invariants: Any) -> list[Shape]:
        """Shapes of the variables: the initial ones, unless `invariants` are specified."""
        if invariants is None:
            return [item.shape for item in self.inputs]
        if isinstance(invariants, dict):
            invariants = self._named_shapes(invariants)
        listed = list(invariants) if isinstance(invariants, list | tuple) else [invariants]
        if len(listed) != len(self.inputs):
            message = f"{self.name!r} has {len(self.inputs)} loop variables, not {len(listed)}"
            raise misuse_error(
                message, hint="pass one shape or None per variable in shape_invariants"
            )
        shapes = [as_shape(shape) for shape in listed]
        for path, item, shape in zip(self.paths, self.inputs, shapes, strict=True):
            if not _covers(shape, item.shape):
                message = (
                    f"loop variable {path!r} has the initial shape {item.shape}, expected {shape}"
                )
                raise misuse_error(message, hint="shape_invariants also cover the initial values")
        return shapes

    def _named_shapes(self, invariants: dict[str, Any]) -> list[Any]:
        """One shape per variable: that specified for its name, or the initial one."""
        for name in invariants:
            if name not in self.paths:
                message = f"{self.name!r} has no loop variable {name!r}"
                hint = did_you_mean(name, self.paths) or f"it has {', '.join(self.paths)}"
                raise misuse_error(message, hint=hint)
        return [
            invariants.get(path, item.shape)
            for path, item in zip(self.paths, self.inputs, strict=True)
        ]

    def arguments(self, body: BodyBuilder) -> tuple[Any, ...]:
        """Arguments for the Python function of the condition or the body."""
        tensors = [BuilderTensor(body, item) for item in body.arguments[: len(self.inputs)]]
        packed = pack(self.start.structure, tensors)
        return tuple(packed) if self.spread else (packed,)

    def set_condition(self, result: Any) -> None:
        """Set the result of the condition."""
        if result is None or isinstance(result, Operation | list | tuple | dict):
            message = f"the condition of {self.name!r} returns {result!r}, expected one bool"
            raise misuse_error(message)
        self.condition = scalar_selector(self.builder, result, dtypes.bool_, "condition")

    def set_body_results(self, result: Any) -> None:
        """Set the result of the body: the variables of the next iteration."""
        if self.spread and len(self.start.structure.parts) == 1 and not _is_sequence(result):
            result = (result,)
        flat = flatten(result)
        for operation in flat.operations:
            self.body.require(operation)
        if not flat.leaves and not self.inputs:
            return
        try:
            leaves = leaves_in_order(self.start.structure, flat)
        except StructureMismatch as mismatch:
            path = _parameter_path(mismatch.path, self.parameters)
            what = f"loop variable {path!r} of {self.name!r} is"
            what = what if path else f"the loop variables of {self.name!r} are"
            message = (
                f"{what} {mismatch.expected} before the loop, {mismatch.actual} after an iteration"
            )
            hint = "return the loop variables in the structure of loop_vars"
            raise misuse_error(message, hint=hint) from None
        self.results = [self._result(index, leaf) for index, leaf in enumerate(leaves)]

    def _result(self, index: int, leaf: Any) -> Output:
        dtype, path = self.inputs[index].dtype.base, self.paths[index]
        if isinstance(leaf, TensorOperators) and leaf.dtype.base is not dtype:
            message = (
                f"loop variable {path!r} of {self.name!r} is {dtype} before the loop and "
                f"{leaf.dtype.base} after an iteration"
            )
            raise misuse_error(message, hint="insert a Cast, or start with the other type")
        output = self.body.resolve(
            self.builder.tensor(leaf, dtype, name=f"{path_as_name(path, 'var')}_next")
        )
        shape = self.body.shapes.get(output, UNKNOWN_SHAPE)
        if not _covers(self.shapes[index], shape):
            message = (
                f"loop variable {path!r} of {self.name!r} has shape {self.shapes[index]} before "
                f"the loop and {shape} after an iteration"
            )
            dims = self.shapes[index].generalize(shape).dims
            invariant = None if dims is None else list(dims)
            raise misuse_error(
                message, hint=f"shape_invariants={{{path!r}: {invariant}}}, if the shape may change"
            )
        return output

    # -- the node --------------------------------------------------------------------------------

    def finish(self, parallel_iterations: int, maximum: Any) -> Any:
        """Add the node; returns the final loop variables."""
        counter = self._counter(maximum)
        user = [self._variable(index) for index in range(len(self.inputs))]
        rows = [*counter, *user, *self._invariants()]
        stateful = self._define(rows)
        cond, body = (Func(name) for name in self.functions)
        attrs = {
            "T": tuple(base_dtype(row.start) for row in rows),
            "cond": cond,
            "body": body,
            "output_shapes": tuple(row.shape for row in rows),
            "parallel_iterations": parallel_iterations,
            **LOWERING_ATTRS,
            **({SWAP_MEMORY_ATTR: True} if self.swap_memory else {}),
        }
        op = "While" if stateful else "StatelessWhile"
        inputs = [row.start for row in rows]
        node = add_functional_node(self.outer, (self.cond, self.body), op, inputs, self.name, attrs)
        if not user:
            return Operation(self.outer, node)
        ports = range(len(counter), len(counter) + len(user))
        outputs = [BuilderTensor(self.outer, Output(node, port)) for port in ports]
        if not self.back_prop:
            outputs = [self.builder.call("StopGradient", (output,), {}) for output in outputs]
        return pack(self.start.structure, outputs)

    def _variable(self, index: int) -> _CarriedTensor:
        return _CarriedTensor(
            self.outer.resolve(self.inputs[index]),
            self.shapes[index],
            self.cond.arguments[index],
            self.body.arguments[index],
            self.results[index],
        )

    def _counter(self, maximum: Any) -> list[_CarriedTensor]:
        """A counter, if there is a maximum or only resources are carried.

        TensorFlow requires every loop to carry a tensor that is not a resource.
        """
        going = [item.dtype for item in self.inputs]
        going += [base_dtype(item) for body in (self.cond, self.body) for item in body.captures]
        if maximum is None and any(dtype is not dtypes.resource for dtype in going):
            return []
        dtype = maximum.dtype.base if isinstance(maximum, TensorOperators) else dtypes.int32
        start = self.builder.tensor(0, dtype, name=f"{self.name}/{_COUNTER_NAME}")
        in_cond, in_body = (
            body.argument(_COUNTER_NAME, dtype, SCALAR_SHAPE) for body in (self.cond, self.body)
        )
        with self.builder.writing(self.cond):
            if maximum is not None:
                limit = scalar_selector(self.builder, maximum, dtype, "maximum_iterations")
                self.condition = (BuilderTensor(self.cond, in_cond) < limit) & self.condition
        with self.builder.writing(self.body):
            stepped = self.body.resolve(BuilderTensor(self.body, in_body) + 1)
        return [_CarriedTensor(self.outer.resolve(start), SCALAR_SHAPE, in_cond, in_body, stepped)]

    def _invariants(self) -> list[_CarriedTensor]:
        """Outer tensors that the loop reads; they are carried unchanged."""
        captured = share_captures(self.outer, (self.cond, self.body))
        return [
            _CarriedTensor(
                outer,
                self.outer.shapes.get(outer, UNKNOWN_SHAPE),
                self.cond.captures[outer],
                self.body.captures[outer],
                self.body.captures[outer],
            )
            for outer in captured
        ]

    def _define(self, rows: list[_CarriedTensor]) -> bool:
        """Add condition and body to the library; return true if one of them has side effects."""
        library = self.builder.graph.functions
        cond, body = self.functions
        going = [self.cond.resolve(self.condition)] if self.condition is not None else []
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


class _CarriedTensor(NamedTuple):
    """One tensor carried by the loop: its initial value, and its counterparts in the functions."""

    start: Output
    shape: Shape
    in_cond: Output
    in_body: Output
    after: Output


def _covers(wide: Shape, narrow: Shape) -> bool:
    """True if `narrow` is at least as specific as `wide`."""
    if wide.dims is None or narrow.dims is None:
        return wide.dims is None
    return len(wide.dims) == len(narrow.dims) and all(
        a is None or a == b for a, b in zip(wide.dims, narrow.dims, strict=True)
    )


def _is_sequence(value: Any) -> bool:
    return isinstance(value, list | tuple) and not hasattr(value, "_fields")


def _parameter_names(function: Callable[..., Any]) -> list[str]:
    """Parameter names of a function, if it has a signature."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def _parameter_path(path: str, parameters: list[str]) -> str:
    """A path that starts with the parameter's name, if known, instead of its index."""
    number = re.match(r"\d+", path)
    if number is None or int(number[0]) >= len(parameters):
        return path
    return parameters[int(number[0])] + path[number.end() :]
