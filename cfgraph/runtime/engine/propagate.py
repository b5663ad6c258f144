"""Propagation of a token to its consumers: the rules by which a node becomes ready, live or dead.

A token lowers the pending count of an ordinary consumer, which is ready at zero, and dead if any
input was dead. A Merge is ready at its first live input once its control inputs have arrived; it
is dead once all data inputs are dead, or one from an Enter is. See the rule table of the first
seed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from cfgraph.runtime.engine.frame_state import DEAD, PENDING_MASK, Fire, Iteration, Kill, Send

# slot that the value goes to (0: nobody reads it), counter, what to fire if live, if dead
OrdinaryConsumer = tuple[int, int, Fire, Fire]


@dataclass(slots=True)
class Consumers:
    """The readers of one output, or of a node's control edges; filled when all nodes are known.

    `wired` says beforehand whether there will be any. `merges` are those of the others that take
    the value of a dead Recv too; of other nodes it is empty.
    """

    has_consumers: bool = True
    plain: list[OrdinaryConsumer] = field(default_factory=list)
    others: list[Send] = field(default_factory=list)
    merges: list[Send] = field(default_factory=list)


def discard(it: Iteration, value: Any) -> int:
    """Deliver to no reader."""
    return 0


def value_sender(edges: Consumers, ready: list[tuple[Fire, Iteration]]) -> Send:
    """Deliver a value to the readers, in an iteration; returns how many became ready."""
    if not edges.has_consumers:
        return discard
    append = ready.append
    plain, others = edges.plain, edges.others

    def send(it: Iteration, value: Any) -> int:
        values, pending = it.values, it.pending
        made = 0
        for slot, counter, live, dead in plain:
            values[slot] = value
            left = pending[counter] - 1
            pending[counter] = left
            if not left & PENDING_MASK:
                append((dead if left else live, it))
                made += 1
        for deliver in others:
            made += deliver(it, value)
        return made

    return send


def kill_sender(edges: list[Consumers], ready: list[tuple[Fire, Iteration]]) -> Kill:
    """Deliver deadness to all readers, in an iteration; returns how many became ready."""
    append = ready.append
    edges = [group for group in edges if group.has_consumers]

    def kill(it: Iteration) -> int:
        pending = it.pending
        made = 0
        for group in edges:
            for _, counter, _, dead in group.plain:
                left = pending[counter] + DEAD - 1
                pending[counter] = left
                if not left & PENDING_MASK:
                    append((dead, it))
                    made += 1
            for deliver in group.others:
                made += deliver(it, None)
        return made

    return kill


def merge_data_input(
    slot: int,
    counter: int,
    inputs: int,
    live: Fire,
    dead: Fire,
    ready: list[tuple[Fire, Iteration]],
    *,
    from_enter: bool,
) -> Send:
    """Deliver to a data input of a Merge; None is a dead token.

    A dead token of an Enter counts for all inputs: the loop that would send the others never runs.
    """
    append = ready.append
    weight = inputs * DEAD if from_enter else DEAD
    all_dead = inputs * DEAD

    def deliver(it: Iteration, value: Any) -> int:
        pending = it.pending
        state = pending[counter]
        if value is not None:
            it.values[slot] = value
            if state & 1:
                state -= 1
                pending[counter] = state
                if not state & PENDING_MASK:
                    append((live, it))
                    return 1
            return 0
        state += weight
        if state & PENDING_MASK == 1 and state >= all_dead:
            pending[counter] = state - 1
            append((dead, it))
            return 1
        pending[counter] = state
        return 0

    return deliver


def merge_control_input(
    counter: int, inputs: int, live: Fire, dead: Fire, ready: list[tuple[Fire, Iteration]]
) -> Send:
    """Deliver to a control input of a Merge, which waits for it and ignores its deadness."""
    append = ready.append
    all_dead = inputs * DEAD

    def deliver(it: Iteration, value: Any) -> int:
        state = it.pending[counter] - 2
        it.pending[counter] = state
        left = state & PENDING_MASK
        if not left:
            append((live, it))
            return 1
        if left == 1 and state >= all_dead:
            it.pending[counter] = state - 1
            append((dead, it))
            return 1
        return 0

    return deliver
