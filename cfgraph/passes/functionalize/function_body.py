"""Write a function body: copies of nodes, with an argument for each external tensor.

Used for the branches and bodies of functionalized regions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import DType
from cfgraph.ir.functions import Function
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.library import function_from_nodes
from cfgraph.ir.shapes import UNKNOWN_SHAPE
from cfgraph.ops.families.constants import Const
from cfgraph.ops.opdef.op import is_a

_COLOCATION_ATTR: Final = "_class"
# the tensor that another equals inside the body: for the output of a Switch, its data input
TensorMapping = Callable[[Output], Output]

# constants with at most as many elements are copied instead of being passed as arguments
MAX_CHEAP_ELEMENTS: Final = 16


def is_cheap_constant(node: Node) -> bool:
    """Return true for a constant that is copied instead of being passed as an argument."""
    value = node.attrs.get("value")
    if not is_a(node, Const) or not isinstance(value, TensorValue):
        return False
    elements = value.shape.elements
    return elements is not None and elements <= MAX_CHEAP_ELEMENTS


class FunctionBodyWriter:
    """The body of one function as it is written; `mapping` replaces tensors before their copy."""

    def __init__(self, library: dict[str, Function], mapping: TensorMapping) -> None:
        self.scratch = Graph()
        self.scratch.functions = library
        self.mapping = mapping
        self.inputs: dict[str, Output] = {}
        self._copies: dict[Output, Output] = {}
        self._clones: dict[Node, Node] = {}

    def argument(self, name: str, dtype: DType, *tensors: Output) -> None:
        """Add an argument for tensors of equal value."""
        attrs = {"dtype": dtype, "shape": UNKNOWN_SHAPE}
        argument = self.scratch.create(name, "Placeholder", attrs=attrs).output()
        self.inputs[name] = argument
        self._copies.update(dict.fromkeys(tensors, argument))

    def constant(self, tensor: Output, source: Node) -> None:
        """Copy a constant into the body for a tensor."""
        self._copies[tensor] = self._clone(source).output()

    def output(self, tensor: Output) -> Output:
        """Return the copy of a tensor, after copying all nodes that it depends on."""
        tensor = self.mapping(tensor)
        stack = [tensor]
        while stack:
            current = stack[-1]
            if self._has_copy(current):
                stack.pop()
                continue
            sources = [self.mapping(source) for source in current.node.inputs]
            missing = [source for source in sources if not self._has_copy(source)]
            if missing:
                stack += missing
                continue
            stack.pop()
            clone = self._clone(current.node)
            self.scratch.set_inputs(clone, map(self._copy, sources))
        return self._copy(tensor)

    def _has_copy(self, tensor: Output) -> bool:
        return tensor in self._copies or tensor.node in self._clones

    def _copy(self, tensor: Output) -> Output:
        copy = self._copies.get(tensor)
        return Output(self._clones[tensor.node], tensor.port) if copy is None else copy

    def _clone(self, node: Node) -> Node:
        """Return the clone of a node, without inputs, device, and colocation at first."""
        clone = self._clones.get(node)
        if clone is None:
            attrs = {key: value for key, value in node.attrs.items() if key != _COLOCATION_ATTR}
            name = self.scratch.unique_name(node.name)
            clone = self._clones[node] = self.scratch.create(name, node.op, attrs=attrs)
        return clone

    def function(self, name: str, outputs: Mapping[str, Output]) -> Function:
        """Return the function with these results, each from `output`."""
        return function_from_nodes(
            name, self.scratch, self.inputs, outputs, library=self.scratch.functions
        )


def base_dtypes(tensors: Iterable[Output]) -> tuple[Any, ...]:
    """Return the dtypes of tensors for an attribute of a call."""
    return tuple(tensor.dtype.base for tensor in tensors if tensor.dtype is not None)


_INVALID_CHARACTERS: Final = re.compile(r"[^a-z0-9_]+")


class ArgumentNames:
    """Unique argument names derived from node names."""

    def __init__(self, used: Iterable[str]) -> None:
        self._used = set(used)
        self._last_numbers: dict[str, int] = {}

    def new(self, tensor: Output, suffix: str = "") -> str:
        """Return an unused name derived from the node of a tensor."""
        base = _INVALID_CHARACTERS.sub("_", tensor.node.name.rpartition("/")[2].lower()).strip("_")
        base = base if base[:1].isalpha() else f"arg_{base}".rstrip("_")
        base = f"{base}_{suffix}" if suffix else base
        name, number = base, self._last_numbers.get(base, 0)
        while name in self._used:
            number += 1
            name = f"{base}_{number}"
        self._last_numbers[base] = number
        self._used.add(name)
        return name
