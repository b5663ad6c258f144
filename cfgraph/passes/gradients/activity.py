"""Activity analysis: the tensors that depend on an x and that a y depends on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cfgraph.analysis.gradient_paths import carries_gradient, stops_gradients
from cfgraph.ir import registry
from cfgraph.ir.graph import Node, Output


class ActivityAnalysis:
    """The active tensors, which lie on a path from an x to a y.

    Paths follow tensors that are numbers, resources or variants, and end at the nodes of `stops`,
    which receive a gradient and pass none on. `links` maps a node, such as a pop, to the nodes that
    write what it reads without an edge.
    """

    def __init__(
        self,
        ys: Iterable[Output],
        xs: Iterable[Output],
        stops: Iterable[Output] = (),
        links: Mapping[Node, Iterable[Node]] | None = None,
    ) -> None:
        self.stops = {stop.node for stop in stops}
        self._writers = links or {}
        self._readers: dict[Node, list[Node]] = {}
        for reader, writers in self._writers.items():
            for writer in writers:
                self._readers.setdefault(writer, []).append(reader)
        self._active = self._ancestors(ys, self._descendants(xs))

    def is_active(self, x: Output) -> bool:
        """True if the gradient of a tensor is needed."""
        return x in self._active

    def are_active(self, tensors: Iterable[Output]) -> list[bool]:
        """One Boolean per tensor: true if its gradient is needed."""
        active = self._active
        return [x in active for x in tensors]

    def mark_active(self, tensors: Iterable[Output]) -> None:
        """Make new tensors active."""
        self._active.update(tensors)

    def add_clones(self, clones: Mapping[Node, Node]) -> None:
        """Mark the outputs of clones as active if the original outputs are."""
        self.stops |= {clone for node, clone in clones.items() if node in self.stops}
        for node, clone in clones.items():
            ports = range(registry.output_count(node) or 0)
            self.mark_active(
                clone.output(port) for port in ports if self.is_active(node.output(port))
            )

    def _descendants(self, xs: Iterable[Output]) -> set[Output]:
        """The xs and all tensors that depend on one."""
        reached = {x for x in xs if carries_gradient(x)}
        todo = list(reached)
        visited: set[Node] = set(self.stops)
        counts = registry.output_count
        while todo:
            source, port = todo.pop()
            readers = [use[0] for use in source.readers(port)]
            if self._readers:
                readers += [linked for node in readers for linked in self._readers.get(node, ())]
            for node in readers:
                if node in visited:
                    continue
                visited.add(node)
                if stops_gradients(node.op):
                    continue
                count = counts(node)
                if count is None:
                    new = _outputs_read_of_unknown_op(node)
                else:
                    outputs = [node.output(port) for port in range(count)]
                    new = [x for x in outputs if carries_gradient(x) and x not in reached]
                reached.update(new)
                todo += new
        return reached

    def _ancestors(self, ys: Iterable[Output], reached: set[Output]) -> set[Output]:
        """The reached tensors that a y depends on."""
        active = {y for y in ys if y in reached}
        visited = set(self.stops)
        todo = [y.node for y in active if y.node not in visited]
        visited.update(todo)
        while todo:
            node = todo.pop()
            inputs = node.inputs
            for writer in self._writers.get(node, ()):
                inputs += writer.inputs
            for x in inputs:
                if x not in reached:
                    continue
                active.add(x)
                source = x[0]
                if source not in visited:
                    visited.add(source)
                    todo.append(source)
        return active


def _outputs_read_of_unknown_op(node: Node) -> list[Output]:
    """The used outputs of an unknown op: a gradient that reaches them must be rejected."""
    return [use.node.inputs[use.slot] for use in node.uses if use.slot >= 0]
