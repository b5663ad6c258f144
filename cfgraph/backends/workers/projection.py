"""Projection of the program of a run to the part of it that one worker executes.

    program of all devices      worker 0              worker 1
    v1 = k0(c0)                 v1 = k0(c0)
    v2 = transfer(v1)           send(1, 0, v1)        v2 = receive(0)
    v3 = v2 + c1                                      v3 = v2 + c1

A worker executes the lines of its nodes, in the order of the program, in the loops and conditionals
that contain them. It receives what it reads from the worker that computes it: at the line of the
message of the graph, or, if the graph sends it nowhere or without conditions, such as a predicate,
after the line that computes it. The latter are also the invariants of a loop, which the graph sends
in each iteration, unless their message waits for something that may precede an effect and that the
predicate does not imply. Sends do not wait, and each value that a worker waits for is sent at a
line that precedes the wait in the program; thus workers never wait for each other in a circle.

Assignments of a variable to another, of a constant, and tests are repeated on each worker that
needs the result.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from cfgraph.backends.workers.implied_order import ImpliedOrder
from cfgraph.ir.graph import Node
from cfgraph.ir.role import Role
from cfgraph.ir.traversal import RendezvousKey, reachable, rendezvous_key
from cfgraph.ops.opdef.op import lookup
from cfgraph.runtime.compiled.engine import is_repeatable
from cfgraph.runtime.compiled.generate import CodeGenerator
from cfgraph.runtime.compiled.node_writer import TRANSFER
from cfgraph.runtime.program import Block, Constant, Line, Value

# lines that any worker may repeat, since they compute nothing
_ASSIGNED: Final = ("{}", "True", "False", "None", "feeds", "feeds[0]")
EXIT_LINE: Final = "break"


@dataclass(frozen=True, slots=True)
class Message:
    """A value that one worker sends to another, at one line of the program.

    `recv` is the name of the Recv that waits for it, `key` that of its message.
    """

    number: int
    source: int
    target: int
    recv: str
    key: RendezvousKey


class LineAction(StrEnum):
    """Action of a worker at a line of the program."""

    HEADER = "start the block of the line"
    EXECUTE = "execute the line"
    ASSIGN = "assign the variables that the worker needs"
    COPY = "copy a variable instead of receiving it"
    SEND = "send a value"
    RECEIVE = "receive a value"
    RETURN = "return the fetches of the worker"


@dataclass(frozen=True, slots=True)
class PartLine:
    """A line of the program, and the action of a worker at it."""

    line: Line
    action: LineAction
    value: Value | None = None
    number: int = 0
    target: int = 0
    is_late: bool = False


class Projection:
    """The division of a program among workers.

    `worker_of` has the worker of each device, `recvs` the Recv of each node that is a transfer.
    """

    def __init__(
        self, generator: CodeGenerator, worker_of: Mapping[str, int], recvs: Mapping[Node, Node]
    ) -> None:
        self._lines = generator.program.lines
        self._plan, self._style = generator.plan, generator.style
        self._worker_of, self._recvs = worker_of, recvs
        # control edges order nothing in a run without effects
        self._has_effects = not is_repeatable(generator.plan)
        self._definitions: dict[Value, list[int]] = defaultdict(list)
        self._implied = ImpliedOrder(self._plan)
        self._ordering = set(self._ordering_sends()) if self._has_effects else set[Node]()
        self._headers: dict[Block, Line] = {}
        self._tests: dict[Block, int] = {}  # the last line that tests if a loop ends
        self._first: dict[Block, Block] = {}  # of an `else`: the block that it follows
        self._exits: dict[Block, list[Block]] = defaultdict(list)  # of a loop
        self._entered: set[tuple[int, Block]] = set()
        self._needed: set[tuple[int, Value]] = set()
        self._sent: dict[int, dict[tuple[Value, int], None]] = defaultdict(dict)
        self._aliases: dict[int, Value] = {}  # by transfer: a variable of its receiver
        self._pending: list[tuple[Callable[[int, Any], None], int, Any]] = []
        self._owner = [self._line_owner(line) for line in self._lines]
        self._index_lines()
        self._divide()
        self.messages = list(self._numbered_messages())
        self._numbers = {
            (index, value, message.target): message.number
            for message, (index, value) in self.messages
        }

    def _line_owner(self, line: Line) -> int | None:
        """The worker that executes a line; None for one that each worker repeats if it needs it."""
        plan = line.plan
        if plan is None or line.opens is not None or line.form in _ASSIGNED:
            return None
        is_test = line.form == self._style.branch_test or line.form.startswith("branch(")
        if is_test or line.form.startswith("raise "):
            return None
        if plan.node in self._recvs and line.form == TRANSFER:
            return self._worker_of[self._recvs[plan.node].device]
        return self._worker_of[plan.node.device]

    def _index_lines(self) -> None:
        for index, line in enumerate(self._lines):
            for target in line.targets:
                self._definitions[target.resolved()].append(index)
            if line.opens is None:
                continue
            self._headers[line.opens] = line
            if line.opens.else_block is not None:
                self._first[line.opens.else_block] = line.opens
            if line.form == self._style.exit_test:
                self._exits[line.block].append(line.opens)
                self._tests[line.block] = index

    def _ordering_sends(self) -> Iterator[Node]:
        """The Sends whose messages order nodes that do not read them, by control edges."""

        def forwarded(node: Node) -> list[Node]:
            is_end = node in self._recvs or not node.inputs or not _is_forwarding(node)
            return [] if is_end else [node.inputs[0].node]

        controls = [control for node in self._plan.nodes for control in node.controls]
        yield from filter(self._recvs.__contains__, reachable(controls, forwarded))

    # -- division --------------------------------------------------------------------------------

    def _divide(self) -> None:
        """Find what each worker executes, and what it needs from others."""
        senders: dict[tuple[int, Block, Value], int] = {}
        for index, line in enumerate(self._lines):
            owner = self._owner[index]
            if line.form.startswith("return"):
                for worker, value in self._results(line):
                    self._need(worker, value)
            elif owner is None:
                continue
            elif line.form == TRANSFER and line.plan is not None:
                self._transfer(index, line, owner, senders)
            else:
                self._enter(owner, line.block)
                for value in line.arguments:
                    self._need(owner, value)
            while self._pending:
                work, worker, item = self._pending.pop()
                work(worker, item)

    def _results(self, line: Line) -> Iterator[tuple[int, Value]]:
        """The worker of each fetch, and its variable."""
        for index, value in enumerate(line.arguments):
            yield self._worker_of[self._plan.fetches[index].node.device], value

    def _transfer(
        self, index: int, line: Line, owner: int, senders: dict[tuple[int, Block, Value], int]
    ) -> None:
        """Divide the line of a message between its sender and its receiver."""
        assert line.plan is not None
        (argument,), send = line.arguments, line.plan.node
        value = argument.resolved()
        self._enter(owner, line.block)
        if self._follows_definition(send, value, index):
            self._aliases[index] = value
            self._need(owner, value)
            return
        known = senders.get((owner, line.block, value))
        is_free = not (send.controls and self._has_effects)
        if known is not None and is_free and not self._is_assigned(value, known, index):
            self._aliases[index] = self._lines[known].targets[0].resolved()
            self._need(owner, self._aliases[index])
            return
        if is_free:
            senders[owner, line.block, value] = index
        source = self._worker_of[send.device]
        self._need(source, value)
        self._enter(source, line.block)

    def _is_assigned(self, value: Value, first: int, last: int) -> bool:
        """True if a variable, or the copy of it at the `first` line, changes between two lines."""
        copy = self._lines[first].targets[0].resolved()
        changes = [*self._definitions[value], *self._definitions[copy]]
        return any(first < index < last for index in changes) or len(self._definitions[copy]) > 1

    def _follows_definition(self, send: Node, value: Value, index: int) -> bool:
        """True if a value need not be sent at the line of its message, and not more often.

        The message waits for nothing but the line that computes the value, or for what the
        predicate of the loop implies.
        """
        line = self._lines[index]
        lines = [self._lines[each] for each in self._definitions[value]]
        is_invariant = isinstance(value, Constant) or all(
            _is_outside_loop(line.block, each.block) for each in lines
        )
        if is_invariant and not self._has_effects:
            return True
        if isinstance(value, Constant):
            plan = value.plan
        elif len(lines) == 1 and (is_invariant or lines[0].block is line.block):
            plan = lines[0].plan
        else:
            return False
        node, sources = send, list[Node]()
        while plan is not None and _is_forwarding(node):
            sources += node.controls
            node = node.inputs[0].node
            if node is plan.node:
                if isinstance(value, Constant):
                    sources += [*node.controls, *(tensor.node for tensor in node.inputs)]
                is_late = is_invariant and self._is_after_tests(line.block, index)
                frame = self._plan.frames.of[send]
                return not sources or (is_late and self._implied.is_implied(sources, frame))
        return False

    def _is_after_tests(self, block: Block, index: int) -> bool:
        """True if each loop that contains a line tests before it if the loop ends."""
        ancestor: Block | None = block
        while ancestor is not None:
            if _is_loop(ancestor) and self._tests.get(ancestor, index) >= index:
                return False
            ancestor = ancestor.parent
        return True

    def _enter(self, worker: int, block: Block) -> None:
        """Let a worker execute a block, and decide what leads to it."""
        if block.parent is None or (worker, block) in self._entered:
            return
        self._entered.add((worker, block))
        header = self._headers[block]
        blocks = [block.parent, *self._exits.get(block, ())]
        if block in self._first:
            blocks.append(self._first[block])
        if block.loop != block.parent.loop and block.else_block is not None:
            blocks.append(block.else_block)
        self._pending += [(self._enter, worker, each) for each in blocks]
        self._pending += [(self._need, worker, value) for value in header.arguments]

    def _need(self, worker: int, argument: Value) -> None:
        """Let a worker have a variable: compute it, or receive it where it is assigned."""
        value = argument.resolved()
        if isinstance(value, Constant) or (worker, value) in self._needed:
            return
        self._needed.add((worker, value))
        for index in self._definitions[value]:
            line, owner = self._lines[index], self._owner[index]
            self._pending.append((self._enter, worker, line.block))
            if owner is None:
                sources = line.arguments
                if len(line.targets) > 1 and sources:
                    targets = [target.resolved() for target in line.targets]
                    sources = [sources[targets.index(value)]]
                self._pending += [(self._need, worker, source) for source in sources]
            elif owner != worker:
                self._sent[index][value, worker] = None

    def _numbered_messages(self) -> Iterator[tuple[Message, tuple[int, Value]]]:
        """The messages in the order of the program, each with its line and its variable."""
        recv_of: dict[tuple[Value, int], Node] = {}
        for index, alias in self._aliases.items():
            plan = self._lines[index].plan
            assert plan is not None
            recv = self._recvs[plan.node]
            recv_of.setdefault((alias, self._worker_of[recv.device]), recv)
        number = 0
        for index, line in enumerate(self._lines):
            plan = line.plan
            if line.form == TRANSFER and index not in self._aliases and plan is not None:
                recv = self._recvs[plan.node]
                source, target = self._worker_of[plan.node.device], self._worker_of[recv.device]
                value = line.arguments[0].resolved()
                key = rendezvous_key(recv)
                yield Message(number, source, target, recv.name, key), (index, value)
                number += 1
            for value, worker in self._sent.get(index, ()):
                owner = self._owner[index]
                assert owner is not None
                assert plan is not None
                known = recv_of.get((value, worker))
                key = RendezvousKey(plan.node.device, "", plan.node.name)
                if known is not None:
                    key = rendezvous_key(known)
                name = known.name if known is not None else plan.node.name
                yield Message(number, owner, worker, name, key), (index, value)
                number += 1

    # -- the part of one worker ------------------------------------------------------------------

    @property
    def digest(self) -> bytes:
        """A digest of the program and its messages, equal on all workers."""
        names = {value: number for number, value in enumerate(self._definitions)}
        digest = hashlib.sha256()
        for index, line in enumerate(self._lines):
            values = [names.get(v.resolved(), -1) for v in (*line.arguments, *line.targets)]
            node = line.plan.node.name if line.plan is not None else ""
            digest.update(repr((line.form, values, node, line.block.depth, index)).encode())
        digest.update(repr([message for message, _ in self.messages]).encode())
        return digest.digest()

    @property
    def waits_in_turn(self) -> bool:
        """True if two workers wait for each other in each iteration of a loop that may overlap.

        False if a loop has no messages, since generated code is much faster there.
        """
        frames, parallel = self._plan.frames, set[int]()
        loops = {block.loop: line for block, line in self._headers.items() if _is_loop(block)}
        pairs: dict[int, set[tuple[int, int]]] = {loop: set() for loop in loops}
        for message, (index, _) in self.messages:
            loop = self._lines[index].block.loop
            if loop in pairs:
                pairs[loop].add((message.source, message.target))
        for loop, line in loops.items():
            if line.plan is None or frames.of[line.plan.node].parallel_iterations > 1:
                parallel.add(loop)
        return all(pairs.values()) and any(
            (target, source) in pairs[loop] for loop in parallel for source, target in pairs[loop]
        )

    def feeds(self, worker: int) -> list[int]:
        """The feeds that a worker reads, by index."""
        return [
            position
            for line in self._lines
            if line.form.startswith("feeds")
            for position, value in enumerate(line.targets)
            if (worker, value.resolved()) in self._needed
        ]

    def lines(self, worker: int) -> Iterator[PartLine]:
        """The action of a worker at each line of the program."""
        for index, line in enumerate(self._lines):
            owner, plan = self._owner[index], line.plan
            if line.opens is not None:
                if (worker, line.opens) in self._entered:
                    yield PartLine(line, LineAction.HEADER)
                continue
            is_inside = line.block.parent is None or (worker, line.block) in self._entered
            if not is_inside:
                continue
            if line.form == TRANSFER and plan is not None:
                value = line.arguments[0].resolved()
                alias = self._aliases.get(index)
                if alias is not None and owner == worker:
                    yield PartLine(line, LineAction.COPY, alias)
                elif alias is None and owner == worker:
                    number = self._numbers[index, value, worker]
                    is_late = not (plan.node.controls or plan.node in self._ordering)
                    target, action = line.targets[0], LineAction.RECEIVE
                    yield PartLine(line, action, target, number, is_late=is_late)
                elif alias is None and self._worker_of[plan.node.device] == worker:
                    assert owner is not None
                    number = self._numbers[index, value, owner]
                    yield PartLine(line, LineAction.SEND, value, number, owner)
            elif line.form.startswith("return"):
                yield PartLine(line, LineAction.RETURN)
            elif line.form == EXIT_LINE or line.form.startswith("raise "):
                yield PartLine(line, LineAction.EXECUTE)
            elif owner is None:
                if any((worker, target.resolved()) in self._needed for target in line.targets):
                    yield PartLine(line, LineAction.ASSIGN)
            elif owner == worker:
                yield PartLine(line, LineAction.EXECUTE)
            for value, reader in self._sent.get(index, ()):
                number = self._numbers[index, value, reader]
                if owner == worker:
                    yield PartLine(line, LineAction.SEND, value, number, reader)
                elif reader == worker:
                    yield PartLine(line, LineAction.RECEIVE, value, number, is_late=True)

    def is_needed(self, worker: int, value: Value) -> bool:
        """True if a worker reads or forwards a variable."""
        return (worker, value.resolved()) in self._needed

    def is_result(self, worker: int, index: int) -> bool:
        """True if a worker returns a fetch."""
        return self._worker_of[self._plan.fetches[index].node.device] == worker

    def first_block(self, block: Block) -> Block | None:
        """The block that an `else` follows; None for another block."""
        return self._first.get(block)


def _is_loop(block: Block) -> bool:
    """True for the body of a loop."""
    return block.parent is not None and block.loop != block.parent.loop


def _is_outside_loop(block: Block, defining: Block) -> bool:
    """True if a block repeats in a loop that does not contain the block of a definition."""
    ancestor: Block | None = block
    while ancestor is not None and ancestor is not defining:
        ancestor = ancestor.parent
    return ancestor is not None and defining.loop_depth < block.loop_depth


def _is_forwarding(node: Node) -> bool:
    """True if the first input alone decides the value, and the program when the node runs."""
    op = lookup(node.op)
    return len(node.inputs) == 1 or (op is not None and op.role is Role.SWITCH)
