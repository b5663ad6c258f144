"""`cond` and `case`: one node with a function per branch."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cfgraph.build.body import BodyBuilder
from cfgraph.build.conversions import natural_dtype
from cfgraph.build.function import LOWERING_ATTRS, add_functional_node, base_dtype, share_captures
from cfgraph.build.structure import (
    FlattenedValue,
    StructureMismatch,
    flatten,
    leaves_in_order,
    pack,
    path_as_name,
)
from cfgraph.build.tensor import BuilderTensor, Operation, TensorOperators
from cfgraph.build.user_frame import misuse_error
from cfgraph.ir import dtypes
from cfgraph.ir.attrs import Func
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Output
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape

if TYPE_CHECKING:
    from cfgraph.build.builder import Builder


class BranchWriter:
    """Branches of one conditional: built one by one, then merged."""

    def __init__(self, builder: Builder, name: str, labels: Sequence[str]) -> None:
        self.builder = builder
        self.outer = builder.body
        self.name = name
        self.labels = labels
        self.functions = [builder.function_name(f"{name}_{label}") for label in labels]
        self.bodies: list[BodyBuilder] = []
        self.results: list[FlattenedValue] = []

    def open_branch(self) -> BodyBuilder:
        """Start the body of the next branch."""
        label = f"the {self.labels[len(self.bodies)]} branch of {self.name!r}"
        self.bodies.append(BodyBuilder(self.builder, self.outer, label))
        return self.bodies[-1]

    def set_result(self, result: Any) -> None:
        """Set the result of the current branch."""
        self.results.append(flatten(result))
        for operation in self.results[-1].operations:
            self.bodies[-1].require(operation)

    def finish(self, op: str, selector: BuilderTensor) -> Any:
        """Add the node; returns its outputs in the structure of the branches' results."""
        leaves = self._leaves()
        types = [self._dtype(index, row) for index, row in enumerate(zip(*leaves, strict=True))]
        outputs = [
            self._outputs(body, row, types) for body, row in zip(self.bodies, leaves, strict=True)
        ]
        shapes = tuple(self._shape(row) for row in zip(*outputs, strict=True))
        captured = share_captures(self.outer, self.bodies)
        stateful = self._define(captured, outputs)
        node = add_functional_node(
            self.outer,
            self.bodies,
            op if stateful else f"Stateless{op}",
            [self.outer.resolve(selector), *captured],
            self.name,
            self._attrs(op, captured, types, shapes),
        )
        if not types:
            return Operation(self.outer, node)
        tensors = [BuilderTensor(self.outer, Output(node, port)) for port in range(len(types))]
        return pack(self.results[0].structure, tensors)

    # -- results ---------------------------------------------------------------------------------

    def _leaves(self) -> list[tuple[Any, ...]]:
        first = self.results[0]
        rows = [first.leaves]
        for label, result in zip(self.labels[1:], self.results[1:], strict=True):
            try:
                rows.append(leaves_in_order(first.structure, result))
            except StructureMismatch as mismatch:
                where = f" at output {mismatch.path}" if mismatch.path else ""
                message = (
                    f"the branches of {self.name!r} differ{where}: {mismatch.expected} in "
                    f"{self.labels[0]!r}, {mismatch.actual} in {label!r}"
                )
                hint = "return the same structure from all branches"
                raise misuse_error(message, hint=hint) from None
        return rows

    def _dtype(self, index: int, row: tuple[Any, ...]) -> DType:
        """The type of one output: the type of the branches' tensors, or the constants' natural
        type.
        """
        by_label = {
            label: leaf.dtype.base
            for label, leaf in zip(self.labels, row, strict=True)
            if isinstance(leaf, TensorOperators)
        }
        if len(set(by_label.values())) > 1:
            described = ", ".join(f"{dtype} in {label!r}" for label, dtype in by_label.items())
            message = (
                f"output {self._path(index)} of {self.name!r} has different types: {described}"
            )
            raise misuse_error(message, hint="insert a Cast in one of the branches")
        if by_label:
            return next(iter(by_label.values()))
        dtype = natural_dtype(row)
        if dtype is None:
            message = f"output {self._path(index)} of {self.name!r} has no common type: {row}"
            raise misuse_error(message, hint="return values of one type from all branches")
        return dtype

    def _path(self, index: int) -> str:
        return self.results[0].paths[index] or "0"

    def _outputs(self, body: BodyBuilder, row: tuple[Any, ...], types: list[DType]) -> list[Output]:
        with self.builder.writing(body):
            tensors = [
                self.builder.tensor(leaf, dtype, name=f"output_{index}")
                for index, (leaf, dtype) in enumerate(zip(row, types, strict=True))
            ]
            return [body.resolve(tensor) for tensor in tensors]

    def _shape(self, row: Sequence[Output]) -> Shape:
        shapes = [
            body.shapes.get(item, UNKNOWN_SHAPE)
            for body, item in zip(self.bodies, row, strict=True)
        ]
        return functools.reduce(Shape.generalize, shapes)

    # -- functions -------------------------------------------------------------------------------

    def _define(self, captured: list[Output], outputs: list[list[Output]]) -> bool:
        """Add the branches to the library; return true if one of them has side effects."""
        library = self.builder.graph.functions
        names = [path_as_name(path, "output") for path in self.results[0].paths]
        for name, body, row in zip(self.functions, self.bodies, outputs, strict=True):
            arguments = [body.captures[outer] for outer in captured]
            library[name] = body.define(name, arguments, row, names, library)
        return any(library[name].definition.stateful for name in self.functions)

    def _attrs(
        self, op: str, captured: list[Output], types: list[DType], shapes: tuple[Shape, ...]
    ) -> dict[str, Any]:
        functions = [Func(name) for name in self.functions]
        branches: dict[str, Any] = {"branches": tuple(functions)}
        if op == "If":
            branches = dict(zip(("then_branch", "else_branch"), functions, strict=True))
        return {
            **branches,
            **LOWERING_ATTRS,
            "Tin": tuple(base_dtype(item) for item in captured),
            "Tout": tuple(types),
            "output_shapes": shapes,
        }


def scalar_selector(builder: Builder, value: Any, dtype: DType, what: str) -> BuilderTensor:
    """A scalar tensor that selects a branch. Raises UsageError if it is not a scalar of this
    type.
    """
    is_tensor = isinstance(value, TensorOperators)
    tensor: BuilderTensor = (
        value.as_tensor() if is_tensor else builder.tensor(value, dtype, name=what)
    )
    if tensor.dtype.base is not dtype:
        message = f"the {what} {tensor.name} is {tensor.dtype}, not {dtype}"
        hint = "compare it with something, as in `x > 0`" if dtype is dtypes.bool_ else "use Cast"
        raise misuse_error(message, hint=hint)
    if tensor.shape.rank not in (None, 0):
        message = f"the {what} {tensor.name} has shape {tensor.shape}, expected a scalar"
        raise misuse_error(message, hint="reduce it (with All or Any), or select one element")
    return tensor
