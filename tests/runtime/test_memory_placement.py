"""Placement of tensors in host or device memory, and the copies between them."""

from __future__ import annotations

import pytest

import cfgraph
from cfgraph.runtime.cluster_runner import ClusterRunner
from cfgraph.runtime.engine.plan import RunSpec, make_plans
from cfgraph.runtime.memory.placement import MemoryPlacement

TEXT = """
x = Placeholder() {dtype=float32, shape=[2,3]}
i = Placeholder() {dtype=int32, shape=[]}
shape = Shape(x) {out_type=int64}
size = Size(x)
one = Const() {dtype=int32, value=int32[]:1}
next = AddV2(i, one)
less = Less(i, one)
both = LogicalAnd(less, less)
best = ArgMax(x, one) {output_type=int32}
best_of = Max(best, axes)
axes = Const() {dtype=int32, value=int32[1]:[0]}
number = Cast(i) {DstT=float32}
y = Mul(x, number)
back = Reshape(y, shape)
same = Identity(next)
text = Const() {dtype=string, value=string[]:"a"}
switch = Switch(y, both)
merge = Merge(switch:0, switch:1)
choice = Switch(next, less)
stack = Stack() {elem_type=float32}
push = StackPush(stack, y)
pop = StackPop(stack, ^push) {elem_type=float32}
"""


@pytest.fixture(scope="module")
def homes() -> tuple[cfgraph.Graph, MemoryPlacement]:
    graph = cfgraph.loads(TEXT.encode(), "graph")
    fed = (graph.tensor("x:0"), graph.tensor("i:0"))
    spec = RunSpec(graph, (), tuple(graph), fed)
    (plan,) = make_plans(spec, "gpu:0", ClusterRunner())
    return graph, MemoryPlacement(plan.nodes)


def test_shapes_counters_handles_and_texts_are_the_hosts(
    homes: tuple[cfgraph.Graph, MemoryPlacement],
) -> None:
    graph, found = homes
    names = ["i", "shape", "size", "next", "less", "same", "text", "choice", "merge:1", "stack"]
    for name in names:
        assert found.is_host(graph.tensor(name)), name


def test_what_is_computed_from_the_devices_tensors_is_there(
    homes: tuple[cfgraph.Graph, MemoryPlacement],
) -> None:
    graph, found = homes
    for name in ("x", "best", "number", "y", "back", "both", "switch:1", "merge", "push", "pop"):
        assert not found.is_host(graph.tensor(name)), name


def test_one_copy_serves_all_that_read_a_tensor_in_the_other_memory(
    homes: tuple[cfgraph.Graph, MemoryPlacement],
) -> None:
    _, found = homes
    crossing = {(node.name, slot, to_host) for node, slot, to_host in found.crossings()}
    assert crossing == {
        ("number", 0, False),  # a counter that the device casts
        ("both", 0, False),
        ("switch", 1, True),  # a predicate that the device computed
        ("best_of", 0, True),
    }
