"""Order of the generated code: a list schedule that opens few conditionals.

The items of a frame are its nodes, its tests, the inputs of its Merges, and its child frames. An
item is ready once everything that it needs has been written. Ready items of the open class come
first, in the topological order of the graph, then those in its branches; a branch is left when
nothing in it is ready.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush

from cfgraph.runtime.compiled.liveness_classes import Literal, Liveness


class Item:
    """A piece of generated code, and the items that need it first.

    A silent item has no code and is done once it is ready, whatever class is open.
    """

    __slots__ = ("dependents", "index", "live", "missing", "silent", "write")

    def __init__(
        self, index: int, live: Liveness, write: Callable[[], None], *, silent: bool = False
    ) -> None:
        self.index = index
        self.live = live
        self.write = write
        self.silent = silent
        self.missing = 0
        self.dependents: list[Item] = []

    def __lt__(self, other: Item) -> bool:
        return self.index < other.index

    def needs(self, source: Item | None) -> None:
        """Run after another item."""
        if source is not None:
            source.dependents.append(self)
            self.missing += 1


class Scheduler:
    """The queues of the items of one frame. `open_branch` and `close_branch` write headers."""

    def __init__(
        self,
        open_branch: Callable[[Literal], None],
        other_branch: Callable[[Literal], None],
        close_branch: Callable[[], None],
    ) -> None:
        self.open_branch = open_branch
        self.other_branch = other_branch
        self.close_branch = close_branch
        self.done = 0

    def start(self, items: Iterable[Item]) -> None:
        """Queue the items that need nothing."""
        self.release([item for item in items if not item.missing])

    def release(self, ready: list[Item]) -> None:
        """Queue items that have become ready; write silent ones at once."""
        while ready:
            item = ready.pop()
            if item.silent:
                self._write(item, ready)
            else:
                _push(item)

    def _write(self, item: Item, ready: list[Item]) -> None:
        item.write()
        self.done += 1
        for dependent in item.dependents:
            dependent.missing -= 1
            if not dependent.missing:
                ready.append(dependent)

    def run(self, section: Liveness) -> None:
        """Write everything in a section that becomes ready."""
        # of each open class, the branch that an `else` may follow
        trail, previous = [section], list[Liveness | None]([None])
        ready: list[Item] = []
        while trail:
            live = trail[-1]
            queue = live.ready
            while queue:
                item = heappop(queue)
                _count_down(live)
                self._write(item, ready)
                if ready:
                    self.release(ready)
                if not item.silent:
                    previous[-1] = None
            following = _next_branch(live, previous[-1])
            if following is not None:
                assert following.literal is not None
                last = previous[-1]
                if last is not None and _opposite(last, following):
                    self.other_branch(following.literal)
                    previous[-1] = None
                else:
                    self.open_branch(following.literal)
                    previous[-1] = following
                trail.append(following)
                previous.append(None)
                continue
            trail.pop()
            previous.pop()
            if trail:
                self.close_branch()


def _push(item: Item) -> None:
    live: Liveness | None = item.live
    assert live is not None
    heappush(live.ready, item)
    while live is not None:
        live.count += 1
        parent = live.parent
        if live.count == 1 and parent is not None:
            parent.active.append(live)
        live = parent


def _count_down(live: Liveness | None) -> None:
    while live is not None:
        live.count -= 1
        live = live.parent


def _next_branch(live: Liveness, last: Liveness | None) -> Liveness | None:
    """The branch to open next: the opposite of the last one, or the first that became ready."""
    active = live.active = [branch for branch in live.active if branch.count]
    if not active:
        return None
    if last is not None:
        for branch in active:
            if _opposite(last, branch):
                return branch
    return active[0]


def _opposite(a: Liveness, b: Liveness) -> bool:
    """True if exactly one of two branches is taken."""
    assert a.literal is not None
    assert b.literal is not None
    return a.literal[0] is b.literal[0] and a is not b and a.literal[0].branches == 2
