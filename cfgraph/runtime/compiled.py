"""A function's body compiled by XLA through jax, for one signature."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Any, NoReturn

import numpy as np

from cfgraph.errors import CfgraphError, Unsupported
from cfgraph.ir import registry
from cfgraph.ir.function_graph import FunctionGraph
from cfgraph.ir.graph import Node
from cfgraph.ops.evaluate import Bind, StraightLine, is_known, ordered, static_nodes, traced_kernels
from cfgraph.ops.op import Kernel, Op
from cfgraph.ops.variables import Variable


def has_jax() -> bool:
    """True where the extra `xla` is installed."""
    return find_spec("jax") is not None


@cache
def jax() -> Any:
    """The module jax, made ready. Raises Unsupported where the extra is not installed."""
    first = "jax" not in sys.modules
    try:
        import jax
    except ImportError as error:
        message = f"XLA is not there: {error}"
        raise Unsupported(message, hint="install the extra: cfgraph[xla]", code="CFG710") from None
    if first:
        # a small cluster costs half as much when nobody waits for another thread
        jax.config.update("jax_cpu_enable_async_dispatch", False)
        jax.config.update("jax_platforms", "cpu")
    return jax


@contextmanager
def compiling() -> Iterator[None]:
    """Where compiled bodies are made and run: all 64 bits, on the CPU."""
    found = jax()
    with found.enable_x64(True), found.default_device(found.local_devices(backend="cpu")[0]):
        yield


class _NoStep:
    """What a kernel finds in place of the step while it is traced: nothing that it may ask."""

    def __getattr__(self, name: str) -> NoReturn:
        message = "it needs the run itself"
        raise Unsupported(message)


_NO_STEP: Any = _NoStep()


class Traceable:
    """A function's body bound to jax.numpy; `constant` are the arguments that are known by value.

    Raises Unsupported, with the node, where something in it cannot be compiled at all.
    """

    def __init__(self, function: FunctionGraph, constants: int) -> None:
        static = static_nodes(ordered(function))
        self.line = StraightLine(function, _checked(traced_kernels(jax().numpy, static)))
        self.constant = frozenset(
            place
            for place, argument in enumerate(function.arguments)
            if place < constants or argument in static
        )

    def compile(self, inputs: Sequence[Any]) -> Compiled:
        """The body for inputs of these shapes and types, and these values of constant ones."""
        return Compiled(self, inputs)

    def why_not(self, error: Exception) -> str:
        """Why the body could not be compiled, in a line."""
        node = self.line.failed(error)
        text = error.message if isinstance(error, CfgraphError) else str(error).partition("\n")[0]
        return f"{node.name}: {text}" if node else f"{type(error).__name__}: {text}"


def _checked(bind: Bind) -> Bind:
    """Refuse a stateful op unless all that it does it does to variables."""

    def bound(node: Node, op: type[Op]) -> Kernel:
        types = registry.input_types(node) or []
        if op.stateful and not any(dtype.kind == "resource" for dtype in types):
            message = f"{node.op} has effects and cannot be compiled"
            raise Unsupported(message, node=node)
        if any(dtype.kind in ("string", "variant") for dtype in types):
            message = f"{node.op} on {types[0]} cannot be compiled"
            raise Unsupported(message, node=node)
        return bind(node, op)

    return bound


class Compiled:
    """A compiled body: `run(inputs)` gives what the body gives, and assigns to variables.

    What an output is was found while the body was traced: computed, known, or an input handed on.
    """

    def __init__(self, body: Traceable, inputs: Sequence[Any]) -> None:
        self._line = body.line
        self._cells = [place for place, item in enumerate(inputs) if isinstance(item, Variable)]
        self._arrays = [
            place
            for place, item in enumerate(inputs)
            if place not in body.constant and not isinstance(item, Variable)
        ]
        self._same = [first_place(inputs, place) for place in self._cells]
        self._given = list(inputs)
        self._takers: list[Callable[[Sequence[Any], Sequence[Any]], Any]] = []
        self._written: list[tuple[int, Callable[[Sequence[Any], Sequence[Any]], Any]]] = []
        self._single = False
        self._compiled = jax().jit(self._trace)
        arguments = self._arguments(inputs)
        self._compiled = self._compiled.lower(*arguments).compile()
        self._given = []

    def run(self, inputs: Sequence[Any]) -> Any:
        """Compute the outputs, as arrays of NumPy."""
        computed = self._compiled(*self._arguments(inputs))
        for place, take in self._written:
            inputs[place].assign(take(inputs, computed))
        if self._single:
            return self._takers[0](inputs, computed)
        return tuple([take(inputs, computed) for take in self._takers]) or None

    def _arguments(self, inputs: Sequence[Any]) -> list[Any]:
        """What the compiled function takes: arrays, and the values of variables that have one."""
        arguments = [inputs[place] for place in self._arrays]
        for place in self._cells:
            value = inputs[place].value
            if value is not None:
                arguments.append(value)
        return arguments

    def _trace(self, *traced: Any) -> list[Any]:
        """Run the body on what stands for its inputs; note what each output is."""
        values, rest = list(self._given), iter(traced)
        for place in self._arrays:
            values[place] = next(rest)
        twins: dict[int, tuple[Variable, Any]] = {}
        for place, first in zip(self._cells, self._same, strict=True):
            real = self._given[place]
            value = next(rest) if real.value is not None else None
            if first == place:
                twins[place] = _twin(real, value), value
            values[place] = twins[first][0]
        result = self._line.run(_NO_STEP, *values)
        computed: list[Any] = []
        self._single = not isinstance(result, tuple) and result is not None
        outputs = (result,) if self._single else (result or ())
        self._takers = [_taker(item, values, computed) for item in outputs]
        self._written = [
            (place, _taker(twin.value, values, computed))
            for place, (twin, before) in twins.items()
            if twin.value is not before
        ]
        return computed


def first_place(inputs: Sequence[Any], place: int) -> int:
    """The first place of an input that may be given more than once."""
    return next(other for other, item in enumerate(inputs) if item is inputs[place])


def _twin(cell: Variable, value: Any) -> Variable:
    return Variable(
        cell.dtype,
        cell.shape,
        cell.name,
        container=cell.container,
        resource=cell.resource,
        value=value,
    )


def _taker(item: Any, values: Sequence[Any], computed: list[Any]) -> Any:
    """How an output comes from the inputs and from what is computed; adds to what is computed."""
    for place, value in enumerate(values):
        if item is value:
            return lambda inputs, _: inputs[place]
    if is_known(item):
        return lambda inputs, _: item
    place = len(computed)
    computed.append(item)
    if item.ndim:
        return lambda _, outputs: np.asarray(outputs[place])
    return lambda _, outputs: np.asarray(outputs[place])[()]
