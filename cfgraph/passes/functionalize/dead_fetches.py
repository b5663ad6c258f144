"""Give a fetch that may be dead a value in every run, by request: zeros where it is dead.

    x ──▶ Switch ──▶ y (may be dead)      becomes      Merge(y, Switch(zeros)) ──▶ y

The new Merges end the conditionals that select the fetch, so that they can become calls.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cfgraph.analysis.deadness.deadness import Deadness
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import NUMERIC_KINDS
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ops.shape_inference import StaticShapes, infer_shapes
from cfgraph.passes.functionalize.conditional_region import deciding_switch
from cfgraph.passes.functionalize.report import (
    RegionRejected,
    RejectionReason,
    region_rejected,
)

DEAD_VALUES: Final = ("zeros",)


class DeadFetches:
    """The fetches of a graph that may be dead: those that got zeros, and reasons for the others.

    `replaced` maps the node of each fetch with zeros to the Merge that has its name.
    """

    def __init__(self, graph: Graph, fetched: dict[str, Output]) -> None:
        self.graph = graph
        self.fetched = fetched
        self.replaced: dict[Node, Node] = {}
        self.reasons: dict[str, RejectionReason] = {}

    def resolve(self, conditions: Deadness, dead_as: str | None) -> None:
        """Add zeros to each fetch that may be dead, or record why it stays so."""
        shapes: StaticShapes | None = None
        with_ports = {tensor.node for tensor in self.fetched.values() if tensor.port}
        for name, tensor in self.fetched.items():
            if tensor.node in self.replaced or conditions.always_live(tensor):
                continue
            try:
                if dead_as is None:
                    live = conditions.text(conditions.of_output(tensor))
                    text = f"{tensor.name} may be dead: it is live if {live}"
                    raise region_rejected("dead value", text, node=tensor.node.name)
                if tensor.node in with_ports:
                    text = f"zeros can replace only output 0 of {tensor.node.name}, not all outputs"
                    raise region_rejected("dead value", text, node=tensor.node.name)
                shapes = shapes or infer_shapes(self.graph)
                self.replaced[tensor.node] = self._with_zeros(conditions, shapes, tensor)
            except RegionRejected as error:
                self.reasons[name] = error.reason

    def _with_zeros(self, conditions: Deadness, shapes: StaticShapes, tensor: Output) -> Node:
        """Add the Merges of a fetch, innermost first; return the last, which has its name."""
        switches = self._deciding_switches(conditions, tensor)
        zeros = self._zeros(shapes, tensor)
        name, node, current = tensor.node.name, tensor.node, tensor
        self.graph.rename(node, self.graph.unique_name(f"{name}/live"))
        for switch, port in switches:
            other = self.graph.add(
                switch.op,
                zeros,
                switch.inputs[1],
                name=f"{name}/zeros",
                controls=[switch],
                device=switch.device,
                **{key: switch.attrs[key] for key in ("num_outs",) if key in switch.attrs},
            )
            count = other.output_count or 2
            inputs = [current if k == port else other.output(k) for k in range(count)]
            is_last = switch is switches[-1][0]
            merged = name if is_last else f"{name}/Merge"
            current = self.graph.add("Merge", *inputs, name=merged, device=node.device).output()
        return current.node

    def _deciding_switches(self, conditions: Deadness, tensor: Output) -> list[tuple[Node, int]]:
        """Return the Switches, and their outputs, that decide a fetch, innermost first."""
        found: list[tuple[Node, int]] = []
        start, live = tensor.node, conditions.of_output(tensor)
        while conditions.solver.always(live) is not True:
            selected = deciding_switch(conditions, start, live)
            if selected is None:
                text = f"no single predicate decides whether {tensor.name} is live"
                raise region_rejected("dead value", text, node=tensor.node.name)
            start, live = selected.node, conditions.of_control(selected.node)
            found.append((selected.node, selected.port))
        return found

    def _zeros(self, shapes: StaticShapes, tensor: Output) -> Output:
        dims, dtype = shapes[tensor].dims, tensor.dtype
        if dims is None or any(size is None for size in dims):
            text = f"the shape of {tensor.name}, and of its zeros, is unknown"
            raise region_rejected("dead value", text, node=tensor.node.name)
        if dtype is None or dtype.kind not in NUMERIC_KINDS:
            text = f"{tensor.name} has type {dtype or 'unknown'}, which has no zeros"
            raise region_rejected("dead value", text, node=tensor.node.name)
        value = TensorValue(np.zeros([size or 0 for size in dims], dtype.base.numpy))
        name = f"{tensor.node.name}/zero"
        return self.graph.add("Const", name=name, dtype=dtype.base, value=value).output()
