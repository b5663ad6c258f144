"""Golden files of passes: the graph before, `# expect`, the graph after; and runs of it.

    # lower keep_calls=true
    # run x=1 y=[2,3] -> z=[3,5] ^init
    x = Placeholder() {dtype=float32, shape=[]}
    …
    # expect
    …

The first line names the pass and its options. Each `# run` feeds, fetches and compares on the graph
before and after the pass, before it only what is there already; the runs of one file share their
variables, which start with the values of the option `variables`. A dead fetch is `null`. A comment
that is no run is just that.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import cfgraph
from cfgraph.analysis.resource_handles import is_variable, variable_key
from cfgraph.ir.graph import Graph
from cfgraph.ir.node import split_tensor_name
from cfgraph.ops.families.resource_variables import VarHandleOp
from cfgraph.ops.families.variables import Variable
from cfgraph.ops.opdef.op import is_a
from cfgraph.runtime.engine.step import State
from cfgraph.runtime.session import Session

_EXPECT = "# expect\n"
# of random schedules
_SEEDS = 2
# passes that add nodes at every run
_ADDS = ("gradients",)


@dataclass(frozen=True)
class GoldenFile:
    """One golden file."""

    path: Path
    name: str
    options: dict[str, Any]
    runs: list[tuple[dict[str, Any], dict[str, Any]]]
    before: str
    after: str

    @classmethod
    def read(cls, path: Path) -> GoldenFile:
        """Read a golden file."""
        before, _, after = path.read_text(encoding="utf-8").partition(_EXPECT)
        lines = before.splitlines()
        name, *options = lines[0].removeprefix("# ").split()
        runs = [_run(line) for line in lines if line.startswith("# run ")]
        return cls(path, name, _pairs(options), runs, before, after)

    @property
    def is_idempotent(self) -> bool:
        """True if a second run of the pass is possible and changes nothing."""
        return self.name not in _ADDS and not {"functions", "values"} & {*self.options}

    def graph(self) -> Graph:
        """The graph before the pass."""
        return cfgraph.loads(self.before.encode(), "graph")

    def apply(self, graph: Graph) -> Any:
        """Apply the pass; its report."""
        return getattr(cfgraph, self.name)(graph, **self.options)

    def write(self, after: str) -> None:
        """Rewrite the half of the file that the pass outputs."""
        self.path.write_text(self.before + _EXPECT + after, encoding="utf-8")

    def check_runs(self, graph: Graph) -> None:
        """Compare the values of the runs with those in the file, as they are and in any order."""
        for options in ({}, *({"schedule": "random", "schedule_seed": n} for n in range(_SEEDS))):
            self._check_runs(graph, options)

    def _check_runs(self, graph: Graph, options: dict[str, Any]) -> None:
        state = self.initial_state(graph)
        for feeds, expected in self.runs:
            present = [name for name in expected if _node(name) in graph]
            fetches = [name for name in present if not name.startswith("^")]
            targets = [name[1:] for name in present if name.startswith("^")]
            if not present:
                continue
            values = Session(graph, state=state, soft_placement=True, **options).run(
                fetches,
                {
                    name: _fed(graph, name, value)
                    for name, value in feeds.items()
                    if _node(name) in graph
                },
                targets,
                allow_dead=None in (expected[name] for name in fetches),
            )
            values_by_name = {
                name: _plain(value) for name, value in zip(fetches, values, strict=True)
            }
            assert values_by_name == {name: expected[name] for name in fetches}

    def initial_state(self, graph: Graph) -> State:
        """The state before the runs: variables of the option of this name."""
        state, values = State(), self.options.get("variables", {})
        for node in filter(is_variable, graph):
            container, name = variable_key(node)
            if name in values:
                dtype, shape = node.attr("dtype"), node.attr("shape")
                value, resource = np.asarray(values[name], dtype.numpy), is_a(node, VarHandleOp)
                made = Variable(dtype, shape, name, value=value, resource=resource)
                state.get_or_make(container, name, lambda made=made: made)
        return state

    def check_all_ran(self, graph: Graph) -> None:
        """Check that all fetches of the runs are in the graph."""
        names = [name for _, expected in self.runs for name in expected]
        assert [name for name in names if _node(name) not in graph] == []


def _node(name: str) -> str:
    return split_tensor_name(name)[0]


def _pairs(words: list[str]) -> dict[str, Any]:
    pairs = (word.partition("=") for word in words)
    return {name: json.loads(value) if value else None for name, _, value in pairs}


def _run(line: str) -> tuple[dict[str, Any], dict[str, Any]]:
    feeds, _, expected = line.removeprefix("# run ").partition("->")
    return _pairs(feeds.split()), _pairs(expected.split())


def _fed(graph: Graph, name: str, value: Any) -> Any:
    dtype = graph.tensor(name).dtype
    assert dtype is not None
    return np.asarray(value, dtype.numpy)


def _plain(value: Any) -> Any:
    if value is None:
        return None
    array = np.asarray(value)
    if array.dtype == object:
        return json.loads(json.dumps(array.tolist(), default=bytes.decode))
    return array.tolist()
