"""Removal of nodes from a graph: tensors that remaining nodes read are replaced by stand-ins.

    a ──▶ f ──▶ g ──▶ y        without f   ──▶        f' ──▶ g ──▶ y

The stand-in is a Const or a Placeholder with the name of the tensor (`f` for `f:0`, `f_1` for
`f:1`). In a loop it has a control edge from an anchor, a remaining node that is live whenever the
removed node was, and so stays in the frame of the loop. A frame can also be opened: the nodes that
remain of it run once, outside of any loop, with the values of one iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from cfgraph.analysis.loops.frame import Frame
from cfgraph.analysis.loops.frames import frames
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.library import copy_graph
from cfgraph.ir.names import unused_name
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import Role
from cfgraph.ir.shapes import Shape
from cfgraph.ops.opdef.op import role_of, strip_identities
from cfgraph.ops.shape_inference import StaticShapes, infer_shapes
from cfgraph.passes.lower.lower import drop_dangling_colocation

_LOOP_ROLES: Final = (Role.ENTER, Role.NEXT_ITERATION, Role.LOOP_COND, Role.EXIT)
_ENTERING: Final = (Role.ENTER, Role.NEXT_ITERATION)
# a stand-in without a recorded value is not larger
_MAX_ELEMENTS: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class StandIns:
    """Contents of stand-ins: the recorded values of tensors by name, else what `fallback` says.

    It is `placeholder`, `zeros`, or empty: a tensor without a value then cannot be replaced.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    fallback: str = ""

    def content(
        self, tensor: Output, shape: Callable[[Output], Shape]
    ) -> tuple[str, dict[str, Any]] | None:
        """Return the op and the attributes of the stand-in of a tensor, None if there is none."""
        dtype = tensor.dtype
        if dtype is None or dtype.is_ref or dtype.is_handle or dtype.kind == "variant":
            return None
        value = self.values.get(tensor.name)
        if value is None and self.fallback == "placeholder":
            return "Placeholder", {"dtype": dtype.base, "shape": shape(tensor)}
        if value is None and self.fallback == "zeros" and not dtype.is_object:
            dims = [1 if size is None else size for size in shape(tensor).dims or ()]
            if np.prod(dims, dtype=object) <= _MAX_ELEMENTS:
                value = np.zeros(dims, dtype.base.numpy)
        if value is None:
            return None
        array = np.array(value, dtype.base.numpy)
        return "Const", {"dtype": dtype.base, "value": TensorValue(array)}


def without_nodes(
    graph: Graph, names: Collection[str], stand_ins: StandIns, opened: Collection[str] = ()
) -> Graph | None:
    """Return a copy of a graph without some nodes, None if a tensor has no stand-in.

    `opened` are paths of frames that are opened.
    """
    removed = {graph.nodes[name] for name in names if name in graph.nodes}
    return _Removal(graph, removed, stand_ins, opened).apply()


class _Removal:
    """One removal; it is planned on the graph, and applied to a copy."""

    def __init__(
        self, graph: Graph, removed: set[Node], stand_ins: StandIns, opened: Collection[str]
    ) -> None:
        self.graph = graph
        self.removed = removed
        self.stand_ins = stand_ins
        self.frames = frames(graph)
        self.shapes: StaticShapes | None = None
        self.opened = {frame for frame in self.frames.all if frame.path in opened}

    def apply(self) -> Graph | None:
        """Return the copy, None if a tensor has no stand-in."""
        remaining = [node for node in self.graph if node not in self.removed]
        read = dict.fromkeys(
            tensor for node in remaining for tensor in node.inputs if tensor.node in self.removed
        )
        contents = {tensor: self.stand_ins.content(tensor, self._shape) for tensor in read}
        if None in contents.values() or any(self._is_back_edge(node) for node in remaining):
            return None
        copy = copy_graph(self.graph)
        copies = {node: copy.nodes[node.name] for node in self.graph}
        new: dict[Output, Output] = {}
        for tensor, (op, attrs) in ((t, c) for t, c in contents.items() if c):
            frame = self._frame(tensor)
            anchor = self._anchor(tensor, frame) if frame is not None else None
            if frame is not None and anchor is None:
                return None
            controls = [_control(copy, copies, anchor)] if anchor is not None else []
            name = copy.unique_name("stand_in")
            new[tensor] = copy.create(name, op, (), controls, attrs, tensor.node.device).output()
        for node in remaining:
            self._reconnect(copy, copies, node, new)
        self._finish(copy, copies, new)
        return copy

    def _shape(self, tensor: Output) -> Shape:
        """Return the static shape of a tensor."""
        if self.shapes is None:
            self.shapes = infer_shapes(self.graph)
        return self.shapes[tensor]

    def _is_back_edge(self, node: Node) -> bool:
        """True for a Merge that remains in its loop, but loses the edge that makes it one."""
        return (
            ROLES[node.op] is Role.MERGE
            and self.frames.of[node] not in self.opened
            and any(
                item.node in self.removed and ROLES[item.node.op] in _ENTERING
                for item in node.inputs
            )
        )

    def _frame(self, tensor: Output) -> Frame | None:
        """Return the frame of a stand-in, None outside of loops."""
        frame = self.frames.of_outputs[tensor.node]
        return None if frame is self.frames.root or frame in self.opened else frame

    def _anchor(self, tensor: Output, frame: Frame) -> Output | None:
        """Return an output in a frame that is live whenever a removed tensor was."""
        node, role = tensor.node, ROLES[tensor.node.op]
        if role is Role.MERGE or role is Role.ENTER:
            merges = (merge for merge in frame.merges if is_loop_merge(merge))
            return next((item.output() for item in merges if item not in self.removed), None)
        if role is Role.SWITCH:
            for use in node.inputs[1].node.readers(node.inputs[1].port):
                if use.slot == 1 and use.node not in self.removed:
                    return use.node.output(tensor.port)
            return None
        seen, queue = {tensor}, [tensor]
        for current in queue:
            sources = [*current.node.inputs, *(item.output() for item in current.node.controls)]
            for source in sources:
                if source in seen or self.frames.of_outputs[source.node] is not frame:
                    continue
                if source.node not in self.removed:
                    return source
                if ROLES[source.node.op] in (Role.SWITCH, Role.MERGE, Role.ENTER):
                    return self._anchor(source, frame)
                seen.add(source)
                queue.append(source)
        return None

    def _reconnect(
        self, copy: Graph, copies: Mapping[Node, Node], node: Node, new: Mapping[Output, Output]
    ) -> None:
        """Replace the inputs of a remaining node, and drop its control edges from removed ones."""
        target = copies[node]
        if any(tensor in new for tensor in node.inputs):
            inputs = [
                new.get(old, item) for old, item in zip(node.inputs, target.inputs, strict=True)
            ]
            copy.set_inputs(target, inputs)
        lost = [item for item in node.controls if item in self.removed]
        if not lost:
            return
        controls = [copies[item] for item in node.controls if item not in self.removed]
        frame = self._frame(node.output())
        if not controls and not node.inputs and frame is not None:
            anchor = self._anchor(lost[0].output(), frame)
            controls = [_control(copy, copies, anchor)] if anchor is not None else []
        copy.set_controls(target, controls)

    def _finish(
        self, copy: Graph, copies: Mapping[Node, Node], new: Mapping[Output, Output]
    ) -> None:
        """Remove the nodes, open frames, and name the stand-ins like their tensors."""
        removed = {copies[node] for node in self.removed}
        order = {node: number for number, node in enumerate(self.graph)}
        positions = {copies[node]: number for node, number in order.items()}
        positions |= {item.node: order[tensor.node] for tensor, item in new.items()}
        copy.remove(*removed)
        stand_ins = {item.node for item in new.values()}
        taken = {node.name for node in copy if node not in stand_ins}
        for tensor, item in new.items():
            base = tensor.node.name if tensor.port == 0 else f"{tensor.node.name}_{tensor.port}"
            item.node.name = unused_name(base, taken)
            taken.add(item.node.name)
        for node in self.graph:
            if self.opened and node not in self.removed:
                self._open_frame(copy, node, copies[node])
        copy.reorder(sorted(copy, key=lambda node: positions.get(node, len(positions))))
        drop_dangling_colocation(copy, copy)

    def _open_frame(self, copy: Graph, node: Node, target: Node) -> None:
        """Replace a node of the protocol of an opened loop by an Identity."""
        role = ROLES[node.op]
        frame = self.frames.of[node] if role is Role.EXIT else self.frames.of_outputs[node]
        if role in _LOOP_ROLES and frame in self.opened:
            annotations = {key: value for key, value in node.attrs.items() if key[:1] == "_"}
            copy.set_op(target, "Identity", {"T": node.inputs[0].dtype, **annotations})


def is_loop_merge(node: Node) -> bool:
    """Return true for the Merge that starts the iterations of a loop variable."""
    sources = (role_of(item.node) for item in node.inputs)
    return role_of(node) is Role.MERGE and any(role in _ENTERING for role in sources)


def _control(copy: Graph, copies: Mapping[Node, Node], anchor: Output) -> Node:
    """Return the node of an anchor; an Identity for one side of a Switch."""
    node = copies[anchor.node]
    if ROLES[node.op] is not Role.SWITCH:
        return node
    side = node.output(anchor.port)
    for use in node.readers(anchor.port):
        if strip_identities(use.node.output()) == side:
            return use.node
    name = copy.unique_name(f"{node.name}/side_{anchor.port}")
    return copy.add("Identity", side, name=name, device=node.device)


def dead_ends(graph: Graph, names: Collection[str]) -> Iterator[Node]:
    """Yield nodes, and those before them, that no other node reads."""
    gone: set[Node] = set()
    queue = [graph.nodes[name] for name in names if name in graph.nodes]
    while queue:
        node = queue.pop()
        if node not in gone and all(use.node in gone for use in node.uses):
            gone.add(node)
            yield node
            queue += node.predecessors
