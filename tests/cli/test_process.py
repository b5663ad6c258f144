"""Commands as processes: pipes, closed pipes, signals, and the width of the terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import cfgraph
from cfgraph.cli.help_examples import EXAMPLES
from tests.shell import run_line

ENDLESS = ["--feed", "n=2000000000", "--tap", "while/add"]
# shows progress a hundredth of a second after it began, and a hundred times a second
SOON = (
    "-c",
    "from cfgraph import __main__; from cfgraph.cli import progress;"
    "progress._DELAY = progress._PERIOD = 0.01; progress._PATIENCE = 60; __main__.main()",
)
SHELL = set("|&>*")
LINES = [line for lines in EXAMPLES.values() for line in lines]
pytestmark = pytest.mark.usefixtures("signals_enabled")


def start(*args: str | Path, **settings: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "cfgraph", *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **settings)


def test_commands_make_a_pipe(counter: Path) -> None:
    line = (
        f'set -o pipefail; C="{sys.executable} -m cfgraph"; $C convert {counter} --to pbtxt'
        " | $C convert - | $C run - --feed n=4"
    )
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
    assert done.stdout == "count:0  int32[]  = 4\n"
    assert done.stderr == ""


def test_a_reader_that_leaves_stops_the_run_quietly(counter: Path) -> None:
    with start("run", counter, *ENDLESS) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 141


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGHUP, 129), (signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_an_interrupted_run_leaves_its_trace_whole_and_nothing_else(
    number: int, code: int, counter: Path, tmp_path: Path
) -> None:
    files = ["--trace-out", tmp_path / "t.json", "--out-dir", tmp_path / "out"]
    with start("run", counter, *ENDLESS, *files) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.send_signal(number)
        process.stdout.read()
        assert process.wait(timeout=60) == code
    assert list(tmp_path.iterdir()) == [tmp_path / "t.json"]
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert any(event["name"].endswith("/Enter") for event in events)


def processor_ticks(pid: int) -> int:
    """The hundredths of a second for which a process has run."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_an_interrupted_run_answers_with_one_document(counter: Path) -> None:
    trace = ["--trace", "--json"]
    with start("run", counter, *ENDLESS[:2], *trace) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stderr.readline()
        threading.Thread(target=process.stderr.read, daemon=True).start()
        process.send_signal(signal.SIGINT)
        answer = json.loads(process.stdout.read())
        assert process.wait(timeout=60) == answer["exit_code"] == 130
    assert (answer["schema"], answer["error"]["kind"]) == ("cfgraph.run/1", "Interrupted")


@pytest.mark.parametrize("engine", ["compiled", "tokens"])
def test_an_interrupted_run_says_where_it_was(engine: str, counter: Path, tmp_path: Path) -> None:
    text = cfgraph.dumps(cfgraph.load(counter), "graph").decode()
    text = text.replace("Enter(Const_1)", "Enter(Const_1, ^print)")
    text += 'word = Const() {dtype=string, value=string[]:"started"}\nprint = PrintV2(word)\n'
    path = tmp_path / "announced.graph"
    path.write_text(text)
    run = ("run", path, *ENDLESS[:2], "--engine", engine, "--json")
    with start(*run) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == b"started\n"
        began = processor_ticks(process.pid)
        while processor_ticks(process.pid) < began + 10:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    line = r"interrupted in run, at node 'while/[\w/]+', frame '(/while/while_context\[\d+\])'\n"
    match = re.fullmatch(line, errors.decode())
    assert match, errors
    assert json.loads(output)["error"]["where"]["frame"] == match[1]


def test_a_long_run_shows_progress_on_a_terminal_alone(counter: Path) -> None:
    args = ["run", str(counter), *ENDLESS[:2], "--engine", "tokens"]
    line = rb"\x1b\[2Krun: [\d,]+ iterations of while/while_context, [\d,]+/s"
    text = on_terminal(args, 80, program=SOON, interrupt_at=line)
    # the message replaces the line
    assert "\r\x1b[2Kinterrupted in run" in text
    args += ["--max-iterations", "20000"]
    assert "iterations of" not in on_terminal([*args, "--quiet"], 80, program=SOON)
    command = [sys.executable, *SOON, *args]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert b"iterations of" not in done.stderr


def on_terminal(
    args: list[str],
    columns: int,
    *,
    program: Sequence[str] = ("-m", "cfgraph"),
    interrupt_at: bytes | None = None,
    **more: str,
) -> str:
    """Output of a command on a terminal of a given width, interrupted once it has a pattern."""
    leader, follower = pty.openpty()
    env = {key: value for key, value in os.environ.items() if key not in {"NO_COLOR", "COLUMNS"}}
    command = [sys.executable, *program, *args]
    env |= {"TERM": "xterm", "COLUMNS": str(columns), **more}
    with subprocess.Popen(command, stdout=follower, stderr=follower, env=env) as process:
        os.close(follower)
        data = b""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                chunk = os.read(leader, 65536)
            except OSError:
                break
            if not chunk:
                break
            data += chunk
            if interrupt_at is not None and re.search(interrupt_at, data):
                process.send_signal(signal.SIGINT)
                interrupt_at = None
        process.wait(timeout=60)
    assert interrupt_at is None
    os.close(leader)
    return data.decode()


def test_a_terminal_gets_colours_and_folded_tables(graphs: Path) -> None:
    text = on_terminal(["show", str(graphs / "lstm_grad.pb"), "--frames"], 60)
    assert "\x1b[" in text
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()
    assert max(len(line) for line in plain) <= 60


@pytest.mark.parametrize(("options", "env"), [(["--color", "never"], {}), ([], {"NO_COLOR": "1"})])
def test_without_colour_a_terminal_still_gets_folded_tables(
    options: list[str], env: dict[str, str], graphs: Path
) -> None:
    text = on_terminal(["show", str(graphs / "lstm_grad.pb"), "--frames", *options], 60, **env)
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 60


def test_differences_are_folded_between_words_on_a_terminal(command: Any, graphs: Path) -> None:
    files = [str(graphs / name) for name in ("counter.pb", "nested.pb")]
    args = ["diff", *files, "--color", "never"]
    _, _, *folded = on_terminal(args, 50).splitlines()
    _, _, *whole = command(*args).out.splitlines()
    assert max(map(len, folded)) <= 50 < max(map(len, whole))
    assert "".join(folded).replace(" ", "") == "".join(whole).replace(" ", "")
    words = {word for line in whole for word in re.split("[/ ,_]", line)}
    assert {word for line in folded for word in re.split("[/ ,_]", line)} <= words


def test_a_trace_is_shown_live_on_a_terminal(counter: Path) -> None:
    text = on_terminal(["run", str(counter), "--feed", "n=2", "--trace"], 100)
    assert "while[1]" in text
    assert "by node" in text
    assert "count:0" in text


def test_a_wide_pipe_is_not_folded(graphs: Path) -> None:
    with start(
        "show", graphs / "lstm_grad.pb", "--nodes", env={**os.environ, "COLUMNS": "20"}
    ) as p:
        out = p.communicate(timeout=60)[0].decode()
    assert len(out.splitlines()) == 179
    assert "\x1b" not in out


@pytest.fixture
def example_folder(command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the files of `cfgraph examples`."""
    assert command("examples", tmp_path).code == 0
    # an installed converter takes many seconds
    monkeypatch.setenv("CFGRAPH_CONVERT_CHECK_NO_RUN", "1")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("line", [line for line in LINES if not set(line) & SHELL])
def test_an_example_of_the_help_works(line: str, command: Any, example_folder: Path) -> None:
    done = command(*shlex.split(line)[1:])
    assert done.code == 0, done.err


@pytest.mark.parametrize("line", [line for line in LINES if set(line) & SHELL])
def test_an_example_of_the_help_for_a_shell_works(line: str, example_folder: Path) -> None:
    done = run_line(line, example_folder)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_the_help_of_a_command_has_examples(name: str, command: Any, capfd: Any) -> None:
    out = re.sub(r" \\\n +", " ", command(*name.split(), "--help").out)
    for line in EXAMPLES[name]:
        assert line in out


@pytest.mark.parametrize(
    ("line", "absent"),
    [
        ("run --help", ["numpy", "google", "rich"]),
        ("explain CFG201", ["numpy", "google", "cfgraph.runtime", "cfgraph.passes"]),
        ("explain counter.pb while/add", ["cfgraph.runtime.", "cfgraph.passes.cluster.c"]),
        ("doctor", ["cfgraph.runtime.engine", "cfgraph.passes"]),
        ("show counter.pb", ["cfgraph.runtime", "cfgraph.analysis.table", "cfgraph.analysis.part"]),
        ("grad lstm.pb --ys loss --xs W --to graph", ["cfgraph.comparison", "cfgraph.build"]),
        ("run counter.pb --feed n=2 --trace", ["rich", "cfgraph.analysis.deadness"]),
        ("run counter.pb --feed n=2 --engine tokens", ["cfgraph.runtime.compiled."]),
    ],
)
def test_a_command_does_not_load_what_it_does_not_need(
    line: str, absent: list[str], graphs: Path
) -> None:
    script = (
        "import sys; from cfgraph.cli.command_line import run; run(sys.argv[2:]);"
        "print([name for name in sys.modules if name.startswith(tuple(sys.argv[1].split()))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, " ".join(absent), *line.split()],
        cwd=graphs, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "[]"
