"""The page of the Python API, generated from signatures and docstrings."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from operator import attrgetter
from types import FunctionType
from typing import Any, Final

import cfgraph

_SECTIONS: Final = {
    "Files": ("load", "save", "loads", "dumps"),
    "Writing a graph": ("Builder", "Builder.cond", "Builder.while_loop", "Builder.function"),
    "The graph": ("Graph", "Graph.show", "Node", "Output"),
    "Passes": (
        "lower",
        "gradients",
        "place",
        "partition",
        "cluster",
        "extract",
        "optimize",
        "Pipeline",
        "Pipeline.run",
    ),
    "Runs": (
        "Session",
        "Session.run",
        "Session.timeline",
        "limited",
        "restore",
        "save_variables",
        "CostModel",
        "read_costs",
    ),
    "Several processes": ("Processes", "Ray", "Session.recover"),
    "Analysis": ("check", "diff"),
    "Errors": (
        "CfgraphError",
        "UsageError",
        "InvalidInput",
        "Unsupported",
        "ExecutionError",
        "WorkerLost",
        "RunTimeout",
    ),
}
# obtained from a graph, not constructed
_NOT_CONSTRUCTED: Final = (cfgraph.Node, cfgraph.Output)
_WIDE: Final = 96
_HEAD: Final = """\
# The Python API

The public names of `cfgraph`, with their docstrings. The [guide](guide.md) shows them in use.
"""


LISTED: Final = {name for names in _SECTIONS.values() for name in names if "." not in name}


def as_markdown() -> str:
    """The whole page."""
    parts = [_HEAD]
    for title, names in _SECTIONS.items():
        parts.append(f"## {title}\n")
        for name in names:
            parts.extend(_entry(f"cfgraph.{name}", attrgetter(name)(cfgraph)))
    return "\n".join(parts)


def _entry(name: str, thing: Any) -> Iterator[str]:
    yield f"### {name}\n"
    if callable(thing) and not _is_error(thing) and thing not in _NOT_CONSTRUCTED:
        yield f"```text\n{_call(name, thing)}\n```\n"
    yield f"{_text(thing)}\n"
    if inspect.isclass(thing) and not _is_error(thing):
        rows = list(_members(thing))
        if rows:
            yield "\n".join(rows) + "\n"


def _is_error(thing: Any) -> bool:
    return inspect.isclass(thing) and issubclass(thing, Exception)


def _text(thing: Any) -> str:
    return inspect.getdoc(thing) or ""


def _call(name: str, thing: Any) -> str:
    """The signature, in one line or with one argument per line."""
    signature = inspect.signature(thing)
    kinds = [item.kind for item in signature.parameters.values() if item.name != "self"]
    given = [_argument(item) for item in signature.parameters.values() if item.name != "self"]
    if inspect.Parameter.KEYWORD_ONLY in kinds:
        given.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    back = signature.return_annotation
    end = (
        "" if inspect.isclass(thing) or back in ("None", inspect.Signature.empty) else f" -> {back}"
    )
    line = f"{name}({', '.join(given)}){end}"
    if len(line) <= _WIDE:
        return line
    return f"{name}(\n" + "".join(f"    {item},\n" for item in given) + f"){end}"


def _argument(item: inspect.Parameter) -> str:
    mark = {item.VAR_POSITIONAL: "*", item.VAR_KEYWORD: "**"}.get(item.kind, "")
    said = "" if item.annotation in ("Any", item.empty) else f": {item.annotation}"
    default = "" if item.default is item.empty else f" = {item.default!r}"
    return f"{mark}{item.name}{said}{default}"


def _members(thing: type) -> Iterator[str]:
    """A line for each public method and property, with the first sentence about it."""
    for name, member in vars(thing).items():
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            yield f"- `.{name}`: {_first(member)}"
        elif isinstance(member, FunctionType):
            given = ", ".join(_short(member))
            yield f"- `.{name}({given})`: {_first(member)}"


def _short(member: FunctionType) -> Iterator[str]:
    for item in inspect.signature(member).parameters.values():
        if item.name == "self":
            continue
        mark = {item.VAR_POSITIONAL: "*", item.VAR_KEYWORD: "**"}.get(item.kind, "")
        yield f"{mark}{item.name}" + ("=…" if item.default is not item.empty else "")


def _first(thing: Any) -> str:
    """The first paragraph of a docstring."""
    return " ".join(_text(thing).partition("\n\n")[0].split())
