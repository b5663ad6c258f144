"""Propagation of a token to its consumers, including the Merge rule: the first live input fires.

A token lowers the pending count of an ordinary consumer, which is ready at zero, and dead if any
input was dead. Merge rule: a Merge is ready at its first live input once its control inputs have
arrived; it is dead once all data inputs are dead, or one from an Enter is. See the evaluation rules
in Yu et al., "Dynamic Control Flow in Large-Scale Machine Learning", EuroSys 2018.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from cfgraph.runtime.engine.frame_state import DEAD, PENDING_MASK, Fire, Iteration, Kill, Send

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
    """Deliver to no consumer."""
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
