"""Nested boxes of a picture: devices, loops, name scopes, and chunks.

A box with too many members is split into chunks that are consecutive in topological order, so that
a graph of any size opens as a few boxes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from cfgraph.analysis.loops.frames import Frame, Frames
from cfgraph.ir.graph import Node

# more members a box may not have, chunks of it have so many, and fewer nodes are no scope
MAX_MEMBERS: Final = 80
CHUNK: Final = 40
MIN_SCOPE: Final = 3
# a name of more parts has its last ones in one scope
_MAX_SCOPES: Final = 32


@dataclass(slots=True, eq=False)
class PictureBox:
    """A box: its kind, which a page draws it by, and what is in it.

    Kinds are graph, device, frame, scope, chunk, function, call (a node with the functions that it
    calls), cluster (the same, of a cluster) and library (functions that are called from elsewhere).
    `prefix` is what the names of the members begin with.
    """

    kind: str
    label: str
    prefix: str = ""
    members: list[Node | PictureBox] = field(default_factory=list)

    def walk(self) -> Iterator[PictureBox]:
        """This box and those in it, outer ones first, in the order of members."""
        stack = [self]
        while stack:
            here = stack.pop()
            yield here
            stack.extend(one for one in reversed(here.members) if isinstance(one, PictureBox))


BoxStep = tuple[str, str, str]  # kind, label, prefix


def group_into_boxes(
    top: PictureBox, nodes: Sequence[Node], found: Frames, device_of: Callable[[Node], str] | None
) -> PictureBox:
    """Put nodes into boxes within `top`: by device if `device_of` tells it, loop and scope.

    What the names of `top` begin with, those of the boxes in it begin with too.
    """
    paths, head = _BoxPaths(nodes, found, device_of), top.prefix
    boxes: dict[tuple[PictureBox, BoxStep], PictureBox] = {}
    for node in nodes:
        here = top
        for step in paths.of(node):
            below = boxes.get((here, step))
            if below is None:
                kind, label, prefix = step
                below = boxes[here, step] = PictureBox(kind, label, head + prefix)
                here.members.append(below)
            here = below
        here.members.append(node)
    places = {node: place for place, node in enumerate(found.order)}
    _merge_small_scopes(top)
    _order_and_split(top, places, head)
    return top


class _BoxPaths:
    """The way from the outermost box to each node."""

    def __init__(
        self, nodes: Iterable[Node], found: Frames, device_of: Callable[[Node], str] | None
    ) -> None:
        self.found = found
        self.device_of = device_of
        self.shared: dict[tuple[str, Frame], list[str]] = {}
        self._frames: dict[tuple[str, Frame], tuple[list[BoxStep], list[str]]] = {}
        for node in nodes:
            self._share(self._device(node), found.of[node], _scopes(node.name))

    def _device(self, node: Node) -> str:
        return self.device_of(node) if self.device_of else ""

    def _share(self, device: str, frame: Frame | None, scopes: list[str]) -> None:
        """Shorten what a loop's nodes on a device have in common, as this node is one of them."""
        while frame is not None and frame is not self.found.root:
            have = self.shared.get((device, frame))
            common = scopes if have is None else _common_prefix(have, scopes)
            if have is not None and len(common) == len(have):
                return
            self.shared[device, frame] = common
            frame = frame.parent

    def of(self, node: Node) -> list[BoxStep]:
        """The boxes of a node: device, then scopes and loops, a loop in the scope of its names."""
        device, frame = self._device(node), self.found.of[node]
        steps, inside = self._of_frame(device, frame)
        return [*steps, *_scope_steps(inside, _scopes(node.name))]

    def _of_frame(self, device: str, frame: Frame) -> tuple[list[BoxStep], list[str]]:
        """The boxes around what runs in a frame, and the scopes that they have used up."""
        known = self._frames.get((device, frame))
        if known is not None:
            return known
        chain: list[Frame] = []
        here: Frame | None = frame
        while here is not None and here is not self.found.root:
            chain.append(here)
            here = here.parent
        steps: list[BoxStep] = [("device", device, "")] if device else []
        inside: list[str] = []
        for one in reversed(chain):
            shared = self.shared[device, one]
            steps += _scope_steps(inside, shared)
            steps.append(("frame", one.name, "/".join([*shared, ""])))
            inside = shared
        self._frames[device, frame] = steps, inside
        return steps, inside


def _scopes(name: str) -> list[str]:
    """The scopes in a node's name."""
    return name.split("/", _MAX_SCOPES)[:-1]


def _scope_steps(inside: list[str], scopes: list[str]) -> Iterator[BoxStep]:
    """The boxes of scopes, from those on that we are in."""
    for end in range(len(inside), len(scopes)):
        yield "scope", scopes[end], "/".join([*scopes[: end + 1], ""])


def _common_prefix(one: list[str], other: list[str]) -> list[str]:
    size = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        size += 1
    return one[:size]


def _merge_small_scopes(top: PictureBox) -> None:
    """Let scopes of a few nodes go, and join those that hold nothing but another one."""
    for box in reversed(list(top.walk())):
        members: list[Node | PictureBox] = []
        for one in box.members:
            if isinstance(one, PictureBox) and one.kind == "scope" and _is_redundant_scope(one):
                members.extend(one.members)
            else:
                members.append(one)
        box.members = members
        only = members[0] if len(members) == 1 else None
        if isinstance(only, PictureBox) and only.kind == "scope" and box.kind in ("scope", "frame"):
            box.label = f"{box.label}/{only.label}" if box.kind == "scope" else box.label
            box.prefix, box.members = only.prefix, only.members


def _is_redundant_scope(scope: PictureBox) -> bool:
    """True for a scope of a few nodes, or of one loop, which tells the name itself."""
    inner = [one.kind for one in scope.members if isinstance(one, PictureBox)]
    return inner == ["frame"] * len(scope.members) or (not inner and len(scope.members) < MIN_SCOPE)


def _order_and_split(top: PictureBox, places: dict[Node, int], head: str) -> None:
    """Bring members into topological order, and make chunks of too many."""
    first: dict[Node | PictureBox, int] = {}
    for box in reversed(list(top.walk())):
        for one in box.members:
            if not isinstance(one, PictureBox):
                first[one] = places.get(one, len(places))
        box.members.sort(key=first.__getitem__)
        first[box] = first[box.members[0]] if box.members else len(places)
        split_into_chunks(box, head)


def split_into_chunks(box: PictureBox, head: str = "") -> None:
    """Make chunks of too many members; with `head` the names begin that are not in the nodes."""
    while len(box.members) > MAX_MEMBERS:
        box.members = list(_chunks(box, head))


def _chunks(box: PictureBox, head: str) -> Iterator[PictureBox]:
    """The members of a box in as few chunks as will do, of about the same size."""
    members = box.members
    count = -(-len(members) // CHUNK)
    for place in range(count):
        part = members[place * len(members) // count : (place + 1) * len(members) // count]
        prefix = box.prefix.removeprefix(head)
        label = f"{_end_label(part[0], prefix, 0)} … {_end_label(part[-1], prefix, -1)}"
        yield PictureBox("chunk", label, box.prefix, part)


def _end_label(one: Node | PictureBox, prefix: str, side: int) -> str:
    """What a chunk that begins, or ends, with this member is named by."""
    while isinstance(one, PictureBox) and one.kind == "chunk":
        one = one.members[side]
    return one.label if isinstance(one, PictureBox) else one.name.removeprefix(prefix)
