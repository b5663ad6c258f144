"""Constants and kernels of a Python file, which its functions share:

one = np.int32(1)  # while/add/y (Const)

concat_v2 = kernel('ConcatV2', 'float32', 'float32', 'int32')
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from cfgraph.errors import CfgraphError
from cfgraph.integrations.python_export.identifiers import Identifiers
from cfgraph.integrations.python_export.script import kernel_node
from cfgraph.ir.attrs import repeated_element
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node
from cfgraph.ir.text.printer import AttrPrinter
from cfgraph.ops.opdef.random_streams import stream_annotations
from cfgraph.runtime.compiled.node_writer import frame_names, is_located
from cfgraph.runtime.compiled.value_expressions import value_expression
from cfgraph.runtime.engine.joint_products import evaluated
from cfgraph.runtime.engine.plan import NodePlan, Plan
from cfgraph.runtime.program import Constant, NotCompiled, Program, Value

# bytes of a constant that is part of the source
MAX_INLINE: Final = 1024
# of small constants whose nodes have no names of their own
NUMERALS: Final = {-1: "minus_one", 0: "zero", 1: "one", 2: "two", 3: "three"}


class FileDefinitions:
    """The lines that define constants and kernels; `arrays` are in the file next to the source."""

    def __init__(self) -> None:
        self.arrays: dict[str, Any] = {}
        self.printer = AttrPrinter()
        self._kernels: dict[str, str] = {}
        self._numbers: dict[str, str] = {}
        self._comments: dict[str, dict[str, None]] = {}
        self._names: set[str] = set()

    @property
    def names(self) -> frozenset[str]:
        """The names that are defined."""
        return frozenset(self._names)

    def constant_lines(self) -> list[str]:
        """The lines that define the constants."""
        return [
            f"{line}  # {', '.join(nodes)}" if nodes else line
            for line, nodes in self._comments.items()
        ]

    def kernel_lines(self) -> list[str]:
        """The lines that define the kernels."""
        return [f"{name} = {text}" for text, name in self._kernels.items() if name != text]

    def add_kernels(self, program: Program, plan: Plan, identifiers: Identifiers) -> None:
        """Define and name the kernels that a program uses; equal ones have one name."""
        for value in filter(is_kernel, _used_constants(program)):
            text = self._kernel(value, plan)
            if text not in self._kernels:
                assert value.plan is not None
                is_imported = text.startswith("np.") or text == "evaluated"
                name = text if is_imported else identifiers.unique(value.plan.node.op)
                self._kernels[text] = name
                self._names.add(name)
            value.name = self._kernels[text]

    def add_constants(self, program: Program) -> None:
        """Define the constants that a program uses, which have names; equal numbers share one."""
        for value in _used_constants(program):
            if is_kernel(value):
                continue
            text = self._value(value.content, value.name)
            if text is None:
                if value.plan is None:
                    raise NotCompiled("a constant has no Python form")
                text = f"{self._described(value.plan, 'kernel')}()"
            elif numeral(value.content) is not None:
                value.name = self._numbers.setdefault(text, value.name)
            self._names.add(value.name)
            comments = self._comments.setdefault(f"{value.name} = {text}", {})
            if value.plan:
                comments[node_comment(value.plan.node)] = None

    def add_default(self, name: str, value: Any) -> None:
        """Define the default of a parameter."""
        self._names.add(name)
        self._comments[f"{name} = {self._value(value, name)}"] = {}

    def _value(self, content: Any, name: str) -> str | None:
        """The expression of a value; a large one is in the file of arrays under a name."""
        is_array = isinstance(content, np.ndarray) and content.dtype != object
        if is_array and content.nbytes > MAX_INLINE and repeated_element(content) is None:
            if content.dtype.kind in "biufc":
                self.arrays[name] = content
                return f"script.array({name!a})"
            self.arrays[name] = content.view(np.dtype(f"u{content.dtype.itemsize}"))
            return f"script.array({name!a}, {DType.from_numpy(content.dtype).name!a})"
        return value_expression(content)

    def _kernel(self, value: Constant, plan: Plan) -> str:
        """The expression of a kernel."""
        known, content = value.plan, value.content
        assert known is not None
        if known.op.calls.kind:
            raise NotCompiled("the run calls a function", known.node)
        if not known.op.effects.stateful:
            name = getattr(content, "__name__", "")
            if isinstance(content, np.ufunc) and getattr(np, name, None) is content:
                return f"np.{name}"
            if content is evaluated:
                return "evaluated"
            return self._described(known, "kernel")
        frame = plan.frames.of[known.node]
        names = frame_names(frame) if is_located(known.op) else ()
        loops = f", loops={names!a}" if names else ""
        more = f", name={known.node.name!a}{loops}"
        if streams := stream_annotations(known.node):
            more += f", streams={self.printer.attrs_text(streams)!a}"
        return self._described(known, "stateful", more)

    def _described(self, known: NodePlan, function: str, more: str = "") -> str:
        node = known.node
        dtypes = [None if x.dtype is None else str(x.dtype) for x in node.inputs]
        attrs = {key: value for key, value in node.attrs.items() if not key.startswith("_")}
        short = self._necessary(known, dtypes, attrs)
        texts = [ascii(item) for item in (node.op, *dtypes)]
        if short:
            texts.append(f"attrs={self.printer.attrs_text(short)!a}")
        if known.wrapper is not None:
            texts.append(f"wrapper={known.wrapper.__name__!a}")
        return f"{function}({', '.join(texts)}{more})"

    def _necessary(
        self, known: NodePlan, dtypes: Sequence[str | None], attrs: dict[str, Any]
    ) -> dict[str, Any]:
        """The attributes without those that the inputs determine."""
        parsed = known.op.parsed()
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
        again = kernel_node(known.node.op, dtypes, self.printer.attrs_text(short))
        try:
            same = all(again.attr(key) == value for key, value in attrs.items())
        except CfgraphError:
            same = False
        return short if same else attrs


def _used_constants(program: Program) -> Iterator[Constant]:
    """The constants that the code uses, each once, in the order of their use."""
    seen: set[Value] = set()
    for line in program.lines:
        for value in line.arguments:
            if isinstance(value, Constant) and value not in seen:
                seen.add(value)
                yield value


def is_kernel(value: Value) -> bool:
    """True for a constant that is a kernel."""
    return isinstance(value, Constant) and callable(value.content)


def numeral(value: Any) -> str | None:
    """The English name of a small number."""
    if not isinstance(value, np.generic) or value.dtype.kind not in "iuf":
        return None
    if value in NUMERALS:
        return NUMERALS[int(value)]
    return f"const_{value}".replace("-", "minus_") if value.dtype.kind in "iu" else None


def node_comment(node: Node) -> str:
    """The name of a node, escaped, and its op, in the comment of the line that computes it."""
    return f"{_escaped(node.name)} ({_escaped(node.op)})"


def _escaped(text: str) -> str:
    return ascii(text)[1:-1]
