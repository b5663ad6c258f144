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

Text of the graph enters the source as the `repr` of a string, in an escaped comment, or as a name
of `Identifiers`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from cfgraph import __version__
from cfgraph.analysis.feeds_and_fetches import declared_type
from cfgraph.analysis.resource_handles import HANDLE_TYPES, variable_of_handle
from cfgraph.errors import CfgraphError
from cfgraph.ir.attrs import repeated_element
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.role import EXIT, MERGE, Role
from cfgraph.ir.text.printer import AttrPrinter
from cfgraph.ops.opdef.deferred_products import evaluated
from cfgraph.runtime.compiled.engine import generate_run
from cfgraph.runtime.compiled.literals import Identifiers, literal, snake_case
from cfgraph.runtime.compiled.node_writer import FUNCTIONS, CodeStyle, frame_names, is_located
from cfgraph.runtime.compiled.program import Constant, NotCompiled, Value
from cfgraph.runtime.compiled.script import kernel_node
from cfgraph.runtime.engine.plan import NodePlan, Plan, RunSpec

# bytes of a constant that is part of the source
MAX_INLINE: Final = 1024
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
_VERSION: Final = re.compile(r"_?v\d+\Z")
# of small constants whose nodes have no names of their own
_NUMERALS: Final = {-1: "minus_one", 0: "zero", 1: "one", 2: "two", 3: "three"}


@dataclass(slots=True)
class PythonSource:
    """The text of a Python file, and the arrays of the file next to it, by key."""

    text: str
    arrays: dict[str, Any] = field(default_factory=dict)


def decompile(
    spec: RunSpec,
    plans: Sequence[Plan],
    *,
    defaults: Mapping[str, Any] | None = None,
    labels: Mapping[str, str] | None = None,
    allow_dead: bool = False,
) -> PythonSource:
    """The Python source of a run. Raises NotCompiled with a reason.

    `defaults` are values of fed tensors, and `labels` the names that a signature gives to tensors,
    both by name.
    """
    return _Decompiler(spec, plans, labels or {}).source(defaults or {}, allow_dead=allow_dead)


class _Decompiler:
    def __init__(self, spec: RunSpec, plans: Sequence[Plan], labels: Mapping[str, str]) -> None:
        self.spec, self.labels = spec, labels
        self.generator = generate_run(spec, plans, _READABLE)
        self.plan = self.generator.plan
        self.program = self.generator.program
        self.identifiers = Identifiers([*FUNCTIONS, *_NAMES, *_MORE_NAMES])
        self.printer = AttrPrinter()
        self.arrays: dict[str, Any] = {}
        self.named: set[Value] = set()

    def source(self, defaults: Mapping[str, Any], *, allow_dead: bool) -> PythonSource:
        """The text of the file, and its arrays."""
        parameters = self._name_feeds()
        kernels = self._kernel_lines()
        self._name_variables()
        constants = self._constant_lines()
        signature = []
        for output, name in zip(self.spec.feeds, parameters, strict=True):
            if output.name in defaults:
                default = self.identifiers.unique(f"{name}_default")
                constants.append(f"{default} = {self._value(defaults[output.name], default)}")
                signature.append(f"{name}={default}")
            else:
                signature.append(name)
        signature.sort(key=lambda text: "=" in text)
        body = list(_without_needless_passes(self._body()))
        used = {word for line in body for word in _WORD.findall(line.partition("#")[0])}
        functions = sorted(name for name in FUNCTIONS if name in used)
        imported = ["Script", *functions]
        text = "\n".join([*constants, *kernels])
        imported += [
            name for name in ("kernel", "raw", "stateful", "strings") if f"{name}(" in text
        ]
        arguments = "".join(f", {name}" for name in parameters)
        imported += ["evaluated"] * ("evaluated" in used)
        imported += ["iterations"] * any("in iterations():" in line for line in body)
        needs_numpy = "np" in used or "np." in text
        lines = [
            f"# Written by `cfgraph convert --to py`, version {__version__}.",
            *(["import numpy as np", ""] if needs_numpy else []),
            f"from cfgraph.runtime.compiled.script import {', '.join(sorted(imported))}",
            "",
            *self._script(parameters, allow_dead=allow_dead),
            *(["", *constants] if constants else []),
            *(["", *kernels] if kernels else []),
            "",
            "",
            f"def compute(step{arguments}):",
            *body,
            "",
            "",
            f"def run({', '.join(signature)}):",
            f"    return script.run(compute{arguments})",
            "",
            "",
            'if __name__ == "__main__":',
            "    from cfgraph.script import main",
            "",
            "    main(script, run)",
            "",
        ]
        return PythonSource("\n".join(lines), self.arrays)

    # -- names -----------------------------------------------------------------------------------

    def _name_feeds(self) -> list[str]:
        parameters = []
        for index in range(len(self.spec.feeds)):
            output = self.plan.feeds[index]
            label = self.labels.get(self.spec.feeds[index].name)
            name = self.identifiers.unique(label or _last_part(output.node.name))
            parameters.append(name)
            value = self.generator.code.values.get(output)
            if value is not None and value.resolved() not in self.named:
                self._name(value.resolved(), name)
        return parameters

    def _name(self, value: Value, name: str) -> None:
        value.name = name
        self.named.add(value)

    def _name_variables(self) -> None:
        """Name the variables in the order of the lines that assign them."""
        chosen: dict[Value, tuple[int, str]] = {}
        for output, value in self.generator.code.values.items():
            variable = value.resolved()
            candidate = _name_score(output.node, self.plan)
            if variable not in chosen or candidate[0] < chosen[variable][0]:
                chosen[variable] = candidate
        for variable, (score, _) in list(chosen.items()):
            number = _numeral(variable.content) if isinstance(variable, Constant) else None
            if number is not None and (score or number in _NUMERALS.values()):
                chosen[variable] = (0, number)
        for info in self.generator.classified.info.values():
            for test in info.tests.values():
                if test.value is not None and test.predicate is not None:
                    name = f"is_{_last_part(test.predicate.node.name)}"
                    chosen.setdefault(test.value.resolved(), (0, name))
        for line in self.program.lines:
            for value in (*line.targets, *line.arguments):
                variable = value.resolved()
                if variable in self.named or _is_kernel(variable):
                    continue
                fallback = line.plan.node.name if line.plan else "value"
                name = chosen[variable][1] if variable in chosen else _last_part(fallback)
                self._name(variable, self.identifiers.unique(name))

    # -- definitions -----------------------------------------------------------------------------

    def _used_constants(self) -> Iterator[Constant]:
        """The constants that the code uses, each once, in the order of their use."""
        seen: set[Value] = set()
        for line in self.program.lines:
            for value in line.arguments:
                if isinstance(value, Constant) and value not in seen:
                    seen.add(value)
                    yield value

    def _kernel_lines(self) -> list[str]:
        """The lines that define the kernels; equal ones have one name."""
        names: dict[str, str] = {}
        for value in filter(_is_kernel, self._used_constants()):
            text = self._kernel(value)
            if text not in names:
                assert value.plan is not None
                is_imported = text.startswith("np.") or text == "evaluated"
                names[text] = text if is_imported else self.identifiers.unique(value.plan.node.op)
            value.name = names[text]
        return [f"{name} = {text}" for text, name in names.items() if name != text]

    def _constant_lines(self) -> list[str]:
        """The lines that define the constants; equal numbers have one name."""
        texts: dict[str, str] = {}
        comments: dict[str, list[str]] = {}
        for value in self._used_constants():
            if _is_kernel(value):
                continue
            text = self._value(value.content, value.name)
            if text is None:
                if value.plan is None:
                    raise NotCompiled("a constant has no Python form")
                text = f"{self._described(value.plan, 'kernel')}()"
            elif _numeral(value.content) is not None:
                value.name = texts.setdefault(text, value.name)
            texts[text] = value.name
            comments.setdefault(f"{value.name} = {text}", []).extend(
                [node_comment(value.plan.node)] if value.plan else []
            )
        return [
            f"{line}  # {', '.join(nodes)}" if nodes else line for line, nodes in comments.items()
        ]

    def _value(self, content: Any, name: str) -> str | None:
        """The expression of a value; a large one is in the file of arrays under a name."""
        is_array = isinstance(content, np.ndarray) and content.dtype != object
        if is_array and content.nbytes > MAX_INLINE and repeated_element(content) is None:
            if content.dtype.kind in "biufc":
                self.arrays[name] = content
                return f"script.array({name!a})"
            self.arrays[name] = content.view(np.dtype(f"u{content.dtype.itemsize}"))
            return f"script.array({name!a}, {DType.from_numpy(content.dtype).name!a})"
        return literal(content)

    def _kernel(self, value: Constant) -> str:
        """The expression of a kernel."""
        plan, content = value.plan, value.content
        assert plan is not None
        if plan.op.calls.kind:
            raise NotCompiled("the run calls a function", plan.node)
        if not plan.op.effects.stateful:
            name = getattr(content, "__name__", "")
            if isinstance(content, np.ufunc) and getattr(np, name, None) is content:
                return f"np.{name}"
            if content is evaluated:
                return "evaluated"
            return self._described(plan, "kernel")
        frame = self.plan.frames.of[plan.node]
        names = frame_names(frame) if is_located(plan.op) else ()
        loops = f", loops={names!a}" if names else ""
        return self._described(plan, "stateful", f", name={plan.node.name!a}{loops}")

    def _described(self, plan: NodePlan, function: str, more: str = "") -> str:
        node = plan.node
        dtypes = [None if x.dtype is None else str(x.dtype) for x in node.inputs]
        attrs = {key: value for key, value in node.attrs.items() if not key.startswith("_")}
        short = self._necessary(node, dtypes, attrs)
        texts = [ascii(item) for item in (node.op, *dtypes)]
        if short:
            texts.append(f"attrs={self.printer.attrs_text(short)!a}")
        if plan.wrapper is not None:
            texts.append(f"wrapper={plan.wrapper.__name__!a}")
        return f"{function}({', '.join(texts)}{more})"

    def _necessary(
        self, node: Node, dtypes: Sequence[str | None], attrs: dict[str, Any]
    ) -> dict[str, Any]:
        """The attributes without those that the inputs determine."""
        parsed = self.plan.nodes[node].op.parsed()
        derived = {key for arg in parsed.inputs for key in (arg.type_attr, arg.count) if key}
        short = {
            key: value
            for key, value in attrs.items()
            if key not in derived
            and not (
                key in parsed.attrs
                and parsed.attrs[key].has_default
                and parsed.attrs[key].default == value
            )
        }
        again = kernel_node(node.op, dtypes, self.printer.attrs_text(short))
        try:
            same = all(again.attr(key) == value for key, value in attrs.items())
        except CfgraphError:
            same = False
        return short if same else attrs

    # -- text ------------------------------------------------------------------------------------

    def _script(self, parameters: Sequence[str], *, allow_dead: bool) -> Iterator[str]:
        yield "script = Script("
        yield "    __file__,"
        feeds = [
            f"{name!a}: ({output.name!a}, {self._feed(output)!a}{self._label(output)}),"
            f"  # {node_comment(output.node)}"
            for name, output in zip(parameters, self.spec.feeds, strict=True)
        ]
        yield from _listed("feeds={", feeds, "},")
        fetches = [
            f"({output.name!a}, {str(output.dtype) if output.dtype else None!a}"
            f"{self._label(output)}),"
            for output in self.spec.fetches
        ]
        yield from _listed("fetches=[", fetches, "],")
        if allow_dead:
            yield "    allow_dead=True,"
        yield ")"

    def _label(self, output: Output) -> str:
        label = self.labels.get(output.name)
        return "" if label is None else f", {label!a}"

    def _feed(self, output: Output) -> str:
        """The node of a fed tensor in the text format."""
        node, op = output.node, "Placeholder"
        dtype, shape = declared_type(self.spec.graph, output)
        if dtype is None:
            return "UnknownInput()"
        attrs: dict[str, Any] = {"dtype": dtype, "shape": shape}
        if dtype.is_handle and not node.inputs and output.port == 0:
            op = node.op
            attrs = {key: value for key, value in node.attrs.items() if not key.startswith("_")}
        if dtype.kind == "resource":
            held, _ = variable_of_handle(self.spec.graph, output)
            attrs |= {HANDLE_TYPES: (held,)} if held not in (None, attrs.get("dtype")) else {}
        return f"{op}() {self.printer.attrs_text(attrs)}"

    def _body(self) -> Iterator[str]:
        """The lines of the function, with comments."""
        printed, owners = self.program.source(drops_values=False)
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


def _is_kernel(value: Value) -> bool:
    return isinstance(value, Constant) and callable(value.content)


def _comment(plan: NodePlan | None) -> str:
    return f"  # {node_comment(plan.node)}" if plan else ""


def node_comment(node: Node) -> str:
    """The name of a node, escaped, and its op, in the comment of the line that computes it."""
    return f"{_escaped(node.name)} ({_escaped(node.op)})"


def _escaped(text: str) -> str:
    return ascii(text)[1:-1]


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


def _numeral(value: Any) -> str | None:
    """The English name of a small number."""
    if not isinstance(value, np.generic) or value.dtype.kind not in "iuf":
        return None
    if value in _NUMERALS:
        return _NUMERALS[int(value)]
    return f"const_{value}".replace("-", "minus_") if value.dtype.kind in "iu" else None


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
