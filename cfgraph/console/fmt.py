"""The `fmt` command: rewrite text graphs in canonical form."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from cfgraph.cli.json_output import print_document
from cfgraph.cli.output import note
from cfgraph.cli.transform_options import STDIN
from cfgraph.console.graph_files import artifact
from cfgraph.errors import InvalidInput, UsageError
from cfgraph.ir.file_io import StagedFiles, read_file, read_stream
from cfgraph.ir.files import located_error, text_format
from cfgraph.ir.serde.foreign_formats import foreign_format_error
from cfgraph.ir.text.formatter import format_text
from cfgraph.reports import Count, DocumentResult, Positive, Record


class FmtSummary(Record):
    """The numbers of files, and of those that changed."""

    files: Positive
    changed: Count


class FmtResult(DocumentResult, command="fmt", summary=FmtSummary):
    """The files that changed."""

    changed: Sequence[str]  #: Files that were changed, or with --check would be.


def format_files(paths: Sequence[str], check: bool, json: bool) -> int:
    """Format files in place, all of them or none; returns the exit code.

    With `check` nothing is written, and the code is 1 if a file would change. Standard input is
    written to standard output. Raises InvalidInput for a file that is not in the text format.
    """
    if STDIN in paths and (len(paths) > 1 or json):
        raise UsageError("standard input is formatted alone", hint="cfgraph fmt - < FILE.graph")
    texts = {path: _read(path) for path in paths}
    formatted = {path: _formatted(path, data) for path, data in texts.items()}
    changed = [path for path, data in formatted.items() if data != texts[path]]
    if paths == [STDIN] and not check:
        sys.stdout.buffer.write(formatted[STDIN])
        return 0
    if not check:
        with StagedFiles() as files:
            for path in changed:
                files.write(path, formatted[path])
    code = int(check and bool(changed))
    if json:
        _print_json(list(texts), changed, check, code)
        return code
    for path in changed:
        print(path)
    verb = "would change" if check else "changed"
    note(f"{len(changed)} of {len(texts)} file{'s' * (len(texts) != 1)} {verb}")
    return code


def _read(path: str) -> bytes:
    return read_stream(sys.stdin.buffer) if path == STDIN else read_file(path)


def _formatted(path: str, data: bytes) -> bytes:
    try:
        if not data:
            raise InvalidInput("the file is empty", code="CFG002")
        if text_format(data) != "graph":
            hint = f"cfgraph convert {path} -o FILE.graph"
            raise InvalidInput("the file is not a graph in the text format", hint=hint)
        return format_text(data)
    except InvalidInput as fault:
        error = foreign_format_error(data) or fault
        raise located_error(error, "standard input" if path == STDIN else path) from None


def _print_json(paths: Sequence[str], changed: Sequence[str], check: bool, code: int) -> None:
    print_document(
        FmtResult(changed),
        summary=FmtSummary(len(paths), len(changed)),
        artifacts=[] if check else [artifact("graph", path) for path in changed],
        exit_code=code,
    )
