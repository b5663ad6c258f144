"""Explain a node, a loop, a pair of nodes, or an error code."""

from __future__ import annotations

import os
import re
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from cfgraph.cli.options import Color, ColorChoice, Devices, Full, Json, node_data_option
from cfgraph.cli.transform_options import ExplainInputs

if TYPE_CHECKING:
    from cfgraph.analysis.findings import Code

GraphOrCode = Annotated[
    str,
    typer.Argument(
        metavar="GRAPH|CODE",
        help="Graph file, SavedModel folder or -; or an error code such as CFG201, or words of "
        "its title, such as race.",
        show_default=False,
    ),
]
Subject = Annotated[
    str | None,
    typer.Argument(
        metavar="[SUBJECT]",
        help="Node, tensor, FUNCTION/NODE, or frame path of a loop, such as /while_context.",
    ),
]
PairTarget = Annotated[
    str | None,
    typer.Argument(
        metavar="[NODE]",
        help="Explain how SUBJECT reaches NODE: frames, gradient and cluster.",
    ),
]
Run = Annotated[bool, typer.Option("--run", help="Also run the graph and report what SUBJECT did.")]
Source = Annotated[
    str | None,
    typer.Option(
        "--source",
        metavar="FILE.py",
        help="Name the line for SUBJECT in a file written by `convert --to py`.",
    ),
]


def main(
    graph: GraphOrCode,
    inputs: ExplainInputs,
    subject: Subject = None,
    target: PairTarget = None,
    run: Run = False,
    source: Source = None,
    devices: Devices = [],
    full: Full = False,
    json: Json = False,
    color: ColorChoice = Color.auto,
    node_data: Annotated[
        str | None, node_data_option("liveness class, or for a loop the critical cycle in ns")
    ] = None,
) -> None:
    """Explain a node, a loop, a pair of nodes, or an error code."""
    if node_data is not None:
        from cfgraph.integrations.model_explorer.explain_data import write_explain_data

        write_explain_data(graph, subject, node_data, json)
        if subject is None:
            return
    if subject is None:
        _explain_code(graph, json, color)
        return
    fed = inputs.replace(signature=None, allow_io=False, seed=None, max_iterations=None)
    is_run = run or fed.is_set
    if target is not None:
        from cfgraph.console.explanations.explain_pair import explain_pair

        explain_pair(
            graph,
            subject,
            target,
            signature=inputs.signature,
            ran=is_run,
            has_source=source is not None,
            json=json,
            color=color,
        )
        return
    from cfgraph.console.explanations.explain import explain_subject

    make_runs = None
    if is_run:
        from cfgraph.console.explanations.explain_run import ExplainedRuns

        make_runs = partial(ExplainedRuns, inputs=inputs, devices=devices)
    find_line = None
    if source is not None:
        from cfgraph.integrations.python_export.source_lines import find_source_line

        find_line = partial(find_source_line, source)
    explain_subject(
        graph, subject, inputs, make_runs, find_line=find_line, full=full, json=json, color=color
    )


def _explain_code(code: str, json: bool, color: Color) -> None:
    """Print the meaning of an error code and how to fix its cause; a text loads no NumPy."""
    from cfgraph.analysis.findings import find_code
    from cfgraph.cli.json_output import print_document
    from cfgraph.cli.output import page

    is_code = re.fullmatch(r"(?i)cfg\w*", code) is not None
    if not is_code and not os.path.exists(code) and _explain_message(code, json, color):
        return
    entry = find_code(code) if is_code else _code_about(code)
    if json:
        from cfgraph.console.explanations.answers import ExplainResult

        print_document(ExplainResult(entry))
        return
    out = page(color)
    out.heading(f"{entry.code}  {entry.title}", entry.level)
    out.paragraph(f"  {entry.explanation}")
    out.paragraph(f"  {entry.fix}", "green")


def _explain_message(message: str, json: bool, color: Color) -> bool:
    """Print the page about an error text of TensorFlow; False if there is none."""
    from cfgraph.analysis.message_pages import find_message_page
    from cfgraph.cli.json_output import print_document
    from cfgraph.cli.output import page

    found = find_message_page(message)
    if found is None:
        return False
    if json:
        from cfgraph.console.explanations.answers import ExplainResult

        print_document(ExplainResult(message=found))
        return True
    out = page(color)
    out.heading(found.title, found.page)
    out.line()
    for text, is_paragraph in found.blocks():
        (out.paragraph if is_paragraph else out.line)(text)
    return True


def _code_about(words: str) -> Code:
    """The only code about some words. Raises UsageError for another number, and for a file."""
    from cfgraph.analysis.findings import codes_about
    from cfgraph.errors import UsageError

    if words == "-" or os.path.exists(words):
        message = f"no node is named, and {words!r} is not an error code such as CFG201"
        raise UsageError(
            message, hint=f"to explain a node of a graph: cfgraph explain {words} NODE"
        )
    found = codes_about(words)
    if not found:
        message = f"{words!r} is neither a file nor an error code such as CFG201"
        raise UsageError(message, hint="to explain a node: cfgraph explain GRAPH NODE")
    if len(found) > 1:
        codes = "\n  ".join(f"{entry.code}  {entry.title}" for entry in found)
        message = f"no file is {words!r}, and several codes are about it"
        raise UsageError(message, hint=f"name one of them:\n  {codes}")
    return found[0]
