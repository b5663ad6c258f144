"""Defaults from the nearest configuration file and from the environment; no I/O is granted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperOption

from cfgraph.cli.command_files import COMMANDS, CommandFiles
from cfgraph.cli.command_line import run
from cfgraph.cli.configuration import SHARED_OPTIONS, command_line_only, option_key, table_name
from cfgraph.cli.progress import ProgressLine

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
ENGINE = "--explain-engine"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("CFGRAPH_NO_CONFIG", raising=False)
    folder = tmp_path / "project" / "inner"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


def engine(command: Any, counter: Path, *options: str) -> str:
    done = command(*options, "run", counter, "--feed", "n=2", "--explain-engine", "--json")
    return str(done.json["result"]["engine"]["engine"]) if done.code == 0 else str(done.err)


def test_a_flag_beats_the_environment_and_that_the_nearest_file(
    command: Any, counter: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert engine(command, counter) == "compiled"
    (project.parent / "pyproject.toml").write_text('[tool.cfgraph.run]\nengine = "tokens"\n')
    assert engine(command, counter) == "tokens"
    assert engine(command, counter, "--no-config") == "compiled"
    (project / "pyproject.toml").write_text('[project]\nname = "cfgraph"\n')
    assert engine(command, counter) == "tokens"
    (project / "cfgraph.toml").write_text('[run]\nengine = "compiled"\n')
    assert engine(command, counter) == "compiled"
    monkeypatch.setenv("CFGRAPH_RUN_ENGINE", "tokens")
    assert engine(command, counter) == "tokens"
    done = command("run", counter, "--feed", "n=2", "--engine", "compiled", ENGINE)
    assert "compiled" in done.err


def test_shared_options_lists_and_flags(command: Any, counter: Path, project: Path) -> None:
    (project / "cfgraph.toml").write_text('quiet = true\n[run]\ntap = ["while/add", "count"]\n')
    done = command("run", counter, "--feed", "n=2", "--json")
    assert {item["tensor"] for item in done.json["result"]["taps"]} == {"while/add:0", "count:0"}
    assert command("lower", counter, "-o", project / "o.pb").err == ""
    assert command("lower", counter, "-o", project / "o.pb", "--no-config").err != ""


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("[rum]\nengine = 1", 2, "unknown table [rum]|line 1|did you mean 'run'?"),
        ("\ntime-out = 3", 2, "unknown key 'time-out'|line 2|did you mean 'timeout'?"),
        ('engine = "tokens"', 2, "unknown key 'engine'|line 1|in a table such as [run]"),
        ("[run]\nengin = 3", 2, "unknown key 'engin' in [run]|line 2|did you mean 'engine'?"),
        ("[run]\ngraph = 'x'", 2, "'graph' is an argument of `run`|line 2"),
        ("[run]\nallow_io = true", 2, "'allow_io' cannot be set in a file|--allow-io"),
        ("[run]\nsave-variables = 'd'", 2, "'save-variables' cannot be set in a file"),
        ("[run]\nfeed = ['n=@/etc/passwd']", 2, "'feed' cannot be set in a file"),
        ("[run]\nworkers = 64", 2, "'workers' cannot be set in a file: it starts processes"),
        ("max-memory = '512TiB'", 2, "cannot raise the limit|line 1|$CFGRAPH_MAX_MEMORY"),
        ("[run]\nmax-nodes = 2000001", 2, "above its default, 2000000|line 2"),
        ("max-memory = 'much'", 2, "not a size in bytes|line 1"),
        ("\n[run]\n" + ".".join("a" * 60_000) + " = 1", 3, "more than 16 parts|line 3"),
        ('"\\' * 200_000, 3, "invalid TOML"),
        ("x = [\n[" + " " * 100_000 + "]]", 2, "unknown key 'x'|line 1"),
        ("[run]\ntrace = '" + "x" * 9999 + "'", 2, "xxx…: expected true or false"),
        ("[run]\ntrace = 3", 2, "trace = 3: expected true or false|line 2"),
        ("[run]\nseed = true", 2, "seed = True: expected"),
        ("[run]\nseed = 'x'", 2, "seed = 'x': 'x' is not a whole number"),
        ("\n[run]\nengine = 'foo'", 2, "engine = 'foo': expected auto|tokens|compiled|xla|line 3"),
        ("[run]\nblas-threads = 'many'", 2, "--blas-threads is set by|line 2"),
        ("[run]\ntap = [1]", 2, "a list of strings"),
        ("timeout = nan", 2, "timeout = nan: NaN"),
        ("run = 3", 2, "unknown key 'run'"),
        ("[run", 3, "invalid TOML|--no-config"),
        ("x = " + "[" * 5000, 3, "invalid TOML"),
        ("# " + "x" * (1 << 20), 3, "at most 1 MiB"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_wrong_file_is_reported_with_its_place(
    text: str, code: int, message: str, command: Any, counter: Path, project: Path
) -> None:
    (project / "cfgraph.toml").write_text(text)
    done = command("run", counter, "--feed", "n=2")
    assert done.code == code
    assert [part for part in message.split("|") if part not in done.err] == []
    assert command("run", counter, "--feed", "n=2", "--no-config").code == 0
    assert command("run", "--help").code == 0


@pytest.mark.parametrize(
    "text",
    [
        '["tool" . cfgraph . run]\nengin = 3',
        "[tool]\ncfgraph = {run = {engin = 3}}",
        "tool.cfgraph.run.engin = 3",
    ],
)
def test_any_form_of_the_section_counts(
    text: str, command: Any, counter: Path, project: Path
) -> None:
    (project / "pyproject.toml").write_text(text)
    assert "unknown key 'engin' in [run]" in command("run", counter, "--feed", "n=2").err


def test_the_user_may_raise_a_limit_that_a_file_may_only_lower(
    command: Any, graphs: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "cfgraph.toml").write_text("max-nodes = 1\n")
    line = ("lower", graphs / "cond_functional.pb", "-o", project / "o.pb")
    assert command(*line).code == 4
    assert command(*line, "--max-nodes", "3000000").code == 0
    monkeypatch.setenv("CFGRAPH_MAX_NODES", "3000000")
    assert command(*line).code == 0


def test_the_environment_grants_no_files(
    command: Any, counter: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CFGRAPH_RUN_ALLOW_IO", "1")
    done = command("run", counter, "--feed", "n=2")
    assert (done.code, "$CFGRAPH_RUN_ALLOW_IO cannot set --allow-io" in done.err) == (2, True)
    monkeypatch.delenv("CFGRAPH_RUN_ALLOW_IO")
    monkeypatch.setenv("CFGRAPH_RUN_SOFT", "maybe")
    assert "$CFGRAPH_RUN_SOFT: 'maybe' is neither 1 nor 0" in command("run", counter).err
    monkeypatch.delenv("CFGRAPH_RUN_SOFT")
    monkeypatch.setenv("CFGRAPH_RUN_SEED", "x")
    done = command("run", counter)
    assert done.err.startswith("error: $CFGRAPH_RUN_SEED: 'x' is not a whole number")


def test_a_list_of_a_file_is_the_list_of_an_option(
    command: Any, graphs: Path, project: Path
) -> None:
    line = ("check", graphs / "deadness_mismatch.pb", "--json")
    assert [item["code"] for item in command(*line).json["findings"]] == ["CFG224"]
    (project / "cfgraph.toml").write_text("[check]\nignore = ['CFG3*', 'CFG2*']\n")
    assert command(*line).json["findings"] == []
    (project / "cfgraph.toml").write_text("[check]\nselect = ['CFG3*', 2]\n")
    assert "select = ['CFG3*', 2]: expected CODES" in command(*line).err


def test_the_example_of_the_page_is_valid(command: Any, counter: Path, project: Path) -> None:
    (example,) = re.findall(r"^```toml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (project / "cfgraph.toml").write_text(example)
    assert command("check", counter).code == 0
    assert engine(command, counter) == "tokens"
    assert "error: " not in command("doctor").out


@pytest.mark.parametrize("key", ["from", "from-format", "from_format"])
def test_a_key_is_the_name_of_the_option(
    key: str, command: Any, counter: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "cfgraph.toml").write_text(f"[convert]\n{key} = 'pbtxt'\n")
    assert command("convert", counter, "--to", "graph").code == 3
    (project / "cfgraph.toml").write_text("")
    monkeypatch.setenv(f"CFGRAPH_CONVERT_{key.replace('-', '_').upper()}", "pbtxt")
    assert command("convert", counter, "--to", "graph").code == 3


def test_an_invalid_variable_is_named(
    command: Any, counter: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CFGRAPH_RUN_ENGINE", "foo")
    monkeypatch.setenv("CFGRAPH_RUN_ENGIN", "tokens")
    monkeypatch.setenv("CFGRAPH_CONVERT_TO", "nothing")
    done = command("run", counter)
    assert (done.code, "$CFGRAPH_RUN_ENGINE: unknown value 'foo'" in done.err) == (2, True)
    assert command("run", counter, "--feed", "n=2", "--engine", "tokens").code == 0
    assert "--to is set by $CFGRAPH_CONVERT_TO" in command("convert", counter).err
    done = command("doctor")
    assert (done.code, "error: $CFGRAPH_RUN_ENGINE: unknown" in done.out) == (1, True)
    assert "warning: unknown variable $CFGRAPH_RUN_ENGIN\n" in done.out


def test_the_help_states_the_rule_of_the_names_once(command: Any) -> None:
    assert "$CFGRAPH_RUN_ENGINE" in command("--help").out
    assert "env var" not in command("run", "--help").out


def test_the_page_lists_the_options_that_can_be_set(update: bool) -> None:
    files = CommandFiles(COMMANDS)
    rows = []
    for name in sorted(files):
        options = [param for param in files[name].params if isinstance(param, TyperOption)]
        settable = [
            f"`{option_key(option)}`"
            for option in options
            if option.expose_value and not option.hidden and command_line_only(option) is None
            if option.name not in SHARED_OPTIONS
        ]
        rows += [f"| `{table_name(name)}` | {', '.join(sorted(settable))} |"] if settable else []
    table = "\n".join(["| command | options |", "| --- | --- |", *rows])
    pattern = r"(<!-- options -->\n).*(<!-- end of options -->)"
    text = PAGE.read_text()
    expected = re.sub(pattern, lambda m: f"{m[1]}\n{table}\n\n{m[2]}", text, flags=re.DOTALL)
    if update:
        PAGE.write_text(expected)
    assert PAGE.read_text() == expected, "decide whether a file may set the option, then --update"


def test_nothing_that_can_be_set_names_a_file_or_grants_io() -> None:
    table = PAGE.read_text().partition("<!-- options -->")[2]
    names = set(re.findall(r"`([\w-]+)`", table))
    granting = (
        r"output|out|out-dir|html|svg|.*-out|.*-io|feeds?|variables|save-.*|expect|costs|rules"
        r"|workers|ray|with-constants|no-config"
    )
    assert [name for name in names if re.fullmatch(granting, name)] == ["fan-out"]  # a number
    assert {"engine", "fail-level", "devices"} <= names


@pytest.mark.parametrize("source", ["file", "environment", "option", "nothing"])
def test_a_quiet_command_ends_the_progress_line(
    source: str, counter: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if source == "file":
        (project / "cfgraph.toml").write_text("quiet = true\n")
    if source == "environment":
        monkeypatch.setenv("CFGRAPH_QUIET", "1")
    ended: list[str] = []
    line = ProgressLine()
    monkeypatch.setattr(line, "end", lambda: ended.append(source))
    assert run(["show", str(counter), *["-q"] * (source == "option")], progress=line) == 0
    assert bool(ended) is (source != "nothing")
