"""Python source of a run for readers: a file that computes the same values by itself.

The code is that of the compiled engine, without limits, with names derived from those of nodes:

    def compute(step, n):
        i = zero
        while True:
            less = i < n  # while/Less (Less)
            if not test(less):  # while/Switch (Switch)
                break
            i = i + one  # while/add (AddV2)
        return (i,)

Each initializer is a function of its own. Text of the graph enters the source as the `repr` of a
string, in an escaped comment, or as a name of `Identifiers`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

from cfgraph.analysis.feeds_and_fetches import declared_type
from cfgraph.analysis.resource_handles import HANDLE_TYPES, variable_of_handle
from cfgraph.integrations.python_export.definitions import (
    NUMERALS,
    FileDefinitions,
    is_kernel,
    node_comment,
    numeral,
)
from cfgraph.integrations.python_export.identifiers import Identifiers, snake_case
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.role import EXIT, MERGE, Role
from cfgraph.runtime.compiled.engine import generate_run
from cfgraph.runtime.compiled.node_writer import FUNCTIONS, CodeStyle
from cfgraph.runtime.engine.plan import NodePlan, Plan, RunSpec
from cfgraph.runtime.program import Constant, Value
from cfgraph.version import __version__

# a run, and its plans per device
PreparedRun = tuple[RunSpec, Sequence[Plan]]
_READABLE: Final = CodeStyle(
    checks_limits=False,
    unpacks_feeds=False,
    loop="for i{} in iterations():",
    exit_test="if not test({0}):",
    branch_test="test({0})",
)
# the names that the file defines or imports, other than those of `FUNCTIONS`
_NAMES: Final = ("Script", "compute", "iterations", "kernel", "main", "np", "raw", "run", "script")
_MORE_NAMES: Final = ("annotations", "evaluated", "stateful", "step", "strings")
_COUNTED: Final = re.compile(r"( *)for (i\d+) in iterations\(\):")
_WORD: Final = re.compile(r"\w+")
_REGION: Final = re.compile(r"\b(_region\d+)\b")
_VERSION: Final = re.compile(r"_?v\d+\Z")


@dataclass(slots=True)
class PythonSource:
    """The text of a Python file, the arrays of the file next to it by key, and the initializers."""

    text: str
    arrays: dict[str, Any] = field(default_factory=dict)
    initializers: tuple[str, ...] = ()


def decompile(
    spec: RunSpec,
    plans: Sequence[Plan],
    *,
    initializers: Mapping[str, PreparedRun] | None = None,
    defaults: Mapping[str, Any] | None = None,
    labels: Mapping[str, str] | None = None,
    allow_dead: bool = False,
) -> PythonSource:
    """The Python source of a run, and of the runs of `initializers`. Raises NotCompiled.

    `defaults` are values of fed tensors, and `labels` the names that a signature gives to tensors,
    both by name.
    """
    initializers = initializers or {}
    names = Identifiers([*FUNCTIONS, *_NAMES])
    functions = {name: names.unique(f"compute_{name}") for name in initializers}
    file = _PythonFile(labels or {}, defaults or {}, functions.values())
    function = _RunFunction(file, spec, plans)
    others = [
        (name, _RunFunction(file, *prepared, functions[name]))
        for name, prepared in initializers.items()
    ]
    text = file.text(function, others, allow_dead)
    return PythonSource(text, file.definitions.arrays, tuple(initializers))


class _PythonFile:
    """The text of a file: definitions, parameters, and imports of its functions."""

    def __init__(
        self, labels: Mapping[str, str], defaults: Mapping[str, Any], functions: Iterable[str]
    ) -> None:
        self.labels, self.defaults = labels, defaults
        self.functions = frozenset(functions)
        self.definitions = FileDefinitions()
        # the parameters of fed tensors, and their default values
        self.parameters: dict[str, str] = {}
        self.default_names: dict[str, str] = {}
        self.feed_lines: list[str] = []

    def identifiers(self) -> Identifiers:
        """The names that are free for another function and what it defines."""
        used = (self.functions, self.parameters.values(), self.definitions.names)
        return Identifiers([*FUNCTIONS, *_NAMES, *_MORE_NAMES, *chain(*used)])

    def parameter(self, spec: RunSpec, output: Output, identifiers: Identifiers) -> str:
        """The parameter of a fed tensor."""
        name = self.parameters.get(output.name)
        if name is not None:
            return name
        name = identifiers.unique(self.labels.get(output.name) or _last_part(output.node.name))
        self.parameters[output.name] = name
        feed = f"({output.name!a}, {self._feed(spec, output)!a}{self._label(output)})"
        self.feed_lines.append(f"{name!a}: {feed},  # {node_comment(output.node)}")
        return name

    def signature(self, spec: RunSpec, identifiers: Identifiers) -> str:
        """The parameters of a function with their defaults."""
        texts = []
        for output in spec.feeds:
            name = self.parameters[output.name]
            if output.name in self.defaults:
                if output.name not in self.default_names:
                    default = identifiers.unique(f"{name}_default")
                    self.definitions.add_default(default, self.defaults[output.name])
                    self.default_names[output.name] = default
                name = f"{name}={self.default_names[output.name]}"
            texts.append(name)
        return ", ".join(sorted(texts, key=lambda text: "=" in text))

    def text(
        self, function: _RunFunction, others: Sequence[tuple[str, _RunFunction]], allow_dead: bool
    ) -> str:
        """The text of the file."""
        constants, kernels = self.definitions.constant_lines(), self.definitions.kernel_lines()
        body = [line for each in (function, *(other for _, other in others)) for line in each.body]
        used = {word for line in body for word in _WORD.findall(line.partition("#")[0])}
        text = "\n".join([*constants, *kernels])
        imported = ["Script", *(name for name in FUNCTIONS if name in used)]
        imported += [
            name for name in ("kernel", "raw", "stateful", "strings") if f"{name}(" in text
        ]
        imported += ["evaluated"] * ("evaluated" in used)
        imported += ["iterations"] * any("in iterations():" in line for line in body)
        needs_numpy = "np" in used or "np." in text
        arguments = "".join(f", {name}" for name in function.parameters)
        lines = [
            f"# Written by `cfgraph convert --to py`, version {__version__}.",
            *(["import numpy as np", ""] if needs_numpy else []),
            f"from cfgraph.integrations.python_export.script import {', '.join(sorted(imported))}",
            "",
            *self._script(function.spec, allow_dead=allow_dead),
            *(["", *constants] if constants else []),
            *(["", *kernels] if kernels else []),
            "",
            "",
            f"def compute(step{arguments}):",
            *function.body,
            "",
            "",
            f"def run({function.signature}):",
            f"    return script.run(compute{arguments})",
        ]
        for name, other in others:
            signature = f", {other.signature}" if other.signature else ""
            lines += ["", "", f"@script.initializer({name!a})"]
            lines += [f"def {other.name}(step{signature}):", *other.body]
        lines += ["", "", 'if __name__ == "__main__":', "    from cfgraph.script import main", ""]
        return "\n".join([*lines, "    main(script, run)", ""])

    def _script(self, spec: RunSpec, *, allow_dead: bool) -> Iterator[str]:
        yield "script = Script("
        yield "    __file__,"
        fetches = [
            f"({output.name!a}, {str(output.dtype) if output.dtype else None!a}"
            f"{self._label(output)}),"
            for output in spec.fetches
        ]
        yield from _listed("feeds={", self.feed_lines, "},")
        yield from _listed("fetches=[", fetches, "],")
        if allow_dead:
            yield "    allow_dead=True,"
        yield ")"

    def _label(self, output: Output) -> str:
        label = self.labels.get(output.name)
        return "" if label is None else f", {label!a}"

    def _feed(self, spec: RunSpec, output: Output) -> str:
        """The node of a fed tensor in the text format."""
        node, op = output.node, "Placeholder"
        dtype, shape = declared_type(spec.graph, output)
        if dtype is None:
            return "UnknownInput()"
        attrs: dict[str, Any] = {"dtype": dtype, "shape": shape}
        if dtype.is_handle and not node.inputs and output.port == 0:
            op = node.op
            attrs = {key: value for key, value in node.attrs.items() if not key.startswith("_")}
        if dtype.kind == "resource":
            held, _ = variable_of_handle(spec.graph, output)
            attrs |= {HANDLE_TYPES: (held,)} if held not in (None, attrs.get("dtype")) else {}
        return f"{op}() {self.definitions.printer.attrs_text(attrs)}"


class _RunFunction:
    """A function that computes a run; names and definitions are added to the file."""

    def __init__(
        self, file: _PythonFile, spec: RunSpec, plans: Sequence[Plan], name: str = "compute"
    ) -> None:
        self.spec, self.name = spec, name
        self.generator = generate_run(spec, plans, _READABLE)
        self.plan = self.generator.plan
        self.program = self.generator.program
        self.named: set[Value] = set()
        identifiers = self.identifiers = file.identifiers()
        self.parameters = [file.parameter(spec, output, identifiers) for output in spec.feeds]
        self._name_feeds()
        file.definitions.add_kernels(self.program, self.plan, identifiers)
        self._name_variables()
        file.definitions.add_constants(self.program)
        self.signature = file.signature(spec, identifiers)
        self.body = list(_without_needless_passes(self._body()))

    # -- names -----------------------------------------------------------------------------------

    def _name_feeds(self) -> None:
        for index, name in enumerate(self.parameters):
            value = self.generator.writer.values.get(self.plan.feeds[index])
            if value is not None and value.resolved() not in self.named:
                self._name(value.resolved(), name)

    def _name(self, value: Value, name: str) -> None:
        value.name = name
        self.named.add(value)

    def _name_variables(self) -> None:
        """Name the variables in the order of the lines that assign them."""
        chosen: dict[Value, tuple[int, str]] = {}
        for output, value in self.generator.writer.values.items():
            variable = value.resolved()
            candidate = _name_score(output.node, self.plan)
            if variable not in chosen or candidate[0] < chosen[variable][0]:
                chosen[variable] = candidate
        for variable, (score, _) in list(chosen.items()):
            number = numeral(variable.content) if isinstance(variable, Constant) else None
            if number is not None and (score or number in NUMERALS.values()):
                chosen[variable] = (0, number)
        for test, value in self.generator.writer.tests.items():
            if test.branches:
                name = f"is_{_last_part(test.source.node.name)}"
                chosen.setdefault(value.resolved(), (0, name))
        for line in self.program.lines:
            for value in (*line.targets, *line.arguments):
                variable = value.resolved()
                if variable in self.named or is_kernel(variable):
                    continue
                fallback = line.plan.node.name if line.plan else "value"
                name = chosen[variable][1] if variable in chosen else _last_part(fallback)
                self._name(variable, self.identifiers.unique(name))

    # -- text ------------------------------------------------------------------------------------

    def _body(self) -> Iterator[str]:
        """The lines of the function, with comments."""
        printed, owners = self.program.source(drops_values=False)
        if self.name != "compute":
            printed = _REGION.sub(rf"_{self.name}\1", printed)
        lines = printed.splitlines()[1:]
        uses = Counter(word for line in lines for word in _WORD.findall(line))
        for text, owner in zip(lines, owners[1:], strict=True):
            if text.startswith("def "):
                yield from ("", "")
            counted, comment = _COUNTED.fullmatch(text), _comment(self.program.lines[owner].plan)
            if counted and uses[counted[2]] == 1:
                yield f"{counted[1]}while True:{comment}"
            else:
                yield text + comment


def _comment(plan: NodePlan | None) -> str:
    return f"  # {node_comment(plan.node)}" if plan else ""


def _listed(start: str, items: Sequence[str], end: str) -> Iterator[str]:
    if not items:
        yield f"    {start}{end}"
        return
    yield f"    {start}"
    for item in items:
        yield f"        {item}"
    yield f"    {end}"


def _last_part(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2]


def _name_score(node: Node, plan: Plan) -> tuple[int, str]:
    """A name for the value of a node, and how little it says about the value."""
    known = plan.nodes.get(node)
    name = _last_part(node.name)
    op = _VERSION.sub("", snake_case(node.op))
    generic = snake_case(name).startswith(op) or len(name) == 1
    role: Role | None = known.op.role if known else None
    if role is None:
        return (2 if generic else 0), name
    return (4 if generic else 1) + (role not in (MERGE, EXIT)), name


def _without_needless_passes(lines: Iterable[str]) -> Iterator[str]:
    """Drop each `pass` that is not the only line of its block."""
    lines = list(lines)
    depths = [len(line) - len(line.lstrip(" ")) for line in lines]
    opened = 0
    for index, line in enumerate(lines):
        if line.lstrip().partition("  #")[0] != "pass":
            opened = depths[index] + 4 if line.partition("  #")[0].endswith(":") else 0
            yield line
            continue
        following = depths[index + 1] if index + 1 < len(lines) else 0
        if depths[index] == opened and following < depths[index]:
            opened = 0
            yield line.partition("  #")[0]
