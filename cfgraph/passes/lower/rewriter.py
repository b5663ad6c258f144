"""Graph edits during lowering: add nodes, queue call sites, and rewire readers to results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from cfgraph.analysis.loops.frames import FrameNames
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import CONTROL, Graph, Node, Output
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import Role
from cfgraph.passes.lower.functional_node import CallSite, InlineScope
from cfgraph.passes.lower.plan import LoweringPlan

# a reader with more inputs is not rebuilt for each of them
_MANY_INPUTS: Final = 64


class LoweredOutput(NamedTuple):
    """The replacement of an output of a functional node, and control inputs for its readers."""

    output: Output
    awaited: tuple[Node, ...] = ()


class Rewriter:
    """The graph that is lowered, and the call sites that remain.

    `stack` are the sites to lower next, `added` the nodes added for the current top-level node,
    and `lowered` is the number of sites lowered so far.
    """

    def __init__(self, graph: Graph, plan: LoweringPlan) -> None:
        self.graph = graph
        self.plan = plan
        self.stack: list[CallSite] = []
        self.added: list[Node] = []
        self.lowered = 0
        self._pending: set[Node] = set()
        self._open: dict[Node, None] = {}
        self._frame_names = FrameNames(graph)

    # -- adding nodes ----------------------------------------------------------------------------

    def add(
        self,
        name: str,
        op: str,
        inputs: Iterable[Output] = (),
        controls: Iterable[Node] = (),
        device: str = "",
        **attrs: Any,
    ) -> Node:
        """Add a node under `name`, made unique."""
        return self.create(name, op, attrs, inputs, controls, device)

    def create(
        self,
        name: str,
        op: str,
        attrs: Mapping[str, Any],
        inputs: Iterable[Output] = (),
        controls: Iterable[Node] = (),
        device: str = "",
    ) -> Node:
        """Add a node with any attributes under `name`, made unique."""
        name = self.graph.unique_name(name)
        node = self.graph.create(name, op, inputs, controls, attrs, device)
        self.added.append(node)
        return node

    def convert_to(
        self,
        node: Node,
        op: str,
        inputs: Iterable[Output] = (),
        controls: Iterable[Node] = (),
        **attrs: Any,
    ) -> Node:
        """Change the op of a node, which retains its name, position and readers."""
        self.graph.set_op(node, op, attrs)
        self.graph.connect(node, inputs, controls)
        return node

    def unique_frame_name(self, name: str) -> bytes:
        """A frame name that no other loop has, derived from `name`."""
        return self._frame_names.unique(name.encode())

    # -- sites -----------------------------------------------------------------------------------

    def push(self, sites: Iterable[CallSite]) -> None:
        """Lower these sites next, in order."""
        sites = list(sites)
        self._pending.update(site.node for site in sites)
        self.stack.extend(reversed(sites))

    def next_site(self) -> CallSite:
        """Pop the next site, and set its inputs and control inputs."""
        site = self.stack.pop()
        self.lowered += 1
        node = site.node
        self._pending.remove(node)
        site.inputs, site.controls = node.inputs, node.controls
        site.ordering_inputs = tuple(
            dict.fromkeys(i.node for i in node.inputs if _has_predecessors(i.node))
        )
        if site.is_guarded:
            self._add_input_gate(site)
        elif len(node.controls) > 1:
            start = self.add(f"{node.name}/start", "NoOp", (), node.controls, node.device)
            site.controls = (start,)
        return site

    def _add_input_gate(self, site: CallSite) -> None:
        """Pass all inputs through a node that is live exactly when the functional node would be."""
        node = site.node
        name = f"{node.name}/inputs"
        if not node.inputs:
            site.gate = self.add(name, "NoOp", (), node.controls, node.device)
        else:
            types = tuple(input_types(site))
            gate = self.add(name, "IdentityN", node.inputs, node.controls, node.device, T=types)
            site.inputs = tuple(Output(gate, port) for port in range(len(types)))
            site.gate = gate
        site.controls, site.ordering_inputs = (), (site.gate,)

    def needed_outputs(self, site: CallSite, count: int) -> int:
        """The bit mask of the outputs that are read, or may be fetched."""
        if site.is_top_level:
            return (1 << count) - 1
        return self.read_ports(site.node)

    def read_ports(self, node: Node) -> int:
        """The bit mask of the outputs of a node that are read."""
        bits = 0
        for reader, slot in node.uses:
            if slot != CONTROL:
                bits |= 1 << reader.inputs[slot].port
        return bits

    # -- readers ---------------------------------------------------------------------------------

    def replace(
        self,
        site: CallSite,
        results: Sequence[LoweredOutput | None],
        completed: Sequence[Node] = (),
    ) -> None:
        """Replace a lowered node with its results.

        Control-dependent readers of the node wait for the `completed` nodes and for the nodes that
        the results await.
        """
        if site.is_top_level:
            self._retain_name(site, [r for r in results if r is not None], completed)
        else:
            self._remove_name(site, results, completed)

    def _retain_name(
        self, site: CallSite, results: Sequence[LoweredOutput], completed: Sequence[Node]
    ) -> None:
        """Retain the name as an Identity, IdentityN or NoOp, which readers bypass if possible."""
        node, types = site.node, site.functional_node.output_types
        outputs = [result.output for result in results]
        if len(outputs) == 1:
            self.rewire(site, {} if results[0].awaited else {0: outputs[0]})
        else:
            self.rewire(site, self.waiting_results(site, results))
        awaited = [*completed, *(node for result in results for node in result.awaited)]
        awaited.extend(self.ordering_inputs(site))
        known = {output.node for output in outputs if ROLES[output.node.op] is not Role.SWITCH}
        controls = [wait for wait in dict.fromkeys(awaited) if wait not in known]
        if not outputs:
            self.convert_to(node, "NoOp", (), dict.fromkeys([*site.controls, *controls]))
        elif len(outputs) == 1:
            self.convert_to(node, "Identity", outputs, controls, T=types[0])
        else:
            self.convert_to(node, "IdentityN", outputs, controls, T=tuple(types))

    def _remove_name(
        self, site: CallSite, results: Sequence[LoweredOutput | None], completed: Sequence[Node]
    ) -> None:
        """Remove the node, or replace it by a NoOp if control edges start from it."""
        node = site.node
        self.rewire(site, self.waiting_results(site, results))
        if not node.control_readers:
            self.graph.remove(node)
            return
        controls = dict.fromkeys([*completed, *self.ordering_inputs(site), *site.controls])
        if all(ROLES[wait.op] is Role.CONTROL_TRIGGER for wait in completed):
            pivot = site.pivot()
            controls.update({} if pivot is None else {pivot: None})
        self.convert_to(node, "NoOp", (), controls)

    def waiting_results(
        self, site: CallSite, results: Sequence[LoweredOutput | None]
    ) -> dict[int, Output]:
        """The results that are read, by port; an Identity delays one that must await nodes."""
        node, types, replacements = site.node, site.functional_node.output_types, {}
        read = self.read_ports(node)
        for port, result in enumerate(results):
            if result is None or not read >> port & 1:
                continue
            replacements[port] = result.output
            if result.awaited:
                name, inputs = f"{node.name}/Identity", (result.output,)
                waiting = self.add(
                    name, "Identity", inputs, result.awaited, node.device, T=types[port]
                )
                replacements[port] = Output(waiting)
        return replacements

    def ordering_inputs(self, site: CallSite) -> tuple[Node, ...]:
        """Nodes that control-dependent readers of the site must wait for: its inputs, if any."""
        return site.ordering_inputs if site.node.control_readers else ()

    def rewire(self, site: CallSite, new: Mapping[int, Output]) -> None:
        """Replace the outputs that the readers of a node read."""
        node, graph, always_live = site.node, self.graph, site.always_live
        slots: dict[Node, list[int]] = {}
        for reader, slot in node.uses:
            if slot != CONTROL:
                slots.setdefault(reader, []).append(slot)
        unguarded = {port for port, x in new.items() if x.node in always_live}
        for reader, read in slots.items():
            if not unguarded and self._opens(reader):
                for slot in read:
                    port = reader.inputs[slot].port
                    if port in new:
                        graph.set_input(reader, slot, new[port])
                continue
            ports = {x.port for x in reader.inputs if x.node is node}
            inputs = [new.get(x.port, x) if x.node is node else x for x in reader.inputs]
            if unguarded & ports:
                inputs = self.guard_reader(reader, inputs, site.scope)
            graph.set_inputs(reader, inputs)

    def _opens(self, reader: Node) -> bool:
        """True for a reader with many inputs, which change one by one until `close_readers`."""
        if len(reader.inputs) <= _MANY_INPUTS or reader in self._pending:
            return False
        if reader in self.plan.functional_nodes:
            return False
        if reader not in self._open:
            self._open[reader] = None
            self.graph.open_inputs(reader)
        return True

    def close_readers(self) -> None:
        """Complete the inputs of all readers with many inputs."""
        for reader in self._open:
            self.graph.close_inputs(reader)

    def guard_reader(self, reader: Node, inputs: list[Output], scope: InlineScope) -> list[Output]:
        """Make a node that now reads an always-live value run only if its scope does."""
        if reader in self._pending:
            return inputs
        pivot = scope.pivot()
        assert pivot is not None
        if ROLES[reader.op] is Role.MERGE:
            always_live = scope.always_live
            return [self.with_pivot(x, pivot) if x.node in always_live else x for x in inputs]
        self.graph.add_control(reader, pivot)
        return inputs

    def with_pivot(self, x: Output, pivot: Node) -> Output:
        """An always-live value, live only if the pivot is: a Merge does not wait for all inputs."""
        dtype = x.dtype
        assert dtype is not None
        name = f"{x.node.name}/Identity"
        node = self.add(name, "Identity", (x,), (pivot,), x.node.device, T=dtype.base)
        return Output(node)


def input_types(site: CallSite) -> list[DType]:
    """The types of all inputs of a functional node."""
    types = site.node.input_types
    return list(site.functional_node.functions[0].input_types) if types is None else types


def _has_predecessors(node: Node) -> bool:
    """True for a node with inputs or control inputs."""
    return bool(node.inputs or node.controls)
