"""Support for Python files that `cfgraph convert --to py` has written.

    script = Script(__file__, feeds={"n": ("n:0", "Placeholder() {dtype=int32}")}, ...)
    concat = kernel("ConcatV2", "float32", "float32", "int32")

A kernel is described by its op, the dtypes of its inputs, and its attributes in the text format.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from inspect import Parameter, signature
from itertools import count as iterations
from linecache import getline
from pathlib import Path
from typing import Any, Final

import numpy as np

import cfgraph.ops  # noqa: F401 - fills the registry
from cfgraph.analysis.feeds_and_fetches import missing_feeds_error
from cfgraph.errors import CfgraphError, InvalidInput, Unsupported, UsageError
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.names import first_names
from cfgraph.ir.node import split_tensor_name
from cfgraph.ir.text.inferred_attrs import complete_node_attrs
from cfgraph.ir.text.lexer import LineReader
from cfgraph.ir.text.parser import parse_graph
from cfgraph.ir.text.printer import format_name
from cfgraph.ir.text.values import parse_attrs
from cfgraph.ops.opdef.op import Kernel, Op, lookup, numpy_kernel
from cfgraph.ops.opdef.resources import Resource
from cfgraph.runtime.compiled.code_position import arguments_in_line, operand_names
from cfgraph.runtime.compiled.node_writer import FUNCTIONS, stateful_kernel
from cfgraph.runtime.compiled.value_expressions import raw, strings
from cfgraph.runtime.engine.executor import located_error
from cfgraph.runtime.engine.joint_products import WRAPPERS, evaluated
from cfgraph.runtime.engine.references import dereference
from cfgraph.runtime.engine.step import RunStep, State
from cfgraph.runtime.feeds.conversion import feed_value
from cfgraph.runtime.io_policy import IoPolicy

__all__ = ["Script", "evaluated", "iterations", "kernel", "raw", "stateful", "strings"]


def __getattr__(name: str) -> Any:
    """The functions that generated code calls."""
    if name in FUNCTIONS and name.isidentifier() and not name.startswith("_"):
        return FUNCTIONS[name]
    raise AttributeError(name)


def kernel(op: str, *dtypes: str | None, attrs: str = "{}", wrapper: str | None = None) -> Kernel:
    """The kernel of a node without state; with a `wrapper`, of one that computes jointly."""
    return _bound_kernel(kernel_node(op, dtypes, attrs), wrapper)


def stateful(
    op: str,
    *dtypes: str | None,
    name: str,
    loops: tuple[str, ...] = (),
    attrs: str = "{}",
    wrapper: str | None = None,
    streams: str = "{}",
) -> Callable[..., Any]:
    """The kernel of a node with state: a function of the step and the inputs.

    One that depends on its iteration takes the iterations of the `loops` before the inputs, and has
    `streams`, annotations that say where its random numbers come from.
    """
    node = kernel_node(op, dtypes, attrs, name)
    node.attrs = {**node.attrs, **parse_attrs(LineReader(streams, 1))}
    return stateful_kernel(_bound_kernel(node, wrapper), node, _definition(op), loops)


def _bound_kernel(node: Node, wrapper: str | None) -> Kernel:
    bound = numpy_kernel(node, _definition(node.op))
    return bound if wrapper is None else WRAPPERS[wrapper](bound, node)


def _definition(op: str) -> type[Op]:
    definition = lookup(op)
    if definition is None:
        raise Unsupported(f"no kernel for {op}", code="CFG701")
    return definition


def kernel_node(op: str, dtypes: Sequence[str | None], attrs: str, name: str = "node") -> Node:
    """A node with inputs of some dtypes, in a graph of its own."""
    graph = Graph()
    inputs = []
    for index, dtype in enumerate(dtypes):
        base = f"{name}/input_{index}"
        if dtype is None:
            inputs.append(graph.create(base, "UnknownInput").output())
        else:
            attr = {"dtype": DType.from_name(dtype)}
            inputs.append(graph.create(base, "Placeholder", attrs=attr).output())
    node = graph.create(name, op, inputs, attrs=parse_attrs(LineReader(attrs, 1)))
    complete_node_attrs([node])
    return node


Compute = Callable[..., tuple[Any, ...]]
_MAX_LISTED: Final = 4
# entries of a tensor without a name in a signature
_UNNAMED: Final = 2


class Script:
    """A graph as a Python file: its inputs, its outputs, and the variables of its runs.

    `feeds` contains the names of the fed tensors and their nodes in the text format, by parameter;
    `fetches` the names and dtypes of the fetched tensors. The name that a signature gives to a
    tensor may follow. A dead fetch is an error unless `allow_dead`. `initializers` has functions by
    name of a node. `state` contains the variables, which one run leaves to the next.
    """

    def __init__(
        self,
        path: str,
        *,
        feeds: Mapping[str, tuple[str, ...]],
        fetches: Sequence[tuple[str | None, ...]],
        allow_dead: bool = False,
    ) -> None:
        self.path = path
        self.tensors = {parameter: feed[0] for parameter, feed in feeds.items()}
        self.definitions = {feed[0]: feed[1] for feed in feeds.values()}
        self.input_names = {feed[2]: feed[0] for feed in feeds.values() if len(feed) > _UNNAMED}
        self.fetches = [(str(fetch[0]), fetch[1]) for fetch in fetches]
        self.labels = {str(fetch[0]): str(fetch[2]) for fetch in fetches if len(fetch) > _UNNAMED}
        self.allow_dead = allow_dead
        self.initializers: dict[str, Compute] = {}
        self.seed = 0
        self.state = State()
        self.io = IoPolicy()
        self._runs = 0

    @cached_property
    def inputs(self) -> Graph:
        """A graph with the fed tensors."""
        lines = []
        for tensor, definition in self.definitions.items():
            base, port = split_tensor_name(tensor)
            name = format_name(base)
            if port:
                source = format_name(f"{base}/values")
                copies = ", ".join([source] * (port + 1))
                lines += [f"{source} = {definition}", f"{name} = IdentityN({copies})"]
            else:
                lines.append(f"{name} = {definition}")
        return parse_graph("\n".join(lines))

    @cached_property
    def arrays(self) -> Mapping[str, Any]:
        """The arrays in the file next to the script."""
        path = archive_path(self.path)
        try:
            with np.load(path, allow_pickle=False) as archive:
                return {key: archive[key] for key in archive.files}
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            hint = "`convert --to py` writes this file next to the Python file: keep both"
            message = f"cannot read the arrays: {reason}"
            raise InvalidInput(message, path=str(path), hint=hint) from None

    def array(self, key: str, dtype: str | None = None) -> Any:
        """An array of that file; with a `dtype`, one that the file stores as bytes."""
        array = self.arrays[key]
        return array if dtype is None else array.view(DType.from_name(dtype).numpy)

    def run(self, compute: Compute, *feeds: Any) -> list[Any]:
        """Run once; the feeds are those of the parameters of the function."""
        results = self._computed(compute, feeds)
        return [
            self._result(name, value)
            for (name, _), value in zip(self.fetches, results, strict=True)
        ]

    def initializer(self, name: str) -> Callable[[Compute], Compute]:
        """Add the function of an initializer; a decorator."""

        def add(compute: Compute) -> Compute:
            self.initializers[name] = compute
            return compute

        return add

    def initialize(self, name: str, **feeds: Any) -> None:
        """Run an initializer in its own step; `feeds` are by parameter.

        Raises UsageError for an initializer that the file does not have, and for a missing feed.
        """
        compute = self.find_initializer(name)
        parameters = [*signature(compute).parameters.values()][1:]
        required = [item.name for item in parameters if item.default is Parameter.empty]
        lacking = [self.inputs.tensor(self.tensors[x]) for x in required if x not in feeds]
        if lacking:
            raise missing_feeds_error(self.inputs, lacking, self.input_names)
        self._computed(compute, [feeds.get(item.name, item.default) for item in parameters])

    def find_initializer(self, name: str) -> Compute:
        """The function of an initializer. Raises UsageError for one that the file does not have."""
        name = name.removeprefix("^")
        if name not in self.initializers:
            known = first_names(list(self.initializers), _MAX_LISTED)
            convert = f"convert the graph with --init {shlex.quote(name)}"
            hint = f"it has {known}; to add another one, {convert}" if known else convert
            raise UsageError(f"the file has no initializer {name!r}", hint=hint)
        return self.initializers[name]

    def _computed(self, compute: Compute, feeds: Sequence[Any]) -> tuple[Any, ...]:
        """The results of a function, as the next run of the state."""
        code = compute.__code__
        values = []
        for parameter, value in zip(code.co_varnames[1 : code.co_argcount], feeds, strict=True):
            tensor = self.inputs.tensor(self.tensors[parameter])
            values.append(feed_value(self.inputs, tensor, value))
        self._runs += 1
        step = RunStep(self.state, self.seed, self.io)
        step.start_run(self._runs, time.perf_counter_ns(), None, None)
        try:
            with np.errstate(all="ignore"):
                return compute(step, *values)
        except Exception as error:
            raise self._located(error, compute) from error.__cause__

    def _located(self, error: Exception, compute: Compute) -> Exception:
        """An error with the line of the file that raised it, and the node in its comment."""
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code is not compute.__code__:
            trace = trace.tb_next
        if trace is None:
            return error
        code, _, comment = getline(self.path, trace.tb_lineno).rpartition("  # ")
        name, _, op = comment.rstrip().removesuffix(")").rpartition(" (")
        names = [operand for operand in operand_names(code) if operand != "step"]
        names = names if all(names) else []
        inputs = arguments_in_line(code, trace.tb_frame, len(names))
        located = located_error(error, Node(name, op, {}, ""), "", "", inputs, names)
        if isinstance(located, CfgraphError):
            located.path = f"{self.path}:{trace.tb_lineno}"
        return located

    def _result(self, name: str, value: Any) -> Any:
        if value is None and not self.allow_dead:
            message = f"{name} is dead: it is on a branch that was not taken"
            raise UsageError(message, code="CFG702")
        if isinstance(value, Resource):
            value = dereference(value)
        return value.copy() if isinstance(value, np.ndarray) else value


def archive_path(path: str) -> Path:
    """The file with the arrays of a script."""
    return Path(path.removesuffix(".py") + ".npz")
