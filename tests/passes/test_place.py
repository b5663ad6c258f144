"""Placement: requests, colocation, and errors."""

from __future__ import annotations

import random

import pytest

import cfgraph
from cfgraph.errors import CfgraphError, InvalidInput, Unsupported, UsageError
from cfgraph.ir.devices import parse_devices, short_device_name
from cfgraph.ir.graph import Graph
from examples.paper.lstm import layered_lstm
from tests.analysis.graph_text import graph

TWO = "cpu:0,gpu:0"


def placed(text: str, devices: str = TWO, **options: object) -> dict[str, str]:
    """Return the short device name of each node."""
    program = graph(text)
    cfgraph.place(program, devices=devices, **options)
    assert {node.device for node in program} <= set(parse_devices(devices))
    return {node.name: short_device_name(node.device) for node in program}


def placement_error(text: str, devices: str = TWO, **options: object) -> CfgraphError:
    """Return the error of a placement, after checking that the graph is unchanged."""
    program = graph(text)
    before = cfgraph.dumps(program, "graph")
    with pytest.raises(CfgraphError) as caught:
        cfgraph.place(program, devices=devices, **options)
    assert cfgraph.dumps(program, "graph") == before
    return caught.value


VARIABLE = """
v = VarHandleOp() {dtype=float32, shape=[], shared_name=""}
one = Const() {dtype=float32, value=float32[]:1}
read = ReadVariableOp(v) {dtype=float32}
add = AssignAddVariableOp(v, one) {dtype=float32}
"""


def with_devices(text: str, **devices: str) -> str:
    """Return the text of a graph with device requests."""
    lines = text.splitlines()
    for name, device in devices.items():
        lines = [f'{line} @"{device}"' if line.startswith(f"{name} =") else line for line in lines]
    return "\n".join(lines)


def variable(**devices: str) -> str:
    return with_devices(VARIABLE, **devices)


# -- requests ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "device"),
    [
        ("/job:localhost/replica:0/task:0/device:GPU:0", "gpu:0"),
        ("/gpu:0", "gpu:0"),
        ("gpu:0", "gpu:0"),
        ("/device:GPU:*", "gpu:0"),
        ("/device:GPU", "gpu:0"),
        ("/job:localhost/task:0/device:CPU:0", "cpu:0"),
        ("/job:localhost", "cpu:0"),
        ("", "cpu:0"),
    ],
)
def test_full_short_and_partial_requests_are_satisfied(request_: str, device: str) -> None:
    text = f'x = Placeholder() {{dtype=float32, shape=[]}} @"{request_}"\ny = Neg(x) {{T=float32}}'
    assert placed(text)["x"] == device


def test_a_placed_graph_is_unchanged() -> None:
    program = graph(variable(v="/gpu:0"))
    assert cfgraph.place(program, devices=TWO)
    before = cfgraph.dumps(program)
    assert not cfgraph.place(program, devices=TWO)
    assert cfgraph.dumps(program) == before


def test_partial_requests_of_colocated_nodes_are_combined() -> None:
    text = variable(v="/job:localhost", read="/device:GPU", add="/device:*:1")
    assert placed(text, "cpu:0-1,gpu:0-1")["v"] == "gpu:1"


def test_a_missing_device_is_rejected_with_the_available_ones() -> None:
    error = placement_error('x = Placeholder() {dtype=float32, shape=[]} @"/gpu:3"')
    assert isinstance(error, InvalidInput)
    assert (error.code, error.node) == ("CFG404", "x")
    assert "available: cpu:0, gpu:0" in str(error)


@pytest.mark.parametrize(
    ("request_", "device"),
    [
        ("/gpu:3", "gpu:0"),
        ("/device:TPU:0", "cpu:0"),
        ("/job:ps/device:CPU:0", "cpu:0"),
        ("/job:ps/gpu:9", "gpu:0"),
        ("/job:ps/task:3", "cpu:0"),
    ],
)
def test_soft_placement_chooses_the_closest_device(request_: str, device: str) -> None:
    program = graph(f'x = Placeholder() {{dtype=float32, shape=[]}} @"{request_}"')
    report = cfgraph.place(program, devices=TWO, soft_placement=True)
    assert short_device_name(program["x"].device) == device
    assert "cannot be used for x: available: cpu:0, gpu:0" in report.warnings[0]


def test_an_invalid_device_name_is_rejected() -> None:
    error = placement_error('x = Placeholder() {dtype=float32, shape=[]} @"/gpu:x"')
    assert (error.code, error.exit_code) == ("CFG402", 3)


@pytest.mark.parametrize("devices", ["", []])
def test_without_devices_there_is_no_placement(devices: str) -> None:
    with pytest.raises(UsageError, match="no devices"):
        cfgraph.place(graph("a = NoOp()"), devices=devices)


# -- what must be together -----------------------------------------------------------------------


@pytest.mark.parametrize("requester", ["v", "read", "add"])
def test_a_request_of_one_user_of_a_variable_places_all(requester: str) -> None:
    placement = placed(variable(**{requester: "/gpu:0"}))
    assert {placement[name] for name in ("v", "read", "add")} == {"gpu:0"}


def test_requests_that_conflict_over_a_variable_are_both_named() -> None:
    error = placement_error(variable(read="/cpu:0", add="/gpu:0"))
    assert (error.code, error.exit_code) == ("CFG403", 3)
    for phrase in (
        "'read' requests /cpu:0",
        "'add' requests /gpu:0",
        "v and read share a resource",
    ):
        assert phrase in error.message
    assert "soft placement" in (error.hint or "")


def test_soft_placement_keeps_the_first_of_two_requests_that_conflict() -> None:
    program = graph(variable(read="/gpu:0", add="/cpu:0"))
    report = cfgraph.place(program, devices=TWO, soft_placement=True)
    assert {short_device_name(program[name].device) for name in ("v", "read", "add")} == {"gpu:0"}
    reason = "read requests /gpu:0, and they must share a device"
    assert report.warnings == (f"/cpu:0 cannot be used for add: {reason}",)


REFERENCE = """
v = VariableV2() {dtype=float32, shape=[]}
one = Const() {dtype=float32, value=float32[]:1}
assign = Assign(v, one) {T=float32}
value = Neg(v) {T=float32}
"""


def reference(**devices: str) -> str:
    return with_devices(REFERENCE, **devices)


def test_writers_of_a_reference_are_colocated() -> None:
    placement = placed(reference(assign="/gpu:0"))
    assert placement["v"] == placement["assign"] == "gpu:0"
    assert placement_error(reference(v="/cpu:0", assign="/gpu:0")).code == "CFG403"


def test_a_reader_of_a_reference_is_colocated_unless_it_requests_otherwise() -> None:
    assert placed(reference(v="/gpu:0"))["value"] == "gpu:0"
    placement = placed(reference(v="/gpu:0", value="/cpu:0"))
    assert (placement["v"], placement["value"]) == ("gpu:0", "cpu:0")


CLASSES = """
a = Placeholder() {dtype=float32, shape=[]}
b = Neg(a) {T=float32, _class=("loc:@a")}
c = Neg(a) {T=float32, _class=("loc:@b")}
d = Neg(c) {T=float32, _class=("loc:@c", "loc:@a")}
"""


def classes(**devices: str) -> str:
    return with_devices(CLASSES, **devices)


@pytest.mark.parametrize("requester", list("abcd"))
def test_a_chain_of_classes_is_on_one_device(requester: str) -> None:
    assert set(placed(classes(**{requester: "/gpu:0"})).values()) == {"gpu:0"}


def test_a_conflict_over_a_class_is_explained() -> None:
    error = placement_error(classes(b="/cpu:0", d="/gpu:0"))
    assert "'b' requests /cpu:0, 'd' requests /gpu:0" in error.message
    assert "share a class" in error.message


def test_nodes_that_name_the_same_missing_node_are_colocated() -> None:
    text = """
    a = Placeholder() {dtype=float32, shape=[], _class=("loc:@gone")}
    b = Placeholder() {dtype=float32, shape=[], _class=("loc:@gone")} @"/gpu:0"
    """
    assert placed(text) == {"a": "gpu:0", "b": "gpu:0"}


def test_a_malformed_class_is_ignored() -> None:
    text = """
    a = Placeholder() {dtype=float32, shape=[], _class="loc:@b"}
    b = Placeholder() {dtype=float32, shape=[], _class=("elsewhere")} @"/gpu:0"
    """
    assert placed(text) == {"a": "cpu:0", "b": "gpu:0"}


LOOP_OF = """
p = Placeholder() {dtype=bool, shape=[]}
sw = Switch(h, p) {T=TYPE}
en = Enter(sw:1) {T=TYPE, frame_name="f", is_constant=true}
id = Identity(en) {T=TYPE}
mg = Merge(sw:0, other) {T=TYPE, N=2}
"""
HANDLES = {
    "stack": (
        "resource",
        "size = Const() {dtype=int32, value=int32[]:9}\n"
        "h = StackV2(size) {elem_type=float32}\nother = StackV2(size) {elem_type=float32}",
    ),
    "array": (
        "string",
        "size = Const() {dtype=int32, value=int32[]:9}\n"
        "h = TensorArrayV2(size) {dtype=float32}\nother = TensorArrayV2(size) {dtype=float32}",
    ),
}


@pytest.mark.parametrize("kind", HANDLES)
@pytest.mark.parametrize("seed", range(4))
def test_all_nodes_that_a_handle_reaches_are_colocated(kind: str, seed: int) -> None:
    dtype, constructor = HANDLES[kind]
    text = f"{constructor}\n{LOOP_OF.replace('TYPE', dtype)}"
    placement = placed(text, "cpu:0-2,gpu:0", seed=seed)
    assert len({placement[name] for name in ("h", "sw", "en", "id", "mg", "other")}) == 1


def loop_gradient(device: str) -> Graph:
    """The gradient of a loop whose body is on a device."""
    builder = cfgraph.Builder()
    x = builder.placeholder("x", "float32", [2])
    w = builder.placeholder("w", "float32", [2])

    def body(i: object, a: object) -> object:
        with builder.device(device):
            return builder.AddV2(i, 1), builder.Tanh(builder.Mul(a, w))

    with builder.scope("forward"):
        _, y = builder.while_loop(lambda i, a: i < 3, body, (builder.const(0), x))
    cfgraph.gradients(builder.graph, [y.name], ["x:0", "w:0"])
    return builder.graph


def devices_of(graph: Graph, *ops: str) -> set[str]:
    return {short_device_name(node.device) for node in graph if node.op in ops}


SAVED = ("StackV2", "StackPushV2", "StackPopV2")


def test_a_stack_is_on_the_device_of_the_value_that_it_saves() -> None:
    graph = loop_gradient("")
    # only the forward loop has a device
    cfgraph.place(graph, devices="cpu:0,gpu:0-2", rules={"forward/*": "gpu:2"})
    assert devices_of(graph, *SAVED) == {"gpu:2"}
    cfgraph.partition(graph)
    pushes = [node for node in graph if node.op == "StackPushV2"]
    assert pushes
    assert all(node.inputs[1].node.op != "_Recv" for node in pushes)


def test_a_stack_yields_to_a_rule_for_the_gradients() -> None:
    graph = loop_gradient("")
    rules = {"gradients/*": "gpu:1", "forward/*": "gpu:2"}
    cfgraph.place(graph, devices="cpu:0,gpu:0-2", rules=rules)
    assert devices_of(graph, *SAVED) == {"gpu:1"}


def test_the_gradient_of_an_invariant_is_summed_on_the_device_of_its_terms() -> None:
    graph = loop_gradient("/gpu:1")
    sums = [node for node in graph if node.op == "AddN"]
    assert sums
    assert {node.device for node in sums} == {"/gpu:1"}


def test_a_carried_gradient_stays_on_the_device_of_its_variable() -> None:
    graph = layered_lstm(3, layers=3, units=2, batch=2, parallel=4)
    cfgraph.gradients(graph, ["loss:0"], [f"weights{k}:0" for k in range(3)])
    cfgraph.place(graph, devices="cpu:0,gpu:0-2")
    cfgraph.partition(graph)
    sent = {node.inputs[0].node.name for node in graph if node.op == "_Send"}
    assert any("ConcatV2" in name for name in sent)  # from a layer to the one below
    assert not [name for name in sent if name.endswith("/b_merge")]


# -- what only a CPU can run ---------------------------------------------------------------------

STRINGS = """
s = Const() {dtype=string, value=string[]:"a"}
j = StringJoin(s, s) {N=2}
n = Placeholder() {dtype=float32, shape=[]} @"/gpu:0"
m = AsString(n) {T=float32}
"""


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_string_ops_run_on_a_cpu(seed: int | None) -> None:
    placement = placed(STRINGS, seed=seed)
    assert placement["s"] == placement["j"] == placement["m"] == "cpu:0"


def test_a_missing_kernel_is_unsupported() -> None:
    text = with_devices(STRINGS, j="/gpu:0")
    error = placement_error(text)
    assert (error.code, error.exit_code, error.node) == ("CFG405", 4, "j")
    assert "only a CPU runs StringJoin, and the request is /gpu:0" in error.message
    assert placed(text, soft_placement=True)["j"] == "cpu:0"


def test_an_error_about_a_table_on_a_gpu_names_both() -> None:
    text = """
    t = HashTableV2() {key_dtype=int64, value_dtype=float32}
    n = LookupTableSizeV2(t) @"/gpu:0"
    """
    error = placement_error(text)
    assert error.code == "CFG405"
    assert "HashTableV2, and the request of 'n' is /gpu:0" in error.message


def test_without_a_cpu_strings_are_unsupported() -> None:
    error = placement_error("p = Placeholder() {dtype=string, shape=[]}", "gpu:0")
    assert isinstance(error, Unsupported)
    assert "only a CPU runs Placeholder, and there is none" in error.message
    assert placement_error(
        "p = Placeholder() {dtype=string, shape=[]}", "gpu:0", soft_placement=True
    )


def test_strings_in_host_memory_do_not_constrain_nodes_that_forward_them() -> None:
    text = """
    s = Placeholder() {dtype=string, shape=[]}
    i = Identity(s) {T=string} @"/gpu:0"
    """
    assert placed(text) == {"s": "cpu:0", "i": "gpu:0"}


# -- the whole -----------------------------------------------------------------------------------


def test_functional_nodes_are_lowered_first(fixtures: object) -> None:
    program = cfgraph.load(f"{fixtures}/graphs/while_functional.pb")
    report = cfgraph.place(program, devices=TWO)
    assert "LoopCond" in {node.op for node in program}
    assert report.names["while:2"] == ("while/Exit_1:0",)
    assert set(report.decided) == set(program.nodes)


def test_a_functional_graph_that_cannot_be_placed_is_not_lowered(fixtures: object) -> None:
    program = cfgraph.load(f"{fixtures}/graphs/while_functional.pb")
    program.set_device(program["n"], "/gpu:5")
    before = cfgraph.dumps(program)
    with pytest.raises(InvalidInput):
        cfgraph.place(program, devices=TWO)
    assert cfgraph.dumps(program) == before


def test_a_partitioned_graph_is_rejected() -> None:
    program = graph(
        'x = Placeholder() {dtype=float32, shape=[]} @"/gpu:0"\ny = AsString(x) {T=float32}'
    )
    cfgraph.place(program, devices=TWO)
    cfgraph.partition(program)
    with pytest.raises(Unsupported, match="partitioned already") as caught:
        cfgraph.place(program, devices=TWO)
    assert caught.value.code == "CFG411"


def test_every_decision_has_a_reason() -> None:
    program = graph(variable(read="/gpu:0") + STRINGS)
    why = cfgraph.place(program, devices=TWO).decided
    assert why["read"] == "asked for /gpu:0"
    assert why["v"] == "beside read"
    assert why["j"] == "only a CPU runs StringJoin"
    assert why["one"] == "cost"


@pytest.mark.parametrize("name", ["nested", "lstm_grad", "while_functional", "eight_devices"])
def test_random_placement_depends_only_on_the_seed(name: str, fixtures: object) -> None:
    def run(seed: int) -> bytes:
        program = cfgraph.load(f"{fixtures}/graphs/{name}.pb")
        cfgraph.place(program, devices="cpu:0-2", seed=seed)
        return cfgraph.dumps(program)

    random.seed(1)
    first = run(3)
    random.seed(2)
    assert run(3) == first
    assert run(4) != first


def test_random_placement_ignores_requests_but_not_colocation() -> None:
    placement = [placed(variable(v="/gpu:7"), "cpu:0-1", seed=seed) for seed in range(8)]
    assert {devices["v"] for devices in placement} == {"cpu:0", "cpu:1"}
    assert all(devices["v"] == devices["read"] == devices["add"] for devices in placement)
