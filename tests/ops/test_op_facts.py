"""Facts that ops declare are true, and no list of op names repeats them."""

from __future__ import annotations

import ast
import inspect
import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from cfgraph.ir import registry
from cfgraph.ir.shapes import Shape
from cfgraph.ops.opdef.op import Op, lookup
from cfgraph.ops.opdef.shape_functions import InferenceContext
from tests.ops import harness
from tests.ops.harness import Case, assert_same, run_ours
from tests.ops.test_ops import check, is_good, of_each_op

OPS = Path(__file__).parents[2] / "cfgraph" / "ops"
FOLDER = OPS / "families"


def all_ops() -> list[type[Op]]:
    found = [lookup(name) for name in registry.op_names()]
    return [op for op in found if op is not None]


def commutes(item: Case) -> bool:
    op = lookup(item.op)
    return op is not None and op.algebra.commutes


@of_each_op(lambda item: is_good(item) and commutes(item))
def test_commuting_ops_return_the_same_with_swapped_inputs(cases: list[Case]) -> None:
    def alike(item: Case) -> None:
        swapped = harness.case(item.op, item.inputs[::-1], item.attrs, types=item.types[::-1])
        for one, other in zip(run_ours(item), run_ours(swapped), strict=True):
            assert_same(item, one, other)

    check(cases, alike)


def applied(item: Case, *inputs: np.ndarray) -> np.ndarray:
    """The output of the op of a case on other inputs of the same types."""
    case = harness.case(item.op, inputs, item.attrs, types=item.types)
    return np.asarray(run_ours(case)[0])


@of_each_op(lambda item: is_good(item) and bool(lookup(item.op).algebra.involutive))
def test_involutive_ops_undo_themselves(cases: list[Case]) -> None:
    def undone(item: Case) -> None:
        (x,) = item.inputs
        assert applied(item, applied(item, x)).tobytes() == x.tobytes()

    check(cases, undone)


def test_a_transpose_that_undoes_another_returns_its_input() -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    undone = 0
    for first, second in itertools.product(itertools.permutations(range(3)), repeat=2):
        perms = [harness.i32(*first), harness.i32(*(axis - 3 for axis in second))]
        one = harness.case("Transpose", [x, perms[0]])
        other = harness.case("Transpose", [run_ours(one)[0], perms[1]])
        contexts = [
            InferenceContext(
                harness.node_of(item),
                tuple(Shape(a.shape) for a in item.inputs),
                item.inputs.__getitem__,
            )
            for item in (other, one)
        ]
        is_undone = lookup("Transpose").undoes(*contexts)
        assert is_undone == np.array_equal(run_ours(other)[0], x)
        undone += is_undone
    assert undone == 6


@of_each_op(lambda item: is_good(item) and bool(lookup(item.op).algebra.idempotent))
def test_idempotent_ops_change_nothing_twice(cases: list[Case]) -> None:
    def repeated(item: Case) -> None:
        y = applied(item, *item.inputs)
        assert applied(item, y).tobytes() == y.tobytes()

    check(cases, repeated)


@of_each_op(lambda item: is_good(item) and lookup(item.op).algebra.neutral_second is not None)
def test_neutral_operands_change_no_bit(cases: list[Case]) -> None:
    def unchanged(item: Case) -> None:
        algebra = lookup(item.op).algebra
        for slot, neutral in enumerate((algebra.neutral_second, algebra.neutral_first)):
            x = np.asarray(item.inputs[slot])
            if neutral is None or x.dtype.kind in "OcV":
                continue
            if x.dtype.kind == "f":
                x = np.append(x.ravel(), np.array([-0.0, 0.0, np.inf, -np.inf, np.nan], x.dtype))
            other = np.array(neutral).astype(x.dtype)
            pair = (x, other) if slot == 0 else (other, x)
            assert applied(item, *pair).tobytes() == x.tobytes()

    check(cases, unchanged)


def test_the_slots_of_an_argument_behind_a_list_depend_on_the_node() -> None:
    part = np.zeros((2, 3), np.float32)
    node = harness.node_of(harness.case("ConcatV2", [part, part, part, np.int32(0)]))
    assert lookup("ConcatV2").slots_of(node, (1,)) == {3}
    assert lookup("ConcatV2").slots_of(node, (0, 1)) == {0, 1, 2, 3}
    assert lookup("ConcatV2").slots_of(node, ()) == set()


def test_element_preserving_ops_return_only_elements_of_their_inputs() -> None:
    moving = [
        item
        for item in harness.all_cases()
        if is_good(item) and lookup(item.op).aliasing.preserves_elements
    ]
    assert moving

    def elements(array: np.ndarray) -> set[bytes]:
        flat = array.ravel().tolist() if array.dtype == object else list(array.ravel())
        return {value if isinstance(value, bytes) else value.tobytes() for value in flat}

    def kept(item: Case) -> None:
        for output in map(np.asarray, run_ours(item)):
            same = [array for array in item.inputs if array.dtype == output.dtype]
            assert elements(output) <= set().union(*map(elements, same))

    check(moving, kept)


def test_every_op_says_in_words_of_its_own_what_it_computes() -> None:
    for op in all_ops():
        text = op.__dict__.get("__doc__")
        assert text, op.name
        assert len(text.split()) > 1, op.name
        assert text.splitlines()[0].rstrip()[-1] in ".;:,", op.name


def test_kernels_name_attributes_or_functions_that_derive_from_the_node() -> None:
    for op in all_ops():
        names = inspect.signature(op.kernel).parameters if op.kernel else {}
        leading = [name for name, item in names.items() if item.kind is item.POSITIONAL_ONLY]
        for name in leading[leading.index("xp") + 1 :] if leading else ():
            is_known = name == "node" or name in op.parsed().attrs
            assert is_known or callable(getattr(op, name)), (op.name, name)


def test_an_op_is_found_in_one_file() -> None:
    modules = {op.__module__ for op in all_ops()}
    assert modules <= {f"cfgraph.ops.families.{path.stem}" for path in FOLDER.glob("*.py")}


def test_no_file_of_ops_keeps_a_list_of_their_names() -> None:
    names = set(registry.op_names())
    found = [
        f"{path.name}:{line}: {listed}"
        for path in sorted(OPS.rglob("*.py"))
        # the generated index, which a test of its own compares with the classes
        if path.name != "index.py"
        for line, listed in _listed(ast.parse(path.read_text()), names)
    ]
    assert not found


def _listed(tree: ast.Module, names: set[str]) -> Iterator[tuple[int, set[str]]]:
    for node in ast.walk(tree):
        items = list[ast.expr | None]()
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            items = list(node.elts)
        elif isinstance(node, ast.Dict):
            items = list(node.keys)
        texts = [item.value for item in items if isinstance(item, ast.Constant)]
        found = names.intersection(text for text in texts if isinstance(text, str))
        if len(found) > 1:
            yield getattr(node, "lineno", 0), found


def test_identities_return_their_inputs_unchanged() -> None:
    forwarding = [
        item
        for item in harness.all_cases()
        if is_good(item) and lookup(item.op).aliasing.is_identity
    ]
    assert forwarding
    for item in forwarding:
        for value, output in zip(item.inputs, run_ours(item), strict=True):
            assert_same(item, output, value)


LOGIC = {
    "not": lambda x: not x,
    "and": lambda x, y: x and y,
    "or": lambda x, y: x or y,
    "equal": lambda x, y: x == y,
    "differ": lambda x, y: x != y,
    "truth": lambda x: x,
}


def test_logical_ops_say_of_booleans_what_their_fact_promises() -> None:
    logical = [op for op in all_ops() if op.algebra.boolean_semantics]
    assert {op.algebra.boolean_semantics for op in logical} == set(LOGIC)
    for op in logical:
        arity = len(op.parsed().inputs)
        for values in itertools.product((False, True), repeat=arity):
            (result,) = run_ours(harness.case(op.name, [np.bool_(value) for value in values]))
            assert result == LOGIC[op.algebra.boolean_semantics](*values), op.name
