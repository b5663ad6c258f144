"""Random inputs and variables for a graph, reproducible from a seed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cfgraph.analysis.feeds_and_fetches import declared_type, missing_feeds_error, must_be_fed
from cfgraph.analysis.reachability import ancestors
from cfgraph.compare.evaluation_point import EvaluationPoint
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.shapes import Shape
from cfgraph.runtime.engine.frame_state import DEFAULT_MAX_ITERATIONS
from cfgraph.runtime.feeds.literals import generate
from cfgraph.runtime.state import State

# generators by kind of dtype; integers are often sizes, counts, or indices into small axes
_GENERATORS: Final = {
    "int": ("uniform", "0,4"),
    "uint": ("uniform", "0,4"),
    "bool": ("uniform", None),
}
NORMAL_FLOATS: Final = ("normal", None)
POSITIVE_FLOATS: Final = ("uniform", "0.5,1.5")


@dataclass(frozen=True, slots=True)
class DimensionSizes:
    """Values for unknown sizes of shapes: `default`, or those in `of` by tensor name.

    They replace the unknown sizes of a shape in order; the last one replaces all further ones.
    """

    default: int = 2
    of: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def complete(self, name: str, shape: Shape) -> tuple[int, ...]:
        """Replace the unknown sizes of a shape; an unknown rank counts as 0."""
        sizes = self.of.get(name) or (self.default,)
        remaining = iter(sizes)
        return tuple(
            next(remaining, sizes[-1]) if size is None else size for size in shape.dims or ()
        )


_DEFAULT_SIZES: Final = DimensionSizes()


def random_inputs(
    graph: Graph,
    required: Iterable[Node],
    fed: Collection[Output] = (),
    *,
    seed: int = 0,
    sizes: DimensionSizes = _DEFAULT_SIZES,
    floats: tuple[str, str | None] = NORMAL_FLOATS,
) -> dict[str, Any]:
    """Return random arrays for all inputs that `required` nodes need and that are not fed, by name.

    `floats` is a generator and its arguments. Raises UsageError, with options to paste, for inputs
    whose type has no generator.
    """
    unfed = [
        node.output()
        for node in ancestors(graph, required, fed)
        if must_be_fed(node) and node.output() not in fed
    ]
    unsampleable = [tensor for tensor in unfed if not is_sampleable(tensor.dtype)]
    if unsampleable:
        raise missing_feeds_error(graph, unsampleable)
    return {
        tensor.name: random_array(
            tensor.name, *declared_type(graph, tensor), seed=seed, sizes=sizes, floats=floats
        )
        for tensor in unfed
    }


def is_sampleable(dtype: DType | None) -> bool:
    """Return true for a type with a generator of random values; strings have none."""
    return _value_generator(dtype, NORMAL_FLOATS) is not None


def random_array(
    name: str,
    dtype: DType | None,
    shape: Shape,
    *,
    seed: int,
    sizes: DimensionSizes = _DEFAULT_SIZES,
    floats: tuple[str, str | None] = NORMAL_FLOATS,
) -> Any:
    """Return a random array that depends only on the name and the seed."""
    generator = _value_generator(dtype, floats)
    assert generator is not None
    assert dtype is not None
    return generate(*generator, dtype, sizes.complete(name, shape), name, seed)


def _value_generator(
    dtype: DType | None, floats: tuple[str, str | None]
) -> tuple[str, str | None] | None:
    if dtype is None or dtype.is_object:
        return None
    return floats if dtype.is_floating or dtype.is_complex else _GENERATORS.get(dtype.kind)


@dataclass(frozen=True, slots=True)
class SampleOptions:
    """Fixed parts of sample points: feeds, initializers, unknown sizes, and limits of runs.

    `inits` are nodes that run first; `state` has the values of variables before these.
    """

    feeds: Mapping[str, Any] = field(default_factory=dict)
    inits: Sequence[str] = ()
    sizes: DimensionSizes = field(default_factory=DimensionSizes)
    max_iterations: int | None = DEFAULT_MAX_ITERATIONS
    timeout: float | None = None
    state: State | None = None


def sample_point(
    graph: Graph,
    required: Sequence[Node],
    setting: SampleOptions,
    seed: int,
    floats: tuple[str, str | None] = NORMAL_FLOATS,
) -> EvaluationPoint:
    """Return a point with random values for all inputs that `required` nodes need.

    Uninitialized variables get random values too, except for strings. Raises UsageError for inputs
    whose type has no generator, ExecutionError if an initializer fails.
    """
    fed = {graph.tensor(name) for name in setting.feeds}
    inits = [graph[name.removeprefix("^")] for name in setting.inits]
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
    )
    for node, cell in point.variables(required).items():
        if point.value(cell) is None and is_sampleable(cell.dtype):
            value = random_array(
                node.name, cell.dtype, cell.shape, seed=seed, sizes=setting.sizes, floats=floats
            )
            point.set(cell, value)
    return point
