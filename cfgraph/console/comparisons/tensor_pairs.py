"""Counterparts of the inputs and outputs that signatures name in two compared graphs.

Names come first: those of the signatures, then those of tensors. What has no namesake is paired
with the only one of its type and shape. The outputs of a graph without a signature, as of a frozen
one, are those that `run` fetches:

    A: output_0, StatefulPartitionedCall:0 float32[?,5]      output_0 ── Identity
    B: Identity:0 float32[?,5]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cfgraph.analysis.feeds_and_fetches import is_input, must_be_fed
from cfgraph.analysis.findings import Finding
from cfgraph.comparison.equivalence import has_output
from cfgraph.comparison.golden import GoldenOutputs
from cfgraph.comparison.pairing import pair_by_type, pairs_finding
from cfgraph.console.signatures import SignatureNames
from cfgraph.errors import UsageError
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Graph, Output
from cfgraph.ir.names import first_names
from cfgraph.ir.serde.saved_model import SavedSignature, SignatureTensor
from cfgraph.ir.shapes import Shape
from cfgraph.ops.shape_inference import infer_shapes
from cfgraph.runtime.fetches import Fetches

# names that a hint lists
_MAX_LISTED: Final = 6

GraphPair = tuple[Graph, Graph]
SignaturePair = tuple[SignatureNames, SignatureNames]


def default_outputs(graph: Graph) -> list[Output]:
    """The tensors that a run of a graph without a signature fetches by default."""
    request = Fetches(graph, {})
    try:
        request.default()
    except UsageError:
        return []
    return [*request.tensors]


def fetched_name(graph: Graph, names: SignatureNames, name: str) -> str:
    """The complete name of a tensor to fetch. Raises UsageError for an unknown one."""
    names.require_selected([name])
    request = Fetches(graph, names.outputs)
    return request.outside_loops(names.outputs.get(name, name)).name


def one_partner_each(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The pairs by their first names. Raises UsageError for two partners of one name."""
    partners = dict[str, str]()
    for name, partner in pairs:
        first = partners.setdefault(name, partner)
        if first != partner:
            message = f"--fetch {name} has two counterparts: {first} and {partner}"
            raise UsageError(message, hint="remove one of them")
    return partners


def typed_tensors(graph: Graph, tensors: Iterable[Output]) -> list[SignatureTensor]:
    """The tensors with their inferred types, under their own names."""
    dtypes = {item: item.dtype.base for item in tensors if item.dtype is not None}
    shapes = infer_shapes(graph, sent=dtypes.keys())
    return [SignatureTensor(item.name, item.name, dtypes[item], shapes[item]) for item in dtypes]


def outputs_of(graph: Graph, signature: SavedSignature | None) -> Sequence[SignatureTensor]:
    """The outputs of the signature, else those that a run of the graph fetches by default."""
    return signature.outputs if signature else typed_tensors(graph, default_outputs(graph))


def inputs_of(graph: Graph, signature: SavedSignature | None) -> Sequence[SignatureTensor]:
    """The inputs of the signature, else those that must be fed."""
    if signature:
        return signature.inputs
    return typed_tensors(graph, (node.output() for node in graph if must_be_fed(node)))


def pair_tensors(
    first: Iterable[SignatureTensor], second: Iterable[SignatureTensor]
) -> dict[SignatureTensor, SignatureTensor]:
    """Pair the tensors of one name, then those that only fit each other by type and shape."""
    second = [*second]
    by_name = {item.name: item for item in second}
    pairs = {item: by_name[item.name] for item in first if item.name in by_name}
    taken = set(pairs.values())
    left = {item: item[2:] for item in first if item not in pairs}
    pairs.update(pair_by_type(left, {item: item[2:] for item in second if item not in taken}))
    return pairs


@dataclass(slots=True)
class TensorPairs:
    """Tensors of the second graph for those of the first that signatures name.

    `missing` are outputs without a counterpart, `notices` report pairs with other names.
    """

    names_of_b: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    notices: list[Finding] = field(default_factory=list)

    def add(self, first: SavedSignature, second: SavedSignature | None, graphs: GraphPair) -> None:
        """Pair the tensors of two signatures; a graph without one has the same tensors, if any."""
        a, b = graphs
        self._add("input", first.inputs, first.inputs if second is None else second.inputs, b)
        others: Sequence[SignatureTensor] = first.outputs if second is None else second.outputs
        if second is None and not all(has_output(b, item.tensor) for item in others):
            more = [item for item in default_outputs(b) if not has_output(a, item.name)]
            others = [*others, *typed_tensors(b, more)]
        paired = self._add("output", first.outputs, others, b)
        self.missing += [item.tensor for item in first.outputs if item not in paired]

    def add_outputs(self, graphs: GraphPair, second: SavedSignature | None) -> None:
        """Pair the outputs of a first graph without a signature that the second one lacks."""
        a, b = graphs
        left = [item for item in default_outputs(a) if not has_output(b, item.name)]
        if left:
            every = outputs_of(b, second)
            others = [item for item in every if not has_output(a, item.tensor)]
            self._add("output", typed_tensors(a, left), others, b)

    def add_fetches(
        self, fetches: Iterable[tuple[str, str]], graphs: GraphPair, names: SignaturePair
    ) -> None:
        """Pair tensors that the user names. Raises UsageError if a graph lacks one."""
        (a, b), (names_a, names_b) = graphs, names
        pairs = ((fetched_name(a, names_a, x), fetched_name(b, names_b, y)) for x, y in fetches)
        partners = one_partner_each(pairs)
        self.names_of_b.update(partners)
        self.missing = [name for name in self.missing if name not in partners]

    def _add(
        self,
        what: str,
        first: Sequence[SignatureTensor],
        others: Sequence[SignatureTensor],
        b: Graph,
    ) -> dict[SignatureTensor, SignatureTensor]:
        pairs = pair_tensors(first, [item for item in others if has_output(b, item.tensor)])
        renamed = {item.name: other.name for item, other in pairs.items()}
        self.notices += pairs_finding(what, {a: b for a, b in renamed.items() if a != b})
        self.names_of_b.update({item.tensor: other.tensor for item, other in pairs.items()})
        return pairs

    def add_placeholders(self, a: SignatureNames, b: SignatureNames, graphs: GraphPair) -> None:
        """Pair inputs of one graph, by node, with names of the signature of the other."""
        first, second = graphs
        for name, tensor in b.inputs.items():
            if name in first and is_input(first[name]) and name not in second:
                self.names_of_b.setdefault(f"{name}:0", tensor)
        for name, tensor in a.inputs.items():
            if name in second and is_input(second[name]) and not has_output(second, tensor):
                self.names_of_b.setdefault(tensor, f"{name}:0")


def pair_recorded(
    graph: Graph, names: SignatureNames, golden: GoldenOutputs
) -> tuple[SignatureNames, list[Finding]]:
    """Add recorded names that a model lacks, for tensors that it has under other names.

    Raises UsageError for an input without a counterpart.
    """
    case, notices, found = golden.cases[0], list[Finding](), dict[str, dict[str, str]]()
    for what, values, known, tensors_of in (
        ("input", case.inputs, names.inputs, inputs_of),
        ("output", case.outputs, names.outputs, outputs_of),
    ):
        left = [name for name in values if not (name in known or has_output(graph, name))]
        others = tensors_of(graph, names.selected) if left else ()
        pairs = pair_tensors(
            [*_recorded_tensors(values, left)],
            [item for item in others if item.name not in values and item.tensor not in values],
        )
        notices += pairs_finding(what, {item.name: other.name for item, other in pairs.items()})
        found[what] = {item.name: other.tensor for item, other in pairs.items()}
        if what == "input" and (lost := [name for name in left if name not in found[what]]):
            message = f"the model has no input {lost[0]!r}, which is recorded"
            listed = first_names([item.name for item in others], _MAX_LISTED)
            raise UsageError(message, hint=f"its inputs: {listed}" if listed else "")
    return names.with_names(found["input"], found["output"]), notices


def _recorded_tensors(values: Mapping[str, Any], names: Iterable[str]) -> Iterator[SignatureTensor]:
    for name in names:
        value = values[name]
        if value is None:  # a dead output has no type
            continue
        try:
            dtype = DType.from_numpy(value.dtype)
        except TypeError:  # bfloat16 is stored without a type, and a long double is of none
            continue
        yield SignatureTensor(name, name, dtype, Shape(value.shape))
