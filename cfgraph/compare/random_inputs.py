"""Inputs for a graph that nobody fed: random ones, the same for the same seed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cfgraph.analysis.feeds_and_fetches import declared_type, missing_feeds_error, must_be_fed
from cfgraph.analysis.reachability import ancestors
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.shapes import Shape
from cfgraph.runtime.feed_generators import generate

# what is drawn, by the kind of the type; integers are often sizes, counts or places in small axes
_DRAWN: Final = {"int": ("uniform", "0,4"), "uint": ("uniform", "0,4"), "bool": ("uniform", None)}
NORMAL: Final = ("normal", None)
POSITIVE: Final = ("uniform", "0.5,1.5")


@dataclass(frozen=True, slots=True)
class Sizes:
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


_SIZES: Final = Sizes()


def random_inputs(
    graph: Graph,
    wanted: Iterable[Node],
    fed: Collection[Output] = (),
    *,
    seed: int = 0,
    sizes: Sizes = _SIZES,
    floats: tuple[str, str | None] = NORMAL,
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
    strange = [item for item in lacking if not can_draw(item.dtype)]
    if strange:
        raise missing_feeds_error(graph, strange)
    return {
        item.name: drawn(
            item.name, *declared_type(graph, item), seed=seed, sizes=sizes, floats=floats
        )
        for item in lacking
    }


def can_draw(dtype: DType | None) -> bool:
    """True for a type of which random values can be drawn; texts have none."""
    return _generator(dtype, NORMAL) is not None


def drawn(
    name: str,
    dtype: DType | None,
    shape: Shape,
    *,
    seed: int,
    sizes: Sizes = _SIZES,
    floats: tuple[str, str | None] = NORMAL,
) -> Any:
    """A random array for a name."""
    found = _generator(dtype, floats)
    assert found is not None
    assert dtype is not None
    return generate(*found, dtype, sizes.complete(name, shape), name, seed)


def _generator(
    dtype: DType | None, floats: tuple[str, str | None]
) -> tuple[str, str | None] | None:
    if dtype is None or dtype.is_object:
        return None
    return floats if dtype.is_floating or dtype.is_complex else _DRAWN.get(dtype.kind)
