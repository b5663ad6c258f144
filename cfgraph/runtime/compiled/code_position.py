"""Positions in compiled code: the node and the iteration of an error, or of a running thread."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from traceback import walk_tb
from types import CodeType, FrameType
from typing import Any

from cfgraph.errors import RunTimeout
from cfgraph.ir.devices import short_device_name
from cfgraph.limits import DeadlinePassed, timeout_error
from cfgraph.runtime.compiled.compiled_run import CompiledRun
from cfgraph.runtime.compiled.node_writer import CompiledIteration, frame_names
from cfgraph.runtime.engine.executor import located_error
from cfgraph.runtime.engine.plan import NodePlan
from cfgraph.stack_position import frame_variables


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
    stack = list(walk_tb(error.__traceback__))
    plan, iteration = code_position(run, stack)
    path, device = iteration.path, run.plan.device
    if plan is not None:
        device = run.device_of.get(plan.node, device)
    device = short_device_name(device)
    is_late = isinstance(error, RunTimeout) and error.node is None
    if is_late or isinstance(error, DeadlinePassed):
        error = timeout_error("the run exceeded its timeout", path)
        error.device = device
        return error
    if plan is None:
        return located_error(error, None, path, device)
    return located_error(error, plan.node, path, device, _inputs_at(run, plan, stack))


def _inputs_at(
    run: CompiledRun, plan: NodePlan, stack: Sequence[tuple[FrameType, int]]
) -> Sequence[Any]:
    """The inputs of the node that a stack is at, or nothing if they are not known."""
    if run.interpreter is not None and run.interpreter.node_of(frame for frame, _ in stack):
        return run.interpreter.inputs_in(frame for frame, _ in stack)
    code, function = run.generated.get()
    name = function.__code__.co_filename
    frame, line = [item for item in stack if item[0].f_code.co_filename == name][-1]
    text = code.source.split("\n")[line - 1]
    return arguments_in_line(text, frame, len(plan.node.inputs))


def arguments_in_line(text: str, frame: FrameType, count: int) -> Sequence[Any]:
    """The values of the last `count` operands of a line of code in a frame that is at that line.

    Empty if the line has other operands than variables and references.
    """
    names = [] if count == 0 else operand_names(text)[-count:]
    variables = {**frame.f_globals, **frame_variables(frame)}
    is_complete = len(names) == count and all(name in variables for name in names)
    return [variables[name] for name in names] if is_complete else ()


def operand_names(text: str) -> list[str]:
    """The names of the operands in the first statement of a line; empty for other expressions."""
    try:
        value = getattr(ast.parse(text.strip()).body[0], "value", None)
    except SyntaxError:  # the header of a block
        return []
    if isinstance(value, ast.IfExp):
        value = value.body  # the other branch is the same operator, on a larger array
    operands: list[ast.expr] = []
    if isinstance(value, ast.Call):
        operands = value.args
    elif isinstance(value, ast.BinOp):
        operands = [value.left, value.right]
    elif isinstance(value, ast.Compare):
        operands = [value.left, *value.comparators]
    elif isinstance(value, ast.UnaryOp):
        operands = [value.operand]
    return [_operand_name(operand) for operand in operands]


def _operand_name(operand: ast.expr) -> str:
    """The name of a variable, also of one that is dereferenced; empty for other operands."""
    if isinstance(operand, ast.Call) and len(operand.args) == 1:
        operand = operand.args[0]
    return operand.id if isinstance(operand, ast.Name) else ""
