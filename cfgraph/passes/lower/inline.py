"""Put a copy of a function's body into the graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple

from cfgraph.ir.device_name import merge
from cfgraph.ir.function_graph import ARGUMENT, FunctionGraph
from cfgraph.ir.graph import Node, Output
from cfgraph.passes.lower.rewriter import Rewriter
from cfgraph.passes.lower.scope import Scope, Site

COLOCATED: Final = b"loc:@"
_merged = lru_cache(maxsize=4096)(merge)


class Effect(NamedTuple):
    """A node that waits for effects, and the outputs (bits) that come after them anyway."""

    node: Node
    before: int


class Inlined(NamedTuple):
    """What a copy of a function gives: its outputs, None for those not asked for, and effects.

    Who waits for the function waits for all `effects`.
    """

    returns: tuple[Output | None, ...]
    effects: tuple[Effect, ...]

    def waits(self, port: int) -> tuple[Node, ...]:
        """The effects that this output does not come after yet."""
        return tuple(e.node for e in self.effects if not e.before >> port & 1)

    def unsettled(self, outputs: int) -> tuple[Node, ...]:
        """The effects that do not come before all of these outputs (bits)."""
        return tuple(e.node for e in self.effects if e.before & outputs != outputs or not outputs)


def inline(
    work: Rewriter,
    function: FunctionGraph,
    argument: Callable[[int], Output],
    scope: Scope,
    outputs: int,
) -> Inlined:
    """Copy what these outputs (bits) and the effects need.

    `argument` gives the tensor that an argument is; it is asked only for those that are read.
    """
    return _Copier(work, function, argument, scope).copy(outputs)


class _Copier:
    """Makes one copy."""

    def __init__(
        self,
        work: Rewriter,
        function: FunctionGraph,
        argument: Callable[[int], Output],
        scope: Scope,
    ) -> None:
        self.work = work
        self.function = function
        self.facts = work.survey.facts[function]
        self.argument = argument
        self.scope = scope
        self.copies: dict[Node, Node] = {}
        self.frames: dict[Any, bytes] = {}

    def copy(self, outputs: int) -> Inlined:
        """Copy nodes, then edges; leave the functional ones as sites to lower next."""
        members = self.work.survey.members(self.function, outputs)
        for node in members:
            self.copies[node] = self.node(node)
        for node in members:
            self.connect(node, self.copies[node])
        self.work.push(
            Site(self.copies[node], construct, self.scope, False, node in self.facts.guarded)
            for node in members
            if (construct := self.facts.constructs.get(node)) is not None
        )
        returns = tuple(
            self.output(item) if outputs >> port & 1 else None
            for port, item in enumerate(self.function.returns)
        )
        return Inlined(returns, self.effects())

    def node(self, node: Node) -> Node:
        """A node's copy, without edges."""
        attrs = dict(node.attrs)
        if self.facts.guarded and self.work.roles[node.op] == "enter":
            attrs["frame_name"] = self.frame(attrs.get("frame_name", b""))
        device = _merged(node.device, self.scope.device)
        name = f"{self.scope.prefix}/{node.name}"
        copy = self.work.create(name, node.op, attrs, device=device)
        copy.origin = node.origin
        return copy

    def frame(self, name: bytes) -> bytes:
        """The name of one of the body's own frames in this copy."""
        if name not in self.frames:
            shown = name.decode("utf-8", "backslashreplace")
            self.frames[name] = self.work.frame(f"{self.scope.prefix}/{shown}")
        return self.frames[name]

    def connect(self, node: Node, copy: Node) -> None:
        """Set the edges into a copy, and tie it to the scope if no edge does."""
        inputs = [self.output(item) for item in node.inputs]
        held = self.facts.held.get(node, ())
        controls = [self.copies[control] for control in (*node.controls, *held)]
        if "_class" in copy.attrs:
            copy.attrs["_class"] = self.colocated(copy.attrs["_class"])
        inside = bool(controls) or any(item.node in self.copies for item in node.inputs)
        # what is lowered later does not wait for its inputs: it must be held itself
        if not controls and (not inside or node in self.facts.constructs):
            controls.extend(self.scope.hold)
        loose = [item for item in inputs if item.node in self.scope.loose]
        if loose and self.work.roles[node.op] == "merge":
            pivot = self.pivot()
            inputs = [self.work.tied(item, pivot) if item in loose else item for item in inputs]
        elif (not inside and not controls and len(loose) == len(inputs)) or (
            self.scope.ordered and node in self.facts.opening
        ):
            self.tie(controls)
        self.work.graph.connect(copy, inputs, controls)

    def tie(self, controls: list[Node]) -> None:
        """Add the scope's pivot, if it has one."""
        pivot = self.scope.pivot()
        if pivot is not None:
            controls.append(pivot)

    def pivot(self) -> Node:
        """The pivot of a scope that has loose nodes, and so has one."""
        pivot = self.scope.pivot()
        assert pivot is not None
        return pivot

    def output(self, item: Output) -> Output:
        """A tensor of the body in this copy."""
        if item.node.op == ARGUMENT:
            return self.argument(item.node.attrs["index"])
        return Output(self.copies[item.node], item.port)

    def colocated(self, groups: Any) -> Any:
        """The nodes to be beside, by the names that they have in this copy."""
        if not isinstance(groups, tuple):
            return groups
        return tuple(self.renamed(group) for group in groups)

    def renamed(self, group: Any) -> Any:
        """One of those names."""
        if not isinstance(group, bytes) or not group.startswith(COLOCATED):
            return group
        name = group[len(COLOCATED) :].decode("utf-8", "replace")
        node = self.function.graph.nodes.get(name)
        if node is None or (node.op != ARGUMENT and node not in self.copies):
            return group
        beside = self.output(Output(node)).node if node.op == ARGUMENT else self.copies[node]
        return COLOCATED + beside.name.encode()

    def effects(self) -> tuple[Effect, ...]:
        """What whoever waits for the function has to wait for.

        A node behind a Switch of the body may be dead; a ControlTrigger waits for it all the same.
        """
        found = tuple(Effect(self.copies[node], before) for node, before in self.facts.last)
        if not self.facts.doubtful:
            return found
        name = f"{self.scope.prefix}/done"
        nodes = [effect.node for effect in found]
        trigger = self.work.add(name, "ControlTrigger", (), nodes, self.scope.device)
        return (Effect(trigger, 0),)
