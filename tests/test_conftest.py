"""Tests that need a GPU fail if selected without one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cfgraph.backends.gpu import context
from tests import sampled
from tests.conftest import is_chosen, is_sweep, require_gpu, selects
from tests.shell import run


@pytest.mark.parametrize("expression", ["card", "card and not slow", "slow or card"])
def test_some_runs_request_a_gpu(expression: str) -> None:
    assert selects("card", expression)


@pytest.mark.parametrize("expression", ["", "slow", "not card", "not slow and not card", "cards"])
def test_most_runs_do_not(expression: str) -> None:
    assert not selects("card", expression)


@pytest.mark.parametrize(
    ("expression", "outcome"), [("card", pytest.fail.Exception), ("", pytest.skip.Exception)]
)
def test_a_run_that_requests_a_gpu_and_finds_none_fails(
    expression: str, outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(context, "has_gpu", lambda: False)
    monkeypatch.setattr(context, "gpu_context", context.gpu_context.__wrapped__)
    with pytest.raises(outcome, match="CUDA_VISIBLE_DEVICES is empty"):
        require_gpu(expression)


def test_one_of_three_tests_is_about_a_third_of_them() -> None:
    names = [f"tests/test_a.py::test_b[{number}]" for number in range(300)]
    assert all(is_chosen(name, 1) for name in names)
    chosen = [name for name in names if is_chosen(name, 3)]
    assert 80 < len(chosen) < 120
    assert chosen == [name for name in reversed(names) if is_chosen(name, 3)][::-1]


def test_every_test_is_chosen_in_one_of_seven_turns() -> None:
    for number in range(300):
        name = f"tests/test_a.py::test_b[{number}]"
        assert sum(is_chosen(name, 7, turn) for turn in range(20_000, 20_007)) == 1


@pytest.mark.parametrize("expression", ["slow", "card or slow", "slow and not card"])
def test_some_runs_are_a_sweep(expression: str) -> None:
    assert is_sweep(expression, sweep=False)
    assert is_sweep("", sweep=True)


@pytest.mark.parametrize("expression", ["", "not slow", "card and not slow", "slower"])
def test_most_runs_are_none(expression: str) -> None:
    assert not is_sweep(expression, sweep=False)


@pytest.mark.parametrize("case", ["1", 1])
def test_slow_cases_are_built_only_for_a_sweep(
    case: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = ["a", case, "c"]
    monkeypatch.setattr(sampled, "sweep", False)
    assert sampled.sampled(cases, 2) == ["a", "c"]
    monkeypatch.setattr(sampled, "sweep", True)
    first, slow, last = sampled.sampled(cases, 2)
    assert (first, last) == ("a", "c")
    assert slow.id == "1"
    assert [mark.name for mark in slow.marks] == ["slow"]


TESTS = """
import importlib.util
import sys
from pathlib import Path

import pytest

there = pytest.mark.skipif(importlib.util.find_spec("extra") is None, reason="extra is absent")

def test_plain():
    pass

@there
def test_extra():
    pass

@pytest.mark.interop
@pytest.mark.parametrize("case", range(3))
def test_against_extra(case):
    pytest.importorskip("extra")

@pytest.mark.slow
def test_slow():
    pass
"""


RANKED = """
import pytest

@pytest.mark.smallest
def test_small(request):
    assert request.node.get_closest_marker("xla")

def test_large():
    pass
"""


@pytest.mark.slow
def test_a_run_of_the_core_has_the_smallest_checks_of_backends_and_m_all_of_one(
    sandbox: Path,
) -> None:
    (sandbox / "tests" / "test_core.py").write_text("def test_core():\n    pass\n")
    backend = sandbox / "tests" / "backends" / "xla"
    backend.mkdir(parents=True)
    (backend / "test_xla.py").write_text(RANKED)
    (backend / "test_other.py").write_text("def test_other():\n    pass\n")
    assert outcome(sandbox).startswith("4 passed")
    assert outcome(sandbox, "--core").startswith("2 passed, 1 deselected")
    assert outcome(sandbox, "-m", "xla").startswith("3 passed")


@pytest.fixture
def sandbox(root: Path, tmp_path: Path) -> Path:
    """A folder whose tests have the options of these, without the extra `extra`."""
    (tmp_path / "tests").mkdir()
    for name in ("conftest.py", "sampled.py", "command_fixtures.py"):
        text = (root / "tests" / name).read_text()
        (tmp_path / "tests" / name).write_text(text.replace('"tensorflow"', '"extra"'))
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\npythonpath = .\nmarkers =\n slow\n interop\n smallest\n xla\n"
    )
    return tmp_path


def outcome(folder: Path, *more: str) -> str:
    """Run the tests of a folder; returns the last line of the output."""
    line = (sys.executable, "-m", "pytest", "--import-mode=importlib", "-q", *more)
    # other plugins take most of the time of so small a run
    done = run(line, folder, {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.slow
def test_a_run_of_what_was_skipped_runs_that_alone(sandbox: Path) -> None:
    (sandbox / "tests" / "test_some.py").write_text(TESTS)
    (sandbox / "tests" / "test_whole.py").write_text(
        "import pytest\npytest.importorskip('extra')\ndef test_whole(): pass"
    )

    assert outcome(sandbox, "-p", "xdist", "-n1").startswith("1 passed, 3 skipped")
    (sandbox / "extra.py").touch()
    assert outcome(sandbox, "--skipped").startswith("5 passed")
    (sandbox / "tests" / "test_long.py").write_text(
        "import pytest\npytestmark = [pytest.mark.slow]\ndef test_long(): pass"
    )
    assert outcome(sandbox).startswith("6 passed")
    assert outcome(sandbox, "--sweep").startswith("8 passed")
