"""Program of one worker: its part of a projected program, with the lines of its messages.

A line that reads a received value is the first that waits for it, or the next with effects, or the
next that begins or ends a block. Messages are written before work that may take long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cfgraph.backends.workers.projection import EXIT_LINE, LineAction, PartLine, Projection
from cfgraph.runtime.compiled.generate import PARAMETERS
from cfgraph.runtime.compiled.outlining import outline_regions
from cfgraph.runtime.program import Block, Constant, Program, Value


def worker_program(projection: Projection, worker: int) -> Program:
    """The program of a worker."""
    return _PartWriter(projection, worker).write()


class _PartWriter:
    def __init__(self, projection: Projection, worker: int) -> None:
        self._projection, self._worker = projection, worker
        self._program = Program(PARAMETERS)
        self._values: dict[Value, Value] = {}
        self._blocks: dict[Block, Block] = {}
        self._stack: list[Block] = []  # the open blocks of the program of all devices
        self._received: dict[Value, PartLine] = {}  # not yet waited for
        self._may_flush = False
        self._writers: dict[LineAction, Callable[[PartLine], None]] = {
            LineAction.HEADER: self._header,
            LineAction.EXECUTE: self._execute,
            LineAction.ASSIGN: self._assign,
            LineAction.COPY: self._copy,
            LineAction.SEND: self._send,
            LineAction.RECEIVE: self._receive,
            LineAction.RETURN: self._return,
        }

    def write(self) -> Program:
        """Write the program."""
        for step in self._projection.lines(self._worker):
            self._go_to(step.line.block)
            self._program.hoisted = step.line.hoisted
            self._writers[step.action](step)
        program = self._program
        program.block.end = len(program.lines) - 1
        if program.is_too_deep:
            outline_regions(program)
        return program

    def _variable(self, value: Value) -> Value:
        """The variable, or the constant, of this program."""
        value = value.resolved()
        known = self._values.get(value)
        if known is None:
            if isinstance(value, Constant):
                known = self._program.constant(value.content, value.name[0], value.plan)
            else:
                known = self._program.variable(scalar=value.scalar, prefix=value.name[0])
            self._values[value] = known
        return known

    def _go_to(self, block: Block) -> None:
        """Close blocks until a block is the innermost."""
        while self._stack and self._stack[-1] is not block:
            self._wait_for_all()
            self._program.close()
            self._stack.pop()

    def _wait_for_all(self) -> None:
        for value in list(self._received):
            self._wait_for(value)

    def _wait_for(self, value: Value) -> None:
        """Write the line that waits for a message, unless it has been written."""
        step = self._received.pop(value.resolved(), None)
        if step is not None:
            target = self._variable(value)
            self._program.add(f"receive({step.number})", (), [target], step.line.plan)

    def _used(self, values: Sequence[Value]) -> list[Value]:
        """Variables that the next line reads or assigns."""
        for value in values:
            self._wait_for(value)
        return [self._variable(value) for value in values]

    def _header(self, step: PartLine) -> None:
        line, program = step.line, self._program
        assert line.opens is not None
        self._wait_for_all()
        self._may_flush = True
        first = self._projection.first_block(line.opens)
        if first is not None:
            program.open_else(self._blocks[first])
        else:
            loop = line.opens.loop
            is_loop = loop != line.block.loop
            arguments = [self._variable(value) for value in line.arguments]
            program.open(line.form, arguments, loop=loop if is_loop else None)
        program.lines[-1].plan = line.plan
        self._blocks[line.opens] = program.block
        self._stack.append(line.opens)

    def _execute(self, step: PartLine) -> None:
        line = step.line
        plan = line.plan
        if line.form == EXIT_LINE or (plan is not None and plan.op.effects.stateful):
            self._wait_for_all()
        arguments, targets = self._used([*line.arguments]), self._used([*line.targets])
        is_small = all(value.scalar for value in targets) and line.form != "pause()"
        if self._may_flush and not (is_small and targets):
            self._program.add("flush()", (), (), None)
            self._may_flush = False
        self._program.add(line.form, arguments, targets, plan)

    def _assign(self, step: PartLine) -> None:
        """Write an assignment, of those variables that this worker needs."""
        line, projection, worker = step.line, self._projection, self._worker
        needed = [n for n, value in enumerate(line.targets) if projection.is_needed(worker, value)]
        if line.form.startswith("feeds"):
            for position in needed:
                (target,) = self._used([line.targets[position]])
                self._program.add(f"feeds[{position}]", (), [target], None)
            return
        if len(line.targets) > 1:
            # variables without arguments are declared: each is None
            form = "{}" if line.arguments else "None"
            arguments = self._used([line.arguments[n] for n in needed if line.arguments])
            targets = self._used([line.targets[n] for n in needed])
            self._program.add(", ".join([form] * len(needed)), arguments, targets, line.plan)
            return
        arguments, targets = self._used([*line.arguments]), self._used([*line.targets])
        self._program.add(line.form, arguments, targets, line.plan)

    def _copy(self, step: PartLine) -> None:
        assert step.value is not None
        arguments = self._used([step.value])
        self._program.add("{}", arguments, self._used([*step.line.targets]), step.line.plan)

    def _send(self, step: PartLine) -> None:
        assert step.value is not None
        arguments = self._used([step.value])
        self._program.add(
            f"send({step.target}, {step.number}, {{}})", arguments, (), step.line.plan
        )
        self._may_flush = True

    def _receive(self, step: PartLine) -> None:
        assert step.value is not None
        self._wait_for(step.value)
        self._received[step.value.resolved()] = step
        if not step.is_late:
            self._wait_for(step.value)

    def _return(self, step: PartLine) -> None:
        line = step.line
        self._wait_for_all()
        fields = [
            "{}" if self._projection.is_result(self._worker, index) else "None"
            for index in range(len(line.arguments))
        ]
        values = [
            value for value, field in zip(line.arguments, fields, strict=True) if field == "{}"
        ]
        form = ", ".join(fields) + "," * (len(fields) == 1)
        self._program.add(f"return ({form})", self._used(values), (), None)
