"""Placement rules: precedence, files, and placements written back."""

from __future__ import annotations

from pathlib import Path

import pytest

import cfgraph
from cfgraph.errors import CfgraphError, InvalidInput, UsageError
from cfgraph.passes.place.place import placement_toml
from cfgraph.passes.place.rules import PlacementRules, read_rules
from tests.passes.test_place import TWO, graph, placed

NODES = """
a/x = Placeholder() {dtype=float32, shape=[]}
a/y = Neg(a/x) {T=float32}
b/x = Neg(a/y) {T=float32} @"/gpu:0"
b/y = Exp(b/x) {T=float32}
"""


@pytest.mark.parametrize(
    ("rules", "on_gpu"),
    [
        ([], "b/x b/y"),
        (["*=cpu:0"], ""),
        (["*=gpu:0"], "a/x a/y b/x b/y"),
        (["*=gpu:0", "a/*=cpu:0"], "b/x b/y"),
        (["a/*=cpu:0", "*=gpu:0"], "a/x a/y b/x b/y"),
        (["op:Neg=gpu:0", "*/y=cpu:0"], "b/x"),
        (["a/x=gpu:0", "*=cpu:0"], ""),
        (["*=cpu:0", "a/x=gpu:0"], "a/x"),
        ({"device:*gpu*": "cpu:0"}, ""),
    ],
)
def test_the_last_matching_rule_overrides_the_request_of_the_node(
    rules: object, on_gpu: str
) -> None:
    placement = placed(NODES, rules=rules)
    assert {name for name, device in placement.items() if device == "gpu:0"} == set(on_gpu.split())


def test_a_rule_can_select_a_loop(fixtures: Path) -> None:
    program = cfgraph.load(fixtures / "graphs" / "nested.pb")
    rules = ["*=cpu:0", "frame:while/while/while_context=gpu:0"]
    report = cfgraph.place(program, devices=TWO, rules=rules)
    inner = {name for name in program.nodes if program[name].device.endswith("GPU:0")}
    assert "while/while/add" in inner
    assert "while/add" not in inner
    assert report.decided["while/while/add"] == "frame:while/while/while_context=gpu:0"


def test_rules_apply_to_random_placement() -> None:
    for seed in range(5):
        assert placed(NODES, rules=["a/x=gpu:0"], seed=seed)["a/x"] == "gpu:0"


def test_a_rule_for_a_missing_device_is_a_usage_error() -> None:
    with pytest.raises(UsageError) as caught:
        placed(NODES, rules=["*=gpu:1"])
    assert "no device 'gpu:1'" in str(caught.value)
    assert "available: cpu:0, gpu:0" in str(caught.value)
    assert set(placed(NODES, rules=["*=gpu:1"], soft_placement=True).values()) == {"gpu:0"}


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("while/*", "not a rule"),
        ("=gpu:0", "not a rule"),
        ("*=", "'' is not a device"),
        ("*=gpu:x", "'gpu:x' is not a device"),
        ("ops:Neg=gpu:0", "unknown filter 'ops'"),
    ],
)
def test_a_malformed_rule_is_rejected(rule: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        PlacementRules.parse([rule])
    assert message in str(caught.value)


def test_a_rule_without_matches_is_a_warning() -> None:
    report = cfgraph.place(graph(NODES), devices=TWO, rules=["op:Negg=cpu:0", "c/*=cpu:0"])
    assert report.warnings == (
        "no node matches op:Negg=cpu:0; did you mean 'Neg'?",
        "no node matches c/*=cpu:0",
    )


def test_many_rules_without_matches_are_counted() -> None:
    rules = [f"none{place}=cpu:0" for place in range(500)]
    warnings = cfgraph.place(graph(NODES), devices=TWO, rules=rules).warnings
    assert len(warnings) == 4
    assert warnings[-1] == "497 more rules match no node"


# -- files ---------------------------------------------------------------------------------------

FILE = """
schema = "cfgraph.placement/1"
default = "cpu:0"
[[rule]]
node = ["a/*", "b/*"]
op = "Neg"
device = "gpu:0"
[[rule]]
node = "b/x"
device = "cpu:1"
hard = true
[[colocate]]
nodes = ["a/x", "b/y"]
"""


def read(tmp_path: Path, text: str) -> PlacementRules:
    (tmp_path / "rules.toml").write_text(text)
    return read_rules(tmp_path / "rules.toml")


def test_a_file_can_have_all_documented_keys(tmp_path: Path) -> None:
    rules = read(tmp_path, FILE)
    placement = placed(NODES, "cpu:0-1,gpu:0", rules=rules)
    assert placement == {"a/x": "cpu:0", "a/y": "gpu:0", "b/x": "cpu:1", "b/y": "cpu:0"}
    later = rules + PlacementRules.parse(["a/x=gpu:0"])
    assert placed(NODES, "cpu:0-1,gpu:0", rules=later, soft_placement=True)["b/y"] == "gpu:0"


def test_the_default_applies_to_nodes_without_a_request(tmp_path: Path) -> None:
    rules = read(tmp_path, 'default = "cpu:1"')
    placement = placed(NODES, "cpu:0-1,gpu:0", rules=rules)
    assert placement == {"a/x": "cpu:1", "a/y": "cpu:1", "b/x": "gpu:0", "b/y": "cpu:1"}


def test_a_hard_rule_is_satisfied_or_an_error_with_soft_placement_too(tmp_path: Path) -> None:
    text = '[[rule]]\nnode = "s"\ndevice = "gpu:0"\n'
    program = "s = Placeholder() {dtype=string, shape=[]}"
    assert placed(program, rules=read(tmp_path, text), soft_placement=True) == {"s": "cpu:0"}
    with pytest.raises(CfgraphError, match="only a CPU runs Placeholder"):
        placed(program, rules=read(tmp_path, text + "hard = true\n"), soft_placement=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[rule]", "invalid TOML"),
        ('schema = "other/2"', "unknown schema 'other/2'"),
        ('devcie = "cpu:0"', "an unknown key 'devcie'"),
        ('[[rule]]\nnode = "a"\ndevcie = "cpu:0"', "did you mean 'device'?"),
        ('[[rule]]\ndevice = "cpu:0"', "rule 1 matches nothing"),
        ('[[rule]]\nnode = "a"', "'' is not a device"),
        ('[[rule]]\nnode = 3\ndevice = "cpu:0"', "'node' is 3, expected a string"),
        ('[[rule]]\nnode = "a"\ndevice = "cpu:0"\nhard = "yes"', "expected true or false"),
        ('rule = "a"', "not a list of tables"),
        ('[[colocate]]\nnode = ["a"]', "did you mean 'nodes'?"),
    ],
)
def test_an_invalid_file_is_explained(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(tmp_path, text)
    assert message in str(caught.value)
    assert "rules.toml" in str(caught.value)
    assert caught.value.code == "CFG406"


def test_a_missing_file_is_an_invalid_input(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot read the file"):
        read_rules(tmp_path / "none.toml")


@pytest.mark.parametrize("name", ["nested", "lstm_grad", "while_functional"])
def test_a_written_placement_can_be_read_back(name: str, fixtures: Path, tmp_path: Path) -> None:
    path = fixtures / "graphs" / f"{name}.pb"
    first, second = cfgraph.load(path), cfgraph.load(path)
    text = placement_toml(first, cfgraph.place(first, devices="cpu:0-1,gpu:0", seed=5))
    cfgraph.place(second, devices="cpu:0-1,gpu:0", rules=read(tmp_path, text))
    assert cfgraph.dumps(first) == cfgraph.dumps(second)
    assert 'by = "seed 5"' in text
