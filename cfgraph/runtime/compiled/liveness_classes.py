"""Liveness classes, and the order of the generated code: a schedule that opens few conditionals.

A class is a set of nodes that are live in the same iterations of a frame, a conjunction of
literals: a test has taken a branch. It is stored as a path of nested conditionals, and interned, so
that equal classes are one object:

    always ─▶ p is true ─▶ q is false

A frame with a LoopCond has three paths of its own: before the test, the body, and the exit.

The items of a frame are its nodes, its tests, the inputs of its Merges, and its child frames. An
item is ready once everything that it needs has been written. Ready items of the open class come
first, in the topological order of the graph, then those in its branches; a branch is left when
nothing in it is ready.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, Final

from cfgraph.ir.graph import Node, Output
from cfgraph.runtime.compiled.program import NotCompiled

# CPython allows 100 levels of indentation, some of which are loops
MAX_DEPTH: Final = 80
Literal = tuple["Test", int]


@dataclass(slots=True, eq=False)
class Test:
    """A predicate that selects one of several branches.

    `predicate` is None for a flag that the inputs of the Merge `owner` set. `owner` is otherwise
    the LoopCond, or the first Switch on the predicate.
    """

    predicate: Output | None
    branches: int
    owner: Node | None
    value: Any = None  # the variable of the generated code


class Liveness:
    """A liveness class, and the state of its queue while its frame is scheduled."""

    __slots__ = (
        "active",
        "children",
        "count",
        "depth",
        "literal",
        "literals",
        "parent",
        "ready",
        "section",
        "source",
    )

    def __init__(self, parent: Liveness | None, literal: Literal | None) -> None:
        self.parent = parent
        self.literal = literal
        self.literals: frozenset[Literal] = parent.literals if parent else frozenset()
        if literal is not None:
            self.literals |= {literal}
        self.depth: int = parent.depth + 1 if parent else 0
        self.section: Liveness = parent.section if parent else self
        self.children: dict[Literal, Liveness] = {}
        self.source: Output | None = None  # an output of this class
        self.ready: list[Any] = []
        self.active: list[Liveness] = []
        self.count = 0

    @property
    def path(self) -> list[Literal]:
        """The literals below the section, outermost first."""
        literals = []
        live: Liveness | None = self
        while live is not None and live.parent is not None:
            assert live.literal is not None
            literals.append(live.literal)
            live = live.parent
        return literals[::-1]


# decides about two outputs: can both be live?
ExclusionQuery = Callable[[Output, Output], bool]


class FrameClasses:
    """The liveness classes of one frame.

    `never` contains nodes that are dead in every iteration.
    """

    def __init__(self) -> None:
        self.always: Final = Liveness(None, None)
        self.never: Final = Liveness(None, None)
        self.loop_test: Test | None = None
        self.body: Liveness | None = None
        self.exit: Liveness | None = None
        self._interned: dict[frozenset[Literal], Liveness] = {frozenset(): self.always}

    def divide(self, test: Test) -> None:
        """Make the body and the exit of a loop with this test."""
        self.loop_test = test
        self.body, self.exit = Liveness(None, (test, 1)), Liveness(None, (test, 0))
        for section in (self.body, self.exit):
            self._interned[section.literals] = section

    def child(self, live: Liveness, literal: Literal) -> Liveness:
        """The class of what is live in `live` while a test has taken a branch."""
        test, branch = literal
        if literal in live.literals or (test.branches == 1 and test.predicate is not None):
            return live
        if live is self.never or any(known is test for known, _ in live.literals):
            return self.never
        if live.depth > MAX_DEPTH:
            raise NotCompiled(f"conditionals are nested more than {MAX_DEPTH} deep", test.owner)
        if test is self.loop_test:
            assert self.body is not None
            assert self.exit is not None
            return self._extend(self.body if branch else self.exit, live.path)
        known = live.children.get(literal)
        if known is None:
            literals = live.literals | {literal}
            known = self._interned.get(literals)
            if known is None:
                known = self._interned[literals] = Liveness(live, literal)
            live.children[literal] = known
        return known

    def both(self, a: Liveness, b: Liveness) -> Liveness:
        """The class of what needs two classes to be live."""
        if a is b or b.literals <= a.literals:
            return a if b is not self.never else b
        if a.literals <= b.literals:
            return b if a is not self.never else a
        if a is self.never or b is self.never:
            return self.never
        if a.section is self.always:
            a, b = b, a
        if b.section is not self.always and b.section is not a.section:
            return self.never
        return self._extend(a, b.path)

    def _extend(self, live: Liveness, literals: Iterable[Literal]) -> Liveness:
        for literal in literals:
            live = self.child(live, literal)
        return live

    def union(self, classes: Sequence[Liveness]) -> Liveness | None:
        """The class of a Merge of several classes, None unless it is a conjunction.

        Classes that differ in the branches of one test, and cover all, are their common rest.
        """
        pool = {live.literals: live for live in classes}
        if len(pool) < len(classes):
            return None
        while len(pool) > 1:
            deepest = max(pool.values(), key=lambda live: len(live.literals))
            merged = next(
                (
                    rest
                    for literal in self._inner_first(deepest)
                    if (rest := self._cover(pool, deepest, literal)) is not None
                ),
                None,
            )
            if merged is None:
                return None
            known = self._class_of(merged, deepest)
            if known.literals in pool:
                return None
            pool[known.literals] = known
        return next(iter(pool.values()))

    def _inner_first(self, live: Liveness) -> list[Literal]:
        section = live.section.literal
        return [*reversed(live.path), *([section] if section else [])]

    def _cover(
        self, pool: dict[frozenset[Literal], Liveness], live: Liveness, literal: Literal
    ) -> frozenset[Literal] | None:
        """Remove from the pool the classes that differ from `live` in the branch of one test."""
        test, rest = literal[0], live.literals - {literal}
        siblings = [rest | {(test, branch)} for branch in range(test.branches)]
        if test.predicate is None or any(sibling not in pool for sibling in siblings):
            return None
        for sibling in siblings:
            del pool[sibling]
        return rest

    def _class_of(self, literals: frozenset[Literal], like: Liveness) -> Liveness:
        """The class of literals that are all in the path of another class."""
        known = self._interned.get(literals)
        if known is not None:
            return known
        start = like.section if like.section.literals <= literals else self.always
        return self._extend(start, [literal for literal in like.path if literal in literals])

    def common(self, classes: Sequence[Liveness]) -> Liveness:
        """The class of the literals that several classes share."""
        shared = frozenset.intersection(*(live.literals for live in classes))
        return self._class_of(shared, classes[0])

    @staticmethod
    def exclude_each_other(a: Liveness, b: Liveness) -> bool:
        """True if the literals of two classes contradict each other."""
        branches = dict(a.literals)
        return any(branches.get(test, branch) != branch for test, branch in b.literals)


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
