"""The command group: find and run a command, and turn failures into messages and exit codes."""

from __future__ import annotations

import importlib
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import copy_context
from difflib import get_close_matches
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

from cfgraph.cli.command_files import (
    COMMANDS,
    COMMON,
    COMMON_NAMES,
    DEBUG,
    OPTIONS,
    PROGRESS,
    WATCHDOG,
    CommandFiles,
    common_options,
    store_debug,
    store_no_config,
)
from cfgraph.cli.configuration import CONFIGURATION_FILES, NO_CONFIG_HELP, options_of
from cfgraph.cli.environment import variable_that_sets
from cfgraph.cli.help_examples import EXAMPLES
from cfgraph.cli.json_output import (
    Document,
    document,
    partial_document,
    render_json,
    schema,
    start_document,
)
from cfgraph.cli.options import plain_message
from cfgraph.cli.output import wrapped_error
from cfgraph.cli.progress import ProgressLine
from cfgraph.cli.watchdog import Interruption, Watchdog
from cfgraph.errors import CfgraphError, ErrorReport, InvalidInput, Location, UsageError
from cfgraph.ir.printable import clean_lines
from cfgraph.limits import out_of_memory_error
from cfgraph.version import __version__

# late imports: only --debug prints a traceback

EXIT_CODES = """\b
Exit codes:
  0    success
  1    findings or differences
  2    wrong usage: invalid option, feed or name
  3    input missing, unreadable or invalid
  4    unsupported: no kernel, no gradient, no extra, or no --allow-io
  5    execution failed
  6    timeout
  70   bug in cfgraph
  129  terminal closed
  130  interrupted
  141  output pipe closed
  143  terminated

\b
Defaults: $CFGRAPH_COMMAND_OPTION ($CFGRAPH_RUN_ENGINE), then cfgraph.toml.
"""
PROGRAM = "cfgraph"
_BUG_EXIT_CODE = 70
_INTERRUPTED_EXIT_CODE = 130
_JSON = "cfgraph.json"
_EXTRA_ARGUMENTS = re.compile(r"Got unexpected extra argument\(s\) \((.*)\)", re.DOTALL)
# the environment variable of a completion request, and the module that answers it
_COMPLETE = "_CFGRAPH_COMPLETE"
_COMPLETION = "cfgraph.console.completion"


class CommandGroup(TyperGroup):
    """A group whose commands are files, and whose groups are folders of them."""

    def __init__(self, *, folder: str = "", **settings: Any) -> None:
        super().__init__(**settings)
        self.folder = folder
        self.files = CommandFiles(COMMANDS, EXAMPLES)
        self.commands = dict.fromkeys(self.files.below(folder))  # type: ignore[assignment]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options before the command."""
        ctx.meta[_JSON] = "--json" in args
        return super().parse_args(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> TyperCommand | CommandGroup | None:
        """Import one command, once; a `KeyError` in its file is a bug, not a missing name."""
        if cmd_name in self.commands and self.commands[cmd_name] is None:
            self.commands[cmd_name] = self._import(self.folder + cmd_name)
        return self.commands.get(cmd_name)  # type: ignore[return-value]

    def _import(self, name: str) -> TyperCommand | CommandGroup:
        if name in self.files:
            return self.files[name]
        return CommandGroup(
            folder=f"{name} ",
            name=name,
            help=self.files.help(name),
            no_args_is_help=True,
            rich_markup_mode=None,
        )

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """List the commands by groups, with the first line of each file, and then options."""
        groups = {"Commands": [*self.commands]} if self.folder else self.files.grouped()
        width = max(map(len, self.commands))
        for title, names in groups.items():
            with formatter.section(title):
                rows = [(f"{name:{width}}", self.files.help(self.folder + name)) for name in names]
                formatter.write_dl(rows)
        for title, params in self.sections(ctx).items():
            with formatter.section(title):
                formatter.write_dl([param.get_help_record(ctx) for param in params])

    def sections(self, ctx: Any) -> dict[str, list[Any]]:
        """The options before a command, and those that all commands have."""
        params = self.get_params(ctx)
        if self.folder:
            return {OPTIONS: params}
        own = [param for param in params if param.name not in COMMON_NAMES]
        return {OPTIONS: own, COMMON: [*common_options(), self.get_help_option(ctx)]}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command. Raises UsageError with a suggestion for an unknown name."""
        if args[0] not in self.commands:
            close = get_close_matches(args[0], self.commands, n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"see `{ctx.command_path} --help`"
            if args[0] == "help" and not self.folder:
                hint = f"write `{ctx.command_path} {' '.join([*args[1:2], '--help'])}`"
            if self.folder and not close:
                hint = f"add one of {', '.join(self.commands)} after `{ctx.command_path}`"
            raise UsageError(f"no such command: '{args[0]}'", hint=hint)
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name=PROGRAM,
    cls=CommandGroup,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EXIT_CODES,
)


def _print_version(ctx: typer.Context, value: bool) -> None:
    if value and ctx.meta.get(_JSON):
        versions = importlib.import_module("cfgraph.console.installation.doctor").versions()
        typer.echo(render_json(document("version", result=versions)))
        raise typer.Exit
    if value:
        typer.echo(f"cfgraph {__version__}")
        raise typer.Exit


def _print_schema(value: str | None) -> None:
    if value is not None:
        typer.echo(
            render_json(
                _configuration_schema()
                if value == CONFIGURATION_FILES[0]
                else schema(value, CONFIGURATION_FILES[:1])
            )
        )
        raise typer.Exit


def _configuration_schema() -> dict[str, Any]:
    module = importlib.import_module("cfgraph.cli.configuration_schema")
    found: dict[str, Any] = module.configuration_schema(CommandFiles(COMMANDS))
    return found


@app.callback()
def cfgraph(
    debug: Annotated[
        bool,
        typer.Option(
            "--debug",
            callback=store_debug,
            is_eager=True,
            help="Print a traceback on failure.",
        ),
    ] = False,
    no_config: Annotated[
        bool,
        typer.Option(
            "--no-config",
            callback=store_no_config,
            is_eager=True,
            help=NO_CONFIG_HELP,
        ),
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print --version as one JSON document.")
    ] = False,
    schema_of: Annotated[
        str | None,
        typer.Option(
            "--schema",
            metavar="COMMAND",
            callback=_print_schema,
            is_eager=True,
            help="Print the JSON Schema of a command's --json output, or of cfgraph.toml, "
            "and exit.",
        ),
    ] = None,
) -> None:
    """Inspect, check, transform, and run TensorFlow graphs with control flow.

    Start: cfgraph show FILE
    """
    if json:
        raise UsageError("--json follows the command", hint="cfgraph COMMAND --json")


def run(
    args: Sequence[str], watchdog: Watchdog | None = None, progress: ProgressLine | None = None
) -> int:
    """Run a command line and return its exit code; only a broken pipe propagates.

    `watchdog` enforces the limits of the command in its own process, and `progress` is its line on
    the terminal, which a quiet command ends.
    """
    if instruction := os.environ.get(_COMPLETE):
        complete = importlib.import_module(_COMPLETION).complete
        done: int = complete(get_command(app), _COMPLETE, instruction)
        return done
    return copy_context().run(_run, _commands(), args, watchdog, progress)


@cache
def _commands() -> Any:
    """The group of all commands, which takes longer to make than many commands run."""
    return get_command(app)


def run_function(function: Callable[..., None], args: Sequence[str], name: str) -> int:
    """Run a function with the arguments of a command line, as `run` does a command.

    The help calls it by `name`.
    """
    script = typer.Typer(
        add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
    )
    script.command()(function)
    return copy_context().run(_run, get_command(script), args, None, None, name)


def _run(
    group: Any,
    args: Sequence[str],
    watchdog: Watchdog | None,
    progress: ProgressLine | None,
    name: str = PROGRAM,
) -> int:
    ctx: Any = None
    start_document()
    try:
        ctx = group.make_context(name, list(args))
        ctx.meta[WATCHDOG] = watchdog
        ctx.meta[PROGRESS] = progress
        with ctx:
            group.invoke(ctx)
    except typer.Exit as request:
        if ctx is None and request.exit_code:
            hint = "run it in bash, zsh, fish, or powershell"
            return _report(UsageError("no completion for this shell", hint=hint), ctx, args)
        return request.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return _interrupted(Interruption(_INTERRUPTED_EXIT_CODE), _command(ctx), args)
    except Interruption as request:
        return _report_interruption(request, watchdog, ctx, args)
    except BrokenPipeError:
        raise
    except Exception as failure:
        # the interpreter replaces an interruption in some callbacks, such as __set_name__
        raised = watchdog.raised if watchdog is not None else None
        if raised is not None:
            return _report_interruption(raised, watchdog, ctx, args)
        return _report(failure, ctx, args, name)
    return 0


def _report_interruption(
    request: Interruption, watchdog: Watchdog | None, ctx: Any, args: Sequence[str]
) -> int:
    """Report an interruption unless the watchdog does; return the exit code."""
    if watchdog is not None and not watchdog.claim_report():
        return request.exit_code
    if request.error is not None:
        return _report(request.error, ctx, args)
    return _interrupted(request, _command(ctx), args)


def _report(failure: Exception, ctx: Any, args: Sequence[str], name: str = PROGRAM) -> int:
    """Report a failure on stderr and, with `--json`, also on stdout; return the exit code."""
    meta = ctx.meta if ctx is not None else {}
    if meta.get(DEBUG) or os.environ.get("CFGRAPH_DEBUG", "0") not in {"", "0"}:
        import traceback

        traceback.print_exception(failure)
    if type(failure).__name__ == "NoArgsIsHelpError":
        typer.echo(str(failure), err=True)
        return UsageError.exit_code
    error = _to_cfgraph_error(failure, name)
    code = error.exit_code if error else _BUG_EXIT_CODE
    for line in _error_lines(failure, error, args, name):
        typer.echo(wrapped_error(clean_lines(line)), err=True)
    if _wants_json(args):
        member = error.report() if error else _bug_report(failure)
        findings = error.findings if error else ()
        members: Any = partial_document()
        result = document(_command(ctx), **members, error=member, findings=findings, exit_code=code)
        typer.echo(render_json(result))
    return code


def _interrupted(request: Interruption, command: str, args: Sequence[str]) -> int:
    """Print where the work was, and with `--json` the document; return the exit code."""
    typer.echo(clean_lines(_interruption_line(request)), err=True)
    if _wants_json(args):
        members: Any = partial_document()
        typer.echo(render_json(_interruption_document(request, command, members)))
    return request.exit_code


def _interruption_line(request: Interruption) -> str:
    """The message of a signal, with the position of the work if it is known."""
    position = "" if request.position is None else f" {request.position}"
    return f"{_interruption_message(request)}{position}"


def _interruption_message(request: Interruption) -> str:
    return "interrupted" if request.exit_code == _INTERRUPTED_EXIT_CODE else "terminated"


def _interruption_document(
    request: Interruption, command: str, members: Mapping[str, Any]
) -> Document:
    position = request.position
    where = Location() if position is None else Location(None, position.node, position.frame)
    error = ErrorReport(None, "Interrupted", _interruption_message(request), None, where)
    if request.error is not None:
        error = request.error.report()
    return document(command, **members, error=error, exit_code=request.exit_code)


def interruption_reporter(args: Sequence[str]) -> Callable[[Interruption], None]:
    """A function that reports an interruption while the main thread is stuck, without buffers."""

    def report(request: Interruption) -> None:
        if request.error is not None:
            lines = [clean_lines(line) for line in _error_lines(request.error, request.error, args)]
            os.write(2, "".join(f"{line}\n" for line in lines).encode())
        else:
            os.write(2, f"{clean_lines(_interruption_line(request))}\n".encode())
        if _wants_json(args):
            command = next((arg for arg in args if not arg.startswith("-")), "error")
            os.write(1, f"{render_json(_interruption_document(request, command, {}))}\n".encode())

    return report


def _command(ctx: Any) -> str:
    return (ctx.invoked_subcommand if ctx is not None else None) or "error"


def _to_cfgraph_error(failure: Exception, name: str) -> CfgraphError | None:
    """Return a failure as a CfgraphError, or None for a bug."""
    if isinstance(failure, CfgraphError):
        return failure
    if isinstance(failure, OSError):
        reason = failure.strerror or str(failure)
        return InvalidInput(reason, path=failure.filename)
    if isinstance(failure, MemoryError):
        return out_of_memory_error()
    if hasattr(failure, "format_message"):  # typer's own: wrong options and arguments
        return _usage_error(failure, name)
    return None


def _usage_error(failure: Any, program: str) -> UsageError:
    ctx = getattr(failure, "ctx", None)
    extra = _EXTRA_ARGUMENTS.fullmatch(str(getattr(failure, "message", "")))
    if ctx is not None and extra is not None:
        return _extra_argument_error(ctx, extra[1])
    close = getattr(failure, "possibilities", None)
    hint = f"see `{ctx.command_path if ctx else program} --help`"
    param: Any = getattr(failure, "param", None)
    if type(failure).__name__ == "MissingParameter" and getattr(param, "metavar", None):
        description = re.split(r"[.:;](?:\s|$)", getattr(param, "help", None) or "")[0]
        name = f"{param.opts[0]} " if isinstance(param, TyperOption) else ""
        hint = f"{name}{param.metavar}: {description}; {hint}" if " " in description else hint
    if type(failure).__name__ == "NoSuchOption" and ctx is not None and _runs_command(ctx.command):
        hint = f"the command to run follows --: `{ctx.command_path} [OPTIONS] -- COMMAND`; {hint}"
    if close:
        hint = f"did you mean {' or '.join(close)}?"
    message = failure.message if close else failure.format_message()
    variable = _environment_variable(failure)
    if variable is not None:
        message = re.sub(r"^Invalid value for '.*?': ", f"${variable}: ", message)
    message = re.sub(r"\s*\n\s*", " ", plain_message(message))
    return UsageError(message[:1].lower() + message[1:].rstrip("."), hint=hint)


def _runs_command(command: Any) -> bool:
    """True for a command whose last argument is a command line, after `--`."""
    return any((param.metavar or "").startswith("[-- ") for param in command.params)


def _extra_argument_error(ctx: Any, words: str) -> UsageError:
    """An argument too many, with the option that it may be meant for."""
    suffixes = importlib.import_module("cfgraph.ir.file_io").GRAPH_SUFFIXES
    word, _, more = words.partition(" ")
    known = {name for option in options_of(ctx.command) for name in option.opts}
    is_graph = Path(word.removesuffix(".gz")).suffix in suffixes
    fitting = (
        ("-o", is_graph),
        ("--feed", "=" in word),
        ("--fetch", not is_graph),
        ("--node", not is_graph),
    )
    option = next((name for name, fits in fitting if fits and name in known), None)
    hint = f"see `{ctx.command_path} --help`"
    if option is not None:
        hint = f"{option} {shlex.quote(word)}, or {hint}"
    rest = f", followed by {more!r}" if more else ""
    return UsageError(f"unexpected argument {word!r}{rest}", hint=hint)


def _environment_variable(failure: Any) -> str | None:
    """Return the environment variable that a wrong value comes from."""
    param, ctx = getattr(failure, "param", None), getattr(failure, "ctx", None)
    if param is None or ctx is None:
        return None
    if ctx.get_parameter_source(param.name).name != "ENVIRONMENT":
        return None
    return variable_that_sets(param)


def _error_lines(
    failure: Exception, error: CfgraphError | None, args: Sequence[str], name: str = PROGRAM
) -> Iterator[str]:
    if error is None:
        yield f"error: this is a bug in cfgraph: {_bug_report(failure).message}"
        if name == PROGRAM:
            line = f"cfgraph doctor --bundle bug.zip -- {shlex.join(args)}"
            yield f"  hint: make a bug report: {line}"
            yield "  --debug prints a traceback"
        else:
            yield f"  hint: report it with {name}; CFGRAPH_DEBUG=1 prints a traceback"
        return
    yield f"error[{error.code}]: {error}" if error.code else f"error: {error}"
    for note in getattr(failure, "__notes__", ()):
        yield f"  {note}"


def _bug_report(failure: Exception) -> ErrorReport:
    message = " ".join(f"{type(failure).__name__}: {failure}".split())
    return ErrorReport(None, "Bug", message, None, Location())


def _wants_json(args: Sequence[str]) -> bool:
    """Find `--json` in the raw arguments, because errors in them are also reported as JSON."""
    options = list(args[: args.index("--")] if "--" in args else args)
    single = "--json" in options or "--format=json" in options
    return single or ("--format", "json") in pairwise(options)
