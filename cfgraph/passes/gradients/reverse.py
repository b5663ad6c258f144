"""Reverse mode over nodes in topological order: each node hands the gradients of its outputs to
the tensors that it reads, and a tensor's gradient is the sum of what its readers hand it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cfgraph.errors import Unsupported
from cfgraph.ir import registry
from cfgraph.ir.graph import Node, Output
from cfgraph.ops.adjoint import Partial
from cfgraph.ops.op import lookup
from cfgraph.passes.gradients.site import Site


class Gradients:
    """What has arrived for each tensor so far."""

    def __init__(self) -> None:
        self._parts: dict[Output, list[Output]] = {}

    def hand(self, x: Output, dx: Output) -> None:
        """Add to the gradient of a tensor."""
        self._parts.setdefault(x, []).append(dx)

    def has(self, x: Output) -> bool:
        """True if anything arrived for a tensor."""
        return x in self._parts

    def total(self, site: Site, x: Output) -> Output | None:
        """The gradient of a tensor: the sum of what arrived, or None."""
        parts = self._parts.get(x)
        if parts is None:
            return None
        if len(parts) > 1:
            parts[:] = [site.new("AddN", parts, "AddN").output()]
            site.work.known.tell(parts[0], site.known_shape(x))
        return parts[0]


def reverse_node(
    site: Site, node: Node, gradients: Gradients, wanted: Callable[[Output], bool]
) -> None:
    """Hand the gradients of a node's outputs to its inputs, where they are wanted.

    Raises Unsupported for a node that has no gradient.
    """
    count = registry.output_count(node) or 0
    arrived = [gradients.total(site, node.output(port)) for port in range(count)]
    if not any(arrived) or not any(wanted(item) for item in node.inputs):
        return
    site.work.at(node)
    hook = _hook(node)
    partials: Sequence[Partial] = hook(site, node, *arrived)
    if len(partials) != len(node.inputs):
        message = f"{len(partials)} gradients for the {len(node.inputs)} inputs of {node!r}"
        raise AssertionError(message)
    for item, partial in zip(node.inputs, partials, strict=True):
        if partial is None or not wanted(item):
            continue
        made = partial if isinstance(partial, Output) else partial()
        if made is not None:
            gradients.hand(item, made)


def _hook(node: Node) -> Callable[..., Any]:
    op = lookup(node.op)
    if op is None or op.gradient is None:
        message = f"{node.op} has no gradient"
        hint = "stop gradients before it (--stop), or write it with ops that have one"
        raise Unsupported(message, node=node, hint=hint, code="CFG502")
    return op.gradient
