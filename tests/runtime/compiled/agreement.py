"""Comparison of a run of generated code with the same run of the token executor, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cfgraph.errors import CfgraphError
from cfgraph.ir.graph import Graph
from cfgraph.ir.role import RECV, SEND
from cfgraph.ops.opdef.op import is_functional, role_of
from cfgraph.runtime.engine.step import State
from cfgraph.runtime.session import Session

ENGINES = ("tokens", "compiled")


def difference(a: Any, b: Any) -> str:
    """The difference between two values in type, shape, or bytes, or ``."""
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


def outcome(session: Session, *arguments: Any, **options: Any) -> Any:
    """The values of a run, or the description of its error."""
    try:
        return session.run(*arguments, **options)
    except CfgraphError as error:
        return described(error)


def disagreement(a: Any, b: Any) -> Any:
    """The differences between two outcomes, empty if there is none."""
    if isinstance(a, tuple) or isinstance(b, tuple):
        return () if a == b else (a, b)
    return [text for text in map(difference, a, b) if text]


def is_straight_line(graph: Graph) -> bool:
    """True for a graph without control flow but messages, and without calls of functions."""
    roles = {role_of(node) for node in graph}
    return roles <= {None, SEND, RECV} and not is_functional(graph, graph)


class Pair:
    """Two sessions of one graph, of either engine, with variables of their own.

    A third one chooses the engine, which interprets the first run of a graph without control flow.
    """

    def __init__(
        self, make: Callable[[], Graph], states: dict[str, State] | None = None, **options: Any
    ):
        states = {} if states is None else states
        engines = (*ENGINES, "auto") if is_straight_line(make()) else ENGINES
        self.sessions = {
            engine: Session(
                make(), engine=engine, state=states.setdefault(engine, State()), **options
            )
            for engine in engines
        }

    @property
    def fallback(self) -> str:
        """The reason why the run was not compiled, or ``."""
        return self.sessions["compiled"].fallback

    def run(
        self, fetches: Sequence[str], feeds: Any = None, targets: Any = (), **options: Any
    ) -> Any:
        """Run all and assert that they agree; returns the values, or the error's description."""
        tokens, compiled, *auto = self.outcomes(fetches, feeds, targets, **options)
        assert not disagreement(tokens, compiled)
        assert not auto or not disagreement(tokens, auto[0])
        return compiled

    def outcomes(
        self, fetches: Sequence[str], feeds: Any = None, targets: Any = (), **options: Any
    ) -> list[Any]:
        """Run all; the values, or the error's description, of each."""
        return [
            outcome(session, fetches, feeds, targets, **options)
            for session in self.sessions.values()
        ]
