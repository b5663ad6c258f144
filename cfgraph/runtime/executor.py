"""Runs a linked plan on one device: the queue of ready tokens, and what a failure says."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

from cfgraph.errors import CfgraphError, ExecutionError, RunTimeout
from cfgraph.ir.graph import Output
from cfgraph.runtime.frame_state import Fire, Frame, Iteration, Send
from cfgraph.runtime.link import Wrap, link
from cfgraph.runtime.plan import Plan
from cfgraph.runtime.step import RunStep

# tokens between two looks at the clock; fewer where there is a deadline
BATCH: Final = 512
TIMED_BATCH: Final = 16
_KERNEL_FAILURES: Final = (ValueError, TypeError, IndexError, ArithmeticError, MemoryError)


class _Missing:
    def __repr__(self) -> str:
        return "<no value yet>"


MISSING: Final = _Missing()


class Executor:
    """One device's part of a run.

    `results[i]` is what fetch i got: a value, None where it is dead, MISSING where nothing came.
    """

    def __init__(self, plan: Plan, step: RunStep, device: str, wrap: Wrap | None = None) -> None:
        self.plan = plan
        self.step = step
        self.device = device
        self.ready: list[tuple[Fire, Iteration]] = []
        self.results: list[Any] = []
        self.root: Frame | None = None
        self.taken = 0
        self.queue: Iterator[tuple[Fire, Iteration]] = iter(self.ready)
        fetched = [self._take(place, item) for place, item in enumerate(plan.fetches)]
        self.linked = link(plan, self.ready, step, fetched, wrap)

    def _take(self, place: int, item: Output) -> Send:
        def take(it: Iteration, value: Any) -> int:
            if self.results[place] is not MISSING:
                raise several_values(item, it)
            self.results[place] = value
            return 0

        return take

    def run(self, feeds: Sequence[Any], deadline: float | None, pick: random.Random | None) -> None:
        """Run until nothing is ready. Raises ExecutionError, RunTimeout."""
        self.ready.clear()
        self.results[:] = [MISSING] * len(self.plan.fetches)
        self.root = Frame(self.plan.root, None, self.ready, None)
        iteration = self.root.newest
        for send, value in zip(self.linked.feeds, feeds, strict=True):
            send(iteration, value)
        self.ready.extend((fire, iteration) for fire in self.linked.roots)
        iteration.outstanding = len(self.ready) + 1
        self._rewind()
        batch = BATCH if deadline is None else TIMED_BATCH
        while self.ready:
            if pick is None:
                self._in_order(batch)
            else:
                self._at_random(batch, pick)
            if deadline is not None and time.monotonic() > deadline:
                raise self._timeout()

    def _in_order(self, batch: int) -> None:
        """Fire a batch of tokens, first in, first out.

        What has fired leaves the queue when it is half of it: to shift a long queue takes time.
        """
        ready = self.ready
        fire, it = ready[self.taken]
        try:
            for fire, it in islice(self.queue, batch):
                fire(it)
        except Exception as error:
            raise self._located(error, fire, it) from error.__cause__
        self.taken = min(self.taken + batch, len(ready))
        if 2 * self.taken >= len(ready):
            del ready[: self.taken]
            self._rewind()

    def _rewind(self) -> None:
        """Take tokens from the beginning of the queue."""
        self.taken, self.queue = 0, iter(self.ready)

    def _at_random(self, batch: int, pick: random.Random) -> None:
        """Fire a batch of tokens in random order."""
        ready = self.ready
        while ready and batch:
            batch -= 1
            place = pick.randrange(len(ready))
            ready[place], ready[-1] = ready[-1], ready[place]
            fire, it = ready.pop()
            try:
                fire(it)
            except Exception as error:
                raise self._located(error, fire, it) from error.__cause__

    def _located(self, error: Exception, fire: Fire, it: Iteration) -> Exception:
        """An error with the node, the frame and the device that it came from."""
        plan = self.linked.owners.get(fire)
        if isinstance(error, CfgraphError):
            if plan is not None:
                error.node = error.node or plan.node.name
            error.frame = error.frame or it.path
            error.device = error.device or self.device
            if type(error).exit_code == ExecutionError.exit_code:
                return _as_execution_error(error)
            return error
        name = plan.node.name if plan else "?"
        if isinstance(error, _KERNEL_FAILURES):
            text = str(error) or type(error).__name__
            return ExecutionError(text, node=name, frame=it.path, device=self.device, code="CFG705")
        error.add_note(f"while running node '{name}' in frame {it.path}")
        return error

    def _timeout(self) -> RunTimeout:
        busiest = self.ready[self.taken][1] if self.ready else None
        return RunTimeout(
            "the run took longer than it was allowed to",
            frame=busiest.path if busiest else None,
            device=self.device,
            hint="a larger --timeout lets it go on",
            code="CFG706",
        )


def _as_execution_error(error: CfgraphError) -> ExecutionError:
    if isinstance(error, ExecutionError):
        return error
    return ExecutionError(
        error.message,
        node=error.node,
        frame=error.frame,
        device=error.device,
        hint=error.hint,
        code=error.code or "CFG705",
    )


def several_values(item: Output, it: Iteration) -> ExecutionError:
    """The error of a fetch inside a loop that runs more than once."""
    return ExecutionError(
        f"{item.name} is inside a loop and has more than one value",
        node=item.node,
        frame=it.path,
        hint="fetch the loop's Exit, or look at all values with --tap",
        code="CFG703",
    )
