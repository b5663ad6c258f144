from __future__ import annotations

import itertools
import random
from collections.abc import Mapping

import pytest

from cfgraph.analysis.deadness.formulas import FALSE, TRUE, Formulas, Symbol
from cfgraph.analysis.deadness.solver import Solver


def new_symbols(count: int) -> tuple[Formulas, list[int]]:
    formulas = Formulas()
    names = [f"p{place}" for place in range(count)]
    return formulas, [formulas.symbol(name, Symbol(name, "predicate")) for name in names]


def numbers(formulas: Formulas, count: int) -> list[int]:
    """Symbols for the values 0, 1, … of a tensor."""
    return [
        formulas.symbol(("x", value), Symbol("x", "predicate", 0, value, 1))
        for value in range(count)
    ]


def table(formulas: Formulas, formula: int, symbols: list[int]) -> list[bool]:
    cases = itertools.product((False, True), repeat=len(symbols))
    return [evaluate(formulas, formula, dict(zip(symbols, case, strict=True))) for case in cases]


def evaluate(formulas: Formulas, formula: int, values: Mapping[int, bool]) -> bool:
    """The value of a formula; symbols without a value are false."""
    known: dict[int, bool] = {}
    for at in formulas.cone([formula]):
        if at in formulas.symbols:
            known[at] = values.get(at, False)
        else:
            known[at] = all(known[abs(arg)] == (arg > 0) for arg in formulas.args[at])
    return known[abs(formula)] == (formula > 0)


def test_constants_and_opposites_are_simplified_at_sight() -> None:
    formulas, (a, b) = new_symbols(2)
    assert formulas.all_of([]) == TRUE
    assert formulas.any_of([]) == FALSE
    assert formulas.all_of([a, TRUE]) == a
    assert formulas.all_of([a, FALSE]) == FALSE
    assert formulas.all_of([a, -a]) == FALSE
    assert formulas.any_of([a, b, -a]) == TRUE


def test_order_and_brackets_do_not_matter() -> None:
    formulas, (a, b, c) = new_symbols(3)
    one = formulas.all_of([a, formulas.all_of([b, c])])
    assert one == formulas.all_of([formulas.all_of([c, a]), b])
    other = formulas.any_of([a, formulas.any_of([b, c])])
    assert other == formulas.any_of([formulas.any_of([c, b]), a])


def test_what_implies_another_part_absorbs_it() -> None:
    formulas, (a, b, c) = new_symbols(3)
    assert formulas.any_of([a, formulas.all_of([a, b])]) == a
    assert formulas.all_of([a, formulas.any_of([a, b])]) == a
    assert formulas.all_of([a, formulas.any_of([-a, b])]) == formulas.all_of([a, b])
    both, all_three = formulas.all_of([a, b]), formulas.all_of([a, b, c])
    assert formulas.any_of([both, all_three]) == both


def test_both_sides_of_a_conditional_join_to_what_they_share() -> None:
    formulas, symbols = new_symbols(40)
    outer = formulas.all_of(symbols[1:])
    sides = [formulas.all_of([outer, side]) for side in (symbols[0], -symbols[0])]
    assert formulas.any_of(sides) == outer


def test_a_tensor_has_one_value() -> None:
    formulas, (a,) = new_symbols(1)
    zero, one, two = numbers(formulas, 3)
    assert formulas.all_of([zero, one]) == FALSE
    assert formulas.all_of([zero, -one, a]) == formulas.all_of([zero, a])
    prover = Solver(formulas)
    assert prover.implies(zero, formulas.any_of([a, -two])) is True
    neither = formulas.all_of([-zero, -one, -two])
    assert prover.is_satisfiable(neither) is True
    pairs = formulas.all_of([formulas.any_of([zero, a]), formulas.any_of([one, -a])])
    assert prover.is_satisfiable(formulas.all_of([pairs, formulas.any_of([two, zero]), a])) is False


def test_the_values_of_a_formula_are_those_of_its_parts() -> None:
    formulas, (a, b, c) = new_symbols(3)
    formula = formulas.any_of([formulas.all_of([a, -b]), formulas.all_of([b, c])])
    assert table(formulas, formula, [a, b, c]) == [
        (x and not y) or (y and z) for x, y, z in itertools.product((False, True), repeat=3)
    ]


def test_others_can_be_put_for_symbols() -> None:
    formulas, (a, b, c) = new_symbols(3)
    formula = formulas.any_of([formulas.all_of([a, -b]), c])
    assert formulas.substitute(formula, {b: -c}) == c
    assert formulas.substitute(formula, {b: FALSE, c: FALSE}) == a


def random_formula(formulas: Formulas, symbols: list[int], draw: random.Random) -> int:
    pool = list(symbols)
    for _ in range(12):
        parts = [draw.choice(pool) * draw.choice((1, -1)) for _ in range(draw.randrange(1, 4))]
        pool.append(draw.choice((formulas.all_of, formulas.any_of))(parts))
    return pool[-1]


@pytest.mark.parametrize("seed", range(60))
def test_answers_are_those_of_the_truth_table(seed: int) -> None:
    draw = random.Random(seed)
    formulas, symbols = new_symbols(5)
    prover = Solver(formulas)
    one, other = (random_formula(formulas, symbols, draw) for _ in range(2))
    rows = table(formulas, one, symbols), table(formulas, other, symbols)
    assert prover.is_satisfiable(one) is any(rows[0])
    assert prover.always(one) is all(rows[0])
    assert prover.equal(one, other) is (rows[0] == rows[1])
    assert prover.implies(one, other) is all(y for x, y in zip(*rows, strict=True) if x)


def test_what_is_equal_by_meaning_is_found_equal_whatever_its_form() -> None:
    formulas, (a, b, c) = new_symbols(3)
    consensus = formulas.all_of([b, c])
    two = formulas.any_of([formulas.all_of([a, b]), formulas.all_of([-a, c])])
    three = formulas.any_of([two, consensus])
    assert two != three
    assert Solver(formulas).equal(two, three) is True


def test_a_model_makes_the_formula_true() -> None:
    formulas, symbols = new_symbols(60)
    formula = formulas.all_of([*symbols[:30], *(-symbol for symbol in symbols[30:])])
    model = Solver(formulas).model(formula)
    assert model is not None
    assert evaluate(formulas, formula, model)
    contradiction = formulas.all_of([formula, formulas.any_of([-symbols[0], symbols[59]])])
    assert Solver(formulas).model(contradiction) is None


def hard(formulas: Formulas, count: int) -> int:
    """A random 3SAT formula at the hardest ratio of clauses to variables."""
    draw = random.Random(5)
    names = [formulas.symbol(place, Symbol(f"p{place}", "predicate")) for place in range(count)]
    clauses = [
        formulas.any_of(symbol * draw.choice((1, -1)) for symbol in draw.sample(names, 3))
        for _ in range(int(4.26 * count))
    ]
    return formulas.all_of(clauses)


def test_beyond_the_bound_of_conflicts_the_answer_is_unknown() -> None:
    formulas = Formulas()
    prover = Solver(formulas, max_conflicts=100)
    assert prover.is_satisfiable(hard(formulas, 250)) is None
    assert prover.unknown == 1


def test_beyond_the_bound_of_formulas_the_answer_is_unknown() -> None:
    formulas = Formulas()
    formula = hard(formulas, 50)
    assert Solver(formulas, max_formulas=100).is_satisfiable(formula) is None
    assert Solver(formulas).is_satisfiable(formula) is not None
