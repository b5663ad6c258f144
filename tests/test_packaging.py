"""What is installed is the package, whole, and nothing else."""

from __future__ import annotations

import pydoc
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

import cfgraph


@pytest.fixture(scope="module")
def project(root: Path) -> Any:
    return tomllib.loads((root / "pyproject.toml").read_text())


def test_the_package_list_names_every_folder(root: Path, project: Any) -> None:
    folders = {file.parent.relative_to(root) for file in root.glob("cfgraph/**/*.py")}
    packages = {".".join(folder.parts) for folder in folders} | {"cfgraph.commands"}
    assert set(project["tool"]["setuptools"]["packages"]) == packages


def test_every_package_says_what_it_is_for(root: Path) -> None:
    folders = {file.parent for file in [*root.glob("cfgraph/**/*.py"), *root.glob("commands/*.py")]}
    silent = [
        folder for folder in folders if not (folder / "__init__.py").read_text().startswith('"""')
    ]
    assert not silent


def test_the_version_is_written_once_in_two_places(project: Any) -> None:
    assert project["project"]["version"] == cfgraph.__version__


def test_the_wheel_holds_only_cfgraph(root: Path, tmp_path: Path) -> None:
    # setuptools writes build/ and *.egg-info beside the sources, so it is given a copy of them
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("cfgraph", "commands", "pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        subprocess.run(["cp", "-r", str(root / name), str(copy)], check=True, timeout=60)
    build = f"from setuptools.build_meta import build_wheel; build_wheel({str(tmp_path)!r})"
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", build],
        cwd=copy,
        check=True,
        timeout=120,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {
        "cfgraph",
        f"cfgraph-{cfgraph.__version__}.dist-info",
    }
    commands = {f"cfgraph/commands/{file.name}" for file in (root / "commands").glob("*.py")}
    bindings = {f"cfgraph/proto/{file.name}" for file in root.glob("cfgraph/proto/*.py*")}
    schemas = {f"cfgraph/schemas/{file.name}" for file in root.glob("cfgraph/schemas/*.json")}
    assets = "cfgraph/console/picture/assets"
    parts = {f"{assets}/{file.name}" for file in (root / assets).iterdir()}
    assert commands | bindings | schemas | parts | {"cfgraph/py.typed"} <= set(names)


def test_the_public_names_are_listed_and_lead_somewhere() -> None:
    homes = cfgraph._HOMES
    assert set(homes) <= set(dir(cfgraph))
    for name in homes:
        assert getattr(cfgraph, name).__name__ == name


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing_of_this_name"):
        _ = cfgraph.nothing_of_this_name


def test_the_help_of_the_package_tells_of_every_public_name() -> None:
    page = pydoc.render_doc(cfgraph, renderer=pydoc.plaintext)  # type: ignore[attr-defined]
    overview = page.partition("PACKAGE CONTENTS")[0]
    assert not [name for name in cfgraph.__all__ if name not in overview]
    assert not [name for name in cfgraph.__all__ if page.count(name) < 2]
    public = [name for name in dir(cfgraph) if not name.startswith("__")]
    assert public == sorted(cfgraph.__all__)
