"""Text forms of liveness conditions: formulas, English sentences, and assignments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cfgraph.analysis.deadness.formulas import FALSE, TRUE, Formulas, Symbol
from cfgraph.analysis.loops.frame import Frames
from cfgraph.ir.graph import Node

_MAX_PARTS: Final = 8
_MAX_DEPTH: Final = 4
_MAX_MINIMIZED: Final = 64

AssignedValue = bool | int | float | str


def format_formula(formulas: Formulas, formula: int) -> str:
    """A formula with `&`, `|`, and `~`; long ones are truncated."""
    return _FormulaPrinter(formulas).text(formula, 0)


class _FormulaPrinter:
    """Printer of formulas; nested operators are in parentheses."""

    def __init__(self, formulas: Formulas) -> None:
        self.formulas = formulas

    def text(self, formula: int, depth: int) -> str:
        if formula in (TRUE, FALSE):
            return "true" if formula == TRUE else "false"
        symbol = self.formulas.symbols.get(abs(formula))
        if symbol is not None:
            return self.symbol(symbol, holds=formula > 0)
        sign = "&" if formula > 0 else "|"
        parts = [arg if formula > 0 else -arg for arg in self.formulas.args[abs(formula)]]
        if depth >= _MAX_DEPTH:
            return "(…)"
        shown = [self.text(operand, depth + 1) for operand in parts[:_MAX_PARTS]]
        if len(parts) > _MAX_PARTS:
            shown.append(f"… {len(parts) - _MAX_PARTS} more")
        joined = f" {sign} ".join(shown)
        return f"({joined})" if depth else joined

    def symbol(self, symbol: Symbol, *, holds: bool) -> str:
        if symbol.group:
            return f"{symbol.name}{'=' if holds else '!='}{symbol.value}"
        mark = _KIND_MARKS.get(symbol.kind, "")
        return f"{'' if holds else '~'}{mark}{symbol.name}"


# a predicate is printed as its value, any other symbol as its liveness
_KIND_MARKS: Final = {"turn": "live:", "message": "live:", "exit": "live:", "race": "first:"} | {
    "arrives": "arrives:"
}


def describe_condition(formulas: Formulas, formula: int, subject: str = "") -> str:
    """A clause such as "runs when `p` is true", about the node `subject`."""
    if formula == TRUE:
        return "always runs"
    if formula == FALSE:
        return "never runs"
    return f"runs when {_EnglishPrinter(formulas, subject).text(formula, 0)}"


class _EnglishPrinter(_FormulaPrinter):
    """Printer of formulas as English clauses about a node."""

    def __init__(self, formulas: Formulas, subject: str = "") -> None:
        super().__init__(formulas)
        self.subject = subject

    def text(self, formula: int, depth: int) -> str:
        if formula in (TRUE, FALSE):
            return "always" if formula == TRUE else "never"
        symbol = self.formulas.symbols.get(abs(formula))
        if symbol is not None:
            return self.symbol(symbol, holds=formula > 0)
        parts = [arg if formula > 0 else -arg for arg in self.formulas.args[abs(formula)]]
        if depth >= _MAX_DEPTH:
            return "more conditions hold"
        shown = [self.text(operand, depth + 1) for operand in parts[:_MAX_PARTS]]
        if len(parts) > _MAX_PARTS:
            shown.append(f"{len(parts) - _MAX_PARTS} more")
        word = " and " if formula > 0 else " or "
        joined = word.join(shown) if formula > 0 or depth else f"either {word.join(shown)}"
        return f"({joined})" if depth else joined

    def symbol(self, symbol: Symbol, *, holds: bool) -> str:
        name = f"`{symbol.name}`"
        if symbol.group:
            return f"{name} is {'' if holds else 'not '}{symbol.value}"
        if symbol.kind == "turn" and symbol.name == self.subject:
            return f"its loop {'continues' if holds else 'does not continue'}"
        if symbol.kind == "predicate":
            return f"{name} is {'true' if holds else 'false'}"
        if symbol.kind == "race":
            return f"{'a live' if holds else 'a dead'} input of {name} arrives first"
        if symbol.kind == "arrives":
            return f"the inputs of {name} {'arrive' if holds else 'do not arrive'}"
        return f"{name} is {'live' if holds else 'dead'}"


def assignment_values(
    formulas: Formulas, formula: int, model: dict[int, bool]
) -> dict[str, AssignedValue]:
    """The value of each relevant tensor under an assignment, by name."""
    values: dict[str, AssignedValue] = {}
    others: dict[str, list[AssignedValue]] = {}
    for at in _relevant_symbols(formulas, formula, model):
        symbol = formulas.symbols[at]
        name = _KIND_MARKS.get(symbol.kind, "") + symbol.name
        if not symbol.group or symbol.value is None:
            values[name] = model[at]
        elif model[at]:
            values[name] = symbol.value
        else:
            others.setdefault(name, []).append(symbol.value)
    for name, excluded in others.items():
        values.setdefault(name, _different_value(excluded))
    return dict(sorted(values.items()))


def _relevant_symbols(formulas: Formulas, formula: int, model: dict[int, bool]) -> list[int]:
    """The symbols that the formula needs; all of them if there are too many to minimize."""
    remaining = dict(model)
    if len(model) > _MAX_MINIMIZED:
        return list(remaining)
    for at in sorted(model):
        rest = {symbol: value for symbol, value in remaining.items() if symbol != at}
        if _is_implied(formulas, formula, rest):
            remaining = rest
    return list(remaining)


def _is_implied(formulas: Formulas, formula: int, known: dict[int, bool]) -> bool:
    """True if a formula holds for all values of the symbols that are not in `known`."""
    values: dict[int, bool | None] = {}
    for at in formulas.cone([formula]):
        if at in formulas.symbols:
            values[at] = known.get(at)
            continue
        parts = [_signed(values[abs(arg)], arg) for arg in formulas.args[at]]
        values[at] = False if False in parts else None if None in parts else True
    return _signed(values[abs(formula)], formula) is True


def _signed(value: bool | None, formula: int) -> bool | None:
    return value if value is None or formula > 0 else not value


def _different_value(excluded: list[AssignedValue]) -> AssignedValue:
    """A value that differs from all excluded ones."""
    numbers = [value for value in excluded if isinstance(value, int | float)]
    return int(max(numbers)) + 1 if numbers else "another value"


# phrases for a marked name that holds, and for one that does not
_MARK_PHRASES: Final = {
    "live:": ("live", "dead"),
    "first:": ("reached by a live input first", "reached by a dead input first"),
    "arrives:": ("reached by all its inputs", "not reached by all its inputs"),
}


def describe_assignment(values: Mapping[str, Any]) -> str:
    """Predicate values as text: `p` true, `i` 2, `while/Merge` live."""
    return ", ".join(_describe_value(name, value) for name, value in values.items())


def _describe_value(name: str, value: Any) -> str:
    if not isinstance(value, bool):
        return f"`{name}` {value}"
    for mark, (yes, no) in _MARK_PHRASES.items():
        if name.startswith(mark):
            return f"`{name.removeprefix(mark)}` {yes if value else no}"
    return f"`{name}` {'true' if value else 'false'}"


def witness_clause(witness: Mapping[str, Any] | None) -> str:
    """The clause that ends a message with predicate values, such as ": with `p` true"."""
    return f": with {describe_assignment(witness)}" if witness else ""


def frame_location(graph_frames: Frames, node: Node) -> str | None:
    """The path of the frame that a node runs in, or None for the root frame."""
    frame = graph_frames.of[node]
    return None if frame is graph_frames.root else str(frame)
