"""Completion offers values of choices and nodes of the graph on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def complete(command: Any, graphs: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(graphs)

    def offered(line: str) -> list[str]:
        words = line.split(" ")
        monkeypatch.setenv("_CFGRAPH_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
        return command().lines  # type: ignore[no-any-return]

    return offered


def test_options_offer_nodes_of_the_graph(complete: Any) -> None:
    assert complete("cfgraph run counter.pb --fetch while/S") == ["while/Switch"]
    assert complete("cfgraph run counter.pb --tap while/Less") == ["while/Less", "while/Less/Enter"]
    assert complete("cfgraph run counter.pb --feed ") == ["n="]
    assert complete("cfgraph show counter.pb --node cou") == ["count"]
    assert "while/add" in complete("cfgraph explain counter.pb while/a")
    assert complete("cfgraph grad lstm.pb --xs W") == ["W"]


def test_choices_offer_their_values(complete: Any) -> None:
    assert complete("cfgraph run counter.pb --clock v") == ["virtual"]
    assert complete("cfgraph run counter.pb --format j") == ["json", "junit"]
    assert complete("cfgraph show counter.pb --format t") == ["text", "tsv"]
    assert complete("cfgraph cluster counter.pb --deadness ") == ["exact", "inputs", "off"]
    assert complete("cfgraph show counter.pb --color a") == ["auto", "always"]


def test_names_of_many_nodes_end_at_a_slash(complete: Any, tmp_path: Path) -> None:
    lines = [f"scope{i % 3}/n{i} = NoOp()" for i in range(300)]
    (tmp_path / "g.graph").write_text("\n".join(lines))
    graph = tmp_path / "g.graph"
    assert complete(f"cfgraph run {graph} --target ") == ["scope0/", "scope1/", "scope2/"]
    assert complete(f"cfgraph run {graph} --target scope1/n29") == [
        "scope1/n292",
        "scope1/n295",
        "scope1/n298",
    ] or complete(f"cfgraph run {graph} --target scope1/n298") == ["scope1/n298"]


def test_names_of_the_signature_come_first(complete: Any, fixtures: Path) -> None:
    model = fixtures / "saved_model"
    assert complete(f"cfgraph run {model} --feed ") == ["x="]
    assert complete(f"cfgraph run {model} --feed ser") == ["serving_default_x="]
    assert complete(f"cfgraph run {model} --fetch ") == ["label", "y"]
    assert complete(f"cfgraph run {model} --expect y") == ["y="]
    assert complete(f"cfgraph run {model} --fetch y")[0] == "y"


def test_an_unreadable_graph_offers_nothing(complete: Any) -> None:
    assert [line for line in complete("cfgraph run missing.pb --fetch a") if line] == []


@pytest.mark.parametrize("option", ["--install-completion", "--show-completion"])
def test_a_shell_without_completion_is_a_usage_error(
    option: str, command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("csh", "/bin/csh"))
    done = command(option)
    assert (done.code, "hint: run it in bash, zsh, fish, or powershell" in done.err) == (2, True)
