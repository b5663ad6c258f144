"""Packaging: the wheel contains the entire package and nothing else."""

from __future__ import annotations

import importlib.util
import os
import pydoc
import re
import shutil
import subprocess
import sys
import tarfile
import time
import tomllib
import venv
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

import cfgraph
from cfgraph.errors import DISTRIBUTION

# what a wheel is built from
SOURCES = ("cfgraph", "commands", "docs/man", "pyproject.toml", "README.md", "LICENSE", "NOTICE")


@pytest.fixture(scope="module")
def project(root: Path) -> Any:
    return tomllib.loads((root / "pyproject.toml").read_text())


def test_the_package_list_names_every_folder(root: Path, project: Any) -> None:
    files = [*root.glob("cfgraph/**/*.py"), *root.glob("commands/**/*.py")]
    paths = {file.parent.relative_to(root).parts for file in files}
    packages = {".".join(("cfgraph", *path[path[0] == "cfgraph" :])) for path in paths}
    assert set(project["tool"]["setuptools"]["packages"]) == packages


def test_every_package_says_what_it_is_for(root: Path) -> None:
    folders = {
        file.parent for file in [*root.glob("cfgraph/**/*.py"), *root.glob("commands/**/*.py")]
    }
    silent = [
        folder for folder in folders if not (folder / "__init__.py").read_text().startswith('"""')
    ]
    assert not silent


def test_the_version_is_written_once_in_two_places(project: Any) -> None:
    assert project["project"]["version"] == cfgraph.__version__


def built(kind: str, sources: Path, folder: Path) -> Path:
    """Build a `wheel` or an `sdist` of sources, which setuptools leaves files in."""
    build = f"from setuptools import build_meta; build_meta.build_{kind}({str(folder)!r})"
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", build],
        cwd=sources,
        check=True,
        timeout=120,
        capture_output=True,
    )
    (file,) = folder.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return file


@pytest.fixture(scope="module")
def sdist(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, copy = tmp_path_factory.mktemp("sdist"), tmp_path_factory.mktemp("copy")
    for name in SOURCES:
        if (root / name).is_dir():
            shutil.copytree(root / name, copy / name)
        else:
            shutil.copy(root / name, copy)
    return built("sdist", copy, folder)


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that the sdist builds, as pip does where it gets no wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (sources,) = folder.iterdir()
    return built("wheel", sources, folder)


def test_the_wheel_holds_only_cfgraph(root: Path, wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    distribution = f"{DISTRIBUTION.replace('-', '_')}-{cfgraph.__version__}"
    assert wheel.name == f"{distribution}-py3-none-any.whl"
    folders = {name.split("/")[0] for name in names}
    assert folders == {"cfgraph", f"{distribution}.dist-info", f"{distribution}.data"}
    pages = {f"data/share/man/man1/{file.name}" for file in (root / "docs" / "man").iterdir()}
    data = {name for name in names if name.startswith(f"{distribution}.data/")}
    assert data == {f"{distribution}.data/{page}" for page in pages}
    modules = {f"cfgraph/{file.relative_to(root / 'cfgraph')}" for file in _sources(root)}
    commands = {f"cfgraph/{file.relative_to(root)}" for file in root.glob("commands/**/*.py")}
    assert {name for name in names if name.endswith(".py")} == modules | commands
    bindings = {f"cfgraph/proto/{file.name}" for file in root.glob("cfgraph/proto/*.py*")}
    schemas = {f"cfgraph/schemas/{file.name}" for file in root.glob("cfgraph/schemas/*.json")}
    assets = "cfgraph/console/picture/assets"
    parts = {f"{assets}/{file.name}" for file in (root / assets).iterdir()}
    assert bindings | schemas | parts | {"cfgraph/py.typed"} <= set(names)


def _sources(root: Path) -> list[Path]:
    return [*root.glob("cfgraph/**/*.py")]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment with the wheel, what it says that it needs, and nothing else."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for distribution in needed_by(wheel):
        for file in distribution.files or ():
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not (packages / top).exists():
                (packages / top).symlink_to(distribution.locate_file(top))
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")),
            *("install", "--quiet", "--no-deps", "--no-index", str(wheel)),
        ],
        check=True,
        timeout=120,
    )
    return folder / "bin"


def needed_by(wheel: Path) -> list[metadata.Distribution]:
    """Return what is installed here of the dependencies of a wheel, and of theirs."""
    (text,) = [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith("/METADATA")]
    found: dict[str, metadata.Distribution] = {}
    declared = metadata.PathDistribution(zipfile.Path(wheel, text.removesuffix("METADATA")))
    waiting = _requirements(declared)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = metadata.distribution(name)
            waiting += _requirements(found[name])
    return list(found.values())


@pytest.fixture(scope="module")
def uv() -> str:
    program = Path(sys.executable).with_name("uv")
    return str(program) if program.exists() else pytest.skip("uv is not installed (extra release)")


def test_the_index_accepts_and_renders_what_is_uploaded(sdist: Path, wheel: Path) -> None:
    if importlib.util.find_spec("twine") is None:
        pytest.skip("twine is not installed (extra release)")
    check = [sys.executable, "-m", "twine", "check", "--strict", str(sdist), str(wheel)]
    done = subprocess.run(check, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout.count("PASSED")) == (0, 2), done.stdout


@pytest.mark.slow
def test_the_first_commands_work_in_an_empty_folder_and_environment(
    wheel: Path, uv: str, tmp_path: Path
) -> None:
    env = {"PATH": "/usr/bin:/bin", "UV_TOOL_DIR": str(tmp_path / "tools"), **_of_uv()}
    cfgraph_command = [uv, "tool", "run", "--python", sys.executable, "--from", str(wheel)]

    def run(line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*cfgraph_command, *line.split()],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            check=True,
            timeout=600,
        )

    folder = tmp_path / "empty"
    folder.mkdir()
    run("cfgraph --version")  # downloads
    start = time.monotonic()
    run("cfgraph examples .")
    assert "5 kinds" in run("cfgraph show branch.graph").stdout
    assert "= 3\n" in run("cfgraph run count.graph --feed n=3 --fetch exit").stdout
    assert "Switch" in run("cfgraph explain branch.graph negative --feed x=3 --feed p=true").stdout
    assert time.monotonic() - start < 60


def _of_uv() -> dict[str, str]:
    """The variables that say where packages are."""
    names = ("HOME", "SSL_CERT_FILE", "GIT_SSL_CAINFO", "PIP_CERT")
    return {key: value for key, value in os.environ.items() if key in names or key[:3] == "UV_"}


@pytest.mark.slow
def test_all_extras_can_be_installed_together(wheel: Path, project: Any, uv: str) -> None:
    extras = ",".join(project["project"]["optional-dependencies"])
    done = subprocess.run(
        [uv, "pip", "compile", "--quiet", "--python-version", "3.12", "-"],
        input=f"{DISTRIBUTION}[{extras}] @ {wheel.as_uri()}",
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    found = set(re.findall(r"^([\w-]+)==", done.stdout, flags=re.MULTILINE))
    assert {"cupy-cuda13x", "jax", "tensorflow-cpu", "ray", "mkdocs", "ipykernel"} <= found


def _requirements(distribution: metadata.Distribution) -> list[str]:
    lines = [Requirement(line) for line in distribution.requires or ()]
    return [
        line.name.lower()
        for line in lines
        if line.marker is None or line.marker.evaluate({"extra": ""})
    ]


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        ("run counter.pb --feed n=3 --fetch count:0", "3"),
        ("show counter.pb", "AddV2"),
        ("check nested.pb", ""),
        ("explain CFG710", "CFG710"),
        ("--version", cfgraph.__version__),
    ],
)
def test_the_command_works_where_only_the_wheel_is_installed(
    arguments: str, output: str, installed: Path, fixtures: Path
) -> None:
    done = subprocess.run(
        [installed / "cfgraph", *arguments.split()],
        cwd=fixtures / "graphs",
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert output in done.stdout


def test_man_finds_the_pages_next_to_the_command(root: Path, installed: Path) -> None:
    pages = root / "docs" / "man"
    written = installed.parent / "share" / "man" / "man1"
    assert {file.name: file.read_text() for file in written.iterdir()} == {
        file.name: file.read_text() for file in pages.iterdir()
    }


def test_the_library_works_where_only_the_wheel_is_installed(installed: Path) -> None:
    program = (
        "import cfgraph, importlib.metadata as m\n"
        "b = cfgraph.Builder()\n"
        "total = b.const(1) + 2\n"
        f"print(cfgraph.Session(b.graph).run([total.name])[0], m.version({DISTRIBUTION!r}))\n"
        "print(cfgraph.__file__)"
    )
    done = subprocess.run(
        [installed / "python", "-I", "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    first, file = done.stdout.splitlines()
    assert first == f"3 {cfgraph.__version__}"
    assert Path(file).is_relative_to(installed.parent)


def test_the_distribution_has_one_name(root: Path, project: Any) -> None:
    assert project["project"]["name"] == DISTRIBUTION
    assert project["project"]["scripts"].keys() == {"cfgraph"}
    texts = [
        *(root / name for name in ("README.md", "CONTRIBUTING.md", "Makefile")),
        *(file for folder in ("docs", "fixtures/ci") for file in (root / folder).glob("*.*")),
        *(file for name in ("*.py", "*.toml") for file in root.glob(f"cfgraph/**/{name}")),
        *root.glob("commands/**/*.py"),
    ]
    stale = re.compile(r"pip install '?cfgraph(?!-tools)|\bcfgraph\[[a-z-]+\]")
    found = [
        f"{file.relative_to(root)}: {line}"
        for file in texts
        if file.suffix not in (".png", ".webp")
        for line in file.read_text(encoding="utf-8").splitlines()
        if stale.search(line)
    ]
    assert not found
    # and the name itself is in one place of the code
    code = [file for file in _sources(root) if DISTRIBUTION in file.read_text(encoding="utf-8")]
    assert code == [root / "cfgraph" / "errors.py"]


def test_the_public_names_are_listed_and_lead_somewhere() -> None:
    homes = cfgraph._HOMES
    assert set(homes) <= set(dir(cfgraph))
    for name in homes:
        assert getattr(cfgraph, name).__name__ == name


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing_of_this_name"):
        _ = cfgraph.nothing_of_this_name


def test_the_help_of_the_package_mentions_every_public_name() -> None:
    page = pydoc.render_doc(cfgraph, renderer=pydoc.plaintext)  # type: ignore[attr-defined]
    overview = page.partition("PACKAGE CONTENTS")[0]
    assert not [name for name in cfgraph.__all__ if name not in overview]
    assert not [name for name in cfgraph.__all__ if page.count(name) < 2]
    public = [name for name in dir(cfgraph) if not name.startswith("__")]
    assert public == sorted(cfgraph.__all__)
