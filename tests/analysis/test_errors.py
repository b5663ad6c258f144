"""Every finding of verification has a small graph in `fixtures/errors`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cfgraph.analysis.findings import catalog
from tests.analysis.graph_text import codes_and_nodes, findings

FOLDER = Path(__file__).parents[2] / "fixtures" / "errors"
FILES = sorted(FOLDER.glob("*.graph"))
# modules that analyze graphs; the codes of others are about files, values, and runs
SOURCES = ("cfgraph/analysis/**/*.py", "cfgraph/ir/graph.py", "cfgraph/ir/serde/tensor.py")
# no file can hold it: loading drops the second edge (tests/analysis/verify/test_verify.py has it)
IN_MEMORY = {"CFG116"}
# a graph that shows it is too large for a file (tests/analysis/test_check_liveness.py has it)
IN_MEMORY |= {"CFG222"}
# the unknown op is a finding, too (tests/robustness/test_refusals.py has it)
IN_MEMORY |= {"CFG135"}
# not about the graph: missing inputs of a run
OF_A_RUN = {"CFG036"}
# not about the graph: limits of gradients (tests/analysis/loops/test_regions.py covers it)
OF_A_GRADIENT = {"CFG503"}
EXPECT = re.compile(r"# expect (CFG\d{3}) ?(\S*)\n")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_file_gives_exactly_the_finding_that_it_shows(file: Path) -> None:
    text = file.read_text()
    expected = EXPECT.match(text)
    assert expected is not None
    code, node = expected.groups()
    assert codes_and_nodes(findings(text)) == [(code, node or None)]
    assert file.stem.startswith(code)


def test_each_finding_has_the_level_that_the_catalogue_says() -> None:
    found = [(file.stem, findings(file.read_text())) for file in FILES]
    levels = [(name, [finding.level for finding in listed]) for name, listed in found]
    assert levels == [
        (name, [catalog()[finding.code].level for finding in listed]) for name, listed in found
    ]
    assert {len(listed) for _, listed in found} == {1}


def test_every_code_of_a_graph_has_a_file(root: Path) -> None:
    sources = [file.read_text() for pattern in SOURCES for file in root.glob(pattern)]
    emitted = {code for source in sources for code in re.findall(r"\"(CFG[0-6]\d\d)\"", source)}
    shown = {file.stem[:6] for file in FILES}
    assert emitted - shown - IN_MEMORY - OF_A_RUN - OF_A_GRADIENT == set()
