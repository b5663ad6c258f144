"""Products of the elements of an unstacked array: values, engines, and where they apply."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.backends.xla.cluster_runner import ClusterRunner
from cfgraph.ops.kernels import unstacked_rows as unstacked
from cfgraph.ops.kernels.unstacked_rows import UnstackedRows, unstacked_rows
from cfgraph.runtime.engine.deferred_products import defer_products
from cfgraph.runtime.engine.plan import RunSpec, make_plans
from cfgraph.runtime.session import Session
from tests.runtime.graphs import LOOP
from tests.runtime.test_deferred_products import ENGINES, Outputs, session, wrapped

# state = tanh([xᵢ, state] w) for i < n, with x [n, 4, 256] and w [384, 128]
RECURRENT = (
    LOOP.replace("PARALLEL", "10")
    + """
x = Placeholder() {dtype=float32, shape=[?,4,256]}
w = Placeholder() {dtype=float32, shape=[?,?]}
start = Placeholder() {dtype=float32, shape=[4,128]}
array = TensorArrayV3(n) {dtype=float32, clear_after_read=true, identical_element_shapes=true}
one_root = Const() {dtype=int32, value=int32[]:1}
numbers = Range(zero, n, one_root)
flow = TensorArrayScatterV3(array, numbers, x, array:1)
handle = Enter(array) {frame_name="loop", is_constant=true}
flow_in = Enter(flow) {frame_name="loop", is_constant=true}
weights = Enter(w) {frame_name="loop", is_constant=true}
first = Enter(start) {frame_name="loop"}
state = Merge(first, following)
kept = Switch(state, cond)
before = Identity(kept:1)
element = TensorArrayReadV3(handle, INDEX, flow_in) {dtype=float32}
axis = Const(^body) {dtype=int32, value=int32[]:1}
both = ConcatV2(element, before, axis)
product = MatMul(both, weights)
after = Tanh(product)
following = NextIteration(after)
result = Exit(kept)
"""
)
FORWARD = RECURRENT.replace("INDEX", "body")
BACKWARD = RECURRENT.replace("INDEX", "index").replace(
    "axis = Const",
    "last = Sub(limit, body)\nindex = Sub(last, one)\naxis = Const",
)
ALL = {"product", "both", "element"}


def feeds(count: int, rows: int = 4) -> dict[str, Any]:
    random = np.random.default_rng(count)
    return {
        "n:0": np.int32(count),
        "x:0": random.standard_normal((count, rows, 256)).astype(np.float32),
        "w:0": (random.standard_normal((384, 128)) * 0.1).astype(np.float32),
        "start:0": random.standard_normal((rows, 128)).astype(np.float32),
    }


def expected(fed: dict[str, Any], order: Any = None) -> Any:
    x, w, state = (fed[name].astype(np.float64) for name in ("x:0", "w:0", "start:0"))
    for index in range(len(x)) if order is None else order:
        state = np.tanh(np.concatenate([x[index], state], axis=1) @ w)
    return state


def agreed(source: str, fed: dict[str, Any], **options: Any) -> Any:
    """The result, which is the same in all engines."""
    values = [
        session(source, engine=engine, **options).run(["result:0"], fed) for engine in ENGINES
    ]
    assert values[0][0].tobytes() == values[1][0].tobytes()
    return values[0][0]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The elements whose products come from blocks."""
    indices: list[int] = []
    product = UnstackedRows.product

    def counted(self: UnstackedRows, index: int, *matrices: Any) -> Any:
        indices.append(index)
        return product(self, index, *matrices)

    monkeypatch.setattr(UnstackedRows, "product", counted)
    return indices


@pytest.mark.parametrize("count", [0, 1, 95, 96, 97, 200])
def test_a_recurrent_product_is_that_of_numpy(count: int, calls: list[int]) -> None:
    fed = feeds(count)
    np.testing.assert_allclose(agreed(FORWARD, fed), expected(fed), rtol=1e-3, atol=1e-4)
    assert calls == [*range(count)] * 2
    assert wrapped(FORWARD, ["result:0"]) == ALL


def test_elements_may_be_read_in_any_order(calls: list[int]) -> None:
    fed = feeds(130)
    value = agreed(BACKWARD, fed)
    np.testing.assert_allclose(value, expected(fed, range(129, -1, -1)), rtol=1e-3, atol=1e-4)
    assert calls == [*range(129, -1, -1)] * 2


ALONE = (
    FORWARD.replace("both = ConcatV2(element, before, axis)\n", "")
    .replace("MatMul(both, weights)", "MatMul(element, weights) {transpose_b=true}")
    .replace("Tanh(product)", "AddV2(product, before)")
)


def test_an_element_may_be_multiplied_alone(calls: list[int]) -> None:
    fed = feeds(100)
    fed["w:0"] = np.ascontiguousarray(fed["w:0"][:256].T)
    total = fed["start:0"] + (fed["x:0"] @ fed["w:0"].T).sum(axis=0)
    np.testing.assert_allclose(agreed(ALONE, fed), total, rtol=1e-3, atol=1e-3)
    assert len(calls) == 200


TIED = (
    FORWARD.replace("clear_after_read=true", "clear_after_read=false")
    .replace("[4,128]", "[4,256]")
    .replace("axis = Const", "again = TensorArrayReadV3(handle, body, flow_in)\naxis = Const")
    .replace("flow_in)\naxis", "flow_in) {dtype=float32}\naxis")
    .replace("both = ConcatV2(element, before, axis)", "turned = MatMul(again, weights) {TURNED}")
    .replace("MatMul(both, weights)", "MatMul(element, weights)")
    .replace("Tanh(product)", "AddV2(sum, before)\nsum = AddV2(product, turned)")
)


def test_a_matrix_and_its_transpose_have_their_own_products(calls: list[int]) -> None:
    fed = {**feeds(3), "w:0": np.float32(np.random.default_rng(0).standard_normal((256, 256)))}
    fed["start:0"] = np.zeros((4, 256), np.float32)
    for options, factor in (("transpose_b=true", fed["w:0"].T), ("", fed["w:0"])):
        total = (fed["x:0"] @ fed["w:0"] + fed["x:0"] @ factor).sum(axis=0)
        value = agreed(TIED.replace("TURNED", options), fed)
        np.testing.assert_allclose(value, total, rtol=1e-3, atol=1e-3)
    assert len(calls) == 4 * 6


@pytest.mark.parametrize(("space", "steps", "products"), [(5, 480, 5), (2, 60, 60)])
def test_elements_in_any_order_share_blocks(
    space: int, steps: int, products: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step reads from the next of five blocks."""
    made: list[int] = []
    monkeypatch.setattr(unstacked, "_MAX_NUMBERS", space * 384 * 128)
    monkeypatch.setattr(
        unstacked, "multiply_in_loop", lambda x, y, repeats: made.append(len(x)) or x.dot(y)
    )
    random = np.random.default_rng(0)
    tensor = random.standard_normal((480, 4, 256)).astype(np.float32)
    rows, matrix = UnstackedRows(tensor), random.standard_normal((256, 128)).astype(np.float32)
    for index in np.arange(480).reshape(5, 96).T.ravel()[:steps].tolist():
        np.testing.assert_allclose(
            rows.product(index, matrix, matrix), tensor[index] @ matrix, rtol=1e-3, atol=1e-3
        )
    assert made == [384] * products


def test_an_observer_sees_the_elements() -> None:
    fed, elements, joined = feeds(5), Outputs("element"), Outputs("both")
    plain = session(FORWARD).run(["result:0"], fed)
    traced = session(FORWARD).run(["result:0"], fed, trace=elements)
    session(FORWARD).run(["result:0"], fed, trace=joined)
    assert traced[0].tobytes() == plain[0].tobytes()
    np.testing.assert_array_equal(np.array(elements.values[:5]), fed["x:0"])
    np.testing.assert_array_equal(np.array(joined.values[:5])[:, :, :256], fed["x:0"])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('weights = Enter(w) {frame_name="loop", is_constant=true}', "weights = Neg(state)"),
        ("axis = Const", "also = Neg(element)\nalso_state = AddV2(also, also)\naxis = Const"),
    ],
)
def test_other_uses_of_an_element_or_other_factors_are_computed_as_they_are(
    old: str, new: str
) -> None:
    source = FORWARD.replace(old, new)
    if "also" in new:
        source = source.replace("AddV2(also, also)", "Sum(also, axis)").replace(
            "following = NextIteration(after)",
            "shifted = AddV2(after, wide)\nwide = Mean(also, axis) {keep_dims=true}\n"
            "following = NextIteration(shifted)",
        )
    assert source != FORWARD
    assert wrapped(source, ["result:0"]) <= {"product"}


def test_a_reference_that_a_loop_may_assign_to_has_no_blocks() -> None:
    source = FORWARD.replace("Enter(w)", "RefEnter(variable)").replace(
        "w = Placeholder()", "variable = VariableV2()"
    )
    assert not wrapped(source, ["result:0"])


def test_elements_that_differ_from_the_tensor_are_multiplied_as_they_are(calls: list[int]) -> None:
    fed = feeds(3)
    fed["x:0"] = np.moveaxis(np.ascontiguousarray(np.moveaxis(fed["x:0"], 0, 2)), 2, 0)
    np.testing.assert_allclose(agreed(FORWARD, fed), expected(fed), rtol=1e-3, atol=1e-4)
    tall = feeds(3, rows=4)
    tall["x:0"] = np.zeros((3, 70, 256), np.float32)
    tall["start:0"] = np.zeros((70, 128), np.float32)
    source = FORWARD.replace("[4,128]", "[?,128]").replace("[?,4,256]", "[?,?,256]")
    assert not agreed(source, tall).any()
    assert 0 not in calls[6:]


def test_a_matrix_that_another_loop_changes_is_read_again() -> None:
    """The outer loop halves the weights; nothing else reads the earlier ones."""
    source = """
zero = Const() {dtype=int32, value=int32[]:0}
one = Const() {dtype=int32, value=int32[]:1}
n = Placeholder() {dtype=int32, shape=[]}
x = Placeholder() {dtype=float32, shape=[?,4,256]}
w = Placeholder() {dtype=float32, shape=[256,128]}
total = Const() {dtype=float32, value=float32[]:0}
half = Const() {dtype=float32, value=float32[]:0.5}
array = TensorArrayV3(n) {dtype=float32, clear_after_read=false, identical_element_shapes=true}
numbers = Range(zero, n, one)
flow = TensorArrayScatterV3(array, numbers, x, array:1)
limit = Enter(n) {frame_name="outer", is_constant=true}
handle = Enter(array) {frame_name="outer", is_constant=true}
flow_in = Enter(flow) {frame_name="outer", is_constant=true}
ratio = Enter(half) {frame_name="outer", is_constant=true}
step = Enter(one) {frame_name="outer", is_constant=true}
i0 = Enter(zero) {frame_name="outer"}
w0 = Enter(w) {frame_name="outer"}
t0 = Enter(total) {frame_name="outer"}
i = Merge(i0, i_next)
v = Merge(w0, w_next)
t = Merge(t0, t_next)
less = Less(i, limit)
cond = LoopCond(less)
i_switch = Switch(i, cond)
v_switch = Switch(v, cond)
t_switch = Switch(t, cond)
i_body = Identity(i_switch:1)
v_body = Identity(v_switch:1)
start = Const(^i_body) {dtype=int32, value=int32[]:0}
inner_limit = Enter(limit) {frame_name="inner", is_constant=true}
inner_handle = Enter(handle) {frame_name="inner", is_constant=true}
inner_flow = Enter(flow_in) {frame_name="inner", is_constant=true}
inner_step = Enter(step) {frame_name="inner", is_constant=true}
weights = Enter(v_body) {frame_name="inner", is_constant=true}
j0 = Enter(start) {frame_name="inner"}
s0 = Enter(t_switch:1) {frame_name="inner"}
j = Merge(j0, j_next)
s = Merge(s0, s_next)
j_less = Less(j, inner_limit)
j_cond = LoopCond(j_less)
j_switch = Switch(j, j_cond)
s_switch = Switch(s, j_cond)
j_body = Identity(j_switch:1)
element = TensorArrayReadV3(inner_handle, j_body, inner_flow) {dtype=float32}
product = MatMul(element, weights)
axes = Const(^j_body) {dtype=int32, value=int32[2]:[0, 1]}
part = Sum(product, axes)
s_sum = AddV2(s_switch:1, part)
s_next = NextIteration(s_sum)
j_sum = AddV2(j_body, inner_step)
j_next = NextIteration(j_sum)
s_exit = Exit(s_switch)
t_next = NextIteration(s_exit)
v_half = Mul(v_body, ratio, ^s_exit)
w_next = NextIteration(v_half)
i_sum = AddV2(i_body, step)
i_next = NextIteration(i_sum)
result = Exit(t_switch)
"""
    fed = feeds(12)
    fed["w:0"] = np.ascontiguousarray(fed.pop("w:0")[:256])
    del fed["start:0"]
    x, w = fed["x:0"].astype(np.float64), fed["w:0"].astype(np.float64)
    total = sum((x @ (w * 0.5**i)).sum() for i in range(12))
    assert wrapped(source, ["result:0"]) == {"product", "element"}
    assert agreed(source, fed) == pytest.approx(total, rel=1e-3)


@pytest.mark.parametrize(
    ("chain", "factors"), [(0, "both, weights"), (2000, "both, i2000"), (0, "start, w")]
)
def test_many_products_are_planned_in_linear_time(chain: int, factors: str) -> None:
    source = f"{FORWARD}i0 = Identity(weights)\n"
    source += "".join(f"i{n + 1} = Identity(i{n})\n" for n in range(chain))
    source += "size = Const() {dtype=int32, value=int32[2]:[1, 1]}\n"
    for n in range(2000):
        source += f"p{n} = MatMul({factors})\n"
        source += f"s{n} = Slice(p{n}, size, size)\n" if factors == "start, w" else ""
    graph = cfgraph.loads(source.encode(), "graph")
    fetches = [f"s{n}:0" for n in range(2000)] if factors == "start, w" else ["result:0"]
    targets = () if len(fetches) > 1 else tuple(graph[f"p{n}"] for n in range(2000))
    feeds = tuple(node.output() for node in graph if node.op == "Placeholder")
    spec = RunSpec(graph, tuple(graph.tensor(name) for name in fetches), targets, feeds)
    (plan,) = make_plans(spec, "cpu:0", ClusterRunner(None))
    start = time.process_time()
    defer_products([plan])
    assert time.process_time() - start < 0.3  # quadratic: 0.9 s


def test_only_whole_float_batches_in_order_have_blocks() -> None:
    tensor = np.zeros((3, 4, 5), np.float32)
    assert unstacked_rows(tensor, [0, 1, 2]) is not None
    assert unstacked_rows(tensor, [0, 2, 1]) is None
    assert unstacked_rows(tensor[:2], [0, 1]) is None
    assert unstacked_rows(np.zeros((3, 4, 5), np.int32), [0, 1, 2]) is None
    assert unstacked_rows(np.zeros((3, 0, 5), np.float32), [0, 1, 2]) is None
    assert unstacked_rows(np.zeros((3, 65, 5), np.float32), [0, 1, 2]) is None


def test_runs_share_no_products() -> None:
    run = Session(cfgraph.loads(FORWARD.encode(), "graph"))
    fed = [feeds(40), {**feeds(40), "w:0": feeds(41)["w:0"]}]
    with ThreadPoolExecutor(2) as pool:
        values = list(pool.map(lambda feed: run.run(["result:0"], feed)[0], fed * 4))
    for value, feed in zip(values, fed * 4, strict=True):
        np.testing.assert_allclose(value, expected(feed), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("source", [FORWARD, ALONE.replace(" {transpose_b=true}", "")])
@pytest.mark.parametrize("xs", [["w"], ["w", "x", "start"]])
def test_a_saved_factor_stays_deferred_until_it_is_multiplied(source: str, xs: list[str]) -> None:
    graph = cfgraph.loads(source.encode(), "graph")
    found = [name for name in cfgraph.gradients(graph, ["result"], xs) if name]
    fed = feeds(100)
    if "ConcatV2" not in source:
        fed["w:0"] = fed["w:0"][:256]
    pops = [name for name in wrapped(graph, found) if graph[name].op == "StackPopV2"]
    assert len(found) == len(xs)
    assert len(pops) == 1
    values = [Session(graph, engine=engine).run(found, fed) for engine in ENGINES]
    alone = Session(graph, memory={}).run(found, fed)
    for a, b, c in zip(*values, alone, strict=True):
        assert a.tobytes() == b.tobytes()
        np.testing.assert_allclose(a, c, rtol=1e-3, atol=1e-3)


def test_a_deferred_value_that_is_popped_for_another_use_is_computed() -> None:
    source = (
        FORWARD
        + """
stack_size = Const() {dtype=int32, value=int32[]:-1}
stack = StackV2(stack_size) {elem_type=float32}
saved = Enter(stack) {frame_name="loop", is_constant=true}
push = StackPushV2(saved, both)
shown = Neg(push)
pushed = NextIteration(shown)
first_shown = Enter(wide) {frame_name="loop"}
wide = Placeholder() {dtype=float32, shape=[4,384]}
shown_state = Merge(first_shown, pushed)
shown_switch = Switch(shown_state, cond)
last = Exit(shown_switch)
pop = StackPopV2(stack, ^last) {elem_type=float32}
top = Neg(pop)
"""
    )
    fed = {**feeds(3), "wide:0": np.zeros((4, 384), np.float32)}
    assert {"both", "push"} <= wrapped(source, ["top:0", "last:0", "result:0"])
    for engine in ENGINES:
        top, last, _ = session(source, engine=engine).run(["top:0", "last:0", "result:0"], fed)
        assert top.tobytes() == last.tobytes()
        np.testing.assert_array_equal(-top[:, :256], fed["x:0"][2])


WRITTEN_BEHIND = (
    FORWARD.replace("identical_element_shapes=true", "identical_element_shapes=true, EXTRA")
    .replace("Range(zero, n,", "Range(zero, m,")
    .replace(
        "flow = TensorArrayScatterV3", "m = Sub(n, one_root)\nscattered = TensorArrayScatterV3"
    )
    .replace("flow_in = Enter(flow)", "flow = WRITE\nflow_in = Enter(flow)")
    + "last = Placeholder() {dtype=float32, shape=[4,256]}\n"
)
WRITE = "TensorArrayWriteV3(array, m, last, scattered)"


@pytest.mark.parametrize(
    ("extra", "write"),
    [
        ("dynamic_size=true", WRITE),
        ("dynamic_size=false", WRITE),
        ("element_shape=[4,256]", "Identity(scattered)"),  # an element that is not written is zero
    ],
)
def test_elements_behind_the_rows_are_multiplied_alone(
    extra: str, write: str, calls: list[int]
) -> None:
    source = WRITTEN_BEHIND.replace("EXTRA", extra).replace("WRITE", write)
    whole = feeds(5)
    fed = {**whole, "x:0": whole["x:0"][:4].copy()}
    if "last" in write:
        fed["last:0"] = whole["x:0"][4]
    else:
        whole["x:0"][4] = 0
    np.testing.assert_allclose(agreed(source, fed), expected(whole), rtol=1e-3, atol=1e-4)
    assert calls == [*range(4)] * 2


def test_rows_after_which_nothing_is_scattered_are_multiplied_alone() -> None:
    source = FORWARD.replace("flow = Tensor", "scattered = Tensor").replace(
        "flow_in =",
        "nothing = Placeholder() {dtype=float32, shape=[0,4,256]}\n"
        "none = Range(zero, zero, one_root)\n"
        "flow = TensorArrayScatterV3(array, none, nothing, scattered)\nflow_in =",
    )
    fed = {**feeds(5), "nothing:0": np.zeros((0, 4, 256), np.float32)}
    np.testing.assert_allclose(agreed(source, fed), expected(fed), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("is_partitioned", [False, True])
def test_a_matrix_of_another_device_agrees(is_partitioned: bool) -> None:
    """A message hides the matrix from the device that multiplies, a copied Enter does not."""
    source = FORWARD.replace("MatMul(both, weights)", "MatMul(both, sent)").replace(
        "first = Enter", "sent = Identity(weights)\nfirst = Enter"
    )
    same = dict.fromkeys(("product", "both", "element", "array", "flow"), "cpu:1")
    for rules in ({**same, "sent": "cpu:0"}, {**same, "sent": "cpu:1", "weights": "cpu:0"}):
        graph, devices = cfgraph.loads(source.encode(), "graph"), ["cpu:0", "cpu:1"]
        if is_partitioned:
            cfgraph.place(graph, devices=devices, rules=rules)
            cfgraph.partition(graph)
        options = {} if is_partitioned else {"devices": devices, "rules": rules}
        runs = [Session(graph, engine=engine, **options) for engine in ENGINES]
        values = [run.run(["result:0"], feeds(100))[0] for run in runs]
        assert not runs[0].fallback
        assert values[0].tobytes() == values[1].tobytes()


@pytest.mark.parametrize("axis", ["int32[]:0", "int32[]:2", "int32[1]:[1]"])
def test_an_invalid_axis_has_the_error_of_the_concatenation(axis: str) -> None:
    source = FORWARD.replace("axis = Const(^body) {dtype=int32, value=int32[]:1}", "AXIS")
    source = source.replace("AXIS", f"axis = Const(^body) {{dtype=int32, value={axis}}}")
    messages = set()
    for options in ({"engine": "compiled"}, {"engine": "tokens"}, {"memory": {}}):
        with pytest.raises(cfgraph.CfgraphError, match="Concat") as failed:
            session(source, **options).run(["result:0"], feeds(3))
        messages.add((failed.value.node, str(failed.value)))
    assert len(messages) == 1
