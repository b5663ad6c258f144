"""The reasons why a node, an edge or a region is not clustered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

# the kinds of reasons, and what each means; these words are in `--explain` and in JSON
NODE_REASONS: Final[Mapping[str, str]] = {
    "control flow": "it moves tokens between branches, iterations or devices",
    "input": "it is there to be fed",
    "fed": "it is fed in the runs that are clustered for",
    "not needed": "no fetch needs it",
    "unknown op": "its op is not known",
    "call": "it runs a function, and was not lowered",
    "asked": "only_ops or exclude_ops leaves it out",
    "marked": "its attribute _XlaCompile says no",
    "effects": "it has effects that a cluster cannot have",
    "not traced": "its kernel cannot be traced",
    "no kernel": "XLA has no kernel of it",
    "type": "XLA has no kernel of it for this type",
    "reference": "it reads or gives a reference",
    "device": "clusters run on CPU and GPU only",
    "pivot": "it starts the body of a loop, which a cluster with it would hold up",
    "constant varies": "XLA needs an input as a constant, and it varies in a loop",
    "tangled loops": "its loop waits for itself: two loops have one name",
    "mismatch": "its inputs may differ in liveness",
    "too small": "its cluster is smaller than the least size",
    "shared": "a constant that others than clusters read",
    "alone": "no edge joins it to another node that compiles",
}
EDGE_REASONS: Final[Mapping[str, str]] = {
    "frame": "the ends run in different loops",
    "device": "the ends are on different devices",
    "deadness": "the ends are not live under the same condition",
    "size": "the cluster would be larger than the greatest size",
    "effects": "one end is behind effects that the other is not, and may be run without it",
    "resource": "a variable would be read behind its write in one cluster",
    "handles": "one variable would come in by two handles",
    "cycle": "a path over other nodes would wait for itself",
}
REGION_REASONS: Final[Mapping[str, str]] = {
    "form": "its Switches and Merges do not make one loop, or one conditional",
    "entered apart": "what enters it may differ in liveness",
    "several devices": "its nodes are on several devices",
    "inner loop": "a loop in it is not compiled",
    "conditional": "a conditional in it is not compiled",
    "shape changes": "a variable of the loop changes its shape",
    "list": "a stack or an array cannot be a list of a known number of elements",
    "size": "it is larger than the greatest size of a cluster",
    "fed": "a node in it is fed or fetched",
}


@dataclass(frozen=True, slots=True)
class RejectionReason:
    """A kind of reason, and what it is about in this case; `data` holds the parts of `text`."""

    kind: str
    text: str
    data: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The reason as a member of a command's JSON document."""
        return {"kind": self.kind, "text": self.text, **self.data}


class NotFunctionalizable(Exception):
    """A region cannot be raised, for this reason."""

    def __init__(self, reason: RejectionReason) -> None:
        super().__init__(reason.text)
        self.reason = reason


def not_functionalizable(kind: str, text: str, **data: object) -> NotFunctionalizable:
    """The error for a kind of reason; `data` has the parts of the text."""
    return NotFunctionalizable(RejectionReason(kind, text, data))
