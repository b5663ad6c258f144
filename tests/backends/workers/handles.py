"""The worker processes of a session."""

from __future__ import annotations

from collections.abc import Sequence

import cfgraph
from cfgraph.backends.workers.engine import WorkerEngine
from cfgraph.backends.workers.workers import WorkerHandle


def worker_handles(session: cfgraph.Session) -> Sequence[WorkerHandle]:
    """The handles of the workers that a session has started."""
    assert isinstance(session._engine, WorkerEngine)
    return session._engine.workers.handles


def shared_prefix(session: cfgraph.Session) -> str:
    """The start of the names of arrays in shared memory between the workers of a session."""
    assert isinstance(session._engine, WorkerEngine)
    shared = session._engine.workers._shared
    assert shared is not None
    return shared._prefix
