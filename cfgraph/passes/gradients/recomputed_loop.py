"""Recompute a segment of a loop inside the backward loop over segments, and differentiate it there.

    backward loop over segments:   saved state ──▶ clone of the segment ──▶ its backward loop

The loop saves its state once per segment. The values that the gradients of its iterations need are
saved while the clone runs, and are consumed before the preceding segment is recomputed.

A loop can be recomputed if this yields the same values and has no side effects. Variables may be
read if nothing writes them after the loop. Elements of a TensorArray may be read again if the array
retains them. Writes to arrays, and pushes on stacks that these gradients do not pop, are not
repeated. An array created in the loop is created again. A loop with any other stateful op is
rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Hashable, Iterable, Iterator, Mapping
from typing import Any, Final

from cfgraph.analysis.effects import EffectAnalysis
from cfgraph.analysis.loops.branch_decisions import BranchDecision, PathCondition
from cfgraph.analysis.loops.frame import Frame
from cfgraph.analysis.loops.regions import Region
from cfgraph.errors import Unsupported
from cfgraph.ir.colocation import COLOCATION_ATTR, colocation_group
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.traversal import downstream, reachable
from cfgraph.ops.families.stacks import StackHandle
from cfgraph.ops.families.tensor_array_ops import TensorArrayOp
from cfgraph.ops.opdef.op import is_a, lookup
from cfgraph.passes.gradients.backward_loop import BackwardLoop
from cfgraph.passes.gradients.context import GradientContext
from cfgraph.passes.gradients.loop_gradient import has_gradient, reverse_loop
from cfgraph.passes.gradients.reverse import ReverseMode
from cfgraph.passes.gradients.scope import GradientScope
from cfgraph.passes.node_copier import NodeCopier

# the attribute of a TensorArray that frees each element when it is read
CLEAR_AFTER_READ: Final = "clear_after_read"


class Purity:
    """Checks that loops can be recomputed; `skipped` are pushes that are not repeated."""

    def __init__(self, skipped: Container[Node]) -> None:
        self._skipped = skipped
        self._effects = EffectAnalysis()

    def require(self, region: Region) -> list[Node]:
        """The TensorArrays that a loop reads, which have to retain their elements.

        Raises Unsupported, naming the node, for a loop that cannot be recomputed.
        """
        nodes = list(_loop_nodes(region))
        inner, read, written = set(nodes), dict[Node, Node](), set[Node]()
        for node in nodes:
            op, access = lookup(node.op), array_access(node)
            if op is None or op.effects.random:
                problem = "is not registered" if op is None else "draws random numbers"
                raise _impure_loop(region, node, problem)
            if access:
                array = self._effects.origin(node.inputs[0]).node
                if not _creates_array(array):
                    raise _impure_loop(region, node, "uses an array that may be one of several")
                if array in inner:
                    continue
                if access == "write":
                    written.add(array)
                else:
                    read[array] = node
            elif op.effects.stateful and not (
                op.effects.reads_only
                or op.effects.only_checks
                or _creates_array(node)
                or node in self._skipped
            ):
                raise _impure_loop(region, node, "has state")
        for array in written & read.keys():
            raise _impure_loop(region, read[array], "reads an array that the loop itself writes")
        self._require_unchanged(region, nodes)
        return list(read)

    def _require_unchanged(self, region: Region, nodes: list[Node]) -> None:
        """Raise Unsupported if a resource that the loop reads is written after the loop."""
        readers = [node for node in nodes if node not in self._skipped and not _creates_array(node)]
        accesses = list(self._effects.accesses(readers))
        written = self._written_downstream(region) if accesses else set()
        for access in accesses:
            if access.resource in written:
                problem = f"reads {access.name}, which changes after the loop"
                raise _impure_loop(region, access.node, problem)

    def _written_downstream(self, region: Region) -> set[Hashable]:
        """The resources that nodes downstream of a loop write."""
        later = downstream(use.node for node in region.frame.exits for use in node.uses)
        return {access.resource for access in self._effects.accesses(later) if access.writes}


def array_access(node: Node) -> str:
    """Access of a node to the elements of a TensorArray: `read`, `write`, or empty for neither."""
    op = lookup(node.op)
    return op.access if op is not None and issubclass(op, TensorArrayOp) else ""


def _creates_array(node: Node) -> bool:
    """True for a node that creates a TensorArray."""
    op = lookup(node.op)
    return op is not None and CLEAR_AFTER_READ in op.parsed().attrs


def _loop_nodes(region: Region) -> Iterator[Node]:
    """The nodes of a loop and its inner loops."""
    for item in region.order:
        if isinstance(item, Region):
            yield from _loop_nodes(item)
        else:
            yield item


def _impure_loop(region: Region, node: Node, problem: str) -> Unsupported:
    path = region.frame.path
    message = f"{node.op} {problem}: the loop {path} cannot be recomputed"
    hint = "omit recompute, so that the loop saves all values that its gradient needs"
    return Unsupported(message, node=node, frame=path, hint=hint, code="CFG510")


class RecomputingLoopRule:
    """Gradient rule of loops that recomputes segments first; other loops save their values.

    `segments` are the LoopConds of segments. `skipped` are nodes that a clone leaves out; each of
    them forwards its input 1.
    """

    def __init__(self, segments: Collection[Node], skipped: Collection[Node]) -> None:
        self.segments = segments
        self.skipped = skipped
        self._clones: list[Node] = []

    def __call__(self, outer: ReverseMode, region: Region) -> Iterator[ReverseMode]:
        """Pass the gradients of a loop's Exits to the inputs of its Enters; yield what must run."""
        if region.frame.loop_cond not in self.segments:
            yield from reverse_loop(outer, region)
        elif has_gradient(outer, region):
            segment = RecomputedSegment(outer, region, self.skipped)
            self._clones += segment.clones.values()
            yield from reverse_loop(segment.reverse, segment.region)
            segment.accumulate_outer()

    def cleanup(self, graph: Graph) -> None:
        """Bypass repeated TensorArray writes, and remove clones that are not needed.

        The written elements still exist, so that a repeated write only has to forward its flow;
        an exception are arrays that are created again.
        """
        clones, effects = set(self._clones), EffectAnalysis()
        bypassed: dict[bytes, Node] = {}
        for node in self._clones:
            if array_access(node) == "write" and effects.origin(node.inputs[0]).node not in clones:
                flow = node.inputs[-1]
                bypassed[colocation_group(node.name)] = flow.node
                graph.replace_uses(node.output(), flow)
                for reader in node.control_readers:
                    waits = [flow.node if item is node else item for item in reader.controls]
                    graph.set_controls(reader, waits)
        needed = reachable(
            [node for node in self._clones if any(use.node not in clones for use in node.uses)],
            lambda node: filter(clones.__contains__, node.predecessors),
        )
        graph.remove(*(node for node in self._clones if node not in needed))
        _move_stacks(graph, bypassed)


def _move_stacks(graph: Graph, bypassed: Mapping[bytes, Node]) -> None:
    """Colocate stacks of bypassed writes with the flow that they save instead."""
    for node in graph if bypassed else ():
        if is_a(node, StackHandle):
            groups = node.attrs.get(COLOCATION_ATTR, ())
            while groups and groups[0] in bypassed:
                groups = (colocation_group(bypassed[groups[0]].name),)
                graph.set_attr(node, COLOCATION_ATTR, groups)


class RecomputedSegment:
    """The clone of a segment in the backward loop over segments, and its reverse mode."""

    def __init__(self, outer: ReverseMode, region: Region, skipped: Collection[Node]) -> None:
        scope, regions, activity = outer.scope, outer.regions, outer.activity
        assert isinstance(scope, BackwardLoop)
        self.outer = outer
        self.enters = region.frame.enters
        with outer.ctx.last_scope():
            self.region, self.clones = clone_loop(outer.ctx, region, scope.forward_value, skipped)
            regions.add(Region(region.frame, None, [self.region]))
            activity.add_clones(self.clones)
            entering = [node for node in self.enters if outer.is_active(node.inputs[0])]
            activity.mark_active(self.clones[node].inputs[0] for node in entering)
            self.reverse = outer.nested(RecomputationScope(scope), outer.region)
            for node in region.frame.exits:
                result = self.clones[node].output()
                for dx in outer.partials(node.output()):
                    self.reverse.accumulate(result, dx, regions.guards.of_output(result))

    def accumulate_outer(self) -> None:
        """Pass the gradients of the clone's inputs to the inputs of the segment."""
        outer, visited = self.outer, set[Output]()
        with outer.ctx.last_scope():
            for enter in self.enters:
                source, cloned = enter.inputs[0], self.clones[enter].inputs[0]
                if cloned in visited or not outer.is_active(source):
                    continue  # an input that is the same in all segments may enter several times
                visited.add(cloned)
                for dx in self.reverse.partials(cloned):
                    outer.accumulate(source, dx, outer.guards.of_output(source))


class RecomputationScope(GradientScope):
    """The scope outside a recomputed segment: an iteration of the backward loop over segments.

    For the gradient of the segment, it has the role that the root frame has for other loops.
    """

    outer: BackwardLoop

    def __init__(self, outer: BackwardLoop) -> None:
        super().__init__(outer.ctx)
        self.outer = outer

    def enter_forward(self, x: Output) -> Output:
        """A tensor from the root frame, available to the recomputed segment."""
        return self.outer.capture_outer(x)

    def constant(self, array: Any, dtype: DType) -> Output:
        """Add a constant that is available in this scope."""
        return self.outer.const(array, dtype)

    def start_after(self) -> list[Node]:
        """Control inputs of the start of the segment's trip counter: this iteration's step."""
        return [self.outer.backward_counter.step]

    def wait_for(self, finished: Callable[[], Node], guard: PathCondition) -> None:
        """Continue with the preceding segment when this one is differentiated."""
        self.outer.backward_counter.barrier.wait_for(finished(), may_be_dead=False)

    def residual_decisions(self, decisions: Iterable[BranchDecision]) -> list[BranchDecision]:
        """Drop the decision to continue the loop over segments, which is implied in this scope."""
        guards = self.outer.guards
        own, _ = guards.branch(self.outer.backward_counter.cond)
        return [decision for decision in decisions if decision.test is not own]


# -- cloning -----------------------------------------------------------------------------------


def clone_loop(
    ctx: GradientContext,
    region: Region,
    entering: Callable[[Output], Output],
    skipped: Collection[Node],
) -> tuple[Region, dict[Node, Node]]:
    """Add a copy of a loop; return its region and the clone of each node.

    `entering` maps each input of the loop to the input of the clone.
    """
    copier = _LoopCopier(ctx, skipped)
    for node in _loop_members(region):
        if node not in skipped:
            copy = copier.copy(node, f"{ctx.name}/again/{node.name}", node.attrs, node.device)
            ctx.static.copy(copy, node)
    enters = set(region.frame.enters)
    for node, clone in copier.copies.items():
        read = entering if node in enters else copier.output
        controls = () if node in enters else [copier.output(c.output()).node for c in node.controls]
        ctx.graph.connect(clone, map(read, node.inputs), controls)
    return _clone_region(region, region.outer, copier.copies), copier.copies


class _LoopCopier(NodeCopier):
    """Copies a loop without the skipped nodes, each of which forwards its input 1."""

    def __init__(self, ctx: GradientContext, skipped: Collection[Node]) -> None:
        super().__init__(ctx.graph, ctx.added_nodes)
        self.ctx = ctx
        self.skipped = skipped

    def new_frame_name(self, name: bytes) -> bytes:
        """A frame name that no other loop has."""
        return self.ctx.frame_name(f"again/{name.decode('utf-8', 'backslashreplace')}").encode()

    def output(self, tensor: Output) -> Output:
        """The copy of a tensor, or of what a skipped node forwards."""
        while tensor.node in self.skipped:
            tensor = tensor.node.inputs[1]
        return super().output(tensor)


def _loop_members(region: Region) -> Iterator[Node]:
    """The Enters and nodes of a loop and its inner loops."""
    yield from region.frame.enters
    for item in region.order:
        if isinstance(item, Region):
            yield from _loop_members(item)
        else:
            yield item


def _clone_region(region: Region, outer: Region | None, clones: dict[Node, Node]) -> Region:
    frame = region.frame
    lists = (
        [clones[node] for node in nodes if node in clones]
        for nodes in (
            frame.nodes,
            frame.enters,
            frame.exits,
            frame.merges,
            frame.next_iterations,
            frame.loop_conds,
        )
    )
    parent = None if outer is None else outer.frame
    clone = Region(Frame(frame.name, parent, frame.depth, *lists), outer)
    clone.order = [
        _clone_region(item, clone, clones) if isinstance(item, Region) else clones[item]
        for item in region.order
        if isinstance(item, Region) or item in clones
    ]
    return clone
