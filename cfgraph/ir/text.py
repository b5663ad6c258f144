"""The readable form of a graph: one line a node, functions in blocks.

    versions producer=1882
    x = Placeholder() {dtype=float32, shape=[2,?]}
    z = Mul(x, y:1, ^c) {T=float32} @"/device:CPU:0"

    function double(x: float32) -> (z: float32) {
      two = Const() {dtype=float32, value=float32[]:2.0}
      mul = Mul(x, two:output:0) {T=float32}
      return z = mul:z:0
    }

A node's line may go on with its full type (`type product[tensor[float]]`).
It holds whatever a file can hold. What has no words is kept in base64: `raw"…"`. Nodes may stand
in any order, and `#` begins a comment. Type and count attributes that follow from a node's inputs
may be left out where the op is known; a node that really lacks them is marked `exact`.
"""

from __future__ import annotations

from cfgraph.ir.collector import without_collector
from cfgraph.ir.graph import Graph
from cfgraph.ir.text_parse import read_graph
from cfgraph.ir.text_print import lines_of


def print_graph(graph: Graph) -> str:
    """The readable form of a graph; equal graphs give equal texts."""
    with without_collector():
        return "".join([f"{line}\n" for line in lines_of(graph)])


def parse_graph(text: str) -> Graph:
    """The graph of a readable form.

    Raises InvalidInput, with line, column and what was expected, where the text is none, and with
    all findings where its nodes do not make a graph.
    """
    return read_graph(text)
