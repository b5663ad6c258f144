"""Functions of a library; a definition from a file is decoded on first access."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from cfgraph.ir.signature import ArgDef, AttrDef

# the attribute with which TensorFlow finds a gradient that a program registered
CUSTOM_GRADIENT_ATTR: Final = "_gradient_op_type"


@dataclass(frozen=True, slots=True)
class RegisteredGradient:
    """The gradient of nodes that name it in `_gradient_op_type`: a function of the library.

    Its arguments are the gradients of the node's outputs, and then `captures`: pairs of a function,
    or "" for the graph itself, and a tensor in it. Its results are the gradients of the inputs in
    `slots`. Both are None if the file does not describe them.
    """

    function: str
    captures: tuple[tuple[str, str], ...] | None = None
    slots: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class BodyNode:
    """A node of a function's body; inputs are `arg`, `arg:i`, `node:output:i` or `^node`."""

    name: str
    op: str
    inputs: tuple[str, ...] = ()
    device: str = ""
    attrs: Mapping[str, Any] = field(default_factory=dict)
    origin: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class FunctionDefinition:
    """A function: its signature, its body, and its outputs.

    `returns` maps each output to a tensor of the body, `control_returns` each control output to a
    node; these nodes run even if no output is read. `arg_attrs` are attributes of arguments, by
    index.
    """

    inputs: tuple[ArgDef, ...]
    outputs: tuple[ArgDef, ...]
    attr_defs: Mapping[str, AttrDef] = field(default_factory=dict)
    nodes: tuple[BodyNode, ...] = ()
    returns: Mapping[str, str] = field(default_factory=dict)
    control_outputs: tuple[str, ...] = ()
    control_returns: Mapping[str, str] = field(default_factory=dict)
    attrs: Mapping[str, Any] = field(default_factory=dict)
    stateful: bool = False
    arg_attrs: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)


class FunctionSource(Protocol):
    """Source of a definition; serde implements it for encoded functions."""

    def decode(self) -> FunctionDefinition:
        """The definition."""


class Function:
    """A named function of a graph's library.

    A function from a file keeps its `source`, which is written back unchanged until a new
    definition replaces it.
    """

    __slots__ = ("__weakref__", "_definition", "name", "source")

    def __init__(
        self,
        name: str,
        definition: FunctionDefinition | None = None,
        source: FunctionSource | None = None,
    ) -> None:
        if definition is None and source is None:
            message = "Function requires a definition or a source"
            raise TypeError(message)
        self.name = name
        self._definition = definition
        self.source = source

    @property
    def definition(self) -> FunctionDefinition:
        """The definition, decoded on first access."""
        if self._definition is None and self.source is not None:
            self._definition = self.source.decode()
        assert self._definition is not None
        return self._definition

    def __repr__(self) -> str:
        return f"<function {self.name!r}>"
