"""Files for other programs: the image, the recipe, the citation, and what GitHub and GitLab read.

Tools of the extra `release` lint them; the comparisons with pyproject.toml need none.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

import cfgraph
from cfgraph.cli.configuration_schema import configuration_schema
from cfgraph.errors import DISTRIBUTION
from tests.test_packaging import SOURCES

RECIPE = "distribution/conda/recipe.yaml"
DOCKERFILE = "distribution/Dockerfile"
# the schemas of other programs that check-jsonschema has
SCHEMAS = {
    "github-actions": "action.yml",
    "github-workflows": ".github/workflows/release.yml",
    "github-issue-forms": ".github/ISSUE_TEMPLATE/[!c]*.yml",
    "github-issue-config": ".github/ISSUE_TEMPLATE/config.yml",
    "citation-file-format": "CITATION.cff",
}


def tool(name: str) -> str:
    program = Path(sys.executable).with_name(name)
    return str(program) if program.exists() else pytest.skip(f"{name} is missing (extra release)")


def output_of(line: list[str], folder: Path) -> str:
    """The output of a program that fails, or nothing."""
    done = subprocess.run(
        line, cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )
    return done.stdout + done.stderr if done.returncode else ""


@pytest.fixture(scope="module")
def project(root: Path) -> Any:
    return tomllib.loads((root / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_file_is_as_the_schema_of_its_reader_says(schema: str, root: Path) -> None:
    files = sorted(str(file) for file in root.glob(SCHEMAS[schema]))
    assert files
    line = [tool("check-jsonschema"), "--builtin-schema", f"vendor.{schema}", *files]
    assert output_of(line, root) == ""


def test_workflows_and_scripts_pass_their_linters(root: Path) -> None:
    linted = ["--offline", "--no-config", "action.yml", ".github/workflows"]
    assert output_of([tool("zizmor"), *linted], root) == ""
    scripts = [".github/check_graphs.sh", ".ci/run", "fixtures/ci/graphs.sh"]
    assert output_of([tool("shellcheck"), "--severity=warning", *scripts], root) == ""


def test_a_person_alone_starts_a_release(root: Path) -> None:
    text = (root / ".github" / "workflows" / "release.yml").read_text()
    workflow = yaml.load(text, Loader=yaml.BaseLoader)
    assert list(workflow["on"]) == ["workflow_dispatch"]
    assert workflow["on"]["workflow_dispatch"]["inputs"]["publish"]["default"] == "false"
    jobs = workflow["jobs"]
    publishing = {name for name, job in jobs.items() if job.get("if") == "inputs.publish"}
    writing = {name for name, job in jobs.items() if "write" in job["permissions"].values()}
    assert jobs.keys() - publishing == {"build", "check"}
    assert writing == publishing
    assert (jobs["check"]["needs"], jobs["index"]["needs"]) == ("build", "check")
    assert jobs["index"]["permissions"] == {"id-token": "write"}
    assert "secrets." not in text


def test_what_makes_a_release_is_pinned(root: Path) -> None:
    files = [root / "action.yml", *(root / ".github" / "workflows").iterdir()]
    actions = [use for file in files for use in re.findall(r"uses: (.*)", file.read_text())]
    assert len(actions) > 5
    pinned = re.compile(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
    assert [action for action in actions if not pinned.fullmatch(action)] == []
    tools = (root / "distribution" / "release.txt").read_text().splitlines()
    lines = [line for line in tools if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w-]+==[\w.]+ --hash=sha256:[0-9a-f]{64}", line) for line in lines)
    versions = dict(line.split()[0].split("==") for line in lines)
    for item in tomllib.loads((root / "pyproject.toml").read_text())["build-system"]["requires"]:
        requirement = Requirement(item)
        assert requirement.specifier.contains(versions[requirement.name])
    (build,) = [
        step["run"]
        for step in yaml.safe_load((root / SCHEMAS["github-workflows"]).read_text())["jobs"][
            "build"
        ]["steps"]
        if "run" in step
    ]
    assert "--require-hashes" in build.split("pip install")[1].splitlines()[0]
    assert "--no-isolation" in build


def test_the_recipe_is_rendered_with_the_dependencies_of_the_project(
    root: Path, project: Any
) -> None:
    recipe = _rendered(root)
    run = [_normalized(item) for item in recipe["requirements"]["run"]]
    wanted = [f"python{project['requires-python']}", *project["dependencies"]]
    assert run == [_normalized(item) for item in wanted]
    host = [_normalized(item) for item in recipe["requirements"]["host"]]
    build = tomllib.loads((root / "pyproject.toml").read_text())["build-system"]["requires"]
    assert {_normalized(item) for item in build} <= set(host)
    assert recipe["package"] == {"name": DISTRIBUTION, "version": project["version"]}
    (name, target), *more = project["scripts"].items()
    assert (recipe["build"]["python"]["entry_points"], more) == ([f"{name} = {target}"], [])
    assert recipe["about"]["license"] == project["license"]
    assert recipe["about"]["license_file"] == project["license-files"]
    assert len(recipe["tests"]) == 2


def _rendered(root: Path) -> Any:
    """The recipe, rendered by the program that builds it, or else read as YAML."""
    if importlib.util.find_spec("rattler_build") is None:
        text = (root / RECIPE).read_text()
        context = yaml.safe_load(text)["context"]
        replaced = re.sub(r"\$\{\{ (\w+) \}\}", lambda x: context.get(x[1], x[0]), text)
        return yaml.safe_load(replaced)
    from rattler_build import Stage0Recipe, VariantConfig

    (variant,) = Stage0Recipe.from_file(root / RECIPE).render(VariantConfig())
    return variant.recipe.to_dict()


def _normalized(text: str) -> str:
    """A dependency in the form of pip; conda writes `python 3.11.*` without an operator."""
    name, _, versions = text.partition(" ")
    requirement = Requirement(name if ".*" in versions else name + versions)
    return f"{requirement.name.lower()}{requirement.specifier}"


def test_the_commands_of_the_recipe_and_the_release_work(root: Path, tmp_path: Path) -> None:
    from tests.shell import run

    recipe = yaml.safe_load((root / RECIPE).read_text())
    (script,) = [item["script"] for item in recipe["tests"] if "script" in item]
    release = yaml.safe_load((root / ".github" / "workflows" / "release.yml").read_text())
    steps = {item.get("name"): item for item in release["jobs"]["check"]["steps"]}
    checks = steps["Check what is built"]["run"].splitlines()
    lines = [line.replace("empty/bin/", "") for line in checks if line.startswith("empty/bin/")]
    assert (len(script), len(lines)) == (4, 3)
    done = run(["bash", "-e", "-c", "\n".join([*script, *lines])], tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_citation_is_of_this_version(root: Path, project: Any) -> None:
    citation = yaml.safe_load((root / "CITATION.cff").read_text())
    assert citation["version"] == project["version"]
    assert citation["license"] == project["license"]


def test_the_component_is_as_the_schema_of_gitlab_says(root: Path, tmp_path: Path) -> None:
    file = root / "distribution" / "gitlab" / "templates" / "cfgraph.yml"
    _, jobs = yaml.safe_load_all(file.read_text())
    (tmp_path / "jobs.yml").write_text(yaml.safe_dump(jobs))
    line = [tool("check-jsonschema"), "--builtin-schema", "vendor.gitlab-ci", "jobs.yml"]
    assert output_of(line, tmp_path) == ""


def test_the_page_lists_every_extra(root: Path, project: Any) -> None:
    rows = re.findall(r"^\| (`.*?`) \|", (root / "docs" / "install.md").read_text(), re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`([\w-]+)`", row)}
    assert listed == project["optional-dependencies"].keys()


def test_a_bug_report_asks_for_a_bundle(root: Path) -> None:
    form = yaml.safe_load((root / ".github" / "ISSUE_TEMPLATE" / "bug.yml").read_text())
    required = [item for item in form["body"] if item.get("validations", {}).get("required")]
    assert "cfgraph doctor --bundle" in " ".join(str(item) for item in required)


def _instructions(root: Path) -> list[tuple[str, str]]:
    """The instructions of the image, each with its text."""
    text = re.sub(r"^#.*\n", "", (root / DOCKERFILE).read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [(line.split()[0], line.partition(" ")[2]) for line in lines if line]


def test_the_image_is_small_and_its_user_is_not_root(root: Path) -> None:
    found = _instructions(root)
    assert [text.split()[0] for name, text in found if name == "FROM"] == ["${PYTHON}"] * 2
    assert re.fullmatch(r"PYTHON=python:[\d.]+-slim@sha256:[0-9a-f]{64}", dict(found[::-1])["ARG"])
    names = [name for name, _ in found]
    last = dict(found[len(names) - 1 - names[::-1].index("FROM") :])
    assert last["ENTRYPOINT"] == json.dumps([cfgraph.__name__])
    assert last["USER"] == "1000"
    assert "RUN pip" not in str(found)
    assert "--no-cache-dir" in next(text for name, text in found if "pip install" in text)


def test_the_image_is_built_from_what_a_wheel_is_built_from(root: Path) -> None:
    copies = [text.split() for name, text in _instructions(root) if name == "COPY"]
    copied = [item for words in copies if "--from=build" not in words for item in words[:-1]]
    assert set(copied) == set(SOURCES)
    ignored = (root / f"{DOCKERFILE}.dockerignore").read_text().splitlines()
    assert {line[1:] for line in ignored if line.startswith("!")} == set(SOURCES)


def test_the_image_passes_its_linter(root: Path) -> None:
    assert output_of([tool("hadolint"), DOCKERFILE], root) == ""


@pytest.mark.slow
def test_the_image_runs_the_command(root: Path, fixtures: Path) -> None:
    docker = shutil.which("docker")
    if docker is None or output_of([docker, "info"], root):
        pytest.skip("docker is missing, or its daemon does not run")
    build = [docker, "build", "--file", DOCKERFILE, "--tag", "cfgraph-test", "."]
    subprocess.run(build, cwd=root, check=True, timeout=900, capture_output=True)
    run = [docker, "run", "--rm", "--volume", f"{fixtures / 'graphs'}:/graphs:ro", "cfgraph-test"]
    done = subprocess.run(
        [*run, "run", "counter.pb", "--feed", "n=3", "--fetch", "count:0"],
        check=True,
        timeout=300,
        capture_output=True,
        text=True,
    )
    assert "3" in done.stdout


def test_the_entry_for_schemastore_has_the_address_of_the_schema(root: Path) -> None:
    text = (root / "CONTRIBUTING.md").read_text()
    (entry,) = re.findall(r"```json\n(.*?)```", text, flags=re.DOTALL)
    from cfgraph.cli.command_files import COMMANDS, CommandFiles

    schema = configuration_schema(CommandFiles(COMMANDS))
    assert json.loads(entry)["url"] == schema["$id"]
