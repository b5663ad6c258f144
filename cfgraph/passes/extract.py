"""Extract the subgraph between tensors.

    a ──▶ f ──▶ x ──▶ g ──▶ y        extract(inputs=[x], outputs=[y])   ──▶   x' ──▶ g ──▶ y

A cut tensor becomes a Placeholder, or a Const with its value. A loop that the outputs need from
outside is whole: an input inside it is rejected. Outputs inside a loop are those of one iteration:
the graph is cut at the loop's variables, and the frame disappears.

    Enter ──▶ Merge ──▶ Switch ──▶ body ──▶ NextIteration        Merge' ──▶ Switch ──▶ body
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cfgraph.analysis.deadness.deadness import deadness
from cfgraph.analysis.loops.frame import Frame, Frames
from cfgraph.analysis.loops.frames import frames
from cfgraph.analysis.resource_handles import is_variable
from cfgraph.analysis.verify.verify import require_valid
from cfgraph.errors import Unsupported, UsageError
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.graph import Graph, Node, Output, require_graph
from cfgraph.ir.library import remove_uncalled_functions
from cfgraph.ir.names import first_names, name_list
from cfgraph.ir.node import node_name
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import Role
from cfgraph.ir.traversal import ancestors, is_partitioned, reachable
from cfgraph.limits import check_deadline
from cfgraph.ops.opdef.random_streams import StreamScope, draws
from cfgraph.ops.shape_inference import StaticShapes, infer_shapes
from cfgraph.passes.faulty_nodes import defer_faults, has_faulty_nodes, require_no_faulty_nodes
from cfgraph.passes.lower.lower import drop_dangling_colocation
from cfgraph.passes.optimize.optimize import optimize
from cfgraph.passes.outcome import Report, op_counts, unchanged_on_error
from cfgraph.stack_position import LOCATORS, pass_position

_MAX_NAMES = 8


@dataclass(frozen=True, slots=True)
class Extraction(Report):
    """Report of `extract`.

    `inputs` maps each cut tensor to the one that replaces it, `loops` are the frames of the loops
    that are kept whole, and `frame` is the one of the outputs, `/` outside of loops.
    """

    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    loops: tuple[str, ...] = ()
    frame: str = "/"


def extract(
    graph: Graph,
    *,
    outputs: str | Iterable[str],
    inputs: str | Iterable[str] = (),
    values: Mapping[str, Any] | None = None,
    iterations: Sequence[int] = (),
) -> Extraction:
    """Reduce a graph to what computes `outputs` from `inputs`, in place.

    Args:
        outputs: names of tensors, or of nodes as `^node`; all in one loop, or all outside of loops.
        inputs: names of tensors at which the graph is cut. Without any, outputs in a loop are cut
            at its variables and at the values that enter it.
        values: arrays for inputs, by name; such an input becomes a Const, any other a Placeholder.
        iterations: for outputs in loops, the iteration of each, outermost first, whose random
            numbers are drawn. Default: the first ones.

    Returns a report with the new names of the inputs. Raises UsageError for unknown names and for a
    cut through a loop or a conditional, Unsupported for a partitioned graph.
    """
    require_graph(graph)
    if is_partitioned(graph):
        message = "a partitioned graph cannot be cut"
        raise Unsupported(message, hint="extract from the graph before it is partitioned")
    wanted, cut = name_list(outputs), name_list(inputs)
    before = op_counts(graph)
    with unchanged_on_error(graph):
        defer_faults(graph, [graph[node_name(name)] for name in (*wanted, *cut)])
        plan = ExtractionPlan(graph, wanted, cut, iterations)
        arrays = {graph.tensor(name): array for name, array in (values or {}).items()}
        names = plan.apply(arrays)
        if has_faulty_nodes(graph):
            optimize(graph, only=("prune", "branches"), fetches=plan.output_names)
            require_no_faulty_nodes(graph)
        require_valid(graph)
    read = {old.name: new.name for old, new in names.items() if new.node.name in graph}
    return Extraction(
        rewrites=sum(before.values()) - len(graph) + len(read),
        names={old: (new,) for old, new in read.items() if old != new},
        warnings=plan.warnings(),
        before=before,
        after=op_counts(graph),
        inputs=read,
        outputs=tuple(plan.output_names),
        loops=tuple(frame.path for frame in plan.whole_loops()),
        frame=plan.frame.path,
    )


LOCATORS[extract.__code__] = pass_position


class ExtractionPlan:
    """Nodes and cut tensors of an extraction. Raises UsageError for a cut that breaks something."""

    def __init__(
        self,
        graph: Graph,
        outputs: Sequence[str],
        inputs: Sequence[str],
        iterations: Sequence[int] = (),
    ) -> None:
        self.graph = graph
        self.frames = frames(graph)
        if not outputs:
            raise UsageError("no outputs to extract", hint="name a tensor, or a node as ^node")
        self.targets = [_target(graph, name) for name in outputs]
        self.output_names = [
            f"^{item.name}" if isinstance(item, Node) else item.name for item in self.targets
        ]
        self.frame = _common_frame(self.frames, self.targets)
        self.opened = _ancestry(self.frame)
        missing = (0,) * (self.frame.depth - len(iterations))
        self.iterations = (*iterations, *missing)[: self.frame.depth]
        requested = dict.fromkeys(map(graph.tensor, inputs))
        cut = requested or dict.fromkeys(self._entries())
        ends = [
            item if isinstance(item, Node) else item.node
            for item in self.targets
            if item not in cut
        ]
        self.nodes = ancestors(graph, ends, cut, {item.node for item in cut})
        kept = set(self.nodes)
        read = {tensor for node in self.nodes for tensor in node.inputs}
        awaited = {control for node in self.nodes for control in node.controls} - kept
        outputs_cut = {item for item in self.targets if isinstance(item, Output)}
        # one tensor of a node is enough for the control edges from it
        first = {item.node: item for item in reversed(cut)}
        needed = read | outputs_cut | {first[node] for node in awaited if node in first}
        self.cut = [item for item in cut if item in needed]
        needed_cut = set(self.cut)
        self.unread = [item for item in requested if item not in needed_cut]
        self._require_whole_loops(kept)
        self._require_whole_conditionals(kept)

    def _entries(self) -> Iterator[Output]:
        """Yield the variables and the invariants of the loop that the outputs are in.

        No value of a resource, such as a stack, can be fed; what is read from it is cut instead.
        """
        if self.frame is self.frames.root:
            return
        merges = self._loop_merges(self.frame.merges)
        queue = [node.output() for node in reversed(self.frame.invariants)]
        # the index of the live input differs from one iteration to the next, too
        queue += [node.output(port) for node in reversed(merges) for port in (1, 0)]
        seen: set[Output] = set()
        while queue:
            tensor = queue.pop()
            if tensor in seen:
                continue
            seen.add(tensor)
            if not _is_opaque(tensor):
                yield tensor
                continue
            for use in tensor.node.readers(tensor.port):
                if self.frames.of_outputs[use.node] is self.frame:
                    queue += reversed(use.node.outputs)

    def _loop_merges(self, merges: Iterable[Node]) -> list[Node]:
        """Return the Merges that an iteration starts with."""
        loop_roles = (Role.ENTER, Role.NEXT_ITERATION)
        return [
            node
            for node in merges
            if any(ROLES[tensor.node.op] in loop_roles for tensor in node.inputs)
        ]

    def whole_loops(self) -> list[Frame]:
        """Return the frames that are kept."""
        kept = {self.frames.of[node] for node in self.nodes} - self.opened
        return [frame for frame in self.frames.all if frame in kept]

    def _require_whole_loops(self, kept: Collection[Node]) -> None:
        """Raise UsageError if a loop would be cut into parts."""
        whole = set(self.whole_loops())
        for tensor in self.cut:
            frame = self.frames.of_outputs[tensor.node]
            if frame in whole:
                raise UsageError(
                    f"input {tensor.name} is inside the loop {frame.path}, which an output needs "
                    "as a whole",
                    node=tensor.node,
                    frame=frame.path,
                    hint="name inputs outside of the loop, or outputs inside of it for one "
                    "iteration",
                )
        for frame in self.opened:
            merges = [node for node in self._loop_merges(frame.merges) if node in kept]
            if merges:
                ports = [node.output(port) for node in merges for port in (0, 1)]
                names = [item.name for item in ports if item.port == 0 or item in self.targets]
                raise UsageError(
                    f"an output depends on {first_names(names, _MAX_NAMES)}, which the loop "
                    f"{frame.path} carries from one iteration to the next",
                    node=merges[0],
                    frame=frame.path,
                    hint=f"add inputs {','.join(names[:_MAX_NAMES])}; or name outputs outside of "
                    "the loop to keep it whole",
                )

    def _require_whole_conditionals(self, kept: Collection[Node]) -> None:
        """Raise UsageError if an input would be live where the graph has it dead, and a Merge
        would notice.
        """
        if not any(ROLES[node.op] is Role.SWITCH for node in self.graph):
            return
        liveness = deadness(self.graph)
        groups: dict[tuple[Any, Frame], list[Output]] = {}
        for item in self.cut:
            if not liveness.always_live(item):
                frame = self.frames.of_outputs[item.node]
                groups.setdefault((liveness.predicate(item), frame), []).append(item)
        conditional = [group[0] for group in groups.values()]
        for number, (tensor, group) in enumerate(zip(conditional, groups.values(), strict=True)):
            check_deadline()
            for second in conditional[number + 1 :]:
                if not liveness.can_both_live(tensor, second):
                    raise UsageError(
                        f"inputs {tensor.name} and {second.name} are never live together",
                        node=tensor.node,
                        hint="they are on two sides of a conditional: extract one side at a time",
                    )
            for merge in self._merges_after(group, kept):
                if not liveness.implies(merge.output(), tensor):
                    raise UsageError(
                        f"input {tensor.name} is inside a conditional, which an output needs as a "
                        f"whole: {merge.name} merges its sides",
                        node=tensor.node,
                        hint="name inputs before the conditional, or outputs inside of its branch",
                    )

    def _merges_after(self, tensors: Sequence[Output], kept: Collection[Node]) -> list[Node]:
        """Return the kept Merges that depend on cut tensors, outside of whole loops."""
        cut = frozenset(self.cut)
        readers = [
            use.node
            for tensor in tensors
            for use in tensor.node.uses
            if use.node in kept and _reads(use.node, tensor)
        ]
        reached = reachable(
            readers,
            lambda node: [
                use.node
                for use in node.uses
                if use.node in kept and not all(item in cut for item in _between(node, use.node))
            ],
        )
        merges = [node for node in self.nodes if node in reached]
        return [
            node
            for node in merges
            if ROLES[node.op] is Role.MERGE and self.frames.of[node] in self.opened
        ]

    def warnings(self) -> tuple[str, ...]:
        """Describe what the extracted graph still needs, and inputs that nothing reads."""
        texts = [f"input {item.name} is not read by any output" for item in self.unread]
        variables = [node.name for node in self.nodes if is_variable(node)]
        if variables:
            names = first_names(variables, _MAX_NAMES)
            texts.append(f"the extracted graph reads variables: {names}; a run needs their values")
        return tuple(texts)

    def apply(self, values: Mapping[Output, Any]) -> dict[Output, Output]:
        """Edit the graph; returns the replacement of each cut tensor."""
        graph, kept = self.graph, set(self.nodes)
        shapes = infer_shapes(graph, sent=self.cut)
        removed = [node for node in graph if node not in kept]
        new = {item: self._replacement(item, shapes, values.get(item)) for item in self.cut}
        first = {item.node: tensor.node for item, tensor in reversed(new.items())}
        for node in self.nodes:
            check_deadline()
            if any(tensor in new for tensor in node.inputs):
                graph.set_inputs(node, [new.get(tensor, tensor) for tensor in node.inputs])
            if any(control not in kept for control in node.controls):
                graph.set_controls(node, [first.get(control, control) for control in node.controls])
        for node in self.nodes:
            self._open_frame(node)
        graph.remove(*removed)
        self._name_replacements(new)
        graph.reorder([*(item.node for item in new.values()), *self.nodes])
        drop_dangling_colocation(graph, self.nodes)
        remove_uncalled_functions(graph)
        for number, item in enumerate(self.targets):
            if item in new and isinstance(item, Output):
                self.output_names[number] = new[item].name
        return new

    def _replacement(self, tensor: Output, shapes: StaticShapes, value: Any) -> Output:
        """Add the Placeholder or the Const of a cut tensor."""
        node, name, dtype = tensor.node, tensor.node.name, tensor.dtype
        if dtype is None:
            message = f"the type of input {tensor.name} is unknown"
            raise Unsupported(message, node=node, hint="cut elsewhere")
        if value is None and dtype.is_ref:
            message = f"input {tensor.name} is a reference to a variable, which cannot be fed"
            raise Unsupported(message, node=node, hint="cut at a tensor that is read from it")
        if value is None:
            attrs: dict[str, Any] = {"dtype": dtype.base, "shape": shapes[tensor]}
            return self.graph.add("Placeholder", name=name, attrs=attrs).output()
        if _is_opaque(tensor):
            message = f"input {tensor.name} is a {dtype}, of which there is no Const"
            raise Unsupported(message, node=node, hint="cut at a tensor that is computed from it")
        try:
            array = np.asarray(value, dtype.base.numpy)
        except (TypeError, ValueError, OverflowError):
            raise UsageError(f"the value of {tensor.name} is not {dtype.base}") from None
        attrs = {"dtype": dtype.base, "value": TensorValue(array)}
        return self.graph.add("Const", name=name, attrs=attrs).output()

    def _name_replacements(self, new: Mapping[Output, Output]) -> None:
        """Give a replacement the name of its tensor, `x` for `x:0` and `x_1` for `x:1`."""
        kept = {node.name for node in self.nodes}
        for tensor, replacement in new.items():
            base = tensor.node.name
            name = base if tensor.port == 0 else f"{base}_{tensor.port}"
            number = 0
            while name in kept:
                number += 1
                name = f"{base}_{tensor.port}_{number}"
            kept.add(name)
            replacement.node.name = name

    def _open_frame(self, node: Node) -> None:
        """Replace a node that belongs to the protocol of an opened loop by an Identity."""
        role = ROLES[node.op]
        frame = self.frames.of_outputs[node]
        if role in (Role.ENTER, Role.NEXT_ITERATION, Role.LOOP_COND) and frame in self.opened:
            dtype = node.inputs[0].dtype
            annotations = {key: value for key, value in node.attrs.items() if key[:1] == "_"}
            self.graph.set_op(node, "Identity", {"T": dtype, **annotations})
            return
        opened = sum(loop in self.opened for loop in frame.loops)
        if opened and draws(node, self.graph.functions):
            streams = StreamScope(iterations=self.iterations[:opened])
            annotations = streams.annotations(node, frame.depth - opened)
            node.attrs = {**node.attrs, **annotations}


def _target(graph: Graph, name: str) -> Output | Node:
    return graph[name[1:]] if name.startswith("^") else graph.tensor(name)


def _is_opaque(tensor: Output) -> bool:
    """True for a resource, a variant, and a reference, which have no value to feed."""
    dtype = tensor.dtype
    return dtype is not None and (dtype.is_handle or dtype.kind == "variant")


def _common_frame(graph_frames: Frames, targets: Sequence[Output | Node]) -> Frame:
    """Return the frame of all outputs. Raises UsageError if they are in different ones."""
    found: dict[Frame, str] = {}
    for item in targets:
        node = item if isinstance(item, Node) else item.node
        found.setdefault(graph_frames.of_outputs[node], node.name)
    if len(found) > 1:
        texts = [f"{name} in {frame.path}" for frame, name in found.items()]
        message = f"the outputs are in different loops: {first_names(texts, _MAX_NAMES)}"
        raise UsageError(message, hint="extract those of one loop at a time")
    return next(iter(found))


def _ancestry(frame: Frame) -> frozenset[Frame]:
    """Return a frame and all that contain it."""
    chain, current = [frame], frame.parent
    while current is not None:
        chain.append(current)
        current = current.parent
    return frozenset(chain)


def _reads(node: Node, tensor: Output) -> bool:
    return tensor in node.inputs or tensor.node in node.controls


def _between(source: Node, reader: Node) -> list[Output | None]:
    """Return the edges between two nodes; None for a control edge."""
    edges: list[Output | None] = [item for item in reader.inputs if item.node is source]
    return edges + [None] * (source in reader.controls)
