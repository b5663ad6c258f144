"""Placement: what is asked for, what must be together, and what cannot be."""

from __future__ import annotations

import random

import pytest

import cfgraph
from cfgraph.errors import CfgraphError, InvalidInput, Unsupported, UsageError
from cfgraph.ir.devices import parse_devices, short_device_name
from cfgraph.ir.graph import Graph

TWO = "cpu:0,gpu:0"


def graph(text: str) -> Graph:
    return cfgraph.loads(text.encode(), "graph")


def placed(text: str, devices: str = TWO, **options: object) -> dict[str, str]:
    """The short device of each node."""
    of = graph(text)
    cfgraph.place(of, devices=devices, **options)
    assert {node.device for node in of} <= set(parse_devices(devices))
    return {node.name: short_device_name(node.device) for node in of}


def refused(text: str, devices: str = TWO, **options: object) -> CfgraphError:
    """The error of a placement, which leaves the graph as it is."""
    of = graph(text)
    before = cfgraph.dumps(of, "graph")
    with pytest.raises(CfgraphError) as caught:
        cfgraph.place(of, devices=devices, **options)
    assert cfgraph.dumps(of, "graph") == before
    return caught.value


VARIABLE = """
v = VarHandleOp() {dtype=float32, shape=[], shared_name=""}
one = Const() {dtype=float32, value=float32[]:1}
read = ReadVariableOp(v) {dtype=float32}
add = AssignAddVariableOp(v, one) {dtype=float32}
"""


def with_devices(text: str, **devices: str) -> str:
    """The text of a graph whose nodes ask for devices."""
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
def test_a_request_is_met_in_full_in_short_and_in_part(request_: str, device: str) -> None:
    text = f'x = Placeholder() {{dtype=float32, shape=[]}} @"{request_}"\ny = Neg(x) {{T=float32}}'
    assert placed(text)["x"] == device


def test_a_graph_that_is_placed_stays_as_it_is() -> None:
    of = graph(variable(v="/gpu:0"))
    assert cfgraph.place(of, devices=TWO)
    before = cfgraph.dumps(of)
    assert not cfgraph.place(of, devices=TWO)
    assert cfgraph.dumps(of) == before


def test_parts_of_requests_of_nodes_that_are_together_add_up() -> None:
    text = variable(v="/job:localhost", read="/device:GPU", add="/device:*:1")
    assert placed(text, "cpu:0-1,gpu:0-1")["v"] == "gpu:1"


def test_a_device_that_is_not_there_is_refused_with_those_that_are() -> None:
    error = refused('x = Placeholder() {dtype=float32, shape=[]} @"/gpu:3"')
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
def test_soft_placement_takes_what_is_nearest(request_: str, device: str) -> None:
    of = graph(f'x = Placeholder() {{dtype=float32, shape=[]}} @"{request_}"')
    report = cfgraph.place(of, devices=TWO, soft_placement=True)
    assert short_device_name(of["x"].device) == device
    assert "cannot be used for x: available: cpu:0, gpu:0" in report.warnings[0]


def test_a_request_that_is_no_device_name_is_refused() -> None:
    error = refused('x = Placeholder() {dtype=float32, shape=[]} @"/gpu:x"')
    assert (error.code, error.exit_code) == ("CFG402", 3)


@pytest.mark.parametrize("devices", ["", []])
def test_without_devices_there_is_no_placement(devices: str) -> None:
    with pytest.raises(UsageError, match="no devices"):
        cfgraph.place(graph("a = NoOp()"), devices=devices)


# -- what must be together -----------------------------------------------------------------------


@pytest.mark.parametrize("who", ["v", "read", "add"])
def test_all_users_of_a_variable_go_to_the_device_that_one_requests(who: str) -> None:
    found = placed(variable(**{who: "/gpu:0"}))
    assert {found[name] for name in ("v", "read", "add")} == {"gpu:0"}


def test_requests_that_conflict_over_a_variable_are_both_named() -> None:
    error = refused(variable(read="/cpu:0", add="/gpu:0"))
    assert (error.code, error.exit_code) == ("CFG403", 3)
    for part in ("'read' requests /cpu:0", "'add' requests /gpu:0", "v and read share a resource"):
        assert part in error.message
    assert "--soft" in (error.hint or "")


def test_soft_placement_keeps_the_first_of_two_requests_that_conflict() -> None:
    of = graph(variable(read="/gpu:0", add="/cpu:0"))
    report = cfgraph.place(of, devices=TWO, soft_placement=True)
    assert {short_device_name(of[name].device) for name in ("v", "read", "add")} == {"gpu:0"}
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


def test_a_reference_ties_who_writes_through_it() -> None:
    found = placed(reference(assign="/gpu:0"))
    assert found["v"] == found["assign"] == "gpu:0"
    assert refused(reference(v="/cpu:0", assign="/gpu:0")).code == "CFG403"


def test_a_reader_of_a_reference_is_colocated_unless_it_requests_otherwise() -> None:
    assert placed(reference(v="/gpu:0"))["value"] == "gpu:0"
    found = placed(reference(v="/gpu:0", value="/cpu:0"))
    assert (found["v"], found["value"]) == ("gpu:0", "cpu:0")


CLASSES = """
a = Placeholder() {dtype=float32, shape=[]}
b = Neg(a) {T=float32, _class=("loc:@a")}
c = Neg(a) {T=float32, _class=("loc:@b")}
d = Neg(c) {T=float32, _class=("loc:@c", "loc:@a")}
"""


def classes(**devices: str) -> str:
    return with_devices(CLASSES, **devices)


@pytest.mark.parametrize("who", list("abcd"))
def test_a_chain_of_classes_is_on_one_device(who: str) -> None:
    assert set(placed(classes(**{who: "/gpu:0"})).values()) == {"gpu:0"}


def test_requests_that_conflict_over_a_class_say_how_they_are_tied() -> None:
    error = refused(classes(b="/cpu:0", d="/gpu:0"))
    assert "'b' requests /cpu:0, 'd' requests /gpu:0" in error.message
    assert "share a class" in error.message


def test_who_names_the_same_node_that_is_not_there_is_together() -> None:
    text = """
    a = Placeholder() {dtype=float32, shape=[], _class=("loc:@gone")}
    b = Placeholder() {dtype=float32, shape=[], _class=("loc:@gone")} @"/gpu:0"
    """
    assert placed(text) == {"a": "gpu:0", "b": "gpu:0"}


def test_a_class_that_is_no_list_of_names_binds_nobody() -> None:
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
def test_a_handle_ties_all_that_it_passes(kind: str, seed: int) -> None:
    dtype, made = HANDLES[kind]
    text = f"{made}\n{LOOP_OF.replace('TYPE', dtype)}"
    found = placed(text, "cpu:0-2,gpu:0", seed=seed)
    assert len({found[name] for name in ("h", "sw", "en", "id", "mg", "other")}) == 1


# -- what only a CPU can run ---------------------------------------------------------------------

TEXT = """
s = Const() {dtype=string, value=string[]:"a"}
j = StringJoin(s, s) {N=2}
n = Placeholder() {dtype=float32, shape=[]} @"/gpu:0"
m = AsString(n) {T=float32}
"""


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_text_is_worked_on_by_a_cpu(seed: int | None) -> None:
    found = placed(TEXT, seed=seed)
    assert found["s"] == found["j"] == found["m"] == "cpu:0"


def test_a_kernel_that_a_device_does_not_have_is_unsupported() -> None:
    text = with_devices(TEXT, j="/gpu:0")
    error = refused(text)
    assert (error.code, error.exit_code, error.node) == ("CFG405", 4, "j")
    assert "only a CPU runs StringJoin, and the request is /gpu:0" in error.message
    assert placed(text, soft_placement=True)["j"] == "cpu:0"


def test_an_error_about_a_table_on_a_gpu_names_both() -> None:
    text = """
    t = HashTableV2() {key_dtype=int64, value_dtype=float32}
    n = LookupTableSizeV2(t) @"/gpu:0"
    """
    error = refused(text)
    assert error.code == "CFG405"
    assert "HashTableV2, and the request of 'n' is /gpu:0" in error.message


def test_where_there_is_no_cpu_text_is_unsupported() -> None:
    error = refused("p = Placeholder() {dtype=string, shape=[]}", "gpu:0")
    assert isinstance(error, Unsupported)
    assert "only a CPU runs Placeholder, and there is none" in error.message
    assert refused("p = Placeholder() {dtype=string, shape=[]}", "gpu:0", soft_placement=True)


def test_text_in_host_memory_does_not_constrain_nodes_that_forward_it() -> None:
    text = """
    s = Placeholder() {dtype=string, shape=[]}
    i = Identity(s) {T=string} @"/gpu:0"
    """
    assert placed(text) == {"s": "cpu:0", "i": "gpu:0"}


# -- the whole -----------------------------------------------------------------------------------


def test_what_is_functional_is_lowered_first(fixtures: object) -> None:
    of = cfgraph.load(f"{fixtures}/graphs/while_functional.pb")
    report = cfgraph.place(of, devices=TWO)
    assert "LoopCond" in {node.op for node in of}
    assert report.names["while:2"] == ("while/Exit_1:0",)
    assert set(report.decided) == set(of.nodes)


def test_a_functional_graph_that_cannot_be_placed_is_not_lowered(fixtures: object) -> None:
    of = cfgraph.load(f"{fixtures}/graphs/while_functional.pb")
    of.set_device(of["n"], "/gpu:5")
    before = cfgraph.dumps(of)
    with pytest.raises(InvalidInput):
        cfgraph.place(of, devices=TWO)
    assert cfgraph.dumps(of) == before


def test_a_partitioned_graph_is_refused() -> None:
    of = graph('x = Placeholder() {dtype=float32, shape=[]} @"/gpu:0"\ny = AsString(x) {T=float32}')
    cfgraph.place(of, devices=TWO)
    cfgraph.partition(of)
    with pytest.raises(Unsupported, match="partitioned already") as caught:
        cfgraph.place(of, devices=TWO)
    assert caught.value.code == "CFG411"


def test_every_decision_has_a_reason() -> None:
    of = graph(variable(read="/gpu:0") + TEXT)
    why = cfgraph.place(of, devices=TWO).decided
    assert why["read"] == "asked for /gpu:0"
    assert why["v"] == "beside read"
    assert why["j"] == "only a CPU runs StringJoin"
    assert why["one"] == "cost"


@pytest.mark.parametrize("name", ["nested", "lstm_grad", "while_functional", "eight_devices"])
def test_chance_is_the_same_for_the_same_seed(name: str, fixtures: object) -> None:
    def run(seed: int) -> bytes:
        of = cfgraph.load(f"{fixtures}/graphs/{name}.pb")
        cfgraph.place(of, devices="cpu:0-2", seed=seed)
        return cfgraph.dumps(of)

    random.seed(1)
    first = run(3)
    random.seed(2)
    assert run(3) == first
    assert run(4) != first


def test_chance_does_not_heed_requests_but_keeps_together_what_must_be() -> None:
    found = [placed(variable(v="/gpu:7"), "cpu:0-1", seed=seed) for seed in range(8)]
    assert {item["v"] for item in found} == {"cpu:0", "cpu:1"}
    assert all(item["v"] == item["read"] == item["add"] for item in found)
