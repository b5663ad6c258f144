"""Mutants parse, are drawn by seed, and leave the file as it was."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests import mutation

SOURCE = """
def larger(a: int, b: int) -> bool:
    if a > b and b >= 0:
        note(a)
        return not a == b
    return a + 1 in (b, 'ü')
"""


def test_every_kind_of_mutant_is_a_program(tmp_path: Path) -> None:
    path = tmp_path / "larger.py"
    path.write_text(SOURCE)
    source = path.read_bytes()
    mutants = list(mutation.mutants_of_file(path))
    changed = {mutant.apply(source).decode() for mutant in mutants}
    assert len(changed) == len(mutants)
    assert all(ast.dump(ast.parse(text)) != ast.dump(ast.parse(SOURCE)) for text in changed)
    assert {mutant.replacement for mutant in mutants} >= {
        "(a > b or b >= 0)",
        "(not (a > b and b >= 0))",
        "(a >= b)",
        "pass",
        "(a == b)",
        "(a - 1)",
        "2",
        "return None",
    }


def test_a_seed_draws_the_same_lines(tmp_path: Path) -> None:
    path = tmp_path / "larger.py"
    path.write_text(SOURCE)
    assert mutation.draw([tmp_path], 3, 3) == mutation.draw([path], 3, 3)
    assert len({mutant.line for mutant in mutation.draw([path], 0, 99)}) == 4


def test_a_caught_mutant_names_the_test_and_the_file_is_restored(tmp_path: Path) -> None:
    path = tmp_path / "value.py"
    path.write_text("VALUE = 1\n")
    test = tmp_path / "test_value.py"
    test.write_text(
        "from pathlib import Path\n"
        "def test_value():\n"
        f"    assert Path({str(path)!r}).read_text() == 'VALUE = 1\\n'\n"
    )
    (mutant,) = mutation.mutants_of_file(path)
    failure = mutation.first_failure(mutant, [f"--rootdir {tmp_path} -c /dev/null {test}"], 60)
    assert failure is not None
    assert failure.endswith("test_value.py::test_value")
    assert path.read_text() == "VALUE = 1\n"


def test_tests_that_fail_without_a_mutant_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    test = tmp_path / "test_path.py"
    # fails, as the first import path is the one that `python -m pytest` has
    test.write_text("import sys\ndef test_path():\n    assert sys.path[0] == ''\n")
    log = tmp_path / "log"
    stage = f"--rootdir {tmp_path} -c /dev/null --import-mode=importlib {test}"
    monkeypatch.setattr("sys.argv", ["mutation", "--tests", stage, "--log", str(log)])
    with pytest.raises(SystemExit, match=r"without a mutant: .*::test_path"):
        mutation.main()
    assert not log.exists()
