"""Tables in files without a main op: commands run the initializers that the file has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import cfgraph
from cfgraph.ir.attrs import TensorValue

WORD = 'serving_default_words=["a"]'
WORDS = 'words=["dog","bird","cat"]'


@pytest.fixture
def folder(fixtures: Path) -> Path:
    return fixtures / "freezing" / "tables"


def test_a_run_fills_the_tables_that_it_needs(command: Any, folder: Path) -> None:
    done = command("run", folder / "frozen_by_tf.pb", "--feed", WORDS, "--fetch", "output")
    assert done.code == 0, done.err
    assert "[6.0, 9.0]" in done.out
    assert "key_value_init/LookupTableImportV2 fills the table vocab first" in done.err


def test_an_initializer_that_is_named_is_the_only_one(command: Any, folder: Path) -> None:
    line = ("run", folder / "frozen_by_tf.pb", "--feed", WORDS, "--fetch", "output")
    done = command(*line, "--init", "init_all_tables")
    assert "[6.0, 9.0]" in done.out
    assert done.err == ""


def test_freezing_is_verified_with_filled_tables(
    command: Any, folder: Path, tmp_path: Path
) -> None:
    variables = ("--variables", folder / "model.ckpt", "--feed", WORDS)
    line = ("freeze", folder / "graph.pb", *variables, "--fetch", "output", "--verify")
    for init in ([], ["--init", "init_all_tables"]):
        done = command(*line, *init, "-o", tmp_path / "frozen.pb")
        assert done.code == 0, done.err
        assert "no differences" in done.err


def test_tables_of_both_graphs_are_filled_under_their_own_names(
    command: Any, folder: Path, tmp_path: Path
) -> None:
    text = cfgraph.dumps(cfgraph.load(folder / "frozen_by_tf.pb"), "graph").decode()
    other = text.replace("key_value_init/LookupTableImportV2", "fill").replace("vocab", "index")
    (tmp_path / "renamed.graph").write_text(other)
    graphs = (folder / "frozen_by_tf.pb", tmp_path / "renamed.graph")
    same = command("diff", *graphs, "--run", "--fetch", "output", "--feed", WORDS)
    assert same.code == 0, same.out
    (tmp_path / "renamed.graph").write_text(other.replace('"dog"', '"rat"'))
    assert command("diff", *graphs, "--run", "--fetch", "output", "--feed", WORDS).code == 1


def test_a_graph_without_a_folder_is_compared_with_tables_of_its_own(
    command: Any, fixtures: Path, tmp_path: Path
) -> None:
    model, frozen = fixtures / "saved_model_tables", tmp_path / "frozen.graph"
    assert command("freeze", model, "-o", frozen).code == 0
    ways = [("diff", *pair, "--run", "--feed", WORD) for pair in ((model, frozen), (frozen, model))]
    for way, letters in zip(ways, ("BA", "AB"), strict=True):
        same = command(*way)
        assert (same.code, same.out.count("warning")) == (0, 1)
        assert f"{letters[0]} has no values of its own for the table hash_table_1: " in same.out
        assert f"those of {letters[1]} are used" in same.out
    graph = cfgraph.load(frozen)
    fill = graph["StatefulPartitionedCall_3/key_value_init6/LookupTableImportV2"]
    numbers = graph[fill.inputs[2].node.name]
    graph.set_attr(numbers, "value", TensorValue(numbers.attrs["value"].array + 1))
    cfgraph.save(graph, frozen)
    assert [command(*way).code for way in ways] == [1, 1]


def test_a_table_without_an_initializer_is_named(command: Any, folder: Path) -> None:
    graph = folder / "frozen_without_init.pb"
    done = command("run", graph, "--feed", WORDS, "--fetch", "output")
    assert done.code == 5
    assert "warning: no node of the graph fills the table vocab" in done.err
    checked = command("check", graph, "--fail-level", "warning")
    assert checked.code == 1
    assert "CFG228" in checked.out


def test_other_commands_that_run_fill_tables_too(command: Any, folder: Path) -> None:
    graph = folder / "frozen_by_tf.pb"
    explained = command("explain", graph, "output", "--feed", WORDS)
    assert "ran once" in explained.out
    line = ("extract", graph, "--outputs", "output", "--inputs", "vocab_Lookup/LookupTableFindV2")
    assert command(*line, "--feed", WORDS, "-o", "-").code == 0


def test_a_table_that_a_function_may_fill_is_not_reported(command: Any, fixtures: Path) -> None:
    done = command("check", fixtures / "saved_model_tables")
    assert "CFG228" not in done.out


def test_an_initializer_that_needs_a_feed_is_named_until_it_is_fed(
    command: Any, folder: Path, tmp_path: Path
) -> None:
    text = cfgraph.dumps(cfgraph.load(folder / "frozen_by_tf.pb"), "graph").decode()
    keys = next(line for line in text.splitlines() if line.startswith("Const = "))
    (tmp_path / "g.graph").write_text(
        text.replace(keys, "Const = Placeholder() {dtype=string, shape=[3]}")
    )
    line = ("run", tmp_path / "g.graph", "--feed", WORDS, "--fetch", "output")
    done = command(*line)
    assert done.code == 5
    assert "LookupTableImportV2, which fills the table vocab, needs a feed" in done.err
    fed = command(*line, "--feed", 'Const=["cat","dog","fish"]')
    assert "[6.0, 9.0]" in fed.out
