"""Counterparts of the inputs of two compared graphs.

Names come first. An input without a namesake is paired with the only one of its type and shape:

    A: keras_tensor float32[?,6,4], mask bool[?]      keras_tensor ── keras_tensor_4
    B: keras_tensor_4 float32[?,6,4], mask bool[?]    mask ── mask
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from cfgraph.analysis.feeds_and_fetches import (
    declared_type,
    describe_type,
    feed_option,
    is_input,
    must_be_fed,
)
from cfgraph.analysis.findings import Finding
from cfgraph.errors import UsageError
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.library import copy_graph
from cfgraph.ir.names import first_names
from cfgraph.ir.shapes import Shape, ShapeError
from cfgraph.ir.traversal import ancestors
from cfgraph.passes.lowering import lower

_MAX_LISTED: Final = 4
# pairs of tensors of one dtype whose shapes are compared
_MAX_COMPARED: Final = 1 << 10
_HINT: Final = "inputs are paired by name, else with the only one of their type and shape; or"

TensorType = tuple[DType | None, Shape]

T = TypeVar("T")
S = TypeVar("S")


def pair_by_kind(first: Mapping[T, Hashable], second: Mapping[S, Hashable]) -> list[tuple[T, S]]:
    """Pair the items that are the only ones of their kind on both sides."""
    return [
        (items[0], others[0])
        for kind, items in _by_kind(first).items()
        for others in [_by_kind(second).get(kind, [])]
        if len(items) == len(others) == 1
    ]


def pair_by_type(
    first: Mapping[T, TensorType], second: Mapping[S, TensorType]
) -> list[tuple[T, S]]:
    """Pair by type and shape, then what alone is compatible with one another.

    An unknown size is compatible with any. Sides with many of one type are only paired by kind.
    """
    pairs = pair_by_kind(first, second)
    mine, theirs = {item for item, _ in pairs}, {other for _, other in pairs}
    left = _by_kind({item: kind[0] for item, kind in first.items() if item not in mine})
    others = _by_kind({item: kind[0] for item, kind in second.items() if item not in theirs})
    for dtype, items in left.items():
        if len(items) * len(others.get(dtype, ())) <= _MAX_COMPARED:
            fits = [
                (item, other)
                for item in items
                for other in others.get(dtype, ())
                if _are_compatible(first[item][1], second[other][1])
            ]
            fitted, fitting = Counter(item for item, _ in fits), Counter(other for _, other in fits)
            pairs += [pair for pair in fits if fitted[pair[0]] == fitting[pair[1]] == 1]
    return pairs


def _are_compatible(a: Shape, b: Shape) -> bool:
    try:
        a.merge(b)
    except ShapeError:
        return False
    return True


def _by_kind(items: Mapping[T, Hashable]) -> dict[Hashable, list[T]]:
    groups: dict[Hashable, list[T]] = defaultdict(list)
    for item, kind in items.items():
        groups[kind].append(item)
    return groups


@dataclass(frozen=True, slots=True)
class RunSide:
    """One of two compared graphs: nodes that must run, and tensors that are fed."""

    graph: Graph
    required: Sequence[Node]
    feeds: Collection[str]

    def inputs(self) -> list[Output]:
        """Return the inputs that the run needs, fed or not, and the other fed tensors."""
        fed = [self.graph.tensor(name) for name in self.feeds]
        cut = {tensor for tensor in fed if not is_input(tensor.node)}
        nodes = ancestors(self.graph, self.required, cut)
        needed = [node.output() for node in nodes if must_be_fed(node)]
        return [*dict.fromkeys([*needed, *fed])]

    def inlined(self) -> RunSide:
        """Return the side with its functions inlined, so that an input that they ignore is none."""
        graph = copy_graph(self.graph)
        lower(graph)
        return RunSide(graph, [graph[node.name] for node in self.required], self.feeds)


def pair_inputs(a: RunSide, b: RunSide, names: Mapping[str, str]) -> dict[str, str]:
    """Return the tensors of B that receive the values of inputs of A with other names.

    `names` are known counterparts. Raises UsageError for an input of either graph that the run
    needs, that is not fed, and that has no counterpart.
    """
    found, unpaired = _pairs(a, b, names)
    if unpaired and (a.graph.functions or b.graph.functions):
        found, unpaired = _pairs(a.inlined(), b.inlined(), names)
    if unpaired:
        raise _unpaired_error(unpaired)
    return found


_Unpaired = tuple[tuple[RunSide, RunSide, list[Output]], ...]


def _pairs(a: RunSide, b: RunSide, names: Mapping[str, str]) -> tuple[dict[str, str], _Unpaired]:
    """Return the counterparts in B by name in A, and the inputs of either graph without one."""
    first, second = a.inputs(), b.inputs()
    known = {tensor: _namesake(b.graph, names.get(tensor.name, tensor.name)) for tensor in first}
    taken = set(known.values())
    left = [tensor for tensor, partner in known.items() if partner is None]
    others = [tensor for tensor in second if tensor not in taken]
    pairs = pair_by_kind(
        {tensor: declared_type(a.graph, tensor) for tensor in left},
        {tensor: declared_type(b.graph, tensor) for tensor in others},
    )
    found = {tensor.name: partner.name for tensor, partner in pairs}
    unpaired = (
        (a, b, [t for t in left if t.name not in found and t.name not in a.feeds]),
        (b, a, [t for t in others if t.name not in found.values() and t.name not in b.feeds]),
    )
    return found, unpaired if any(tensors for *_, tensors in unpaired) else ()


def pairs_finding(
    what: str, pairs: Mapping[str, str], criterion: str = "type and shape"
) -> list[Finding]:
    """Report counterparts with other names, which were paired by a criterion."""
    if not pairs:
        return []
    texts = [
        f"{name.removesuffix(':0')} is {b.removesuffix(':0')} in B" for name, b in pairs.items()
    ]
    plural = "s" * (len(pairs) > 1)
    message = f"{what}{plural} paired by {criterion}: {first_names(texts, _MAX_LISTED)}"
    return [Finding("CFG808", "note", message)]


def _namesake(graph: Graph, name: str) -> Output | None:
    """Return the tensor of a name, or None if the graph has none."""
    node, _, port = name.rpartition(":")
    return graph.tensor(f"{node}:{port}") if node in graph else None


def _unpaired_error(unpaired: _Unpaired) -> UsageError:
    """Return the error for inputs of only one graph, with the options that feed them."""
    texts, options = [], []
    for (side, _, tensors), letters in zip(unpaired, ("AB", "BA"), strict=True):
        if tensors:
            listed = [f"{t.name} ({describe_type(side.graph, t)})" for t in tensors]
            names = first_names(listed, _MAX_LISTED)
            plural = "s" * (len(tensors) > 1)
            texts.append(
                f"input{plural} {names} of {letters[0]} ha{'ve' if plural else 's'} no counterpart "
                f"in {letters[1]}"
            )
            options += [feed_option(side.graph, tensor) for tensor in tensors[:_MAX_LISTED]]
    # generated values of two options differ
    both = len(texts) > 1
    feeds = "equal values to both: --feed NAME=@x.npy" if both else f"them: {' '.join(options)}"
    hint = f"{_HINT} feed {feeds}; in Python, feeds={{NAME: array}}"
    return UsageError("; ".join(texts), hint=hint, code="CFG036")
