"""Write a function body: copies of nodes, with an argument for each external tensor."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from cfgraph.ir.dtypes import DType
from cfgraph.ir.functions import Function
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.library import function_from_nodes
from cfgraph.ir.shapes import UNKNOWN_SHAPE

_COLOCATION_ATTR: Final = "_class"
# what stands for a tensor inside: a Switch hands its data on, say
TensorMapping = Callable[[Output], Output]


class FunctionBodyWriter:
    """The body of one function as it is written. `through` says what an output stands for."""

    def __init__(self, library: dict[str, Function], through: TensorMapping) -> None:
        self.scratch = Graph()
        self.scratch.functions = library
        self.through = through
        self.inputs: dict[str, Output] = {}
        self._made: dict[Output, Output] = {}
        self._clones: dict[Node, Node] = {}

    def argument(self, name: str, dtype: DType, *items: Output) -> None:
        """Let some tensors be one argument."""
        attrs = {"dtype": dtype, "shape": UNKNOWN_SHAPE}
        stand_in = self.scratch.create(name, "Placeholder", attrs=attrs).output()
        self.inputs[name] = stand_in
        self._made.update(dict.fromkeys(items, stand_in))

    def constant(self, item: Output, source: Node) -> None:
        """Let a tensor be a copy of a constant."""
        self._made[item] = self._copy(source).output()

    def take(self, wanted: Output) -> Output:
        """The tensor inside, with all that it is made of."""
        wanted = self.through(wanted)
        todo = [wanted]
        while todo:
            item = todo[-1]
            if item in self._made or item.node in self._clones:
                todo.pop()
                continue
            sources = [self.through(source) for source in item.node.inputs]
            missing = [one for one in sources if not self._has(one)]
            if missing:
                todo += missing
                continue
            todo.pop()
            twin = self._copy(item.node)
            self.scratch.set_inputs(twin, map(self._inside, sources))
        return self._inside(wanted)

    def _has(self, item: Output) -> bool:
        return item in self._made or item.node in self._clones

    def _inside(self, item: Output) -> Output:
        found = self._made.get(item)
        return Output(self._clones[item.node], item.port) if found is None else found

    def _copy(self, node: Node) -> Node:
        """A node without inputs, nor wishes where it is to run."""
        twin = self._clones.get(node)
        if twin is None:
            attrs = {key: value for key, value in node.attrs.items() if key != _COLOCATION_ATTR}
            name = self.scratch.unique_name(node.name)
            twin = self._clones[node] = self.scratch.create(name, node.op, attrs=attrs)
        return twin

    def function(self, name: str, outputs: Mapping[str, Output]) -> Function:
        """The function that gives these tensors, which were taken."""
        return function_from_nodes(
            name, self.scratch, self.inputs, outputs, library=self.scratch.functions
        )


def base_dtypes(items: Iterable[Output]) -> tuple[Any, ...]:
    """The types of tensors, as the attribute of a call has them."""
    return tuple(item.dtype.base for item in items if item.dtype is not None)


_INVALID_CHARACTERS: Final = re.compile(r"[^a-z0-9_]+")


class ArgumentNames:
    """New names, apart from those that are taken."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)

    def new(self, item: Output, suffix: str = "") -> str:
        """A name after that of the node."""
        base = _INVALID_CHARACTERS.sub("_", item.node.name.rpartition("/")[2].lower()).strip("_")
        base = base if base[:1].isalpha() else f"arg_{base}".rstrip("_")
        base = f"{base}_{suffix}" if suffix else base
        name, number = base, 0
        while name in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._taken.add(name)
        return name
