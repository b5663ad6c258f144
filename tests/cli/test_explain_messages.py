"""Error texts of TensorFlow as the argument of `explain`, and the hint of a dead fetch."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest

from cfgraph.cli.json_output import schema
from tests.command_fixtures import Command

# the loss is read before the Merge that joins the branches
BYPASSED = """
x = Placeholder() {dtype=float32, shape=[]}
p = Placeholder() {dtype=bool, shape=[]}
switch = Switch(x, p)
head = Neg(switch:1)
other = Identity(switch)
merge = Merge(head, other)
loss = Square(head)
total = AddV2(merge, loss)
"""


@pytest.mark.parametrize(
    ("message", "title"),
    [
        ("Retval[0] does not have value", "Retval[0] does not have value"),
        ("InvalidArgumentError: Retval[3] does not have value", "Retval[0] does not have value"),
        ("an empty array", "An empty array in place of a value"),
        (
            "Attempting to use uninitialized value dense/kernel",
            "Attempting to use uninitialized value",
        ),
        ("inputs from different frames", "The node has inputs from different frames"),
        ("my loop never ends", "A loop never ends"),
        ("never ends", "A loop never ends"),
        ("the graph hangs", "A loop never ends"),
        ("endless", "A loop never ends"),
        ("an infinite loop", "A loop never ends"),
        ("session.run hangs in _Recv", "A run hangs in _Recv"),
    ],
)
def test_an_error_text_opens_its_page(command: Command, message: str, title: str) -> None:
    done = command("explain", message)
    assert done.code == 0
    assert done.lines[0].startswith(f"{title}  https://")
    assert "Cause." in done.out


def test_the_page_is_in_the_document(command: Command) -> None:
    done = command("explain", "Retval[0] does not have value", "--json")
    jsonschema.validate(done.json, schema("explain"), jsonschema.Draft202012Validator)
    page = done.json["result"]["message"]
    assert page["page"].endswith("messages/retval-does-not-have-value/")
    assert "is *dead*" in page["text"]


def test_every_page_is_found_by_its_title(command: Command, root: Path) -> None:
    pages = sorted((root / "docs" / "messages").glob("*.md"))
    titles = [
        page.read_text().partition("\n")[0].removeprefix("# ")
        for page in pages
        if page.name != "README.md"
    ]
    found = [command("explain", title, "--json").json["result"]["message"] for title in titles]
    assert [page["title"] for page in found] == titles


def test_a_page_is_folded_to_the_terminal_and_has_no_links(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = command("explain", "an empty array", "--color", "never", terminal=True)
    texts, codes = done.out.split("```")[::2], done.out.split("```")[1::2]
    assert max(len(line) for text in texts for line in text.splitlines()) <= 80
    assert "  hint: on the path loss ← dropout, let loss read merge:0, which joins" in codes[0]
    assert "](" not in done.out


def test_other_words_are_still_codes_or_errors(command: Command) -> None:
    assert command("explain", "race").lines[0].startswith("CFG225")
    assert command("explain", "no such thing anywhere").code == 2


def test_a_file_is_not_an_error_text(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "inputs from different frames"
    path.touch()
    assert command("explain", path).code == 2


@pytest.mark.parametrize("engine", ["compiled", "tokens"])
def test_a_dead_fetch_names_the_merge_that_it_bypasses(
    command: Command, tmp_path: Path, engine: str
) -> None:
    path = tmp_path / "bypassed.graph"
    path.write_text(BYPASSED)
    feeds = ("--feed", "x=1", "--feed", "p=false", "--engine", engine)
    done = command("run", path, *feeds, "--fetch", "total")
    assert done.code == 5
    assert "on the path total ← loss ← head, let loss read merge:0, which joins" in done.err
    assert "fetch merge:0, which joins" in command("run", path, *feeds, "--fetch", "head").err


def test_a_check_names_the_merge_that_a_fetch_bypasses(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "bypassed.graph"
    path.write_text(BYPASSED)
    hints = {
        "total": "on the path total ← loss ← head, let loss read merge:0, which joins the branches",
        "head": "fetch merge:0, which joins the branches",
    }
    for fetch, hint in hints.items():
        done = command("check", path, "--fetch", fetch, "--json")
        assert [item["hint"] for item in done.json["findings"]] == [hint]
    path.write_text(BYPASSED.replace("Merge(head, other)", "Neg(other)"))
    assert "no Merge joins" in command("check", path, "--fetch", "loss").out


IN_LOOP = Path(__file__).parents[2] / "fixtures" / "messages" / "retval_loop.graph"


def test_a_check_of_a_branch_in_a_loop_names_its_predicate_and_the_exit(command: Command) -> None:
    hints = {
        "clipped": "fetch exit_v:0, the Exit that carries the last value of limited:0, which joins "
        "the branches",
        "limited": "fetch exit_v:0, the Exit that carries the last value of limited:0",
        "large": "print all values of large:0 with --tap large",
    }
    for fetch, hint in hints.items():
        (found,) = command("check", IN_LOOP, "--fetch", fetch, "--json").json["findings"]
        assert (found["code"], found["hint"]) == ("CFG224", hint)
        predicate = "large" if fetch == "clipped" else "less"
        assert found["message"].endswith(f"with `{predicate}` false")
    assert command("run", IN_LOOP, "--feed", "x=64", "--expect", "exit_v=4").code == 0


def test_a_fetch_inside_of_a_loop_names_the_exit_that_carries_it(command: Command) -> None:
    done = command("run", IN_LOOP, "--feed", "x=6", "--fetch", "limited")
    hint = "fetch exit_v:0, the Exit that carries the last value of limited:0; or print all"
    assert (done.code, hint in done.err) == (2, True)


@pytest.mark.parametrize("fetch", ["clipped", "doubled", "branch:1"])
def test_a_fetch_in_a_branch_in_a_loop_names_the_exit_of_the_merge(
    command: Command, fetch: str
) -> None:
    done = command("run", IN_LOOP, "--feed", "x=6", "--fetch", fetch)
    exit_hint = "fetch exit_v:0, the Exit that carries the last value of limited:0, which joins"
    tap_hint = f"the branches; or print all of them with --tap {fetch.partition(':')[0]}"
    assert (done.code, f"{exit_hint} {tap_hint}" in done.err) == (2, True)


def test_a_fetch_in_a_loop_outside_of_its_branches_lists_exits(command: Command) -> None:
    done = command("run", IN_LOOP, "--feed", "x=6", "--fetch", "large")
    assert "fetch an Exit of the loop, exit_i:0, exit_v:0; or print all" in done.err
