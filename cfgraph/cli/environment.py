"""Environment variables that set options: `CFGRAPH_COMMAND_OPTION`, and those of all commands."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperOption

from cfgraph.cli.configuration import (
    ENVIRONMENT_PREFIX,
    SHARED_OPTIONS,
    command_line_only,
    expected_words,
    option_key,
    options_of,
)
from cfgraph.cli.options import plain_message
from cfgraph.errors import CfgraphError, UsageError
from cfgraph.ir.names import did_you_mean

# variables that are no options
OTHER_VARIABLES: Final = ("CFGRAPH_CACHE", "CFGRAPH_DEBUG", "CFGRAPH_DOCS", "CFGRAPH_NO_CONFIG")


def environment_names(command: str, option: TyperOption) -> list[str]:
    """Environment variables of an option, the most specific one first."""
    if command_line_only(option):
        return []
    shared = [_variable(option.name or "")] if option.name in SHARED_OPTIONS else []
    return [*_command_variables(command, option), *shared]


def _command_variables(command: str, option: TyperOption) -> list[str]:
    """Variables of an option of one command: that of its key, and that of its parameter."""
    names = dict.fromkeys((option_key(option), option.name or ""))
    return [_variable(f"{command}_{name}") for name in names]


def _variable(name: str) -> str:
    return f"{ENVIRONMENT_PREFIX}{re.sub('[- ]', '_', name).upper()}"


def reject_environment(command: TyperCommand, name: str) -> None:
    """Raise UsageError for a variable that would set an option of the command line only."""
    for option in options_of(command):
        reason = command_line_only(option)
        for variable in _command_variables(name, option) if reason else ():
            if variable in os.environ:
                message = f"${variable} cannot set {option.opts[0]}: {reason}"
                hint = f"unset it, and write {option.opts[0]} in the command"
                raise UsageError(message, hint=hint)


def variable_that_sets(option: TyperOption) -> str | None:
    """The variable of the environment that an option without other value comes from, or None."""
    names = option.envvar if isinstance(option.envvar, list | tuple) else ()
    return next((str(name) for name in names if os.environ.get(name)), None)


def require_expected_word(option: TyperOption, value: Any) -> None:
    """Raise UsageError for a value from the environment that is none of the option's words."""
    words = expected_words(option)
    if words and value is not None and value not in words:
        message = f"${variable_that_sets(option)}: unknown value {value!r}"
        raise UsageError(message, hint=f"one of {', '.join(words)}")


def environment_errors(commands: Mapping[str, TyperCommand]) -> Iterator[UsageError]:
    """Yield an error per variable with an invalid value, and per option that none can set."""
    seen: set[str] = set()
    for name, command in commands.items():
        try:
            reject_environment(command, name)
        except UsageError as error:
            yield error
        for option in options_of(command):
            variable = variable_that_sets(option)
            if variable is None or variable in seen:
                continue
            seen.add(variable)
            if (invalid := _error_of(command, option, variable)) is not None:
                yield invalid


def _error_of(command: TyperCommand, option: TyperOption, variable: str) -> UsageError | None:
    context = typer.Context(command)
    try:
        value = option.process_value(context, option.value_from_envvar(context))
        require_expected_word(option, value)
    except UsageError as error:
        return error
    except CfgraphError as error:
        return UsageError(f"${variable}: {error.message}", hint=error.hint)
    except Exception as error:
        reason = getattr(error, "message", None)
        if reason is None:
            raise
        return UsageError(f"${variable}: {plain_message(reason).rstrip('.')}")
    return None


def unknown_variables(commands: Mapping[str, TyperCommand]) -> dict[str, str | None]:
    """Variables with the prefix of cfgraph that nothing reads, each with a hint."""
    known = {*OTHER_VARIABLES}
    for name, command in commands.items():
        for option in options_of(command):
            known.update(_command_variables(name, option))
            known.update(environment_names(name, option))
    unknown = [name for name in sorted(os.environ) if name.startswith(ENVIRONMENT_PREFIX)]
    return {name: did_you_mean(name, sorted(known)) for name in unknown if name not in known}
