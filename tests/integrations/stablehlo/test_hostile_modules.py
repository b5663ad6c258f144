"""StableHLO modules that damage, end, or block the process that reads or runs them."""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path

import pytest

import cfgraph
from cfgraph.cli import command_line as cli
from cfgraph.errors import ExecutionError, Unsupported
from tests.integrations.stablehlo.programs import NAMES, recorded
from tests.integrations.stablehlo.test_calls import artifact

pytest.importorskip("jax", reason="needs the extra xla")

FOLDER = Path(__file__).parents[3] / "fixtures" / "robustness" / "stablehlo"
_CODE = re.compile(r"\b(CFG\d+)\b")
# exit status and code of a run of one file of each kind
KINDS = [
    ("hlo_mhlo_python_callback", 4, "CFG701"),
    ("hlo_mhlo_lapack_overflow", 4, "CFG701"),
    ("hlo_ext_mhlo_custom_call", 4, "CFG701"),
    ("hlo_ext_stablehlo_custom_call", 4, "CFG701"),
    ("hlo_mhlo_bitcast", 5, "CFG715"),
    ("hlo_bytes_sig11_354", 5, "CFG715"),
    pytest.param("hlo_bytes_hang_631", 5, "CFG715", marks=pytest.mark.slow),
    ("hlo_call_Qr_noarg", 5, "CFG705"),
    ("hlo_call_ProductOfElementaryHouseholderReflectors_same", 5, "CFG705"),
    ("hlo_call_Sharding_noarg", 5, "CFG705"),
    ("hlo_call_xla.sdy.ShardingGroup_noarg", 5, "CFG705"),
    ("hlo_main_decl", 5, "CFG705"),
    ("hlo_overflow2", 5, "CFG705"),
    ("hlo_iota_overflow", 5, "CFG705"),
    ("hlo_out_dim_overflow", 5, "CFG705"),
    ("hlo_pad_neg_huge", 5, "CFG705"),
]


@pytest.mark.parametrize(("name", "status", "code"), KINDS)
def test_a_run_of_a_hostile_module_is_an_error_with_a_code(
    name: str, status: int, code: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["run", str(FOLDER / f"{name}.pb"), "--fetch", "y"]) == status
    assert _CODE.findall(capfd.readouterr().err)[:1] == [code]


# seconds of processors, those of the child included, and bytes of the command
_SECONDS = 6
_BYTES = 400 << 20
_LINES = [
    ("show {}", {0}),
    ("check {}", {0}),
    ("show {} --modules", {0}),
    ("show {} --modules --timeout 3", {0, 6}),
    ("show {} --html out.html", {0}),
    ("show {} --html out.html --timeout 3", {0, 6}),
    ("explain {} y", {0}),
    ("explain {} y --timeout 3", {0, 6}),
    ("run {} --fetch y", {4, 5}),
    ("run {} --fetch y --timeout 3", {4, 5, 6}),
]


# in a small process of its own: the figure of memory includes that of the process that forks
_MEASURE = """
import json, os, sys
pid = os.posix_spawn(sys.executable, [sys.executable, *sys.argv[2:]], os.environ)
_, status, used = os.wait4(pid, 0)
figures = [os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, used.ru_maxrss]
with open(sys.argv[1], "w") as file:
    json.dump(figures, file)
"""


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.pb")), ids=lambda path: path.stem)
def test_each_command_ends_and_leaves_no_process(path: Path, tmp_path: Path) -> None:
    faults = []
    for line, statuses in _LINES:
        code, seconds, kibibytes, found = ending(line, path, tmp_path)
        if code not in statuses or seconds > _SECONDS or kibibytes << 10 > _BYTES or found:
            faults.append((line, code, seconds, kibibytes, found))
    assert faults == []


@pytest.mark.slow
def test_long_strings_of_a_module_take_no_memory_of_the_command(tmp_path: Path) -> None:
    path = tmp_path / "strings.pb"
    path.write_bytes(strings_module(1 << 20, 64))
    lines = ["show {} --modules", "explain {} y --full", "show {} --html out.html"]
    endings = [ending(line, path, tmp_path) for line in lines]
    assert [(code, found) for code, _, _, found in endings] == [(0, [])] * 3
    assert max(kibibytes for _, _, kibibytes, _ in endings) << 10 < _BYTES
    assert (tmp_path / "out.html").stat().st_size < 5 << 20


def strings_module(size: int, count: int) -> bytes:
    """A graph that calls a module with a note of this size at each of its operations."""
    note = f'{{note = "{"a" * size}"}} : tensor<4x4xf32>'
    lines = [f"%v{i + 1} = stablehlo.abs %v{i} {note}" for i in range(count)]
    body = "\n".join([f"%v0 = stablehlo.abs %a {note}", *lines])
    graph = cfgraph.load(FOLDER / "hlo_mhlo_bitcast.pb")
    module = artifact(f"{body} return %v{count} : tensor<4x4xf32>")
    graph.set_attr(graph["y"], "module", module)
    return cfgraph.dumps(graph)


def ending(line: str, path: Path, folder: Path) -> tuple[int, float, int, list[str]]:
    """Status, seconds, and kibibytes of a command and of its children, and those that it left."""
    mark, figures = uuid.uuid4().hex, folder / "figures.json"
    words = [str(path) if word == "{}" else word for word in shlex.split(line)]
    subprocess.run(
        [sys.executable, "-c", _MEASURE, str(figures), "-m", "cfgraph", *words],
        cwd=folder,
        env={**os.environ, "HOSTILE_MODULE_MARK": mark},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    return (*json.loads(figures.read_text(encoding="utf-8")), processes_with(mark))


def processes_with(mark: str) -> list[str]:
    """The processes that have a mark in their environment, after the system has ended them."""
    deadline = time.monotonic() + 20
    while found := [
        path.parent.name for path in Path("/proc").glob("[0-9]*/environ") if _has_mark(path, mark)
    ]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.01)
    return found


def _has_mark(path: Path, mark: str) -> bool:
    try:
        return mark.encode() in path.read_bytes()
    except OSError:
        return False


def mutant(data: bytes, seed: int) -> bytes:
    """A module with a few bytes changed, removed, or inserted."""
    numbers, mutated = random.Random(seed), bytearray(data)
    for _ in range(numbers.choice([1, 1, 1, 2, 4, 8])):
        place = numbers.randrange(len(mutated) if numbers.random() < 0.7 else 120)
        match numbers.randrange(4):
            case 0:
                mutated[place] ^= 1 << numbers.randrange(8)
            case 1:
                mutated[place] = numbers.choice([*range(256), 0, 1, 127, 128, 254, 255])
            case 2:
                del mutated[place : place + numbers.randrange(1, 4)]
            case 3:
                mutated[place:place] = bytes(numbers.choices(range(256), k=numbers.randrange(1, 4)))
    return bytes(mutated)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_mutated_modules_end_as_documented(
    seed: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    runs = recorded(tmp_path)
    path, faults = tmp_path / "mutant.pb", []
    for name in (NAMES[seed], NAMES[-1 - seed]):
        graph = cfgraph.load(tmp_path / name)
        cfgraph.lower(graph)
        (node,) = (node for node in graph if node.op == "XlaCallModule")
        data, recorded_feeds = node.attrs["module"], runs[name][0]["feeds"]
        feeds = {f"serving_default_{key}:0": value for key, value in recorded_feeds.items()}
        for number in range(20):
            graph.set_attr(node, "module", mutant(data, 1000 * seed + number))
            cfgraph.save(graph, path)
            status = cli.run(["show", str(path), "--modules"])
            if status:
                faults.append((name, number, status, capfd.readouterr().err))
            with suppress(Unsupported, ExecutionError):
                cfgraph.Session(graph).run(f"{node.name}:0", feeds)
    assert faults == []
