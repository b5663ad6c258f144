"""Rules that decide whether two nodes are live under the same condition.

exact    proves it with the deadness analysis
inputs   also excludes every node whose inputs may differ in liveness, so that nodes connected
         by edges have equal liveness
off      skips the check, which may change the set of live nodes"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from cfgraph.analysis.deadness.deadness import Deadness, TokenSource, deadness
from cfgraph.analysis.loops.frame import Frames
from cfgraph.analysis.loops.frames import valid_frames
from cfgraph.errors import UsageError
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.registry import ROLES

LIVENESS_MODES: Final = ("exact", "inputs", "off")
_MAX_CONDITION_LENGTH: Final = 120


@dataclass(frozen=True, slots=True)
class LivenessRule:
    """Queries of one rule about one graph.

    `same_liveness` compares two nodes of one frame; `condition` describes the liveness of a node.
    `equal` and `implies` compare outputs, or nodes for their control edges. `is_candidate` is
    false for a node that the rule excludes by itself. `limits` describes what the
    analysis did not decide, and therefore considered different.
    """

    mode: str
    frames: Frames
    same_liveness: Callable[[Node, Node], bool]
    condition: Callable[[Node], str]
    equal: Callable[[TokenSource, TokenSource], bool]
    implies: Callable[[TokenSource, TokenSource], bool]
    is_candidate: Callable[[Node], bool] = lambda node: True
    limits: Callable[[], tuple[str, ...]] = tuple


def require_liveness_mode(mode: str) -> None:
    """Raise UsageError for an unknown mode."""
    if mode not in LIVENESS_MODES:
        message = f"unknown deadness mode {mode!r}"
        raise UsageError(message, hint=f"use one of {', '.join(LIVENESS_MODES)}")


def liveness_rule(graph: Graph, mode: str) -> LivenessRule:
    """Return the rule of a mode for a graph.

    Without primitives of control flow every node is always live. Raises UsageError for an unknown
    mode, InvalidInput for a graph with an invalid cycle.
    """
    require_liveness_mode(mode)
    if mode == "off" or not any(map(ROLES.__getitem__, graph.ops)):
        text = "" if mode == "off" else "true"
        return LivenessRule(mode, valid_frames(graph), _always, lambda node: text, _always, _always)
    conditions = deadness(graph)
    exact = LivenessRule(
        mode,
        conditions.frames,
        conditions.equal,
        lambda node: _truncated(conditions.text(conditions.of_control(node))),
        conditions.equal,
        conditions.implies,
        limits=lambda: conditions.limits,
    )
    return exact if mode == "exact" else _without_mismatched_inputs(exact, conditions)


def _without_mismatched_inputs(exact: LivenessRule, conditions: Deadness) -> LivenessRule:
    return replace(exact, is_candidate=lambda node: not conditions.has_mismatched_inputs(node))


def _always(a: TokenSource, b: TokenSource) -> bool:
    return True


def _truncated(text: str) -> str:
    return text if len(text) <= _MAX_CONDITION_LENGTH else f"{text[: _MAX_CONDITION_LENGTH - 1]}…"
