"""One page per command: its options, and its examples with their output."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import typer

from cfgraph.cli.command_files import COMMANDS, CommandFiles, FileCommand
from cfgraph.cli.command_line import app
from cfgraph.cli.configuration import table_name
from cfgraph.cli.help_examples import EXAMPLES
from cfgraph.cli.options import ADVANCED
from website.transcripts import Transcript, in_parallel, transcripts

_OWN_OPTION: Final = re.compile(r"(?<![\w-])--?\w[\w-]*")


def command_names() -> list[str]:
    """The commands in the order of `cfgraph --help`."""
    return list(CommandFiles(COMMANDS))


def command_pages() -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each page."""
    commands = CommandFiles(COMMANDS, EXAMPLES)
    yield "commands/index.md", _index(commands)
    examples = in_parallel(example_transcripts, commands)
    for name, shown in zip(commands, examples, strict=True):
        yield f"commands/{table_name(name)}.md", _page(name, commands, shown)


def example_transcripts(name: str) -> list[Transcript]:
    """Run the examples of a command, in their order."""
    return transcripts(EXAMPLES.get(name, ()))


def _index(commands: CommandFiles) -> str:
    rows = [
        f"| [`{name}`]({table_name(name)}.md) | {_escaped(commands.help(name))} |"
        for name in commands
    ]
    return "\n".join(
        [
            "# Commands",
            "",
            "`cfgraph COMMAND --help` prints the options of a command; `man cfgraph-COMMAND` is",
            "its manual page. [The command line by topic](../usage.md) explains what commands",
            "share, such as files, feeds, and [exit codes](../usage.md#exit-codes).",
            "",
            "| command | task |",
            "| --- | --- |",
            *rows,
            "",
        ]
    )


def _page(name: str, commands: CommandFiles, examples: Sequence[Transcript]) -> str:
    command = commands[name]
    ctx = typer.Context(command, info_name=name, **app.info.context_settings)
    usage = " ".join(["cfgraph", name, *command.collect_usage_pieces(ctx)])
    summary, _, rest = str(command.help).strip().partition("\n")
    parts = [
        f"---\ndescription: {_quoted(summary)}\n---\n",
        f"# cfgraph {name}\n",
        f"{_escaped(summary)}\n",
        f"{_escaped(rest.strip())}\n" if rest.strip() else "",
        f"```text\n{usage}\n```\n",
        *_examples(examples),
        *_option_sections(command, ctx),
        f"`cfgraph {name} --help` prints this page in short.\n",
    ]
    return "\n".join(part for part in parts if part)


def _examples(examples: Sequence[Transcript]) -> Iterator[str]:
    if examples:
        yield "## Examples\n"
    if any(".graph" in example.line or ".pb" in example.line for example in examples):
        yield "`cfgraph examples .` writes the graphs.\n"
    for example in examples:
        yield f"{example.as_markdown()}\n"


def _option_sections(command: FileCommand, ctx: typer.Context) -> Iterator[str]:
    for title, params in command.sections(ctx).items():
        yield f"## {'Advanced options' if title == ADVANCED else title}\n"
        for param in params:
            yield "\n".join(_definition(param, *param.get_help_record(ctx))) + "\n"


def _definition(param: Any, names: str, text: str) -> Iterable[str]:
    """A term with an anchor, and its description below it."""
    long = max(_OWN_OPTION.findall(names) or [str(param.name)], key=len)
    yield f'<a id="{long}"></a>`{names.strip()}`'
    description = re.sub(r" *\[required\]", "", " ".join(text.split()))
    yield f":   {_escaped(description) or 'Required.'}"


def _escaped(text: str) -> str:
    """Escape what Markdown reads as markup, outside of code between backquotes."""
    parts = text.split("`")
    plain = [re.sub(r"([\\*_\[\]<>|])", r"\\\1", part) for part in parts[::2]]
    parts[::2] = [part.replace("\\<", "&lt;").replace("\\>", "&gt;") for part in plain]
    return "`".join(parts)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
