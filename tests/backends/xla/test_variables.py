"""Loops and conditionals that assign variables are compiled, with the values of tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.errors import ExecutionError
from cfgraph.ir import registry
from cfgraph.ops.opdef.op import lookup
from tests.runtime.test_references import WRITING_LOOP

TRAINING = Path(__file__).parents[3] / "fixtures" / "training_loops"
pytest.importorskip("jax", reason="needs the extra `xla`")

HEAD = """
w = VarHandleOp() {dtype=float32, shape=[], shared_name="w"}
u = VarHandleOp() {dtype=float32, shape=[], shared_name="u"}
two = Const() {dtype=float32, value=float32[]:2}
init = AssignVariableOp(w, two) {dtype=float32}
init_u = AssignVariableOp(u, two) {dtype=float32}
n = Placeholder() {dtype=int32, shape=[]}
zero = Const() {dtype=int32, value=int32[]:0}
"""
LOOP = """
loop = While(zero, n, w, u) {T=(int32, int32, resource, resource), cond=@c, body=@b, \
parallel_iterations=1}
y = Identity(loop:0)
after = ReadVariableOp(w, ^loop) {dtype=float32}
after_u = ReadVariableOp(u, ^loop) {dtype=float32}
function c(i: int32, n: int32, w: resource, u: resource) -> (going: bool) {
  less = Less(i, n) {T=int32}
  return going = less:z:0
}
"""
BODY = """
function b(i: int32, n: int32, w: resource, u: resource) \
-> (j: int32, m: int32, w_out: resource, u_out: resource) {
  one = Const() {dtype=int32, value=int32[]:1}
  next = AddV2(i, one:output:0) {T=int32}
  STEP
  return j = next:z:0
  return m = n
  return w_out = w
  return u_out = u
  control_return step = step
}
"""
# w = cos(w) + u, and u = sin(w) of the new w
TWO_VARIABLES = """
  old = ReadVariableOp(w) {dtype=float32}
  more = ReadVariableOp(u) {dtype=float32}
  cosine = Cos(old:value:0) {T=float32}
  sum = AddV2(cosine:y:0, more:value:0) {T=float32}
  write = AssignVariableOp(w, sum:z:0) {dtype=float32}
  again = ReadVariableOp(w, ^write) {dtype=float32}
  sine = Sin(again:value:0) {T=float32}
  step = AssignVariableOp(u, sine:y:0) {dtype=float32}
"""
# every second iteration assigns w, the others u
BRANCHES = """
  two = Const() {dtype=int32, value=int32[]:2}
  rest = FloorMod(i, two:output:0) {T=int32}
  odd = Less(rest:z:0, one:output:0) {T=int32}
  step = If(odd:z:0, w, u) {Tcond=bool, Tin=(resource, resource), Tout=(float32), \
then_branch=@first, else_branch=@second}
"""
# a generator of random numbers, whose state is a variable
DRAWS = """
  kind = Const() {dtype=int64, value=int64[]:1}
  short = Const() {dtype=int32, value=int32[]:1}
  many = Const() {dtype=uint64, value=uint64[]:18446744073709551615}
  size = Const() {dtype=int32, value=int32[1]:[3]}
  draw = StatefulUniform(u, kind:output:0, size:output:0) {dtype=float32, shape_dtype=int32}
  state = RngReadAndSkip(u, short:output:0, many:output:0, ^draw)
  last = Const() {dtype=int32, value=int32[]:1}
  at = GatherV2(state:value:0, last:output:0, zero:output:0) {Tparams=int64, Tindices=int32, \
Taxis=int32}
  low = Cast(at:output:0) {SrcT=int64, DstT=float32}
  zero = Const() {dtype=int32, value=int32[]:0}
  drawn = Sum(draw:output:0, zero:output:0) {T=float32, Tidx=int32}
  both = AddV2(drawn:output:0, low:y:0) {T=float32}
  step = AssignAddVariableOp(w, both:z:0) {dtype=float32}
"""
# numbers of each sampler, some in a loop within the loop, and some in every second iteration
STREAMS = """
  short = Const() {dtype=int32, value=int32[1]:[3]}
  least = Const() {dtype=int32, value=int32[]:-3}
  logits = Const() {dtype=float32, value=float32[2,3]:[[1,2,3],[3,2,1]]}
  uniform = RandomUniform(short:output:0) {T=int32, dtype=float32, seed=3}
  normal = RandomStandardNormal(short:output:0) {T=int32, dtype=float32, seed=3}
  narrow = TruncatedNormal(short:output:0) {T=int32, dtype=float32, seed2=3}
  whole = RandomUniformInt(short:output:0, least:output:0, n) {T=int32, Tout=int32, seed=1}
  class = Multinomial(logits:output:0, one:output:0) {T=float32, output_dtype=int64, seed=1}
  integer = Cast(whole:output:0) {SrcT=int32, DstT=float32}
  classes = Cast(class:output:0) {SrcT=int64, DstT=float32}
  axis = Const() {dtype=int32, value=int32[]:0}
  none = Const() {dtype=int32, value=int32[1]:[-1]}
  flat = Reshape(classes:y:0, none:output:0) {T=float32, Tshape=int32}
  all = ConcatV2(uniform:output:0, normal:output:0, narrow:output:0, integer:y:0, flat:output:0, \
axis:output:0) {N=5, T=float32, Tidx=int32}
  sum = Sum(all:output:0, axis:output:0) {T=float32, Tidx=int32}
  inner = While(axis:output:0, one:output:0, sum:output:0) {T=(int32, int32, float32), \
cond=@some, body=@more, output_shapes=([], [], [])}
  two = Const() {dtype=int32, value=int32[]:2}
  rest = FloorMod(i, two:output:0) {T=int32}
  odd = Less(rest:z:0, one:output:0) {T=int32}
  side = If(odd:z:0, inner:output:2) {Tcond=bool, Tin=(float32), Tout=(float32), \
then_branch=@changed, else_branch=@same, output_shapes=([])}
  step = AssignAddVariableOp(w, side:output:0) {dtype=float32}
"""
SAMPLING = """
function some(j: int32, m: int32, x: float32) -> (going: bool) {
  less = LessEqual(j, m) {T=int32}
  return going = less:z:0
}
function more(j: int32, m: int32, x: float32) -> (k: int32, m_out: int32, y: float32) {
  stateful
  one = Const() {dtype=int32, value=int32[]:1}
  next = AddV2(j, one:output:0) {T=int32}
  called = StatefulPartitionedCall(x) {Tin=(float32), Tout=(float32), f=@changed}
  return k = next:z:0
  return m_out = m
  return y = called:output:0
}
function changed(x: float32) -> (y: float32) {
  stateful
  none = Const() {dtype=int32, value=int32[0]:[]}
  draw = RandomUniform(none:output:0) {T=int32, dtype=float32}
  sum = AddV2(x, draw:output:0) {T=float32}
  return y = sum:z:0
}
function same(x: float32) -> (y: float32) {
  return y = x
}
"""
FUNCTIONS = """
function first(w: resource, u: resource) -> (y: float32) {
  old = ReadVariableOp(w) {dtype=float32}
  more = Cos(old:value:0) {T=float32}
  write = AssignAddVariableOp(w, more:y:0) {dtype=float32}
  read = ReadVariableOp(w, ^write) {dtype=float32}
  return y = read:value:0
  control_return write = write
}
function second(w: resource, u: resource) -> (y: float32) {
  old = ReadVariableOp(w) {dtype=float32}
  write = AssignSubVariableOp(u, old:value:0) {dtype=float32}
  return y = old:value:0
  control_return write = write
}
"""


def runs(text: str, engine: str, fetches: list[str], *feeds: dict[str, Any]) -> tuple[Any, Any]:
    """The values of runs after both variables have one, and the session."""
    made = cfgraph.Session(cfgraph.loads(text.encode(), "graph"), engine=engine)
    made.run(targets=["init", "init_u"])
    return [made.run(fetches, each) for each in feeds], made


def compiled(session: cfgraph.Session, measured: int = 0) -> list[str]:
    """The ops of the clusters that ran as executables of XLA, after `measured` runs."""
    clusters = list(session.cluster_runner.clusters.values())
    assert all(each.compiled_times and each.fused <= measured for each in clusters)
    return [node.op for each in clusters for node in each.line.order]


@pytest.mark.parametrize("step", [TWO_VARIABLES, BRANCHES])
def test_a_loop_that_assigns_is_compiled_as_a_whole(step: str) -> None:
    text = HEAD + LOOP + BODY.replace("STEP", step) + FUNCTIONS
    feeds = [{"n": np.int32(count)} for count in (5, 0, 1, 4)]
    fetches = ["y:0", "after:0", "after_u:0"]
    wanted, _ = runs(text, "tokens", fetches, *feeds)
    found, session = runs(text, "xla", fetches, *feeds)
    np.testing.assert_allclose(np.array(found), np.array(wanted), rtol=1e-6)
    assert "While" in compiled(session)


def test_a_loop_that_draws_from_a_generator_is_compiled_as_a_whole() -> None:
    text = HEAD.replace("two) {dtype=float32}\nn", "three) {dtype=int64}\nn").replace(
        "u = VarHandleOp() {dtype=float32, shape=[]", "u = VarHandleOp() {dtype=int64, shape=[3]"
    )
    text += "three = Const() {dtype=int64, value=int64[3]:[-256, 5, 77]}\n"
    text += LOOP.replace("^loop) {dtype=float32}\nf", "^loop) {dtype=int64}\nf")
    text += BODY.replace("STEP", DRAWS)
    feeds = [{"n": np.int32(count)} for count in (3, 0, 2)]
    wanted, _ = runs(text, "tokens", ["after:0", "after_u:0"], *feeds)
    found, session = runs(text, "xla", ["after:0", "after_u:0"], *feeds)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one[0], other[0], rtol=1e-6)
        np.testing.assert_array_equal(one[1], other[1])
    assert "While" in compiled(session)


def test_a_loop_with_random_nodes_is_compiled_and_draws_the_numbers_of_tokens() -> None:
    text = HEAD + LOOP + BODY.replace("STEP", STREAMS).replace("{\n  one", "{\n  stateful\n  one")
    feeds = [{"n": np.int32(count)} for count in (3, 0, 2, 5)]
    wanted, _ = runs(text + SAMPLING, "tokens", ["y:0", "after:0"], *feeds)
    found, session = runs(text + SAMPLING, "xla", ["y:0", "after:0"], *feeds)
    np.testing.assert_allclose(np.array(found), np.array(wanted), rtol=1e-5)
    assert "While" in compiled(session)
    assert len({float(after) for _, after in found}) == len(feeds) - 1  # no iteration, no change


def test_a_conditional_that_assigns_is_compiled_with_what_follows() -> None:
    text = HEAD + FUNCTIONS
    text += "less = Less(zero, n)\nif = If(less, w, u) {Tin=(resource, resource), Tout=(float32), "
    text += "then_branch=@first, else_branch=@second}\n"
    text += "after = ReadVariableOp(w, ^if) {dtype=float32}\ny = Mul(if:0, after)\n"
    text += "after_u = ReadVariableOp(u, ^if) {dtype=float32}\n"
    feeds = [{"n": np.int32(count)} for count in (1, 0, 0, 1)]
    wanted, _ = runs(text, "tokens", ["y:0", "after_u:0"], *feeds)
    found, session = runs(text, "xla", ["y:0", "after_u:0"], *feeds)
    np.testing.assert_allclose(np.array(found), np.array(wanted), rtol=1e-6)
    assert "If" in compiled(session)


def test_a_run_that_fails_in_a_loop_leaves_the_variables_as_tokens_do() -> None:
    step = """
  table = Const() {dtype=float32, value=float32[3]:[1,2,3]}
  row = Gather(table:output:0, i) {Tparams=float32, Tindices=int32}
  step = AssignAddVariableOp(w, row:output:0) {dtype=float32}
"""
    text = HEAD + LOOP + BODY.replace("STEP", step)
    values = []
    for engine in ("tokens", "xla"):
        _, session = runs(text, engine, ["after:0"], {"n": np.int32(2)})
        with pytest.raises(ExecutionError, match="3 is not in"):
            session.run(["after:0"], {"n": np.int32(5)})
        values.append(session.run(["after:0"], {"n": np.int32(0)}))
    assert values[0] == values[1]


def test_a_variable_without_a_value_may_get_one_in_a_branch() -> None:
    text = HEAD + LOOP.replace("w, u) {T", "w, v) {T") + BODY.replace("STEP", BRANCHES) + FUNCTIONS
    text += 'v = VarHandleOp() {dtype=float32, shape=[], shared_name="v"}\n'
    text = text.replace("AssignSubVariableOp(u, old", "AssignVariableOp(u, old")
    feeds = [{"n": np.int32(count)} for count in (1, 2, 3)]
    wanted, _ = runs(text, "tokens", ["y:0", "after:0"], *feeds)
    found, _ = runs(text, "xla", ["y:0", "after:0"], *feeds)
    np.testing.assert_allclose(np.array(found), np.array(wanted), rtol=1e-6)


REFERENCES = """
w = VariableV2() {dtype=float32, shape=[2]}
u = VariableV2() {dtype=float32, shape=[2]}
two = Const() {dtype=float32, value=float32[2]:[2, 3]}
init = Assign(w, two) {T=float32}
init_u = Assign(u, two) {T=float32}
n = Placeholder() {dtype=int32, shape=[]}
zero = Const() {dtype=int32, value=int32[]:0}
first = Identity(w)
sine = Sin(first)
scaled = Mul(sine, u)
step = AssignAdd(w, scaled) {T=float32}
again = Cos(first, ^step)
both = Mul(step, again)
rate = Const() {dtype=float32, value=float32[]:0.5}
down = ApplyGradientDescent(u, rate, both) {T=float32}
last = Mul(w, u, ^down)
"""


def test_a_graph_with_reference_variables_is_one_cluster() -> None:
    fetches = ["last:0", "both:0", "first:0", "step:0"]
    feeds: list[dict[str, Any]] = [{}, {}, {}]
    wanted, _ = runs(REFERENCES, "tokens", fetches, *feeds)
    found, session = runs(REFERENCES, "xla", fetches, *feeds)
    np.testing.assert_allclose(np.array(found), np.array(wanted), rtol=1e-5)
    assert "ResourceApplyGradientDescent" in compiled(session)
    (variable,) = session.run(["w:0"])
    np.testing.assert_array_equal(variable, found[-1][2])


def test_a_reference_in_a_loop_that_assigns_has_the_value_of_its_iteration() -> None:
    session = cfgraph.Session(cfgraph.loads(WRITING_LOOP.encode(), "graph"), engine="xla")
    session.run([], targets=["init"])
    assert session.run(["out:0"], max_iterations=20) == [8]
    assert "While" in compiled(session)
    assert session.run(["read:0"]) == [128]


def test_a_reference_variable_without_a_value_is_named_as_one() -> None:
    session = cfgraph.Session(cfgraph.loads(REFERENCES.encode(), "graph"), engine="xla")
    with pytest.raises(ExecutionError, match="Attempting to use uninitialized value"):
        session.run(["last:0"])


MERGED = """
w = VariableV2() {dtype=float32, shape=[]}
u = VariableV2() {dtype=float32, shape=[]}
two = Const() {dtype=float32, value=float32[]:2}
init = Assign(w, two) {T=float32}
init_u = Assign(u, two) {T=float32}
p = Placeholder() {dtype=bool, shape=[]}
side = RefSwitch(w, p)
more = AssignAdd(side:1, two) {T=float32}
merged = RefMerge(side:0, more) {N=2}
y = Neg(merged)
square = Square(y)
"""


def test_a_merge_of_references_is_read_where_it_is() -> None:
    feeds = [{"p": np.bool_(taken)} for taken in (False, True, True, False)]
    wanted, _ = runs(MERGED, "tokens", ["square:0"], *feeds)
    found, _ = runs(MERGED, "xla", ["square:0"], *feeds)
    assert found == wanted


COPIED = """
u = VariableV2() {dtype=float32, shape=[]}
w = VariableV2() {dtype=float32, shape=[]}
x = Placeholder() {dtype=float32, shape=[]}
init = NoOp()
init_u = NoOp()
first = Assign(w, x) {T=float32}
second = Assign(u, first) {T=float32}
"""


def test_a_fetched_assignment_may_have_the_value_of_another() -> None:
    feeds = [{"x": np.float32(value)} for value in (2, 3)]
    found, _ = runs(COPIED, "xla", ["first:0", "second:0"], *feeds)
    assert np.array(found).tolist() == [[2, 2], [3, 3]]


# nothing reads `other_exit`, for which a node waits; CHECK may fail
UNREAD = """
n = Placeholder() {dtype=int32, shape=[]}
zero = Const() {dtype=int32, value=int32[]:0}
most = Const() {dtype=int32, value=int32[]:4}
less_than = Less(n, most)
check = Assert(less_than, n) {T=(int32)}
start = Identity(zero, CHECK)
i = Enter(zero) {frame_name="loop"}
other = Enter(start) {frame_name="loop"}
limit = Enter(n) {frame_name="loop", is_constant=true}
merge = Merge(i, next)
merge_other = Merge(other, next_other)
less = Less(merge, limit)
cond = LoopCond(less)
switch = Switch(merge, cond)
switch_other = Switch(merge_other, cond)
body = Identity(switch:1)
one = Const(^body) {dtype=int32, value=int32[]:1}
add = AddV2(body, one)
text = AsString(switch_other:1)
length = StringLength(text)
next = NextIteration(add)
next_other = NextIteration(length)
exit = Exit(switch)
other_exit = Exit(switch_other)
result = Identity(exit)
unread = Identity(other_exit)
all = NoOp(^result, ^unread)
y = Neg(result, ^all)
z = Square(y)
"""


def test_what_nothing_reads_keeps_no_loop_out() -> None:
    text = UNREAD.replace(", CHECK", "")
    session = cfgraph.Session(cfgraph.loads(text.encode(), "graph"), engine="xla")
    assert session.run(["z:0"], {"n": np.int32(3)}) == [9]
    assert "StatelessWhile" in compiled(session)


def test_an_assertion_that_only_an_unread_result_needs_still_fails() -> None:
    text = UNREAD.replace("CHECK", "^check")
    session = cfgraph.Session(cfgraph.loads(text.encode(), "graph"), engine="xla")
    assert session.run(["z:0"], {"n": np.int32(3)}) == [9]
    with pytest.raises(ExecutionError, match="assertion failed"):
        session.run(["z:0"], {"n": np.int32(5)})


OPTIMIZERS = sorted(
    name
    for name in registry.op_names()
    if name.startswith("ResourceApply") and (op := lookup(name)) is not None and op.compiles()
)
SPARSE = sorted(
    name
    for name in registry.op_names()
    if name.startswith(("ResourceSparseApply", "ResourceScatter")) and "ScatterDiv" not in name
)
# of these, one of each kind is tried in a short run
SOME = ("ResourceSparseApplyFtrl", "ResourceScatterMul", "ResourceScatterNdSub")
UPDATES = [
    *OPTIMIZERS,
    *(pytest.param(x, marks=[] if x in SOME else pytest.mark.slow) for x in SPARSE),
]


@pytest.mark.parametrize("name", UPDATES)
def test_an_update_by_an_optimizer_is_compiled(name: str) -> None:
    op = lookup(name)
    assert op is not None
    text, inputs, random = "", [], np.random.default_rng(3)
    # a row is updated twice
    rows, feeds = np.array([2, 0, 2, 1], np.int32), {}
    changes = ("grad", "delta", "updates")
    length, kinds = len(rows) if name in SPARSE else 3, "Tindices=int32, " * (name in SPARSE)
    for number, argument in enumerate(op.parsed().inputs):
        size = f"[{length}]" if argument.name in changes else "[]"
        kind = "float32" if argument.dtype is None else str(argument.dtype)
        if kind == "resource":
            values = "[0.5, 1.25, 2]"
            text += (
                f'v{number} = VarHandleOp() {{dtype=float32, shape=[3], shared_name="{number}"}}\n'
            )
            text += f"value{number} = Const() {{dtype=float32, value=float32[3]:{values}}}\n"
            text += f"init{number} = AssignVariableOp(v{number}, value{number}) {{dtype=float32}}\n"
        elif argument.name == "indices":
            feeds[f"v{number}:0"] = rows[:, None] if "Nd" in name else rows
            text += f"v{number} = Placeholder() {{dtype=int32, shape=?}}\n"
        else:
            numbers = random.uniform(0.1, 0.9, length if size != "[]" else 1).round(3)
            layout = str(numbers.tolist()) if size != "[]" else str(numbers[0])
            layout = "-0.5" if argument.name == "lr_power" else layout
            layout = "3" if kind == "int64" else layout
            text += f"v{number} = Const() {{dtype={kind}, value={kind}{size}:{layout}}}\n"
        inputs.append(f"v{number}")
    cells = [each for each in range(len(inputs)) if f"init{each}" in text]
    kinds += "dtype" if "dtype" in op.parsed().attrs else "T"
    text += f"step = {name}({', '.join(inputs)}) {{{kinds}=float32}}\n"
    text += "".join(
        f"after{each} = ReadVariableOp(v{each}, ^step) {{dtype=float32}}\n" for each in cells
    )
    found = []
    for engine in ("tokens", "xla"):
        session = cfgraph.Session(cfgraph.loads(text.encode(), "graph"), engine=engine)
        session.run(targets=[f"init{each}" for each in cells])
        found.append([session.run([f"after{each}:0" for each in cells], feeds) for _ in range(2)])
    np.testing.assert_allclose(np.array(found[1]), np.array(found[0]), rtol=2e-6)
    assert name in compiled(session)


# dropout after a layer, on rows of a table that the step updates
DROPOUT = """
x = Placeholder() {dtype=float32, shape=[?,2]}
ids = Placeholder() {dtype=int32, shape=[?]}
w = VarHandleOp() {dtype=float32, shape=[2,2], shared_name="w"}
table = VarHandleOp() {dtype=float32, shape=[3,2], shared_name="table"}
square = Const() {dtype=float32, value=float32[2,2]:[[1,-2],[3,1]]}
rows = Const() {dtype=float32, value=float32[3,2]:[[1,2],[3,4],[5,6]]}
init = AssignVariableOp(w, square) {dtype=float32}
init_u = AssignVariableOp(table, rows) {dtype=float32}
taken = ResourceGather(table, ids) {dtype=float32, Tindices=int32}
input = AddV2(x, taken)
read = ReadVariableOp(w) {dtype=float32}
layer = MatMul(input, read)
shape = Shape(layer) {T=float32, out_type=int32}
drawn = RandomUniform(shape) {T=int32, dtype=float32}
rate = Const() {dtype=float32, value=float32[]:0.4}
kept = GreaterEqual(drawn, rate)
mask = Cast(kept) {SrcT=bool, DstT=float32}
dropped = Mul(layer, mask)
axes = Const() {dtype=int32, value=int32[2]:[0,1]}
y = Sum(dropped, axes)
dw = MatMul(input, mask) {transpose_a=true}
dx = MatMul(mask, read) {transpose_b=true}
step_w = ResourceApplyGradientDescent(w, rate, dw) {T=float32}
scaled = Mul(dx, rate)
step = ResourceScatterSub(table, ids, scaled) {dtype=float32, Tindices=int32}
"""


def test_a_training_step_with_dropout_and_a_table_is_one_cluster() -> None:
    feeds = {"x": np.ones((4, 2), np.float32), "ids": np.array([2, 0, 2, 1], np.int32)}
    found = []
    for engine in ("tokens", "xla"):
        session = cfgraph.Session(cfgraph.loads(DROPOUT.encode(), "graph"), engine=engine)
        session.run(targets=["init", "init_u"])
        before = len(session.cluster_runner.clusters)
        found.append([session.run(["y:0"], feeds, targets=["step_w", "step"])[0] for _ in range(3)])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)
    assert {"RandomUniform", "ResourceScatterSub"} <= {*compiled(session)}
    assert len(session.cluster_runner.clusters) == before + 1


@pytest.mark.parametrize("op", ["ResourceScatterAdd", "ResourceSparseApplyMomentum"])
def test_an_index_out_of_range_of_an_update_is_the_error_of_tokens(op: str) -> None:
    text = HEAD.replace("shape=[]", "shape=[2]").replace("float32[]:2", "float32[2]:[2,3]")
    text = text.replace("{dtype=int32, shape=[2]}", "{dtype=int32}")
    text += "more = Const() {dtype=float32, value=float32[1]:[1]}\n"
    text += "rate = Const() {dtype=float32, value=float32[]:1}\n"
    if op == "ResourceScatterAdd":
        text += f"step = {op}(w, n, more) {{dtype=float32, Tindices=int32}}\n"
    else:
        text += f"step = {op}(w, u, rate, more, n, rate) {{T=float32, Tindices=int32}}\n"
    text += "after = ReadVariableOp(w, ^step) {dtype=float32}\ny = Cos(after)\n"
    messages, values = [], []
    for engine in ("tokens", "xla"):
        found, session = runs(text, engine, ["y:0"], {"n": np.array([1], np.int32)})
        with pytest.raises(ExecutionError) as error:
            session.run(["y:0"], {"n": np.array([2], np.int32)})
        messages.append(str(error.value).replace("cluster_0/", ""))
        values.append([*found, session.run(["after:0"], {"n": np.array([0], np.int32)})])
    assert messages[0] == messages[1]
    np.testing.assert_allclose(values[1][0], values[0][0], rtol=1e-6)
    np.testing.assert_allclose(values[1][1], values[0][1], rtol=1e-6)


@pytest.mark.parametrize("engine", ["compiled", "tokens", "xla"])
@pytest.mark.parametrize("name", ["rnn_of_primitives", "rnn_of_functions", "updates_in_a_loop"])
def test_a_recorded_training_step_is_one_cluster(name: str, engine: str) -> None:
    recorded = np.load(TRAINING / "values.npz")
    feeds = {key.partition("/")[2]: recorded[key] for key in recorded if key.startswith(f"{name}/")}
    wanted = feeds.pop("values")
    session = cfgraph.Session(cfgraph.load(TRAINING / f"{name}.pb"), engine=engine)
    fetches, targets = (["loss:0"], ["train"]) if "rnn" in name else (["last:0"], [])
    session.run(targets=["init"])
    before = len(session.cluster_runner.clusters)
    found = [session.run(fetches, feeds, targets=targets)[0] for _ in wanted]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    if engine == "xla":
        loops = compiled(session, measured=1)  # the first run finds the lengths of lists
        assert sum(op in ("While", "StatelessWhile") for op in loops) == 1 + ("rnn" in name)
        assert len(session.cluster_runner.clusters) == before + 1
