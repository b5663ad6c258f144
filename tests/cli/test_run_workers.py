"""`cfgraph run` on worker processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def eight(graphs: Path) -> Path:
    return graphs / "eight_devices.pb"


def test_a_loop_runs_on_worker_processes(command: Any, eight: Path) -> None:
    arguments = ["--feed", "n=7", "--fetch", "out0:0", "--fetch", "out7:0"]
    here = command("run", eight, "--devices", "cpu:0-7", *arguments)
    remote = command("run", eight, "--devices", "cpu:0-7", *arguments, "--workers", "2")
    assert (remote.code, remote.out, remote.err) == (0, here.out, here.err)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--lost-after", "3"], "--lost-after requires workers"),
        (["--spread", "hosts"], "--spread requires workers"),
        (["--workers", "2", "--spread", "hosts"], "--spread requires --ray"),
        (["--workers", "2", "--lost-after", "0"], "lost_after=0.0"),
        (["--ray", "local", "--spread", "racks"], "unknown spread 'racks'"),
        (["--workers", "9"], "9 workers need 9 devices"),
        (["--workers", "2", "--clock", "virtual"], "costs cannot be combined with workers"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    command: Any, eight: Path, options: list[str], message: str
) -> None:
    done = command("run", eight, "--devices", "cpu:0-7", *options)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
