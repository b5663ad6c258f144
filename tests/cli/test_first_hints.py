"""Hints of mistakes that newcomers make."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command_fixtures import Command

MODELS = ("references", "resources", "nested", "loop", "functional", "functional_loop")


@pytest.mark.parametrize("name", MODELS)
def test_a_frozen_training_branch_is_removed_as_the_hint_says(
    command: Command, fixtures: Path, tmp_path: Path, name: str
) -> None:
    path, out = fixtures / "frozen_training" / f"{name}.pb", tmp_path / "out.pb"
    hint = "hint: keep one branch alone: cfgraph freeze GRAPH --fetch NAME --set is_training=false"
    failed = command("functionalize", path, "-o", out)
    assert (failed.code, hint in failed.err) == (3, True)
    assert hint in command("show", path).err
    assert (
        command("freeze", path, "--fetch", "y", "--set", "is_training=false", "-o", out).code == 0
    )
    assert command("functionalize", out, "-o", tmp_path / "whole.pb").code == 0


def test_another_type_error_has_its_own_hint(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "mixed.graph"
    path.write_text(
        "x = Placeholder() {dtype=float32, shape=[]}\n"
        "p = Placeholder() {dtype=bool, shape=[]}\n"
        "s = Switch(x, p)\n"
        "y = AddV2(s:1, p) {T=float32}\n"
    )
    assert "keep one branch" not in command("lower", path, "-o", tmp_path / "out.pb").err


@pytest.mark.parametrize(
    ("words", "hint"),
    [(("help", "freeze"), "cfgraph freeze --help"), (("help",), "cfgraph --help")],
)
def test_help_of_a_command_is_its_option(
    command: Command, words: tuple[str, ...], hint: str
) -> None:
    done = command(*words)
    assert (done.code, f"hint: write `{hint}`" in done.err) == (2, True)


def test_a_missing_file_of_feeds_suggests_a_similar_one(
    command: Command, graphs: Path, tmp_path: Path
) -> None:
    (tmp_path / "images.npz").touch()
    done = command("run", graphs / "counter.pb", "--feeds", tmp_path / "image.npz")
    assert (done.code, "hint: did you mean 'images.npz'?" in done.err) == (3, True)


def test_feeds_that_are_no_json_show_the_form(
    command: Command, graphs: Path, tmp_path: Path
) -> None:
    (tmp_path / "feeds.json").write_text('{"n": [3,]}')
    done = command("run", graphs / "counter.pb", "--feeds", tmp_path / "feeds.json")
    assert "line 1 column 10" in done.err
    assert "hint: write names and values" in done.err


def test_a_transform_lists_complete_names(command: Command, graphs: Path, tmp_path: Path) -> None:
    graph = graphs / "lstm_grad.pb"
    # standard input is no terminal
    done = command("extract", graph, "--outputs", "MatMul", "-o", tmp_path / "out.pb", stdin=b"")
    names = "lstm/MatMul, gradients/lstm/MatMul_grad/MatMul"
    assert f"hint: write one of the complete names: {names}" in done.err


def test_tests_of_variables_are_no_outputs(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "variables.graph"
    path.write_text(
        'v = VarHandleOp() {dtype=float32, shape=[], shared_name="v"}\n'
        "ready = VarIsInitializedOp(v)\n"
        "value = ReadVariableOp(v) {dtype=float32}\n"
    )
    outputs = command("show", path, "--json").json["result"]["outputs"]
    assert [item["name"] for item in outputs] == ["value:0"]
