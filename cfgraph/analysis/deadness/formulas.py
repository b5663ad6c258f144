"""Hash-consed Boolean formulas over named symbols.

A formula is an integer: 1 is true, -1 is false, and -f is the negation of f. Every other number
stands for a symbol or for a conjunction of formulas; a disjunction is a negated conjunction.
Formulas are simplified on construction. A signature, the values of a formula under 256
assignments, distinguishes most different formulas at once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

# late imports: most commands have no symbols to sample

TRUE: Final = 1
FALSE: Final = -1
_LANES: Final = 256

_ALL: Final = (1 << _LANES) - 1
# shorter conjunctions are flattened; longer ones stay nested, which keeps flattening linear
_FLAT: Final = 8
_CHOICES: Final = 16
# above all groups: numbers of values
_NEXT_GROUPS: Final = 1 << 40


@dataclass(frozen=True, slots=True)
class Symbol:
    """A free Boolean variable: `name` is true, or has the value `value`.

    `kind` is `predicate` (its value), `message` (it is live), `turn` (a loop token arrives in the
    next iteration), `exit` (an Exit is live), `race` (the first input to arrive is live), or
    `arrives` (all inputs arrive). Symbols of one `group` are the values of one tensor, so at most
    one of them holds. `depth` is the number of enclosing loops.
    """

    name: str
    kind: str
    depth: int = 0
    value: int | float | str | None = None
    group: int = 0


class Formulas:
    """Factory of formulas; equal forms are one number."""

    def __init__(self) -> None:
        self.args: list[tuple[int, ...]] = [(), ()]
        self.symbols: dict[int, Symbol] = {}
        self.depths: list[int] = [0, 0]
        self.groups: dict[int, list[int]] = {}
        self._signatures: list[int] = [0, _ALL]
        self._interned: dict[tuple[int, ...], int] = {}
        self._made: dict[tuple[int, ...], int] = {}
        self._keyed: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self.args)

    def signature(self, formula: int) -> int:
        """The values of a formula under the sample assignments, one bit each."""
        return self._signatures[formula] if formula > 0 else self._signatures[-formula] ^ _ALL

    def depth(self, formula: int) -> int:
        """The loop depth of the innermost symbol of a formula."""
        return self.depths[abs(formula)]

    # -- construction ----------------------------------------------------------------------------

    def symbol(self, key: Hashable, symbol: Symbol) -> int:
        """The formula of a symbol; `key` identifies the symbol, its name does not."""
        known = self._keyed.get(key)
        if known is None:
            known = self._keyed[key] = self._new((), self._sample(symbol), symbol.depth)
            self.symbols[known] = symbol
            if symbol.group:
                self.groups.setdefault(symbol.group, []).append(known)
        return known

    def _sample(self, symbol: Symbol) -> int:
        """Deterministic random values; in each lane at most one symbol of a group is true."""
        if not symbol.group:
            from hashlib import blake2b

            text = f"{symbol.kind} {symbol.name}".encode()
            return int.from_bytes(blake2b(text, digest_size=_LANES // 8).digest(), "big")
        position = len(self.groups.get(symbol.group, ()))
        return _choice_lanes(symbol.name)[position] if position < _CHOICES else 0

    def all_of(self, formulas: Iterable[int]) -> int:
        """The conjunction of formulas."""
        operands = frozenset(formulas)
        key = tuple(sorted(operands))  # a third of the memory of a set
        result = self._made.get(key)
        if result is None:
            result = self._made[key] = self._conjunction(operands)
        return result

    def any_of(self, formulas: Iterable[int]) -> int:
        """The disjunction of formulas."""
        return -self.all_of([-formula for formula in formulas])

    def same(self, a: int, b: int) -> int:
        """The formula that is true where `a` and `b` agree."""
        return -self.all_of([-self.all_of([a, b]), -self.all_of([-a, -b])])

    def _new(self, args: tuple[int, ...], signature: int, depth: int) -> int:
        self.args.append(args)
        self._signatures.append(signature)
        self.depths.append(depth)
        return len(self.args) - 1

    def _conjunction(self, operands: frozenset[int]) -> int:
        flat, deeper = self._flattened(operands)
        if flat is None:
            return FALSE
        if self.groups:
            flat = self._exclusive(flat, deeper)
        flat = self._unit_propagated(flat, deeper)
        if FALSE in flat:
            return FALSE
        flat.discard(TRUE)
        if len(flat) < 2:
            return flat.pop() if flat else TRUE
        factored = self._factored(flat)
        return self._intern(flat) if factored is None else factored

    def _flattened(self, operands: Iterable[int]) -> tuple[set[int] | None, set[int]]:
        """The operands with short conjunctions flattened, and the operands that long ones imply."""
        args, flat = self.args, set[int]()
        for operand in operands:
            if operand > 1 and 0 < len(args[operand]) <= _FLAT:
                flat.update(args[operand])
            else:
                flat.add(operand)
        flat.discard(TRUE)
        deeper: set[int] = set()
        for operand in flat:
            if operand > 1:
                deeper.update(args[operand])
        flat -= deeper
        for operand in flat:
            if -operand in flat or -operand in deeper:
                return None, deeper
        if any(-operand in deeper for operand in deeper):
            return None, deeper
        return flat, deeper

    def _exclusive(self, flat: set[int], deeper: set[int]) -> set[int]:
        """Drop operands that the value of a tensor implies, or return FALSE for a contradiction."""
        symbols, taken = self.symbols, dict[int, int]()
        for operand in (*flat, *deeper):
            symbol = symbols.get(operand)
            if (
                symbol is not None
                and symbol.group
                and taken.setdefault(symbol.group, operand) != operand
            ):
                return {FALSE}
        if not taken:
            return flat

        def needless(operand: int) -> bool:
            symbol = symbols.get(-operand)
            return symbol is not None and taken.get(symbol.group, -operand) != -operand

        return {operand for operand in flat if operand > 0 or not needless(operand)}

    def _unit_propagated(self, flat: set[int], deeper: set[int]) -> set[int]:
        """Drop disjunctions that the other operands imply, and disjuncts that they exclude."""
        result = set[int]()
        for operand in flat:
            args = self.args[-operand] if operand < -1 else ()
            if not args:
                result.add(operand)
                continue
            # the operand is the disjunction of the negated args
            if any(-arg in flat or -arg in deeper for arg in args):
                continue
            remaining = [arg for arg in args if arg not in flat and arg not in deeper]
            result.add(operand if len(remaining) == len(args) else -self.all_of(remaining))
        if result != flat and (FALSE in result or any(-operand in result for operand in result)):
            return {FALSE}
        return result

    def _factored(self, flat: set[int]) -> int | None:
        """Factor out the operands that all terms of a disjunction share, or None if there are
        none.
        """
        rows: list[set[int]] = []
        for operand in flat:
            row = self.args[-operand] if operand < -1 else ()
            if not row:
                return None
            rows.append(set(row))
        shared = set.intersection(*rows)
        if not shared:
            return None
        rest = self.any_of(self.all_of(row - shared) for row in rows)
        return -self.all_of([*shared, rest])

    def _intern(self, flat: set[int]) -> int:
        args = tuple(sorted(flat, key=_sort_key))
        known = self._interned.get(args)
        if known is None:
            signature, depth = _ALL, 0
            for arg in args:
                signature &= self.signature(arg)
                depth = max(depth, self.depths[abs(arg)])
            known = self._interned[args] = self._new(args, signature, depth)
        return known

    # -- inspection ------------------------------------------------------------------------------

    def cone(self, roots: Iterable[int], depth: int = 0) -> list[int]:
        """The subformulas of `roots`, operands first, except those below `depth`."""
        seen, order = set[int](), list[int]()
        stack = [(abs(root), False) for root in roots]
        while stack:
            at, done = stack.pop()
            if done:
                order.append(at)
            elif at not in seen and self.depths[at] >= depth:
                seen.add(at)
                stack.append((at, True))
                stack.extend((abs(arg), False) for arg in self.args[at] if abs(arg) not in seen)
        return order

    def substitute(self, formula: int, values: Mapping[int, int], depth: int = 0) -> int:
        """The formula with each symbol in `values` replaced by the formula that it maps to.

        `depth` is the least loop depth of the replaced symbols; subformulas below it stay
        unchanged.
        """
        replaced: dict[int, int] = {}
        for at in self.cone([formula], depth):
            if at in values:
                replaced[at] = values[at]
            elif self.args[at]:
                replaced[at] = self.all_of([_signed(replaced, arg) for arg in self.args[at]])
        return _signed(replaced, formula)

    def in_next_iteration(self, formula: int, depth: int) -> int:
        """A formula about the next iteration of a loop at a depth: what the loop does not change
        is the same, every other symbol is free.
        """
        copies: dict[int, int] = {}
        for at in self.cone([formula], depth):
            symbol = self.symbols.get(at)
            if symbol is not None:
                group = symbol.group and symbol.group + _NEXT_GROUPS
                name = f"{symbol.name} of the next iteration"
                copies[at] = self.symbol(("next", at), replace(symbol, name=name, group=group))
        return self.substitute(formula, copies, depth)


@lru_cache(maxsize=64)
def _choice_lanes(name: str) -> list[int]:
    """The lanes in which each of the first symbols of a group is true."""
    import random

    choices = random.Random(name)
    masks = [0] * _CHOICES
    for lane in range(_LANES):
        masks[choices.randrange(_CHOICES)] |= 1 << lane
    return masks


def _signed(replaced: Mapping[int, int], formula: int) -> int:
    result = replaced.get(abs(formula), abs(formula))
    return result if formula > 0 else -result


def _sort_key(formula: int) -> tuple[int, bool]:
    return abs(formula), formula < 0
