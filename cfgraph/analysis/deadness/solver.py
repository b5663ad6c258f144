"""Decision procedure for formulas: syntactic tests, signatures, and finally a SAT solver.

Bounded by the number of formulas and conflicts, never by time. Beyond the bound the answer is None
(unknown), which `unknown` counts.
"""

from __future__ import annotations

from typing import Any, Final

from cfgraph.analysis.deadness.formulas import FALSE, TRUE, Formulas

MAX_FORMULAS: Final = 200_000
MAX_CONFLICTS: Final = 2_000

_BITS: Final = 20  # 2**20 exceeds the bound on formulas
Model = dict[int, bool]


class Solver:
    """Decision procedure that caches its answers."""

    def __init__(
        self,
        formulas: Formulas,
        max_formulas: int = MAX_FORMULAS,
        max_conflicts: int = MAX_CONFLICTS,
    ) -> None:
        self.formulas = formulas
        self.max_formulas = max_formulas
        self.max_conflicts = max_conflicts
        self.unknown = 0
        self._solver: Any = None
        self._variables: dict[int, int] = {}
        self._count = 0
        self._decided: dict[int, bool | None] = {}

    def is_satisfiable(self, formula: int) -> bool | None:
        """True if some assignment satisfies a formula, or None if undecided."""
        if formula in (TRUE, FALSE):
            return formula == TRUE
        if self.formulas.signature(formula):
            return True
        if formula not in self._decided:
            self._decided[formula] = self._solve(formula)
            self.unknown += self._decided[formula] is None
        return self._decided[formula]

    def always(self, formula: int) -> bool | None:
        """True if every assignment satisfies a formula, or None if undecided."""
        return _negated(self.is_satisfiable(-formula))

    def implies(self, a: int, b: int) -> bool | None:
        """True if `b` holds wherever `a` does, or None if undecided."""
        if a == b:
            return True
        formulas = self.formulas
        if formulas.signature(a) & ~formulas.signature(b):
            return False
        return _negated(self.is_satisfiable(formulas.all_of([a, -b])))

    def equal(self, a: int, b: int) -> bool | None:
        """True if both hold under the same assignments, or None if undecided."""
        if a == b:
            return True
        if self.formulas.signature(a) != self.formulas.signature(b):
            return False
        forward = self.implies(a, b)
        return self.implies(b, a) if forward else forward

    def model(self, formula: int) -> Model | None:
        """An assignment that satisfies a formula, or None if none exists or none was found."""
        formulas = self.formulas
        symbols = [at for at in formulas.cone([formula]) if at in formulas.symbols]
        signature = formulas.signature(formula)
        if signature:
            lane = signature & -signature
            return {at: bool(formulas.signature(at) & lane) for at in symbols}
        if not self._solve(formula):
            return None
        true = {variable for variable in self._solver.get_model() if variable > 0}
        return {at: self._variables.get(at, 0) in true for at in symbols}

    # -- SAT encoding ----------------------------------------------------------------------------

    def _solve(self, formula: int) -> bool | None:
        if self._solver is None:
            from pysat.solvers import Minisat22

            self._solver = Minisat22()
        if not self._encode(formula):
            return None
        self._solver.conf_budget(self.max_conflicts)
        answer: bool | None = self._solver.solve_limited(assumptions=[self._literal(formula)])
        return answer

    def _literal(self, formula: int) -> int:
        variable = self._variables[abs(formula)]
        return variable if formula > 0 else -variable

    def _fresh(self) -> int:
        self._count += 1
        return self._count

    def _encode(self, formula: int) -> bool:
        """Add the clauses of a formula; False if that exceeds the bound."""
        todo = [abs(formula)]
        added: list[int] = []
        variables, args = self._variables, self.formulas.args
        while todo:
            at = todo.pop()
            if at in variables:
                continue
            if len(variables) >= self.max_formulas:
                for formula_number in added:
                    del variables[formula_number]
                return False
            variables[at] = self._fresh()
            added.append(at)
            todo.extend(abs(arg) for arg in args[at] if abs(arg) not in variables)
        for at in added:
            self._define(at)
        return True

    def _define(self, at: int) -> None:
        variable, solver = self._variables[at], self._solver
        if at == TRUE:
            solver.add_clause([variable])
        symbol = self.formulas.symbols.get(at)
        if symbol is not None:
            if symbol.group:
                self._define_choice(at, symbol.group)
            return
        parts = [self._literal(arg) for arg in self.formulas.args[at]]
        for operand in parts:
            solver.add_clause([-variable, operand])
        solver.add_clause([variable, *(-operand for operand in parts)])

    def _define_choice(self, at: int, group: int) -> None:
        """Encode the symbols of a group as distinct binary numbers, so that at most one holds."""
        bits = [self._bit(group, bit) for bit in range(_BITS)]
        number = self.formulas.groups[group].index(at) + 1
        parts = [bit if number >> position & 1 else -bit for position, bit in enumerate(bits)]
        variable = self._variables[at]
        for operand in parts:
            self._solver.add_clause([-variable, operand])
        self._solver.add_clause([variable, *(-operand for operand in parts)])

    def _bit(self, group: int, bit: int) -> int:
        # negative keys are bits; formulas are numbered from 1
        key = -(group * _BITS + bit) - 1
        if key not in self._variables:
            self._variables[key] = self._fresh()
        return self._variables[key]


def _negated(answer: bool | None) -> bool | None:
    return None if answer is None else not answer
