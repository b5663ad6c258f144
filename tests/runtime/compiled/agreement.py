"""Comparison of a run of generated code with the same run of the token executor, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cfgraph.errors import CfgraphError
from cfgraph.ir.graph import Graph
from cfgraph.runtime.engine.step import State
from cfgraph.runtime.session import Session

ENGINES = ("tokens", "compiled")


def difference(a: Any, b: Any) -> str:
    """What differs between two values in type, shape, or bytes, or ``."""
    if type(a) is not type(b):
        return f"{type(a).__name__} and {type(b).__name__}"
    if not isinstance(a, np.ndarray | np.generic):
        return ""
    if a.dtype != b.dtype or a.shape != b.shape:
        return f"{a.dtype}{a.shape} and {b.dtype}{b.shape}"
    same = a.tolist() == b.tolist() if a.dtype == object else a.tobytes() == b.tobytes()
    return "" if same else f"{a!r} and {b!r}"


def described(error: CfgraphError) -> tuple[Any, ...]:
    """Everything that an error says."""
    facts = (error.code, error.message, error.node, error.frame, error.device, error.hint)
    return type(error).__name__, *facts


class Pair:
    """Two sessions of one graph, of either engine, with variables of their own."""

    def __init__(
        self, make: Callable[[], Graph], states: dict[str, State] | None = None, **options: Any
    ):
        states = states or {engine: State() for engine in ENGINES}
        self.sessions = {
            engine: Session(make(), engine=engine, state=states[engine], **options)
            for engine in ENGINES
        }

    @property
    def fallback(self) -> str:
        """The reason why the run was not compiled, or ``."""
        return self.sessions["compiled"].fallback

    def run(
        self, fetches: Sequence[str], feeds: Any = None, targets: Any = (), **options: Any
    ) -> Any:
        """Run both and assert that they agree; returns the values, or the error's description."""
        outcomes = []
        for session in self.sessions.values():
            try:
                outcomes.append(session.run(fetches, feeds, targets, **options))
            except CfgraphError as error:
                outcomes.append(described(error))
        tokens, compiled = outcomes
        if isinstance(tokens, tuple) or isinstance(compiled, tuple):
            assert tokens == compiled
        else:
            differences = list(map(difference, tokens, compiled))
            assert not any(differences), differences
        return compiled
