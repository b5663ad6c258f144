"""Generated code before it is printed: lines in nested blocks, over variables.

Variables get their names when the code is printed, so that two variables may become one until then.
No name or text of a graph is part of the code. Operators and some kernels write into the buffer of
an operand that nothing reads again. `NotCompiled` is raised for a run that generated code cannot
represent: the token executor runs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from cfgraph.ir.graph import Node
from cfgraph.runtime.engine.plan import NodePlan

_MIN_BYTES: Final = 1 << 17
# the first operand is dead after the line, and the second
FIRST: Final = 1
SECOND: Final = 2
OPERATORS: Final = {"{} + {}": "_add", "{} - {}": "_subtract", "{} * {}": "_multiply"}


def reusing_forms(min_bytes: int) -> dict[tuple[str, int], str]:
    """The forms of operators for large operands, by the plain form and what is dead after it."""
    forms = {}
    for form, function in OPERATORS.items():
        plain = form.format("{0}", "{1}")
        for dead in (FIRST, SECOND, FIRST | SECOND):
            field = "{0}" if dead & FIRST else "{1}"
            called = f"{function}({{0}}, {{1}}, {dead})"
            forms[form, dead] = f"{plain} if {field}.nbytes < {min_bytes} else {called}"
    return forms


REUSING_FORMS: Final = reusing_forms(_MIN_BYTES)


class NotCompiled(Exception):
    """Generated code cannot represent the run; `reason` says why, of which node."""

    def __init__(self, reason: str, node: Node | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.node = node

    @property
    def text(self) -> str:
        """The reason with the name of the node."""
        return f"{self.reason} ({self.node.name!r})" if self.node is not None else self.reason


_NUMERIC: Final = ("float", "complex", "int", "uint")
_UNSET: Final = 1 << 60


class Value:
    """A variable or a constant of the generated code.

    `first_def`, `last_def`, and `last_read` are line numbers. `def_block` contains all lines that
    assign it, `read_block` the last that reads it. `scalar` is a guess that the value is too small
    to be worth dropping early.
    """

    __slots__ = (
        "def_block",
        "definitions",
        "first_def",
        "is_incomplete",
        "last_def",
        "last_read",
        "merged_into",
        "name",
        "read_block",
        "scalar",
    )

    def __init__(self, name: str, *, scalar: bool = False) -> None:
        self.name = name
        self.scalar = scalar
        self.merged_into: Value | None = None
        self.is_incomplete = False  # some branch has yet to assign the variable of a Merge
        self.first_def, self.last_def, self.last_read = _UNSET, -1, -1
        self.definitions = 0
        self.def_block: Block | None = None
        self.read_block: Block | None = None

    def resolved(self) -> Value:
        """The variable that this one has become."""
        value = self
        while value.merged_into is not None:
            further = value.merged_into.merged_into
            if further is not None:
                value.merged_into = further  # halve the path for the next time
            value = value.merged_into
        return value

    def merge_into(self, target: Value) -> None:
        """Make this variable the same as another."""
        source, target = self.resolved(), target.resolved()
        if source is target:
            return
        source.merged_into = target
        target.first_def = min(target.first_def, source.first_def)
        target.last_def = max(target.last_def, source.last_def)
        target.definitions += source.definitions
        target.def_block = _joined(target.def_block, source.def_block)
        if source.last_read > target.last_read:
            target.last_read, target.read_block = source.last_read, source.read_block
        target.scalar = target.scalar and source.scalar


class Constant(Value):
    """A value that is known when the code is generated; `plan` is of the node that it is from."""

    __slots__ = ("content", "plan")

    def __init__(self, name: str, content: Any, plan: NodePlan | None) -> None:
        super().__init__(name, scalar=getattr(content, "ndim", 1) == 0)
        self.content = content
        self.plan = plan


class Block:
    """The lines under one header. `loop` is the number of the loop that the block repeats in."""

    __slots__ = ("depth", "else_block", "end", "loop", "loop_depth", "parent")

    def __init__(self, parent: Block | None, loop: int) -> None:
        self.parent = parent
        self.depth: int = parent.depth + 1 if parent else 1
        self.loop = loop
        self.loop_depth: int = parent.loop_depth + (loop != parent.loop) if parent else 0
        self.end = -1  # the number of the last line
        self.else_block: Block | None = None  # the `else` of this block


def _resolved(values: Sequence[Value]) -> list[Value]:
    return [value if value.merged_into is None else value.resolved() for value in values]


def _reusing(line: Line, operands: Sequence[Value], dead: Sequence[Value]) -> str:
    """The form of an operation on arrays that may write into one that is dead after it."""
    if line.form in OPERATORS:
        first, second = operands
        flags = FIRST * _is_reusable(line, first, dead) + SECOND * _is_reusable(line, second, dead)
        return REUSING_FORMS[line.form, flags] if flags else line.form
    plan = line.plan
    is_call = plan is not None and plan.op.aliasing.reuses_input and not plan.is_on_device
    if (
        not is_call
        or not line.form.startswith("{}({}")
        or not _is_reusable(line, operands[1], dead)
    ):
        return line.form
    call = line.form.format(*[f"{{{index}}}" for index in range(len(operands))])
    reusing = call.replace("{0}(", "_reuse({0}, ")
    return f"{call} if {{1}}.nbytes < {_MIN_BYTES} else {reusing}"


def _is_reusable(line: Line, operand: Value, dead: Sequence[Value]) -> bool:
    dtype = line.plan.node.attrs.get("T") if line.plan is not None else None
    return operand in dead and not operand.scalar and getattr(dtype, "kind", "") in _NUMERIC


def _is_simple(form: str) -> bool:
    """True for a line that another statement may follow."""
    return not form.endswith(":") and not form.startswith(("return", "break"))


def _reuse_names(targets: Sequence[Value], dead: list[Value], block: Block) -> None:
    """Give targets the names of variables that are dead after the line, and need no drop then.

    Such a target is assigned nowhere else, and does not outlive the block. Python compiles code
    with fewer variables and assignments faster.
    """
    assigned, remaining = set(targets), set(dead)
    free = [value for value in dead if value not in assigned]
    for target in targets:
        if not free:
            break
        is_local = target.def_block is target.read_block is block
        if is_local and target.definitions == 1 and target not in remaining:
            value = free.pop()
            remaining.discard(value)
            target.name = value.name
    dead[:] = [value for value in dead if value in remaining]


def _reuse_scalar_name(target: Value, operands: Sequence[Value], block: Block, line: int) -> None:
    """Give a target the name of a small operand that is dead after the line; it has no drop."""
    if target.definitions == 1 and target.def_block is target.read_block is block:
        for value in operands:
            if value.scalar and value.last_read == line and value.def_block is block:
                target.name = value.name
                return


def _joined(a: Block | None, b: Block | None) -> Block | None:
    """The innermost block that contains both."""
    if a is None or b is None:
        return a or b
    while a is not b:
        if a.depth >= b.depth:
            assert a.parent is not None
            a = a.parent
        else:
            assert b.parent is not None
            b = b.parent
    return a


class Line:
    """One line: `form` has a field per argument, `targets` precede it, `plan` is of its node."""

    __slots__ = ("arguments", "block", "form", "hoisted", "opens", "plan", "targets")

    def __init__(
        self,
        block: Block,
        form: str,
        arguments: Sequence[Value],
        targets: Sequence[Value],
        plan: NodePlan | None,
        hoisted: int,
    ) -> None:
        self.block = block
        self.form = form
        self.arguments = arguments
        self.targets = targets
        self.plan = plan
        self.hoisted = hoisted  # the loop that it precedes as an invariant, or 0
        self.opens: Block | None = None  # the block that starts after a header


@dataclass(frozen=True, slots=True)
class GeneratedCode:
    """The source of a run, its constants, and the node and the hoisting loop of each line.

    `calls` is the depth of calls between its functions.
    """

    source: str
    positions: list[tuple[NodePlan | None, int]]
    constants: dict[str, Any]
    may_be_dead: bool
    calls: int


class Program:
    """The lines of a function, in order, and its variables and constants.

    `is_whole` is false for a part of a program, in which a variable may have a value before its
    first line.
    """

    # CPython allows 20 nested loops and 100 levels of indentation
    MAX_LOOPS: ClassVar = 10
    MAX_DEPTH: ClassVar = 50

    def __init__(self, parameters: str, name: str = "run", *, is_whole: bool = False) -> None:
        self.name = name
        self.parameters = parameters
        self.is_whole = is_whole
        # the code as several functions, if it needs them, and the depth of their calls
        self.functions: list[Program] = []
        self.calls = 0
        self.lines: list[Line] = []
        self.block = Block(None, 0)
        self.values: list[Value] = []
        self.constants: list[Constant] = []
        self.hoisted = 0  # the loop whose invariants are being written

    @property
    def is_too_deep(self) -> bool:
        """True if loops and conditionals are nested too deeply for one function."""
        blocks = [line.opens for line in self.lines if line.opens is not None]
        depth = max((block.depth for block in blocks), default=0)
        return depth > self.MAX_DEPTH or any(b.loop_depth > self.MAX_LOOPS for b in blocks)

    def variable(self, *, scalar: bool = False, prefix: str = "v") -> Value:
        """A new variable."""
        value = Value(f"{prefix}{len(self.values)}", scalar=scalar)
        self.values.append(value)
        return value

    def parameter(self) -> Value:
        """A new parameter of the function, a variable that has a value at its start."""
        value = self.variable()
        value.def_block, value.definitions = self.block, 1
        self.parameters = f"{self.parameters}, {value.name}"
        return value

    def constant(self, content: Any, prefix: str = "c", plan: NodePlan | None = None) -> Constant:
        """A new constant."""
        value = Constant(f"{prefix}{len(self.constants)}", content, plan)
        self.constants.append(value)
        return value

    def add(
        self,
        form: str,
        arguments: Sequence[Value] = (),
        targets: Sequence[Value] = (),
        plan: NodePlan | None = None,
    ) -> None:
        """Append a line to the current block."""
        block, position = self.block, len(self.lines)
        operands = [value if value.merged_into is None else value.resolved() for value in arguments]
        for value in operands:
            value.last_read = position
            value.read_block = block
        for target in targets:
            value = target if target.merged_into is None else target.resolved()
            value.last_def = position
            value.definitions += 1
            if value.def_block is None:
                value.first_def, value.def_block = position, block
            elif value.def_block is not block:
                value.def_block = _joined(value.def_block, block)
        self.lines.append(Line(block, form, operands, targets, plan, self.hoisted))

    def declare(self, position: int, targets: Sequence[Value]) -> None:
        """Assign None to variables in an earlier line, which has been empty."""
        line = self.lines[position]
        line.form, line.targets = ", ".join(["None"] * len(targets)), targets
        for value in targets:
            value.definitions += 1
            value.def_block = _joined(value.def_block, line.block)

    def open(
        self, header: str, arguments: Sequence[Value] = (), *, loop: int | None = None
    ) -> None:
        """Append a header, and start its block."""
        self.add(header, arguments)
        self.block = Block(self.block, self.block.loop if loop is None else loop)
        self.lines[-1].opens = self.block

    def close(self) -> None:
        """End the current block."""
        if self.lines[-1].block is self.block.parent:
            self.add("pass")  # its nodes forward values and need no code
        self.block.end = len(self.lines) - 1
        assert self.block.parent is not None
        self.block = self.block.parent

    def open_else(self, first: Block) -> None:
        """Start the `else` of a block that has just ended."""
        self.add("else:")
        first.else_block = self.block = self.lines[-1].opens = Block(self.block, self.block.loop)

    def _drops(self) -> dict[int, list[tuple[Block, Value]]]:
        """The variables to drop after each line, with the block that they are dropped in."""
        drops: dict[int, list[tuple[Block, Value]]] = {}
        for value in self.values:
            start, block, line = value.def_block, value.read_block, value.last_read
            if value.merged_into is not None or value.scalar or start is None:
                continue
            if block is None:
                if value.definitions > 1:
                    continue
                block, line = start, value.last_def
            outer = _joined(start, block)
            while block is not outer:
                assert block is not None
                line = (block.else_block or block).end
                block = block.parent
            assert block is not None
            drops.setdefault(line, []).append((block, value))
        return drops

    def code(self, *, may_be_dead: bool) -> GeneratedCode:
        """The printed program, ready to be compiled or stored."""
        source, owners = self.source()
        lines = self.lines
        positions = [
            (None, 0) if owner < 0 else (lines[owner].plan, lines[owner].hoisted)
            for owner in owners
        ]
        constants = {value.name: value.content for value in self.constants}
        return GeneratedCode(source, positions, constants, may_be_dead, self.calls)

    def source(self, *, drops_values: bool = True) -> tuple[str, list[int]]:
        """The Python source, and the index of the line that each of its lines belongs to.

        It drops arrays after their last use if `drops_values`.
        """
        if self.functions:
            parts = [function.source(drops_values=drops_values) for function in self.functions]
            return "".join(text for text, _ in parts), [n for _, numbers in parts for n in numbers]
        drops = self._drops() if drops_values else {}
        is_resolved = all(value.merged_into is None for value in self.values)
        printed, owners = [f"def {self.name}({self.parameters}):"], [-1]
        for index, line in enumerate(self.lines):
            operands, targets = line.arguments, line.targets
            if not is_resolved:
                operands, targets = _resolved(operands), _resolved(targets)
            form, block, later = line.form, line.block, drops.pop(index, None)
            same = [value for b, value in later if b is block] if later and _is_simple(form) else []
            if drops_values:
                form = _reusing(line, operands, [*same, *targets])
            text = form.format(*[value.name for value in operands])
            if targets:
                if same and self.is_whole:
                    _reuse_names(targets, same, block)
                elif drops_values and self.is_whole and targets[0].scalar:
                    _reuse_scalar_name(targets[0], operands, block, index)
                names = ", ".join([value.name for value in targets])
                # a variable that has become its own source needs no assignment
                text = f"{names} = {text}" if names != text else "pass"
            if same:
                text += f"; {' = '.join([value.name for value in same])} = None"
            printed.append("    " * block.depth + text)
            owners.append(index)
            if later is None:
                continue
            for outer, value in sorted(later, key=lambda item: -item[0].depth):
                if outer is not block:
                    printed.append(f"{'    ' * outer.depth}{value.name} = None")
                    owners.append(index)
        return "\n".join(printed) + "\n", owners


class FirstIteration:
    """The block of the first iteration of a loop; made where the loop is about to start.

    f1 = True
    v2 = None
    for i1 in iterations:
        ...
        if f1:
            v2 = k1(v1)
            f1 = False
        v3 = v3 @ v2
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._flag = program.variable(scalar=True, prefix="f")
        program.add("True", (), [self._flag])
        self._declaration = len(program.lines)
        program.add("pass")
        self._start = self._end = 0

    def open(self) -> None:
        """Start the block."""
        self._program.open("if {}:", [self._flag])
        self._start = len(self._program.lines)

    def close(self) -> None:
        """End the block. Its variables belong to the whole loop from now on."""
        program = self._program
        for target in self._targets():
            target.first_def = min(target.first_def, self._declaration)
        self._end = len(program.lines)
        program.add("False", (), [self._flag])
        program.close()

    def declare(self) -> None:
        """Declare the variables that the loop, now written, reads outside of the block."""
        read = [target for target in self._targets() if target.last_read > self._end]
        if read:
            self._program.declare(self._declaration, read)

    def _targets(self) -> list[Value]:
        lines = self._program.lines[self._start : self._end or None]
        return [target for line in lines for target in line.targets]
