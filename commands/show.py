"""Summarize a graph and suggest the next command."""

from __future__ import annotations

from typing import Annotated

import typer

from cfgraph.cli.options import Color, ColorChoice, Filter, Full, Graph, Html, Json, ModelExplorer


def main(
    graph: Graph,
    node: Annotated[
        str | None, typer.Option("--node", metavar="NAME", help="Describe one node.")
    ] = None,
    loop: Annotated[
        str | None,
        typer.Option(
            "--loop", metavar="NAME", help="Show one loop: its variables and nodes, or its page."
        ),
    ] = None,
    filter: Filter = [],
    nodes: Annotated[bool, typer.Option("--nodes", help="List the nodes.")] = False,
    ops: Annotated[bool, typer.Option("--ops", help="Count nodes per op.")] = False,
    frames: Annotated[bool, typer.Option("--frames", help="List the loops.")] = False,
    functions: Annotated[bool, typer.Option("--functions", help="List the functions.")] = False,
    devices: Annotated[bool, typer.Option("--devices", help="Count nodes per device.")] = False,
    modules: Annotated[
        bool, typer.Option("--modules", help="Read StableHLO modules, and list their functions.")
    ] = False,
    deadness: Annotated[
        bool, typer.Option("--deadness", help="Show the liveness condition of each node.")
    ] = False,
    format: Annotated[
        str,
        typer.Option("--format", metavar="FORMAT", help="Output format: text, json, tsv or dot."),
    ] = "text",
    html: Html = None,
    svg: Annotated[
        str | None, typer.Option("--svg", metavar="FILE", help="Draw the graph with Graphviz.")
    ] = None,
    model_explorer: ModelExplorer = None,
    full: Full = False,
    json: Json = False,
    color: ColorChoice = Color.auto,
) -> None:
    """Summarize a graph and suggest the next command."""
    from cfgraph.console.show import SECTIONS, ShowOptions, show

    flags = (nodes, ops, frames, functions, devices, modules)
    sections = tuple(name for name, wanted in zip(SECTIONS, flags, strict=True) if wanted)
    format = "json" if json else format
    picture_files = None
    if html or svg:
        from cfgraph.console.picture.pages import PictureFiles

        picture_files = PictureFiles(html, svg, deadness)
    graph_file = None
    if model_explorer:
        from cfgraph.integrations.model_explorer.graph_json import ModelExplorerFile

        graph_file = ModelExplorerFile(model_explorer)
    request = ShowOptions(
        sections,
        node,
        tuple(filter),
        format,
        full,
        color,
        deadness,
        picture_files,
        graph_file,
        loop,
    )
    show(graph, request)
