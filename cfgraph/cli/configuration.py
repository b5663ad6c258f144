"""Defaults of options: environment variables, and the nearest configuration file.

    # cfgraph.toml, or below [tool.cfgraph] in pyproject.toml
    timeout = 60            # for every command

    [run]
    engine = "tokens"

A file comes with a graph and is as little trusted: no option that reads or writes a file, lets a
graph do so, or starts processes can be set in one, and no limit can be raised.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperOption

from cfgraph.cli.options import plain_message
from cfgraph.errors import InvalidInput, UsageError
from cfgraph.ir.names import did_you_mean
from cfgraph.ir.nested_text import parse_toml
from cfgraph.ir.units import format_byte_size, parse_byte_size
from cfgraph.limits import DEFAULT_MAX_NODES, default_max_memory

CONFIGURATION_FILES: Final = ("cfgraph.toml", "pyproject.toml")
# options of all commands, which a file sets at its top
SHARED_OPTIONS: Final = ("timeout", "max_memory", "max_nodes", "op_def", "quiet", "verbose")
NO_CONFIG_HELP: Final = "Read no configuration file (cfgraph.toml or pyproject.toml)."
ENVIRONMENT_PREFIX: Final = "CFGRAPH_"
# texts that a configuration file gives the options of the command
CONFIGURED_VALUES: Final[ContextVar[Collection[str]]] = ContextVar("configured", default=())
_SECTION: Final = "tool.cfgraph"
# a project may have one; the parser of TOML decides
_MAY_HAVE_SECTION: Final = re.compile(rb"^[ \t\"'\[]*+(?:tool\b.*?)?\bcfgraph\b", re.MULTILINE)
_MAX_BYTES: Final = 1 << 20
_MAX_SHOWN: Final = 100
# tomllib takes quadratic time for a dotted key; parts that are longer are few
_MAX_KEY_PARTS: Final = 16
_KEY_PART: Final = r"""(?:(?<![\w-])[\w-]++|"(?:\\.|[^"\\\n]){0,99}+"|'[^'\n]{0,99}+')"""
_LONG_KEY: Final = re.compile(rf"{_KEY_PART}(?:[ \t]*+\.[ \t]*+{_KEY_PART}){{{_MAX_KEY_PARTS}}}")
_NAMES_A_FILE: Final = re.compile(r"FILE|FOLDER|DIR|PATH")
# metavars of options whose values are fixed words, and of those with a comma-separated list
_WORDS: Final = re.compile(r"[a-z]+(?:\|[a-z]+)*")
LIST_METAVARS: Final = ("CODES", "LIST")
_READS_FILES: Final = "its values may name files"
# options that only a command line can set, each with the reason
_COMMAND_LINE_ONLY: Final = {
    "allow_io": "it lets a graph use files",
    "call_memory": "it raises a limit",
    "call_timeout": "it raises a limit",
    "debug": "$CFGRAPH_DEBUG sets it",
    "expect": _READS_FILES,
    "feed": _READS_FILES,
    "format": "it decides what the output is",
    "grad_ys": _READS_FILES,
    "jvp": _READS_FILES,
    "hvp": _READS_FILES,
    "install": "it writes files of the user",
    "json": "it decides what the output is",
    "no_config": "no file would be read",
    "passes": _READS_FILES,
    "ray": "it connects to other machines",
    "with_constants": "it decides what leaves the machine",
    "workers": "it starts processes",
}


def table_name(command: str) -> str:
    """Table of a command in a file, such as [run] and [reduce-pair]."""
    return command.replace(" ", "-")


def option_key(option: TyperOption) -> str:
    """Key of an option in a file: its long name without dashes."""
    return max(option.opts, key=len).lstrip("-")


def expected_words(option: TyperOption) -> tuple[str, ...]:
    """The words that an option accepts; empty for an option that accepts other values."""
    metavar = option.metavar or ""
    return tuple(metavar.split("|")) if _WORDS.fullmatch(metavar) else ()


# options that name files which a command reads, and from which it learns nothing but signatures
_READ_ONLY_FILES: Final = frozenset({"op_def"})


def command_line_only(option: TyperOption) -> str | None:
    """Reason why only a command line can set an option, or None."""
    is_safe = option.name in _READ_ONLY_FILES
    if not is_safe and option.metavar and _NAMES_A_FILE.search(option.metavar):
        return "it names a file"
    return _COMMAND_LINE_ONLY.get(option.name or "")


@dataclass(frozen=True, slots=True)
class Configuration:
    """The tables of a configuration file."""

    path: Path
    text: str
    tables: Mapping[str, Any]

    def defaults(
        self, command: TyperCommand, name: str, commands: Collection[str]
    ) -> dict[str, Any]:
        """Return the options that the file sets for a command.

        Raises UsageError for a key that is unknown or that only a command line can set, and for an
        invalid value.
        """
        tables = [table_name(command) for command in commands]
        for key, value in self.tables.items():
            is_table = isinstance(value, Mapping)
            if is_table and key not in tables:
                hint = did_you_mean(key, tables) or "tables are named as commands"
                raise self._error(f"unknown table [{key}]", key, hint=hint)
            if not is_table and _parameter(key) not in SHARED_OPTIONS:
                raise self._misplaced(key, tables)
        options = _options_by_key(command)
        values: dict[str, Any] = {}
        for key, value in self.tables.items():
            option = options.get(_parameter(key))
            if option is not None and option.name and not isinstance(value, Mapping):
                values[option.name] = self._value(command, option, key, value)
        table = table_name(name)
        for key, value in self.tables.get(table, {}).items():
            option = self._option(command, options, name, key)
            values[option.name or ""] = self._value(command, option, key, value, table)
        return values

    def position(self, option: TyperOption, name: str) -> str:
        """File and line that set an option of a command."""
        keys = {_parameter(option_key(option)), option.name}
        own = self.tables.get(table_name(name), {})
        of_command = next((key for key in own if _parameter(key) in keys), None)
        shared = next((key for key in self.tables if _parameter(key) in keys), option_key(option))
        return self._position(of_command or shared, table_name(name) if of_command else "")

    def _misplaced(self, key: str, commands: Collection[str]) -> UsageError:
        shown = [option.replace("_", "-") for option in SHARED_OPTIONS]
        hint = did_you_mean(key, [*shown, *commands])
        hint = hint or f"at the top: {', '.join(shown)}; others in a table such as [run]"
        return self._error(f"unknown key {key!r}", key, hint=hint)

    def _option(
        self, command: TyperCommand, options: Mapping[str, TyperOption], name: str, key: str
    ) -> TyperOption:
        option, table = options.get(_parameter(key)), table_name(name)
        if option is not None:
            reason = command_line_only(option)
            if reason is None:
                return option
            message = f"{key!r} cannot be set in a file: {reason}"
            hint = f"write {option.opts[0]} in the command"
            raise self._error(message, key, table, hint=hint)
        if any(param.name == _parameter(key) for param in command.params):
            raise self._error(
                f"{key!r} is an argument of `{name}`, not an option",
                key,
                table,
                hint="write it in the command",
            )
        known = dict.fromkeys(option_key(item) for item in options.values() if is_settable(item))
        hint = did_you_mean(key.replace("_", "-"), known) or f"see `cfgraph {name} --help`"
        raise self._error(f"unknown key {key!r} in [{table}]", key, table, hint=hint)

    def _value(
        self, command: TyperCommand, option: TyperOption, key: str, value: Any, table: str = ""
    ) -> Any:
        """Check a value as the command does, and return it. Raises UsageError."""
        items = value if isinstance(value, list) else [value]
        if not option.multiple and option.metavar in LIST_METAVARS and _are_strings(items):
            value = ",".join(items)
        expected = "true or false" if option.is_flag else option.metavar or "a value"
        is_scalar = (
            isinstance(value, str | int | float) and isinstance(value, bool) == option.is_flag
        )
        words = expected_words(option)
        is_valid = _are_strings(items) if option.multiple else is_scalar
        if not is_valid or (words and value not in words):
            expected = (
                f"a string or a list of strings ({expected})" if option.multiple else expected
            )
            message = f"{key} = {_shortened(value)}: expected {expected}"
            raise self._error(message, key, table, hint=None)
        checked = items if option.multiple else value
        try:
            limit = option.process_value(typer.Context(command), checked)
            _require_default_limit(option.name or "", limit)
        except Exception as error:
            reason = getattr(error, "message", None)
            if reason is None:
                raise
            message = f"{key} = {_shortened(value)}: {plain_message(reason).rstrip('.')}"
            raise self._error(message, key, table, hint=getattr(error, "hint", None)) from None
        return checked

    def _error(self, message: str, key: str, table: str = "", *, hint: str | None) -> UsageError:
        return UsageError(message, path=self._position(key, table), hint=hint)

    def _position(self, key: str, table: str) -> str:
        line = _line_of(self.text, self._prefix(), table, key)
        return f"{self.path}, line {line}" if line else str(self.path)

    def _prefix(self) -> str:
        return _SECTION if self.path.name == CONFIGURATION_FILES[1] else ""


def is_configured(text: str) -> bool:
    """True for a value that a configuration file, and not the command line, gives an option."""
    return text in CONFIGURED_VALUES.get()


def nearest_configuration() -> Configuration | None:
    """The nearest configuration, from the current folder upward, or None.

    Of two files in one folder, cfgraph.toml counts. Raises InvalidInput for an invalid file.
    """
    try:
        start = Path.cwd()
    except OSError:
        return None  # the current folder was removed
    for parent in (start, *start.parents):
        for name in CONFIGURATION_FILES:
            path = parent / name
            if path.is_file() and (found := _read_configuration(path)) is not None:
                return found
    return None


def _read_configuration(path: Path) -> Configuration | None:
    """Read a file; None for a project without a section of cfgraph."""
    is_project = path.name == CONFIGURATION_FILES[1]
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        if is_project:
            return None
        raise InvalidInput(f"cannot read the file: {error.strerror}", path=path) from None
    if is_project and _MAY_HAVE_SECTION.search(data) is None:
        return None
    if len(data) > _MAX_BYTES:
        raise InvalidInput("a configuration has at most 1 MiB", path=path, hint="use --no-config")
    try:
        text = data.decode()
        if long := _LONG_KEY.search(text):
            line = text.count("\n", 0, long.start()) + 1
            message = f"a key has more than {_MAX_KEY_PARTS} parts"
            raise InvalidInput(message, path=f"{path}, line {line}", hint="use --no-config")
        tables = parse_toml(text)
    except ValueError as error:
        raise InvalidInput(f"invalid TOML: {error}", path=path, hint="use --no-config") from None
    for key in _SECTION.split(".") if is_project else ():
        tables = tables.get(key, {}) if isinstance(tables, dict) else {}
    if not isinstance(tables, dict):
        raise InvalidInput(f"[{_SECTION}] is not a table", path=path)
    return Configuration(path, text, tables) if tables or not is_project else None


def options_of(command: TyperCommand) -> Iterator[TyperOption]:
    """The options of a command."""
    return (param for param in command.params if isinstance(param, TyperOption))


def _options_by_key(command: TyperCommand) -> dict[str, TyperOption]:
    """The options by their keys, with underscores, and by the names of their parameters."""
    options = [option for option in options_of(command) if option.name]
    names = {option.name: option for option in options if option.name}
    return names | {_parameter(option_key(option)): option for option in options}


def _are_strings(items: list[Any]) -> bool:
    return all(isinstance(item, str) for item in items)


def is_settable(option: TyperOption) -> bool:
    """True for an option that a file may set."""
    return command_line_only(option) is None and not option.hidden


def _require_default_limit(name: str, limit: Any) -> None:
    """Raise UsageError for a limit above its default, which protects from the graph."""
    if name == "max_memory" and parse_byte_size(limit) > default_max_memory():
        default = format_byte_size(default_max_memory())
    elif name == "max_nodes" and limit > DEFAULT_MAX_NODES:
        default = str(DEFAULT_MAX_NODES)
    else:
        return
    hint = f"use --{name.replace('_', '-')}, or ${ENVIRONMENT_PREFIX}{name.upper()}"
    raise UsageError(f"a file cannot raise the limit above its default, {default}", hint=hint)


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def _parameter(key: str) -> str:
    return key.replace("-", "_")


def _line_of(text: str, prefix: str, table: str, key: str) -> int | None:
    """Return the line of a key in a table, or of the head of the table; None if not found."""
    wanted = ".".join(part for part in (prefix, table) if part)
    own_table = f"{wanted}.{key}" if wanted else key
    current = ""
    for number, line in enumerate(text.splitlines(), 1):
        head = line.partition("#")[0].strip()
        if head.startswith("[") and head.endswith("]"):
            current = re.sub(r"[\"'\s\[\]]", "", head)
            if current == own_table:
                return number
        elif current == wanted and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.]", line):
            return number
    return None
