"""The rules that decide whether two nodes are live under the same condition.

`exact` proves it. `inputs` excludes every node whose inputs may differ in liveness, so that nodes
connected by edges have equal liveness. `tf` is TensorFlow's own analysis. `off` skips the check,
which can change which nodes are live."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cfgraph.analysis.deadness.deadness import Deadness, TokenSource, deadness
from cfgraph.analysis.deadness_tf import deadness_tf
from cfgraph.analysis.loops.frames import Frames, frames
from cfgraph.errors import InvalidInput, UsageError
from cfgraph.ir.graph import CONTROL, Graph, Node, Output

LIVENESS_MODES: Final = ("exact", "inputs", "tf", "off")
_MAX_CONDITION_LENGTH: Final = 120


@dataclass(frozen=True, slots=True)
class LivenessRule:
    """Answers of a rule: `alike` of two nodes of one frame, and a node's condition as a text.

    `same` and `implies` are of two places, each an output, or a node for its control edges.

    `suits` is false for a node that the rule keeps out by itself. `limits` says in words what was
    not decided, and so taken to differ.
    """

    mode: str
    frames: Frames
    alike: Callable[[Node, Node], bool]
    text: Callable[[Node], str]
    same: Callable[[TokenSource, TokenSource], bool]
    implies: Callable[[TokenSource, TokenSource], bool]
    is_candidate: Callable[[Node], bool] = lambda node: True
    limits: Callable[[], tuple[str, ...]] = tuple


def require_liveness_mode(mode: str) -> None:
    """Raise UsageError for a rule that there is not."""
    if mode not in LIVENESS_MODES:
        message = f"there is no way to judge deadness called {mode!r}"
        raise UsageError(message, hint=f"one of {', '.join(LIVENESS_MODES)}")


def liveness_rule(graph: Graph, mode: str) -> LivenessRule:
    """The answers of a rule about a graph.

    Raises UsageError for a rule that there is not, InvalidInput for a graph without an order.
    """
    require_liveness_mode(mode)
    if mode == "off":
        return LivenessRule(mode, _valid_frames(graph), _always, lambda node: "", _always, _always)
    if mode == "tf":
        theirs = deadness_tf(graph)
        return LivenessRule(
            mode,
            _valid_frames(graph),
            lambda one, other: theirs.equal(Output(one, CONTROL), Output(other, CONTROL)),
            lambda node: _truncated(theirs.text(Output(node, CONTROL))),
            lambda one, other: theirs.equal(_as_output(one), _as_output(other)),
            lambda one, other: theirs.equal(_as_output(one), _as_output(other)),
        )
    found = deadness(graph)
    told = LivenessRule(
        mode,
        found.frames,
        found.equal,
        lambda node: _truncated(found.text(found.of_control(node))),
        found.equal,
        found.implies,
        limits=lambda: found.limits,
    )
    return told if mode == "exact" else _without_mismatched_inputs(told, found)


def _without_mismatched_inputs(told: LivenessRule, found: Deadness) -> LivenessRule:
    return LivenessRule(
        told.mode,
        told.frames,
        told.alike,
        told.text,
        told.same,
        told.implies,
        lambda node: not found.has_mismatched_inputs(node),
        told.limits,
    )


def _always(one: TokenSource, other: TokenSource) -> bool:
    return True


def _as_output(place: TokenSource) -> Output:
    return place if isinstance(place, Output) else Output(place, CONTROL)


def _valid_frames(graph: Graph) -> Frames:
    found = frames(graph)
    found.require_valid()
    if found.cycles:
        message = "nodes wait for each other in a cycle"
        raise InvalidInput(message, node=found.cycles[0][0], code="CFG109")
    return found


def _truncated(text: str) -> str:
    return text if len(text) <= _MAX_CONDITION_LENGTH else f"{text[: _MAX_CONDITION_LENGTH - 1]}…"
