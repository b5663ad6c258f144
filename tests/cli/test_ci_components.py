"""action.yml and the component for GitLab, run as their hosts do, in a clone of two commits."""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

import cfgraph
from tests.shell import run

IDENTITY = ("-c", "user.name=A Tester", "-c", "user.email=tester@example.com")


def git(folder: Path, *line: str) -> str:
    done = run(["git", *IDENTITY, *line], folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def clone(tmp_path: Path, fixtures: Path) -> Path:
    """A shallow clone of a branch that changes one graph, and leaves one and a text as they are."""
    made, folder = tmp_path / "origin", tmp_path / "clone"
    (made / "graphs").mkdir(parents=True)
    git(made, "init", "-q", "-b", "main")
    shutil.copy(fixtures / "graphs" / "nested.pb", made / "graphs")
    text = made / "graphs" / "a text.graph"
    text.write_text("x = Placeholder() {dtype=float32, shape=[2]}\ny = Neg(x)\n")
    # of a SavedModel, and no graph
    (made / "graphs" / "fingerprint.pb").write_bytes(b"\x08\x01")
    git(made, "add", ".")
    git(made, "commit", "-qm", "first")
    git(made, "checkout", "-qb", "change")
    text.write_text(text.read_text().replace("= Neg(", "= Square("))
    git(made, "commit", "-qam", "second")
    git(made, "config", "uploadpack.allowAnySHA1InWant", "true")
    git(made, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "-q", "--depth=1", "--branch=change", made.as_uri(), str(folder))
    return folder


def add_fault(clone: Path, fixtures: Path) -> None:
    fault = fixtures / "errors" / "CFG201_tensors_of_two_loops.graph"
    shutil.copy(fault, clone / "graphs" / "bad.graph")
    git(clone, "add", ".")


class Job:
    """The steps of action.yml with their inputs, and what they leave for the job."""

    def __init__(self, root: Path, clone: Path, folder: Path) -> None:
        self.root, self.clone, self.folder = root, clone, folder
        self.action: Any = yaml.safe_load((root / "action.yml").read_text())
        self.summary, self.output = folder / "summary.md", folder / "output"

    def run(self, name: str, **values: str) -> Any:
        """Run a step as the runner does."""
        inputs = {key: str(item["default"]) for key, item in self.action["inputs"].items()}
        inputs |= {"base": "main"} | {key.replace("_", "-"): item for key, item in values.items()}
        (step,) = [step for step in self.action["runs"]["steps"] if step["name"] == name]
        for file in (self.summary, self.output):
            file.write_text("")
        env = {
            "GITHUB_ACTION_PATH": str(self.root),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "GITHUB_OUTPUT": str(self.output),
            "RUNNER_TEMP": str(self.folder),
        }
        for key, text in step["env"].items():
            match = re.fullmatch(r"\$\{\{ inputs\.([\w-]+) \}\}", text)
            assert match is not None, text
            env[key] = inputs[match[1]]
        shell = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"])
        return run(shell, self.clone, env)

    def sarif(self) -> Any:
        """Findings that the last step uploads."""
        upload = self.action["runs"]["steps"][-1]
        assert upload["with"]["sarif_file"] == "${{ steps.check.outputs.sarif }}"
        path = self.output.read_text().removeprefix("sarif=").strip()
        return json.loads(Path(path).read_text())["runs"][0]["results"]


CHECK = "Check and compare graphs"


@pytest.fixture
def job(root: Path, clone: Path, tmp_path: Path) -> Job:
    return Job(root, clone, tmp_path)


def test_the_summary_has_the_graphs_and_what_changed(job: Job) -> None:
    done = job.run(CHECK)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    summary = job.summary.read_text()
    before, after = summary.split("## Changed graphs")
    assert before.startswith("## Graphs\n\n**graphs/a text.graph**: no findings\n")
    assert "fingerprint" not in summary
    assert "nested" not in after
    assert "**graphs/a text.graph**: 1 error" in after
    assert "op was Neg, is Square" in after
    assert job.sarif() == []


def test_changes_of_the_base_after_the_branch_left_it_are_not_reported(job: Job) -> None:
    origin = job.folder / "origin"
    git(origin, "checkout", "-q", "main")
    (origin / "graphs" / "nested.pb").write_bytes((origin / "graphs" / "a text.graph").read_bytes())
    git(origin, "commit", "-qam", "third")
    done = job.run(CHECK)
    assert (done.returncode, done.stderr) == (0, "")
    after = job.summary.read_text().split("## Changed graphs")[1]
    assert "**graphs/a text.graph**" in after
    assert "nested" not in after


def test_a_fault_fails_the_step_and_is_shown_next_to_the_file(job: Job, fixtures: Path) -> None:
    add_fault(job.clone, fixtures)
    done = job.run(CHECK, diff="none")
    assert done.returncode == 1
    assert done.stdout.startswith("::error file=graphs/bad.graph,title=CFG201::")
    assert [item["ruleId"] for item in job.sarif()] == ["CFG201"]
    assert "## Changed" not in job.summary.read_text()
    assert job.run(CHECK, ignore="CFG201", base="").returncode == 0
    (job.clone / "graphs" / "bad.graph").write_text("x = (")
    assert job.run(CHECK, base="").returncode == 3
    assert len(job.sarif()) == 1


def test_a_difference_fails_where_it_is_to(job: Job) -> None:
    done = job.run(CHECK, fail_on_difference="true", diff="values")
    assert done.returncode == 1
    assert "::error file=graphs/a text.graph,title=cfgraph diff::" in done.stdout
    assert "the first wrong node is y (Square)" in job.summary.read_text()


@pytest.fixture
def model(job: Job, fixtures: Path) -> Path:
    """A SavedModel in the clone, which the branch `trained` has, too."""
    folder = job.clone / "models" / "lstm"
    unpack(fixtures, "lstm", folder)
    git(job.clone, "add", ".")
    git(job.clone, "commit", "-qm", "third")
    git(job.clone, "push", "-q", "origin", "HEAD:refs/heads/trained")
    return folder


def unpack(fixtures: Path, name: str, folder: Path) -> None:
    with zipfile.ZipFile(fixtures / "verdicts" / f"{name}.zip") as archive:
        for item in archive.namelist():
            path = folder / item.partition("/")[2]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.read(item))


@pytest.mark.slow
def test_a_retrained_model_is_a_difference_of_values(job: Job, model: Path, fixtures: Path) -> None:
    unpack(fixtures, "lstm_retrained", model)
    done = job.run(CHECK, base="trained", diff="values", fail_on_difference="true")
    assert done.returncode == 1
    assert "::error file=models/lstm/saved_model.pb,title=cfgraph diff::" in done.stdout
    after = job.summary.read_text().split("## Changed graphs")[1]
    assert "**models/lstm**: 4 errors" in after
    assert "StatefulPartitionedCall\\_1:0: 4 of 4 elements differ" in after


@pytest.mark.parametrize(("diff", "status"), [("values", 1), ("nodes", 0)])
def test_a_change_of_the_variables_is_a_change_of_the_model(
    diff: str, status: int, job: Job, model: Path, fixtures: Path, tmp_path: Path
) -> None:
    unpack(fixtures, "lstm_retrained", tmp_path / "retrained")
    shutil.copytree(tmp_path / "retrained" / "variables", model / "variables", dirs_exist_ok=True)
    done = job.run(CHECK, base="trained", diff=diff, fail_on_difference="true")
    assert done.returncode == status
    after = job.summary.read_text().split("## Changed graphs")[1]
    assert "**models/lstm**: " in after
    assert ("Not compared: other files of the model changed" in after) is (diff == "nodes")
    assert ("::warning file=models/lstm/saved_model.pb" in done.stdout) is (diff == "nodes")


@pytest.mark.slow
@pytest.mark.parametrize("diff", ["values", "nodes"])
def test_an_unchanged_model_is_not_listed(diff: str, job: Job, model: Path) -> None:
    (model.parent / "notes.txt").write_text("of no model")
    git(job.clone, "add", ".")
    done = job.run(CHECK, base="trained", diff=diff, fail_on_difference="true")
    assert (done.returncode, done.stdout) == (0, "")
    assert job.summary.read_text().endswith("## Changed graphs\n")


def test_names_of_graphs_are_neither_options_nor_commands(job: Job) -> None:
    names = ["--exit-zero.graph", "-V.graph", "é, x\n::error::y.graph"]
    for name in names:
        (job.clone / name).write_text("x = Placeholder() {dtype=float32, shape=[2]}\n")
    git(job.clone, "add", ".")
    git(job.clone, "commit", "-qm", "third")
    git(job.clone, "push", "-q", "origin", "HEAD:refs/heads/named")
    for name in names:
        (job.clone / name).write_text("x = Placeholder() {dtype=int32, shape=[2]}\n")
    done = job.run(CHECK, base="named", graphs="*.graph\n*nested.pb", fail_on_difference="true")
    assert (done.returncode, done.stderr) == (1, "")
    errors = [line.partition(",title")[0] for line in done.stdout.splitlines()]
    assert errors == [
        "::error file=--exit-zero.graph",
        "::error file=-V.graph",
        "::error file=é%2C x%0A%3A%3Aerror%3A%3Ay.graph",
    ]
    assert "**graphs/nested.pb**" in job.summary.read_text()


def test_a_repository_without_graphs_is_a_warning(job: Job) -> None:
    done = job.run(CHECK, graphs="*.none")
    assert (done.returncode, done.stdout[:10]) == (0, "::warning ")


@pytest.mark.slow
def test_the_action_installs_what_it_belongs_to(job: Job) -> None:
    done = job.run("Install cfgraph", python="python")
    assert done.returncode == 0, done.stderr
    done = run([str(job.folder / "cfgraph" / "bin" / "cfgraph"), "--version"], job.clone)
    assert done.stdout.split()[-1] == cfgraph.__version__


@pytest.fixture
def script(root: Path) -> list[str]:
    """The lines of the component's job, with the defaults of its inputs."""
    file = root / "distribution" / "gitlab" / "templates" / "cfgraph.yml"
    spec, jobs = yaml.safe_load_all(file.read_text())
    (found,) = jobs.values()
    inputs = {
        f"$[[ inputs.{key} ]]": item["default"] for key, item in spec["spec"]["inputs"].items()
    }
    variables = [f"{key}='{inputs[text]}'" for key, text in found["variables"].items()]
    assert found["artifacts"]["reports"]["junit"] == "cfgraph.xml"
    return [*variables, *found["script"]]


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_the_component_reports_faults_and_changes(
    shell: str, script: list[str], clone: Path, fixtures: Path
) -> None:
    for name in ("-V.graph", "é.graph"):
        (clone / name).write_text("x = NoOp()\n")
    git(clone, "add", ".")
    base = git(clone, "ls-remote", "origin", "refs/heads/main").split()[0]
    line = (shell, "-ec", "\n".join(script))
    done = run(line, clone, {"CI_MERGE_REQUEST_DIFF_BASE_SHA": base})
    assert (done.returncode, done.stderr) == (0, "")
    assert "+ Square" in done.stdout
    assert "nested.pb: no findings" in done.stdout
    assert ElementTree.parse(clone / "cfgraph.xml").getroot().get("failures") == "0"
    add_fault(clone, fixtures)
    done = run(line, clone)
    assert done.returncode not in (0, 2)
    assert "error[CFG201]" in done.stdout
    assert ElementTree.parse(clone / "cfgraph.xml").getroot().get("failures") == "1"


@pytest.mark.slow
def test_the_component_compares_the_variables_of_a_model(
    script: list[str], job: Job, model: Path, fixtures: Path
) -> None:
    unpack(fixtures, "lstm_retrained", model)
    git(job.clone, "commit", "-qam", "fourth")
    base = git(job.clone, "ls-remote", "origin", "refs/heads/trained").split()[0]
    values = "\n".join(script).replace("DIFF_OPTIONS=''", "DIFF_OPTIONS=--run")
    done = run(("sh", "-ec", values), job.clone, {"CI_MERGE_REQUEST_DIFF_BASE_SHA": base})
    assert done.returncode == 0, done.stderr
    report = done.stdout.partition("models/lstm\n")[2]
    assert "StatefulPartitionedCall_1:0: 4 of 4 elements differ" in report


def test_a_model_is_compared_with_its_golden_outputs(job: Job, clone: Path, fixtures: Path) -> None:
    shutil.copytree(fixtures / "saved_model", clone / "model")
    assert run(["cfgraph", "record", "model", "-o", "golden.npz"], clone).returncode == 0
    git(clone, "add", ".")
    done = job.run(CHECK, golden="model=golden.npz", diff="none")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    golden = job.summary.read_text().split("## Golden outputs")[1]
    assert "**model**: no differences" in golden
    with zipfile.ZipFile(clone / "golden.npz") as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    entries["1/out/y.npy"] = entries["2/out/y.npy"]
    with zipfile.ZipFile(clone / "golden.npz", "w") as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    done = job.run(CHECK, golden="model=golden.npz", golden_options="--rtol 1e-3", diff="none")
    assert done.returncode == 1
    assert (
        "::error file=model,title=cfgraph diff::the outputs differ from golden.npz" in done.stdout
    )
    assert "y" in job.summary.read_text().split("## Golden outputs")[1]
    done = job.run(CHECK, golden="model=missing.npz", diff="none")
    assert done.returncode == 3
