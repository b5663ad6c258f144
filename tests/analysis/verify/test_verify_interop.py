"""TensorFlow rejects what verification reports as an error, and loads what it accepts."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import cfgraph
from cfgraph.analysis.check import check, report_load_error
from cfgraph.analysis.findings import Finding
from tests.conformance import recorded

pytestmark = [pytest.mark.interop, pytest.mark.slow]

tf = pytest.importorskip("tensorflow", reason="needs the extra `interop`").compat.v1

# TensorFlow does not import these, cfgraph only warns
REFUSED_TOO = {"CFG101", "CFG112", "CFG117", "CFG303", "CFG401", "CFG402"}
# TensorFlow checks frames and functions when a session runs, not at import
LATER = ("CFG2", "CFG13")

Damage = Callable[[Any, Any, random.Random], None]


def drop_input(graph: Any, node: Any, draw: random.Random) -> None:
    if node.input:
        del node.input[draw.randrange(len(node.input))]


def repeat_input(graph: Any, node: Any, draw: random.Random) -> None:
    if node.input:
        node.input.insert(0, node.input[0])


def read_another_port(graph: Any, node: Any, draw: random.Random) -> None:
    if node.input and node.input[0][0] != "^":
        node.input[0] = node.input[0].partition(":")[0] + f":{draw.choice((1, 2, 7))}"


def read_another_node(graph: Any, node: Any, draw: random.Random) -> None:
    if node.input and node.input[0][0] != "^":
        node.input[0] = draw.choice(graph.node).name


def drop_attribute(graph: Any, node: Any, draw: random.Random) -> None:
    if node.attr:
        del node.attr[draw.choice(sorted(node.attr))]


def change_type(graph: Any, node: Any, draw: random.Random) -> None:
    types = [key for key, value in node.attr.items() if value.WhichOneof("value") == "type"]
    if types:
        node.attr[draw.choice(sorted(types))].type = draw.choice((1, 3, 7, 9, 10, 20))


def change_kind(graph: Any, node: Any, draw: random.Random) -> None:
    keys = [key for key in node.attr if not key.startswith("_")]
    if keys:
        node.attr[draw.choice(sorted(keys))].i = 3


def change_op(graph: Any, node: Any, draw: random.Random) -> None:
    node.op = draw.choice(("Neg", "Switch", "Merge", "Exit", "NoOp", "Const", "Frobnicate"))


def change_name(graph: Any, node: Any, draw: random.Random) -> None:
    node.name = draw.choice((node.name + " ", "-a", graph.node[0].name, f"{node.name}:1"))


DAMAGES: list[Damage] = [
    *(drop_input, repeat_input, read_another_port, read_another_node, drop_attribute),
    *(change_type, change_kind, change_op, change_name),
]


def graphs() -> list[str]:
    """Names of small recorded graphs without functions, in a fixed order."""
    entries = [
        info
        for info in recorded.archive().infolist()
        if info.filename.startswith("graphs/") and info.file_size < 6_000
    ]
    return sorted(info.filename for info in entries)


def is_opaque(node: Any) -> bool:
    """True for a handle; TensorFlow's shape functions follow its contents, cfgraph's do not."""
    return node.op.startswith("TensorList") or "Var" in node.op or "Empty" in node.op


def cfgraph_error(data: bytes) -> list[Finding]:
    try:
        found = check(cfgraph.loads(data, format="pb")).findings
    except cfgraph.InvalidInput as error:
        found = report_load_error(error).findings
    return [
        finding
        for finding in found
        if (finding.level == "error" or finding.code in REFUSED_TOO)
        and not finding.code.startswith(LATER)
    ]


def tensorflow_error(proto: Any) -> str | None:
    try:
        with tf.Graph().as_default():
            tf.import_graph_def(proto, name="")
    except Exception as error:
        return str(error)
    return None


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_damaged_graphs_are_refused_where_tensorflow_refuses_them(damage: Damage) -> None:
    draw = random.Random(damage.__name__)
    refused = 0
    for entry in draw.sample(graphs(), 40):
        proto = tf.GraphDef.FromString(recorded.archive().read(entry))
        if proto.library.function or not proto.node or any(map(is_opaque, proto.node)):
            continue
        node = draw.choice(proto.node)
        damage(proto, node, draw)
        mine, reason = cfgraph_error(proto.SerializeToString()), tensorflow_error(proto)
        assert bool(mine) == bool(reason), (entry, node.name, mine, reason)
        refused += bool(mine)
    assert refused
