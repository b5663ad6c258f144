"""Structured programs over int32 values and one variable: run in Python, or built as a graph.

A block computes values from its inputs; every step adds some. What a block does to the variable is
chained by control edges, so that the order is that of the text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import cfgraph.ops  # noqa: F401 - fills the registry
from cfgraph.ir.attrs import Func, TensorValue
from cfgraph.ir.dtypes import float64, int32, resource
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.library import function_from_nodes
from cfgraph.ir.shapes import Shape

BINARY = {
    "AddV2": np.add,
    "FloorDiv": np.floor_divide,
    "Mul": np.multiply,
    "Sub": np.subtract,
}
MEMORY_START = 1


class Memory:
    """The variable."""

    def __init__(self) -> None:
        self.value = np.int32(MEMORY_START)


class BodyWriter:
    """A graph under construction: the variable's handle, and the last node of the chain of
    effects.
    """

    def __init__(self, graph: Graph, handle: Output, library: Graph) -> None:
        self.graph = graph
        self.handle = handle
        self.library = library
        self.last: Node | None = None

    def constant(self, value: int) -> Output:
        """A constant."""
        tensor = TensorValue(np.array(value, np.int32))
        return self.graph.add("Const", name="c", dtype=int32, value=tensor).output()

    def chain(self, node: Node) -> Node:
        """Order a node after all effects so far."""
        if self.last is not None:
            self.graph.add_control(node, self.last)
        self.last = node
        return node


class ProgramStep(ABC):
    """One step of a block."""

    @abstractmethod
    def run(self, env: list[Any], memory: Memory) -> list[Any]:
        """The values that it adds."""

    @abstractmethod
    def build(self, body: BodyWriter, env: list[Output]) -> list[Output]:
        """The tensors that it adds."""


@dataclass
class Block:
    """Steps, and the values that they return; if `declared`, effects are control outputs."""

    inputs: int
    steps: list[ProgramStep]
    returns: list[int] = field(default_factory=list)
    declared: bool = True

    def run(self, inputs: Sequence[Any], memory: Memory) -> list[Any]:
        """The returned values, computed in Python."""
        env = list(inputs)
        for step in self.steps:
            env += step.run(env, memory)
        return [env[place] for place in self.returns]

    def build(self, body: BodyWriter, inputs: Sequence[Output]) -> list[Output]:
        """The returned tensors."""
        env = list(inputs)
        for step in self.steps:
            env += step.build(body, env)
        return [env[place] for place in self.returns]

    def function(self, library: Graph, form: str = "call") -> Func:
        """A function of the library: of a call, or the condition or body of a loop.

        A call takes the handle first, a `for` the index before it.
        """
        graph = Graph()
        handle = placeholder(graph, "h", resource)
        inputs = [placeholder(graph, f"a{i}", int32) for i in range(self.inputs)]
        body = BodyWriter(graph, handle, library)
        values = self.build(body, inputs)
        arguments = {"h": handle, **{f"a{i}": item for i, item in enumerate(inputs)}}
        outputs = {f"r{i}": item for i, item in enumerate(values)}
        if form == "for":
            arguments = {"a0": inputs[0], "h": handle, **arguments}
        if form in ("condition", "tested condition"):
            test = graph.add("Less", inputs[0], inputs[1]).output()
            if form == "tested condition":
                other = graph.add("GreaterEqual", inputs[2], body.constant(0)).output()
                test = graph.add("LogicalAnd", test, other).output()
            outputs = {"r": test}
        elif form == "body":
            count = graph.add("AddV2", inputs[0], body.constant(1)).output()
            outputs = {"h": handle, "i": count, "n": inputs[1], **_later(outputs)}
        elif form == "for":
            outputs = {"h": handle, **_later(outputs)}
        name = f"f{len(library.functions)}"
        effects = {"done": body.last} if self.declared and body.last is not None else {}
        made = function_from_nodes(name, graph, arguments, outputs, effects, library.functions)
        library.functions[name] = made
        return Func(name)


def _later(outputs: dict[str, Output]) -> dict[str, Output]:
    return {f"_{name}": item for name, item in outputs.items()}


def placeholder(graph: Graph, name: str, dtype: Any) -> Output:
    """A scalar that is fed, or an argument."""
    return graph.add("Placeholder", name=name, dtype=dtype, shape=Shape([])).output()


@dataclass
class Constant(ProgramStep):
    """A number."""

    value: int

    def run(self, env: list[Any], memory: Memory) -> list[Any]:
        return [np.int32(self.value)]

    def build(self, body: BodyWriter, env: list[Output]) -> list[Output]:
        return [body.constant(self.value)]


@dataclass
class Binary(ProgramStep):
    """An op of two values."""

    op: str
    left: int
    right: int

    def run(self, env: list[Any], memory: Memory) -> list[Any]:
        return [BINARY[self.op](env[self.left], env[self.right])]

    def build(self, body: BodyWriter, env: list[Output]) -> list[Output]:
        node = body.graph.add(self.op, env[self.left], env[self.right], name=self.op, T=int32)
        return [node.output()]


@dataclass
class Half(ProgramStep):
    """A value times 0.6 in double precision, rounded down."""

    place: int

    def run(self, env: list[Any], memory: Memory) -> list[Any]:
        return [np.int32(np.floor(np.float64(env[self.place]) * 0.6))]

    def build(self, body: BodyWriter, env: list[Output]) -> list[Output]:
        graph = body.graph
        wide = graph.add("Cast", env[self.place], SrcT=int32, DstT=float64).output()
        factor = TensorValue(np.array(0.6))
        factor_node = graph.add("Const", name="c", dtype=float64, value=factor)
        product = graph.add("Mul", wide, factor_node.output()).output()
        rounded = graph.add("Floor", product).output()
        return [graph.add("Cast", rounded, DstT=int32).output()]


@dataclass
class Copy(ProgramStep):
    """A copy of a value."""

    place: int

    def run(self, env: list[Any], memory: Memory) -> list[Any]:
        return [env[self.place]]

    def build(self, body: BodyWriter, env: list[Output]) -> list[Output]:
        return [body.graph.add("Identity", env[self.place], name="id", T=int32).output()]


@dataclass
class Read(ProgramStep):
    """Read the variable."""

    def run(self, env: list[Any], memory: Memory) -> list[Any]:
        return [memory.value]

    def build(self, body: BodyWriter, env: list[Output]) -> list[Output]:
        node = body.graph.add("ReadVariableOp", body.handle, name="read", dtype=int32)
        return [body.chain(node).output()]


@dataclass
class Write(ProgramStep):
    """Multiply the variable by three and add a value: the result depends on the order of all
    writes.
    """

    place: int

    def run(self, env: list[Any], memory: Memory) -> list[Any]:
        memory.value = np.int32(memory.value * np.int32(3) + env[self.place])
        return []

    def build(self, body: BodyWriter, env: list[Output]) -> list[Output]:
        (old,) = Read().build(body, env)
        thrice = body.graph.add("Mul", old, body.constant(3))
        new = body.graph.add("AddV2", thrice, env[self.place], T=int32)
        write = body.graph.add("AssignVariableOp", body.handle, new, name="write", dtype=int32)
        body.last = write
        return []


@dataclass
class Choice(ProgramStep):
    """If (two branches, the false one first) or Case."""

    selector: int
    arguments: list[int]
    branches: list[Block]
    is_case: bool

    def run(self, env: list[Any], memory: Memory) -> list[Any]:
        chosen, last = int(env[self.selector]), len(self.branches) - 1
        place = (chosen if 0 <= chosen <= last else last) if self.is_case else int(chosen != 0)
        return self.branches[place].run([env[item] for item in self.arguments], memory)

    def build(self, body: BodyWriter, env: list[Output]) -> list[Output]:
        functions = [branch.function(body.library) for branch in self.branches]
        count = len(self.branches[0].returns)
        types = {"Tin": (resource, *[int32] * len(self.arguments)), "Tout": (int32,) * count}
        inputs = [env[self.selector], body.handle, *(env[item] for item in self.arguments)]
        if self.is_case:
            op, attrs = "Case", {"branches": tuple(functions)}
        else:
            op, attrs = "If", {"else_branch": functions[0], "then_branch": functions[1]}
            types["Tcond"] = int32
        node = body.chain(body.graph.add(op, *inputs, name=op, attrs={**types, **attrs}))
        return [node.output(port) for port in range(count)]


@dataclass
class Call(ProgramStep):
    """A call, by an op or by the function's own name."""

    arguments: list[int]
    block: Block
    by_name: bool

    def run(self, env: list[Any], memory: Memory) -> list[Any]:
        return self.block.run([env[item] for item in self.arguments], memory)

    def build(self, body: BodyWriter, env: list[Output]) -> list[Output]:
        function, count = self.block.function(body.library), len(self.block.returns)
        inputs = [body.handle, *(env[item] for item in self.arguments)]
        if self.by_name:
            node = body.graph.add(function.name, *inputs, name="call")
        else:
            attrs = {"Tin": (resource, *[int32] * len(self.arguments)), "Tout": (int32,) * count}
            op = "StatefulPartitionedCall"
            node = body.graph.add(op, *inputs, name="call", f=function, attrs=attrs)
        body.chain(node)
        return [node.output(port) for port in range(count)]


@dataclass
class Loop(ProgramStep):
    """While: a counter, its limit, and more; of the condition, its effects.

    One `is_tested` ends before the first of its arguments is negative, too.
    """

    limit: int
    arguments: list[int]
    condition: Block
    body: Block
    parallel: int
    is_tested: bool = False

    def run(self, env: list[Any], memory: Memory) -> list[Any]:
        state = [np.int32(0), np.int32(self.limit), *(env[item] for item in self.arguments)]
        self.condition.run(state, memory)
        while state[0] < state[1] and not (self.is_tested and state[2] < 0):
            state = [np.int32(state[0] + 1), state[1], *self.body.run(state, memory)]
            self.condition.run(state, memory)
        return state

    def build(self, body: BodyWriter, env: list[Output]) -> list[Output]:
        start, limit = body.constant(0), body.constant(self.limit)
        inputs = [body.handle, start, limit, *(env[item] for item in self.arguments)]
        attrs = {
            "T": (resource, *[int32] * (len(inputs) - 1)),
            "cond": self.condition.function(
                body.library, "tested condition" if self.is_tested else "condition"
            ),
            "body": self.body.function(body.library, "body"),
            "parallel_iterations": self.parallel,
        }
        node = body.chain(body.graph.add("While", *inputs, name="while", attrs=attrs))
        return [node.output(port) for port in range(1, len(inputs))]


@dataclass
class Counted(ProgramStep):
    """For; a `hidden` range is not statically known."""

    range: range
    hidden: bool
    arguments: list[int]
    body: Block

    def run(self, env: list[Any], memory: Memory) -> list[Any]:
        state = [env[item] for item in self.arguments]
        for index in self.range:
            state = self.body.run([np.int32(index), *state], memory)
        return state

    def build(self, body: BodyWriter, env: list[Output]) -> list[Output]:
        ends = [body.constant(x) for x in (self.range.start, self.range.stop, self.range.step)]
        if self.hidden:
            zero = body.constant(0)
            ends = [body.graph.add("AddV2", end, zero).output() for end in ends]
        inputs = [body.handle, *(env[item] for item in self.arguments)]
        function = self.body.function(body.library, "for")
        types = (resource, *[int32] * len(self.arguments))
        node = body.graph.add("For", *ends, *inputs, name="for", T=types, body=function)
        body.chain(node)
        return [node.output(port) for port in range(1, len(inputs))]
