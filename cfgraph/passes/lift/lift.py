"""Raise whole loops and conditionals to calls, inner ones first, where XLA compiles all of them.

    Enter ▸ Merge ▸ Switch ▸ … ▸ Exit      becomes      StatelessWhile
    Switch ▸ … ▸ Merge                     becomes      StatelessIf

The reverse of `lower`. A call is dead if any input is, so all that enters a region must be live
together. What a region does it must do by its values alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from cfgraph.analysis.loops.frames import Frame, frames
from cfgraph.analysis.reachability import ancestors
from cfgraph.ir.device_name import DeviceName
from cfgraph.ir.graph import Graph, Node
from cfgraph.ops.op import handed_back, lookup, role
from cfgraph.ops.shape_inference import Shapes, infer_shapes
from cfgraph.passes.cluster.agreement import Agreement, agreement
from cfgraph.passes.cluster.compilable import Compilable, Wishes
from cfgraph.passes.cluster.formation import is_cheap
from cfgraph.passes.cluster.reasons import Reason
from cfgraph.passes.cluster.report import Region
from cfgraph.passes.cluster.waiting import Waiting
from cfgraph.passes.lift.branches import Branches, Decided, branches_of, decided
from cfgraph.passes.lift.conditionals import raise_conditional, require_live_together
from cfgraph.passes.lift.lists import Lists, raise_lists
from cfgraph.passes.lift.loop_form import loop_form
from cfgraph.passes.lift.loops import called, raise_loop, require_fixed, require_together
from cfgraph.passes.lift.refused import Refused, refused

# reasons against a node that do not count in a region
_OF_CLUSTERS: Final = ("pivot", "not needed")
_PARTS: Final = ("cond", "body", "then", "else")


class Lifting:
    """The regions of a lowered graph as they are raised, with those that are refused."""

    def __init__(
        self, graph: Graph, mode: str, wishes: Wishes, refused: Mapping[str, Reason]
    ) -> None:
        self.graph = graph
        self.mode = mode
        self.wishes = wishes
        self.refused = refused
        self.raised: dict[Node, Region] = {}
        self.kept: dict[str, Region] = {}
        self.lists = Lists()
        self._names = 0
        self._shapes: Shapes | None = None
        self._given = set(graph)
        self._kept = [node.name for node in wishes.kept]

    def run(self) -> None:
        """Raise what can be, until nothing more can."""
        if len(frames(self.graph).all) > 1:
            agreed = agreement(self.graph, self.mode)
            self.lists = raise_lists(self.graph, agreed, self.refused, self.wishes.kept)
        while self._round():
            pass

    @property
    def regions(self) -> tuple[Region, ...]:
        """The regions that stand in the graph, and those that were refused."""
        return (*self.raised.values(), *self.kept.values(), *self.lists.kept.values())

    def told(self) -> Wishes:
        """The wishes, with what was raised and added."""
        raised = dict.fromkeys(self.lists.computing(self.graph), 1)
        raised.update((node, len(region.ops)) for node, region in self.raised.items())
        wishes = self.wishes
        if wishes.needed is not None:
            kept = [self.graph[name] for name in self._kept if name in self.graph]
            wishes = replace(wishes, needed={*wishes.needed, *ancestors(self.graph, kept)})
        return replace(wishes, raised=raised)

    def _round(self) -> bool:
        """Raise the innermost regions; false if there was nothing to raise."""
        agreed = agreement(self.graph, self.mode)
        self._shapes = None
        rules = Compilable(self.graph, agreed.frames, self.told())
        waiting = Waiting(agreed.frames)
        tangled = waiting.tangled
        self.kept = {}
        done = False
        for frame in agreed.frames.all:
            if self._raise_conditionals(frame, agreed, rules, waiting):
                done = True
        if done:
            return True
        parents = {frame.parent for frame in agreed.frames.all}
        for frame in agreed.frames.all[1:]:
            try:
                if tangled.intersection(frame.nodes):
                    raise refused("tangled loops", "what leaves it is needed to enter it")
                if frame in parents:
                    raise refused("inner loop", "a loop in it is not compiled")
                self._raise_loop(frame, agreed, rules)
                done = True
            except Refused as error:
                self.kept[frame.path] = Region(
                    "loop", frame.path, _ops(frame.nodes), None, error.reason
                )
        return done

    def _raise_conditionals(
        self, frame: Frame, agreed: Agreement, rules: Compilable, waiting: Waiting
    ) -> bool:
        """Raise the conditionals of a frame in which no other is; true if there were any."""
        merges = [node for node in frame.merges if handed_back(node) is None]
        if not merges:
            return False
        every = decided(frame, agreed.frames.order)
        groups: dict[Decided, list[Branches]] = {}
        for merge in merges:
            try:
                if merge in waiting.tangled:
                    raise refused("tangled loops", "it waits for itself")
                if merge.name in self.refused:
                    raise Refused(self.refused[merge.name])
                form = branches_of(merge, every)
                self._require_nodes([merge, *form.cone().inside], rules)
                require_live_together(form, agreed)
                self._gather(groups.setdefault(form.decided, []), form, agreed, waiting)
            except Refused as error:
                ops = {merge.name: merge.op}
                self.kept[merge.name] = Region("conditional", merge.name, ops, None, error.reason)
        for form in (form for forms in groups.values() for form in forms):
            self._raise_branches(form)
        return any(groups.values())

    def _gather(
        self, groups: list[Branches], form: Branches, agreed: Agreement, waiting: Waiting
    ) -> None:
        """Let a Merge be of the call of another one, if it can be without waiting for itself."""
        (merge,) = form.merges
        for group in groups:
            first = group.merges[0]
            if not agreed.alike(first, merge):
                continue
            if waiting.join(waiting.of[first], waiting.of[merge]) is not None:
                group.merges.append(merge)
                return
        groups.append(form)

    def _raise_branches(self, form: Branches) -> None:
        inside, outside, _ = form.cone()
        node = raise_conditional(self.graph, form, self._name("if"), set(self.wishes.kept))
        ops = self._inner(self._dropped([*inside, *form.decided.switches]))
        ops.update(self._unread(item.node for item in outside if is_cheap(item.node)))
        self.raised[node] = Region("conditional", form.merges[0].name, ops, node)

    def _dropped(self, nodes: list[Node]) -> list[Node]:
        """Remove those that nothing reads any more; the removed."""
        gone: list[Node] = []
        todo = dict.fromkeys(node for node in nodes if self.graph.nodes.get(node.name) is node)
        while todo:
            unread = [node for node in todo if not node.uses and node not in self.wishes.kept]
            if not unread:
                break
            for node in unread:
                del todo[node]
                self.graph.remove(node)
            gone += unread
        return gone

    def _raise_loop(self, frame: Frame, agreed: Agreement, rules: Compilable) -> None:
        if frame.path in self.refused:
            raise Refused(self.refused[frame.path])
        form = loop_form(frame, agreed.frames)
        self._require_compiled(frame, rules)
        require_together(form, agreed)
        name = self._name("loop")
        call = called(self.graph, form, name)
        require_fixed(self.graph, call, self._known_shapes())
        leaving, copied = set(frame.exits), [enter.inputs[0].node for enter in call.copied]
        ops = self._inner([node for node in frame.nodes if node not in leaving], frame.enters)
        node = raise_loop(self.graph, form, call, name)
        ops.update(self._unread(copied))
        self.raised[node] = Region("loop", frame.path, ops, node)

    def _known_shapes(self) -> Shapes:
        """The shapes of the graph as the round found it."""
        if self._shapes is None:
            self._shapes = infer_shapes(self.graph)
        return self._shapes

    def _inner(self, *groups: Iterable[Node]) -> dict[str, str]:
        """The nodes of a region by name, with those of the regions in it, which are gone."""
        ops: dict[str, str] = {}
        lists = self.lists.stands_for()
        for node in (node for group in groups for node in group):
            region = self.raised.pop(node, None)
            if region is not None:
                ops.update(region.ops)
            elif node in lists or node in self._given:
                ops.update(lists.get(node, {node.name: node.op}))
        return ops

    def stands_for(self) -> dict[Node, Mapping[str, str]]:
        """What each new node stands for: nodes that were, by name with their ops."""
        found: dict[Node, Mapping[str, str]] = {
            node: {} for node in self.graph if node not in self._given
        }
        found.update(self.lists.stands_for())
        found.update((node, region.ops) for node, region in self.raised.items())
        return found

    def _unread(self, constants: Iterable[Node]) -> Iterator[tuple[str, str]]:
        """Drop the constants that were read in a region alone; they are in it now."""
        for node in dict.fromkeys(constants):
            if not node.uses and node not in self.wishes.kept:
                yield node.name, node.op
                self.graph.remove(node)

    def _require_compiled(self, frame: Frame, rules: Compilable) -> None:
        """Raise Refused unless a loop compiles, and nobody asks for what is in it."""
        leaving = set(frame.exits)
        self._require_nodes([node for node in frame.nodes if node not in leaving], rules)

    def _require_nodes(self, nodes: Iterable[Node], rules: Compilable) -> None:
        """Raise Refused unless XLA compiles nodes, on one device, and nobody asks for one."""
        chosen = list(nodes)
        if len({DeviceName.parse(node.device) for node in chosen}) > 1:
            raise refused("several devices", "its nodes are not on one device")
        for node in chosen:
            asked = self.wishes.needed is not None and node in self.wishes.kept
            if node in self.wishes.fed or (asked and role(node) != "merge"):
                raise refused("fed", f"{node.name} is fed or fetched", node=node.name)
            op = lookup(node.op)
            if op is not None and op.role:
                continue
            reason = rules.refusal(node)
            if reason is not None and reason.kind not in _OF_CLUSTERS:
                data = {**reason.data, "node": node.name}
                raise Refused(Reason(reason.kind, f"{node.name}: {reason.text}", data))
            if op is None or op.stateful:
                raise refused("effects", f"{node.name}: {node.op} hangs on state", node=node.name)

    def _name(self, kind: str) -> str:
        """A name that is free, and so are those of its functions."""
        while True:
            name = f"{kind}_{self._names}"
            self._names += 1
            made = [name, *(f"{name}_{part}" for part in _PARTS)]
            if not any(one in self.graph or one in self.graph.functions for one in made):
                return name


def _ops(nodes: list[Node]) -> dict[str, str]:
    return {node.name: node.op for node in nodes}
