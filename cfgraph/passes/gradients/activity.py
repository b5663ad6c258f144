"""Activity analysis: the tensors that depend on an x and that a y depends on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cfgraph.analysis.gradient_paths import carries_gradient, stops_gradients
from cfgraph.ir import registry
from cfgraph.ir.graph import Node, Output


class ActivityAnalysis:
    """The tensors whose gradients are wanted: where a path leads from an x over them to a y.

    Paths go over tensors that are numbers, resources or variants, and end at the nodes of `stops`:
    a gradient arrives there and goes no further. `links` has for a node, like a pop, the nodes
    that write what it reads without an edge.
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
        reached = self._reached(xs)
        self._wanted = self._between(ys, reached)

    def wants(self, x: Output) -> bool:
        """True if the gradient of a tensor is wanted."""
        return x in self._wanted

    def wanted(self, tensors: Iterable[Output]) -> list[bool]:
        """For each tensor, True if its gradient is wanted."""
        wanted = self._wanted
        return [item in wanted for item in tensors]

    def want(self, tensors: Iterable[Output]) -> None:
        """Want the gradients of new tensors."""
        self._wanted.update(tensors)

    def also(self, twins: Mapping[Node, Node]) -> None:
        """Want of new nodes what is wanted of those that they are like."""
        self.stops |= {twin for node, twin in twins.items() if node in self.stops}
        for node, twin in twins.items():
            ports = range(registry.output_count(node) or 0)
            self.want(twin.output(port) for port in ports if self.wants(node.output(port)))

    def _reached(self, xs: Iterable[Output]) -> set[Output]:
        """All tensors that depend on an x, the xs too."""
        reached = {x for x in xs if carries_gradient(x)}
        todo = list(reached)
        opened: set[Node] = set(self.stops)
        counts = registry.output_count
        while todo:
            source, port = todo.pop()
            readers = [use[0] for use in source.readers(port)]
            if self._readers:
                readers += [more for node in readers for more in self._readers.get(node, ())]
            for node in readers:
                if node in opened:
                    continue
                opened.add(node)
                if stops_gradients(node.op):
                    continue
                count = counts(node)
                if count is None:
                    new = _outputs_read_of_unknown_op(node)
                else:
                    made = [node.output(port) for port in range(count)]
                    new = [item for item in made if carries_gradient(item) and item not in reached]
                reached.update(new)
                todo += new
        return reached

    def _between(self, ys: Iterable[Output], reached: set[Output]) -> set[Output]:
        """Those of them that a y depends on."""
        found = {y for y in ys if y in reached}
        opened = set(self.stops)
        todo = [y.node for y in found if y.node not in opened]
        opened.update(todo)
        while todo:
            node = todo.pop()
            read = node.inputs
            for writer in self._writers.get(node, ()):
                read += writer.inputs
            for item in read:
                if item not in reached:
                    continue
                found.add(item)
                source = item[0]
                if source not in opened:
                    opened.add(source)
                    todo.append(source)
        return found


def _outputs_read_of_unknown_op(node: Node) -> list[Output]:
    """What is read of a node of an unknown op: a gradient may flow there, and is to be refused."""
    return [use.node.inputs[use.slot] for use in node.uses if use.slot >= 0]
