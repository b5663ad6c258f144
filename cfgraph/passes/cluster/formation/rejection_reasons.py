"""Reasons for leaving a node, an edge, or a region out of clusters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

# kinds of reasons and their meaning; `--explain` and JSON use these words
NODE_REASONS: Final[Mapping[str, str]] = {
    "control flow": "forwards tokens between branches, iterations, or devices",
    "input": "is an input of the graph",
    "fed": "is fed",
    "not needed": "no fetch depends on it",
    "unknown op": "its op is not registered",
    "call": "calls a function that was not lowered",
    "asked": "excluded by only_ops or exclude_ops",
    "marked": "its attribute _XlaCompile is false",
    "effects": "has side effects that a cluster cannot have",
    "not traced": "its kernel cannot be traced",
    "no kernel": "XLA has no kernel for its op",
    "type": "XLA has no kernel for its op with this type",
    "reference": "reads or returns a reference",
    "device": "is not on a CPU or GPU",
    "pivot": "starts the body of a loop, which would wait for the cluster",
    "constant varies": "XLA needs a constant input, which varies in a loop",
    "tangled loops": "its loop depends on itself: two loops have the same name",
    "mismatch": "its inputs may differ in liveness",
    "too small": "its cluster is below the minimum size",
    "shared": "a constant that is also read outside clusters",
    "alone": "has no edge to another node that it could merge with",
}
EDGE_REASONS: Final[Mapping[str, str]] = {
    "frame": "the ends run in different loops",
    "device": "the ends are on different devices",
    "deadness": "the ends are not live under the same condition",
    "size": "the cluster would exceed the maximum size",
    "effects": "only one end depends on side effects, and may be fetched without the other",
    "resource": "a variable would be read after a write in the same cluster",
    "handles": "the cluster would receive one variable by two handles",
    "cycle": "the cluster would wait for itself by a path over other nodes",
}
REGION_REASONS: Final[Mapping[str, str]] = {
    "form": "its Switches and Merges do not form a single loop or conditional",
    "entered apart": "its inputs may differ in liveness",
    "several devices": "its nodes are on several devices",
    "inner loop": "contains a loop that is not compiled",
    "conditional": "contains a conditional that is not compiled",
    "shape changes": "a loop variable changes its shape",
    "list": "a stack or TensorArray cannot become a list of static size",
    "size": "exceeds the maximum size of a cluster",
    "fed": "a node inside is fed or fetched",
}


@dataclass(frozen=True, slots=True)
class RejectionReason:
    """A kind of reason with its details; `data` contains the parts of `text`."""

    kind: str
    text: str
    data: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the reason as a member of a command's JSON document."""
        return {"kind": self.kind, "text": self.text, **self.data}


class NotFunctionalizable(Exception):
    """A region cannot be functionalized for this reason."""

    def __init__(self, reason: RejectionReason) -> None:
        super().__init__(reason.text)
        self.reason = reason


def not_functionalizable(kind: str, text: str, **data: object) -> NotFunctionalizable:
    """Return the error for a kind of reason; `data` contains the parts of the text."""
    return NotFunctionalizable(RejectionReason(kind, text, data))
