"""Commands by name: one file each, imported on first access, with the options that all have."""

from __future__ import annotations

import importlib
import importlib.util
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperOption
from typer.main import get_command

from cfgraph.ir.units import parse_byte_size
from cfgraph.limits import limited
from cfgraph.options import MaxMemory, MaxNodes, Timeout
from cfgraph.watchdog import Watchdog

COMMANDS: Final = "cfgraph.commands"
# keys of the context's `meta`
DEBUG: Final = "cfgraph.debug"
WATCHDOG: Final = "cfgraph.watchdog"
# the parameters of all commands that are limits
_LIMITS: Final = ("timeout", "max_memory", "max_nodes")


class FileCommand(TyperCommand):
    """A command with limits, whose help lists rare options under a heading of their own."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command within its limits; the time since the start of the process counts."""
        timeout, max_memory, max_nodes = (ctx.params.pop(name) for name in _LIMITS)
        watchdog: Watchdog | None = ctx.meta.get(WATCHDOG)
        if timeout is not None and watchdog is not None:
            timeout = max(0.0, timeout - (time.monotonic() - watchdog.start_time))
        size = None if max_memory is None else parse_byte_size(max_memory)
        with limited(timeout=timeout, max_memory=size, max_nodes=max_nodes) as limits:
            if watchdog is not None:
                watchdog.set_limits(limits.deadline, limits.max_bytes)
            return super().invoke(ctx)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments, options, and the sections that options name."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is None:
                continue
            default = "Arguments" if param.param_type_name == "argument" else "Options"
            section = getattr(param, "rich_help_panel", None) or default
            sections.setdefault(section, []).append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class CommandFiles(Mapping[str, TyperCommand]):
    """Commands by name: one file each, imported on first access."""

    def __init__(self, package: str, examples: Mapping[str, Sequence[str]] | None = None) -> None:
        self.package = package
        self.examples = examples or {}
        spec = importlib.util.find_spec(package)
        folders = spec.submodule_search_locations if spec else None
        self.files = {
            file.stem.replace("_", "-"): file
            for folder in folders or ()
            for file in sorted(Path(folder).glob("[!_]*.py"))
        }

    def __getitem__(self, name: str) -> TyperCommand:
        module = importlib.import_module(f"{self.package}.{self.files[name].stem}")
        app = typer.Typer(
            add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
        )
        app.command(name, cls=FileCommand, epilog=_examples_text(self.examples.get(name, ())))(
            module.main
        )
        command = get_command(app)
        assert isinstance(command, TyperCommand)
        command.params += [*_limit_options(), _debug_option()]
        return command

    def __contains__(self, name: object) -> bool:
        return name in self.files

    def __iter__(self) -> Iterator[str]:
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.files)

    def help(self, name: str) -> str:
        """Read the first line of the command's docstring without importing the command."""
        with self.files[name].open(encoding="utf-8") as file:
            return file.readline().strip().strip('"')


def _limit_options() -> list[Any]:
    """The options of all commands that set limits."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command()(_declare_limits)
    options = get_command(app).params
    return [option for option in options if option.name in _LIMITS]


def _declare_limits(
    timeout: Timeout = None, max_memory: MaxMemory = None, max_nodes: MaxNodes = None
) -> None:
    """Declare the options that `FileCommand.invoke` reads."""


def _examples_text(lines: Sequence[str]) -> str | None:
    if not lines:
        return None
    needs_files = any(".graph" in line or ".pb" in line for line in lines)
    title = f"Examples{' (`cfgraph examples .` writes the files)' * needs_files}:"
    return "\n".join(["\b", title, *(f"  {line}" for line in lines)])


def store_debug(ctx: typer.Context, value: bool) -> None:
    """Remember `--debug` for the report of a failure."""
    if value:
        ctx.meta[DEBUG] = True


def _debug_option() -> TyperOption:
    return TyperOption(
        param_decls=["--debug"],
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=lambda ctx, _, value: store_debug(ctx, value),
        help="Print a traceback on failure.",
    )


def plain_message(message: str) -> str:
    """Simplify typer's messages about invalid numbers."""
    message = message.replace(" is not in the range x>=", " is less than ")
    message = re.sub(
        r" is not a valid int(?:eger)?(?: range)?\b", " is not a whole number", message
    )
    return re.sub(r" is not a valid float(?: range)?\b", " is not a number", message)
