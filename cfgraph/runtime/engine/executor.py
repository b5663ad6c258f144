"""Executor of a linked plan on one device: the queue of ready tokens, and located errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

from cfgraph.errors import CfgraphError, ExecutionError
from cfgraph.ir.devices import short_device_name
from cfgraph.ir.graph import Output
from cfgraph.ops.opdef.op import KERNEL_FAILURES
from cfgraph.ops.opdef.resource import explain_wrong_handle
from cfgraph.runtime.engine.frame_state import Fire, FrameState, Iteration, Send
from cfgraph.runtime.engine.link import FireWrapper, link
from cfgraph.runtime.engine.plan import Plan
from cfgraph.runtime.engine.rendezvous import Rendezvous
from cfgraph.runtime.engine.step import RunStep


class _Missing:
    def __repr__(self) -> str:
        return "<no value yet>"


MISSING: Final = _Missing()


class Executor:
    """One device's part of a run.

    `results[i]` is what fetch i of the run got: a value, None where it is dead, MISSING where
    nothing came. All devices share that list, and the rendezvous.
    """

    def __init__(
        self,
        plan: Plan,
        step: RunStep,
        rendezvous: Rendezvous,
        results: list[Any],
        wrap: FireWrapper | None = None,
    ) -> None:
        self.plan = plan
        self.device = short_device_name(plan.device)
        self.ready: list[tuple[Fire, Iteration]] = []
        self.results = results
        self.root: FrameState | None = None
        self.taken = 0
        self.queue: Iterator[tuple[Fire, Iteration]] = iter(self.ready)
        fetched = {place: self._take(place, item) for place, item in plan.fetches.items()}
        self.linked = link(plan, self.ready, step, rendezvous, fetched, wrap)

    def _take(self, place: int, item: Output) -> Send:
        results = self.results

        def take(it: Iteration, value: Any) -> int:
            if results[place] is not MISSING:
                raise several_values_error(item, it)
            results[place] = value
            return 0

        return take

    def begin(self, feeds: Sequence[Any]) -> None:
        """Make ready what a run starts with: what is fed, and the nodes without inputs."""
        self.ready.clear()
        self.root = FrameState(self.plan.root, None, self.ready, None)
        iteration = self.root.newest
        for place, send in self.linked.feeds.items():
            send(iteration, feeds[place])
        self.ready.extend((fire, iteration) for fire in self.linked.roots)
        iteration.outstanding = len(self.ready) + 1
        self._rewind()

    def end(self) -> None:
        """Let go of all that the run has left."""
        frames = [self.root] if self.root is not None else []
        for frame in frames:
            frame.values.clear()
            frame.roots.clear()
            frame.deferred.clear()
            iteration = frame.first
            while iteration is not None:
                iteration.values.clear()
                frames += (iteration.children or {}).values()
                iteration = iteration.next
        self.root = None
        self.ready.clear()
        self._rewind()

    def in_order(self, batch: int) -> None:
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

    def pick(self, place: int) -> None:
        """Fire one of the ready tokens; the last one takes its place in the queue."""
        ready = self.ready
        ready[place], ready[-1] = ready[-1], ready[place]
        self.fire(*ready.pop())

    def fire(self, fire: Fire, it: Iteration) -> None:
        """Fire one token."""
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
        if isinstance(error, KERNEL_FAILURES):
            text = str(error) or type(error).__name__
            return ExecutionError(text, node=name, frame=it.path, device=self.device, code="CFG705")
        if isinstance(error, AttributeError) and (text := explain_wrong_handle(error)):
            return ExecutionError(text, node=name, frame=it.path, device=self.device, code="CFG705")
        error.add_note(f"while running node '{name}' in frame {it.path}")
        return error

    def busiest(self) -> Iteration | None:
        """Where the next token is, if there is one."""
        return self.ready[self.taken][1] if self.ready else None


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


def several_values_error(item: Output, it: Iteration) -> ExecutionError:
    """The error of a fetch inside a loop that runs more than once."""
    return ExecutionError(
        f"{item.name} is inside a loop and has more than one value",
        node=item.node,
        frame=it.path,
        hint="fetch the loop's Exit, or look at all values with --tap",
        code="CFG703",
    )
