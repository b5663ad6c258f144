"""Lower `If` and `Case`.

Each outer tensor passes one Switch, made when a branch reads it; each output is one Merge, the
false side first:

    x ──▶ Switch ──▶ [else] ──▶ Merge ──▶ output
    pred ──▶ ┘  └──▶ [then] ──▶  ┘

What a branch computes from nothing hangs on its pivot, an Identity of one side of
Switch(pred, pred). A Merge waits for the side effects of both branches, of which one is dead. The
Switch of a Case is a `_SwitchN`, whose last output takes an index that is out of range.
"""

from __future__ import annotations

from collections.abc import Sequence

from cfgraph.ir import dtypes
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.passes.lower.inline import Inlined, inline
from cfgraph.passes.lower.rewriter import Result, Rewriter, input_types
from cfgraph.passes.lower.scope import Scope, Site


def lower_conditional(work: Rewriter, site: Site) -> None:
    """Lower an If or a Case."""
    node, functions = site.node, site.construct.functions
    types = site.construct.output_types
    outputs = work.needed(site, len(types))
    gates = Gates(work, site)
    sides = [
        inline(work, function, gates.arguments(side), gates.scope(side), outputs)
        for side, function in enumerate(functions)
    ]
    waits = _Waits(work, site, sides, outputs)
    ports = [port for port in range(len(types)) if outputs >> port & 1]
    if not ports:
        work.finish(site, [None] * len(types), _executed(work, site, gates, waits))
        return
    if site.surface and len(types) == 1:
        inputs = [_returned(side, 0) for side in sides]
        controls = [*waits.of(0), *work.conduits(site)]
        work.become(node, "Merge", inputs, controls, T=types[0], N=len(sides))
        return
    results: list[Result | None] = [None] * len(types)
    for port in ports:
        inputs = [_returned(side, port) for side in sides]
        merge = work.add(
            f"{node.name}/Merge",
            "Merge",
            inputs,
            waits.of(port),
            node.device,
            T=types[port],
            N=len(sides),
        )
        results[port] = Result(Output(merge))
    first = results[ports[0]]
    assert first is not None
    work.finish(site, results, [first.output.node])


def _returned(side: Inlined, port: int) -> Output:
    output = side.returns[port]
    assert output is not None
    return output


def _executed(work: Rewriter, site: Site, gates: Gates, waits: _Waits) -> list[Node]:
    """A node that runs after the effects of the branch that is taken, if there are any."""
    effects = waits.of(None)
    if not effects:
        return []
    node, sides = site.node, range(len(site.construct.functions))
    pivots = [Output(gates.pivot(side)) for side in sides]
    dtype, count = gates.selector_type, len(pivots)
    name = f"{node.name}/Merge"
    return [work.add(name, "Merge", pivots, effects, node.device, T=dtype, N=count)]


class _Waits:
    """The side effects that each Merge must wait for, gathered in one node where many do."""

    def __init__(self, work: Rewriter, site: Site, sides: list[Inlined], outputs: int) -> None:
        self.sides = sides
        self.gathered: dict[int, Node] = {}
        if outputs & (outputs - 1) == 0:
            return
        for index, side in enumerate(sides):
            unsettled = side.unsettled(outputs)
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


class Gates:
    """The Switches of one conditional: one for each outer tensor, and one for the selector."""

    def __init__(self, work: Rewriter, site: Site) -> None:
        self.work = work
        self.site = site
        self.count = len(site.construct.functions)
        self.selector, self.selector_type = self._selector()
        self.switches: dict[Output, Node] = {}
        self.pivots: dict[int, Node] = {}
        is_case = site.construct.kind == "case"
        names = [f"branch{side}" for side in range(self.count)] if is_case else ["else", "then"]
        self.names = [f"{site.node.name}/{name}" for name in names]

    def _selector(self) -> tuple[Output, DType]:
        """The predicate or index; what is no bool is asked for its truth."""
        site, given = self.site, self.site.inputs[0]
        if site.construct.kind == "case":
            return given, dtypes.int32
        dtype = input_types(site)[0]
        return as_bool(self.work, site, given, dtype, site.held(given)), dtypes.bool_

    def arguments(self, side: int) -> _Arguments:
        """The arguments of one branch."""
        return _Arguments(self, side)

    def scope(self, side: int) -> Scope:
        """Where the nodes of one branch go."""
        return Scope(self.names[side], self.site.node.device, lambda: self.pivot(side))

    def side(self, outer: Output, dtype: DType, side: int) -> Output:
        """An outer tensor, live on one side only."""
        switch = self.switches.get(outer)
        if switch is None:
            switch = self.switches[outer] = self._switch(outer, dtype)
        return Output(switch, side)

    def _switch(self, outer: Output, dtype: DType) -> Node:
        name, inputs = f"{self.site.node.name}/Switch", (outer, self.selector)
        controls, device = self.site.held(*inputs), outer.node.device
        if self.site.construct.kind == "case":
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


class _Arguments:
    """The arguments of one branch, each a side of its Switch."""

    def __init__(self, gates: Gates, side: int) -> None:
        self.gates = gates
        self.side = side

    def __call__(self, index: int) -> Output:
        site = self.gates.site
        dtype = site.construct.functions[0].input_types[index]
        return self.gates.side(site.arguments[index], dtype, self.side)


def as_bool(
    work: Rewriter, site: Site, given: Output, dtype: DType, controls: Sequence[Node] = ()
) -> Output:
    """A predicate as a bool: what is none is true if it is not zero or empty."""
    if dtype.base is dtypes.bool_:
        return given
    name, device = f"{site.node.name}/ToBool", site.node.device
    return Output(work.add(name, "ToBool", (given,), controls, device, T=dtype.base))
