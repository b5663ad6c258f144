"""Options shared by commands: color, and invalid values."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest

from cfgraph.cli.command_files import COMMANDS, CommandFiles
from cfgraph.cli.help_examples import EXAMPLES
from cfgraph.cli.options import Color, use_color


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("choice", "env", "stream", "expected"),
    [
        ("auto", {}, Terminal(), True),
        ("auto", {}, io.StringIO(), False),
        ("auto", {}, None, False),
        ("auto", {"TERM": "dumb"}, Terminal(), False),
        ("auto", {"NO_COLOR": "1"}, Terminal(), False),
        ("auto", {"NO_COLOR": ""}, Terminal(), True),
        ("auto", {"NO_COLOR": "1", "FORCE_COLOR": "1"}, Terminal(), False),
        ("auto", {"FORCE_COLOR": "1"}, io.StringIO(), True),
        ("auto", {"CLICOLOR_FORCE": "1"}, io.StringIO(), True),
        ("auto", {"CLICOLOR_FORCE": "0"}, io.StringIO(), False),
        ("always", {"NO_COLOR": "1"}, io.StringIO(), True),
        ("never", {"FORCE_COLOR": "1"}, Terminal(), False),
    ],
)
def test_the_option_beats_the_environment_and_that_beats_the_terminal(
    choice: str,
    env: dict[str, str],
    stream: io.StringIO | None,
    expected: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert use_color(Color(choice), stream) is expected


def test_every_command_is_quiet_or_verbose(command: Any, fixtures: Path, tmp_path: Path) -> None:
    counter = fixtures / "graphs" / "counter.pb"
    done = command("show", counter, "-v")
    assert f"read {counter}: pb, 15 nodes" in done.err
    assert done.err.splitlines()[-1].startswith("show: ")
    assert done.out == command("show", counter, "-q").out
    assert command("lower", counter, "-v", "-o", tmp_path / "o.pb").err.count("write ") == 1
    saved = fixtures / "saved_model"
    assert (command("show", saved).err != "", command("show", saved, "-q").err) == (True, "")
    assert command("check", counter, "-v", "-q").code == 2
    cut = ("--outputs", "y", "--inputs", "StatefulPartitionedCall:1", "--feed", "x=[[1,2]]")
    extract = ("extract", saved, *cut, "-o", tmp_path / "o.pb")
    assert "note: restored 4 variables" in command(*extract).err
    assert command(*extract, "-q").err == ""
    html = ("diff", counter, counter, "--html", tmp_path / "o.html")
    assert (command(*html).err != "", command(*html, "-q").err) == (True, "")


def test_a_missing_value_and_help_name_no_empty_variable(command: Any, fixtures: Path) -> None:
    counter = fixtures / "graphs" / "counter.pb"
    done = command("extract", counter, "--output", "count")
    assert done.err.splitlines() == [
        "error: missing option '--outputs'",
        "  hint: --outputs LIST: Tensors to compute, or nodes as ^NODE, separated by commas; "
        "see `cfgraph extract --help`",
    ]
    assert "env var" not in command("pipeline", counter).err
    assert "[env var: ]" not in " ".join(command("run", "--help").out.split())


@pytest.mark.parametrize(
    ("option", "value", "wording"),
    [
        ("--timeout", "-1", "-1.0 is less than 0"),
        ("--rtol", "x", "'x' is not a number"),
        ("--seed", "1.5", "'1.5' is not a whole number"),
        ("--expect", "y", "'y' is not a valid expected value"),
        ("--feed", "y", "'y' is not a valid feed"),
    ],
)
def test_a_value_that_an_option_cannot_take_is_reported_in_words(
    command: Any, fixtures: Path, option: str, value: str, wording: str
) -> None:
    done = command("run", fixtures / "graphs" / "counter.pb", option, value)
    assert (done.code, wording in done.err) == (2, True), done.err


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("run counter.pb count", "--fetch count"),
        ("show counter.pb count", "--node count"),
        ("run counter.pb n=3", "--feed n=3"),
        ("lower counter.pb out.pb", "-o out.pb"),
        ("devices cpu", "see `cfgraph devices --help`"),
    ],
)
def test_an_argument_too_many_may_be_meant_for_an_option(
    line: str, hint: str, command: Any
) -> None:
    done = command(*line.split())
    assert done.code == 2
    assert done.err.startswith(
        f"error: unexpected argument '{line.rpartition(' ')[2]}'\n  hint: {hint}"
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("run {} --engine tokens --engine compiled", "--engine: tokens and compiled"),
        ("run {} --memory cpu:0=1GiB --memory=/cpu:0=2GiB", "--memory is given twice for cpu:0"),
        ("run {} --trace-out a.json --trace-out=b=c", "--trace-out: a.json and b=c"),
        ("convert {} -o a.pb --output b.pb", "several values of --output: a.pb and b.pb"),
        ("convert {} -oa.pb -ob.pb", "several values of --output"),
        ("show {} --timeout 5 --timeout 5", "several values of --timeout: 5 and 5"),
    ],
)
def test_an_option_with_one_value_is_not_repeated(
    command: Any, counter: Path, line: str, message: str
) -> None:
    done = command(*line.format(counter).split())
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert not Path("a.pb").exists()
    assert command("show", counter, "-q", "-q", "--nodes", "--nodes").code == 0


@pytest.mark.parametrize(
    ("line", "note"),
    [
        ("run {} --feed n=3 --fetch nope:0", "in --fetch nope:0"),
        ("run {} --feed n=3 --tap nope", "in --tap nope"),
        ("show {} --node nope", "in --node nope"),
        ("grad {} --ys count,nope -o g.pb", "in --ys count,nope"),
        ("optimize {} --only prune,foo", "in --only prune,foo"),
    ],
)
def test_an_unknown_name_is_reported_with_its_option(
    line: str, note: str, command: Any, counter: Path
) -> None:
    done = command(*line.format(counter).split())
    assert (done.code, done.err.splitlines()[-1]) == (2, f"  {note}")
    assert "hint: " in done.err


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("optimize {} --only=", "--only expects a value, which is empty", "--only RULES, see"),
        ("grad {} --ys count --xs=,", "--xs expects a value, which is empty", "--xs LIST, see"),
        ("doctor --bundle=", "--bundle expects a value, which is empty", "--bundle FILE.zip"),
        ("grad {} --recompute -o x.pb", "--recompute expects a value, and -o is", "K|auto, see"),
        ("run {} --feed", "option '--feed' requires an argument", "see `cfgraph run --help`"),
        ("examples", "missing argument 'DIR'", "as in `cfgraph examples .`"),
        ("doctor run {} --feed n=3", "no such option: --feed", "`cfgraph doctor [OPTIONS] -- C"),
    ],
)
def test_a_value_that_is_missing_is_described(
    line: str, message: str, hint: str, command: Any, counter: Path
) -> None:
    done = command(*line.format(counter).split())
    first, second = done.err.splitlines()
    assert (done.code, message in first, hint in second) == (2, True, True), done.err


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_help_pages_have_80_columns(name: str, command: Any) -> None:
    assert max(map(len, command(*name.split(), "--help").lines)) <= 80


def test_the_main_help_groups_the_commands_and_says_where_to_start(command: Any) -> None:
    text = command("--help").out
    titles = re.findall(r"^(\S.*):$", text, flags=re.MULTILINE)
    assert titles[:5] == ["Look", "Compare", "Change", "Devices", "Other commands"]
    assert "Start: cfgraph show FILE" in text
    listed = re.findall(r"^  ([a-z][a-z-]+) {2,}[A-Z]", text, flags=re.MULTILINE)
    assert sorted(listed) == sorted(CommandFiles(COMMANDS).below(""))


def test_options_of_all_commands_are_described_once(command: Any) -> None:
    assert "--max-nodes N" in command("--help").out
    for name in EXAMPLES:
        text = command(*name.split(), "--help").out
        (listed,) = re.findall(r"^Options of all commands.*:\n((?:  .*\n)+)", text, re.MULTILINE)
        assert {"--quiet,", "--timeout,", "--op-def,", "--help"} <= {*listed.split()}
        assert "--max-nodes N" not in text


def test_the_help_of_run_begins_with_what_most_users_need(command: Any) -> None:
    text = command("run", "--help").out
    first = text.partition("\nOptions:\n")[2].partition("\n\n")[0]
    assert re.findall(r"^  (--[a-z]+)", first, flags=re.MULTILINE) == [
        "--feed", "--fetch", "--expect", "--out", "--tap", "--trace", "--html", "--json",
    ]  # fmt: skip


RARE = (
    "--deadness off", "--what-if", "--node-data", "--fan-out", "--schedule-seed", "--swap-above",
    "--lazy", "--dead-as", "--tensor-arrays", "--by structure", "--map-out", "--size",
    "--unconnected",
)  # fmt: skip


def test_options_that_a_name_does_not_explain_have_an_example() -> None:
    lines = "\n".join(line for lines in EXAMPLES.values() for line in lines)
    assert [option for option in RARE if option not in lines] == []
