"""Completion installs itself, once, and the shells offer names of commands."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

# prints what the shell offers for `cfgraph exp`
OFFERED = {
    "bash": "source ~/.bashrc; COMP_WORDS=(cfgraph exp); COMP_CWORD=1; "
    '_cfgraph_completion cfgraph; echo "${COMPREPLY[@]}"',
    "zsh": "source ~/.zshrc; echo $_comps[cfgraph]",
    "fish": "complete -C 'cfgraph exp'",
}
EXPECTED = {"bash": "explain", "zsh": "_cfgraph_completion", "fish": "explain"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "ZDOTDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def written(folder: Path) -> dict[str, str]:
    files = [file for file in folder.rglob("*") if file.is_file()]
    return {str(file.relative_to(folder)): file.read_text() for file in files}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_second_installation_changes_nothing(shell: str, command: Any, home: Path) -> None:
    first = command("completion", shell, "--install")
    assert first.code == 0, first.err
    files = written(home)
    assert sorted(first.lines) == sorted(str(home / name) for name in files)
    second = command("completion", shell, "--install")
    assert (second.code, second.out, written(home)) == (0, "", files)
    assert "up to date" in second.err


def test_the_lines_of_a_startup_file_stay(command: Any, home: Path) -> None:
    (home / "dotfiles").mkdir()
    (home / "dotfiles" / "bashrc").write_text("alias ll='ls -l'")
    (home / "dotfiles" / "bashrc").chmod(0o600)
    (home / ".bashrc").symlink_to("dotfiles/bashrc")
    assert command("completion", "bash", "--install").code == 0
    assert (home / ".bashrc").is_symlink()
    assert (home / "dotfiles" / "bashrc").stat().st_mode & 0o777 == 0o600
    first, second = (home / ".bashrc").read_text().splitlines()
    assert (first, "completion.bash" in second) == ("alias ll='ls -l'", True)


@pytest.mark.parametrize(("value", "code"), [("/usr/bin/zsh", 0), ("/bin/dash", 2), ("", 2)])
def test_the_shell_of_the_user_is_the_default(
    value: str, code: int, command: Any, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHELL", value)
    done = command("completion", "--install")
    assert done.code == code, done.err
    assert (home / ".zshrc").exists() == (code == 0)
    assert command("completion").code == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_an_installed_shell_offers_commands(shell: str, command: Any, home: Path) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    assert command("completion", shell, "--install").code == 0
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        [program, "-c", OFFERED[shell]],
        env={**os.environ, "HOME": str(home), "PATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert EXPECTED[shell] in done.stdout, done.stderr
