"""The state that all rules share: the graph, what must stay, what is proven, and the log.

A rule may replace an output by another if both have the same value, run in the same frame, and are
live under the same condition, and if everything that the old output waited for still runs before
its readers. `RewriteContext.forward` checks all but the value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Final

from cfgraph.analysis.deadness.deadness import Deadness, deadness
from cfgraph.analysis.loops.frame import Frame, Frames
from cfgraph.analysis.loops.frames import frames
from cfgraph.ir.colocation import COLOCATION_ATTR, colocated_names
from cfgraph.ir.functions import CUSTOM_GRADIENT_ATTR, Function
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.registry import output_dtype
from cfgraph.ir.role import Role
from cfgraph.ir.shapes import UNKNOWN_SHAPE
from cfgraph.ir.traversal import downstream
from cfgraph.ops.families.constants import Const
from cfgraph.ops.opdef.op import (
    has_effect,
    is_a,
    lookup,
    makes_handle,
    role_of,
)
from cfgraph.ops.shape_inference import StaticShapes, infer_shapes
from cfgraph.passes.optimize.needs import is_still_needed
from cfgraph.reports import Column

_SHAPES_ATTR: Final = "_output_shapes"
# nodes that a search for what must still run visits
_MAX_VISITED: Final = 500


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One rewrite: its rule, the node and its op, and the replacement.

    `function` names the function whose body contains the node; it is empty for the graph itself.
    """

    rule: str
    node: str  #: The node that was rewritten.
    op: str  #: Its op before.
    #: Its op now, or the tensor or node that replaces it; empty for a removed node.
    result: Annotated[str, Column(title="is now")]
    #: The function whose body contains the node; empty for the graph itself.
    function: Annotated[str, Column(optional=True)] = ""


@dataclass(frozen=True, slots=True)
class KeptLoop:
    """A loop that is not unrolled: its frame or its node, the reason, and the function it is in."""

    loop: str  #: The frame of the loop, or its node.
    reason: str
    #: The function whose body contains the loop; empty for the graph itself.
    function: Annotated[str, Column(optional=True)] = ""


@dataclass(frozen=True, slots=True)
class FixedNodes:
    """Nodes that a rewrite must respect.

    `protected` nodes keep their names and values, those of `named` because a run may name them, and
    those of `first_outputs` only for their first output. Tensors of `fed` may have any value in a
    run.
    """

    protected: frozenset[Node]
    fed: frozenset[Output]
    named: frozenset[Node] = frozenset()
    first_outputs: frozenset[Node] = frozenset()


class RewriteContext:
    """A graph under rewriting. Analyses are computed once per round, before its first edit."""

    def __init__(
        self,
        graph: Graph,
        fixed: FixedNodes,
        function: str = "",
        library: Mapping[str, Function] | None = None,
    ) -> None:
        self.graph = graph
        self.library = graph.functions if library is None else library
        self.fed = fixed.fed
        self.named = fixed.named
        self.outputs = fixed.protected
        self.first_outputs = fixed.first_outputs
        self.protected = fixed.protected | _colocation_targets(graph)
        self.frozen = self._frozen_nodes()
        self.function = function
        self.rewrites: list[Rewrite] = []
        self.kept_loops: list[KeptLoop] = []
        self.names: dict[str, tuple[str, ...]] = {}

    def _frozen_nodes(self) -> frozenset[Node]:
        """Fed nodes, and the readers of a fed tensor that may be dead where it is not fed."""
        fed = {tensor.node for tensor in self.fed}
        computed = [tensor for tensor in self.fed if tensor.node.inputs or tensor.node.controls]
        if not computed:
            return frozenset(fed)
        liveness = deadness(self.graph)
        root = liveness.frames.root
        conditional = [
            tensor.node
            for tensor in computed
            if liveness.frames.of_outputs[tensor.node] is not root
            or not liveness.always_live(tensor)
        ]
        return frozenset(fed | downstream(conditional).keys())

    # -- analyses --------------------------------------------------------------------------------

    def new_round(self) -> None:
        """Discard the analyses, which do not know the nodes that rules added."""
        for name in (
            "liveness",
            "shapes",
            "never_live",
            "has_waits_for_dead",
            "_frames_with_effects",
        ):
            self.__dict__.pop(name, None)

    @cached_property
    def liveness(self) -> Deadness:
        """The exact liveness conditions at the start of the round."""
        return deadness(self.graph, cut=frozenset(t for t in self.fed if self._is_cut(t)))

    def _is_cut(self, tensor: Output) -> bool:
        found = frames(self.graph)
        return found.of_outputs[tensor.node] is found.root

    @cached_property
    def shapes(self) -> StaticShapes:
        """The static shapes at the start of the round; those of fed tensors are unknown, and so
        are those of variables if a node may store a value of another shape.
        """
        computed = (tensor for tensor in self.fed if not _is_input(tensor.node))
        unknown = {tensor.name: UNKNOWN_SHAPE for tensor in computed}
        shapes = infer_shapes(self.graph, unknown)
        if not any(_changes_shape(node, shapes) for node in self.graph):
            return shapes
        stored = (node.output(port) for node in self.graph for port in _stateful_ports(node))
        return infer_shapes(self.graph, unknown | {tensor.name: UNKNOWN_SHAPE for tensor in stored})

    @property
    def frames(self) -> Frames:
        """The frames at the start of the round."""
        return self.liveness.frames

    def frame_of(self, output: Output) -> Frame | None:
        """The frame of an output, or None for a node that was added in this round."""
        return self.frames.of_outputs.get(output.node)

    @cached_property
    def never_live(self) -> frozenset[Node]:
        """The nodes that are proven never to run, at the start of the round."""
        liveness = self.liveness
        if not any(role_of(node) is Role.SWITCH for node in self.graph):
            return frozenset()
        return frozenset(node for node in liveness.frames.of if liveness.never_runs(node))

    def nodes(self) -> Iterator[Node]:
        """The nodes at the start of the round that still exist and may be rewritten, in
        topological order.
        """
        graph, frozen = self.graph, self.frozen
        for node in self.frames.order:
            if graph.nodes.get(node.name) is node and node not in frozen:
                yield node

    # -- conditions ------------------------------------------------------------------------------

    def is_pure(self, node: Node) -> bool:
        """True for a known op without role, state, randomness, calls, and references, whose
        gradient is its own.
        """
        op = lookup(node.op)
        return op is not None and op.role is None and is_function_of_inputs(node)

    def cannot_fail(self, node: Node) -> bool:
        """True if a pure node succeeds for all values of its inputs, whose shapes fit."""
        op = lookup(node.op)
        if op is None or op.can_fail(node):
            return False
        if len(node.inputs) < 2:
            return True
        shapes = {self.shapes[tensor].dims for tensor in node.inputs} - {()}
        return all(dims is not None and None not in dims for dims in shapes) and len(shapes) < 2

    def has_same_liveness(self, old: Output, new: Output) -> bool:
        """True if two outputs are in one frame and proven to be live under one condition."""
        frame = self.frame_of(old)
        return frame is not None and frame is self.frame_of(new) and self.liveness.equal(old, new)

    def runs_before(self, sources: Iterable[Node], last: Node) -> bool:
        """True if all that `sources` wait for, and do, is also done before `last` has run.

        Constants, inputs, and nodes that forward values do nothing. The search is bounded.
        """
        return self.not_before(sources, last) == set()

    def not_before(self, sources: Iterable[Node], last: Node) -> set[Node] | None:
        """The first nodes that do something before `sources`, and may run after `last`.

        Returns None if the bound was reached.
        """
        required: set[Node] = set()
        if not self._search(sources, lambda node: self._require(node, required)):
            return None
        if not required:
            return required

        def visit(node: Node) -> bool:
            required.discard(node)
            return bool(required)

        self._search([last], visit)
        return required

    def waits_for_no_effect(self, node: Node) -> bool:
        """True if a node and all that it waits for are pure. The search is bounded."""
        impure: set[Node] = set()

        def visit(source: Node) -> bool:
            if source in self.never_live or self.is_pure(source) or self.does_nothing(source):
                return True
            impure.add(source)
            return False

        return self._search([node], visit) and not impure

    def is_still_needed(self, source: Node, node: Node) -> bool:
        """True if each run that needs `node` also needs `source`, without an edge into `node`."""
        return is_still_needed(source, node, self.outputs, {tensor.node for tensor in self.fed})

    @cached_property
    def has_waits_for_dead(self) -> bool:
        """True if a node waits for dead nodes and is live: it observes when they are dead."""
        return any(
            role_of(node) is Role.CONTROL_TRIGGER
            or (role_of(node) is Role.MERGE and bool(node.controls))
            for node in self.graph
        )

    def _require(self, node: Node, required: set[Node]) -> bool:
        """Record a node that does something; return True to search before any other.

        So does an argument of a function: a body that is inlined waits for each argument by itself,
        which arrives once the effects are done that the caller has ordered before it.
        """
        if node in self.never_live or (self.does_nothing(node) and role_of(node) is not Role.ARG):
            return True
        required.add(node)
        return False

    def does_nothing(self, node: Node) -> bool:
        """True for a node that cannot fail, and has no effect but its outputs."""
        if is_a(node, Const) or _is_input(node) or makes_handle(node):
            return True
        if self.is_pure(node) and self.cannot_fail(node):
            return True
        role = role_of(node)
        if role is Role.MERGE:
            loops = any(role_of(x.node) is Role.NEXT_ITERATION for x in node.inputs)
            return not loops or self.frames.of[node] not in self._frames_with_effects
        return role in (Role.SWITCH, Role.ENTER, Role.LOOP_COND)

    @cached_property
    def _frames_with_effects(self) -> frozenset[Frame]:
        """The frames of nodes with effects, and those that contain them."""
        found: set[Frame] = set()
        for frame in self.frames.all:
            if any(map(has_effect, frame.nodes)):
                outer: Frame | None = frame
                while outer is not None and outer not in found:
                    found.add(outer)
                    outer = outer.parent
        return frozenset(found)

    def _search(self, starts: Iterable[Node], visit: Callable[[Node], bool]) -> bool:
        """Visit nodes against the edges of one iteration while `visit` is true for the reader.

        Returns False if the bound was reached.
        """
        todo = list(dict.fromkeys(starts))
        seen = set(todo)
        while todo:
            node = todo.pop()
            if len(seen) > _MAX_VISITED:
                return False
            if not visit(node):
                continue
            sources = node.predecessors
            back = role_of(node) is Role.MERGE
            for source in sources:
                if source in seen or (back and role_of(source) is Role.NEXT_ITERATION):
                    continue
                seen.add(source)
                todo.append(source)
        return True

    def can_forward(self, node: Node, source: Output, undone: Node | None = None) -> bool:
        """True if the readers of output 0 of a node may read `source`, of equal value, instead.

        `undone` is a node between both that cannot fail.
        """
        old = node.output()
        if node in self.protected or node in self.frozen or node.control_readers:
            return False
        if source.node in self.frozen and source not in self.fed:
            return False
        dtype = old.dtype
        if dtype is None or dtype.is_ref or source.dtype is not dtype:
            return False
        if node.device not in ("", source.node.device) or node.attrs.get(COLOCATION_ATTR):
            return False
        passed = [node] if undone is None else [node, undone]
        inputs = (item for between in passed for item in between.inputs)
        dropped = [item.node for item in inputs if item != source and item.node is not undone]
        dropped += [control for between in passed for control in between.controls]
        return self.has_same_liveness(old, source) and self.runs_before(dropped, source.node)

    # -- edits -----------------------------------------------------------------------------------

    def log(self, rule: str, node: Node, op: str, result: str) -> None:
        """Record a rewrite of a node that had this op."""
        self.rewrites.append(Rewrite(rule, node.name, op, result, self.function))

    def forward(self, rule: str, node: Node, source: Output) -> None:
        """Make the readers of output 0 of a node read `source`; the node is removed."""
        self.log(rule, node, node.op, source.name)
        self.names[f"{node.name}:0"] = (source.name,)
        self.graph.replace_uses(node.output(), source)
        self.discard([node])

    def discard(self, nodes: Iterable[Node]) -> None:
        """Remove unread nodes that do nothing when they run, and what only they read."""
        self.graph.remove_unread(nodes, self.is_removable)

    def is_removable(self, node: Node) -> bool:
        """True for an unread node without effects, and for one that never runs."""
        if node.uses or node in self.protected or node in self.frozen or _is_input(node):
            return False
        return node in self.never_live or not has_effect(node)


def is_function_of_inputs(node: Node) -> bool:
    """True for a node whose outputs depend on nothing but its inputs' values and attributes."""
    op = lookup(node.op)
    if op is None or op.effects.stateful or op.effects.random or op.effects.is_input:
        return False
    if op.calls.kind or (not op.compilation.runnable and op.role is None):
        return False
    if node.attrs.get(CUSTOM_GRADIENT_ATTR):
        return False
    for source, port in node.inputs:
        dtype = output_dtype(source.op, source.attrs, port)
        if dtype is None or dtype.is_ref:
            return False
    for port in range(node.output_count or 0):
        dtype = output_dtype(node.op, node.attrs, port)
        if dtype is not None and dtype.is_ref:
            return False
    return True


def inherited_annotations(node: Node, port: int = 0) -> dict[str, Any]:
    """The attributes that a node of one output, `port`, inherits; shapes are listed per output."""
    found = {key: value for key, value in node.attrs.items() if key[:1] == "_"}
    shapes = found.get(_SHAPES_ATTR)
    if isinstance(shapes, tuple):
        found[_SHAPES_ATTR] = shapes[port : port + 1]
    return found


def _is_input(node: Node) -> bool:
    op = lookup(node.op)
    return op is not None and (op.effects.is_input or op.role is Role.ARG)


def _changes_shape(node: Node, shapes: StaticShapes) -> bool:
    op = lookup(node.op)
    return op is not None and op.changes_shape(node, shapes.__getitem__)


def _stateful_ports(node: Node) -> range:
    op = lookup(node.op)
    is_stateful = op is not None and op.effects.stateful
    return range((node.output_count or 0) if is_stateful else 0)


def _colocation_targets(graph: Graph) -> frozenset[Node]:
    """The nodes that colocation constraints of other nodes name."""
    found: set[Node] = set()
    for node in graph:
        targets = map(graph.nodes.get, colocated_names(node.attrs))
        found.update(target for target in targets if target is not None and target is not node)
    return frozenset(found)
