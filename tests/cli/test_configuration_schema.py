"""The schema of cfgraph.toml: from the options, and of the opinion of the command line."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from cfgraph.cli.command_files import COMMANDS, CommandFiles
from cfgraph.cli.configuration import Configuration
from cfgraph.cli.configuration_schema import configuration_schema
from cfgraph.errors import UsageError

FILE = "cfgraph.schema.json"


@pytest.fixture(scope="module")
def commands() -> CommandFiles:
    return CommandFiles(COMMANDS)


@pytest.fixture(scope="module")
def schema(commands: CommandFiles) -> dict[str, Any]:
    return configuration_schema(commands)


def is_accepted(tables: Any, commands: CommandFiles) -> bool:
    """True if every command takes its defaults from a file with these tables."""
    configuration = Configuration(Path("cfgraph.toml"), "", tables)
    names = [name for name in tables if name in commands] or ["check"]
    try:
        for name in names:
            configuration.defaults(commands[name], name, list(commands))
    except UsageError:
        return False
    return True


def test_the_published_schema_is_that_of_the_options(
    root: Path, schema: Any, command: Any, update: bool
) -> None:
    file = root / "docs" / FILE
    text = json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
    if update:
        file.write_text(text, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == text, "pytest --update"
    assert command("--schema", "cfgraph.toml").json == schema
    assert schema["$id"].endswith(f"/{FILE}")


def test_the_schema_is_of_the_draft_that_editors_read(schema: Any) -> None:
    assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"
    jsonschema.Draft7Validator.check_schema(schema)
    lacking = [
        f"{name}.{key}"
        for name, table in schema["properties"].items()
        for key, item in table.get("properties", {}).items()
        if not (item.get("description") or "$ref" in item)
    ]
    assert lacking == []


def samples(item: Any, schema: Any) -> Iterator[Any]:
    """Values of an option that its schema accepts."""
    if "$ref" in item:
        yield from samples(schema["properties"][item["$ref"].rpartition("/")[2]], schema)
    elif "enum" in item:
        yield from item["enum"]
    elif "anyOf" in item:
        yield ["CFG201", "CFG3*"]
    elif item["type"] == "boolean":
        yield from (True, False)
    elif item["type"] in ("integer", "number"):
        yield item.get("minimum", 0) + 1
    elif "default" in item:
        yield item["default"]


def test_what_the_schema_accepts_every_command_accepts(schema: Any, commands: CommandFiles) -> None:
    validator = jsonschema.Draft7Validator(schema)
    wrong, seen = [], 0
    for name, table in schema["properties"].items():
        for key, item in table.get("properties", {}).items():
            for value in samples(item, schema):
                for spelling in {key, key.replace("-", "_")}:
                    tables = {name: {spelling: value}}
                    seen += 1
                    valid = validator.is_valid(tables), is_accepted(tables, commands)
                    wrong += [] if valid == (True, True) else [(tables, valid)]
    assert (wrong, seen > 300) == ([], True)


def test_the_examples_of_the_page_are_valid(root: Path, schema: Any) -> None:
    text = (root / "docs" / "configuration.md").read_text()
    examples = [tomllib.loads(x) for x in re.findall(r"```toml\n(.*?)```", text, re.DOTALL)]
    assert examples
    for example in examples:
        jsonschema.Draft7Validator(schema).validate(example)


@pytest.mark.parametrize(
    "tables",
    [
        {"run": {"engin": "tokens"}},
        {"run": {"engine": "tokns"}},
        {"run": {"max-iterations": True}},
        {"run": {"max-iterations": -1}},
        {"run": {"allow-io": True}},
        {"run": {"workers": 2}},
        {"check": {"ignore": [1]}},
        {"check": {"exit-zero": "yes"}},
        {"nosuch": {"engine": "tokens"}},
        {"engine": "tokens"},
        {"output": "x.pb"},
    ],
    ids=str,
)
def test_what_no_command_accepts_the_schema_rejects(
    tables: Any, schema: Any, commands: CommandFiles
) -> None:
    assert not jsonschema.Draft7Validator(schema).is_valid(tables)
    assert not is_accepted(tables, commands)
