"""JSON Schema of `cfgraph.toml`, from the declarations of the options.

It is of draft 7, which editors and SchemaStore read. An option that a file must not set has no
property; keys with underscores have patterns, so that editors offer only those with dashes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from typer.core import TyperCommand, TyperOption

from cfgraph.cli.configuration import (
    LIST_METAVARS,
    SHARED_OPTIONS,
    expected_words,
    is_settable,
    option_key,
    options_of,
    table_name,
)
from cfgraph.errors import DOCUMENTATION

_ADDRESS: Final = f"{DOCUMENTATION}cfgraph.schema.json"
_STRINGS: Final = {"type": "array", "items": {"type": "string"}}
_NUMBERS: Final = {"int": "integer", "float": "number"}


def configuration_schema(commands: Mapping[str, TyperCommand]) -> dict[str, Any]:
    """Return the schema of a configuration of these commands."""
    tables = {table_name(name): _table(name, command) for name, command in sorted(commands.items())}
    some_command = next(iter(commands.values()))
    shared = [option for option in options_of(some_command) if option.name in SHARED_OPTIONS]
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": _ADDRESS,
        "title": "Configuration of cfgraph",
        "description": "Defaults of options: of all commands at the top, of one in its table.",
        **_object(_properties(shared), "#"),
        "properties": {**_properties(shared), **{k: v for k, v in tables.items() if v}},
    }


def _table(name: str, command: TyperCommand) -> dict[str, Any]:
    """The schema of a command's table; empty for a command without options to set."""
    options = [option for option in options_of(command) if option.expose_value]
    settable = [option for option in options if is_settable(option)]
    if all(option.name in SHARED_OPTIONS for option in settable):
        return {}
    summary = str(command.help).strip().partition("\n")[0]
    properties = _properties(settable)
    for option in settable:
        if option.name in SHARED_OPTIONS:
            key = option_key(option)
            properties[key] = {"$ref": f"#/properties/{key}"}
    return {
        "description": f"cfgraph {name}: {summary}",
        **_object(properties, f"#/properties/{table_name(name)}"),
    }


def _object(properties: Mapping[str, Any], path: str) -> dict[str, Any]:
    """The schema of a table at a path with these keys."""
    patterns = {
        f"^{key.replace('-', '_')}$": {"$ref": f"{path}/properties/{key}"}
        for key in properties
        if "-" in key
    }
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        **({"patternProperties": patterns} if patterns else {}),
    }


def _properties(options: Iterable[TyperOption]) -> dict[str, Any]:
    properties = {option_key(option): _property(option) for option in options}
    return dict(sorted(properties.items()))


def _property(option: TyperOption) -> dict[str, Any]:
    """The schema of an option's values, as `Configuration` accepts them."""
    schema: dict[str, Any] = {"description": str(option.help)}
    kind = option.type.name.partition(" ")[0]
    if option.is_flag:
        schema["type"] = "boolean"
    elif option.multiple or option.metavar in LIST_METAVARS:
        schema["anyOf"] = [{"type": "string"}, _STRINGS]
    elif words := expected_words(option) or getattr(option.type, "choices", ()):
        schema["enum"] = [str(getattr(word, "value", word)) for word in words]
    elif kind in _NUMBERS:
        schema["type"] = _NUMBERS[kind]
        least = getattr(option.type, "min", None)
        schema |= {} if least is None else {"minimum": least}
    else:
        schema["type"] = ["string", "number"]
    default = getattr(option.default, "value", option.default)
    if default not in (None, "", []) and not callable(default):
        schema["default"] = default
    return schema
