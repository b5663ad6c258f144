"""Predicates of TensorFlow's deadness analysis, simplified by TensorFlow's own rules.

Two predicates are equal only if they are one object. The rules and their order are TensorFlow's,
including simplifications that it misses.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cfgraph.ir.traversal import postorder

_DEPTH: Final = 8
_SHOWN: Final = 2000


@dataclass(frozen=True, slots=True, eq=False)
class TfPredicate:
    """A formula: and, or, not, symbol, or recurrence (with parts start and step).

    `label` is the text of a symbol, and the frame path of a recurrence.
    """

    number: int
    kind: str
    parts: tuple[TfPredicate, ...] = ()
    label: str = ""

    def __str__(self) -> str:
        return format_predicate(self)


_DUAL: Final = {"and": "or", "or": "and"}


class TfPredicates:
    """Factory of predicates; equal forms are one object."""

    def __init__(self) -> None:
        self._made: dict[tuple[object, ...], TfPredicate] = {}
        self._negations: dict[TfPredicate, TfPredicate] = {}
        self._nesting = 0
        self.true = self._intern("and", ())
        self.false = self._intern("or", ())

    def symbol(self, tensor: str, *, must_be_true: bool) -> TfPredicate:
        """The symbol that a tensor is live, or that it is live and true."""
        return self._intern("symbol", (), f"*{tensor}" if must_be_true else tensor)

    def number_symbol(self, tensor: str, value: int) -> TfPredicate:
        """The symbol that a tensor is live and equal to `value`."""
        return self._intern("symbol", (), f"{tensor}={value}")

    def recurrence(self, start: TfPredicate, step: TfPredicate, frame: str) -> TfPredicate:
        """The predicate that is `start` in iteration 0, and `start` and i times `step` in iteration
        i.
        """
        return self._intern("recurrence", (start, step), frame)

    def all_of(self, parts: Iterable[TfPredicate]) -> TfPredicate:
        """The conjunction of predicates."""
        return self._combine("and", list(parts))

    def any_of(self, parts: Iterable[TfPredicate]) -> TfPredicate:
        """The disjunction of predicates."""
        return self._combine("or", list(parts))

    def negation(self, operand: TfPredicate) -> TfPredicate:
        """The negation of a predicate."""
        negated = self._negations.get(operand)
        if negated is None:
            negated = self._negations[operand] = self._negate(operand)
        return negated

    def _negate(self, operand: TfPredicate) -> TfPredicate:
        self._nesting += 1
        try:
            if self._nesting >= _DEPTH:
                return self._intern("not", (operand,))
            if operand.kind in _DUAL:
                return self._combine(
                    _DUAL[operand.kind], [self.negation(part) for part in operand.parts]
                )
            return operand.parts[0] if operand.kind == "not" else self._intern("not", (operand,))
        finally:
            self._nesting -= 1

    def _combine(self, kind: str, parts: list[TfPredicate]) -> TfPredicate:
        self._nesting += 1
        try:
            if self._nesting >= _DEPTH:
                return self._intern(kind, parts)
            return self._simplified(kind, parts)
        finally:
            self._nesting -= 1

    def _simplified(self, kind: str, operands: list[TfPredicate]) -> TfPredicate:
        parts, seen = _flattened(kind, operands)
        if len(parts) == 1:
            return parts[0]
        opposites: set[TfPredicate] = set()
        for operand in parts:
            opposite = self.negation(operand)
            if operand in opposites or (opposite.kind == kind and seen.issuperset(opposite.parts)):
                return self.false if kind == "and" else self.true
            opposites.add(opposite)
        if kind == "and":
            parts = self._after_loops(parts, opposites)
        return self._factored(kind, parts) or self._intern(kind, parts)

    def _after_loops(
        self, parts: list[TfPredicate], opposites: set[TfPredicate]
    ) -> list[TfPredicate]:
        """Simplify `{start,&,step} & ~step` to `start`."""
        gone: set[TfPredicate] = set()
        starts = []
        for operand in parts:
            if operand.kind == "recurrence" and operand.parts[1] in opposites:
                gone.update((operand, self.negation(operand.parts[1])))
                starts.append(operand.parts[0])
        return [operand for operand in parts if operand not in gone] + starts

    def _factored(self, kind: str, parts: list[TfPredicate]) -> TfPredicate | None:
        """Factor out what all operands share, if all are of the dual kind; otherwise None."""
        dual = _DUAL[kind]
        if not parts or any(operand.kind != dual for operand in parts):
            return None
        others = [set(operand.parts) for operand in parts[1:]]
        shared = [part for part in parts[0].parts if all(part in operands for operands in others)]
        if not shared:
            return None
        rests = [self._combine(dual, [o for o in p.parts if o not in shared]) for p in parts]
        return self._combine(dual, [*shared, self._combine(kind, rests)])

    def _intern(self, kind: str, parts: Iterable[TfPredicate], label: str = "") -> TfPredicate:
        """The unique object of a form; the order of operands does not matter."""
        ordered = tuple(parts)
        if kind in _DUAL:
            ordered = tuple(sorted(ordered, key=lambda operand: operand.number))
        key = kind, ordered, label
        predicate = self._made.get(key)
        if predicate is None:
            predicate = self._made[key] = TfPredicate(len(self._made), kind, ordered, label)
        return predicate


def _flattened(
    kind: str, operands: Iterable[TfPredicate]
) -> tuple[list[TfPredicate], set[TfPredicate]]:
    """The distinct operands, nested ones of the same kind flattened, and all operands seen."""
    parts: list[TfPredicate] = []
    seen: set[TfPredicate] = set()
    for operand in operands:
        if operand in seen:
            continue
        seen.add(operand)
        if operand.kind != kind:
            parts.append(operand)
            continue
        fresh = [part for part in operand.parts if part not in seen]
        seen.update(fresh)
        parts.extend(dict.fromkeys(fresh))
    return parts, seen


def contains_predicate(predicate: TfPredicate, target: TfPredicate) -> bool:
    """True if `wanted` occurs in a predicate."""
    seen: set[TfPredicate] = set()
    stack = [predicate]
    while stack:
        operand = stack.pop()
        if operand is target:
            return True
        if operand not in seen:
            seen.add(operand)
            stack.extend(operand.parts)
    return False


def format_predicate(predicate: TfPredicate) -> str:
    """A predicate as TensorFlow prints it, operands sorted; long texts are truncated."""
    texts: dict[TfPredicate, str] = {}
    for operand in postorder(predicate, lambda item: item.parts, texts):
        text = _format_operator(operand, [texts[part] for part in operand.parts])
        texts[operand] = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    return texts[predicate]


def _format_operator(predicate: TfPredicate, parts: list[str]) -> str:
    match predicate.kind:
        case "and":
            return f"({' & '.join(sorted(parts))})" if parts else "#true"
        case "or":
            return f"({' | '.join(sorted(parts))})" if parts else "#false"
        case "not":
            return f"~{parts[0]}"
        case "recurrence":
            return f"{{{parts[0]},&,{parts[1]}}}<{predicate.label}>"
    return predicate.label
