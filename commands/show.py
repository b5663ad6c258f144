"""Show what is in a graph, and what to type next."""

from __future__ import annotations

from typing import Annotated

import typer

from cfgraph.options import Color, ColorChoice, Filter, Full, Graph, Html, Json


def main(
    graph: Graph,
    node: Annotated[
        str | None, typer.Option("--node", metavar="NAME", help="All about one node.")
    ] = None,
    filter: Filter = [],
    nodes: Annotated[bool, typer.Option("--nodes", help="List the nodes.")] = False,
    ops: Annotated[bool, typer.Option("--ops", help="Count the ops.")] = False,
    frames: Annotated[bool, typer.Option("--frames", help="List the loops.")] = False,
    functions: Annotated[bool, typer.Option("--functions", help="List the functions.")] = False,
    devices: Annotated[
        bool, typer.Option("--devices", help="Count the devices asked for.")
    ] = False,
    deadness: Annotated[
        bool, typer.Option("--deadness", help="Tell when each node runs, in colour where it can.")
    ] = False,
    format: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="text, json, tsv or dot.")
    ] = "text",
    html: Html = None,
    svg: Annotated[
        str | None, typer.Option("--svg", metavar="FILE", help="Draw it with Graphviz.")
    ] = None,
    full: Full = False,
    json: Json = False,
    color: ColorChoice = Color.auto,
) -> None:
    """Show what is in a graph, and what to type next."""
    from cfgraph.console.show import SECTIONS, ShowOptions, show

    asked = (nodes, ops, frames, functions, devices)
    sections = tuple(name for name, wanted in zip(SECTIONS, asked, strict=True) if wanted)
    format = "json" if json else format
    pictures = None
    if html or svg:
        from cfgraph.console.picture.show_pictures import PictureFiles

        pictures = PictureFiles(html, svg, deadness)
    asked_for = ShowOptions(sections, node, tuple(filter), format, full, color, deadness, pictures)
    show(graph, asked_for)
