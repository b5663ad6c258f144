"""Variables that outlive a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cfgraph.build.blame import misuse
from cfgraph.build.tensor import Operation, Operators, Tensor
from cfgraph.ir.dtypes import DType
from cfgraph.ir.shapes import Shape

if TYPE_CHECKING:
    from cfgraph.build.builder import Builder


class Variable(Operators):
    """A variable behind a resource handle; where a tensor is wanted, it is read.

    `initializer` gives it its first value; Builder.initializer runs those of all variables.
    """

    __slots__ = ("builder", "dtype", "handle", "initializer", "shape")

    def __init__(self, builder: Builder, initial: Any, dtype: Any, shape: Any, name: str) -> None:
        self.builder = builder
        body = builder.body
        if body.parent is not None:
            message = f"the variable {name!r} is made in {body.label}"
            raise misuse(message, hint="make it outside, and read or assign it there")
        unique = body.name_for(name)
        first = builder.tensor(initial, dtype, name=f"{name}/initial_value")
        self.dtype: DType = first.dtype.base
        self.shape: Shape = first.shape if shape is None else shape
        attrs = {"dtype": self.dtype, "shape": self.shape, "shared_name": unique.encode()}
        self.handle: Tensor = Tensor(body, body.add("VarHandleOp", (), unique, attrs).output())
        self.initializer: Operation = self._assign("AssignVariableOp", first, "Assign")

    @property
    def name(self) -> str:
        """The name of the node that makes its handle."""
        return self.handle.op.name

    def as_tensor(self) -> Tensor:
        """The value at this place of the program."""
        return self.read()

    def read(self, name: str | None = None) -> Tensor:
        """The value when this runs."""
        given = {"dtype": self.dtype, "name": name or f"{self.name}/Read"}
        found: Tensor = self.builder.call("ReadVariableOp", (self.handle,), given)
        found.body.shapes[found.output] = self.shape
        return found

    def assign(self, value: Any, name: str | None = None) -> Operation:
        """Give it a value."""
        return self._assign("AssignVariableOp", value, "Assign", name)

    def assign_add(self, value: Any, name: str | None = None) -> Operation:
        """Add to its value."""
        return self._assign("AssignAddVariableOp", value, "AssignAdd", name)

    def assign_sub(self, value: Any, name: str | None = None) -> Operation:
        """Take from its value."""
        return self._assign("AssignSubVariableOp", value, "AssignSub", name)

    def _assign(self, op: str, value: Any, suffix: str, name: str | None = None) -> Operation:
        given = {"dtype": self.dtype, "name": name or f"{self.name}/{suffix}"}
        made: Operation = self.builder.call(op, (self.handle, value), given)
        return made

    def __repr__(self) -> str:
        return f"<variable {self.name!r} {self.dtype}{self.shape}>"
