from __future__ import annotations

import numpy as np
import pytest

import cfgraph
from cfgraph.errors import ExecutionError

TEXT = """
zero = Const() {dtype=int32, value=int32[]:0}
flow = Const() {dtype=float32, value=float32[]:0.0}
names = Const() {dtype=string, value=string[2]:["a", "b"]}
variable = VarHandleOp() {dtype=float32, shape=[], shared_name="v"}
stack = StackV2(zero) {elem_type=float32}
array = TensorArrayV3(zero) {dtype=float32}
table = HashTableV2() {key_dtype=int64, value_dtype=float32, shared_name="t"}
old_stack = Stack() {elem_type=float32}
old_table = HashTable() {key_dtype=int64, value_dtype=float32, shared_name="o"}
y = USER
"""
USES = {
    "TensorArrayConcatV2(names, flow) {dtype=float32}": "refers to nothing in this run",
    "TensorArrayReadV2(names, zero, flow) {dtype=float32}": "refers to nothing in this run",
    "TensorArrayReadV3(variable, zero, flow) {dtype=float32}": "refers to <Variable 'v'",
    "StackPopV2(array:0) {elem_type=float32}": "refers to <TensorArray 'array'",
    "ReadVariableOp(stack) {dtype=float32}": "refers to <Stack 'stack'",
    "LookupTableSizeV2(stack)": "refers to <Stack 'stack'",
    "ReadVariableOp(table) {dtype=float32}": "refers to <Table 't'",
}
ASSIGNMENTS = {
    "AssignVariableOp(stack, flow) {dtype=float32}": "refers to <Stack 'stack'",
    "AssignVariableOp(array:0, flow) {dtype=float32}": "refers to <TensorArray 'array'",
    "AssignVariableOp(table, flow) {dtype=float32}": "refers to <Table 't'",
    "Assign(old_stack, names)": "refers to <Stack 'old_stack'",
    "Assign(old_stack, names) {validate_shape=false}": "refers to <Stack 'old_stack'",
    "Assign(old_table, names)": "refers to <Table 'o'",
}


@pytest.mark.parametrize("use", USES)
def test_a_handle_of_another_kind_is_an_error_that_names_what_it_refers_to(use: str) -> None:
    graph = cfgraph.loads(TEXT.replace("USER", use).encode(), "graph")
    with pytest.raises(ExecutionError, match=USES[use]) as caught:
        cfgraph.Session(graph).run(["y:0"])
    assert caught.value.node == "y"


@pytest.mark.parametrize("use", ASSIGNMENTS)
def test_assigning_to_a_handle_of_another_kind_is_an_error_that_names_what_it_refers_to(
    use: str,
) -> None:
    graph = cfgraph.loads(TEXT.replace("USER", use).encode(), "graph")
    with pytest.raises(ExecutionError, match=ASSIGNMENTS[use]) as caught:
        cfgraph.Session(graph).run([], targets=["y"])
    assert caught.value.node == "y"


def test_a_stack_of_the_first_version_is_fetched_as_two_names_that_no_other_stack_has() -> None:
    text = b"""
one = Stack() {elem_type=float32, stack_name="s"}
other = Stack() {elem_type=float32, stack_name="s"}
value = Const() {dtype=float32, value=float32[]:3.0}
push = StackPush(one, value)
pop = StackPop(one, ^push) {elem_type=float32}
"""
    session = cfgraph.Session(cfgraph.loads(text, "graph"))
    one, other, popped = session.run(["one:0", "other:0", "pop:0"])
    assert one.shape == other.shape == (2,)
    assert one.dtype == object
    assert one[0] == other[0]
    assert one[1] != other[1]
    np.testing.assert_array_equal(popped, np.float32(3))
