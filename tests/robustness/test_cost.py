"""Growth of every command with graphs that are valid and large, and graphs that are deep.

Calls of functions are counted, which are the same in each run.
"""

from __future__ import annotations

import cProfile
from pathlib import Path

import pytest

from benchmarks import growth
from benchmarks.families import FAMILIES
from tests.sampled import sampled

_SIZE = 12
_FACTOR = 4
_LARGEST_EXPONENT = 1.3
_SUCCESS = {0, 1}
# what is quadratic, and why
_QUADRATIC = {
    ("grad", "nested_loops"): "the stack of each saved value passes through all outer loops",
    ("grad", "nested_whiles"): "the stack of each saved value passes through all outer loops",
    ("grad", "loops_in_conditionals"): "stacks pass through all outer loops",
    ("regions", "nested_loops"): "one analysis per level, up to 16 levels",
    ("regions", "nested_whiles"): "one analysis per level, up to 16 levels",
    ("regions", "nested_conditionals"): "one analysis per level, up to 16 levels",
    ("regions", "nested_ifs"): "one analysis per level, up to 16 levels",
    ("regions", "loops_in_conditionals"): "one analysis per level, up to 16 levels",
    ("run", "nested_loops"): "each loop ends with a dead iteration of all inner ones",
    ("run", "nested_whiles"): "each loop ends with a dead iteration of all inner ones",
    ("run", "loops_in_conditionals"): "each loop ends with a dead iteration of all inner ones",
}
_FAMILIES = list(FAMILIES)
_COMMANDS = list(growth.COMMANDS)
# every family is in a sample of each seven, with one command or two
_CASES = [
    pytest.param(command, family, id=f"{command}-{family}")
    for shift in range(len(_COMMANDS))
    for index, family in enumerate(_FAMILIES)
    for command in [_COMMANDS[(index + shift) % len(_COMMANDS)]]
]


def _calls(command: str, path: Path) -> int:
    profile = cProfile.Profile()
    profile.enable()
    status = growth.run(command, path)
    profile.disable()
    assert status in _SUCCESS
    return sum(entry.callcount for entry in profile.getstats())


@pytest.mark.parametrize(("command", "family"), sampled(_CASES, 7))
def test_calls_grow_with_the_size(command: str, family: str, tmp_path: Path) -> None:
    small, large = (growth.write(family, size, tmp_path) for size in (_SIZE, _FACTOR * _SIZE))
    # modules are imported, and caches filled
    growth.run(command, small)
    exponent = 2.3 if (command, family) in _QUADRATIC else _LARGEST_EXPONENT
    assert _calls(command, large) <= _FACTOR**exponent * _calls(command, small)


@pytest.mark.slow
@pytest.mark.parametrize("command", list(growth.COMMANDS))
def test_five_thousand_nested_conditionals_pass(command: str, tmp_path: Path) -> None:
    path = growth.write("nested_conditionals", 5000, tmp_path)
    assert growth.run(command, path) in _SUCCESS
