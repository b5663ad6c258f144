"""Which nodes run under the same conditions, by one of four rules.

`exact` proves it. `inputs` is the rule of the second seed: a node whose inputs may differ stays
out, so that along edges all are alike. `tf` takes what TensorFlow takes for equal; `off` does not
ask, which can change what is live.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cfgraph.analysis.deadness.deadness import Deadness, TokenSource, deadness
from cfgraph.analysis.deadness_tf import deadness_tf
from cfgraph.analysis.loops.frames import Frames, frames
from cfgraph.errors import InvalidInput, UsageError
from cfgraph.ir.graph import CONTROL, Graph, Node, Output

MODES: Final = ("exact", "inputs", "tf", "off")
_LONGEST: Final = 120


@dataclass(frozen=True, slots=True)
class Agreement:
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
    suits: Callable[[Node], bool] = lambda node: True
    limits: Callable[[], tuple[str, ...]] = tuple


def require_mode(mode: str) -> None:
    """Raise UsageError for a rule that there is not."""
    if mode not in MODES:
        message = f"there is no way to judge deadness called {mode!r}"
        raise UsageError(message, hint=f"one of {', '.join(MODES)}")


def agreement(graph: Graph, mode: str) -> Agreement:
    """The answers of a rule about a graph.

    Raises UsageError for a rule that there is not, InvalidInput for a graph without an order.
    """
    require_mode(mode)
    if mode == "off":
        return Agreement(mode, _valid(graph), _yes, lambda node: "", _yes, _yes)
    if mode == "tf":
        theirs = deadness_tf(graph)
        return Agreement(
            mode,
            _valid(graph),
            lambda one, other: theirs.equal(Output(one, CONTROL), Output(other, CONTROL)),
            lambda node: _cut(theirs.text(Output(node, CONTROL))),
            lambda one, other: theirs.equal(_output(one), _output(other)),
            lambda one, other: theirs.equal(_output(one), _output(other)),
        )
    found = deadness(graph)
    told = Agreement(
        mode,
        found.frames,
        found.equal,
        lambda node: _cut(found.text(found.of_control(node))),
        found.equal,
        found.implies,
        limits=lambda: found.limits,
    )
    return told if mode == "exact" else _by_inputs(told, found)


def _by_inputs(told: Agreement, found: Deadness) -> Agreement:
    return Agreement(
        told.mode,
        told.frames,
        told.alike,
        told.text,
        told.same,
        told.implies,
        lambda node: not found.has_mismatched_inputs(node),
        told.limits,
    )


def _yes(one: TokenSource, other: TokenSource) -> bool:
    return True


def _output(place: TokenSource) -> Output:
    return place if isinstance(place, Output) else Output(place, CONTROL)


def _valid(graph: Graph) -> Frames:
    found = frames(graph)
    found.require_valid()
    if found.cycles:
        message = "nodes wait for each other in a cycle"
        raise InvalidInput(message, node=found.cycles[0][0], code="CFG109")
    return found


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
