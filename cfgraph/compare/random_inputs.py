"""Inputs for a graph that nobody fed: random ones, the same for the same seed."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

from cfgraph.analysis.inputs import declared, missing_feeds, must_be_fed
from cfgraph.analysis.needed import needed
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.shapes import Shape
from cfgraph.runtime.feed_generators import generate

# what is drawn, by the kind of the type; integers are often sizes, counts or places in small axes
_DRAWN: Final = {"int": ("uniform", "0,4"), "uint": ("uniform", "0,4"), "bool": ("uniform", None)}
NORMAL: Final = ("normal", None)
POSITIVE: Final = ("uniform", "0.5,1.5")


def random_inputs(
    graph: Graph,
    wanted: Iterable[Node],
    fed: Collection[Output] = (),
    *,
    seed: int = 0,
    size: int = 2,
    floats: tuple[str, str | None] = NORMAL,
) -> dict[str, Any]:
    """Arrays for all inputs that the wanted nodes need and that are not fed, by tensor name.

    Sizes that are not known become `size`; `floats` is a generator and its arguments. Raises
    UsageError, with options to paste, for inputs of types that cannot be drawn.
    """
    lacking = [
        node.output()
        for node in needed(graph, wanted, fed)
        if must_be_fed(node) and node.output() not in fed
    ]
    strange = [item for item in lacking if _generator(item.dtype, floats) is None]
    if strange:
        raise missing_feeds(graph, strange)
    return {
        item.name: drawn(item.name, *declared(graph, item), seed=seed, size=size, floats=floats)
        for item in lacking
    }


def drawn(
    name: str,
    dtype: DType | None,
    shape: Shape,
    *,
    seed: int,
    size: int = 2,
    floats: tuple[str, str | None] = NORMAL,
) -> Any:
    """A random array for a name; a shape of unknown rank is taken for that of a scalar."""
    found = _generator(dtype, floats)
    assert found is not None
    assert dtype is not None
    sizes = tuple(size if known is None else known for known in shape.dims or ())
    return generate(*found, dtype, sizes, name, seed)


def _generator(
    dtype: DType | None, floats: tuple[str, str | None]
) -> tuple[str, str | None] | None:
    if dtype is None or dtype.is_object:
        return None
    return floats if dtype.is_floating or dtype.is_complex else _DRAWN.get(dtype.kind)
