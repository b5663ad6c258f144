"""Installation of shell completion: the script of a shell, and the line that loads it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cfgraph.console.completion import completion_script
from cfgraph.errors import UsageError
from cfgraph.ir.file_io import StagedFiles

_MARK: Final = "# completion of cfgraph"


@dataclass(frozen=True, slots=True)
class ShellFiles:
    """The file of the script of a shell, and the start-up file that loads it, if it needs one."""

    script: Path
    startup: Path | None = None
    prelude: str = ""

    @property
    def line(self) -> str:
        """The line of the start-up file; nothing happens if the script was removed."""
        script = shlex.quote(str(self.script))
        return f"[ -r {script} ] && {{ {self.prelude}source {script}; }}  {_MARK}"


def _folder(variable: str, default: str) -> Path:
    """A folder of the user, which a variable names; one below the home folder otherwise."""
    return Path(os.environ.get(variable) or Path.home() / default)


def _bash() -> ShellFiles:
    script = _folder("XDG_DATA_HOME", ".local/share") / "cfgraph" / "completion.bash"
    return ShellFiles(script, Path.home() / ".bashrc")


def _zsh() -> ShellFiles:
    script = _folder("XDG_DATA_HOME", ".local/share") / "cfgraph" / "completion.zsh"
    prelude = "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }; "
    return ShellFiles(script, _folder("ZDOTDIR", "") / ".zshrc", prelude)


def _fish() -> ShellFiles:
    return ShellFiles(_folder("XDG_CONFIG_HOME", ".config") / "fish/completions/cfgraph.fish")


_SHELLS: Final[dict[str, Callable[[], ShellFiles]]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}


def user_shell() -> str:
    """The shell that $SHELL names. Raises UsageError if it has no completion."""
    name = os.path.basename(os.environ.get("SHELL", ""))
    if name not in _SHELLS:
        found = f"$SHELL is {name!r}" if name else "$SHELL is not set"
        message = f"{found}, expected one of {', '.join(_SHELLS)}"
        raise UsageError(message, hint="name the shell: cfgraph completion bash --install")
    return name


def install_completion(shell: str) -> tuple[Path, ...]:
    """Write the script of a shell, and load it at its start; return the files that changed."""
    files = _SHELLS[shell]()
    changed: list[Path] = []
    script = completion_script(shell).rstrip() + "\n"
    if _text(files.script) != script:
        with StagedFiles() as staged:
            staged.make_folder(files.script.parent)
            staged.open(files.script).write(script.encode())
        changed.append(files.script)
    if files.startup is not None and _load_at_start(files, files.startup):
        changed.append(files.startup)
    return tuple(changed)


def _load_at_start(files: ShellFiles, startup: Path) -> bool:
    """Add the line to a start-up file, or replace the one of an earlier place of the script."""
    lines = _text(startup).splitlines()
    if files.line in lines:
        return False
    kept = [line for line in lines if not line.endswith(_MARK)]
    text = "".join(f"{line}\n" for line in (*kept, files.line))
    # a start-up file is often a link into a repository, which stays one
    target = startup.resolve()
    with StagedFiles() as staged:
        staged.make_folder(target.parent)
        staged.open(target).write(text.encode("utf-8", "surrogateescape"))
    return True


def _text(file: Path) -> str:
    """The text of a file, or nothing for a missing one. Raises UsageError if it is unreadable."""
    try:
        return file.read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise UsageError(f"the file cannot be read: {error.strerror}", path=file) from None
