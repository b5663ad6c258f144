"""The last iterations of a loop that exceeds a limit: what its condition reads, and what changes.

Loops pay nothing for it. Before the iterations up to the limit, and before the exception of a
deadline, the variables of the generated code are read from the stack. The operands in the lines of
the condition name those that it reads.
"""

from __future__ import annotations

import re
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import FrameType
from typing import Any, Final

import numpy as np

from cfgraph.analysis.loops.frame import Frame
from cfgraph.errors import ConditionInput, LoopState
from cfgraph.ir.graph import Node
from cfgraph.ir.role import ENTER, MERGE
from cfgraph.ops.opdef.op import role_of, strip_identities
from cfgraph.runtime.compiled.code_position import operand_names
from cfgraph.runtime.compiled.compiled_run import CompiledRun
from cfgraph.runtime.memory.placement import is_gpu_array
from cfgraph.stack_position import frame_variables

# iterations that an error lists
LISTED: Final = 3
_MAX_INPUTS: Final = 4
_MAX_ELEMENTS: Final = 6
_MAX_TEXT: Final = 60
_LARGEST: Final = (1 << 63) - 1
# nodes of a condition that are searched for what it reads
_MAX_NODES: Final = 200
_HEADER: Final = re.compile(r"\s*for i(\d+) in")
# a line that copies an input of a node to another memory
_COPY: Final = re.compile(r"\s*(\w+) = m\d+\((\w+)\)")


@dataclass(frozen=True, slots=True)
class _Operand:
    """A tensor that a condition reads, as an operand in a line of code."""

    tensor: str
    reader: Node
    slot: int


@dataclass(frozen=True, slots=True)
class _ReadValue:
    """The text of a value, and what tells it from other values."""

    text: str
    identity: Any


@dataclass(frozen=True, slots=True)
class _StackSnapshot:
    """The iteration of each loop, and the variables of the code, at one moment.

    `loops` are those that run, outermost first.
    """

    loops: tuple[Frame, ...]
    indices: Mapping[Frame, int]
    values: Mapping[str, _ReadValue]


class LoopWatch:
    """The last snapshots of a run: of each loop near the limit, and of a run near its deadline."""

    def __init__(self, run: CompiledRun) -> None:
        self.run = run
        self._near_limit: dict[Frame, deque[_StackSnapshot]] = {}
        self._near_deadline: deque[_StackSnapshot] = deque(maxlen=LISTED)
        self._variables: dict[_Operand, list[str]] | None = None

    def record_deadline(self, frame: FrameType | None) -> None:
        """Record where the thread with this innermost frame is."""
        snapshot = self._snapshot(frame)
        if snapshot is not None:
            self._near_deadline.append(snapshot)

    def record_iteration(self, frame: FrameType, index: int, *, is_first: bool) -> None:
        """Record the start of an iteration; `frame` is at the header of the loop."""
        snapshot = self._snapshot(frame, index)
        if snapshot is None or not snapshot.loops:
            return
        recorded = self._near_limit.setdefault(snapshot.loops[-1], deque(maxlen=LISTED))
        if is_first:
            recorded.clear()
        recorded.append(snapshot)

    def state_at_limit(self, loop: str) -> LoopState | None:
        """The state of the loop of this name that has exceeded the limit, if it is known."""
        for frame, snapshots in self._near_limit.items():
            if frame.name == loop and snapshots:
                return self._state(frame, list(snapshots))
        return None

    def state_at_deadline(self) -> LoopState | None:
        """The state of the outermost loop that has gone on near the deadline, else the innermost.

        An outer loop that stays in one iteration waits for an inner one.
        """
        snapshots = [item for item in self._near_deadline if item.loops]
        if not snapshots:
            return None
        loops = snapshots[-1].loops
        snapshots = [item for item in snapshots if loops[0] in item.indices]
        advancing = (
            frame for frame in loops if len({item.indices.get(frame) for item in snapshots}) > 1
        )
        frame = next(advancing, loops[-1])
        # one per iteration, the latest
        latest = {item.indices[frame]: item for item in snapshots if frame in item.indices}
        return self._state(frame, list(latest.values()))

    def _state(self, frame: Frame, snapshots: Sequence[_StackSnapshot]) -> LoopState | None:
        if frame.loop_cond is None:
            return None
        inputs = []
        for operand in condition_operands(frame):
            read = self._values(operand, snapshots)
            if read is not None:
                texts = tuple(value.text for value in read)
                changes = len({value.identity for value in read}) > 1
                inputs.append(ConditionInput(operand.tensor, texts, changes))
        condition = strip_identities(frame.loop_cond.inputs[0]).node.name
        numbers = tuple(item.indices[frame] for item in snapshots)
        return LoopState(frame.name, condition, numbers, tuple(inputs[:_MAX_INPUTS]))

    def _values(
        self, operand: _Operand, snapshots: Sequence[_StackSnapshot]
    ) -> list[_ReadValue] | None:
        """The values of an operand, or None if a snapshot lacks it."""
        for name in self._names().get(operand, ()):
            if all(name in item.values for item in snapshots):
                return [item.values[name] for item in snapshots]
        return None

    def _snapshot(self, frame: FrameType | None, index: int | None = None) -> _StackSnapshot | None:
        """The state of the code on a stack; of a loop with `index` at the innermost line."""
        code, function = self.run.generated.get()
        stack = _frames_of(frame, function.__code__.co_filename)
        if not stack:
            return None
        number = stack[-1].f_lineno or 0
        plan, _ = code.positions[number - 1] if number > 1 else (None, 0)
        all_frames = self.run.plan.frames.all
        header = _HEADER.match(code.source.split("\n")[number - 1])
        if header is not None:
            loop: Frame | None = all_frames[int(header[1])]
        else:
            loop = self.run.plan.frames.of[plan.node] if plan is not None else None
        variables = dict(function.__globals__)
        for item in stack:
            variables.update(frame_variables(item))
        counters = {frame: variables.get(f"i{number}") for number, frame in enumerate(all_frames)}
        if header is not None and loop is not None and index is not None:
            counters[loop] = index
        read = {name for names in self._names().values() for name in names}
        return _StackSnapshot(
            () if loop is None else tuple(loop.loops),
            {frame: count for frame, count in counters.items() if count is not None},
            {name: _value(variables[name]) for name in read if name in variables},
        )

    def _names(self) -> dict[_Operand, list[str]]:
        """The variables of the operands of all conditions."""
        if self._variables is None:
            frames = self.run.plan.frames.all
            operands = [item for frame in frames for item in condition_operands(frame)]
            lines = self._lines_of({operand.reader for operand in operands})
            self._variables = {
                operand: [
                    names[operand.slot] for names in lines[operand.reader] if names[operand.slot]
                ]
                for operand in operands
            }
        return self._variables

    def _lines_of(self, readers: set[Node]) -> dict[Node, list[list[str]]]:
        """The names of the operands in each line of a node, the last line first."""
        code = self.run.code
        texts = code.source.split("\n")
        result: dict[Node, list[list[str]]] = {reader: [] for reader in readers}
        copied: dict[str, str] = {}
        for number, (plan, _) in enumerate(code.positions):
            if plan is None or plan.node not in readers:
                continue
            copy = _COPY.match(texts[number])
            if copy is not None:
                copied[copy[1]] = copy[2]
                continue
            count = len(plan.node.inputs)
            names = operand_names(texts[number])[-count:]
            if len(names) == count:
                # a copy is that of the last iteration at the header of the loop
                result[plan.node].insert(0, [copied.get(name, name) for name in names])
            copied.clear()
        return result


def condition_operands(frame: Frame) -> list[_Operand]:
    """The tensors from outside of an iteration that determine the condition of a loop."""
    cond = frame.loop_cond
    operands: dict[str, _Operand] = {}
    todo = [] if cond is None else [strip_identities(cond.inputs[0]).node]
    for node in todo:  # grows
        for slot, tensor in enumerate(node.inputs):
            origin = strip_identities(tensor).node
            if role_of(origin) in (ENTER, MERGE):
                name = origin.inputs[0].name if role_of(origin) is ENTER else origin.name
                name = name.removesuffix(":0")
                operands.setdefault(name, _Operand(name, node, slot))
            elif not role_of(origin) and origin not in todo and len(todo) < _MAX_NODES:
                todo.append(origin)
    return list(operands.values())


class WatchedIterations:
    """The numbers of iterations, of which the last ones are recorded."""

    def __init__(self, stop: int, watch: LoopWatch) -> None:
        self._first = range(min(max(0, stop - LISTED), _LARGEST))
        self._last = range(self._first.stop, min(stop, _LARGEST))
        self._watch = watch

    def __iter__(self) -> Iterator[int]:
        return chain(self._first, self._watched())

    def _watched(self) -> Iterator[int]:
        for index in self._last:
            is_first = index == self._last.start
            self._watch.record_iteration(sys._getframe(1), index, is_first=is_first)
            yield index


def _frames_of(frame: FrameType | None, file: str) -> list[FrameType]:
    """The frames of the functions of a file on a stack, innermost last."""
    frames: list[FrameType] = []
    while frame is not None:
        if frame.f_code.co_filename == file:
            frames.append(frame)
        frame = frame.f_back
    return frames[::-1]


def _value(value: Any) -> _ReadValue:
    array = np.asarray(value.get() if is_gpu_array(value) else value)
    if array.dtype.hasobject or array.dtype.kind == "V":
        return _ReadValue(f"<{type(value).__name__}>", id(value))
    if array.size > _MAX_ELEMENTS:
        text = f"{array.dtype.name}{list(array.shape)}"
    else:
        text = str(array.tolist())
    return _ReadValue(
        text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + "…", hash(array.tobytes())
    )
