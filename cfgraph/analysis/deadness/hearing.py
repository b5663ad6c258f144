"""When what a node waits for comes at all, live or dead.

Where loops end, tokens do not even come, and what waits for one neither runs nor is dead. Only
ControlTriggers, Merges with control inputs and Merges that read a Recv with control inputs tell
that from deadness, so only where there is one of them is it found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cfgraph.analysis.deadness.formulas import TRUE, Symbol
from cfgraph.analysis.frames import Frames
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.walk import Roles

if TYPE_CHECKING:
    from cfgraph.analysis.deadness.evaluate import Rules


def must_hear(frames: Frames, roles: Roles) -> bool:
    """True if some node in a graph with loops tells what is dead from what never comes."""
    if len(frames.all) == 1:
        return False
    return any(
        roles[node.op] == "trigger"
        or (node.controls and (roles[node.op] == "merge" or _is_offered(node, roles)))
        for node in frames.of
    )


def _is_offered(node: Node, roles: Roles) -> bool:
    """True for a Recv that a Merge reads."""
    return roles[node.op] == "recv" and any(roles[use.node.op] == "merge" for use in node.uses)


class Hearing:
    """The formulas for that all inputs of a node come; `of` holds those that were found."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.formulas, self.frames, self.roles = rules.formulas, rules.frames, rules.roles
        self.of: dict[Node, int] = {}

    def visit(self, node: Node, role: str) -> None:
        """Find when all that a node waits for comes."""
        self.of[node] = self._all(node, role)

    def _all(self, node: Node, role: str) -> int:
        controls = [self.after(source) for source in node.controls]
        if role == "merge":
            return self.formulas.all_of([*controls, self._any(node)])
        return self.formulas.all_of([*controls, *map(self._heard_of, node.inputs)])

    def _any(self, node: Node) -> int:
        """When a Merge has its first live input, or all the dead ones that it needs."""
        kinds = ["" if item in self.rules.cut else self.roles[item[0].op] for item in node.inputs]
        formulas = self.formulas
        if "enter" not in kinds and "next_iteration" not in kinds:
            everything = formulas.all_of(map(self._heard_of, node.inputs))
            return formulas.any_of([*map(self.rules.offered, node.inputs), everything])
        enters = [i[0] for i, kind in zip(node.inputs, kinds, strict=True) if kind == "enter"]
        if not self.rules.is_loop(kinds, enters):
            return formulas.any_of([*map(self.rules.offered, node.inputs), self._arrives(node)])
        start = formulas.any_of(self._heard(enter) for enter in enters)
        back = [i[0] for i, kind in zip(node.inputs, kinds, strict=True) if kind != "enter"]
        return self.rules.loops.token(("heard", node), node, self.frames.of[node], start, back)

    def _heard_of(self, output: Output) -> int:
        return TRUE if output in self.rules.cut else self.after(output[0])

    def after(self, node: Node) -> int:
        """When a node's tokens come to its readers, live or dead."""
        role = self.roles[node.op]
        if role == "next_iteration" and node in self.rules.live:
            return self.rules.next(node)
        if role == "enter" and node in self.frames.of:
            return self.rules.entered(("heard", node), node, self._heard(node))
        return self._exit(node) if role == "exit" else self._heard(node)

    def _heard(self, node: Node) -> int:
        if node not in self.frames.of:
            return TRUE
        found = self.of.get(node)
        return self._arrives(node) if found is None else found

    def _exit(self, node: Node) -> int:
        """A dead Exit is heard of when its loop ends, if it is in the last iteration."""
        frame = self.frames.of.get(node)
        if frame is None:
            return TRUE
        entered = [self._heard(enter) for enter in frame.enters]
        start = self.formulas.any_of(entered)
        turns = self.rules.loops.token(
            ("turns", frame.enters[0]), frame.enters[0], frame, start, frame.next_iterations
        )
        dead = self._arrives(node)
        if self.rules.prover.implies(turns, self._heard(node)):
            dead = self.formulas.all_of(entered)
        return self.formulas.any_of([self.rules.control(node), dead])

    def _arrives(self, node: Node) -> int:
        depth = self.frames.of_outputs[node].depth
        return self.formulas.symbol(("arrives", node), Symbol(node.name, "arrives", depth))
