"""Random values of predicates; computed predicates follow from their inputs.

The values that an analysis may know are computed: Const, LogicalNot, LogicalAnd, LogicalOr, integer
Equal, and forwarding ops. Any other output is free in each tag.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import product
from typing import Final

from cfgraph.ir import dtypes
from cfgraph.ir.graph import CONTROL, Graph, Node, Output
from cfgraph.ir.traversal import topological_order
from tests.analysis.liveness_oracle import ROOT, Liveness, Tag, liveness
from tests.analysis.random_graphs import CONTINUES, ITERATIONS

INDICES: Final = (-1, 0, 1, 2, 3)


class Assignment:
    """A value per predicate and tag; a callable for `liveness` that reads its record."""

    def __init__(self, seed: int, known: Mapping[Output, int] | None = None) -> None:
        self.draw = random.Random(seed)
        self.record = Liveness()
        self.known: dict[tuple[Output, Tag], int] = {
            (item, ROOT): value for item, value in (known or {}).items()
        }

    def __call__(self, output: Output, tag: Tag) -> int:
        found = self.known.get((output, tag))
        if found is None:
            found = self.known[output, tag] = self.find(output, tag)
        return found

    def find(self, output: Output, tag: Tag) -> int:
        node = output.node
        inputs = node.inputs
        match node.op:
            case "Const":
                return int(node.attrs["value"].array)
            case "Identity" | "LoopCond" | "Switch":
                return self(inputs[0], tag)
            case "Enter":
                return self(inputs[0], tag[:-1])
            case "Merge" if output.port:
                (index,) = [k for k, item in enumerate(inputs) if self.record.live(item, tag)]
                return index
            case "Merge":
                return self.merged(inputs, tag)
            case "Exit":
                return self(inputs[0], self.exit_tag(node, tag))
            case "LogicalNot":
                return not self(inputs[0], tag)
            case "LogicalAnd":
                return self(inputs[0], tag) and self(inputs[1], tag)
            case "LogicalOr":
                return self(inputs[0], tag) or self(inputs[1], tag)
            case "Equal":
                return self(inputs[0], tag) == self(inputs[1], tag)
        return self.free(output, tag)

    def merged(self, inputs: tuple[Output, ...], tag: Tag) -> int:
        """The value of the input that arrived."""
        (item,) = [item for item in dict.fromkeys(inputs) if self.record.live(item, tag)]
        if item.node.op != "NextIteration":
            return self(item, tag)
        *enclosing, (frame, index) = tag
        return self(item.node.inputs[0], (*enclosing, (frame, index - 1)))

    def exit_tag(self, leaving: Node, enclosing: Tag) -> Tag:
        """The iteration in which an Exit was live."""
        (tag,) = [
            tag
            for (node, tag), live in self.record.fired.items()
            if node is leaving and live and tag[:-1] == enclosing
        ]
        return tag

    def run(self, graph: Graph) -> Liveness:
        """The liveness of a graph under these values."""
        return liveness(graph, self, record=self.record)

    def free(self, output: Output, tag: Tag) -> int:
        if CONTINUES in output.node.name:
            return tag[-1][1] < ITERATIONS and self.draw.random() < 0.7
        if output.dtype is dtypes.int32:
            return self.draw.choice(INDICES)
        return self.draw.random() < 0.5


class Tables:
    """The liveness of every output of a graph without loops, under all assignments at once.

    `of[output]` has a bit for each of `cases`, the assignments of the graph's placeholders; a port
    of -1 stands for the control edges.
    """

    def __init__(self, graph: Graph) -> None:
        self.of: dict[Output, int] = {}
        self.values: dict[Output, dict[int, int]] = {}
        free = {node.output(): _domain(node) for node in graph if node.op == "Placeholder"}
        cases = list(product(*free.values()))
        self.cases = [dict(zip(free, case, strict=True)) for case in cases]
        self.all = (1 << len(cases)) - 1
        for place, item in enumerate(free):
            table = self.values[item] = dict.fromkeys(free[item], 0)
            for bit, case in enumerate(cases):
                table[case[place]] |= 1 << bit
        for node in topological_order(graph).nodes:
            self.run(node)

    def run(self, node: Node) -> None:
        """The liveness of a node's outputs from that of its inputs."""
        sources = [self.of[item] for item in node.inputs]
        live = self.all
        for control in node.controls:
            live &= self.of[Output(control, CONTROL)]
        for source in sources:
            live &= source
        count = 1
        taken: list[int] = []
        if node.op == "Merge":
            live, count = 0, 2
            for source in sources:
                live |= source
        elif node.op == "ControlTrigger":
            live, count = self.all, 0
        elif node.op in ("Switch", "_SwitchN"):
            taken = self.taken(node)
        for port, part in enumerate(taken or [self.all] * count):
            self.of[Output(node, port)] = live & part
        self.of[Output(node, CONTROL)] = live

    def taken(self, node: Node) -> list[int]:
        """For each output of a Switch, the cases that select it."""
        values = self.value(node.inputs[1])
        if node.op == "Switch":
            return [self.all & ~values[1], values[1]]
        parts = [values.get(port, 0) for port in range(node.attrs["num_outs"] - 1)]
        rest = self.all
        for part in parts:
            rest &= ~part
        return [*parts, rest]

    def value(self, output: Output) -> dict[int, int]:
        """The cases for each value of an output; of a predicate only those for 1."""
        found = self.values.get(output)
        if found is None:
            found = self.values[output] = self.find(*output)
        return found

    def find(self, node: Node, port: int) -> dict[int, int]:
        """The value of a computed output in the cases in which it is live."""
        if node.op == "Merge" and port:
            return {1: 0, **{index: self.of[item] for index, item in enumerate(node.inputs)}}
        inputs = [self.value(item) for item in node.inputs]
        match node.op:
            case "Const":
                value = int(node.attrs["value"].array)
                return {1: 0, value: self.all}
            case "Identity" | "Switch":
                return inputs[0]
            case "Merge":
                true = 0
                for item, value in zip(node.inputs, inputs, strict=True):
                    true |= self.of[item] & value[1]
                return {1: true}
            case "LogicalNot":
                return {1: self.all & ~inputs[0][1]}
            case "LogicalAnd":
                return {1: inputs[0][1] & inputs[1][1]}
            case "LogicalOr":
                return {1: inputs[0][1] | inputs[1][1]}
            case "Equal":
                same = 0
                for value in INDICES:
                    same |= inputs[0].get(value, 0) & inputs[1].get(value, 0)
                return {1: same}
        raise AssertionError(node.op)


def _domain(node: Node) -> tuple[int, ...]:
    if node.attrs["dtype"] is dtypes.int32:
        return INDICES
    return (0, 1) if node.attrs["dtype"] is dtypes.bool_ else (0,)
