"""Search for the smallest subject that a test still finds interesting.

An operator lists what can be removed. As in delta debugging, all of it is tried at once, then
halves, quarters, and so on, down to single items; each success shrinks the subject, and the next
operator continues with it. The search ends after a round in which no operator succeeds. Candidates
are tested several at a time, but accepted in order, so that the result does not depend on how many.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from types import FrameType
from typing import Any, Protocol

from cfgraph.comparison.reduce.subject import Size, Subject
from cfgraph.ir.graph import Graph
from cfgraph.ir.library import copy_graph
from cfgraph.limits import check_deadline
from cfgraph.reports import Count
from cfgraph.stack_position import LOCATORS, StackPosition, frame_variables

# a removable part, as its operator describes it
Item = Any


class Oracle(Protocol):
    """A test of candidates; `width` is the number of candidates that it tests at a time."""

    width: int

    def first_interesting(self, candidates: Sequence[Subject]) -> int | None:
        """Return the index of the first candidate that shows the failure, None without one."""
        ...


class Operator(Protocol):
    """A kind of edit, whose items can be combined."""

    @property
    def name(self) -> str:
        """The name in reports."""
        ...

    def items(self, subject: Subject) -> Sequence[Item]:
        """Return what can be removed from a subject."""
        ...

    def candidate(self, subject: Subject, items: Sequence[Item]) -> Subject | None:
        """Return a subject without some items, None if that is not possible."""
        ...


class ItemOperator(ABC):
    """Base class of operators that edit a copy of each graph in place, item by item."""

    __slots__ = ()

    def candidate(self, subject: Subject, items: Sequence[Item]) -> Subject | None:
        """Return a subject without some items."""

        def edit(graph: Graph) -> Graph:
            copy = copy_graph(graph)
            for item in items:
                self.remove(copy, item)
            return copy

        return subject.edited(edit)

    @abstractmethod
    def remove(self, graph: Graph, item: Any) -> None:
        """Remove an item from a graph, if the graph has it."""


@dataclass(frozen=True, slots=True)
class ReductionStep:
    """One success of an operator: the nodes that remain after it, and the tests so far."""

    operator: str  #: Kind of the parts that were removed.
    nodes: Count  #: Nodes that remain.
    tests: Count  #: Tests so far.


@dataclass(slots=True)
class Search:
    """The state of a search: the best subject so far, which `on_success` receives each time."""

    oracle: Oracle
    best: Subject
    on_success: Callable[[Subject, ReductionStep], None] = lambda subject, step: None
    tests: int = 0
    steps: list[ReductionStep] = field(default_factory=list)
    _faults: frozenset[tuple[int, str]] = field(init=False)
    _size: Size = field(init=False)
    _seen: set[bytes] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        self._faults = self.best.faults()
        self._size = self.best.size()
        self._seen.add(self.best.digest())

    def run(self, operators: Sequence[Operator]) -> None:
        """Apply the operators until none of them succeeds."""
        while True:
            before = self._size
            for operator in operators:
                self.apply(operator)
            if self._size == before:
                return

    def apply(self, operator: Operator) -> None:
        """Remove as many items of an operator as possible, in ever smaller groups."""
        items = list(operator.items(self.best))
        width = len(items)
        while width:
            start = 0
            while start < len(items):
                groups = ((at, items[at : at + width]) for at in range(start, len(items), width))
                position = self.try_each(
                    operator.name,
                    ((at, operator.candidate(self.best, group)) for at, group in groups),
                )
                if position is None:
                    break
                del items[position : position + width]
                start = position
            width = min(width, len(items)) // 2 if width > 1 else 0

    def try_each(self, name: str, candidates: Iterable[tuple[int, Subject | None]]) -> int | None:
        """Test numbered candidates until one succeeds, which becomes the best; return its number.

        Candidates that are not smaller, not valid, or known are skipped.
        """
        useful = self._useful(candidates)
        while batch := list(islice(useful, self.oracle.width)):
            check_deadline()
            index = self.oracle.first_interesting([candidate for _, candidate, _ in batch])
            self.tests += len(batch) if index is None else index + 1
            if index is not None:
                # as if those after it had not been tested: the number of jobs must not matter
                self._seen.difference_update(item.digest() for _, item, _ in batch[index + 1 :])
                number, self.best, self._size = batch[index]
                self.steps.append(ReductionStep(name, self.best.nodes, self.tests))
                self.on_success(self.best, self.steps[-1])
                return number
        return None

    def _useful(
        self, candidates: Iterable[tuple[int, Subject | None]]
    ) -> Iterator[tuple[int, Subject, Size]]:
        for number, candidate in candidates:
            check_deadline()
            if candidate is None or not candidate.faults() <= self._faults:
                continue
            size = candidate.size()
            if size >= self._size:
                continue
            digest = candidate.digest()
            if digest not in self._seen:
                self._seen.add(digest)
                yield number, candidate, size


def _search_position(frames: Sequence[FrameType]) -> StackPosition:
    """The position of a search: the nodes of the best subject so far."""
    search = frame_variables(frames[0])["self"]
    return StackPosition("reduce", nodes=search.best.nodes)


LOCATORS[Search.apply.__code__] = _search_position
