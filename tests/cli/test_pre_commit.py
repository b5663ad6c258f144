"""The hooks of .pre-commit-hooks.yaml, run by pre-commit in a repository of graphs."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.shell import run

UNTIDY = "x=Placeholder( ) {dtype=float32,shape=[]} # fed\n"
TIDY = "x = Placeholder() {dtype=float32, shape=[]}  # fed\n"
# pre-commit asks git, which may have no identity here
IDENTITY = {
    f"GIT_{role}_{part}": value
    for role in ("AUTHOR", "COMMITTER")
    for part, value in (("NAME", "A Tester"), ("EMAIL", "tester@example.com"))
}


@pytest.fixture
def hooks(root: Path) -> list[Any]:
    found: list[Any] = yaml.safe_load((root / ".pre-commit-hooks.yaml").read_text())
    return found


@pytest.fixture
def repository(tmp_path: Path, fixtures: Path) -> Path:
    """A repository with an untidy and a faulty graph."""
    folder = tmp_path / "graphs"
    folder.mkdir()
    (folder / "untidy.graph").write_text(UNTIDY)
    shutil.copy(fixtures / "errors" / "CFG201_tensors_of_two_loops.graph", folder / "faulty.graph")
    shutil.copy(fixtures / "graphs" / "counter.pb", folder)
    (folder / "notes.txt").write_text("no graph")
    (folder / "fingerprint.pb").write_bytes(b"\x08\x01")
    for line in ("git init -q", "git add ."):
        assert run(line.split(), folder).returncode == 0
    return folder


def line_of(hook: dict[str, Any]) -> list[str]:
    """The command that pre-commit runs, before the names of files."""
    return [*hook["entry"].split(), *hook["args"]]


def test_a_hook_is_a_command_that_takes_files(hooks: list[Any], repository: Path) -> None:
    graphs = ["faulty.graph", "counter.pb"]
    check, fmt, _ = hooks
    assert run([*line_of(check), *graphs], repository).returncode == 1
    assert run([*line_of(check), "counter.pb"], repository).returncode == 0
    assert run([*line_of(fmt), "untidy.graph"], repository).returncode == 0
    assert (repository / "untidy.graph").read_text() == TIDY


@pytest.mark.parametrize("name", ["--op-def=counter.pb", "--fetch=x.graph", "-q.graph", "--help"])
def test_no_file_name_is_an_option(name: str, hooks: list[Any], repository: Path) -> None:
    shutil.copy(repository / "untidy.graph", repository / name)
    check, fmt, _ = hooks
    done = run([*line_of(check), "faulty.graph", name], repository)
    assert done.returncode == 1
    assert "error[CFG201]" in done.stdout
    assert run([*line_of(fmt), name], repository).returncode == 0
    assert (repository / name).read_text() == TIDY


def test_a_hook_compares_a_model_with_golden_outputs(
    hooks: list[Any], tmp_path: Path, fixtures: Path
) -> None:
    shutil.copytree(fixtures / "saved_model", tmp_path / "model")
    assert run(["cfgraph", "record", "model", "-o", "golden.npz"], tmp_path).returncode == 0
    golden = hooks[2]
    assert golden["pass_filenames"] is False
    line = [*golden["entry"].split(), "model", "golden.npz"]
    assert run(line, tmp_path).returncode == 0
    files = [f"model/{name}" for name in ("saved_model.pb", "variables/variables.index")]
    assert all(re.search(golden["files"], file) for file in files)
    shutil.copytree(fixtures / "saved_model_tables", tmp_path / "other")
    line[-2] = "other"
    assert run(line, tmp_path).returncode != 0


def test_examples_of_hooks_end_their_options(root: Path) -> None:
    (text,) = re.findall(
        r"```yaml\nrepos:.*?```", (root / "docs/install.md").read_text(), re.DOTALL
    )
    lists = re.findall(r"args: \[(.*)\]", text)
    assert lists
    check, golden = lists
    assert check.endswith("--")
    assert golden == "models/lstm, models/lstm.golden.npz"


@pytest.mark.slow
def test_pre_commit_installs_and_runs_the_hooks(
    root: Path, repository: Path, tmp_path: Path
) -> None:
    if not Path(sys.executable).with_name("pre-commit").exists():
        pytest.skip("pre-commit is not installed (extra release)")
    if not (root / ".git").exists():
        pytest.skip("this is not a clone, and pre-commit installs hooks from one")
    env = {**IDENTITY, "PRE_COMMIT_HOME": str(tmp_path / "home"), "PRE_COMMIT_COLOR": "never"}
    line = ["pre-commit", "try-repo", str(root), "--all-files", "--verbose"]
    done = run(line, repository, env, cold=True)
    output = done.stdout + done.stderr
    assert done.returncode == 1, output
    check, fmt, *_ = output.split("- hook id: cfgraph-")[1:]
    assert "error[CFG201]" in check
    assert "counter.pb: no findings" in check
    assert "files were modified by this hook" in fmt
    assert (repository / "untidy.graph").read_text() == TIDY
