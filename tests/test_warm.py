"""A program that is forked from the server does what it does in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shell import run

LINES = [
    "cfgraph --version",
    "cfgraph run fixtures/graphs/counter.pb --feed n=3 --json | cfgraph show -",
    "cfgraph run nothing.pb",
    "cfgraph run fixtures/graphs/counter.pb --feed n=2000000000 --tap while/add | head -1",
    "cfgraph show fixtures/graphs/counter.pb --feed; echo $?",
    "FOLDER=x python -c 'import os, sys; print(os.environ[\"FOLDER\"], sys.argv[1:])' a 'b c'",
    "python -c 'import os; os.kill(os.getpid(), 15)'",
    "python -c 'import sys; sys.exit(7)'",
    "python -c 'import sys; sys.exit(\"words\")'",
    "python -c 'import os; os.kill(os.getpid(), 9)'",
    "echo 'print(len(open(0).read()), __name__)' > p.py; echo 12345 | python p.py",
    "cd fixtures/graphs; cfgraph show counter.pb > ../../out.txt; cd ../..; grep -c Merge out.txt",
]


@pytest.mark.parametrize("line", LINES)
def test_a_forked_program_does_what_a_started_one_does(
    line: str, root: Path, tmp_path: Path
) -> None:
    found = []
    for cold in (False, True):
        folder = tmp_path / str(cold)
        (folder / "fixtures").mkdir(parents=True)
        (folder / "fixtures" / "graphs").symlink_to(root / "fixtures" / "graphs")
        line = line.replace("../..", str(folder))
        done = run(["bash", "-o", "pipefail", "-c", line], folder, cold=cold)
        found.append((done.returncode, done.stdout, done.stderr))
    assert found[0] == found[1]
