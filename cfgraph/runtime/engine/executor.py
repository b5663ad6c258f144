"""Executor of a linked plan on one device: the queue of ready tokens, and located errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from types import FrameType
from typing import Any, Final

from cfgraph.errors import CfgraphError, ExecutionError, UsageError
from cfgraph.ir.devices import short_device_name
from cfgraph.ir.graph import Node, Output
from cfgraph.ops.opdef.kernel_errors import kernel_error
from cfgraph.ops.opdef.op import KERNEL_FAILURES
from cfgraph.ops.opdef.resources import explain_wrong_handle
from cfgraph.runtime.engine.link import FireWrapper, link
from cfgraph.runtime.engine.plan import Plan
from cfgraph.runtime.engine.propagate import Fire, FrameState, Iteration, Send
from cfgraph.runtime.engine.references import dereference
from cfgraph.runtime.engine.rendezvous import Rendezvous
from cfgraph.runtime.engine.step import RunStep
from cfgraph.runtime.feeds.conversion import FedVariable
from cfgraph.stack_position import (
    LOCATORS,
    StackPosition,
    frame_variables,
    is_of_signal_handler,
)


class _Missing:
    def __repr__(self) -> str:
        return "<no value yet>"


MISSING: Final = _Missing()


def _token_position(frames: Sequence[FrameType]) -> StackPosition:
    """The position of an executor that fires a token: `fire` in `iteration`."""
    variables = frame_variables(frames[0])
    executor: Executor = variables["self"]
    return executor.position_of(variables.get("fire"), variables.get("iteration"))


class Executor:
    """Executor of one device's part of a run.

    `results[i]` is the result of fetch i: a value, None if dead, MISSING if nothing arrived. All
    devices share that list, and the rendezvous.
    """

    def __init__(
        self,
        plan: Plan,
        step: RunStep,
        rendezvous: Rendezvous,
        results: list[Any],
        wrap: FireWrapper | None = None,
        observed: Node | None = None,
    ) -> None:
        self.plan = plan
        self.ready: list[tuple[Fire, Iteration]] = []
        self.results = results
        self.root: FrameState | None = None
        self.consumed = 0
        self.queue: Iterator[tuple[Fire, Iteration]] = iter(self.ready)
        fetched = {
            index: self._fetch_sender(index, output) for index, output in plan.fetches.items()
        }
        self.linked = link(plan, self.ready, step, rendezvous, fetched, wrap, observed)

    @property
    def device(self) -> str:
        """The short name of the device."""
        return short_device_name(self.plan.device)

    def _fetch_sender(self, index: int, output: Output) -> Send:
        results = self.results

        def deliver(iteration: Iteration, value: Any) -> int:
            if results[index] is not MISSING:
                raise several_values_error(output, iteration)
            results[index] = value
            return 0

        return deliver

    def start(self, feeds: Sequence[Any]) -> None:
        """Queue the initial tokens: fed values, and nodes without inputs."""
        self.ready.clear()
        self.root = FrameState(self.plan.root, None, self.ready, None)
        iteration = self.root.newest
        for index, send in self.linked.feeds.items():
            send(iteration, feeds[index])
        self.ready.extend((fire, iteration) for fire in self.linked.roots)
        iteration.outstanding = len(self.ready) + 1
        self._rewind()

    def clear(self) -> None:
        """Drop all state of the run."""
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

    def fire_in_order(self, batch: int) -> None:
        """Fire a batch of tokens, first in, first out.

        Fired tokens are removed once they are half of the queue, since shifting a long list takes
        time.
        """
        ready = self.ready
        fire, iteration = ready[self.consumed]
        try:
            for fire, iteration in islice(self.queue, batch):
                fire(iteration)
        except Exception as error:
            raise self._located(error, fire, iteration) from error.__cause__
        self.consumed = min(self.consumed + batch, len(ready))
        if 2 * self.consumed >= len(ready):
            del ready[: self.consumed]
            self._rewind()

    def _rewind(self) -> None:
        """Restart the iterator at the beginning of the queue."""
        self.consumed, self.queue = 0, iter(self.ready)

    def fire_at(self, index: int) -> None:
        """Fire one of the ready tokens; the last one moves to its index in the queue."""
        ready = self.ready
        ready[index], ready[-1] = ready[-1], ready[index]
        self.fire(*ready.pop())

    def fire(self, fire: Fire, iteration: Iteration) -> None:
        """Fire one token."""
        try:
            fire(iteration)
        except Exception as error:
            raise self._located(error, fire, iteration) from error.__cause__

    def _located(self, error: Exception, fire: Fire, iteration: Iteration) -> Exception:
        """The error with the node, frame, and device of the token that raised it."""
        plan = self.linked.owners.get(fire)
        if plan is None:
            return located_error(error, None, iteration.path, self.device)
        inputs = iteration.values[plan.base : plan.end]
        return located_error(error, plan.node, iteration.path, self.device, inputs)

    def position_of(self, fire: Fire | None, iteration: Iteration | None) -> StackPosition:
        """The position of a token; the root without one."""
        plan = self.linked.owners.get(fire) if fire is not None else None
        loops = iteration.loops if iteration is not None else ()
        return StackPosition("run", plan.node.name if plan else None, loops)

    def next_token_position(self) -> StackPosition:
        """The position of the next token, which is ready."""
        return self.position_of(*self.ready[self.consumed])

    def next_token_iteration(self) -> Iteration | None:
        """The iteration of the next token, if there is one."""
        return self.ready[self.consumed][1] if self.ready else None


for _function in (Executor.fire_in_order, Executor.fire):
    LOCATORS[_function.__code__] = _token_position


def located_error(
    error: Exception,
    node: Node | None,
    path: str,
    device: str,
    inputs: Sequence[Any] = (),
    names: Sequence[str] = (),
) -> Exception:
    """An error of a run with the node, frame path, and device where it was raised.

    One that Python or NumPy raised describes the `inputs` of the node, which `names` names. That of
    a handler of a signal is unchanged.
    """
    if is_of_signal_handler(error):
        return error
    name = node.name if node is not None else "?"
    if isinstance(error, CfgraphError):
        if node is not None:
            error.node = error.node or name
        error.frame = error.frame or path
        error.device = error.device or device
        if type(error).exit_code == ExecutionError.exit_code:
            return _as_execution_error(error)
        return error
    if isinstance(error, AttributeError) and isinstance(error.obj, FedVariable) and node:
        message = f"feed {error.obj.name}: {node.op} expects another resource than a variable"
        hint = "feed what makes the resource, or a handle that an earlier run has fetched"
        return UsageError(message, node=name, hint=hint, code="CFG034")
    if isinstance(error, KERNEL_FAILURES) and node is not None:
        failure = kernel_error(error, node, _dereferenced(inputs), names)
        return located_error(failure, node, path, device)
    text = explain_wrong_handle(error) if isinstance(error, AttributeError) else None
    if isinstance(error, KERNEL_FAILURES):
        text = str(error) or type(error).__name__  # outside of the kernels of nodes
    if text:
        return ExecutionError(text, node=name, frame=path, device=device, code="CFG705")
    error.add_note(f"while running node '{name}' in frame {path}")
    return error


def _dereferenced(inputs: Sequence[Any]) -> list[Any]:
    """The values of inputs; a variable without a value stays one."""
    values = []
    for value in inputs:
        try:
            values.append(dereference(value))
        except CfgraphError:
            values.append(value)
    return values


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


def several_values_error(output: Output, iteration: Iteration) -> ExecutionError:
    """The error of a fetch inside a loop that runs more than once."""
    return ExecutionError(
        f"{output.name} is inside a loop and has more than one value",
        node=output.node,
        frame=iteration.path,
        hint="fetch the loop's Exit, or print all values with --tap",
        code="CFG703",
    )
