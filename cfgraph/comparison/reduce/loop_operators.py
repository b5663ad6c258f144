"""Operators on control flow: whole loops, loops as one iteration, loop variables, conditionals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cfgraph.analysis.loops.frame import Frame
from cfgraph.analysis.loops.frames import frames
from cfgraph.comparison.reduce.node_operators import only_needed_by
from cfgraph.comparison.reduce.removal import StandIns, dead_ends, is_loop_merge, without_nodes
from cfgraph.comparison.reduce.search import ItemOperator
from cfgraph.comparison.reduce.subject import Subject
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.role import Role
from cfgraph.ops.opdef.op import role_of


def _frame_at(graph: Graph, path: str) -> Frame | None:
    found = (frame for frame in frames(graph).all if frame.parent and frame.path == path)
    return next(found, None)


def _frame_paths(subject: Subject) -> list[str]:
    """Return the paths of the loops of the first graph, the outer ones first."""
    return [frame.path for frame in frames(subject.graphs[0]).all if frame.parent]


def _members(graph: Graph, frame: Frame) -> set[Node]:
    """Return the nodes of a loop and of the loops in it."""
    known = frames(graph)
    inner = [item for item in known.all if item.is_within(frame)]
    return {node for item in inner for node in (*item.nodes, *item.enters)}


@dataclass(frozen=True, slots=True)
class LoopOperator:
    """Replacement of whole loops by what leaves them."""

    stand_ins: StandIns
    name: str = "loops"

    def items(self, subject: Subject) -> list[str]:
        """Return the paths of the loops."""
        return _frame_paths(subject)

    def candidate(self, subject: Subject, items: Sequence[str]) -> Subject | None:
        """Return a subject without some loops."""

        def edit(graph: Graph) -> Graph | None:
            chosen = [_frame_at(graph, path) for path in items]
            members = {node for frame in chosen if frame for node in _members(graph, frame)}
            return without_nodes(graph, only_needed_by(members), self.stand_ins)

        return subject.edited(edit)


@dataclass(frozen=True, slots=True)
class IterationOperator:
    """Replacement of loops by one iteration of them."""

    stand_ins: StandIns
    name: str = "iterations"

    def items(self, subject: Subject) -> list[str]:
        """Return the paths of the loops, the inner ones first."""
        return _frame_paths(subject)[::-1]

    def candidate(self, subject: Subject, items: Sequence[str]) -> Subject | None:
        """Return a subject in which some loops run once, from the recorded values."""

        def edit(graph: Graph) -> Graph | None:
            chosen = [frame for path in items if (frame := _frame_at(graph, path))]
            merges = (node for frame in chosen for node in frame.merges)
            removed = {node.name for node in merges if is_loop_merge(node)}
            return without_nodes(graph, removed, self.stand_ins, {item.path for item in chosen})

        return subject.edited(edit)


@dataclass(frozen=True, slots=True)
class LoopVariableOperator:
    """Removal of loop variables: what the body reads of them becomes constant."""

    stand_ins: StandIns
    name: str = "loop variables"

    def items(self, subject: Subject) -> list[str]:
        """Return the Merges of the loop variables."""
        return [node.name for node in subject.graphs[0] if is_loop_merge(node)]

    def candidate(self, subject: Subject, items: Sequence[str]) -> Subject | None:
        """Return a subject without some loop variables."""

        def edit(graph: Graph) -> Graph | None:
            merges = [graph.nodes[name] for name in items if name in graph.nodes]
            chain = {node for merge in merges for node in _variable_nodes(merge)}
            return without_nodes(graph, only_needed_by(chain), self.stand_ins)

        return subject.edited(edit)


def _variable_nodes(merge: Node) -> Iterator[Node]:
    """Yield the nodes of the protocol of a loop variable."""
    yield merge
    yield from (item.node for item in merge.inputs)
    for use in merge.readers(0):
        if role_of(use.node) is Role.SWITCH and use.slot == 0:
            yield use.node
            yield from (r.node for r in use.node.readers(0) if role_of(r.node) is Role.EXIT)


@dataclass(frozen=True, slots=True)
class BranchOperator(ItemOperator):
    """Replacement of conditionals by one of their branches."""

    values: Mapping[str, Any]
    name: str = "conditionals"

    def items(self, subject: Subject) -> list[tuple[str, int]]:
        """Return predicates with the branch that is taken; both if the value is unknown."""
        graph = subject.graphs[0]
        predicates = dict.fromkeys(
            node.inputs[1].name for node in graph if role_of(node) is Role.SWITCH
        )
        items: list[tuple[str, int]] = []
        for name in predicates:
            value = self.values.get(name)
            sides = (1, 0) if value is None or np.size(value) != 1 else (int(bool(value)),)
            items += [(name, side) for side in sides]
        return items

    def remove(self, graph: Graph, item: tuple[str, int]) -> None:
        """Replace a conditional by a branch."""
        name, side = item
        if name.rpartition(":")[0] in graph.nodes:
            _Branch(graph, graph.tensor(name), side).apply()


class _Branch:
    """Replacement of all Switches of a predicate, in place."""

    def __init__(self, graph: Graph, predicate: Output, side: int) -> None:
        self.graph = graph
        uses = predicate.node.readers(predicate.port)
        self.switches = [
            use.node for use in uses if use.slot == 1 and role_of(use.node) is Role.SWITCH
        ]
        self.side = side

    def apply(self) -> None:
        """Remove the branch that is not taken, and the Switches and Merges without a choice."""
        dead = {switch.output(1 - self.side) for switch in self.switches}
        nodes: set[Node] = set()
        queue = list(dead)
        while queue:
            tensor = queue.pop()
            for use in tensor.node.readers(tensor.port):
                node = use.node
                is_dead = all(item in dead for item in node.inputs)
                if node in nodes or (role_of(node) is Role.MERGE and not is_dead):
                    continue
                nodes.add(node)
                ports = {item.node.inputs[item.slot].port for item in node.uses if item.slot >= 0}
                new = [node.output(port) for port in ports or {0}]
                dead.update(new)
                queue += new
        self._narrow_merges(dead)
        for node in nodes:
            for reader in node.control_readers:
                self.graph.remove_control(reader, node)
        self.graph.remove(*nodes)
        for switch in self.switches:
            if switch.name in self.graph.nodes:
                self._open_switch(switch)

    def _narrow_merges(self, dead: set[Output]) -> None:
        """Drop the dead inputs of Merges; a Merge of one input is replaced by it."""
        for node in [node for node in self.graph if role_of(node) is Role.MERGE]:
            live = [item for item in node.inputs if item not in dead]
            if len(live) == len(node.inputs) or not live:
                continue
            if len(live) > 1 or is_loop_merge(node):
                self.graph.set_inputs(node, live)
                self.graph.set_attr(node, "N", len(live))
                continue
            index = node.inputs.index(live[0])
            if node.readers(1):
                value = TensorValue(np.array(index, np.int32))
                constant = self.graph.add(
                    "Const", name=f"{node.name}/index", attrs={"dtype": value.dtype, "value": value}
                )
                self.graph.replace_uses(node.output(1), constant.output())
            self._replace(node, live[0])

    def _open_switch(self, switch: Node) -> None:
        predicate = switch.inputs[1].node.name
        self._replace(switch, switch.inputs[0], self.side)
        self.graph.remove(*dead_ends(self.graph, [predicate]))

    def _replace(self, node: Node, source: Output, port: int = 0) -> None:
        self.graph.replace_uses(node.output(port), source)
        for reader in node.control_readers:
            self.graph.remove_control(reader, node)
            self.graph.add_control(reader, source.node)
        self.graph.remove(node)
