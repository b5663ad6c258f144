"""A frame, and the frames of the nodes of a graph."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from cfgraph.analysis.findings import Finding, require_no_findings
from cfgraph.ir.graph import Node
from cfgraph.ir.traversal import TopologicalOrder

DEFAULT_PARALLEL_ITERATIONS: Final = 10
_MAX_PATH_NAMES: Final = 32
# of a loop in the paths that runs print
_ITERATION: Final = re.compile(r"\[\d{1,18}\]")


@dataclass(slots=True, eq=False)
class Frame:
    """A loop as the graph declares it; at run time it has one instance per entry.

    The lists are in graph order. `nodes` run in this frame; `enters` lead into it (and run in the
    parent), `exits` lead out of it (and run in it); `invariants` are its constant Enters.
    """

    name: str
    parent: Frame | None
    depth: int
    nodes: list[Node] = field(default_factory=list, repr=False)
    enters: list[Node] = field(default_factory=list, repr=False)
    exits: list[Node] = field(default_factory=list, repr=False)
    merges: list[Node] = field(default_factory=list, repr=False)
    next_iterations: list[Node] = field(default_factory=list, repr=False)
    loop_conds: list[Node] = field(default_factory=list, repr=False)
    _outermost_names: tuple[str, ...] = field(init=False, repr=False, default=())

    def __post_init__(self) -> None:
        if self.parent is not None:
            names = self.parent._outermost_names
            enough = len(names) == _MAX_PATH_NAMES // 2
            self._outermost_names = names if enough else (*names, self.name)

    @property
    def path(self) -> str:
        """The names from the root frame, as in `/outer/inner`; the middle of a long path is
        omitted.
        """
        chain, frame = list[str](), self
        is_long = self.depth > _MAX_PATH_NAMES
        while frame.parent is not None and not (is_long and len(chain) == _MAX_PATH_NAMES // 2):
            chain.append(frame.name)
            frame = frame.parent
        if is_long:
            chain += ["…", *reversed(self._outermost_names)]
        return "/" + "/".join(reversed(chain))

    @property
    def loops(self) -> tuple[Frame, ...]:
        """The frames from the outermost loop to this one, without the root."""
        chain, frame = list[Frame](), self
        while frame.parent is not None:
            chain.append(frame)
            frame = frame.parent
        return tuple(reversed(chain))

    @property
    def invariants(self) -> list[Node]:
        """The constant Enters of the loop."""
        return [node for node in self.enters if node.attr("is_constant")]

    @property
    def loop_cond(self) -> Node | None:
        """The LoopCond, or None unless there is exactly one."""
        return self.loop_conds[0] if len(self.loop_conds) == 1 else None

    @property
    def is_single_trip(self) -> bool:
        """True for a frame without back edges, whose nodes run at most once."""
        return not self.next_iterations and not self.loop_conds

    @property
    def parallel_iterations(self) -> int:
        """The bound on iterations in flight, from the first Enter."""
        declared = self.enters[0].attrs.get("parallel_iterations") if self.enters else None
        return declared if isinstance(declared, int) else DEFAULT_PARALLEL_ITERATIONS

    def has_name(self, text: str) -> bool:
        """True for the name or the path, also with iterations as in `/outer[2]/inner[0]`."""
        names = self.path, self.name
        return text in names or _ITERATION.sub("", text) in names

    def is_within(self, ancestor: Frame) -> bool:
        """True if this is `ancestor` or a frame inside it."""
        frame: Frame | None = self
        while frame is not None and frame.depth > ancestor.depth:
            frame = frame.parent
        return frame is ancestor

    def __str__(self) -> str:
        return self.path


class Frames:
    """The frames of a graph, and the frame of every node.

    `of` is the frame that a node runs in, `of_outputs` the frame of its outputs; they differ for
    Enter and Exit. `all` has parents before children, the root first; `order` is a topological
    order of the nodes, `cycles` are the cycles without a NextIteration. `faults` reports loops that
    are not well nested; the frames of their nodes are a best guess.
    """

    def __init__(self, order: TopologicalOrder) -> None:
        self.root = Frame("", None, 0)
        self.all: list[Frame] = [self.root]
        self.of: dict[Node, Frame] = {}
        self.of_outputs: dict[Node, Frame] = {}
        self.order = order.nodes
        self.cycles = order.cycles
        self.faults: tuple[Finding, ...] = ()

    def require_valid(self) -> None:
        """Raise InvalidInput, with all findings, if there are faults."""
        if self.faults:
            require_no_findings(self.faults)
