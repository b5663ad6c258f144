"""Liveness classes, and the order of the generated code: a schedule that opens few conditionals.

The nodes of a class are live in the same iterations of a frame: those in which each of several
tests has taken a certain branch. A test and its branch are a literal. A class is stored as a path
of nested conditionals, and equal classes are one object:

    always ─▶ p is true ─▶ q is false

A frame with a LoopCond has three sections, where paths start: before the test, body, and exit.

The items of a frame are its nodes, its tests, the inputs of its Merges, and its child frames. An
item is ready once everything that it needs has been written. Ready items of the open class come
first, in the topological order of the graph, then those in its branches; a branch is left when
nothing in it is ready.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final

from cfgraph.ir.graph import Node, Output

Literal = tuple["BranchTest", int]
_numbers: Final = count()


@dataclass(slots=True, eq=False)
class BranchTest:
    """A predicate that selects one of several branches.

    `predicate` is None for a flag that the inputs of the Merge `owner` set. `owner` is otherwise
    the LoopCond, or the first Switch on the predicate. `number` is greater than those of the tests
    that decide if the predicate is live.
    """

    predicate: Output | None
    branches: int
    owner: Node | None
    value: Any = None  # the variable of the generated code
    number: int = field(default_factory=_numbers.__next__)


class LivenessClass:
    """A liveness class, and the state of its queue while its frame is scheduled.

    A class is a path of literals from its `section`, the class without literals. The numbers of
    their tests ascend, so that each class has one path. `size` is the number of literals, `key` a
    hash of their set.
    """

    __slots__ = (
        "active",
        "children",
        "is_open",
        "is_queued",
        "key",
        "literal",
        "parent",
        "ready",
        "section",
        "size",
        "source",
    )

    def __init__(self, parent: LivenessClass | None, literal: Literal | None) -> None:
        self.parent = parent
        self.literal = literal
        self.size: int = (parent.size if parent else 0) + (literal is not None)
        self.key: int = (parent.key if parent else 0) ^ (_key(literal) if literal else 0)
        self.section: LivenessClass = parent.section if parent else self
        self.children: dict[Literal, LivenessClass] = {}
        self.source: Output | None = None  # an output of this class
        # a heap of items, and the children that have items, or had some
        self.ready: list[Item] = []
        self.active: deque[LivenessClass] = deque()
        self.is_queued = self.is_open = False

    @property
    def number(self) -> int:
        """The number of the last test below the section, -1 for a section."""
        if self.parent is None:
            return -1
        assert self.literal is not None
        return self.literal[0].number

    @property
    def path(self) -> list[Literal]:
        """The same as `literals`, outermost first."""
        return list(self.literals())[::-1]

    def literals(self) -> Iterator[Literal]:
        """Tests that lead from the section to this class, and their results; innermost first."""
        live: LivenessClass | None = self
        while live is not None and live.parent is not None:
            assert live.literal is not None
            yield live.literal
            live = live.parent


def _key(literal: Literal) -> int:
    return hash((literal[0].number, literal[1], "literal"))


class FrameClasses:
    """The liveness classes of one frame.

    `never` contains nodes that are dead in every iteration.
    """

    def __init__(self) -> None:
        self.always: Final = LivenessClass(None, None)
        self.never: Final = LivenessClass(None, None)
        self.loop_test: BranchTest | None = None
        self.body: LivenessClass | None = None
        self.exit: LivenessClass | None = None

    def divide(self, test: BranchTest) -> None:
        """Make the body and the exit of a loop with this test."""
        self.loop_test = test
        self.body, self.exit = LivenessClass(None, (test, 1)), LivenessClass(None, (test, 0))

    def child(self, live: LivenessClass, literal: Literal) -> LivenessClass:
        """The class of what is live in `live` while a test has taken a branch."""
        known = live.children.get(literal)
        if known is not None:
            return known
        test, branch = literal
        if live is self.never or (test.branches == 1 and test.predicate is not None):
            return live
        if test is self.loop_test:
            section = self.body if branch else self.exit
            assert section is not None
            if live.section is self.always:
                return _extended(section, live.path)
            return live if live.section is section else self.never
        above, passed = live, []
        while above.number > test.number:
            assert above.parent is not None
            assert above.literal is not None
            passed.append(above.literal)
            above = above.parent
        if above.number == test.number:
            return live if above.literal == literal else self.never
        return _extended(above, [literal, *reversed(passed)])

    def both(self, a: LivenessClass, b: LivenessClass) -> LivenessClass:
        """The class of what needs two classes to be live."""
        if a is b or b is self.always or a is self.never:
            return a
        if a is self.always or b is self.never:
            return b
        if a.section is self.always:
            a, b = b, a
        if b.section is not self.always and b.section is not a.section:
            return self.never
        section, passed = a.section, []
        while a is not b and (a.parent or b.parent):
            if a.number < b.number:
                a, b = b, a
            assert a.parent is not None
            assert a.literal is not None
            passed.append(a.literal)
            if a.number == b.number:
                if a.literal != b.literal:
                    return self.never
                assert b.parent is not None
                b = b.parent
            a = a.parent
        return _extended(a if a is b else section, reversed(passed))

    def is_narrower(self, a: LivenessClass, b: LivenessClass) -> bool:
        """True if a class has all literals of another, and more; the narrowest is `never`."""
        if a is self.never or b is self.never:
            return b is not self.never
        return a is not b and self.both(a, b) is a

    def union(self, classes: Sequence[LivenessClass]) -> LivenessClass | None:
        """The class of a Merge of several classes, None unless it is a conjunction.

        Classes that differ in the branches of one test, and cover all, are their common rest.
        """
        pool = {live.key: live for live in classes}
        if len(pool) < len(classes):
            return None
        while len(pool) > 1:
            deepest = max(pool.values(), key=lambda live: live.size)
            merged = next(
                (
                    rest
                    for literal in self._inner_first(deepest)
                    if (rest := self._cover(pool, deepest, literal)) is not None
                ),
                None,
            )
            if merged is None or merged.key in pool:
                return None
            pool[merged.key] = merged
        return next(iter(pool.values()))

    def _inner_first(self, live: LivenessClass) -> Iterator[Literal]:
        yield from live.literals()
        if live.section.literal:
            yield live.section.literal

    def _cover(
        self, pool: dict[int, LivenessClass], live: LivenessClass, literal: Literal
    ) -> LivenessClass | None:
        """Remove from the pool the classes that differ from `live` in the branch of one test."""
        test, key = literal[0], live.key ^ _key(literal)
        if test.predicate is None or any(
            key ^ _key((test, branch)) not in pool for branch in range(test.branches)
        ):
            return None
        rest = self._without(live, literal)
        siblings = [self.child(rest, (test, branch)) for branch in range(test.branches)]
        if any(pool.get(sibling.key) is not sibling for sibling in siblings):
            return None
        for sibling in siblings:
            del pool[sibling.key]
        return rest

    def _without(self, live: LivenessClass, literal: Literal) -> LivenessClass:
        """The class without one of the literals of another."""
        if literal is live.section.literal:
            return _extended(self.always, live.path)
        passed = []
        while live.literal != literal:
            assert live.parent is not None
            assert live.literal is not None
            passed.append(live.literal)
            live = live.parent
        assert live.parent is not None
        return _extended(live.parent, reversed(passed))

    def common(self, classes: Sequence[LivenessClass]) -> LivenessClass:
        """The class of the literals that several classes share."""
        return reduce(self._shared, classes)

    def _shared(self, a: LivenessClass, b: LivenessClass) -> LivenessClass:
        section, passed = a.section if a.section is b.section else self.always, []
        while a is not b and (a.parent or b.parent):
            if a.number < b.number:
                a, b = b, a
            assert a.parent is not None
            assert a.literal is not None
            if a.number == b.number:
                assert b.parent is not None
                if a.literal == b.literal:
                    passed.append(a.literal)
                b = b.parent
            a = a.parent
        return _extended(a if a is b else section, reversed(passed))

    @staticmethod
    def exclude_each_other(a: LivenessClass, b: LivenessClass) -> bool:
        """True if the literals of two classes contradict each other."""
        if a.section.literal and b.section.literal and a.section is not b.section:
            return True
        branches = dict(a.literals())
        return any(branches.get(test, branch) != branch for test, branch in b.literals())


def _extended(live: LivenessClass, literals: Iterable[Literal]) -> LivenessClass:
    """The class with more literals, whose tests are later and ascend."""
    for literal in literals:
        known = live.children.get(literal)
        if known is None:
            known = live.children[literal] = LivenessClass(live, literal)
        live = known
    return live


# code of a loop, which is written without recursion: it yields the code of its inner loops
WriterCoroutine = Generator["WriterCoroutine", None, None]


class Item:
    """A piece of generated code, and the items that need it first.

    A silent item has no code and is done once it is ready, whatever class is open.
    """

    __slots__ = ("dependents", "index", "live", "missing", "silent", "write")

    def __init__(
        self,
        index: int,
        live: LivenessClass,
        write: Callable[[], WriterCoroutine | None],
        *,
        silent: bool = False,
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
        """Schedule this item after another one, if there is one."""
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
                item.write()
                self._finish(item, ready)
            else:
                _push(item)

    def _finish(self, item: Item, ready: list[Item]) -> None:
        self.done += 1
        for dependent in item.dependents:
            dependent.missing -= 1
            if not dependent.missing:
                ready.append(dependent)

    def run(self, section: LivenessClass) -> WriterCoroutine:
        """Write everything in a section that becomes ready."""
        # of each open class, the branch that an `else` may follow
        trail, previous = [section], list[LivenessClass | None]([None])
        ready: list[Item] = []
        while trail:
            live = trail[-1]
            queue = live.ready
            while queue:
                item = heappop(queue)
                inner = item.write()
                if inner is not None:
                    yield inner
                self._finish(item, ready)
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
                following.is_open = True
                trail.append(following)
                previous.append(None)
                continue
            trail.pop().is_open = False
            previous.pop()
            if trail:
                self.close_branch()


def _push(item: Item) -> None:
    live = item.live
    heappush(live.ready, item)
    while live.parent is not None and not (live.is_queued or live.is_open):
        live.is_queued = True
        live.parent.active.append(live)
        live = live.parent


def _next_branch(live: LivenessClass, last: LivenessClass | None) -> LivenessClass | None:
    """The branch to open next: the opposite of the last one, or the first that became ready."""
    if last is not None:
        assert last.literal is not None
        test, branch = last.literal
        opposite = live.children.get((test, 1 - branch)) if test.branches == 2 else None
        if opposite is not None and opposite.is_queued:
            opposite.is_queued = False
            return opposite
    while live.active:
        following = live.active.popleft()
        if following.is_queued:
            following.is_queued = False
            return following
    return None


def _opposite(a: LivenessClass, b: LivenessClass) -> bool:
    """True if exactly one of two branches is taken."""
    assert a.literal is not None
    assert b.literal is not None
    return a.literal[0] is b.literal[0] and a is not b and a.literal[0].branches == 2
