"""The page of the Python API: an entry per public name, with signature and summary."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any, Final

import cfgraph

# an entry of the page, in whose place the site has the whole documentation of the name
ENTRY: Final = re.compile(r"^### (\w+)\n(?:(?!#).*\n)*", flags=re.MULTILINE)
_COLUMNS: Final = 88


def as_markdown(page: str) -> str:
    """The page with current entries, in its order."""
    return ENTRY.sub(lambda match: "\n".join([*_entry(match[1]), "", ""]), page).rstrip() + "\n"


def _entry(name: str) -> Iterator[str]:
    value = getattr(cfgraph, name)
    yield f"### {name}"
    yield ""
    yield from ("```py", _signature(name, value), "```", "")
    yield _summary(value)
    members = [*_members(value)] if inspect.isclass(value) else []
    if members:
        yield ""
        yield from members


def _summary(value: Any) -> str:
    """The first line of a docstring, and the rest of its sentence."""
    # not `inspect.getdoc`, which finds documentation of other packages in base classes
    first, _, rest = inspect.cleandoc(value.__doc__ or "").partition("\n\n")[0].partition("\n")
    return first if first.endswith(".") else re.sub(r"(?<=\.)\s.*", "", f"{first} {rest}".strip())


def _signature(name: str, value: Any) -> str:
    """Names and defaults of parameters, one per line if they are many."""
    parameters = [
        param.replace(annotation=param.empty)
        for param in inspect.signature(value).parameters.values()
        if not param.name.startswith("_")
    ]
    if is_dataclass(value):
        parameters = [param.replace(default=param.empty) for param in parameters]
    plain = inspect.Signature(parameters)
    line = f"{name}{plain}".replace("'", '"')
    if len(line) <= _COLUMNS:
        return line
    parts = re.split(r", (?=\*|\w+(?:=|,|\)))", line[len(name) + 1 : -1])
    return "\n".join([f"{name}(", *(f"    {part}," for part in parts), ")"])


def _members(value: type) -> Iterator[str]:
    """The public methods and properties that cfgraph defines; of errors, those of the first."""
    if issubclass(value, cfgraph.CfgraphError) and value is not cfgraph.CfgraphError:
        return
    own = {
        name
        for base in value.__mro__
        if base.__module__.startswith("cfgraph")
        for name in vars(base)
    }
    for name, member in inspect.getmembers(value):
        if name.startswith("_") or name not in own or not _summary(member):
            continue
        if inspect.isroutine(member) or isinstance(member, property):
            call = "" if isinstance(member, property) else "()"
            yield f"- `{name}{call}`: {_summary(member)}"
