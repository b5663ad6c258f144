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


def lower_conditional(work: Rewriter, site: CallSite) -> None:
    """Lower an If or a Case."""
    node, functions = site.node, site.functional_node.functions
    types = site.functional_node.output_types
    outputs = work.needed(site, len(types))
    gates = ConditionalSwitches(work, site)
    sides = [
        inline_body(work, function, gates.arguments(side), gates.scope(side), outputs)
        for side, function in enumerate(functions)
    ]
    waits = _MergeControls(work, site, sides, outputs)
    ports = [port for port in range(len(types)) if outputs >> port & 1]
    if not ports:
        work.finish(site, [None] * len(types), _run_after_effects(work, site, gates, waits))
        return
    if site.surface and len(types) == 1:
        inputs = [_branch_output(side, 0) for side in sides]
        controls = [*waits.of(0), *work.ordering_inputs(site)]
        work.convert_to(node, "Merge", inputs, controls, T=types[0], N=len(sides))
        return
    results: list[LoweredOutput | None] = [None] * len(types)
    for port in ports:
        inputs = [_branch_output(side, port) for side in sides]
        merge = work.add(
            f"{node.name}/Merge",
            "Merge",
            inputs,
            waits.of(port),
            node.device,
            T=types[port],
            N=len(sides),
        )
        results[port] = LoweredOutput(Output(merge))
    first = results[ports[0]]
    assert first is not None
    work.finish(site, results, [first.output.node])


def _branch_output(side: InlinedBody, port: int) -> Output:
    output = side.returns[port]
    assert output is not None
    return output


def _run_after_effects(
    work: Rewriter, site: CallSite, gates: ConditionalSwitches, waits: _MergeControls
) -> list[Node]:
    """A node that runs after the effects of the branch that is taken, if there are any."""
    effects = waits.of(None)
    if not effects:
        return []
    node, sides = site.node, range(len(site.functional_node.functions))
    pivots = [Output(gates.pivot(side)) for side in sides]
    dtype, count = gates.selector_type, len(pivots)
    name = f"{node.name}/Merge"
    return [work.add(name, "Merge", pivots, effects, node.device, T=dtype, N=count)]


class _MergeControls:
    """The side effects that each Merge must wait for, gathered in one node where many do."""

    def __init__(
        self, work: Rewriter, site: CallSite, sides: list[InlinedBody], outputs: int
    ) -> None:
        self.sides = sides
        self.gathered: dict[int, Node] = {}
        if outputs & (outputs - 1) == 0:
            return
        for index, side in enumerate(sides):
            unsettled = side.pending_effects(outputs)
            if len(unsettled) > 1:
                name = f"{site.node.name}/done"
                self.gathered[index] = work.add(name, "NoOp", (), unsettled, site.node.device)

    def of(self, port: int | None) -> list[Node]:
        """What the Merge of an output (None: of none) waits for."""
        found: list[Node] = []
        for index, side in enumerate(self.sides):
            waits = [e.node for e in side.effects] if port is None else side.waits(port)
            gathered = self.gathered.get(index)
            found.extend(waits if gathered is None or not waits else [gathered])
        return found


class ConditionalSwitches:
    """The Switches of one conditional: one for each outer tensor, and one for the selector."""

    def __init__(self, work: Rewriter, site: CallSite) -> None:
        self.work = work
        self.site = site
        self.count = len(site.functional_node.functions)
        self.selector, self.selector_type = self._selector()
        self.switches: dict[Output, Node] = {}
        self.pivots: dict[int, Node] = {}
        is_case = site.functional_node.kind == "case"
        names = [f"branch{side}" for side in range(self.count)] if is_case else ["else", "then"]
        self.names = [f"{site.node.name}/{name}" for name in names]

    def _selector(self) -> tuple[Output, DType]:
        """The predicate or index; what is no bool is asked for its truth."""
        site, given = self.site, self.site.inputs[0]
        if site.functional_node.kind == "case":
            return given, dtypes.int32
        dtype = input_types(site)[0]
        return as_bool(self.work, site, given, dtype, site.held(given)), dtypes.bool_

    def arguments(self, side: int) -> _BranchArguments:
        """The arguments of one branch."""
        return _BranchArguments(self, side)

    def scope(self, side: int) -> InlineScope:
        """Where the nodes of one branch go."""
        return InlineScope(self.names[side], self.site.node.device, lambda: self.pivot(side))

    def side(self, outer: Output, dtype: DType, side: int) -> Output:
        """An outer tensor, live on one side only."""
        switch = self.switches.get(outer)
        if switch is None:
            switch = self.switches[outer] = self._switch(outer, dtype)
        return Output(switch, side)

    def _switch(self, outer: Output, dtype: DType) -> Node:
        name, inputs = f"{self.site.node.name}/Switch", (outer, self.selector)
        controls, device = self.site.held(*inputs), outer.node.device
        if self.site.functional_node.kind == "case":
            attrs = {"T": dtype, "num_outs": self.count}
            return self.work.add(name, "_SwitchN", inputs, controls, device, **attrs)
        return self.work.add(name, "Switch", inputs, controls, device, T=dtype)

    def pivot(self, side: int) -> Node:
        """A node that is live exactly when the branch is taken."""
        if side not in self.pivots:
            chosen = self.side(self.selector, self.selector_type, side)
            name, device = f"{self.names[side]}/pivot", self.site.node.device
            dtype = self.selector_type
            pivot = self.work.add(name, "Identity", (chosen,), (), device, T=dtype)
            self.pivots[side] = pivot
        return self.pivots[side]


class _BranchArguments:
    """The arguments of one branch, each a side of its Switch."""

    def __init__(self, gates: ConditionalSwitches, side: int) -> None:
        self.gates = gates
        self.side = side

    def __call__(self, index: int) -> Output:
        site = self.gates.site
        dtype = site.functional_node.functions[0].input_types[index]
        return self.gates.side(site.arguments[index], dtype, self.side)


def as_bool(
    work: Rewriter, site: CallSite, given: Output, dtype: DType, controls: Sequence[Node] = ()
) -> Output:
    """A predicate as a bool: what is none is true if it is not zero or empty."""
    if dtype.base is dtypes.bool_:
        return given
    name, device = f"{site.node.name}/ToBool", site.node.device
    return Output(work.add(name, "ToBool", (given,), controls, device, T=dtype.base))
