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

# the most members of a box, the members of a chunk, and the fewest nodes of a scope
MAX_MEMBERS: Final = 80
CHUNK: Final = 40
MIN_SCOPE: Final = 3
# deeper scopes of a name are merged into one
_MAX_SCOPES: Final = 32


@dataclass(slots=True, eq=False)
class PictureBox:
    """A box of a picture with its members.

    Kinds are graph, device, frame, scope, chunk, function, call (a node and the functions that it
    calls), cluster (the same for a cluster), and library (functions with several callers). The
    names of members start with `prefix`.
    """

    kind: str
    label: str
    prefix: str = ""
    members: list[Node | PictureBox] = field(default_factory=list)

    def walk(self) -> Iterator[PictureBox]:
        """Yield this box and all inner boxes, outer ones first."""
        stack = [self]
        while stack:
            box = stack.pop()
            yield box
            stack.extend(
                member for member in reversed(box.members) if isinstance(member, PictureBox)
            )


BoxStep = tuple[str, str, str]  # kind, label, prefix


def group_into_boxes(
    top: PictureBox, nodes: Sequence[Node], frames: Frames, device_of: Callable[[Node], str] | None
) -> PictureBox:
    """Put nodes into boxes inside `top`: by device if `device_of` is given, loop, and scope.

    The prefixes of inner boxes start with the prefix of `top`.
    """
    paths, head = _BoxPaths(nodes, frames, device_of), top.prefix
    boxes: dict[tuple[PictureBox, BoxStep], PictureBox] = {}
    for node in nodes:
        box = top
        for step in paths.of(node):
            child = boxes.get((box, step))
            if child is None:
                kind, label, prefix = step
                child = boxes[box, step] = PictureBox(kind, label, head + prefix)
                box.members.append(child)
            box = child
        box.members.append(node)
    positions = {node: position for position, node in enumerate(frames.order)}
    _merge_small_scopes(top)
    _order_and_split(top, positions, head)
    return top


class _BoxPaths:
    """Paths from the outermost box to each node."""

    def __init__(
        self, nodes: Iterable[Node], frames: Frames, device_of: Callable[[Node], str] | None
    ) -> None:
        self.frames = frames
        self.device_of = device_of
        self.shared: dict[tuple[str, Frame], list[str]] = {}
        self._frames: dict[tuple[str, Frame], tuple[list[BoxStep], list[str]]] = {}
        for node in nodes:
            self._share(self._device(node), frames.of[node], _scopes(node.name))

    def _device(self, node: Node) -> str:
        return self.device_of(node) if self.device_of else ""

    def _share(self, device: str, frame: Frame | None, scopes: list[str]) -> None:
        """Shorten the common scopes of a loop on a device to those shared with this node."""
        while frame is not None and frame is not self.frames.root:
            have = self.shared.get((device, frame))
            common = scopes if have is None else _common_prefix(have, scopes)
            if have is not None and len(common) == len(have):
                return
            self.shared[device, frame] = common
            frame = frame.parent

    def of(self, node: Node) -> list[BoxStep]:
        """Return the boxes of a node: device, then scopes and loops; scopes enclose their loops."""
        device, frame = self._device(node), self.frames.of[node]
        steps, inside = self._of_frame(device, frame)
        return [*steps, *_scope_steps(inside, _scopes(node.name))]

    def _of_frame(self, device: str, frame: Frame) -> tuple[list[BoxStep], list[str]]:
        """Return the boxes around a frame, and the scopes that they cover."""
        known = self._frames.get((device, frame))
        if known is not None:
            return known
        chain: list[Frame] = []
        outer: Frame | None = frame
        while outer is not None and outer is not self.frames.root:
            chain.append(outer)
            outer = outer.parent
        steps: list[BoxStep] = [("device", device, "")] if device else []
        used: list[str] = []
        for inner in reversed(chain):
            shared = self.shared[device, inner]
            steps += _scope_steps(used, shared)
            steps.append(("frame", inner.name, "/".join([*shared, ""])))
            used = shared
        self._frames[device, frame] = steps, used
        return steps, used


def _scopes(name: str) -> list[str]:
    """Return the scopes of a node's name."""
    return name.split("/", _MAX_SCOPES)[:-1]


def _scope_steps(inside: list[str], scopes: list[str]) -> Iterator[BoxStep]:
    """Yield the boxes of the scopes that `inside` does not cover."""
    for end in range(len(inside), len(scopes)):
        yield "scope", scopes[end], "/".join([*scopes[: end + 1], ""])


def _common_prefix(first: list[str], second: list[str]) -> list[str]:
    size = 0
    for left, right in zip(first, second, strict=False):
        if left != right:
            break
        size += 1
    return first[:size]


def _merge_small_scopes(top: PictureBox) -> None:
    """Dissolve scopes of few nodes, and merge scopes whose only member is a scope."""
    for box in reversed(list(top.walk())):
        members: list[Node | PictureBox] = []
        for member in box.members:
            if (
                isinstance(member, PictureBox)
                and member.kind == "scope"
                and _is_redundant_scope(member)
            ):
                members.extend(member.members)
            else:
                members.append(member)
        box.members = members
        only = members[0] if len(members) == 1 else None
        if isinstance(only, PictureBox) and only.kind == "scope" and box.kind in ("scope", "frame"):
            box.label = f"{box.label}/{only.label}" if box.kind == "scope" else box.label
            box.prefix, box.members = only.prefix, only.members


def _is_redundant_scope(scope: PictureBox) -> bool:
    """True for a scope of few nodes, or of a single loop with the same name."""
    inner = [member.kind for member in scope.members if isinstance(member, PictureBox)]
    return inner == ["frame"] * len(scope.members) or (not inner and len(scope.members) < MIN_SCOPE)


def _order_and_split(top: PictureBox, positions: dict[Node, int], head: str) -> None:
    """Sort members topologically, and split large boxes into chunks."""
    first: dict[Node | PictureBox, int] = {}
    for box in reversed(list(top.walk())):
        for member in box.members:
            if not isinstance(member, PictureBox):
                first[member] = positions.get(member, len(positions))
        box.members.sort(key=first.__getitem__)
        first[box] = first[box.members[0]] if box.members else len(positions)
        split_into_chunks(box, head)


def split_into_chunks(box: PictureBox, head: str = "") -> None:
    """Split a box with too many members; `head` is the part of the prefix that node names lack."""
    while len(box.members) > MAX_MEMBERS:
        box.members = list(_chunks(box, head))


def _chunks(box: PictureBox, head: str) -> Iterator[PictureBox]:
    """Yield the fewest chunks of about equal size."""
    members = box.members
    count = -(-len(members) // CHUNK)
    for index in range(count):
        chunk = members[index * len(members) // count : (index + 1) * len(members) // count]
        prefix = box.prefix.removeprefix(head)
        label = f"{_end_label(chunk[0], prefix, 0)} … {_end_label(chunk[-1], prefix, -1)}"
        yield PictureBox("chunk", label, box.prefix, chunk)


def _end_label(member: Node | PictureBox, prefix: str, side: int) -> str:
    """Return the label of the first or last member of a chunk."""
    while isinstance(member, PictureBox) and member.kind == "chunk":
        member = member.members[side]
    return member.label if isinstance(member, PictureBox) else member.name.removeprefix(prefix)
