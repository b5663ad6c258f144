"""Graph edits during lowering: add nodes, queue call sites, and rewire readers to results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from cfgraph.ir import registry
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import CONTROL, Graph, Node, Output
from cfgraph.ir.role import Role
from cfgraph.ir.topological_order import OpRoles
from cfgraph.passes.lower.functional_node import CallSite, InlineScope
from cfgraph.passes.lower.plan import LoweringPlan


class LoweredOutput(NamedTuple):
    """What an output of a functional node became, and what its readers must wait for besides."""

    output: Output
    waits: tuple[Node, ...] = ()


class Rewriter:
    """What all parts of lowering share.

    `stack` holds the sites to lower next; `made` the nodes made for the node of the graph that is
    being lowered; `lowered` counts the sites.
    """

    def __init__(self, graph: Graph, plan: LoweringPlan) -> None:
        self.graph = graph
        self.plan = plan
        self.roles = OpRoles()
        self.stack: list[CallSite] = []
        self.made: list[Node] = []
        self.lowered = 0
        self._pending: set[Node] = set()
        self._frames = {
            node.attrs.get("frame_name") for node in graph if self.roles[node.op] is Role.ENTER
        }

    # -- making nodes ----------------------------------------------------------------------------

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
        attrs: dict[str, Any],
        inputs: Iterable[Output] = (),
        controls: Iterable[Node] = (),
        device: str = "",
    ) -> Node:
        """Add a node with any attributes under `name`, made unique."""
        name = self.graph.unique_name(name)
        node = self.graph.create(name, op, inputs, controls, attrs, device)
        self.made.append(node)
        return node

    def convert_to(
        self,
        node: Node,
        op: str,
        inputs: Iterable[Output] = (),
        controls: Iterable[Node] = (),
        **attrs: Any,
    ) -> Node:
        """Turn a node into another op; its name, its place and its readers stay."""
        self.graph.set_op(node, op, attrs)
        self.graph.connect(node, inputs, controls)
        return node

    def frame(self, name: str) -> bytes:
        """A frame name that no other loop has."""
        frame, number = name.encode(), 0
        while frame in self._frames:
            number += 1
            frame = f"{name}_{number}".encode()
        self._frames.add(frame)
        return frame

    # -- sites -----------------------------------------------------------------------------------

    def push(self, sites: Iterable[CallSite]) -> None:
        """Lower these next, the first one first."""
        sites = list(sites)
        self._pending.update(site.node for site in sites)
        self.stack.extend(reversed(sites))

    def open(self) -> CallSite:
        """Take the next site, and settle what it reads and waits for."""
        site = self.stack.pop()
        self.lowered += 1
        node = site.node
        self._pending.remove(node)
        site.inputs, site.controls = node.inputs, node.controls
        site.ordering_inputs = tuple(
            dict.fromkeys(i.node for i in node.inputs if _has_predecessors(i.node))
        )
        if site.guarded:
            self._gate(site)
        elif len(node.controls) > 1:
            start = self.add(f"{node.name}/start", "NoOp", (), node.controls, node.device)
            site.controls = (start,)
        return site

    def _gate(self, site: CallSite) -> None:
        """Let all inputs pass one node, which runs exactly when the functional node would."""
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

    def needed(self, site: CallSite, count: int) -> int:
        """The outputs (bits) that something reads, or may fetch."""
        if site.surface:
            return (1 << count) - 1
        return self.read_ports(site.node)

    def read_ports(self, node: Node) -> int:
        """The outputs (bits) of a node that something reads."""
        bits = 0
        for reader, slot in node.uses:
            if slot != CONTROL:
                bits |= 1 << reader.inputs[slot].port
        return bits

    # -- readers ---------------------------------------------------------------------------------

    def finish(
        self, site: CallSite, results: Sequence[LoweredOutput | None], done: Sequence[Node] = ()
    ) -> None:
        """Hand the readers of a lowered node on to its results.

        `done` are nodes that must have run before whatever waits for the node by a control edge,
        besides those that the results wait for.
        """
        if site.surface:
            self._retain_name(site, [r for r in results if r is not None], done)
        else:
            self._remove_name(site, results, done)

    def _retain_name(
        self, site: CallSite, results: Sequence[LoweredOutput], done: Sequence[Node]
    ) -> None:
        """Keep the name: as Identity, IdentityN or NoOp. Readers pass it by where they can."""
        node, types = site.node, site.functional_node.output_types
        outputs = [result.output for result in results]
        if len(outputs) == 1:
            self.rewire(site, {} if results[0].waits else {0: outputs[0]})
        else:
            self.rewire(site, self.gated(site, results))
        waits = [*done, *(wait for result in results for wait in result.waits)]
        waits.extend(self.ordering_inputs(site))
        known = {output.node for output in outputs if self.roles[output.node.op] is not Role.SWITCH}
        controls = [wait for wait in dict.fromkeys(waits) if wait not in known]
        if not outputs:
            self.convert_to(node, "NoOp", (), dict.fromkeys([*site.controls, *controls]))
        elif len(outputs) == 1:
            self.convert_to(node, "Identity", outputs, controls, T=types[0])
        else:
            self.convert_to(node, "IdentityN", outputs, controls, T=tuple(types))

    def _remove_name(
        self, site: CallSite, results: Sequence[LoweredOutput | None], done: Sequence[Node]
    ) -> None:
        """Leave nothing under the name, but a NoOp where control edges meet."""
        node = site.node
        self.rewire(site, self.gated(site, results))
        if not node.control_readers:
            self.graph.remove(node)
            return
        waits = dict.fromkeys([*done, *self.ordering_inputs(site), *site.controls])
        if all(self.roles[wait.op] is Role.CONTROL_TRIGGER for wait in done):
            pivot = site.pivot()
            waits.update({} if pivot is None else {pivot: None})
        self.convert_to(node, "NoOp", (), waits)

    def gated(self, site: CallSite, results: Sequence[LoweredOutput | None]) -> dict[int, Output]:
        """The results that are read, by port; one that must wait for more passes an Identity."""
        node, types, found = site.node, site.functional_node.output_types, {}
        read = self.read_ports(node)
        for port, result in enumerate(results):
            if result is None or not read >> port & 1:
                continue
            found[port] = result.output
            if result.waits:
                name, inputs = f"{node.name}/Identity", (result.output,)
                waited = self.add(
                    name, "Identity", inputs, result.waits, node.device, T=types[port]
                )
                found[port] = Output(waited)
        return found

    def ordering_inputs(self, site: CallSite) -> tuple[Node, ...]:
        """What an order must be kept with that goes through the site: its inputs, if any waits."""
        return site.ordering_inputs if site.node.control_readers else ()

    def rewire(self, site: CallSite, new: Mapping[int, Output]) -> None:
        """Let the readers of a node's outputs read others."""
        node, graph, loose = site.node, self.graph, site.loose
        readers = dict.fromkeys(use.node for use in node.uses if use.slot != CONTROL)
        untied = {port for port, item in new.items() if item.node in loose}
        for reader in readers:
            mine = {item.port for item in reader.inputs if item.node is node}
            inputs = [
                new.get(item.port, item) if item.node is node else item for item in reader.inputs
            ]
            if untied & mine:
                inputs = self.tie(reader, inputs, site.scope)
            graph.set_inputs(reader, inputs)

    def tie(self, reader: Node, inputs: list[Output], scope: InlineScope) -> list[Output]:
        """Keep a node that now reads something loose from running when its scope does not."""
        if reader in self._pending:
            return inputs
        pivot = scope.pivot()
        assert pivot is not None
        if self.roles[reader.op] is Role.MERGE:
            return [self.tied(item, pivot) if item.node in scope.loose else item for item in inputs]
        self.graph.add_control(reader, pivot)
        return inputs

    def tied(self, item: Output, pivot: Node) -> Output:
        """A loose value, live only if the pivot is; for a Merge, which does not wait for all."""
        dtype = item.dtype
        assert dtype is not None
        name = f"{item.node.name}/Identity"
        node = self.add(name, "Identity", (item,), (pivot,), item.node.device, T=dtype.base)
        return Output(node)


def input_types(site: CallSite) -> list[DType]:
    """The types of all inputs of a functional node."""
    types = registry.input_types(site.node)
    return list(site.functional_node.functions[0].input_types) if types is None else types


def _has_predecessors(node: Node) -> bool:
    """False for what has nothing before it."""
    return bool(node.inputs or node.controls)
