"""JSON documents of commands: their envelope, strict rendering, and the published schemas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, Literal

from cfgraph.errors import ErrorReport, FindingReport, UsageError
from cfgraph.ir.names import did_you_mean
from cfgraph.ir.printable import clean_json
from cfgraph.reports import Count, DocumentResult, Maybe, Record, json_value
from cfgraph.version import __version__

# late imports: most commands print text


class InputFile(Record):
    """A file that a command has read."""

    path: str  #: A path, or - for standard input.
    format: Maybe[str] = None  #: pb, pbtxt, graph, …
    sha256: Maybe[str] = None  #: Of the bytes that were read.
    nodes: Maybe[Count] = None  #: The nodes of the graph, outside of functions.


class Artifact(Record):
    """A file that a command has written."""

    kind: str  #: graph, names, array, trace, …
    path: str
    sha256: str


class ToolVersion(Record):
    """The program that wrote a document."""

    name: Literal["cfgraph"]
    version: str


class Document(Record):
    """The output of a command."""

    schema: str  #: The command and the number of its schema, as in cfgraph.check/1.
    tool: ToolVersion
    inputs: Sequence[InputFile]  #: What was read.
    #: error where `error` says why; findings where the exit code is 1.
    status: Literal["ok", "findings", "error"]
    exit_code: int  #: The exit code of the process.
    summary: Record  #: A few numbers.
    #: What was found, with codes that `cfgraph explain` explains.
    findings: Sequence[FindingReport]
    result: Record  #: What the command computed; empty where it failed.
    artifacts: Sequence[Artifact]  #: The files that were written.
    #: Complete names of nodes of which the command line has the ends.
    names: Maybe[Mapping[str, str]]
    error: ErrorReport | None


def document(
    command: str,
    *,
    result: Record | None = None,
    inputs: Sequence[Any] = (),
    findings: Sequence[Any] = (),
    summary: Record | None = None,
    artifacts: Sequence[Artifact] = (),
    names: Iterable[tuple[str, str]] = (),
    error: ErrorReport | None = None,
    exit_code: int = 0,
) -> Document:
    """Return the output of a command in the envelope that all commands share."""
    return Document(
        f"cfgraph.{command}/1",
        ToolVersion("cfgraph", __version__),
        inputs,
        "error" if error else "findings" if exit_code == 1 else "ok",
        exit_code,
        summary or Record(),
        findings,
        result or Record(),
        artifacts,
        dict(names) or None,
        error,
    )


def render_json(value: Any) -> str:
    """Render a document as strict JSON: NaN, infinities and large integers become strings."""
    import json

    text = json.dumps(json_value(value), indent=2, ensure_ascii=False, allow_nan=False)
    return clean_json(text)


# inputs, artifacts, and completed names so far, for the document of a failed command
_PARTIAL_MEMBERS: Final[ContextVar[dict[str, list[Any]] | None]] = ContextVar("done", default=None)


def print_document(result: DocumentResult, **members: Any) -> None:
    """Print the JSON document of a command; `members` as in `document`."""
    names = partial_document().get("names", ())
    print(render_json(document(result.command, result=result, names=names, **members)))


def start_document() -> None:
    """Reset inputs and artifacts at the start of a command."""
    _PARTIAL_MEMBERS.set({"inputs": [], "artifacts": [], "names": []})


def add_member(kind: str, member: Any) -> None:
    """Record an input (`inputs`), a written file (`artifacts`), or a name and the complete one."""
    done = _PARTIAL_MEMBERS.get()
    if done is not None:
        done[kind].append(member)


def partial_document() -> dict[str, list[Any]]:
    """Return the recorded members of the document."""
    return _PARTIAL_MEMBERS.get() or {}


_ENVELOPE: Final = "envelope"
_SCHEMA_FOLDER: Final = Path(__file__).parent.parent / "schemas"


def schema(command: str, others: Iterable[str] = ()) -> dict[str, Any]:
    """Return the complete schema of a command's document; the envelope is among its `$defs`.

    Raises UsageError for an unknown command, with a hint that names `others`, too.
    """
    known = schema_names()
    if command not in known:
        known = [*known, *others]
        hint = did_you_mean(command, known) or f"use one of {', '.join(known)}"
        raise UsageError(f"unknown schema {command!r}", hint=hint)
    own, shared = _read_schema(command), _read_schema(_ENVELOPE)
    return {**own, "$defs": {**own.get("$defs", {}), _ENVELOPE: shared}}


def schema_names() -> list[str]:
    """Return the commands that have a schema."""
    return sorted(file.stem for file in _SCHEMA_FOLDER.glob("*.json") if file.stem != _ENVELOPE)


def _read_schema(name: str) -> dict[str, Any]:
    import json

    content: dict[str, Any] = json.loads((_SCHEMA_FOLDER / f"{name}.json").read_text("utf-8"))
    return content
