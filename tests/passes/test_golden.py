from __future__ import annotations

from pathlib import Path

import pytest

import cfgraph
from cfgraph.analysis.verify.verify import require_valid
from tests.passes.golden_file import GoldenFile

FOLDER = Path(__file__).parents[2] / "fixtures" / "passes"
FILES = sorted(FOLDER.rglob("*.graph"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_pass_outputs_the_golden_graph(path: Path, update: bool) -> None:
    golden = GoldenFile.read(path)
    graph = golden.graph()
    golden.check_runs(graph)
    before = cfgraph.dumps(graph)
    changed = bool(golden.apply(graph))
    assert changed == (cfgraph.dumps(graph) != before)
    after = cfgraph.dumps(graph, "graph").decode()
    # the differing line says more than a run that deadlocks
    assert update or after == golden.after
    require_valid(graph)
    if golden.is_idempotent:
        assert not golden.apply(graph)
    assert cfgraph.dumps(graph, "graph").decode() == after
    golden.check_runs(graph)
    golden.check_all_ran(graph)
    if update:
        golden.write(after)


def test_every_golden_file_is_run() -> None:
    assert FILES
    assert [path.name for path in FILES if not GoldenFile.read(path).runs] == []
