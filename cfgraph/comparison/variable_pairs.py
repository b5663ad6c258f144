"""Weights of two compared graphs: counterparts of variables, values that only one graph has.

The outputs at a few random inputs may not show that a weight differs, such as a row of a table.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cfgraph.analysis.findings import Finding
from cfgraph.analysis.resource_handles import is_variable, variable_key
from cfgraph.analysis.tables import StaticTable
from cfgraph.comparison.diff import diff
from cfgraph.comparison.differences import ValueMismatch
from cfgraph.comparison.divergence import difference_message
from cfgraph.comparison.pairing import pair_by_kind
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.names import first_names
from cfgraph.ir.traversal import ancestors
from cfgraph.ops.families.resource_variables import AssignVariableOp
from cfgraph.ops.families.variables import Assign, Variable
from cfgraph.ops.opdef.op import is_a

_MAX_LISTED: Final = 3

VariableKey = tuple[str, str]
VariableValues = Mapping[VariableKey, Any]


def read_variables(graph: Graph, required: Iterable[Node]) -> set[VariableKey]:
    """Return the variables whose initial values nodes may need: not those only assigned."""
    bodies = (node for item in graph.functions.values() for node in item.definition.nodes)
    read = {variable_key(node) for node in bodies if is_variable(node)}
    needed = dict.fromkeys(ancestors(graph, required))
    for node in filter(is_variable, needed):
        uses = [use.node for use in node.uses if use.node in needed]
        if any(not is_a(user, AssignVariableOp, Assign) for user in uses):
            read.add(variable_key(node))
    return read


def pair_variables(a: VariableValues, b: VariableValues) -> dict[VariableKey, VariableKey]:
    """Return the counterparts of variables, from the values that both graphs read.

    Equal values of one name come first, then the only equal ones, then names; then the only ones
    of a type and shape, if the graphs have equally many of each.
    """
    pairs = {key: key for key in a if key in b and _content(a[key]) == _content(b[key])}
    left, others = _unpaired(a, b, pairs)
    pairs.update(pair_by_kind(*({k: _content(v) for k, v in x.items()} for x in (left, others))))
    left, others = _unpaired(a, b, pairs)
    pairs.update({key: key for key in left if key in others})
    left, others = _unpaired(a, b, pairs)
    kinds = [{key: _kind(value) for key, value in side.items()} for side in (left, others)]
    if sorted(map(str, kinds[0].values())) == sorted(map(str, kinds[1].values())):
        pairs.update(pair_by_kind(*kinds))
    return pairs


def _unpaired(
    a: VariableValues, b: VariableValues, pairs: Mapping[VariableKey, VariableKey]
) -> tuple[VariableValues, VariableValues]:
    taken = set(pairs.values())
    return (
        {key: value for key, value in a.items() if key not in pairs},
        {key: value for key, value in b.items() if key not in taken},
    )


def _kind(value: Any) -> Hashable:
    array = np.asarray(value)
    return array.dtype.str, array.shape


def _content(value: Any) -> Hashable:
    array = np.asarray(value)
    data = tuple(array.ravel().tolist()) if array.dtype.hasobject else array.tobytes()
    return _kind(array), data


def constant_gaps(
    a: Graph, b: Graph, required: Iterable[Node], rtol: float | None, atol: float | None
) -> Iterator[ValueMismatch]:
    """Yield the constants that differ, if graphs differ in nothing else: in those of a model.

    A rewrite, such as one that folds a factor into them, also changes other nodes.
    """
    delta = diff(a, b, ignore=("notes", "order", "devices"))
    bodies = [function.nodes for function in delta.functions_changed]
    changed = [item for nodes in (delta.nodes, *bodies) for item in nodes.changed]
    others = [delta.functions_added, delta.functions_removed, delta.changes]
    others += [function.changes for function in delta.functions_changed]
    others += [nodes for part in (delta.nodes, *bodies) for nodes in (part.added, part.removed)]
    parts = {change.part for item in changed for change in item.changes}
    values = [value for item in changed for x in item.changes for value in (x.before, x.after)]
    if any(others) or parts != {"attr value"} or not _are_tensors(values):
        return
    needed = {*ancestors(a, required)}
    for item in changed:
        # nodes of functions are in no graph
        if item.before in needed or item.before.name not in a:
            change = item.changes[0]
            before, after = change.before.array, change.after.array
            message = difference_message(before, after, rtol, atol)
            if message is not None:
                yield ValueMismatch(f"constant {item.before.name}", message, before, after)


def _are_tensors(values: Iterable[Any]) -> bool:
    """True for values of constants; an invalid node that no run needs may have any."""
    return all(isinstance(value, TensorValue) for value in values)


@dataclass(frozen=True, slots=True)
class OwnValues:
    """Variables that the runs of a graph read, and those that have values of its own."""

    letter: str
    read: Collection[VariableKey]
    own: Collection[VariableKey]

    @property
    def missing(self) -> list[VariableKey]:
        """The variables that are read and have no value."""
        return sorted(key for key in self.read if key not in self.own)


def pair_unset(
    a: OwnValues,
    b: OwnValues,
    variables: Mapping[VariableKey, Variable],
    variables_of_b: Mapping[VariableKey, Variable],
) -> dict[VariableKey, VariableKey]:
    """Return the counterparts of variables without a value or a namesake."""
    sides = (a, variables, variables_of_b), (b, variables_of_b, variables)
    kinds = (
        {
            key: (own[key].dtype, own[key].shape)
            for key in side.missing
            if key in own and key not in others
        }
        for side, own, others in sides
    )
    return dict(pair_by_kind(*kinds))


def borrowed_findings(
    a: OwnValues, b: OwnValues, paired: Mapping[VariableKey, VariableKey]
) -> list[Finding]:
    """Report variables that a graph reads, and whose values are not its own.

    `paired` are counterparts with other names, neither of which has a value.
    """
    pairs = {*paired, *paired.values()}
    findings = []
    for side, other in ((a, b), (b, a)):
        borrowed = [key for key in side.missing if key in other.own]
        alone = [key for key in side.missing if key not in {*other.own, *other.read, *pairs}]
        ends = (
            f"those of {other.letter} are used",
            f"{other.letter} has no such variable, and random values are used",
        )
        for keys, end in zip((borrowed, alone), ends, strict=True):
            if keys:
                names = [name for _, name in keys]
                findings.append(_borrowed_finding(side.letter, names, end, "variable"))
    return findings


def borrowed_table_findings(letter: str, tables: Sequence[StaticTable]) -> list[Finding]:
    """Report tables that start with what those of the other graph contain."""
    if not tables:
        return []
    end = f"those of {'B' if letter == 'A' else 'A'} are used"
    return [_borrowed_finding(letter, [table.name for table in tables], end, "table")]


def _borrowed_finding(letter: str, keys: Sequence[str], end: str, kind: str) -> Finding:
    names = first_names(keys, _MAX_LISTED)
    what = f"{len(keys)} {kind}s, {names}" if len(keys) > 1 else f"the {kind} {names}"
    message = f"{letter} has no values of its own for {what}: {end}"
    return Finding("CFG807", "warning", message, hint=_HINTS[letter])


_HINTS: Final = {
    "A": "--variables PATH has values for A; add --variables-b PATH if B has others",
    "B": "--variables-b PATH has values for B; --variables PATH is for both",
}
