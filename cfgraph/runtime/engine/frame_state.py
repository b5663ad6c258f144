"""Run state of frames and iterations: input values, pending counts, and their end.

The pending count of a node is one integer: the low bits count the inputs that have not arrived,
the bits from DEAD on the dead ones. A Merge counts 2 for each missing control input; from its
first live input on, or once it is dead, the lowest bit is 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from cfgraph.limits import iteration_limit_error

if TYPE_CHECKING:
    from cfgraph.runtime.engine.plan import FramePlan

DEAD: Final = 1 << 24
PENDING_MASK: Final = DEAD - 1
# the default limit of commands that must end even if a loop does not
DEFAULT_MAX_ITERATIONS: Final = 100_000

Fire = Callable[["Iteration"], None]
Send = Callable[["Iteration", Any], int]
Kill = Callable[["Iteration"], int]


class Iteration:
    """One iteration of one frame: input values by slot, counters by node.

    `outstanding` counts ready tokens and running child frames.
    """

    __slots__ = ("children", "frame", "index", "next", "outstanding", "pending", "values")

    def __init__(self, frame: FrameState, index: int) -> None:
        self.frame = frame
        self.index = index
        self.values = frame.values.copy()
        self.pending = frame.pending.copy()
        self.outstanding = 0
        self.next: Iteration | None = None
        self.children: dict[FramePlan, FrameState] | None = None

    @property
    def path(self) -> str:
        """The path of loops and iterations, `/while[3]/inner[0]`; `/` for the root."""
        parts: list[str] = []
        iteration: Iteration | None = self
        while iteration is not None and iteration.frame.parent is not None:
            parts.append(f"/{iteration.frame.plan.name}[{iteration.index}]")
            iteration = iteration.frame.parent
        return "".join(reversed(parts)) or "/"


class FrameState:
    """One instance of a loop, or the root: its iterations, and the state that new ones start from.

    `values`, `pending`, and `roots` are the initial state of an iteration. Constant Enters write
    into them, so that a loop invariant costs nothing per iteration.
    """

    __slots__ = (
        "alive",
        "dead_exits",
        "deferred",
        "ended",
        "entering",
        "exited",
        "first",
        "limit",
        "newest",
        "parent",
        "pending",
        "plan",
        "ready",
        "roots",
        "tag",
        "values",
    )

    def __init__(
        self, plan: FramePlan, parent: Iteration | None, ready: list[Any], limit: int | None
    ) -> None:
        self.plan = plan
        self.parent = parent
        self.ready = ready
        self.limit = limit
        self.values: list[Any] = [None] * plan.slots
        self.pending = plan.pending.copy()
        self.roots: list[Fire] = []
        self.entering = plan.enters
        self.deferred: list[tuple[Send, Any]] = []
        self.dead_exits: dict[str, Kill] = {}
        self.exited: set[str] = set()
        # the last iteration of each finished child loop, for messages only
        self.ended: dict[FramePlan, int] | None = None
        self.tag: Any = None  # set by the rendezvous, which compares frames across devices
        self.alive = 1
        self.newest = Iteration(self, 0)
        self.first: Iteration | None = self.newest

    def start(self) -> Iteration:
        """Start the next iteration and deliver what was deferred for it."""
        newest = self.newest
        index = newest.index + 1
        if self.limit is not None and index > self.limit:
            raise iteration_limit_error(self.plan.name, self.limit, newest.path)
        iteration = Iteration(self, index)
        newest.next = iteration
        self.newest = iteration
        if self.first is None:
            self.first = iteration
        self.alive += 1
        if self.dead_exits:
            self.dead_exits = {}
        if self.roots:
            self.ready.extend([(fire, iteration) for fire in self.roots])
            iteration.outstanding = len(self.roots)
        if self.deferred:
            waiting, self.deferred = self.deferred, []
            for send, value in waiting:
                iteration.outstanding += send(iteration, value)
        return iteration


def finish_iteration(iteration: Iteration) -> None:
    """Finish an iteration without outstanding tokens, and the frames that end with it.

    Iterations end in order, and none before every Enter of its frame has arrived. When a frame
    ends, its dead Exits are delivered, and the iteration that entered it may end in turn.
    """
    frame = iteration.frame
    while frame.parent is not None:
        while (done := frame.first) is not None:
            if done.outstanding or frame.entering:
                return
            frame.first = done.next
            frame.alive -= 1
            if frame.deferred:
                frame.start()
        parent = frame.parent
        _remove_frame(frame, parent)
        if parent.outstanding:
            return
        frame = parent.frame
        if frame.first is not parent:
            return


def _remove_frame(frame: FrameState, parent: Iteration) -> None:
    """Remove a finished frame from the iteration that entered it."""
    for name, kill in frame.dead_exits.items():
        if name not in frame.exited:
            parent.outstanding += kill(parent)
    outer = parent.frame
    if outer.ended is None:
        outer.ended = {}
    outer.ended[frame.plan] = frame.newest.index
    # break the reference cycle of frame and iteration, so that their values are freed at once
    frame.values.clear()
    frame.roots.clear()
    frame.newest.values.clear()
    assert parent.children is not None
    del parent.children[frame.plan]
    parent.outstanding -= 1
