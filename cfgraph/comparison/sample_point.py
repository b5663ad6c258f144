"""Points at which a graph is evaluated: random or fixed inputs and variables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import numpy as np

from cfgraph.analysis.feeds_and_fetches import declared_type, missing_feeds_error, must_be_fed
from cfgraph.analysis.resource_handles import handle_uses, is_variable, variable_key
from cfgraph.analysis.tables import required_tables, table_initializers
from cfgraph.comparison.functional_interpreter import run_functional
from cfgraph.errors import ExecutionError, Unsupported
from cfgraph.ir import dtypes
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import DType
from cfgraph.ir.function_graph import FunctionInstances
from cfgraph.ir.functions import BodyNode
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.library import called_functions
from cfgraph.ir.shapes import Shape
from cfgraph.ir.traversal import ancestors
from cfgraph.ops.families.constants import Const
from cfgraph.ops.families.variables import Variable
from cfgraph.ops.opdef.facts import SideEffects
from cfgraph.ops.opdef.op import is_a, lookup
from cfgraph.runtime.engine.deadlock import MISSING_VALUE_CODE
from cfgraph.runtime.engine.propagate import DEFAULT_MAX_ITERATIONS
from cfgraph.runtime.engine.step import RunStep, State
from cfgraph.runtime.feeds.conversion import feed_value
from cfgraph.runtime.feeds.literals import generate
from cfgraph.runtime.io_policy import NO_IO, IoPolicy
from cfgraph.runtime.session import Session
from cfgraph.runtime.trace.events import Observer

# generators by kind of dtype; integers are often sizes, counts, or indices into small axes
_GENERATORS: Final = {
    "int": ("uniform", "0,4"),
    "uint": ("uniform", "0,4"),
    "bool": ("uniform", None),
}
# for an input of strings, with the string constants that a run needs, such as the keys of tables
_WORDS: Final = (b"", b"a", b"0", b"two words", "\u00dcn\u00efcode".encode())
_MAX_WORD_BYTES: Final = 1 << 10
FloatGenerator = tuple[str, str | None]
NORMAL_FLOATS: Final[FloatGenerator] = ("normal", None)
POSITIVE_FLOATS: Final[FloatGenerator] = ("uniform", "0.5,1.5")
FEED_HINT: Final = "feed inputs that suit the graph: --feed NAME=VALUE"


@dataclass(frozen=True, slots=True)
class DimensionSizes:
    """Values for unknown sizes of shapes: by tensor name in `of`, otherwise `default`.

    They replace the unknown sizes of a shape in order; the last one replaces all further ones.
    """

    default: int = 2
    of: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def complete(self, name: str, shape: Shape) -> tuple[int, ...]:
        """Replace the unknown sizes of a shape; an unknown rank is treated as 0."""
        sizes = self.of.get(name) or (self.default,)
        remaining = iter(sizes)
        return tuple(
            next(remaining, sizes[-1]) if size is None else size for size in shape.dims or ()
        )


_DEFAULT_SIZES: Final = DimensionSizes()


def random_inputs(
    graph: Graph,
    required: Collection[Node],
    fed: Collection[Output] = (),
    *,
    seed: int = 0,
    sizes: DimensionSizes = _DEFAULT_SIZES,
    floats: FloatGenerator = NORMAL_FLOATS,
) -> dict[str, Any]:
    """Return random arrays for all inputs that `required` nodes need and that are not fed, by name.

    `floats` is a generator and its arguments; strings are constants that the nodes need, or a few
    words.
    Raises UsageError, with options to paste, for inputs whose type has no generator.
    """
    unfed = [
        node.output()
        for node in ancestors(graph, required, fed)
        if must_be_fed(node) and node.output() not in fed
    ]
    texts = [tensor for tensor in unfed if tensor.dtype is dtypes.string]
    numbers = [tensor for tensor in unfed if tensor.dtype is not dtypes.string]
    unsampleable = [tensor for tensor in numbers if not _is_sampleable(tensor.dtype)]
    if unsampleable:
        raise missing_feeds_error(graph, unsampleable)
    arrays = {
        tensor.name: random_array(
            tensor.name, *declared_type(graph, tensor), seed=seed, sizes=sizes, floats=floats
        )
        for tensor in numbers
    }
    words = _words(graph, required) if texts else ()
    for tensor in texts:
        dims = sizes.complete(tensor.name, declared_type(graph, tensor)[1])
        places = generate("uniform", f"0,{len(words)}", dtypes.int64, dims, tensor.name, seed)
        arrays[tensor.name] = np.array(words, object)[places]
    return arrays


def _words(graph: Graph, required: Collection[Node]) -> Sequence[bytes]:
    """Return texts for inputs: a few, and those of the constants that `required` nodes need.

    These include keys and values of tables, whatever fills them. A text that ends in a zero byte is
    none of them, since an .npy file cannot store it.
    """
    tables = required_tables(graph, required, (), ())
    handles = [handle.output() for table in tables for handle in table.handles]
    uses = [use.node for handle in handles for use in handle_uses(handle)[0]]
    needed = ancestors(graph, [*required, *uses])
    nodes: list[Node | BodyNode] = [*needed]
    for name in called_functions(graph, nodes=needed):
        nodes += graph.functions[name].definition.nodes
    values = [node.attrs.get("value") for node in nodes if is_a(node, Const)]
    texts = (
        text
        for value in values
        if isinstance(value, TensorValue) and value.dtype is dtypes.string
        for text in value.array.ravel().tolist()
    )
    suitable = (text for text in texts if len(text) <= _MAX_WORD_BYTES and text[-1:] != b"\0")
    return sorted({*_WORDS, *suitable})


def _is_sampleable(dtype: DType | None) -> bool:
    """Return true for a type with a generator of random values; strings have none."""
    return _value_generator(dtype, NORMAL_FLOATS) is not None


def random_array(
    name: str,
    dtype: DType | None,
    shape: Shape,
    *,
    seed: int,
    sizes: DimensionSizes = _DEFAULT_SIZES,
    floats: FloatGenerator = NORMAL_FLOATS,
) -> Any:
    """Return a random array that depends only on the name and the seed."""
    generator = _value_generator(dtype, floats)
    assert generator is not None
    assert dtype is not None
    return generate(*generator, dtype, sizes.complete(name, shape), name, seed)


def _value_generator(dtype: DType | None, floats: FloatGenerator) -> FloatGenerator | None:
    if dtype is None or dtype.is_object:
        return None
    return floats if dtype.is_floating or dtype.is_complex else _GENERATORS.get(dtype.kind)


@dataclass(frozen=True, slots=True)
class SampleOptions:
    """Fixed parts of sample points: feeds, initializers, unknown sizes, and limits of runs.

    `inits` are nodes that run first; `state` has the values of variables before these. `io`
    decides what the graphs may do with files. What fills tables runs first, too.
    """

    feeds: Mapping[str, Any] = field(default_factory=dict)
    inits: Sequence[str] = ()
    sizes: DimensionSizes = field(default_factory=DimensionSizes)
    max_iterations: int | None = DEFAULT_MAX_ITERATIONS
    timeout: float | None = None
    state: State | None = None
    io: IoPolicy = field(default_factory=IoPolicy)


def sample_point(
    graph: Graph,
    required: Sequence[Node],
    setting: SampleOptions,
    seed: int,
    floats: FloatGenerator = NORMAL_FLOATS,
    previous: EvaluationPoint | None = None,
) -> EvaluationPoint:
    """Return a point with random values for all inputs that `required` nodes need.

    Uninitialized variables other than strings also get random values. Plans of a `previous` point
    of the same graph are reused. Raises UsageError for inputs
    whose type has no generator, ExecutionError if an initializer fails.
    """
    fed = {graph.tensor(name) for name in setting.feeds}
    inits = [graph[name.removeprefix("^")] for name in setting.inits]
    tables = required_tables(
        graph, required, inits, setting.state.filled_tables() if setting.state else ()
    )
    inits += table_initializers(graph, tables, fed)
    inputs = random_inputs(
        graph, [*required, *inits], fed, seed=seed, sizes=setting.sizes, floats=floats
    )
    point = EvaluationPoint(
        graph,
        {**inputs, **setting.feeds},
        [node.name for node in inits],
        state=setting.state,
        seed=seed,
        max_iterations=setting.max_iterations,
        timeout=setting.timeout,
        io=setting.io,
        previous=previous,
    )
    for node, cell in point.variables(required).items():
        if point.value(cell) is None and _is_sampleable(cell.dtype):
            value = random_array(
                node.name, cell.dtype, cell.shape, seed=seed, sizes=setting.sizes, floats=floats
            )
            point.set(cell, value)
            point.sampled.add(variable_key(node))
    return point


def finite_point(
    sample: Callable[[FloatGenerator], EvaluationPoint],
    run: Callable[[EvaluationPoint], list[Any]],
) -> tuple[EvaluationPoint, list[Any], FloatGenerator]:
    """Return a point at which a graph runs, its values, finite if possible, and its generator."""
    best, failure = None, None
    for floats in (NORMAL_FLOATS, POSITIVE_FLOATS):
        point = sample(floats)
        try:
            values = run(point)
        except ExecutionError as error:
            failure = failure or error
            continue
        if _all_finite(values):
            return point, values, floats
        best = best or (point, values, floats)
    if best is None:
        assert failure is not None
        failure.hint = failure.hint or FEED_HINT
        raise failure
    return best


def _all_finite(values: Iterable[Any]) -> bool:
    arrays = [np.asarray(value) for value in values if value is not None]
    return all(np.all(np.isfinite(array)) for array in arrays if array.dtype.kind in "fc")


class EvaluationPoint:
    """Repeated runs of a graph at the same inputs.

    Every run starts from the same variables and draws the same random numbers, independently of
    earlier runs. `state` has initial values of variables; `inits` are nodes that run once in order.
    `io` decides what the graph may do with files. Plans of a `previous` point of the same graph are
    reused.
    """

    def __init__(
        self,
        graph: Graph,
        feeds: Mapping[str, Any],
        inits: Iterable[str] = (),
        *,
        state: State | None = None,
        seed: int = 0,
        max_iterations: int | None = None,
        timeout: float | None = None,
        io: IoPolicy = NO_IO,
        previous: EvaluationPoint | None = None,
    ) -> None:
        self.graph = graph
        self.feeds = {graph.tensor(name).name: value for name, value in feeds.items()}
        self._seed, self._io = seed, io
        self._limits: dict[str, Any] = {"max_iterations": max_iterations, "timeout": timeout}
        self._state = State() if state is None else state.copy()
        # random ops depend on the number of runs of a session
        self._can_reuse_session = not is_random(graph)
        self._instances: FunctionInstances = (
            FunctionInstances(graph.functions) if previous is None else previous._instances
        )
        # without state, runs at other points are as independent as those at this one
        is_stateless = not any(item.stateful for item in _effects(graph))
        self._session: Session = (
            previous._session
            if previous is not None and is_stateless and previous._io == io
            else self._new_session(None if previous is None else previous._session)
        )
        # the variables that have no value but a random one
        self.sampled: set[tuple[str, str]] = set()
        stored = {key: cell.value for key, cell in self.cells().items()}
        for name in inits:
            self._session.run((), self.feeds, [name], **self._limits)
        # the variables that `inits` assigned
        self.initialized = {
            key
            for key, cell in self.cells().items()
            if cell.initialized and cell.value is not stored.get(key)
        }
        self._initial_values = {cell: cell.value for cell in self.cells().values()}

    def variables(self, required: Iterable[Node]) -> dict[Node, Variable]:
        """Return the variables that nodes need and that are not fed, created if necessary."""
        fed = {self.graph.tensor(name) for name in self.feeds}
        nodes = [node for node in ancestors(self.graph, required, fed) if is_variable(node)]
        if nodes:
            self._session.run((), self.feeds, [node.name for node in nodes])
        return {node: self._cell(node) for node in nodes}

    def set(self, cell: Variable, value: Any) -> None:
        """Set the value of a variable at the start of every run."""
        self._initial_values[cell] = value

    def value(self, cell: Variable) -> Any:
        """Return the value of a variable at the start of every run, None if uninitialized."""
        return self._initial_values.get(cell)

    def cells(self) -> dict[tuple[str, str], Variable]:
        """Return all variables by container and name."""
        return dict(self._state.variables())

    def run(
        self,
        fetches: Sequence[str],
        replaced: Mapping[str, Any] | None = None,
        *,
        targets: Sequence[str] = (),
        trace: Observer | None = None,
        allow_missing: bool = False,
    ) -> list[Any]:
        """Return values of tensors, with other tensors and variables replaced.

        None stands for a dead tensor, and with `allow_missing` for one that gets no value.
        """
        for cell, value in self._initial_values.items():
            cell.value = value
        feeds = dict(self.feeds)
        for name, value in (replaced or {}).items():
            tensor = self.graph.tensor(name)
            if is_variable(tensor.node):
                self._cell(tensor.node).value = value
            else:
                feeds[tensor.name] = value
        if not self._can_reuse_session:
            self._session = self._new_session(self._session)
        return self._session.run(
            fetches,
            feeds,
            targets,
            allow_dead=True,
            allow_missing=allow_missing,
            trace=trace,
            **self._limits,
        )

    def lacks_value(self, name: str) -> bool:
        """Return true if no token reaches a tensor, or only if it runs alone: it is not dead."""
        try:
            (value,) = self.run([name])
        except ExecutionError as error:
            return error.code == MISSING_VALUE_CODE
        return value is not None

    def run_functional(
        self, fetches: Sequence[str], targets: Sequence[str] = ()
    ) -> list[Any] | None:
        """Return the results of `run` without lowering, None if that is not supported."""
        for cell, value in self._initial_values.items():
            cell.value = value
        graph, step = self.graph, RunStep(self._state, self._seed, self._io)
        step.run = 1  # as in `run`, where random numbers are those of a new session
        fed = [(graph.tensor(name), value) for name, value in self.feeds.items()]
        return run_functional(
            graph,
            [graph.tensor(name) for name in fetches],
            [graph[name.removeprefix("^")] for name in targets],
            {tensor: feed_value(graph, tensor, value) for tensor, value in fed},
            step,
            instances=self._instances,
            **self._limits,
        )

    def _new_session(self, previous: Session | None) -> Session:
        session = Session(
            self.graph,
            state=self._state,
            seed=self._seed,
            engine="compiled",
            allow_io=self._io,
            blas_threads="auto",
        )
        if previous is not None:
            session.reuse_plans(previous)
        return session

    def _cell(self, node: Node) -> Variable:
        """Return the variable of a node. Raises Unsupported for a variable without a name."""
        key = variable_key(node)
        if key not in set(self._state):
            message = f"every run creates a new variable for {node.name}"
            raise Unsupported(message, node=node, hint="give it a shared_name")
        cell = self._state.get_or_make(*key, _missing_variable)
        assert isinstance(cell, Variable)
        self._initial_values.setdefault(cell, cell.value)
        return cell


def is_random(graph: Graph) -> bool:
    """Return true if runs of a graph draw numbers that depend on the seed of a session."""
    return any(item.stateful and item.random for item in _effects(graph))


def _effects(graph: Graph) -> list[SideEffects]:
    """Return the effects of the ops in a graph and its functions; unknown ones have state."""
    bodies = (function.definition.nodes for function in graph.functions.values())
    names = graph.ops.union(node.op for body in bodies for node in body)
    ops = map(lookup, names.difference(graph.functions))
    return [SideEffects(stateful=True) if op is None else op.effects for op in ops]


def _missing_variable() -> NoReturn:
    message = "the state has lost an object"
    raise AssertionError(message)
