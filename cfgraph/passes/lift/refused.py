"""Why a region cannot be raised."""

from __future__ import annotations

from cfgraph.passes.cluster.reasons import Reason


class Refused(Exception):
    """A region cannot be raised, for this reason."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.text)
        self.reason = reason


def refused(kind: str, text: str, **data: object) -> Refused:
    """The error for a kind of reason; `data` has the parts of the text."""
    return Refused(Reason(kind, text, data))
