"""Lower `If` and `Case`.

Each outer tensor passes one Switch, added when a branch reads it; each output is one Merge, the
false side first:

    x ──▶ Switch ──▶ [else] ──▶ Merge ──▶ output
    pred ──▶ ┘  └──▶ [then] ──▶  ┘

Nodes of a branch without inputs depend on its pivot, an Identity of one side of
Switch(pred, pred). A Merge waits for the side effects of both branches, of which one is dead. The
Switch of a Case is a `_SwitchN`, whose last output takes an index that is out of range.
"""

from __future__ import annotations

from collections.abc import Sequence

from cfgraph.ir import dtypes
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.passes.lower.functional_node import CallSite, InlineScope
from cfgraph.passes.lower.inline import InlinedBody, inline_body
from cfgraph.passes.lower.rewriter import LoweredOutput, Rewriter, input_types


def lower_conditional(rewriter: Rewriter, site: CallSite) -> None:
    """Lower an If or a Case."""
    node, functions = site.node, site.functional_node.functions
    types = site.functional_node.output_types
    outputs = rewriter.needed_outputs(site, len(types))
    switches = ConditionalSwitches(rewriter, site)
    branches = [
        inline_body(rewriter, function, switches.arguments(side), switches.scope(side), outputs)
        for side, function in enumerate(functions)
    ]
    merge_controls = _MergeControls(rewriter, site, branches, outputs)
    ports = [port for port in range(len(types)) if outputs >> port & 1]
    if not ports:
        rewriter.replace(
            site, [None] * len(types), _merge_effects(rewriter, site, switches, merge_controls)
        )
        return
    if site.is_top_level and len(types) == 1:
        inputs = [_branch_output(branch, 0) for branch in branches]
        controls = [*merge_controls.of_port(0), *rewriter.ordering_inputs(site)]
        rewriter.convert_to(node, "Merge", inputs, controls, T=types[0], N=len(branches))
        return
    results: list[LoweredOutput | None] = [None] * len(types)
    for port in ports:
        inputs = [_branch_output(branch, port) for branch in branches]
        merge = rewriter.add(
            f"{node.name}/Merge",
            "Merge",
            inputs,
            merge_controls.of_port(port),
            node.device,
            T=types[port],
            N=len(branches),
        )
        results[port] = LoweredOutput(Output(merge))
    first = results[ports[0]]
    assert first is not None
    rewriter.replace(site, results, [first.output.node])


def _branch_output(branch: InlinedBody, port: int) -> Output:
    output = branch.returns[port]
    assert output is not None
    return output


def _merge_effects(
    rewriter: Rewriter,
    site: CallSite,
    switches: ConditionalSwitches,
    merge_controls: _MergeControls,
) -> list[Node]:
    """A Merge that runs after the effects of the branch taken; none without effects."""
    effects = merge_controls.of_all()
    if not effects:
        return []
    node, sides = site.node, range(len(site.functional_node.functions))
    pivots = [Output(switches.pivot(side)) for side in sides]
    dtype, count = switches.selector_type, len(pivots)
    name = f"{node.name}/Merge"
    return [rewriter.add(name, "Merge", pivots, effects, node.device, T=dtype, N=count)]


class _MergeControls:
    """The effects that each Merge must wait for, gathered in one node if there are many."""

    def __init__(
        self, rewriter: Rewriter, site: CallSite, branches: list[InlinedBody], outputs: int
    ) -> None:
        self._branches = branches
        self._gathered: dict[int, Node] = {}
        if outputs & (outputs - 1) == 0:
            return
        for index, branch in enumerate(branches):
            pending = branch.pending_effects(outputs)
            if len(pending) > 1:
                name = f"{site.node.name}/done"
                self._gathered[index] = rewriter.add(name, "NoOp", (), pending, site.node.device)

    def of_port(self, port: int) -> list[Node]:
        """Control inputs of the Merge of an output."""
        return self._controls([branch.awaited_effects(port) for branch in self._branches])

    def of_all(self) -> list[Node]:
        """Control inputs of a Merge that waits for all effects."""
        effects = [branch.effects for branch in self._branches]
        return self._controls(
            [[effect.node for effect in branch_effects] for branch_effects in effects]
        )

    def _controls(self, awaited: list[Sequence[Node]]) -> list[Node]:
        controls: list[Node] = []
        for index, nodes in enumerate(awaited):
            gathered = self._gathered.get(index)
            controls.extend(nodes if gathered is None or not nodes else [gathered])
        return controls


class ConditionalSwitches:
    """The Switches of a conditional: one per outer tensor, and one for the selector."""

    def __init__(self, rewriter: Rewriter, site: CallSite) -> None:
        self.rewriter = rewriter
        self.site = site
        self.count = len(site.functional_node.functions)
        self.selector, self.selector_type = self._selector()
        self._switches: dict[Output, Node] = {}
        self._pivots: dict[int, Node] = {}
        is_case = site.functional_node.kind == "case"
        self.labels = (
            [f"branch{side}" for side in range(self.count)] if is_case else ["else", "then"]
        )
        self.names = [f"{site.node.name}/{label}" for label in self.labels]

    def _selector(self) -> tuple[Output, DType]:
        """The predicate, converted to bool, or the index."""
        site, x = self.site, self.site.inputs[0]
        if site.functional_node.kind == "case":
            return x, dtypes.int32
        dtype = input_types(site)[0]
        return as_bool(self.rewriter, site, x, dtype, site.edge_controls(x)), dtypes.bool_

    def arguments(self, side: int) -> _BranchArguments:
        """The arguments of one branch."""
        return _BranchArguments(self, side)

    def scope(self, side: int) -> InlineScope:
        """The scope of the nodes of one branch."""
        return InlineScope(
            self.names[side],
            self.site.node.device,
            lambda: self.pivot(side),
            streams=self.site.streams(self.labels[side]),
        )

    def side(self, outer: Output, dtype: DType, side: int) -> Output:
        """An outer tensor, live in one branch only."""
        switch = self._switches.get(outer)
        if switch is None:
            switch = self._switches[outer] = self._switch(outer, dtype)
        return Output(switch, side)

    def _switch(self, outer: Output, dtype: DType) -> Node:
        name, inputs = f"{self.site.node.name}/Switch", (outer, self.selector)
        controls, device = self.site.edge_controls(*inputs), outer.node.device
        if self.site.functional_node.kind == "case":
            attrs = {"T": dtype, "num_outs": self.count}
            return self.rewriter.add(name, "_SwitchN", inputs, controls, device, **attrs)
        return self.rewriter.add(name, "Switch", inputs, controls, device, T=dtype)

    def pivot(self, side: int) -> Node:
        """A node that is live exactly when the branch is taken."""
        if side not in self._pivots:
            chosen = self.side(self.selector, self.selector_type, side)
            name, device = f"{self.names[side]}/pivot", self.site.node.device
            dtype = self.selector_type
            pivot = self.rewriter.add(name, "Identity", (chosen,), (), device, T=dtype)
            self._pivots[side] = pivot
        return self._pivots[side]


class _BranchArguments:
    """The arguments of one branch, each a side of its Switch."""

    def __init__(self, switches: ConditionalSwitches, side: int) -> None:
        self.switches = switches
        self.side = side

    def __call__(self, index: int) -> Output:
        site = self.switches.site
        dtype = site.functional_node.functions[0].input_types[index]
        return self.switches.side(site.arguments[index], dtype, self.side)


def as_bool(
    rewriter: Rewriter, site: CallSite, x: Output, dtype: DType, controls: Sequence[Node] = ()
) -> Output:
    """A predicate as a bool; a ToBool converts one of another type."""
    if dtype.base is dtypes.bool_:
        return x
    name, device = f"{site.node.name}/ToBool", site.node.device
    return Output(rewriter.add(name, "ToBool", (x,), controls, device, T=dtype.base))
