"""Exit codes, help, suggestions, streams, and start-up of the command line."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import cfgraph
from cfgraph.cli.command_files import CommandFiles
from cfgraph.cli.json_output import document, render_json

PROBE = '''"""Fail in the requested way."""

import os
import signal
import time
from typing import Annotated

import typer

from cfgraph.errors import *
from cfgraph.cli.options import Feed, Graph, Json


def main(way: str, json: Json = False, feed: Feed = ()) -> None:
    """Fail in the requested way."""
    if way == "print":
        print("done")
    elif way == "flood":
        for line in range(1_000_000):
            print(line)
    elif way == "finding":
        raise typer.Exit(1)
    elif way == "bug":
        raise KeyError("line\\nbreak")
    elif way == "interrupt":
        # a shell starts its background jobs with this signal ignored
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)
    elif way == "terminate":
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10)
        finally:
            print("cleaned up")
    elif way == "file":
        open("no/such/file")
    elif way == "memory":
        raise MemoryError
    elif way == "note":
        where = {"node": "n", "frame": "w", "device": "cpu:0"}
        error = InvalidInput("bad", code="CFG101", hint="mend it", **where)
        error.add_note("in pass 'place', after lower")
        raise error
    else:
        raise globals()[way]("it failed", node="a/b", path="g.pb", hint="do this", findings=("f",))
'''
START = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); import cfgraph.cli.command_line;"
    "cfgraph.cli.command_line.COMMANDS = 'probes'; import cfgraph.__main__; cfgraph.__main__.main()"
)
HEAVY = ("numpy", "google.protobuf", "rich", "ml_dtypes", "pysat")


@pytest.fixture(scope="module")
def probes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("frame")
    (folder / "probes").mkdir()
    (folder / "probes" / "__init__.py").touch()
    (folder / "probes" / "fail_so.py").write_text(PROBE)
    (folder / "probes" / "never_imported.py").write_text('"""Break when imported."""\n\n1 / 0\n')
    (folder / "probes" / "broken.py").write_text('"""Lack a key."""\n\n{}["lost"]\n')
    return folder


@pytest.fixture
def frame(probes: Path) -> Any:
    def start(*args: str, **settings: Any) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", START, str(probes), *args]
        streams = {"capture_output": True, "text": True, **settings}
        return subprocess.run(command, timeout=60, check=False, **streams)

    return start


def run_in_process(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cfgraph", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("way", "code"),
    [
        ("print", 0),
        ("finding", 1),
        ("UsageError", 2),
        ("InvalidInput", 3),
        ("file", 3),
        ("Unsupported", 4),
        ("ExecutionError", 5),
        ("memory", 5),
        ("RunTimeout", 6),
        ("bug", 70),
        ("interrupt", 130),
        ("terminate", 143),
    ],
)
def test_each_outcome_has_its_exit_code(frame: Any, way: str, code: int) -> None:
    done = frame("fail-so", way)
    assert done.returncode == code
    assert "Traceback" not in done.stderr


def test_an_interruption_without_a_position_is_reported_too(frame: Any) -> None:
    assert frame("fail-so", "interrupt").stderr == "interrupted\n"


def test_an_error_is_three_lines_what_where_and_a_hint(frame: Any) -> None:
    done = frame("fail-so", "Unsupported")
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "error: it failed",
        "  at g.pb, node 'a/b'",
        "  hint: do this",
    ]


def test_an_error_shows_its_code_and_what_passes_noted(frame: Any) -> None:
    assert frame("fail-so", "note").stderr.splitlines() == [
        "error[CFG101]: bad",
        "  at node 'n', frame 'w', device cpu:0",
        "  hint: mend it",
        "  in pass 'place', after lower",
    ]


def test_a_failure_to_open_a_file_names_the_file(frame: Any) -> None:
    assert "no/such/file" in frame("fail-so", "file").stderr


def test_a_command_that_cannot_be_imported_is_a_bug_not_an_unknown_name(frame: Any) -> None:
    done = frame("broken")
    assert done.returncode == 70
    assert "lost" in done.stderr


def test_a_bug_is_one_line_and_a_hint(frame: Any) -> None:
    lines = frame("fail-so", "bug").stderr.splitlines()
    assert len(lines) == 3
    assert "KeyError" in lines[0]
    assert "cfgraph doctor --bundle bug.zip -- fail-so bug" in lines[1]
    assert "--debug" in lines[2]


@pytest.mark.parametrize(
    ("args", "env"),
    [
        (["--debug", "fail-so", "bug"], {}),
        (["fail-so", "bug", "--debug"], {}),
        (["fail-so", "bug"], {"CFGRAPH_DEBUG": "1"}),
    ],
    ids=["before the command", "after it", "environment"],
)
def test_debug_shows_the_traceback(frame: Any, args: list[str], env: dict[str, str]) -> None:
    done = frame(*args, env={**os.environ, **env})
    assert "Traceback" in done.stderr
    assert done.returncode == 70


@pytest.mark.parametrize("way", ["UsageError", "bug", "note"])
def test_under_json_an_error_is_one_document(frame: Any, way: str) -> None:
    done = frame("fail-so", way, "--json")
    answer = json.loads(done.stdout)
    assert answer["schema"] == "cfgraph.fail-so/1"
    assert answer["status"] == "error"
    assert answer["exit_code"] == done.returncode
    assert answer["error"]["message"]
    assert answer["tool"] == {"name": "cfgraph", "version": cfgraph.__version__}


def test_the_document_says_where_and_lists_the_findings(frame: Any) -> None:
    answer = json.loads(frame("fail-so", "UsageError", "--json").stdout)
    assert answer["error"]["where"] == {"path": "g.pb", "node": "a/b"}
    assert answer["error"]["hint"] == "do this"
    assert answer["findings"] == ["f"]


@pytest.mark.parametrize("options", [["--json"], ["--format", "json"], ["--format=json"]])
def test_a_usage_error_is_a_document_too(frame: Any, options: list[str]) -> None:
    done = frame("fail-so", "--unknown", *options)
    answer = json.loads(done.stdout)
    assert answer["exit_code"] == done.returncode == 2


def test_json_after_two_dashes_is_an_argument(frame: Any) -> None:
    assert frame("fail-so", "UsageError", "--", "--json").stdout == ""


@pytest.mark.parametrize(
    ("args", "hint"),
    [
        (["fail-sp"], "did you mean 'fail-so'?"),
        (["xyzzy"], "cfgraph --help"),
        (["fail-so", "print", "--fee", "x=1"], "--feed"),
        (["fail-so"], "cfgraph fail-so --help"),
        (["--unknown"], "cfgraph --help"),
    ],
)
def test_a_usage_error_hints_at_what_was_meant(frame: Any, args: list[str], hint: str) -> None:
    done = frame(*args)
    assert done.returncode == 2
    assert done.stdout == ""
    what, expected = done.stderr.splitlines()
    assert what.startswith("error: ")
    assert hint in expected


def test_help_lists_the_commands_without_importing_them(frame: Any) -> None:
    done = frame("--help")
    assert done.returncode == 0
    assert "fail-so         Fail in the requested way" in done.stdout
    assert "never-imported  Break when imported." in done.stdout


@pytest.mark.parametrize("args", [["-h"], ["fail-so", "-h"], ["fail-so", "--help"]])
def test_help_is_plain_text_and_succeeds(frame: Any, args: list[str]) -> None:
    done = frame(*args, env={**os.environ, "FORCE_COLOR": "1"})
    assert done.returncode == 0
    assert "Usage: cfgraph" in done.stdout
    assert done.stdout.isascii()
    assert "\x1b" not in done.stdout


def test_no_command_is_a_usage_error_that_shows_the_help(frame: Any) -> None:
    done = frame()
    assert done.returncode == 2
    assert done.stdout == ""
    assert "commands:" in done.stderr


def test_the_version_is_printed() -> None:
    assert run_in_process("--version").stdout == f"cfgraph {cfgraph.__version__}\n"


def test_a_reader_that_leaves_ends_the_command_quietly(probes: Path) -> None:
    command = [sys.executable, "-c", START, str(probes), "fail-so", "flood"]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert writer.stdout is not None
    assert writer.stderr is not None
    assert writer.stdout.readline() == b"0\n"
    writer.stdout.close()
    complaint = writer.stderr.read()
    writer.stderr.close()
    assert writer.wait(timeout=60) == 141
    assert complaint == b""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_behind_stdout_is_an_error_in_one_line(frame: Any) -> None:
    with open("/dev/full", "w") as full:
        done = frame("fail-so", "print", capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 3
    assert len(done.stderr.splitlines()) == 1


def test_sigterm_lets_the_command_clean_up(frame: Any) -> None:
    assert frame("fail-so", "terminate").stdout == "cleaned up\n"


@pytest.mark.parametrize(
    "args", [["--help"], ["--version"], ["xyzzy"], ["fail-so"], ["fail-so", "--unknown"]]
)
def test_help_and_usage_errors_load_nothing_heavy(probes: Path, args: list[str]) -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); import cfgraph.cli.command_line as cli;"
        "cli.COMMANDS = 'probes'; cli.run(sys.argv[1:]);"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    command = [sys.executable, "-c", script, str(probes), *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr.splitlines()[-1] == "[]"


COMMANDS = sorted(CommandFiles("cfgraph.commands").files.items())


def test_there_are_commands() -> None:
    assert COMMANDS


@pytest.mark.parametrize(("name", "file"), COMMANDS)
def test_a_command_file_is_a_docstring_and_one_main(name: str, file: Path) -> None:
    tree = ast.parse(file.read_text())
    first = (ast.get_docstring(tree) or "").splitlines()[0]
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert CommandFiles("cfgraph.commands").help(name) == first
    assert first.endswith(".")
    assert [function for function in functions if not function.startswith("_")] == ["main"]


def test_the_usage_errors_of_commands_load_neither_numpy_nor_protobuf() -> None:
    names = [name for name, _ in COMMANDS]
    script = (
        "import sys; from cfgraph.cli.command_line import run\n"
        f"for name in {names!r}:\n"
        "    code = run([*name.split(), '--no-such-option'])\n"
        f"    print(name, code, [module for module in {HEAVY!r} if module in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.splitlines() == [f"{name} 2 []" for name in names]


def test_a_document_is_strict_json() -> None:
    class Finding:
        def to_json(self) -> dict[str, Any]:
            return {"nan": float("nan"), "big": 2**60, "bytes": b"\xff", "low": -float("inf")}

    (finding,) = json.loads(render_json(document("check", findings=[Finding()])))["findings"]
    assert finding == {"nan": "NaN", "big": str(2**60), "bytes": "\\xff", "low": "-Infinity"}


def test_the_status_of_a_document_follows_the_exit_code() -> None:
    assert document("diff", exit_code=1).status == "findings"
    assert document("diff").status == "ok"
