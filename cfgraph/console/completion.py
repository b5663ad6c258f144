"""Replies to the requests of a shell for completion, which typer installs."""

from __future__ import annotations

from typing import Any, Final

from typer.completion import shell_complete

import cfgraph.ops  # noqa: F401 - fills the registry
from cfgraph.analysis.feeds_and_fetches import is_input
from cfgraph.console.graph_files import read_graph
from cfgraph.console.signatures import signature_names
from cfgraph.console.transforms.pass_pipeline import PASS_NAMES
from cfgraph.errors import CfgraphError
from cfgraph.extensions import engine_names
from cfgraph.passes.optimize.optimize import RULE_NAMES

# values of options, and options whose values are, or start with, names of nodes
_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "clock": ("real", "virtual"),
    "engine": engine_names(),
    "schedule": ("fifo", "random"),
    "gpu": ("real", "simulated"),
    "deadness": ("exact", "inputs", "off"),
    "unconnected": ("none", "zero"),
    "by": ("name", "structure"),
    "to": ("pb", "pbtxt", "graph"),
    "fail_level": ("error", "warning", "note"),
    "passes": PASS_NAMES,
    "only": RULE_NAMES,
    "skip": RULE_NAMES,
    "print_after": ("all", *PASS_NAMES),
}
_FORMATS: Final[dict[str, tuple[str, ...]]] = {
    "show": ("text", "json", "tsv", "dot"),
    "check": ("text", "json", "tsv", "github", "sarif", "junit", "markdown"),
    "diff": ("text", "json", "github", "sarif", "junit", "markdown"),
    "run": ("text", "json", "github", "sarif", "junit", "markdown"),
    "cluster": ("text", "json", "dot"),
}
_TENSORS: Final = ("fetch", "ys", "xs", "stop", "inputs", "outputs")
_NODES: Final = ("target", "init", "node", "tap", "subject", "target_node", "keep")
_VALUES: Final = ("feed", "expect", "out")
# options whose names may be those of the outputs of a signature
_OUTPUTS: Final = ("fetch", "expect", "out")
_MAX_OFFERED: Final = 200


def _offer_values(param: Any) -> None:
    """Let a parameter complete its values: choices, or names of the graph on the command line."""
    name = param.name
    if name == "format" or (name in _CHOICES and not hasattr(param.type, "choices")):
        param._custom_shell_complete = _complete_choice
    elif name in _TENSORS or name in _NODES or name in _VALUES:
        param._custom_shell_complete = _complete_node


def _complete_choice(ctx: Any, param: Any, incomplete: str) -> list[str]:
    known = _FORMATS.get(ctx.info_name, ()) if param.name == "format" else _CHOICES[param.name]
    return [value for value in known if value.startswith(incomplete)]


def _complete_node(ctx: Any, param: Any, incomplete: str) -> list[str]:
    """Offer names of the signature, and nodes, up to the next slash if there are many.

    Nothing for an unreadable graph.
    """
    # an option that still lacks its value leaves the arguments unparsed
    path = ctx.params.get("graph") or ctx.params.get("a") or next(iter(ctx.args), None)
    if not isinstance(path, str) or path == "-" or "=" in incomplete:
        return []
    try:
        source = read_graph(path, quiet=True)
        signature = signature_names(source, ctx.params.get("signature"))
    except CfgraphError:
        return []
    suffix = "=" if param.name in _VALUES else ""
    nodes = [node for node in source.graph if node.name.startswith(incomplete)]
    named = signature.outputs if param.name in _OUTPUTS else {}
    if param.name == "feed":
        nodes = [node for node in nodes if is_input(node)]
        named = signature.inputs
    if named and not incomplete:
        # bash sorts what it is offered: these would be somewhere among the nodes
        return [f"{name}{suffix}" for name in named]
    names = [*dict.fromkeys([*named, *(node.name for node in nodes)])]
    names = [name for name in names if name.startswith(incomplete)]
    if len(names) > _MAX_OFFERED:
        ends = (name.find("/", len(incomplete)) + 1 for name in names)
        shortened = (name[:end] if end else name for name, end in zip(names, ends, strict=True))
        names = [*dict.fromkeys(shortened)][:_MAX_OFFERED]
    return [f"{name}{'' if name.endswith('/') else suffix}" for name in names]


def complete(group: Any, variable: str, instruction: str) -> int:
    """Reply to a completion request, which is passed in environment variables."""
    get_command = group.get_command

    def command_with_values(ctx: Any, name: str) -> Any:
        command = get_command(ctx, name)
        for param in command.params if command is not None else ():
            _offer_values(param)
        return command

    group.get_command = command_with_values
    return shell_complete(group, {}, "cfgraph", variable, instruction)
