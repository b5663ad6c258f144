"""Reports on loops, conditionals, and lists, and the reason why one keeps its form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cfgraph.ir.graph import Node

# codes of the kinds of reasons why a region is no functional node
REJECTION_CODES: Final[Mapping[str, str]] = {
    "form": "CFG601",
    "conditional": "CFG602",
    "inner loop": "CFG602",
    "entered apart": "CFG603",
    "effects": "CFG604",
    "dead value": "CFG605",
    "reference": "CFG606",
    "type": "CFG607",
    "fed": "CFG608",
    "tangled loops": "CFG609",
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
    "reference": "a reference crosses the boundary of a function",
    "dead value": "a fetch inside may be dead",
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


@dataclass(frozen=True, slots=True)
class RegionReport:
    """Report on a loop, conditional, or list: the node that replaced it, or the reason for none.

    `ops` maps the name of each node, also of inner regions, to its op. `name` is the path of a
    loop's frame, the first Merge of a conditional, or the node that creates a list.
    """

    kind: str
    name: str
    ops: Mapping[str, str]
    replacement: Node | None = None
    reason: RejectionReason | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the region as a member of the JSON document of `cluster`."""
        return {
            "kind": self.kind,
            "name": self.name,
            "nodes": len(self.ops),
            "clustered": self.replacement is not None,
            "reason": self.reason,
        }

    @property
    def code(self) -> str | None:
        """Return the code of the reason, which `cfgraph explain` describes."""
        return None if self.reason is None else REJECTION_CODES.get(self.reason.kind)

    def to_call_json(self) -> dict[str, Any]:
        """Return the region as a member of the JSON document of `functionalize`."""
        call = self.replacement
        return {
            "kind": self.kind,
            "name": self.name,
            "nodes": len(self.ops),
            "call": None if call is None else {"name": call.name, "op": call.op},
            "reason": None if self.reason is None else {"code": self.code, **self.reason.to_json()},
        }
