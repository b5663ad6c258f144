"""Commands by name: one file each, imported on first access, with the options that all have."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shlex
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from enum import StrEnum
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperOption
from typer.main import get_command

from cfgraph.cli.configuration import (
    CONFIGURED_VALUES,
    NO_CONFIG_HELP,
    Configuration,
    nearest_configuration,
    options_of,
)
from cfgraph.cli.environment import (
    environment_names,
    reject_environment,
    require_expected_word,
    variable_that_sets,
)
from cfgraph.cli.help_examples import GROUPS
from cfgraph.cli.option_groups import expand_groups
from cfgraph.cli.options import (
    ADVANCED,
    VERBOSITY,
    MaxMemory,
    MaxNodes,
    OpDef,
    Quiet,
    Timeout,
    Verbose,
    Verbosity,
    split_names,
)
from cfgraph.cli.watchdog import Watchdog
from cfgraph.errors import UsageError
from cfgraph.ir.units import format_byte_size, parse_byte_size
from cfgraph.limits import limited

if sys.platform != "win32":
    import resource

COMMANDS: Final = "cfgraph.commands"
# keys of the context's `meta`
DEBUG: Final = "cfgraph.debug"
WATCHDOG: Final = "cfgraph.cli.watchdog"
PROGRESS: Final = "cfgraph.cli.progress"
_NO_CONFIG: Final = "cfgraph.no_config"
# the parameters of all commands that are limits
_LIMITS: Final = ("timeout", "max_memory", "max_nodes")
_OP_DEF: Final = "op_def"
# sections of a help page, and the parameters of the last one
ARGUMENTS: Final = "Arguments"
OPTIONS: Final = "Options"
MORE: Final = "More options"
COMMON: Final = "Options of all commands"
COMMON_NAMES: Final = frozenset(
    {"quiet", "verbose", *_LIMITS, _OP_DEF, "debug", "no_config", "help"}
)
PANEL: Final = "rich_help_panel"
# key of the context's `meta`, and sources of parameters
_CONFIGURATION: Final = "cfgraph.cli.configuration"
_FROM_COMMAND_LINE: Final = "COMMANDLINE"
_FROM_ENVIRONMENT: Final = "ENVIRONMENT"
_FROM_FILE: Final = "DEFAULT_MAP"
# of the main help page
_OTHER_COMMANDS: Final = "Other commands"
_QUIET: Final = "quiet"
_VERBOSE: Final = "verbose"
# columns of an example on a help page of 80 columns, without margins and the final backslash
_MAX_EXAMPLE: Final = 70
_BREAKS: Final = re.compile(r" (?=-\w|--\w|\||&&)(?=(?:[^']*'[^']*')*[^']*\Z)")
# metavar of an option whose command judges an empty value
_ANY_TEXT: Final = "TEXT"
# between names in the values of options: a,b and ^a and a:0 and op:a and a=3
_SEPARATORS: Final = re.compile(r"[,^=:\s]")


class FileCommand(TyperCommand):
    """A command with limits, whose help lists rare options under a heading of their own."""

    # its words on a command line, and those of all commands, which are tables of a configuration
    path: str = ""
    names: Collection[str] = ()
    # names of the parameters that most users need
    first: Sequence[str] = ()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse a command line, with defaults from the nearest configuration file."""
        words = set(args[: args.index("--")] if "--" in args else args)
        if not ctx.resilient_parsing and words.isdisjoint(ctx.help_option_names):
            reject_environment(self, self.path)
            reads_file = "--no-config" not in words and not _ignores_configuration(ctx)
            configuration = nearest_configuration() if reads_file else None
            if configuration is not None:
                ctx.default_map = configuration.defaults(self, self.path, self.names)
                ctx.meta[_CONFIGURATION] = configuration
        if not ctx.resilient_parsing:
            self._reject_options_as_values(ctx, args)
        try:
            rest = super().parse_args(ctx, args)
        except Exception as failure:
            if getattr(failure, "ctx", ctx) is None:
                failure.ctx = ctx  # type: ignore[attr-defined]  # the parser knows no command
            raise
        configured = [] if ctx.default_map is None else [*ctx.default_map]
        CONFIGURED_VALUES.set(frozenset(split_names(_configured_texts(ctx, configured))))
        for option in options_of(self) if not ctx.resilient_parsing else ():
            source, value = _source(ctx, option.name), ctx.params.get(option.name)
            if source == _FROM_ENVIRONMENT:
                require_expected_word(option, value)
            elif source == _FROM_COMMAND_LINE and _is_empty(option, value):
                raise _value_error(ctx, option, "which is empty")
        return rest

    def _reject_options_as_values(self, ctx: Any, args: Sequence[str]) -> None:
        """Raise UsageError for an option in place of the value of another."""
        options = {name: option for option in options_of(self) for name in option.opts}
        for name, text in pairwise(args[: args.index("--")] if "--" in args else args):
            if text in options and name in options and not options[name].is_flag:
                raise _value_error(ctx, options[name], f"and {text} is an option")

    def make_parser(self, ctx: Any) -> Any:
        """A parser that rejects a second value of an option that has one."""
        parser: Any = super().make_parser(ctx)
        parse = parser.parse_args

        def parse_args(args: list[str]) -> Any:
            words = [*args]
            parsed = parse(args=args)
            order = parsed[-1]
            for option in options_of(self) if not ctx.resilient_parsing else ():
                if not (option.multiple or option.is_flag) and order.count(option) > 1:
                    raise _repeated_option_error(option, words)
            return parsed

        parser.parse_args = parse_args
        return parser

    def invoke(self, ctx: Any) -> Any:
        """Run the command within its limits; the time since the start of the process counts."""
        values = dict(ctx.params)
        is_verbose = ctx.params.pop(_VERBOSE)
        is_quiet = ctx.params.pop(_QUIET)
        if is_quiet and is_verbose:
            message = "--quiet and --verbose exclude each other"
            raise UsageError(message, hint="remove one of them")
        verbosity = Verbosity.quiet if is_quiet else Verbosity.normal
        VERBOSITY.set(Verbosity.verbose if is_verbose else verbosity)
        if is_quiet and (progress := ctx.meta.get(PROGRESS)) is not None:
            progress.end()
        start = time.monotonic()
        try:
            return self._invoke_within_limits(ctx)
        except UsageError as error:
            for origin in self._origins(ctx, values, error):
                error.add_note(origin)
            raise
        finally:
            if is_verbose:
                seconds = time.monotonic() - start
                typer.echo(f"{self.path}: {seconds:.3f} s{_peak_memory()}", err=True)

    def _origins(self, ctx: Any, values: Mapping[str, Any], error: UsageError) -> Iterator[str]:
        """Name the option of each value in a message, and the file or variable that sets it."""
        for option in options_of(self):
            source, name = _source(ctx, option.name), option.opts[0]
            text = next(_quoted_texts(values.get(option.name or ""), error.message), None)
            if text is None:
                continue
            if source == _FROM_ENVIRONMENT:
                yield f"{name} is set by ${variable_that_sets(option)}"
            elif source == _FROM_FILE:
                configuration: Configuration = ctx.meta[_CONFIGURATION]
                yield f"{name} is set by {configuration.position(option, self.path)}"
            elif source != _FROM_COMMAND_LINE or name in str(error):
                continue
            elif repr(text) in str(error) or text not in str(error):
                yield f"in {name} {shlex.quote(text)}"

    def _invoke_within_limits(self, ctx: Any) -> Any:
        timeout, max_memory, max_nodes = (ctx.params.pop(name) for name in _LIMITS)
        op_defs = ctx.params.pop(_OP_DEF)
        watchdog: Watchdog | None = ctx.meta.get(WATCHDOG)
        if timeout is not None and watchdog is not None:
            timeout = max(0.0, timeout - (time.monotonic() - watchdog.start_time))
        size = None if max_memory is None else parse_byte_size(max_memory)
        with limited(timeout=timeout, max_memory=size, max_nodes=max_nodes) as limits:
            if watchdog is not None:
                watchdog.set_limits(limits.deadline, limits.max_bytes)
            if op_defs:
                _declare_ops(op_defs)
            return super().invoke(ctx)

    def sections(self, ctx: Any) -> dict[str, list[Any]]:
        """The parameters by sections of a help page, those of all commands last.

        `first` of a command are the only ones of its first section, in their order.
        """
        first = {name: position for position, name in enumerate(self.first)}
        rest = MORE if first else OPTIONS
        sections: dict[str, list[Any]] = {ARGUMENTS: [], OPTIONS: [], rest: []}
        for param in self.get_params(ctx):
            if param.get_help_record(ctx) is not None:
                sections.setdefault(self._section(param, rest), []).append(param)
        sections[OPTIONS].sort(key=lambda param: first.get(param.name, len(first)))
        for title in (ADVANCED, COMMON):
            sections[title] = sections.pop(title, [])
        return {title: params for title, params in sections.items() if params}

    def _section(self, param: Any, rest: str) -> str:
        """The title of the section of a parameter; `rest` is that of one without its own."""
        if param.param_type_name == "argument":
            return ARGUMENTS
        if param.name in self.first:
            return OPTIONS
        return COMMON if param.name in COMMON_NAMES else getattr(param, PANEL, None) or rest

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the sections, and of the options of all commands only the names."""
        sections = self.sections(ctx)
        common = [max(param.opts, key=len) for param in sections.pop(COMMON, ())]
        for title, params in sections.items():
            with formatter.section(title):
                formatter.write_dl([param.get_help_record(ctx) for param in params])
        with formatter.section(f"{COMMON} (see `cfgraph --help`)"):
            formatter.write_text(", ".join(common))


class CommandFiles(Mapping[str, TyperCommand]):
    """Commands by name: one file each, imported on first access, or `FOLDER FILE`."""

    def __init__(self, package: str, examples: Mapping[str, Sequence[str]] | None = None) -> None:
        self.package = package
        self.examples = examples or {}
        spec = importlib.util.find_spec(package)
        folders = spec.submodule_search_locations if spec else None
        self.files = {
            " ".join(file.relative_to(folder).with_suffix("").parts).replace("_", "-"): file
            for folder in folders or ()
            for file in sorted(Path(folder).glob("**/[!_]*.py"))
        }

    def __getitem__(self, name: str) -> TyperCommand:
        module_name = name.replace(" ", ".").replace("-", "_")
        module = importlib.import_module(f"{self.package}.{module_name}")
        app = typer.Typer(
            add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
        )
        app.command(name, cls=FileCommand, epilog=_examples_text(self.examples.get(name, ())))(
            expand_groups(module.main)
        )
        command = get_command(app)
        assert isinstance(command, FileCommand)
        command.path, command.names = name, self.files.keys()
        command.first = getattr(module, "FIRST", ())
        command.params += common_options()
        for option in command.params:
            if isinstance(option, TyperOption):
                option.envvar = environment_names(name, option) or None
                # the names follow one rule, which the main help states
                option.show_envvar = False
        return command

    def __contains__(self, name: object) -> bool:
        return name in self.files

    def __iter__(self) -> Iterator[str]:
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.files)

    def grouped(self) -> dict[str, list[str]]:
        """The names of commands and folders by the groups of the main help page."""
        first = self.below("")
        groups = {
            title: [name for name in names if name in first] for title, names in GROUPS.items()
        }
        grouped = {name for names in groups.values() for name in names}
        groups[_OTHER_COMMANDS] = [name for name in first if name not in grouped]
        return {title: names for title, names in groups.items() if names}

    def below(self, folder: str) -> list[str]:
        """Names of the commands and folders in a folder, which is empty or ends with a space."""
        names = [name.removeprefix(folder) for name in self.files if name.startswith(folder)]
        return list(dict.fromkeys(name.split()[0] for name in names))

    def help(self, name: str) -> str:
        """Read the first line of the docstring of a command or folder without importing it."""
        file = self.files.get(name)
        if file is None:
            inner = self.below(f"{name} ")[0]
            file = self.files[f"{name} {inner}"].with_name("__init__.py")
        with file.open(encoding="utf-8") as text:
            return text.readline().strip().strip('"')


def _as_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [value]


def _is_empty(option: TyperOption, value: Any) -> bool:
    """True for a value, or one of several, that contains no name and no text that may be empty."""
    texts = [text for text in _as_list(value) if type(text) is str]
    return option.metavar != _ANY_TEXT and any(not text.strip(", ") for text in texts)


def _value_error(ctx: Any, option: TyperOption, reason: str) -> UsageError:
    name = option.opts[0]
    hint = f"{name} {option.metavar or 'TEXT'}, see `{ctx.command_path} --help`"
    return UsageError(f"{name} expects a value, {reason}", hint=hint)


def _repeated_option_error(option: TyperOption, words: Sequence[str]) -> UsageError:
    """The error of an option with several values, which `words` contain."""
    texts = [text for name, text in pairwise(words) if name in option.opts]
    parts = [word.partition("=") for word in words]
    texts += [text for name, equals, text in parts if equals and name in option.opts]
    values = f": {' and '.join(map(shlex.quote, texts))}" if len(texts) > 1 else ""
    return UsageError(f"several values of {option.opts[0]}{values}", hint="remove all but one")


def _quoted_texts(value: Any, message: str) -> Iterator[str]:
    """The texts of an option of which a message quotes the whole, or a name in it."""
    for text in _as_list(value):
        if isinstance(text, str) and not isinstance(text, StrEnum):
            names = {text, *_SEPARATORS.split(text)}
            if any(name and repr(name) in message for name in names):
                yield text


def _source(ctx: Any, name: str | None) -> str:
    """Name of the source of an option's value."""
    return str(getattr(ctx.get_parameter_source(name), "name", ""))


def _configured_texts(ctx: Any, names: Iterable[str]) -> Iterator[str]:
    """The texts of those options whose values are from a configuration file."""
    for name in names:
        if _source(ctx, name) == _FROM_FILE:
            yield from (text for text in _as_list(ctx.params.get(name)) if isinstance(text, str))


def common_options() -> list[Any]:
    """The options of all commands: those that `FileCommand.invoke` reads, and two flags."""
    return [copy(option) for option in _common_options()]


@cache
def _common_options() -> tuple[Any, ...]:
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command()(_declare_shared_options)
    return (
        *get_command(app).params,
        _flag(
            "--debug",
            callback=lambda ctx, _, value: store_debug(ctx, value),
            help="Print a traceback on failure.",
        ),
        _flag("--no-config", help=NO_CONFIG_HELP),
    )


def _declare_shared_options(
    quiet: Quiet = False,
    verbose: Verbose = False,
    timeout: Timeout = None,
    max_memory: MaxMemory = None,
    max_nodes: MaxNodes = None,
    op_def: OpDef = None,
) -> None:
    """Declare the options that `FileCommand.invoke` reads."""


def _declare_ops(paths: Sequence[str]) -> None:
    """Declare the ops of files, before a graph is read."""
    importlib.import_module("cfgraph.ops")  # fills the registry
    op_defs = importlib.import_module("cfgraph.ir.serde.op_defs")
    for path in paths:
        op_defs.declare_ops_of_file(path)


def _peak_memory() -> str:
    """The largest memory of the process, where the system reports it."""
    if sys.platform == "win32":
        return ""
    unit = 1 if sys.platform == "darwin" else 1 << 10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return f", at most {format_byte_size(peak)} of memory"


def _examples_text(lines: Sequence[str]) -> str | None:
    if not lines:
        return None
    needs_files = any(".graph" in line or ".pb" in line for line in lines)
    title = f"Examples{' (`cfgraph examples .` writes the files)' * needs_files}:"
    return "\n".join(["\b", title, *(f"  {line}" for line in map(_continued, lines))])


def _continued(line: str) -> str:
    """Break a command line that is too long for a help page, before options and pipes."""
    rows = [""]
    for part in _BREAKS.split(line):
        if rows[-1] and len(rows[-1]) + len(part) > _MAX_EXAMPLE:
            rows.append("")
        rows[-1] += f" {part}" if rows[-1] else part
    return " \\\n      ".join(rows)


def store_debug(ctx: typer.Context, value: bool) -> None:
    """Remember `--debug` for the report of a failure."""
    if value:
        ctx.meta[DEBUG] = True


def _ignores_configuration(ctx: Any) -> bool:
    """True after `--no-config` before the command, and with $CFGRAPH_NO_CONFIG."""
    return bool(ctx.meta.get(_NO_CONFIG)) or os.environ.get("CFGRAPH_NO_CONFIG", "0") not in {
        "",
        "0",
    }


def store_no_config(ctx: typer.Context, value: bool) -> None:
    """Remember `--no-config` before a command."""
    if value:
        ctx.meta[_NO_CONFIG] = True


def _flag(name: str, **settings: Any) -> TyperOption:
    """An option of every command, which its function does not receive."""
    return TyperOption(
        param_decls=[name], is_flag=True, expose_value=False, is_eager=True, **settings
    )
