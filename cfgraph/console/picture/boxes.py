"""Nested boxes of a picture: devices, loops, name scopes, and chunks.

The members of a box are in data-flow order. A box with too many members is split into runs of
similar names, or else into chunks of consecutive members, so that a graph of any size opens as a
few boxes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import groupby
from typing import Final

from cfgraph.analysis.loops.frame import Frame, Frames
from cfgraph.ir.graph import Node
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import MERGE, NEXT_ITERATION

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
        for step in paths.path_to(node):
            child = boxes.get((box, step))
            if child is None:
                kind, label, prefix = step
                child = boxes[box, step] = PictureBox(kind, label, head + prefix)
                box.members.append(child)
            box = child
        box.members.append(node)
    positions = {node: position for position, node in enumerate(frames.order)}
    _merge_small_scopes(top)
    _MemberOrder(top, positions).sort()
    for box in reversed(list(top.walk())):
        split_large_box(box, head)
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

    def path_to(self, node: Node) -> list[BoxStep]:
        """Return the boxes of a node: device, then scopes and loops; scopes enclose their loops."""
        device, frame = self._device(node), self.frames.of[node]
        steps, inside = self._frame_path(device, frame)
        return [*steps, *_scope_steps(inside, _scopes(node.name))]

    def _frame_path(self, device: str, frame: Frame) -> tuple[list[BoxStep], list[str]]:
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


Member = Node | PictureBox


class _MemberOrder:
    """Data-flow order of the members of each box."""

    def __init__(self, top: PictureBox, positions: Mapping[Node, int]) -> None:
        self.boxes = list(top.walk())
        self.last = len(positions)
        self.positions = positions
        self.outer: dict[Member, PictureBox] = {}
        self.depth: dict[PictureBox, int] = {top: 0}
        for box in self.boxes:
            for member in box.members:
                self.outer[member] = box
                if isinstance(member, PictureBox):
                    self.depth[member] = self.depth[box] + 1

    def sort(self) -> None:
        """Sort the members of all boxes; members of a cycle by their first nodes."""
        first: dict[Member, int] = {}
        for box in reversed(self.boxes):
            for member in box.members:
                if not isinstance(member, PictureBox):
                    first[member] = self.positions.get(member, self.last)
            first[box] = min((first[member] for member in box.members), default=self.last)
        readers = self._readers()
        for box in self.boxes:
            box.members = _data_flow_order(box.members, readers, first)

    def _readers(self) -> dict[Member, set[Member]]:
        """Return the members of the same box that read each member, or nodes in it."""
        readers: dict[Member, set[Member]] = {}
        for node in self.outer:
            if isinstance(node, PictureBox):
                continue
            merges = ROLES[node.op] is MERGE
            sources = [
                item.node
                for item in node.inputs
                if not (merges and ROLES[item.node.op] is NEXT_ITERATION)
            ]
            for source in (*sources, *node.controls):
                if source in self.outer:
                    left, right = self._siblings(source, node)
                    if left is not right:
                        readers.setdefault(left, set()).add(right)
        return readers

    def _siblings(self, left: Member, right: Member) -> tuple[Member, Member]:
        """Return the members of the innermost common box that are, or contain, two nodes."""
        depths = [self.depth[self.outer[left]], self.depth[self.outer[right]]]
        while self.outer[left] is not self.outer[right]:
            if depths[0] >= depths[1]:
                left, depths[0] = self.outer[left], depths[0] - 1
            else:
                right, depths[1] = self.outer[right], depths[1] - 1
        return left, right


def _data_flow_order(
    members: Sequence[Member], readers: Mapping[Member, set[Member]], first: Mapping[Member, int]
) -> list[Member]:
    """Order members so that sources precede readers, else by position."""
    missing = dict.fromkeys(members, 0)
    for member in members:
        for reader in readers.get(member, ()):
            missing[reader] += 1
    index = {member: (first[member], number) for number, member in enumerate(members)}
    ready = [index[member] for member in members if not missing[member]]
    heapify(ready)
    rest = iter(sorted(members, key=index.__getitem__))
    ordered: dict[Member, None] = {}
    while len(ordered) < len(members):
        if ready:
            member = members[heappop(ready)[1]]
        else:  # a cycle: continue with its first member
            member = next(member for member in rest if member not in ordered)
        if member in ordered:
            continue
        ordered[member] = None
        for reader in readers.get(member, ()):
            missing[reader] -= 1
            if not missing[reader] and reader not in ordered:
                heappush(ready, index[reader])
    return list(ordered)


def split_large_box(box: PictureBox, head: str = "") -> None:
    """Split a box with too many members; `head` is the part of the prefix that node names lack."""
    if len(box.members) > MAX_MEMBERS:
        box.members = _runs_of_names(box, head) or box.members
    while len(box.members) > MAX_MEMBERS:
        box.members = list(_chunks(box, head))


# words of a name, as in block_12_expand
_WORD: Final = re.compile(r"[^_/]+[_/]*")
_MAX_WORDS: Final = 4


def _runs_of_names(box: PictureBox, head: str) -> list[Member]:
    """Return the members with a box around consecutive ones whose names start with equal words.

    Uses as few words as possible; empty if no number of words yields boxes of suitable size.
    """
    prefix = box.prefix.removeprefix(head)
    words = {member: _WORD.findall(_end_label(member, prefix, 0)) for member in box.members}
    for count in range(1, _MAX_WORDS + 1):
        starts = {member: "".join(words[member][:count]) for member in box.members}
        runs = [(start, list(run)) for start, run in groupby(box.members, starts.__getitem__)]
        members: list[Member] = []
        for start, run in runs:
            if len(run) < MIN_SCOPE:
                members += run
            else:
                members.append(PictureBox("scope", start.rstrip("_/"), box.prefix + start, run))
        sizes = [len(run) for _, run in runs]
        if len(members) <= MAX_MEMBERS and max(sizes) <= CHUNK:
            return members
    return []


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
