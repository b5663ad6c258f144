"""Functions for the inner regions of deeply nested code, which CPython cannot compile as one.

A region is a loop, or the block of a conditional. Its function has the variables as parameters that
the region may read before it assigns them, and returns those that the code outside of it may read:

    if b1:                            if b1:
        v2 = v1 + v1                      v3 = region1(v1)
        ...                   ──▶
        v3 = -v2                      def region1(v1):
                                          v2 = v1 + v1
                                          ...
                                          v3 = -v2
                                          return v3,

A variable that is not assigned on all paths is a parameter as well, and None before the first call.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from cfgraph.runtime.program import (
    Block,
    Constant,
    Line,
    NotCompiled,
    Program,
    Value,
)

# calls in a run, which leave room on the stack of Python for the caller
_MAX_CALLS: Final = 400
_PARAMETERS: Final = re.compile(r"\b(step|iterations(?!\()|i\d+)\b")
_INDEX: Final = re.compile(r"for (i\d+) in")


class _OutlinedRegion:
    """Lines that become a function: `entries` are numbers of lines, and inner regions.

    `block` contains the call, `top` those of the lines that run unconditionally. `free_names` are
    the names other than variables that its lines use, and that the caller passes.
    """

    def __init__(self, parent: _OutlinedRegion | None, block: Block, top: Block) -> None:
        self.parent = parent
        self.block = block
        self.top = top
        self.calls: int = parent.calls + 1 if parent else 0
        self.entries: list[int | _OutlinedRegion] = []
        self.free_names: dict[str, None] = {}
        self.counters: set[str] = set()
        self.reads: Counter[Value] = Counter()
        self.writes: Counter[Value] = Counter()
        # where each variable is first assigned, None if it may be read before
        self.first_write: dict[Value, Block | None] = {}
        self.inputs: list[Value] = []
        self.outputs: list[Value] = []
        self.unset: dict[Value, None] = {}


class _Levels:
    """The loops and conditionals around a block, in its function."""

    __slots__ = ("depth", "loops", "region")

    def __init__(self, region: _OutlinedRegion, depth: int, loops: int) -> None:
        self.region = region
        self.depth = depth
        self.loops = loops


def outline_regions(program: Program) -> None:
    """Divide a program that is nested too deeply for one function into several."""
    regions = _RegionFinder(program).regions
    program.calls = max(region.calls for region in regions)
    if program.calls > _MAX_CALLS:
        raise NotCompiled(f"loops and conditionals need more than {_MAX_CALLS} nested calls")
    _find_variables(program, regions)
    names = {region: f"_region{number}" for number, region in enumerate(regions)}
    names[regions[0]] = program.name
    program.functions = [_RegionWriter(program, region, names).function() for region in regions]


class _RegionFinder:
    """Divides the lines of a program into regions; `regions` has outer before inner ones."""

    def __init__(self, program: Program) -> None:
        lines = self.lines = program.lines
        outermost = lines[-1].block
        self.regions = [_OutlinedRegion(None, outermost, outermost)]
        self.levels = {outermost: _Levels(self.regions[0], 0, 0)}
        self.loop_ends: dict[Block, _OutlinedRegion] = {}
        self.exits = {line.block for line in lines if line.form == "break"}
        for number, line in enumerate(lines):
            levels = self.levels[line.block]
            if line.opens is None:
                levels.region.entries.append(number)
            elif line.opens.loop != line.block.loop:
                self._loop(number, line.block, line.opens, levels)
            else:
                self._conditional(number, line.opens, levels)

    def _loop(self, number: int, block: Block, body: Block, levels: _Levels) -> None:
        if levels.loops < Program.MAX_LOOPS and levels.depth < Program.MAX_DEPTH:
            levels.region.entries.append(number)
            self.levels[body] = _Levels(levels.region, levels.depth + 1, levels.loops + 1)
            return
        region = self._region(levels.region, block, block)
        region.entries.append(number)
        self.levels[body] = _Levels(region, 1, 1)
        if body.else_block is not None:
            self.loop_ends[body.else_block] = region

    def _conditional(self, number: int, branch: Block, levels: _Levels) -> None:
        region = self.loop_ends.get(branch)
        if region is not None:
            region.entries.append(number)
            self.levels[branch] = _Levels(region, 1, 0)
            return
        levels.region.entries.append(number)
        # a function cannot end the loop of its caller
        if levels.depth < Program.MAX_DEPTH or branch in self.exits:
            self.levels[branch] = _Levels(levels.region, levels.depth + 1, levels.loops)
        else:
            region = self._region(levels.region, branch, branch)
            self.levels[branch] = _Levels(region, 0, 0)

    def _region(self, parent: _OutlinedRegion, block: Block, top: Block) -> _OutlinedRegion:
        region = _OutlinedRegion(parent, block, top)
        parent.entries.append(region)
        self.regions.append(region)
        return region


def _find_variables(program: Program, regions: list[_OutlinedRegion]) -> None:
    """Find the parameters and results of each region; inner regions come before outer ones."""
    reads: Counter[Value] = Counter()
    accesses: Counter[Value] = Counter()
    for line in program.lines:
        for value in _variables(line.arguments):
            reads[value] += 1
            accesses[value] += 1
        for value in _variables(line.targets):
            accesses[value] += 1
    for region in reversed(regions):
        for entry in region.entries:
            if isinstance(entry, _OutlinedRegion):
                _add_call(region, entry)
            else:
                _add_line(region, program.lines[entry])
        for value, first in region.first_write.items():
            count = region.reads[value] + region.writes[value]
            if count == accesses[value]:
                continue
            if first is not region.top:
                region.inputs.append(value)
            if region.writes[value] and (
                first is not region.top or region.reads[value] < reads[value]
            ):
                region.outputs.append(value)
        known = set(region.inputs)
        region.unset = {
            value: None for value in region.unset if value not in known and region.writes[value]
        }


def _variables(values: Sequence[Value]) -> list[Value]:
    """The variables, without constants, which all functions share."""
    return [value.resolved() for value in values if not isinstance(value.resolved(), Constant)]


def _add_line(region: _OutlinedRegion, line: Line) -> None:
    counter = _INDEX.match(line.form)
    if counter:
        region.counters.add(counter[1])
    for word in _PARAMETERS.findall(line.form):
        if word not in region.counters:
            region.free_names[word] = None
    for value in _variables(line.arguments):
        region.reads[value] += 1
        region.first_write.setdefault(value, None)
    for value in _variables(line.targets):
        region.writes[value] += 1
        region.first_write.setdefault(value, line.block)


def _add_call(region: _OutlinedRegion, inner: _OutlinedRegion) -> None:
    for word in inner.free_names:
        if word not in region.counters:
            region.free_names[word] = None
    for value in inner.inputs:
        if not _contains(region.first_write.get(value), inner.block):
            region.unset[value] = None
        region.first_write.setdefault(value, None)
    for value in inner.outputs:
        region.first_write.setdefault(value, inner.block)
    for value in inner.first_write:
        if inner.reads[value]:
            region.reads[value] += inner.reads[value]
        if inner.writes[value]:
            region.writes[value] += inner.writes[value]


def _contains(outer: Block | None, block: Block | None) -> bool:
    """True if a block is another, or in it."""
    while outer is not None and block is not None and block.depth >= outer.depth:
        if block is outer:
            return True
        block = block.parent
    return False


class _RegionFunction(Program):
    """The function of a region. `origins` are the numbers of its lines in the whole program."""

    def __init__(self, region: _OutlinedRegion, name: str) -> None:
        super().__init__("", name)
        self.region = region
        self.origins: list[int] = []
        self.local: dict[Value, Value] = {}

    def variable_of(self, value: Value) -> Value:
        """The local variable for a variable of the whole program."""
        value = value.resolved()
        if isinstance(value, Constant):
            return value
        local = self.local.get(value)
        if local is None:
            local = self.local[value] = self.variable(scalar=value.scalar)
        return local

    def source(self, *, drops_values: bool = True) -> tuple[str, list[int]]:
        """The source of the function."""
        for value, local in self.local.items():
            local.name = value.name
        if self.region.parent is not None:
            names = [value.name for value in self.region.inputs]
            self.parameters = ", ".join([*self.region.free_names, *names])
        text, owners = super().source(drops_values=drops_values)
        return text, [self.origins[owner] if owner >= 0 else -1 for owner in owners]


class _RegionWriter:
    """Copies the lines of a region into its function."""

    def __init__(
        self, program: Program, region: _OutlinedRegion, names: dict[_OutlinedRegion, str]
    ) -> None:
        self.lines = program.lines
        self.names = names
        self.region = region
        self.result = _RegionFunction(region, names[region])
        self.result.parameters = program.parameters
        self.open = [region.top]
        self.copies = {region.top: self.result.block}
        self.followed: dict[Block, Block] = {}

    def function(self) -> _RegionFunction:
        """The function with all its lines."""
        region, result = self.region, self.result
        for value in region.unset:
            result.add("None", (), [result.variable_of(value)])
            result.origins.append(-1)
        for entry in region.entries:
            if isinstance(entry, _OutlinedRegion):
                self._call(entry)
            else:
                self._copy(entry)
        self._close_until(region.top)
        if region.parent is not None:
            fields = ", ".join(["{}"] * len(region.outputs)) + "," * (len(region.outputs) == 1)
            result.add(f"return ({fields})", [result.variable_of(v) for v in region.outputs])
            self._number(-1)
        result.block.end = len(result.lines) - 1
        return result

    def _number(self, line: int) -> None:
        """Note where the lines that were added last come from."""
        origins = self.result.origins
        origins += [line] * (len(self.result.lines) - len(origins))

    def _close_until(self, block: Block) -> None:
        while self.open[-1] is not block:
            self.open.pop()
            self.result.close()
        self._number(-1)

    def _copy(self, number: int) -> None:
        line, result = self.lines[number], self.result
        self._close_until(line.block)
        arguments = [result.variable_of(value) for value in line.arguments]
        result.hoisted = line.hoisted
        if line.opens is None:
            targets = [result.variable_of(value) for value in line.targets]
            result.add(line.form, arguments, targets, line.plan)
        else:
            first = self.followed.get(line.opens)
            if first is not None:
                result.open_else(first)
            else:
                result.open(line.form, arguments, loop=line.opens.loop)
            result.lines[-1].plan = line.plan
            self.copies[line.opens] = result.block
            self.open.append(line.opens)
            if line.opens.else_block is not None:
                self.followed[line.opens.else_block] = result.block
        self._number(number)

    def _call(self, inner: _OutlinedRegion) -> None:
        result = self.result
        self._close_until(inner.block)
        arguments = [result.variable_of(value) for value in inner.inputs]
        fields = ", ".join([*inner.free_names, *("{}" for _ in inner.inputs)])
        targets = [result.variable_of(value) for value in inner.outputs]
        result.hoisted = 0
        result.add(f"{self.names[inner]}({fields})", arguments, targets)
        if len(targets) == 1:
            result.lines[-1].form += "[0]"
        self._number(-1)
