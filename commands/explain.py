"""Explain a node, a loop, a pair of nodes, or an error code."""

from __future__ import annotations

import os
import re
from functools import partial
from typing import Annotated

import typer

from cfgraph.cli.options import Color, ColorChoice, Devices, Full, Json, node_data_option
from cfgraph.cli.transform_options import ExplainInputs

GraphOrCode = Annotated[
    str,
    typer.Argument(
        metavar="GRAPH|CODE",
        help="Graph file, SavedModel folder or -; or an error code such as CFG201.",
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
    from cfgraph.errors import UsageError

    if not re.fullmatch(r"(?i)cfg\w*", code):
        if not os.path.exists(code) and code != "-":
            message = f"{code!r} is neither a file nor an error code such as CFG201"
            raise UsageError(message, hint="to explain a node: cfgraph explain GRAPH NODE")
        hint = f"to explain a node of a graph: cfgraph explain {code} NODE"
        raise UsageError(
            f"no node is named, and {code!r} is not an error code such as CFG201", hint=hint
        )
    entry = find_code(code)
    if json:
        from cfgraph.console.explanations.answers import ExplainResult

        print_document(ExplainResult(entry))
        return
    out = page(color)
    out.heading(f"{entry.code}  {entry.title}", entry.level)
    out.paragraph(f"  {entry.explanation}")
    out.paragraph(f"  {entry.fix}", "green")
