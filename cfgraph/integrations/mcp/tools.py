"""Tools: the commands that read, their parameters as JSON Schemas, and their command lines.

A parameter is an argument or option of the command, with its type and help; nothing is declared a
second time. The answer of a tool has the schema of the command's `--json` document.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cfgraph.cli.command_files import COMMANDS, CommandFiles
from cfgraph.cli.json_output import schema
from cfgraph.errors import UsageError
from cfgraph.integrations.mcp.roots import Roots
from cfgraph.ir.names import did_you_mean

_RUN: Final = ("feed", "feeds", "fetch", "target", "init", "signature", "variables")
_LOOPS: Final = "max_iterations"
# iterations of a loop, unless a call says otherwise
DEFAULT_MAX_ITERATIONS: Final = 100_000
# parameters that name files and folders
_FILES: Final = {"graph", "graphs", "a", "b", "variables", "feeds"}
_CODE: Final = {"type": "string", "pattern": r"^[Cc][Ff][Gg]\d+$", "description": "A code."}
# parameters that a tool requires, although its command does not
_REQUIRED: Final = ("b", "code")
_TYPES: Final = {"boolean": "boolean", "int": "integer", "float": "number"}


@dataclass(frozen=True, slots=True)
class Tool:
    """A command as a tool: its arguments in order, the options that it takes, and fixed ones.

    `writes_graph` is set for a command whose result is a graph, which the answer then contains.
    """

    name: str
    description: str
    arguments: tuple[str, ...]
    options: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    command: str = ""
    writes_graph: bool = False

    def command_line(self, values: Mapping[str, Any], roots: Roots) -> list[str]:
        """The command and its words for checked parameters.

        Raises UsageError for a file outside of the roots.
        """
        words = [*self.fixed]
        if _LOOPS in self.options and (values.get("run") or "run" not in self.options):
            values = {_LOOPS: DEFAULT_MAX_ITERATIONS, **values}
        for name, value in values.items():
            if name not in self.arguments:
                words += _option_words(name, _with_files(name, value, roots))
        positional = [
            str(item)
            for name in self.arguments
            if name in values
            for item in _as_list(_with_files(name, values[name], roots))
        ]
        return [self.command or self.name, *words, "--json", "--no-config", "--", *positional]

    def input_schema(self) -> dict[str, Any]:
        """The JSON Schema of the parameters."""
        parameters = {_key(item): item for item in _COMMANDS[self.command or self.name].params}
        names = (*self.arguments, *self.options)
        required = [name for name in names if name in _REQUIRED or parameters[name].required]
        return {
            "type": "object",
            "properties": {
                name: _CODE if name == "code" else _parameter_schema(parameters[name])
                for name in names
            },
            "required": required,
            "additionalProperties": False,
        }

    def output_schema(self) -> dict[str, Any]:
        """The JSON Schema of the answer: that of the command's document."""
        return {"type": "object", **schema(self.command or self.name)}


TOOLS: Final = (
    Tool(
        "show",
        "Summarize a graph: ops, loops, functions, devices, inputs, and outputs; or list or "
        "describe nodes.",
        ("graph",),
        ("node", "filter", "nodes", "ops", "frames", "functions", "devices", "deadness"),
    ),
    Tool(
        "check",
        "Find faults in graphs: each has a code, a node, and a hint.",
        ("graphs",),
        ("fetch", "select", "ignore"),
        ("--exit-zero",),
    ),
    Tool(
        "explain",
        "Explain when and how often a node runs, what limits a loop (its frame path), or how one "
        "node reaches another; with run or feeds, also what happened in a run.",
        ("graph", "subject", "target"),
        ("run", "feed", "feeds", "init", "signature", "variables", _LOOPS),
    ),
    Tool(
        "explain_code",
        "Explain an error code such as CFG201: the meaning, and what to do.",
        ("code",),
        command="explain",
    ),
    Tool(
        "diff",
        "Compare two graphs node by node; with run, by the values that they compute, with the "
        "first node that differs.",
        ("a", "b"),
        ("by", "ignore", "run", *_RUN, "cases", _LOOPS, "rtol", "atol"),
    ),
    Tool(
        "run",
        "Run a graph and return the fetched values. The graph can neither write files nor read "
        "outside of its own folder.",
        ("graph",),
        (*_RUN, _LOOPS, "seed"),
        ("--no-cache",),
    ),
    Tool(
        "extract",
        "Extract the subgraph between tensors, or one iteration of a loop with its values, as "
        "text in the member `graph`.",
        ("graph",),
        ("outputs", "inputs", "iteration", "feed", "feeds", "init", "variables", _LOOPS),
        writes_graph=True,
    ),
    Tool(
        "cluster",
        "Report the clusters that XLA would compile, and for each other node why it is in none.",
        ("graph",),
        ("regions", "fetch", "only_ops", "exclude_ops", "what_if"),
        ("--explain",),
    ),
)
_COMMANDS: Final = CommandFiles(COMMANDS)


def find_tool(name: str) -> Tool:
    """The tool of a name. Raises UsageError for an unknown one."""
    for tool in TOOLS:
        if tool.name == name:
            return tool
    hint = did_you_mean(name, [tool.name for tool in TOOLS])
    raise UsageError(f"no tool {name!r}", hint=hint)


def _key(parameter: Any) -> str:
    """The name of a parameter: that of an argument, or the words of an option."""
    if parameter.param_type_name == "argument":
        return str(parameter.name)
    return str(parameter.opts[0]).lstrip("-").replace("-", "_")


def _parameter_schema(parameter: Any) -> dict[str, Any]:
    kind = "boolean" if getattr(parameter, "is_flag", False) else parameter.type.name.split()[0]
    value = {"type": _TYPES.get(kind, "string")}
    if getattr(parameter, "multiple", False) or parameter.nargs == -1:
        value = {"type": "array", "items": value}  # type: ignore[dict-item]
    return {**value, "description": parameter.help or ""}


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _with_files(name: str, value: Any, roots: Roots) -> Any:
    """A value in which files are paths below the roots."""
    if name == "feed":
        return [roots.require_no_file(text) for text in _as_list(value)]
    if name not in _FILES:
        return value
    paths = [roots.resolve(item) for item in _as_list(value)]
    return paths if isinstance(value, list) else paths[0]


def _option_words(name: str, value: Any) -> Iterator[str]:
    """An option as words that no value can break out of."""
    option = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        yield from [option] * value
        return
    for item in _as_list(value):
        yield f"{option}={item}"
