"""Example graphs and shell completion."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from cfgraph.cli import command_line as cli
from tests.command_fixtures import Command


def test_all_that_the_readme_of_the_examples_says_to_type_works(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "to" / "try"
    done = command("examples", folder)
    assert Path(done.lines[0]).name == "README.md"
    assert all(Path(line).stat().st_size for line in done.lines)
    assert done.err == f"next: cat {folder}/README.md\n"
    monkeypatch.chdir(folder)
    lines = [line[4:] for line in Path("README.md").read_text().splitlines() if line[:4] == "    "]
    assert len(lines) > 10
    for line in lines:
        differs = line.endswith(" || true")
        done = command(*shlex.split(line.removesuffix(" || true"))[1:])
        assert done.code == int(differs), (line, done.err)


def test_examples_are_not_written_over_anything(command: Command, tmp_path: Path) -> None:
    (tmp_path / "rnn.pb").write_text("mine")
    done = command("examples", tmp_path)
    assert done.code == 2
    assert "already contains 'rnn.pb'" in done.err
    (tmp_path / "tour").mkdir()
    (tmp_path / "tour" / "rnn.pb").write_text("mine")
    done = command("examples", tmp_path / "tour")
    assert "already contains 'rnn.pb'" in done.err
    (tmp_path / "tour" / "rnn.pb").unlink()
    (tmp_path / "tour").rmdir()
    assert [file.name for file in tmp_path.iterdir()] == ["rnn.pb"]


@pytest.mark.parametrize(
    ("name", "text"), [("examples", "the folder is empty"), ("run", "the graph is empty")]
)
def test_an_empty_name_is_no_current_folder(
    command: Command, name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = command(name, "")
    assert (done.code, list(tmp_path.iterdir())) == (2, [])
    assert text in done.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_taught_to_request_completions(
    command: Command, shell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_CFGRAPH_COMPLETE", f"source_{shell}")
    done = command()
    assert done.code == 0
    assert f"_CFGRAPH_COMPLETE=complete_{shell}" in done.out


@pytest.mark.parametrize(
    ("words", "found"), [("cfgraph ex", "explain"), ("cfgraph run --fe", "--feeds")]
)
def test_a_shell_is_answered(
    words: str, found: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_CFGRAPH_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    assert cli.run([]) == 0
    assert found in capsys.readouterr().out.split()


@pytest.mark.parametrize("name", ["counter.pb", "a.graph.gz"])
def test_a_graph_is_no_folder_of_examples(
    name: str, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = command("examples", name)
    assert (done.code, "expected a folder" in done.err) == (2, True)
    assert not Path(name).exists()


def test_a_document_describes_the_examples(command: Command, tmp_path: Path) -> None:
    found = command("examples", tmp_path / "tries", "--json").json
    described = {item["file"]: item["description"] for item in found["result"]["files"]}
    readme = (tmp_path / "tries" / "README.md").read_text()
    assert described.keys() == {Path(item["path"]).name for item in found["artifacts"]}
    assert all(text in readme for name, text in described.items() if name != "README.md")
