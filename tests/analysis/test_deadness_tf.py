"""TensorFlow's own deadness tests, for the mode that follows its rules."""

from __future__ import annotations

import pytest

from cfgraph.analysis.deadness.deadness_tf import deadness_tf
from cfgraph.analysis.deadness.deadness_tf_formulas import TfPredicate, TfPredicates
from cfgraph.analysis.verify.verify import verify
from cfgraph.ir import dtypes
from cfgraph.ir.graph import CONTROL, Node, Output
from cfgraph.ir.shapes import Shape
from tests.analysis.random_graphs import RECIPES, random_graph
from tests.analysis.tf_catalog import Counter, Pieces


@pytest.fixture
def g() -> Pieces:
    return Pieces()


def test_both_sides_of_a_switch_do_not_match(g: Pieces) -> None:
    false, true = g.switch("0")
    assert g.mismatch(g.add(true, false))


def test_two_inputs_match(g: Pieces) -> None:
    assert not g.mismatch(g.add(g.placeholder("a"), g.placeholder("b")))


@pytest.mark.parametrize("join", ["add", "merge"])
def test_the_order_of_operands_does_not_count(g: Pieces, join: str) -> None:
    (f0, _), (f1, t1) = g.switch("0"), g.switch("1")
    make = getattr(g, join)
    a0, a1, b0, b1 = make(f0, f1), make(f1, f0), make(f0, t1), make(t1, f0)
    assert [g.mismatch(g.add(*pair)) for pair in ((a0, a1), (b0, b1), (a0, b0), (a1, b1))] == [
        False,
        False,
        True,
        True,
    ]


@pytest.mark.parametrize("join", ["add", "merge"])
def test_the_grouping_of_operands_does_not_count(g: Pieces, join: str) -> None:
    f0, f1, f2 = (g.switch(str(k))[0] for k in range(3))
    make = getattr(g, join)
    assert not g.mismatch(g.add(make(make(f0, f1), f2), make(f0, make(f1, f2))))


def test_the_same_conjunction_of_disjunctions_matches(g: Pieces) -> None:
    f = [g.switch(str(k))[0] for k in range(4)]
    m0, m1 = g.merge(f[0], f[1]), g.merge(f[2], f[3])
    assert not g.mismatch(g.add(g.add(m0, m1), g.add(m0, m1)))


def test_the_same_disjunction_of_conjunctions_matches(g: Pieces) -> None:
    f = [g.switch(str(k))[0] for k in range(4)]
    a0, a1 = g.add(f[0], f[1]), g.add(f[2], f[3])
    assert not g.mismatch(g.add(g.merge(a0, a1), g.merge(a0, a1)))


def test_what_is_shared_is_drawn_out_until_all_is_true(g: Pieces) -> None:
    (af, at), (bf, bt) = g.switch("A"), g.switch("B")
    or2 = g.merge(g.add(af, bt), g.add(af, bf))
    or4 = g.merge(g.add(or2, af), at)
    assert g.text(or4) == "#true"


def test_conjunction_distributes_over_disjunction(g: Pieces) -> None:
    f0, f1, f2 = (g.switch(str(k))[0] for k in range(3))
    one = g.add(g.merge(f0, f1), f2)
    assert not g.mismatch(g.add(one, g.merge(g.add(f0, f2), g.add(f1, f2))))


def test_both_sides_of_one_predicate_merge_to_true(g: Pieces) -> None:
    test, value = g.placeholder("p", dtypes.bool_), g.placeholder("v")
    a, b = g.op("Switch", value, test), g.op("Switch", value, test)
    merged = g.merge(a.output(1), b.output(0))
    assert not g.mismatch(g.add(merged, g.placeholder("x")))


@pytest.mark.parametrize("op", ["_Recv", "_HostRecv"])
def test_what_is_received_may_be_dead(g: Pieces, op: str) -> None:
    assert g.mismatch(g.add(g.recv("one", op=op), g.recv("other", op=op)))


def test_loops_with_conditions_of_their_own_differ(g: Pieces) -> None:
    starts = (0, 0, 1)
    loops = [g.counter(f"iv{k}", "fr0", g.const(start)) for k, start in enumerate(starts)]
    adds = [g.add(loops[0].iv, loops[1].iv), g.add(loops[1].iv, loops[2].iv)]
    assert all(g.mismatch(add) for add in adds)
    text = [f"{{#true,&,*iv{k}/cond:0}}<fr0>" for k in range(3)]
    assert [g.text(loop.iv) for loop in loops] == text
    assert [g.text(add) for add in adds] == [
        f"({text[0]} & {text[1]})",
        f"({text[1]} & {text[2]})",
    ]


def test_variables_of_one_condition_match_only_optimistically(g: Pieces) -> None:
    start = g.const(0)
    counter = g.counter("iv0", "loop", start)
    a, b = (g.carried(f"div{k}", "loop", counter.cond, start) for k in range(2))
    add = g.add(a.iv, b.iv)
    assert not g.mismatch(add)
    whole = "{#true,&,*iv0/cond:0}<loop>"
    assert [g.text(node) for node in (counter.iv, a.iv, b.iv, add)] == [whole] * 4
    less = "{#true,&,(*iv0/cond:0 & iv0/iv:0)}<loop>"
    texts = [g.text(node, optimistic=False) for node in (counter.iv, a.iv, b.iv, add)]
    assert texts == [whole, less, less, less]


def test_a_back_edge_that_does_not_read_its_variable_is_taken_optimistically(g: Pieces) -> None:
    start = g.const(0)
    counter = g.counter("iv0", "frame", start)
    carried = g.carried("div0", "frame", counter.cond, start)
    g.latch_reads(carried, counter)
    assert g.text(carried.iv) == "{#true,&,*iv0/cond:0}<frame>"
    assert g.text(carried.iv, optimistic=False) == "div0/iv:0"


OUTER = "{#true,&,*iv_outer/cond:0}<outer_loop>"
INNER = f"{{(*iv_outer/cond:0 & {OUTER}),&,*iv_inner/cond:0}}<inner_loop;outer_loop>"


def _nest(g: Pieces) -> tuple[Counter, Counter]:
    """A counter loop, and inside it another one that starts from a value of the first."""
    outer = g.counter("iv_outer", "outer_loop", g.const(0))
    five = g.enter(g.const(5), "outer_loop", "five", constant=True)
    live = g.op("Switch", five, outer.cond, name="outer_is_live").output(1)
    return outer, g.counter("iv_inner", "inner_loop", live)


def _carried(g: Pieces, outer: Counter, inner: Counter) -> list[Counter]:
    """Two variables of the inner loop that start from two of the outer one."""
    start = g.const(0)
    outers = [
        g.carried(f"dependent_outer_iv{k}", "outer_loop", outer.cond, start) for k in range(2)
    ]
    return [
        g.carried(f"dependent_inner_iv{k}", "inner_loop", inner.cond, made.iv)
        for k, made in enumerate(outers)
    ]


@pytest.mark.parametrize("optimistic", [True, False])
def test_nested_loops_under_one_condition_match(g: Pieces, optimistic: bool) -> None:
    outer, inner = _nest(g)
    carried = _carried(g, outer, inner)
    add = g.add(carried[0].iv, carried[1].iv)
    assert not g.mismatch(add, optimistic=optimistic)
    assert g.text(outer.iv, optimistic=optimistic) == OUTER
    assert g.text(inner.iv, optimistic=optimistic) == INNER
    text = (
        "{{#true,&,(*iv_outer/cond:0 & iv_outer/iv:0)}<outer_loop>,&,"
        "(*iv_inner/cond:0 & iv_inner/iv:0)}<inner_loop;outer_loop>"
    )
    nodes = (carried[0].iv, carried[1].iv, add)
    assert [g.text(node, optimistic=optimistic) for node in nodes] == [text] * 3


def test_two_nests_of_the_same_frames_do_not_match(g: Pieces) -> None:
    _, one = _nest(g)
    _, other = _nest(g)
    add = g.add(one.iv, other.iv)
    assert g.mismatch(add)
    second = INNER.replace("/cond:0", "/cond_1:0")
    assert (g.text(one.iv), g.text(other.iv)) == (INNER, second)
    assert g.text(add) == f"({INNER} & {second})"


def test_a_captured_message_in_an_inner_loop_distinguishes_variables(g: Pieces) -> None:
    outer, inner = _nest(g)
    a, b = _carried(g, outer, inner)
    captured = g.enter(g.recv("captured"), "outer_loop", "outer/captured", constant=True)
    captured = g.enter(captured, "inner_loop", "inner/captured", constant=True)
    product = g.op("Mul", b.iv, captured)
    g.graph.set_input(b.latch, 0, product.output())
    assert g.mismatch(g.add(a.iv, b.iv))


def test_variables_that_forward_each_other(g: Pieces) -> None:
    start = g.const(0)
    counter = g.counter("iv0", "loop", start)
    a, b = (g.carried(f"div{k}", "loop", counter.cond, start) for k in range(2))
    g.latch_reads(a, b)
    g.latch_reads(b, a)
    nodes = [counter.iv, a.iv, b.iv]
    whole = "{#true,&,*iv0/cond:0}<loop>"
    assert [g.text(node) for node in nodes] == [whole] * 3
    assert g.text(b.latch.output(0)) == "(#true)"
    texts = [g.text(node, optimistic=False) for node in nodes]
    assert texts == [whole, "div0/iv:0", "div1/iv:0"]


def test_the_same_recurrence_in_two_frames_is_two(g: Pieces) -> None:
    (_, start), (_, step) = g.switch("init"), g.switch("step")
    exits, nexts = [], []
    for k in range(2):
        frame = f"frame_{k}"
        g.counter(f"iv_{k}", frame, g.const(0))
        entered = g.enter(start, frame, f"init_enter_{k}", constant=True)
        stepped = g.enter(step, frame, f"step_enter_{k}", constant=True)
        merge = g.merge(entered, entered, name=f"expr_{k}")
        following = g.op("NextIteration", g.add(merge, stepped))
        g.graph.set_input(merge, 1, following.output())
        exits.append(g.op("Exit", merge))
        nexts.append(following)
    analysis = g.analyze()
    for a, b in (exits, nexts):
        assert not analysis.equal(a.output(), b.output())
        assert analysis.text(a.output()) != "#true"


def test_control_inputs_count(g: Pieces) -> None:
    false, true = g.switch("0")
    constants = [g.const(1, g.identity(side)) for side in (false, true)]
    assert g.mismatch(g.add(*constants))


def test_a_control_trigger_is_always_live(g: Pieces) -> None:
    gates = [g.op("ControlTrigger", controls=[g.identity(side)]) for side in g.switch("0")]
    assert not g.mismatch(g.add(*(g.const(1, gate) for gate in gates)))


def test_control_inputs_of_a_merge_do_not_count(g: Pieces) -> None:
    constant = g.const(1)
    merges = [g.merge(constant, controls=(g.identity(side),)) for side in g.switch("0")]
    assert not g.mismatch(g.add(*merges))


def test_that_a_message_came_is_not_that_it_is_true(g: Pieces) -> None:
    recv = g.recv("recv", dtypes.bool_)
    split = g.op("Switch", g.placeholder("value", dtypes.bool_), recv)
    both = g.op("LogicalAnd", recv, split.output(1))
    assert g.mismatch(both)
    assert g.text(both) == "(*recv:0 & recv:0)"


def test_de_morgan(g: Pieces) -> None:
    (f0, t0), (f1, t1) = g.switch("cond_0"), g.switch("cond_1")
    both, either = g.add(t0, t1), g.merge(f0, f1)
    assert g.text(g.add(both, either)) == "#false"
    assert g.text(g.merge(both, either)) == "#true"


@pytest.mark.parametrize("value", [True, False])
def test_a_constant_predicate_decides(g: Pieces, value: bool) -> None:
    split = g.op("Switch", g.placeholder("v"), g.const(value))
    sides = [g.identity(split.output(port)) for port in (0, 1)]
    texts = ["#false", "#true"]
    assert [g.text(side) for side in sides] == (texts if value else texts[::-1])


def test_a_predicate_may_be_a_reference(g: Pieces) -> None:

    test = g.op("VariableV2", name="cond_ref", dtype=dtypes.bool_, shape=Shape(()))
    split = g.op("Switch", g.placeholder("v"), test)
    assert g.text(g.identity(split.output(0))) == "~*cond_ref:0"
    assert g.text(g.identity(split.output(1))) == "*cond_ref:0"


@pytest.mark.parametrize(("value", "count", "taken"), [(1, 2, 1), (7, 3, 2), (0, 3, 0)])
def test_a_constant_index_decides(g: Pieces, value: int, count: int, taken: int) -> None:
    split = g.op("_SwitchN", g.placeholder("v"), g.const(value), num_outs=count)
    texts = [g.text(split.output(port)) for port in range(count)]
    assert texts == ["#true" if port == taken else "#false" for port in range(count)]


def test_an_index_may_be_a_reference(g: Pieces) -> None:

    index = g.op("VariableV2", name="bidx", dtype=dtypes.int32, shape=Shape(()))
    split = g.op("_SwitchN", g.placeholder("v"), index, num_outs=3)
    assert [g.text(split.output(port)) for port in range(3)] == [
        "bidx:0=0",
        "(bidx:0=1 & ~bidx:0=0)",
        "(~bidx:0=0 & ~bidx:0=1)",
    ]
    assert g.text(g.const(1, split)) == "(~bidx:0=0 & ~bidx:0=1)"
    merged = g.merge(*(split.output(port) for port in range(3)))
    assert g.text(merged) != "#true"


# -- imprecisions of TensorFlow's analysis
# ------------------------------------------------------------


def test_an_identity_of_a_predicate_is_another_symbol(g: Pieces) -> None:
    test = g.placeholder("less", dtypes.bool_)
    pivot = g.op("Switch", test, test)
    again = g.identity(test, "pred_id")
    data = g.op("Switch", g.placeholder("v", dtypes.bool_), again)
    sides = [g.op("LogicalAnd", pivot.output(k), data.output(k)) for k in (0, 1)]
    text = "((*less:0 & *pred_id:0) | (~*less:0 & ~*pred_id:0))"
    assert g.text(g.merge(*sides)) == text


def test_a_node_before_an_exit_is_taken_for_one_of_every_iteration(g: Pieces) -> None:
    counter = g.counter("iv", "loop", g.const(0))
    invariant = g.identity(g.enter(g.const(1), "loop", "invariant", constant=True))
    leaving = g.identity(counter.latch.output(0))
    assert not g.mismatch(g.add(leaving, invariant))


def _facts() -> tuple[TfPredicates, list[TfPredicate]]:
    make = TfPredicates()
    return make, [make.symbol(f"{name}:0", must_be_true=True) for name in "abc"]


def test_what_is_simplified_and_what_is_not() -> None:
    make, (a, b, c) = _facts()
    ab, abc = make.all_of([a, b]), make.all_of([a, b, c])
    assert str(make.any_of([ab, abc])) == "(*a:0 & *b:0)"
    either, all_three = make.any_of([a, b]), make.any_of([a, b, c])
    assert str(make.all_of([either, all_three])) == "(*a:0 | *b:0)"
    assert str(make.any_of([a, ab])) == "((*a:0 & *b:0) | *a:0)"
    assert str(make.any_of([ab, make.all_of([make.negation(a), b])])) == "*b:0"
    numbers = [make.number_symbol("x:0", value) for value in (0, 1)]
    assert str(make.all_of(numbers)) == "(x:0=0 & x:0=1)"


def test_a_formula_that_explodes_is_cut_in_print() -> None:
    make, _ = _facts()
    p = make.symbol("p:0", must_be_true=True)
    for k in range(12):
        s = make.symbol(f"s{k}:0", must_be_true=True)
        p = make.negation(make.all_of([p, make.any_of([s, make.negation(p)])]))
    assert len(str(p)) < 10_000


@pytest.mark.parametrize("kind", RECIPES)
def test_random_graphs_are_analysed_to_the_last_output(kind: str) -> None:
    for seed in range(10):
        graph = random_graph(seed, kind).graph
        analysis = deadness_tf(graph)
        assert all(analysis.text(Output(node, CONTROL)) for node in graph)


def test_a_long_chain_takes_no_deep_stack(g: Pieces) -> None:
    last: Node | Output = g.placeholder("x")
    for _ in range(2000):
        last = g.identity(last)
    assert g.text(last) == "#true"
    assert not [item for item in verify(g.graph) if item.level == "error"]
