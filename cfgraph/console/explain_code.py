"""The `explain` command for an error code; loads neither numpy nor protobuf."""

from __future__ import annotations

import re
from dataclasses import asdict

from cfgraph.analysis.findings import find_code
from cfgraph.console.json_output import print_document
from cfgraph.console.output import page
from cfgraph.errors import UsageError
from cfgraph.options import Color


def explain_code(code: str, json: bool, color: Color) -> None:
    """Print the meaning of a code and how to fix its cause."""
    if not re.fullmatch(r"(?i)cfg\w*", code):
        hint = f"to explain a node of a graph: cfgraph explain {code} NODE"
        raise UsageError(
            f"no node is named, and {code!r} is not an error code such as CFG201", hint=hint
        )
    entry = find_code(code)
    if json:
        print_document("explain", result={"code": asdict(entry)})
        return
    out = page(color)
    out.heading(f"{entry.code}  {entry.title}", entry.level)
    out.line(f"  {entry.explanation}")
    out.line(f"  {entry.fix}", "green")
