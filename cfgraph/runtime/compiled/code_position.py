"""Positions in compiled code: the node and the iteration of an error, or of a running thread."""

from __future__ import annotations

from collections.abc import Iterable
from traceback import walk_tb
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

from cfgraph.errors import RunTimeout
from cfgraph.ir.devices import short_device_name
from cfgraph.limits import timeout_error
from cfgraph.runtime.compiled.call_deadlines import DeadlinePassed
from cfgraph.runtime.compiled.node_writer import CompiledIteration, frame_names
from cfgraph.runtime.engine.executor import located_error
from cfgraph.runtime.engine.plan import NodePlan
from cfgraph.stack_position import frame_variables

if TYPE_CHECKING:
    from cfgraph.runtime.compiled.engine import CompiledRun


def code_position(
    run: CompiledRun, stack: Iterable[tuple[FrameType, int]]
) -> tuple[NodePlan | None, CompiledIteration]:
    """The node and the iteration that a stack is at: frames and lines, innermost last."""
    stack, outside = list(stack), CompiledIteration((), ())
    if run.interpreter is not None:
        known = run.interpreter.node_of(frame for frame, _ in stack)
        if known is not None or not run.generated.is_made:
            return known, outside
    code: CodeType = run.generated.get()[1].__code__
    variables: dict[str, Any] = {}
    number = 0
    for frame, line in stack:
        if frame.f_code.co_filename == code.co_filename:
            number = line
            variables.update(frame_variables(frame))
    plan, hoisted = run.code.positions[number - 1] if number > 1 else (None, None)
    if plan is None:
        return None, outside
    # the counters of loops are named after the numbers of their frames
    numbers = {frame: number for number, frame in enumerate(run.plan.frames.all)}
    frame_of_node = run.plan.frames.of[plan.node]
    indices = [
        0 if hoisted == numbers[loop] else variables.get(f"i{numbers[loop]}", 0)
        for loop in frame_of_node.loops
    ]
    return plan, CompiledIteration(frame_names(frame_of_node), tuple(indices))


def error_iteration(run: CompiledRun, error: BaseException) -> CompiledIteration:
    """The iteration of a run that an error comes from."""
    return code_position(run, walk_tb(error.__traceback__))[1]


def located(run: CompiledRun, error: Exception | DeadlinePassed) -> Exception:
    """An error of a run, with the node and the iteration that it comes from."""
    plan, iteration = code_position(run, walk_tb(error.__traceback__))
    path, device = iteration.path, run.plan.device
    if plan is not None:
        device = run.device_of.get(plan.node, device)
    device = short_device_name(device)
    is_late = isinstance(error, RunTimeout) and error.node is None
    if is_late or isinstance(error, DeadlinePassed):
        error = timeout_error("the run exceeded its timeout", path)
        error.device = device
        return error
    return located_error(error, plan.node if plan else None, path, device)
