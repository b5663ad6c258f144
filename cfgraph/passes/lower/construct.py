"""What a functional node is: its kind, and the functions that it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cfgraph.ir.attrs import Func
from cfgraph.ir.dtypes import DType
from cfgraph.ir.function_graph import FunctionGraph, Instances
from cfgraph.ir.graph import Node
from cfgraph.ops.op import lookup


@dataclass(frozen=True, slots=True, eq=False)
class Construct:
    """A functional node read: `kind` is the op's own word, inputs from `first` on are arguments.

    The functions of a conditional stand in the order of its Switch's outputs: false, true.
    """

    kind: str
    functions: tuple[FunctionGraph, ...]
    first: int

    @property
    def output_types(self) -> tuple[DType, ...]:
        """The types of the node's outputs: those of a branch, or of a loop's body."""
        return self.functions[-1].output_types

    def passes(self, port: int, known: dict[FunctionGraph, tuple[int | None, ...]]) -> int | None:
        """The input that this output always is, unchanged; None if it may be something else.

        `known` says for each function which argument each output is.
        """
        if self.kind in ("while", "for"):
            body = self.functions[-1]
            index = 1 if self.kind == "for" else 0
            return port + self.first if known[body][port] == port + index else None
        places = {known[function][port] for function in self.functions}
        place = places.pop()
        return None if places or place is None else place + self.first


def kind_of(op: str, instances: Instances) -> str:
    """What nodes of an op are: `if`, `case`, `while`, `for`, `call`, …; `` if not functional."""
    if op in instances.library:
        return "call"
    return getattr(lookup(op), "functional", "")


def construct_of(node: Node, instances: Instances) -> Construct:
    """Read a functional node.

    TensorFlow calls the functions of a conditional or loop, and runs all of their stateful nodes;
    but one that says that it is to be lowered keeps no more of them than what its functions'
    outputs and control outputs need.

    Raises InvalidInput where a function does not exist or does not fit together.
    """
    if node.op in instances.library:
        return Construct("call", (instances.get(node.op, node.attrs),), 0)
    op: Any = lookup(node.op)
    spare = op.functional != "call" and bool(node.attrs.get("_lower_using_switch_merge"))
    functions = [
        instances.get(func.name, func.attrs, spare=spare)
        for key in op.functions
        for func in _functions(node.attr(key))
    ]
    if op.functional == "if":
        functions.reverse()
    return Construct(op.functional, tuple(functions), op.first_argument)


def _functions(value: Any) -> tuple[Func, ...]:
    return value if isinstance(value, tuple) else (value,)
