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

# what is drawn, by the kind of the type; integers are often sizes, counts or places in small axes
_GENERATORS: Final = {
    "int": ("uniform", "0,4"),
    "uint": ("uniform", "0,4"),
    "bool": ("uniform", None),
}
NORMAL_FLOATS: Final = ("normal", None)
POSITIVE_FLOATS: Final = ("uniform", "0.5,1.5")


@dataclass(frozen=True, slots=True)
class DimensionSizes:
    """What stands for sizes that are not known: `default`, or for a tensor those in `of`, by name.

    Of several the first stands for the first size that is not known, and the last for all others.
    """

    default: int = 2
    of: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def complete(self, name: str, shape: Shape) -> tuple[int, ...]:
        """A shape without gaps; one of unknown rank is taken for that of a scalar."""
        given = self.of.get(name) or (self.default,)
        todo = iter(given)
        return tuple(next(todo, given[-1]) if size is None else size for size in shape.dims or ())


_DEFAULT_SIZES: Final = DimensionSizes()


def random_inputs(
    graph: Graph,
    wanted: Iterable[Node],
    fed: Collection[Output] = (),
    *,
    seed: int = 0,
    sizes: DimensionSizes = _DEFAULT_SIZES,
    floats: tuple[str, str | None] = NORMAL_FLOATS,
) -> dict[str, Any]:
    """Arrays for all inputs that the wanted nodes need and that are not fed, by tensor name.

    `floats` is a generator and its arguments. Raises UsageError, with options to paste, for inputs
    of types that cannot be drawn.
    """
    lacking = [
        node.output()
        for node in ancestors(graph, wanted, fed)
        if must_be_fed(node) and node.output() not in fed
    ]
    strange = [item for item in lacking if not is_sampleable(item.dtype)]
    if strange:
        raise missing_feeds_error(graph, strange)
    return {
        item.name: random_array(
            item.name, *declared_type(graph, item), seed=seed, sizes=sizes, floats=floats
        )
        for item in lacking
    }


def is_sampleable(dtype: DType | None) -> bool:
    """True for a type of which random values can be drawn; texts have none."""
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
    """A random array for a name."""
    found = _value_generator(dtype, floats)
    assert found is not None
    assert dtype is not None
    return generate(*found, dtype, sizes.complete(name, shape), name, seed)


def _value_generator(
    dtype: DType | None, floats: tuple[str, str | None]
) -> tuple[str, str | None] | None:
    if dtype is None or dtype.is_object:
        return None
    return floats if dtype.is_floating or dtype.is_complex else _GENERATORS.get(dtype.kind)


@dataclass(frozen=True, slots=True)
class SampleOptions:
    """What is given of points: `feeds`, nodes that run before, sizes that are not known, limits.

    `state` has values of variables, as they are before these nodes run.
    """

    feeds: Mapping[str, Any] = field(default_factory=dict)
    inits: Sequence[str] = ()
    sizes: DimensionSizes = field(default_factory=DimensionSizes)
    max_iterations: int | None = DEFAULT_MAX_ITERATIONS
    timeout: float | None = None
    state: State | None = None


def sample_point(
    graph: Graph,
    wanted: Sequence[Node],
    setting: SampleOptions,
    seed: int,
    floats: tuple[str, str | None] = NORMAL_FLOATS,
) -> EvaluationPoint:
    """A point with random inputs for all that `wanted` need and that is not fed.

    Variables that nothing wrote to get random values too, but for those of texts. Raises UsageError
    for inputs of types that cannot be drawn, ExecutionError where a node that runs before fails.
    """
    fed = {graph.tensor(name) for name in setting.feeds}
    inits = [graph[name.removeprefix("^")] for name in setting.inits]
    given = random_inputs(
        graph, [*wanted, *inits], fed, seed=seed, sizes=setting.sizes, floats=floats
    )
    point = EvaluationPoint(
        graph,
        {**given, **setting.feeds},
        [node.name for node in inits],
        state=setting.state,
        seed=seed,
        max_iterations=setting.max_iterations,
        timeout=setting.timeout,
    )
    for node, cell in point.variables(wanted).items():
        if point.value(cell) is None and is_sampleable(cell.dtype):
            value = random_array(
                node.name, cell.dtype, cell.shape, seed=seed, sizes=setting.sizes, floats=floats
            )
            point.set(cell, value)
    return point
