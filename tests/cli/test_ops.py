"""The list of ops."""

from __future__ import annotations

from pathlib import Path

import pytest

from cfgraph.console.ops import supported_ops
from cfgraph.ir import registry
from tests.command_fixtures import Command


def test_ops_lists_every_op_that_matches_in_any_case(command: Command) -> None:
    lines = command("ops", "STATELESSRANDOMGAMMA*").lines
    assert [line.split()[0] for line in lines[2:]] == [
        "StatelessRandomGammaV2",
        "StatelessRandomGammaV3",
    ]
    assert {op.name for op in supported_ops()} == set(registry.op_names())


def test_ops_says_what_is_supported(command: Command) -> None:
    (op,) = command("ops", "MatMul", "--json").json["result"]["ops"]
    assert op["kernel"]
    assert op["xla"]
    assert op["gradient"] == "formula"
    assert "float32" in op["types"]["T"]
    (loop,) = command("ops", "While", "--json").json["result"]["ops"]
    assert loop["lowered"]


@pytest.mark.parametrize(("name", "text"), [("MapDataset", "tf.data"), ("MatMull", "'MatMul'")])
def test_an_op_without_a_kernel_says_why(command: Command, name: str, text: str) -> None:
    done = command("ops", name)
    assert done.code == 2
    assert text in done.err


def test_a_part_of_a_name_suggests_a_pattern(command: Command) -> None:
    done = command("ops", "scatter")
    count = len(command("ops", "*scatter*", "--json").json["result"]["ops"])
    assert (done.code, done.err.splitlines()[1]) == (2, f"  hint: '*scatter*' matches {count} ops")


@pytest.mark.parametrize("name", ["Queue", "QueueFoo", "MapX"])
def test_a_name_like_those_without_a_kernel_matches_no_op(command: Command, name: str) -> None:
    done = command("ops", name)
    assert done.code == 2
    assert f"no op matches '{name}'" in done.err


def test_a_run_of_an_input_pipeline_says_what_to_feed(command: Command, tmp_path) -> None:
    graph = tmp_path / "pipeline.graph"
    text = "n = Const() {dtype=int64, value=int64[]:3}\n"
    graph.write_text(text + "y = RangeDataset(n, n, n) {output_types=(int64), output_shapes=([])}")
    done = command("run", graph, "--target", "y")
    assert done.code != 0
    assert "tf.data" in done.err


def test_ops_without_a_kernel_are_listed_on_request(command: Command) -> None:
    done = command("ops", "CudnnRNNV*")
    assert (done.code, "--all lists" in done.err) == (2, True)
    done = command("ops", "CudnnRNNV*", "--all")
    rows = [line.split()[:2] for line in done.out.splitlines()[2:]]
    assert rows == [["CudnnRNNV2", "no"], ["CudnnRNNV3", "no"]]


def test_ops_of_a_file_are_listed(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "ops.pbtxt"
    path.write_text('op { name: "MyListedOp" output_arg { name: "y" type: DT_FLOAT } }')
    done = command("ops", "MyListed*", "--all", "--op-def", path)
    assert done.code == 0, done.err
    assert "MyListedOp" in done.out
    done = command("ops", "--op-def", tmp_path / "no.pb")
    assert (done.code, "no such file" in done.err) == (3, True)
