"""`cfgraph optimize`: reports, rules, names, and verification."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any


def test_the_rewrites_are_counted_listed_and_verified(
    command: Any, graphs: Path, tmp_path: Path
) -> None:
    line = ("optimize", graphs / "lstm_grad.pb", "-o", tmp_path / "o.pb")
    done = command(*line, "--json", "--verify", "--cases", "1")
    found = done.json
    assert done.code == 0
    assert found["result"]["verify"]["cases"] == 1
    assert found["summary"]["after"] < found["summary"]["before"]
    listed = [rewrite["rule"] for rewrite in found["result"]["rewrites"]]
    counts = {rule: count for rule, count in found["result"]["rules"].items() if count}
    assert counts == {rule: listed.count(rule) for rule in dict.fromkeys(listed)}
    verbose = command(*line, "-v").err
    assert verbose.count("\ncse: ") == counts["cse"]
    assert "nothing to optimize" in command("optimize", tmp_path / "o.pb", "-o", "-").err


def test_rules_are_selected(command: Any, graphs: Path) -> None:
    line = ("optimize", graphs / "lstm.pb", "-o", "-")
    assert "cse" not in command(*line, "--skip", "cse").err
    assert "fold" not in command(*line, "--only", "prune,cse", "--fetch", "loss").err
    done = command(*line, "--only", "flod")
    assert (done.code, "unknown rule 'flod'" in done.err) == (2, True)
    assert "did you mean 'fold'" in done.err


def test_a_fetch_removes_what_it_does_not_need(command: Any, graphs: Path) -> None:
    done = command("optimize", graphs / "lstm.pb", "--fetch", "lstm/Less", "--to", "graph", "-q")
    assert "TensorArrayV3" not in done.out
    assert done.err == ""


def test_nodes_of_functions_are_counted_apart(command: Any, graphs: Path) -> None:
    done = command("optimize", graphs / "while_functional.pb", "-o", "-")
    counts = re.search(
        r"optimized  (\d+) nodes, now (\d+); in functions (\d+), now (\d+)", done.err
    )
    assert counts is not None, done.err
    assert int(counts[4]) < int(counts[3])


def test_a_pipeline_optimizes(command: Any, graphs: Path) -> None:
    passes = "grad{ys=loss}, optimize{fetch=loss,gradients/W only=prune,cse}"
    done = command("pipeline", graphs / "lstm.pb", "-p", passes, "--verify-each", "-o", "-")
    assert done.code == 0, done.err
