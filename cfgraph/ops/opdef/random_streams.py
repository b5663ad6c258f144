"""Streams of random numbers: a pass that moves a random node changes nothing that it draws.

A stateful random node draws from a stream. Its name is the path of the call sites that lead to the
node, and the name of the node: `layer:then:dropout` in the branch of an If `layer`, also once the
If is lowered. The numbers of the iterations around it, without names of frames, are the position
in the stream at which an execution starts; `cfgraph/runtime/engine/random_numbers.py` makes the
key and the counter of them. Two call sites, iterations, or runs draw different numbers.

A pass that copies a random node elsewhere annotates the copy; TensorFlow ignores annotations.

- `_stream` is the name of the stream from the graph or function that the copy is in.
- `_stream_transparent` marks a call that a pass made. What it calls is named as if it were inlined,
  or below the `_stream` of the call.
- `_stream_iterations` has the number of an iteration whose loop is gone, and LIVE for a loop that
  is still there. It stands for as many of the innermost loops as it has LIVE.

Calls of functions that draw are annotated as random nodes are. No pass copies a random node twice,
except into several iterations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple, Protocol

from cfgraph.ir.functions import BodyNode, Function
from cfgraph.ir.graph import Node
from cfgraph.ir.library import body_calls, calls_of
from cfgraph.ops.opdef.facts import CallKind
from cfgraph.ops.opdef.op import lookup

LIVE: Final = -1
STREAM: Final = "_stream"
_TRANSPARENT: Final = "_stream_transparent"
_ITERATIONS: Final = "_stream_iterations"
# no name of a node contains it
_SEPARATOR: Final = ":"
Iterations = tuple[int, ...]


class AnnotatedNode(Protocol):
    """A node, or what a run knows of one."""

    @property
    def name(self) -> str:
        """The name."""

    @property
    def attrs(self) -> Mapping[str, Any]:
        """The attributes."""


class StreamScope(NamedTuple):
    """The call sites that lead to a function or graph, and the iterations that they are in.

    `path` ends with a separator, unless it is empty. `iterations` are numbers, or LIVE for a loop
    of the graph that is written.
    """

    path: str = ""
    iterations: Iterations = ()

    def inside(
        self, call: AnnotatedNode, label: str = "", iteration: int | None = None
    ) -> StreamScope:
        """The scope of a function of a call in this scope.

        `label` says which function; for a loop `iteration` is the one that it runs in, or LIVE.
        """
        names = [stream_name(call), "" if call.attrs.get(_TRANSPARENT) is True else label]
        path = self.path + "".join(name + _SEPARATOR for name in names if name)
        iterations = iterations_of(call, self.iterations)
        more = () if iteration is None else (iteration,)
        return StreamScope(path, _without_outer(iterations + more))

    def annotations(self, node: AnnotatedNode, depth: int = 0) -> dict[str, Any]:
        """The annotations of a copy, outside of this scope, of a node that is in it.

        `depth` is the number of loops around the node, within its function.
        """
        # a call that a pass made may add nothing to the path
        path = (self.path + stream_name(node)).removesuffix(_SEPARATOR)
        loops = self.iterations + (LIVE,) * depth if self.iterations else ()
        return _annotations(path, _without_outer(iterations_of(node, loops)))

    def of_call(self) -> dict[str, Any]:
        """The annotations of a call, outside of this scope, whose function is in it."""
        path = self.path.removesuffix(_SEPARATOR)
        return {**_annotations(path, self.iterations), _TRANSPARENT: True}

    def annotated(
        self, nodes: Iterable[BodyNode], library: Mapping[str, Function]
    ) -> tuple[BodyNode, ...]:
        """The nodes of a function in this scope, whose call is outside."""
        return tuple(
            replace(node, attrs={**node.attrs, **self.annotations(node)}, origin=None)
            if draws(node, library)
            else node
            for node in nodes
        )


# the graph itself
GRAPH: Final = StreamScope()


def _annotations(path: str, iterations: Iterations) -> dict[str, Any]:
    stream = path.encode(errors="backslashreplace")
    return {STREAM: stream, **({_ITERATIONS: iterations} if iterations else {})}


def stream_annotations(node: Node | BodyNode) -> dict[str, Any]:
    """The annotations of a random node or call that say which numbers it draws."""
    keys = (STREAM, _TRANSPARENT, _ITERATIONS)
    return {key: node.attrs[key] for key in keys if key in node.attrs}


def stream_name(node: AnnotatedNode) -> str:
    """The name of the stream of a random node or call, from the function or graph that it is in."""
    name = node.attrs.get(STREAM)
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else node.name


def iterations_of(node: AnnotatedNode, loops: Iterations) -> Iterations:
    """The iterations of a node in `loops`, the numbers of the enclosing loops, outermost first."""
    written = node.attrs.get(_ITERATIONS)
    if not isinstance(written, tuple) or not all(type(number) is int for number in written):
        return loops
    live = written.count(LIVE)
    loops = (LIVE,) * (live - len(loops)) + loops
    inner = iter(loops[len(loops) - live :])
    return loops[: len(loops) - live] + tuple(
        next(inner) if number == LIVE else number for number in written
    )


def call_labels(kind: CallKind, count: int) -> tuple[str, ...]:
    """The labels of the functions that a node calls, in their order."""
    match kind:
        case "while":
            return "cond", "body"
        case "if":
            return "then", "else"
        case "case":
            return tuple(f"branch{index}" for index in range(count))
    return ("",) * count


def _without_outer(iterations: Iterations) -> Iterations:
    """Iterations without the outermost loops that are there; a traced number is none of these."""
    indices = enumerate(iterations)
    numbers = [index for index, number in indices if type(number) is not int or number != LIVE]
    return iterations[numbers[0] :] if numbers else ()


def call_annotations(
    functions: Iterable[Function], library: Mapping[str, Function], scope: StreamScope = GRAPH
) -> dict[str, Any]:
    """The annotations of a call of functions whose random nodes have the streams of a scope.

    Empty if no function draws.
    """
    return scope.of_call() if _any_draws((f.name for f in functions), library) else {}


def draws(node: Node | BodyNode, library: Mapping[str, Function]) -> bool:
    """True for a stateful random node, and for a call of a function with one."""
    op = lookup(node.op)
    if op is not None and not op.calls.kind:
        return op.effects.stateful and op.effects.random
    return STREAM in node.attrs or _any_draws((name for name, _ in calls_of(node)), library)


def _any_draws(names: Iterable[str], library: Mapping[str, Function]) -> bool:
    """True if a name is that of a stateful random op, or of a function with one."""
    todo = dict.fromkeys(names)
    order = [*todo]
    for name in order:
        function = library.get(name)
        if function is not None:
            new = [each for each in body_calls(function) if each not in todo]
            todo.update(dict.fromkeys(new))
            order += new
        elif (op := lookup(name)) is not None and op.effects.stateful and op.effects.random:
            return True
    return False
