"""The gradient of a sum of products by one operand: another one, of the other operands."""

from __future__ import annotations

from collections.abc import Sequence

from cfgraph.ir.graph import Node, Output
from cfgraph.ops.adjoint import Adjoint, conj, index, reduced

DOTS = "..."


def of_operand(
    g: Adjoint, node: Node, dz: Output, terms: Sequence[str], result: str, number: int
) -> Output:
    """The gradient of one operand: `ij,jk->ik` becomes `ik,jk->ij`.

    A label that only this operand has is one that was summed: the gradient is repeated along it.
    Dimensions under dots that were broadcast are summed.
    """
    x, term, dtype = node.inputs[number], terms[number], node.attr("T")
    others = [
        (t, conj(g, y))
        for i, (t, y) in enumerate(zip(terms, node.inputs, strict=True))
        if i != number
    ]
    known = result + "".join(t for t, _ in others)
    labels = term.replace(DOTS, "")
    dots = DOTS if DOTS in known else ""
    shared = "".join(dict.fromkeys(label for label in labels if label in known))
    alone = "".join(dict.fromkeys(label for label in labels if label not in known))
    # TensorFlow takes two operands at most
    left = ",".join([result, *(t for t, _ in others)])
    broadcasts = any(DOTS in t for t, _ in others)
    whole = dots + labels if broadcasts else term
    first = dots + shared if alone else whole
    dx = dz
    if left != first:
        dx = _einsum(g, f"{left}->{first}", [dz, *(y for _, y in others)])
    if alone:
        ones = g.Fill(_sizes(g, x, term, alone), g.const(1, dtype))
        dx = _einsum(g, f"{dots}{shared},{alone}->{whole}", [dx, ones])
    if not broadcasts:
        return dx
    if DOTS not in term or term.startswith(DOTS):
        return reduced(g, dx, x, dx, fixed=len(labels))
    x = _einsum(g, f"{term}->{DOTS}{labels}", [x])
    return _einsum(g, f"{DOTS}{labels}->{term}", [reduced(g, dx, x, dx, fixed=len(labels))])


def _einsum(g: Adjoint, equation: str, inputs: Sequence[Output]) -> Output:
    return g.Einsum(inputs, equation=equation)


def _sizes(g: Adjoint, x: Output, term: str, labels: str) -> Output:
    """The sizes of an operand at some labels of its term."""
    before, _, after = term.partition(DOTS)
    places = [
        before.index(label) if label in before else after.index(label) - len(after)
        for label in labels
    ]
    dims = g.known_shape(x).dims
    if dims is not None and None not in (known := [dims[place] for place in places]):
        return index(g, known)
    shape = g.shape(x)
    bounds = [tuple(index(g, item) for item in ([p], [p + 1], [1])) for p in places]
    parts = [
        g.StridedSlice(shape, *b, end_mask=int(p == -1))
        for p, b in zip(places, bounds, strict=True)
    ]
    return parts[0] if len(parts) == 1 else g.ConcatV2(parts, index(g, 0))
