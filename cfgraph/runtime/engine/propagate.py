"""Propagation of tokens: frames, iterations, pending counts, and the Merge rule.

The pending count of a node is one integer: the low bits count the inputs that have not arrived,
the bits from DEAD on the dead ones. A Merge counts 2 for each missing control input; from its
first live input on, or once it is dead, the lowest bit is 0.

A token lowers the pending count of an ordinary consumer, which is ready at zero, and dead if any
input was dead. Merge rule: a Merge is ready at its first live input once its control inputs have
arrived; it is dead once all data inputs are dead, or one from an Enter is. See the evaluation rules
in Yu et al., "Dynamic Control Flow in Large-Scale Machine Learning", EuroSys 2018.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from cfgraph.limits import iteration_limit_error
from cfgraph.stack_position import iteration_path

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
    def loops(self) -> tuple[tuple[str, int], ...]:
        """The names of the enclosing frames and their iterations, outermost first."""
        pairs: list[tuple[str, int]] = []
        iteration: Iteration | None = self
        while iteration is not None and iteration.frame.parent is not None:
            pairs.append((iteration.frame.plan.name, iteration.index))
            iteration = iteration.frame.parent
        return tuple(reversed(pairs))

    @property
    def indices(self) -> tuple[int, ...]:
        """The numbers of the iterations of the enclosing frames, outermost first."""
        return tuple([index for _, index in self.loops])

    @property
    def path(self) -> str:
        """The path of loops and iterations, `/while[3]/inner[0]`; `/` for the root."""
        return iteration_path(self.loops)


class FrameState:
    """One instance of a loop, or the root: its iterations, and the state that new ones start from.

    `values`, `pending`, and `roots` are the initial state of an iteration. Constant Enters write
    into them, so that a loop invariant costs nothing per iteration. `dead_enters` are the dead
    Enters that have not been delivered: all that arrived, as long as the frame may be skipped.
    """

    __slots__ = (
        "alive",
        "dead_enters",
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
        self.dead_enters: list[Callable[[FrameState], None]] | None = None
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
            error = iteration_limit_error(self.plan.name, self.limit, newest.path)
            error.node = self.plan.back_edge
            raise error
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


# slot for the value (0 if unread), counter, closures to fire if live and if dead
OrdinaryConsumer = tuple[int, int, Fire, Fire]


@dataclass(slots=True)
class Consumers:
    """Consumers of one output, or of a node's control edges; filled once all nodes are linked.

    `has_consumers` is known before. `senders` are functions that deliver to Merges and fetches;
    `merges` are the Merges that also receive the value of a dead Recv.
    """

    has_consumers: bool = True
    ordinary: list[OrdinaryConsumer] = field(default_factory=list)
    senders: list[Send] = field(default_factory=list)
    merges: list[Send] = field(default_factory=list)


def discard(iteration: Iteration, value: Any) -> int:
    """Delivery of an output that no node consumes: no new token."""
    return 0


def value_sender(consumers: Consumers, ready: list[tuple[Fire, Iteration]]) -> Send:
    """A function that delivers a value in an iteration and returns how many nodes became ready."""
    if not consumers.has_consumers:
        return discard
    append = ready.append
    ordinary, senders = consumers.ordinary, consumers.senders

    def send(iteration: Iteration, value: Any) -> int:
        values, pending = iteration.values, iteration.pending
        produced = 0
        for slot, counter, live, dead in ordinary:
            values[slot] = value
            remaining = pending[counter] - 1
            pending[counter] = remaining
            if not remaining & PENDING_MASK:
                append((dead if remaining else live, iteration))
                produced += 1
        for deliver in senders:
            produced += deliver(iteration, value)
        return produced

    return send


def kill_sender(consumers: list[Consumers], ready: list[tuple[Fire, Iteration]]) -> Kill:
    """A function that delivers deadness in an iteration and returns how many nodes became ready."""
    append = ready.append
    consumers = [group for group in consumers if group.has_consumers]

    def kill(iteration: Iteration) -> int:
        pending = iteration.pending
        produced = 0
        for group in consumers:
            for _, counter, _, dead in group.ordinary:
                remaining = pending[counter] + DEAD - 1
                pending[counter] = remaining
                if not remaining & PENDING_MASK:
                    append((dead, iteration))
                    produced += 1
            for deliver in group.senders:
                produced += deliver(iteration, None)
        return produced

    return kill


def merge_data_input(
    slot: int,
    counter: int,
    input_count: int,
    live: Fire,
    dead: Fire,
    ready: list[tuple[Fire, Iteration]],
    *,
    from_enter: bool,
) -> Send:
    """A function that delivers to a data input of a Merge; a value of None is a dead token.

    A dead token from an Enter counts for all inputs: the loop that would send the others never
    runs.
    """
    append = ready.append
    weight = input_count * DEAD if from_enter else DEAD
    all_dead = input_count * DEAD

    def deliver(iteration: Iteration, value: Any) -> int:
        pending = iteration.pending
        state = pending[counter]
        if value is not None:
            iteration.values[slot] = value
            if state & 1:
                state -= 1
                pending[counter] = state
                if not state & PENDING_MASK:
                    append((live, iteration))
                    return 1
            return 0
        state += weight
        if state & PENDING_MASK == 1 and state >= all_dead:
            pending[counter] = state - 1
            append((dead, iteration))
            return 1
        pending[counter] = state
        return 0

    return deliver


def merge_control_input(
    counter: int, input_count: int, live: Fire, dead: Fire, ready: list[tuple[Fire, Iteration]]
) -> Send:
    """A function that delivers to a control input of a Merge, which ignores its deadness."""
    append = ready.append
    all_dead = input_count * DEAD

    def deliver(iteration: Iteration, value: Any) -> int:
        state = iteration.pending[counter] - 2
        iteration.pending[counter] = state
        remaining = state & PENDING_MASK
        if not remaining:
            append((live, iteration))
            return 1
        if remaining == 1 and state >= all_dead:
            iteration.pending[counter] = state - 1
            append((dead, iteration))
            return 1
        return 0

    return deliver
