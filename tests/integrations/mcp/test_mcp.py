"""The server of the Model Context Protocol, called by the client of its SDK."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from cfgraph.errors import UsageError
from cfgraph.integrations.mcp.answers import bounded
from cfgraph.integrations.mcp.calls import Lifeline, ToolAnswer, ToolRunner
from cfgraph.integrations.mcp.roots import Roots
from cfgraph.integrations.mcp.tools import TOOLS, find_tool

needs_sdk = pytest.mark.skipif(find_spec("mcp") is None, reason="the extra `mcp` is not installed")
READERS = {"show", "check", "explain", "explain_code", "diff", "run", "extract", "cluster"}


@pytest.fixture
def folder(fixtures: Path, tmp_path: Path) -> Path:
    """A root with a loop, a SavedModel, and a link out of it."""
    root = tmp_path / "root"
    root.mkdir()
    shutil.copy(fixtures / "graphs" / "counter.pb", root)
    shutil.copytree(fixtures / "saved_model", root / "model")
    (tmp_path / "secret.graph").write_text("x = NoOp()\n")
    os.symlink(tmp_path / "secret.graph", root / "link.graph")
    return root


@pytest.mark.parametrize("name", ["../secret.graph", "link.graph", "/etc/passwd", "", "a\0b"])
def test_files_outside_of_the_roots_are_refused(folder: Path, name: str) -> None:
    roots = Roots([str(folder)])
    assert roots.resolve("counter.pb") == os.path.realpath(folder / "counter.pb")
    with pytest.raises(UsageError):
        roots.resolve(name)
    roots = Roots([str(folder), str(folder.parent)])
    assert roots.resolve("../secret.graph") == os.path.realpath(folder.parent / "secret.graph")


@pytest.mark.parametrize("linked", ["variables/variables.index", "variables", "saved_model.pb"])
@pytest.mark.parametrize(
    "path", ["model", "model/saved_model.pb", "model/variables", "model/variables/variables"]
)
def test_links_out_of_a_model_are_refused(folder: Path, path: str, linked: str) -> None:
    roots = Roots([str(folder)])
    assert roots.resolve(path) == os.path.realpath(folder / path)
    file = folder / "model" / linked
    outside = folder.parent / "outside"
    file.rename(outside)
    file.symlink_to(outside)
    with pytest.raises(UsageError, match="outside of the folders"):
        roots.resolve(path)


def test_links_are_followed_within_the_roots(folder: Path) -> None:
    roots = Roots([str(folder)])
    variables = folder / "model" / "variables"
    variables.rename(folder / "other")
    variables.symlink_to(folder / "other")
    assert roots.resolve("model")
    (folder / "other" / "x").symlink_to(folder.parent / "secret.graph")
    with pytest.raises(UsageError, match="outside of the folders"):
        roots.resolve("model")
    (folder / "other" / "x").unlink()
    (folder / "other" / "loop").symlink_to(folder / "other")
    assert roots.resolve("model")


@pytest.mark.parametrize("text", ["n=@/etc/passwd", "@x.npz", " @x", "n= f32[2]@/x", "n=i32@x"])
def test_feeds_that_name_files_are_refused(folder: Path, text: str) -> None:
    roots = Roots([str(folder)])
    assert roots.require_no_file('s="a@b"') == 's="a@b"'
    with pytest.raises(UsageError, match="names a file"):
        roots.require_no_file(text)


@pytest.mark.smallest
def test_tools_are_the_commands_that_read(folder: Path) -> None:
    assert {tool.name for tool in TOOLS} == READERS
    forbidden = {"output", "out", "out_dir", "trace_out", "html", "allow_io", "save_variables"}
    for tool in TOOLS:
        schema = tool.input_schema()
        assert not forbidden & schema["properties"].keys()
        assert all(item["description"] for item in schema["properties"].values()), tool.name
    words = find_tool("run").command_line(
        {"graph": "counter.pb", "fetch": ["--allow-io"]}, Roots([str(folder)])
    )
    assert "--fetch=--allow-io" in words
    assert words[-2] == "--"
    assert "--max-iterations=100000" in words


def test_answers_are_cut_to_size_and_say_so() -> None:
    document = {
        "result": {"nodes": [{"name": f"n{index}"} for index in range(5000)]},
        "t": "x" * 9000,
    }
    cut = bounded(document, 4096)
    assert len(json.dumps(cut)) <= 4096
    listed = {item["path"]: (item["kept"], item["of"]) for item in cut["cut"]}
    assert listed["result.nodes"] == (len(cut["result"]["nodes"]), 5000)
    assert listed["t"] == (len(cut["t"]), 9000)
    assert bounded({"a": [1]}, 4096) == {"a": [1]}


def answer_of(
    folder: Path, name: str, arguments: dict[str, Any], seconds: float = 60
) -> ToolAnswer:
    runner = ToolRunner(Roots([str(folder)]), seconds, "2GiB", 1 << 16)
    with Lifeline() as lifeline:
        return runner.call(name, arguments, lifeline)


def test_limits_end_a_call(folder: Path) -> None:
    arguments = {"graph": "counter.pb", "feed": ["n=9"], "max_iterations": 3}
    answer = answer_of(folder, "run", arguments)
    assert answer.error is not None
    assert answer.error.startswith("error[CFG704]: the loop")
    assert "hint: " in answer.error
    answer = answer_of(folder, "show", {"graph": "counter.pb"}, 0.001)
    assert answer.error is not None
    assert answer.error.startswith("error[CFG706]")


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("rum", {}, "no tool 'rum'\nhint: did you mean 'run'?"),
        ("show", {}, "'graph' is a required property"),
        ("run", {"graph": "x", "allow_io": True}, "Additional properties are not allowed"),
        ("show", {"graph": "link.graph"}, "outside of the folders of this server"),
        ("explain_code", {"code": "/etc/passwd"}, "code: '/etc/passwd' does not match"),
        ("show", {"graph": "counter.pb", "node": "a\0b"}, "node: the text has a character"),
        ("show", {"graph": "a\ud800b"}, "graph: the text has a character"),
        ("show", {"graph": "a" * 5000}, "File name too long"),
        ("run", {"graph": "counter.pb", "fetch": ["a" * 200_000]}, "the parameters are too long"),
    ],
)
def test_wrong_calls_are_errors(
    folder: Path, name: str, arguments: dict[str, Any], message: str
) -> None:
    pytest.importorskip("jsonschema")
    assert message in str(answer_of(folder, name, arguments).error)


def test_without_the_extra_the_command_says_how_to_install_it(
    command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    done = command("mcp")
    assert done.code == 4
    assert "the server needs the package mcp" in done.err
    assert "pip install 'cfgraph-tools[mcp]'" in done.err


@needs_sdk
@pytest.mark.parametrize(
    "options", [(), ("--root", "no such folder"), ("--max-answer", "x"), ("--call-timeout", "inf")]
)
def test_wrong_options_are_usage_errors(command: Any, options: tuple[str, ...]) -> None:
    assert command("mcp", *options).code == 2


@pytest.fixture
def client(folder: Path) -> Callable[[Callable[[Any], Any]], Any]:
    """A function that lets a coroutine use a client of the server, over its standard streams."""

    def use(work: Callable[[Any], Any]) -> Any:
        from mcp import Client, StdioServerParameters, stdio_client

        options = ["-m", "cfgraph", "mcp", "--root", str(folder), "--max-answer", "3KiB"]
        server = StdioServerParameters(command=sys.executable, args=options)

        async def connect() -> Any:
            with open(folder.parent / "log", "w", encoding="utf-8") as log:
                async with Client(stdio_client(server, log)) as connected:
                    return await work(connected)

        return asyncio.run(connect())

    return use


@needs_sdk
@pytest.mark.filterwarnings("ignore")
def test_the_client_of_the_sdk_calls_every_tool(
    client: Callable[[Callable[[Any], Any]], Any],
) -> None:
    calls: dict[str, dict[str, Any]] = {
        "show": {"graph": "model", "nodes": True},
        "check": {"graphs": ["counter.pb", "model"]},
        "explain": {"graph": "counter.pb", "subject": "/while/while_context"},
        "explain_code": {"code": "CFG201"},
        "diff": {"a": "counter.pb", "b": "counter.pb", "run": True, "cases": 1},
        "run": {"graph": "model", "feed": ["x=[[1, 2]]"]},
        "extract": {"graph": "counter.pb", "outputs": ["while/add"]},
        "cluster": {"graph": "counter.pb"},
    }

    async def work(client: Any) -> Any:
        listed = await client.list_tools()
        answers = await asyncio.gather(
            *(client.call_tool(name, arguments) for name, arguments in calls.items())
        )
        failed = await client.call_tool("show", {"graph": "../secret.graph"})
        return listed.tools, dict(zip(calls, answers, strict=True)), failed

    tools, answers, failed = client(work)
    assert {tool.name for tool in tools} == READERS == calls.keys()
    assert all(tool.annotations.read_only_hint for tool in tools)
    for name, answer in answers.items():
        assert not answer.is_error, (name, answer.content)
        text = answer.content[0].text
        assert len(text) <= 3 << 10
        assert json.loads(text) == answer.structured_content
        assert answer.structured_content["schema"] == f"cfgraph.{find_tool(name).command or name}/1"
    values = answers["run"].structured_content["result"]["values"]
    assert {item["output"]: item["data"] for item in values}["y"] == [[1.8203125, 5.5546875]]
    assert "AddV2" in answers["extract"].structured_content["graph"]
    assert failed.is_error
    assert "outside of the folders" in failed.content[0].text
