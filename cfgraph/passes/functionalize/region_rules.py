"""Rules about regions: what a caller permits beyond what a functional node can express."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cfgraph.ir.functions import Function
from cfgraph.ir.graph import Node, Output
from cfgraph.ops.opdef.op import lookup
from cfgraph.ops.shape_inference import StaticShapes
from cfgraph.passes.functionalize.function_body import is_cheap_constant
from cfgraph.passes.functionalize.report import region_rejected

if TYPE_CHECKING:
    from cfgraph.analysis.loops.frame import Frame, Frames

_LOWER_ATTR: Final = "_lower_using_switch_merge"


@dataclass(frozen=True, slots=True)
class LoopCall:
    """Operands and functions of the call that replaces a loop.

    For each operand, `inner` contains the outputs that are equal to it inside the loop: the output
    of a Merge, or the outputs of constant Enters. `copied` are the Enters of constants that both
    functions contain, `controls` what the call waits for without reading it, and `effects` those of
    the functions, which run whether or not a result needs them.
    """

    operands: tuple[Output, ...]
    inner: tuple[tuple[Output, ...], ...]
    copied: tuple[Node, ...]
    controls: tuple[Node, ...]
    cond: Function
    body: Function
    effects: tuple[Node, ...]


class RegionRules:
    """Rules of a caller that accepts every functional node.

    `fetched` are the nodes that will be fetched, and `fetched_values` those of them whose outputs
    are, and `fetched_indices` the Merges whose second output is. Without `has_named_fetches`, they
    are all nodes that nothing reads, which a run may fetch one by one: no two calls with effects
    become one then. A run may also fetch nodes `outside` of regions, found before branches that
    never run were dropped. `shapes` are those of the lowered graph, which calls declare.
    """

    keep_devices = True
    # remove nodes without effects outside of regions that nothing reads any more
    drops_unread = True
    max_nesting: int | None = None

    def __init__(
        self,
        fetched: Collection[Node] = (),
        fetched_values: Collection[Node] = (),
        fetched_indices: Collection[Node] = (),
        *,
        has_named_fetches: bool = True,
    ) -> None:
        self.fetched = set(fetched)
        self.fetched_values = set(fetched_values)
        self.fetched_indices = set(fetched_indices)
        self.has_named_fetches = has_named_fetches
        self.outside: Collection[Node] = ()
        self.shapes: StaticShapes | None = None

    def call_attrs(self, results: Iterable[Output]) -> dict[str, Any]:
        """Return the attributes of a call that say how TensorFlow runs it, and its known shapes.

        A While that TensorFlow does not lower recurs once per iteration, and overflows the stack.
        """
        if self.shapes is None:
            return {}
        attrs: dict[str, Any] = {_LOWER_ATTR: True}
        shapes = tuple(self.shapes[result] for result in results)
        if any(shape.dims is not None for shape in shapes):
            attrs["output_shapes"] = shapes
        return attrs

    def copies_constant(self, node: Node) -> bool:
        """Return true for a constant that functions copy: a small one that is not fetched."""
        return node not in self.fetched and is_cheap_constant(node)

    def require_region(self, name: str, nodes: Sequence[Node]) -> None:
        """Raise RegionRejected for nodes that the function of a region must not contain."""
        for node in nodes:
            op = lookup(node.op)
            if op is not None and op.effects.is_input:
                text = f"{node.name} is an input of the graph"
                raise region_rejected("fed", text, node=node.name)

    def begin_round(self, graph_frames: Frames) -> None:
        """Prepare for the analysis of a graph that may have changed."""

    def accept_call(self, call: Node) -> None:
        """Record that a region became a call."""

    def require_selector(self, merge: Node, *, is_index: bool) -> None:
        """Raise RegionRejected for a conditional that must keep its form."""

    def require_loop(self, frame: Frame, call: LoopCall) -> None:
        """Raise RegionRejected for a loop that must keep its form."""
