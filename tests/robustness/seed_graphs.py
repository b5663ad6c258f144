"""Small graphs of `fixtures/` that the fuzzer mutates, with feeds and names for its commands."""

from __future__ import annotations

import functools
import re
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import cfgraph
from cfgraph.errors import CfgraphError
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Graph
from cfgraph.ir.shapes import Shape
from cfgraph.proto import graph_pb2
from tests.conformance import recorded

FIXTURES = Path(__file__).parents[2] / "fixtures"
_MAX_BYTES = 4000
# of the recorded graphs, which are many and alike
_EVERY_RECORDED = 7
_UNKNOWN_SIZE = 2


@dataclass(frozen=True)
class SeedGraph:
    """A graph in its formats, with the feeds of its placeholders."""

    name: str
    data: bytes
    feeds: tuple[str, ...]
    nodes: tuple[str, ...]

    @functools.cached_property
    def proto(self) -> graph_pb2.GraphDef:
        return graph_pb2.GraphDef.FromString(self.data)

    @functools.cached_property
    def pbtxt(self) -> bytes:
        return cfgraph.dumps(cfgraph.loads(self.data), format="pbtxt")

    @functools.cached_property
    def text(self) -> bytes:
        return cfgraph.dumps(cfgraph.loads(self.data), format="graph")


@functools.cache
def seed_graphs() -> tuple[SeedGraph, ...]:
    """All graphs below `_MAX_BYTES`, in a fixed order."""
    found = dict[str, bytes]()
    for folder in ("graphs", "errors", "robustness", "hostile", "saved_model"):
        for path in sorted((FIXTURES / folder).rglob("*")):
            if path.suffix in {".pb", ".graph"}:
                found[f"{folder}/{path.name}"] = path.read_bytes()
    for path in sorted((FIXTURES / "passes").rglob("*.graph")):
        first, _, second = path.read_text(encoding="utf-8").partition("# expect\n")
        name = f"{path.parent.name}/{path.stem}"
        found[name], found[f"{name}/result"] = first.encode(), second.encode()
    for name in sorted(recorded.archive().namelist()):
        if name.endswith(".pb") and zlib.crc32(name.encode()) % _EVERY_RECORDED == 0:
            found[name] = recorded.archive().read(name)
    seeds = (_seed_graph(name, data) for name, data in found.items() if len(data) <= _MAX_BYTES)
    return tuple(seed for seed in seeds if seed is not None)


def _seed_graph(name: str, data: bytes) -> SeedGraph | None:
    try:
        graph = cfgraph.loads(data)
        data = cfgraph.dumps(graph)
    except CfgraphError:
        return None
    if len(data) > _MAX_BYTES:
        return None
    nodes = tuple(node.name for node in graph)
    return SeedGraph(name, data, tuple(_feeds(graph)), nodes) if nodes else None


def _feeds(graph: Graph) -> list[str]:
    """Options that feed each placeholder, with small values."""
    feeds = []
    for node in graph:
        dtype, shape = node.attrs.get("dtype"), node.attrs.get("shape")
        if node.op == "Placeholder" and isinstance(dtype, DType):
            sizes = shape.dims if isinstance(shape, Shape) and shape.dims is not None else ()
            array = np.full([_UNKNOWN_SIZE if size is None else size for size in sizes], 0)
            if array.size < 100:
                feeds.append(f"{node.name}={_literal(array.tolist(), dtype)}")
    return feeds


def _literal(value: object, dtype: DType) -> str:
    filler = {"bool": "true", "string": '"a"'}.get(dtype.name, "3")
    return re.sub("0", filler, str(value))
