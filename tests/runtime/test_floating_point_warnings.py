"""NumPy's warnings of floating-point errors do not reach the user."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.cli import command_line as cli
from cfgraph.ir.graph import Graph

FETCHES = ["log", "ratio", "cast", "wide", "root"]


def graph() -> Graph:
    """Constants and an input whose results are infinite, NaN, or out of range."""
    b = cfgraph.Builder()
    x, zero = b.placeholder("x", "float32", [2]), b.const([0.0, -1.0])
    log = b.Log(zero, name="log")
    ratio = b.RealDiv(log, zero, name="ratio")
    b.Cast(ratio, DstT="int32", name="cast")
    b.Cast(b.Mul(x, b.const([1e30, 1e30])), DstT="float16", name="wide")
    b.Sqrt(b.AddV2(x, zero), name="root")
    return b.graph


def run(**options: Any) -> Callable[[], object]:
    session = cfgraph.Session(graph(), **options)
    return lambda: [session.run(FETCHES, {"x": [-3, np.inf]}) for _ in range(2)]


def gradients() -> None:
    made = graph()
    names = cfgraph.gradients(made, ["root:0"], ["x:0"])
    cfgraph.Session(made).run(names, {"x": [1.0, 0.0]})


def optimize() -> None:
    made = graph()
    cfgraph.optimize(made, fetches=FETCHES)
    cfgraph.check(made)


def convert() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "g.pb"
        cfgraph.save(graph(), path)
        line = ["convert", str(path), "-o", f"{folder}/g.py", *(f"--fetch={x}" for x in FETCHES)]
        assert cli.run([*line, "--feed", "x"]) == 0


def commands() -> None:
    """Commands that compute with results: statistics, differences, and finite differences."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/g.pb"
        cfgraph.save(graph(), path)
        feed = ["--feed", "x=[-3, Infinity]"]
        fetches = [f"--fetch={x}" for x in FETCHES]
        for line in (
            ["run", path, *feed, *fetches, "--tap", "*", "--tap-nonfinite"],
            ["run", path, *feed, "--fetch", "wide", "--expect", "wide=[1, 2]"],
            ["diff", path, path, "--run", *feed, *fetches],
            ["grad", path, "--ys", "root", "--xs", "x", "--check", *feed, "-o", f"{folder}/o.pb"],
            ["optimize", path, "--verify", *feed, *fetches, "-o", f"{folder}/o.pb"],
        ):
            assert cli.run(line) in (0, 1, 5), line


WAYS: dict[str, Callable[[], object]] = {
    "auto": run(),
    "tokens": run(engine="tokens"),
    "compiled": run(engine="compiled"),
    "two devices": run(devices="cpu:0-1"),
    "gradients": gradients,
    "optimize": optimize,
    "python": convert,
    "commands": commands,
}


@pytest.mark.parametrize("way", WAYS)
def test_no_warning_reaches_the_user(way: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        WAYS[way]()
    assert [str(item.message) for item in caught] == []
