"""Calls of tools: each is a command in a process of its own, with limits on time and memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cfgraph.errors import CfgraphError, UsageError
from cfgraph.integrations.mcp.answers import bounded
from cfgraph.integrations.mcp.roots import Roots
from cfgraph.integrations.mcp.tools import Tool, find_tool

# the process enforces its own limits, and is ended if it does not
_GRACE_SECONDS: Final = 10
_MAX_DOCUMENT: Final = 256 << 20
_MAX_MESSAGE: Final = 2000
# of a text in the parameters: systems bound the words of a command line
_MAX_TEXT: Final = 64 << 10
_MAX_TEXTS: Final = 512 << 10
_PREFIX: Final = "CFGRAPH_"
# the command `cfgraph`, which ends as the other end of a pipe is closed
_COMMAND: Final = """
import runpy, sys
from cfgraph.processes.confinement import watch_parent
watch_parent(int(sys.argv.pop(1)))
runpy.run_module("cfgraph", run_name="__main__", alter_sys=True)
"""


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """The document of a call, and the message of its error or None."""

    document: dict[str, Any]
    error: str | None = None


class Lifeline:
    """A pipe whose closing, also by the end of this process, ends the process of a call."""

    def __init__(self) -> None:
        self.watched, self._open = os.pipe()

    def cut(self) -> None:
        """End the process of the call, and each that is started later."""
        if self._open >= 0:
            os.close(self._open)
            self._open = -1

    def __enter__(self) -> Lifeline:
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()
        os.close(self.watched)


@dataclass(frozen=True, slots=True)
class ToolRunner:
    """Runner of tools with the limits of a server."""

    roots: Roots
    seconds: float
    memory: str
    answer_bytes: int

    def call(self, name: str, arguments: Mapping[str, Any], lifeline: Lifeline) -> ToolAnswer:
        """The answer of a tool; an error has its code and hint in the message."""
        try:
            tool = find_tool(name)
            words = tool.command_line(self._checked(tool.input_schema(), arguments), self.roots)
            return self._call(tool, words, lifeline)
        except CfgraphError as error:
            return ToolAnswer({}, _error_text(error.to_json()))
        except OSError as error:
            message = f"error: a temporary file cannot be written: {error.strerror}"
            return ToolAnswer({}, f"{message}\nhint: $TMPDIR names a folder with more space")

    def _call(self, tool: Tool, words: list[str], lifeline: Lifeline) -> ToolAnswer:
        """The answer of a command."""
        with tempfile.TemporaryDirectory(prefix="cfgraph-") as folder:
            graph = Path(folder, "result.graph")
            options = [f"--timeout={self.seconds}", f"--max-memory={self.memory}"]
            if tool.writes_graph:
                options += [f"--output={graph}", "--to=graph"]
            document, message = self._run(
                [words[0], *options, *words[1:]], Path(folder, "out"), lifeline
            )
            if document is None:
                return ToolAnswer({}, message)
            if tool.writes_graph and graph.exists():
                document["artifacts"] = []
                document["graph"] = graph.read_text(encoding="utf-8")
        failed = document.get("error")
        answer = bounded(document, self.answer_bytes)
        return ToolAnswer(answer, _error_text(failed) if failed else None)

    def _checked(self, schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> Any:
        """The arguments, if they fit a schema. Raises CfgraphError otherwise."""
        import jsonschema

        try:
            jsonschema.validate(arguments, schema)
        except jsonschema.ValidationError as error:
            name = ".".join(map(str, error.absolute_path))
            message = f"{name}: {error.message}" if name else error.message
            raise CfgraphError(message[:_MAX_MESSAGE]) from None
        _require_words(arguments)
        return arguments

    def _run(
        self, words: list[str], output: Path, lifeline: Lifeline
    ) -> tuple[dict[str, Any] | None, str]:
        """The document of a command; without one, a message."""
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith(_PREFIX)
        }
        with output.open("w+b") as stream:
            try:
                done = subprocess.run(
                    [sys.executable, "-P", "-c", _COMMAND, str(lifeline.watched), *words],
                    pass_fds=[lifeline.watched],
                    stdin=subprocess.DEVNULL,
                    stdout=stream,
                    stderr=subprocess.PIPE,
                    env=environment,
                    timeout=self.seconds + _GRACE_SECONDS,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return None, f"the command was ended after {self.seconds} s"
            if stream.tell() > _MAX_DOCUMENT or os.fstat(stream.fileno()).st_size > _MAX_DOCUMENT:
                return None, "the answer is too large; ask for a part of it, such as one node"
            stream.seek(0)
            try:
                return json.loads(stream.read()), ""
            except ValueError:
                message = done.stderr.decode(errors="replace").strip()[-_MAX_MESSAGE:]
                return None, message or f"the command ended with status {done.returncode}"


def _require_words(arguments: Mapping[str, Any]) -> None:
    """Raise UsageError for a text that no command line can have."""
    sizes = []
    for name, value in arguments.items():
        for text in value if isinstance(value, list) else [value]:
            sizes.append(len(json.dumps(text)))
            if isinstance(text, str) and ("\0" in text or not _is_unicode(text)):
                raise UsageError(f"{name}: the text has a character that is not valid")
    if max(sizes, default=0) > _MAX_TEXT or sum(sizes) > _MAX_TEXTS:
        message = f"the parameters are too long, at most {_MAX_TEXT} bytes per text"
        hint = "pass large values as an .npz or .json file with the parameter feeds"
        raise UsageError(message, hint=hint)


def _is_unicode(text: str) -> bool:
    """False for a text with half of a surrogate pair, which has no encoding."""
    return not any("\ud800" <= sign <= "\udfff" for sign in text)


def _error_text(error: Mapping[str, Any]) -> str:
    """The message of an error, with its code, place, and hint."""
    code = f"[{error['code']}]" if error.get("code") else ""
    lines = [f"error{code}: {error['message']}"]
    lines += [f"at {', '.join(map(str, error['where'].values()))}"] if error.get("where") else []
    lines += [f"hint: {error['hint']}"] if error.get("hint") else []
    return "\n".join(lines)[:_MAX_MESSAGE]
