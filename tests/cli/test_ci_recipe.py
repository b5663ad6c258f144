"""The CI recipe in fixtures/ci: its script and workflow run as documented."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from tests.shell import run


@pytest.fixture
def folder(fixtures: Path, tmp_path: Path) -> Path:
    """A repository with the recipe and one graph."""
    shutil.copytree(fixtures / "ci", tmp_path / "ci")
    (tmp_path / "graphs").mkdir()
    shutil.copy(fixtures / "graphs" / "while_functional.pb", tmp_path / "graphs")
    return tmp_path


SCRIPT = ("ci/graphs.sh", "graphs/while_functional.pb", "ci/golden", "build")


def test_the_script_fails_where_the_golden_graph_is_another(folder: Path) -> None:
    golden = folder / "ci" / "golden" / "while_functional.graph"
    golden.write_text(golden.read_text().replace("= Less(", "= LessEqual("))
    done = run(SCRIPT, folder)
    assert done.returncode == 1
    assert "1 node changed" in done.stdout


def test_the_script_fails_where_the_golden_values_are_missing(folder: Path) -> None:
    (folder / "ci" / "golden" / "while_functional.run").unlink()
    done = run(SCRIPT, folder)
    assert done.returncode != 0
    assert "while_functional.run" in done.stderr


def test_the_steps_of_the_workflow_run(folder: Path) -> None:
    workflow = yaml.safe_load((folder / "ci" / "graphs.yml").read_text())
    assert workflow["defaults"]["run"]["shell"] == "bash"
    steps = [step for step in workflow["jobs"]["graphs"]["steps"] if "run" in step]
    install, *others = steps
    assert install["run"].startswith("pip install ")
    for step in others:
        # as GitHub starts it
        shell = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"])
        done = run(shell, folder, env=step.get("env"))
        assert (done.returncode, done.stderr) == (0, ""), step["name"]
    assert {file.name for file in (folder / "build").iterdir()} == {
        "while_functional.lowered.pb",
        "while_functional.parts.pb",
    }
    (upload,) = [
        step for step in workflow["jobs"]["graphs"]["steps"] if "sarif" in step.get("uses", "")
    ]
    report = json.loads((folder / upload["with"]["sarif_file"]).read_text())
    assert report["runs"][0]["results"] == []
    assert ElementTree.parse(folder / "cfgraph.xml").getroot().get("failures") == "0"


def test_a_fault_fails_the_workflow_and_is_shown_next_to_the_file(
    folder: Path, fixtures: Path
) -> None:
    shutil.copy(fixtures / "errors" / "CFG201_tensors_of_two_loops.graph", folder / "graphs/bad.pb")
    workflow = yaml.safe_load((folder / "ci" / "graphs.yml").read_text())
    (check,) = [
        step["run"]
        for step in workflow["jobs"]["graphs"]["steps"]
        if step.get("name") == "Look for faults"
    ]
    done = run(("bash", "-eo", "pipefail", "-c", check), folder)
    assert done.returncode == 1
    assert done.stdout.startswith("::error file=graphs/bad.pb,title=CFG201::")
