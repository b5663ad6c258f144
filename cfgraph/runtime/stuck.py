"""Why a run came to rest while some Recv waits: its key and tag, and what keeps its Send back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cfgraph.errors import ExecutionError
from cfgraph.runtime.executor import Executor
from cfgraph.runtime.rendezvous import Rendezvous

MAX_LISTED: Final = 8


def stuck(executors: Sequence[Executor], rendezvous: Rendezvous) -> ExecutionError:
    """The error of a run in which Recvs wait for messages that nobody will send."""
    lines = [f"{key} in {waiting.iteration.path}" for key, waiting in rendezvous.waiting()]
    message = "nothing is left to run, but Recvs wait: " + "; ".join(lines)
    return ExecutionError(message, code="CFG708")
