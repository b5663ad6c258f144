"""Reports on loops, conditionals, and lists, and the reason why one keeps its form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from cfgraph.ir.graph import Node
from cfgraph.reports import Column, Count, Inline, Keywords

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


@dataclass(frozen=True, slots=True)
class RejectionReason:
    """A kind of reason with its details; `data` contains the parts of `text`."""

    kind: Annotated[str, Column(title="reason")]
    text: Annotated[str, Column(title="detail")]
    data: Annotated[Inline[Mapping[str, Any]], Keywords(size=Count, conditions=Sequence[str])] = (
        field(default_factory=dict)
    )


class RegionRejected(Exception):
    """The reason why a region keeps its form."""

    def __init__(self, reason: RejectionReason) -> None:
        super().__init__(reason.text)
        self.reason = reason


def region_rejected(kind: str, text: str, **data: object) -> RegionRejected:
    """Return the error for a kind of reason; `data` contains the parts of the text."""
    return RegionRejected(RejectionReason(kind, text, data))


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

    @property
    def code(self) -> str | None:
        """Return the code of the reason, which `cfgraph explain` describes."""
        return None if self.reason is None else REJECTION_CODES.get(self.reason.kind)
