"""`cfgraph cluster`: clusters, the report, and the miscompile of the second seed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import cfgraph

SEED = ("--exclude-ops", "CheckNumerics,Identity")


@pytest.fixture
def mismatch(graphs: Path) -> Path:
    """The second seed's example: A and B are always live, C only when p."""
    return graphs / "deadness_mismatch.pb"


def test_clusters_go_out_as_a_graph_and_the_table_to_stderr(command: Any, graphs: Path) -> None:
    done = command("cluster", graphs / "lstm.pb")
    assert done.code == 0
    assert done.err.startswith("clustered 34 of 64 nodes  53 %, in 2 clusters")
    ops = [node.op for node in cfgraph.loads(done.data)]
    assert ops.count("XlaLaunch") == 2
    assert "MatMul" not in ops


def test_a_clustered_graph_runs_in_a_pipe(command: Any, graphs: Path) -> None:
    clustered = command("cluster", graphs / "nested.pb", "-q")
    assert clustered.err == ""
    done = command("run", "-", "--fetch", "sum:0", stdin=clustered.data)
    assert (done.code, done.out.split()[-1]) == (0, "10000.0")


def test_without_deadness_the_seeds_example_is_miscompiled(command: Any, mismatch: Path) -> None:
    feeds = ("--feed", "p=false", "--feed", "v=[1,2]", "--fetch", "S:0")
    before = command("run", mismatch, *feeds)
    assert before.code == 0
    wrong = command("cluster", mismatch, *SEED, "--deadness", "off")
    done = command("run", "-", *feeds, stdin=wrong.data)
    assert (done.code, "S:0 is dead" in done.err) == (5, True)
    right = command("cluster", mismatch, *SEED)
    assert command("run", "-", *feeds, stdin=right.data).out == before.out


def test_explain_says_why_an_edge_joins_nothing(command: Any, mismatch: Path) -> None:
    done = command("cluster", mismatch, *SEED, "--explain")
    assert done.code == 0
    rows = [line.split() for line in done.lines]
    assert ["C", "AddV2", "alone", "no", "edge", "to", "merge", "along"] in rows
    (edge,) = [row for row in rows if row[:2] == ["B", "C"]]
    assert " ".join(edge[2:]) == "deadness one is live always and the other when p"


def test_explain_takes_the_place_of_the_graph(command: Any, graphs: Path, tmp_path: Path) -> None:
    file = tmp_path / "out.pb"
    done = command("cluster", graphs / "lstm.pb", "--explain", "-o", file)
    assert (done.code, done.err) == (0, "")
    assert "TensorArrayReadV3" in done.out
    assert "XlaLaunch" in [node.op for node in cfgraph.load(file)]
    assert command("cluster", graphs / "lstm.pb", "--explain", "-o", "-").code == 2


def test_what_if_reports_what_a_kernel_would_gain(command: Any, graphs: Path) -> None:
    done = command("cluster", graphs / "lstm_grad.pb", "--what-if", "StackPopV2,StackPushV2")
    assert "if StackPopV2, StackPushV2 compiled  +15 nodes, in 4 clusters" in done.lines


def test_json_says_it_all(command: Any, graphs: Path, tmp_path: Path) -> None:
    reported = command("cluster", graphs / "lstm.pb", "--explain", "--json").json
    assert reported["schema"] == "cfgraph.cluster/1"
    assert reported["summary"] == {
        "nodes": 64,
        "clustered": 34,
        "coverage": 34 / 64,
        "clusters": 2,
    }
    result = reported["result"]
    assert sum(result["outside"].values()) == len(result["nodes"]) == 30
    assert {"name", "op", "kind", "text"} <= set(result["nodes"][0])
    assert result["gains"][0]["ops"] == ["TensorArrayReadV3"]
    file = tmp_path / "out.pb"
    reported = command("cluster", graphs / "lstm.pb", "--json", "-o", file).json
    assert reported["artifacts"][0]["path"] == str(file)
    assert command("cluster", graphs / "lstm.pb", "--json").code == 2


def test_dot_draws_clusters_as_boxes(command: Any, mismatch: Path) -> None:
    done = command("cluster", mismatch, *SEED, "--explain", "--format", "dot")
    assert done.lines[0] == "digraph {"
    assert '    label="cluster_0: true"; color=blue; fontcolor=blue;' in done.lines
    assert any(line.endswith('label="deadness"];') for line in done.lines)


def test_the_map_says_where_each_name_went(command: Any, graphs: Path, tmp_path: Path) -> None:
    file = tmp_path / "map.json"
    command("cluster", graphs / "lstm.pb", "--map-out", file, "-o", tmp_path / "out.pb")
    names = json.loads(file.read_text())
    assert names["lstm/while/MatMul" if "lstm/while/MatMul" in names else "lstm/MatMul"]
    assert {name for made in names.values() for name in made if ":" not in name} == {
        "cluster_0",
        "cluster_1",
    }


@pytest.mark.parametrize(
    "wrong",
    [
        ("--deadness", "maybe"),
        ("--min-size", "3", "--max-size", "2"),
        ("--only-ops", "MatMull"),
        ("--fetch", "nothing"),
        ("--format", "png"),
    ],
)
def test_what_makes_no_sense_is_wrong_usage(
    command: Any, graphs: Path, tmp_path: Path, wrong: tuple[str, ...]
) -> None:
    done = command("cluster", graphs / "lstm.pb", *wrong, "-o", tmp_path / "out.pb")
    assert done.code == 2
    assert not list(tmp_path.iterdir())


def test_the_condition_of_clusters_in_a_loop_has_a_line_of_its_own(
    command: Any, graphs: Path, tmp_path: Path
) -> None:
    done = command("cluster", graphs / "nested.pb", "-o", tmp_path / "c.pb")
    lines = done.err.splitlines()
    head = next(
        place for place, line in enumerate(lines) if line.split() == ["cluster", "condition"]
    )
    assert "condition" not in lines[1]
    assert all("live:" in line for line in lines[head + 1 : lines.index("", head)])
