"""`cfgraph grad` uses the custom gradients that a SavedModel contains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph

X = np.array([0.5, 1.2], np.float32)
W = np.array([2, 3], np.float32)
SIGNATURES = (
    "straight",
    "loop",
    "outer",
    "branch",
    "nested",
    "variable",
    "variable_loop",
    "recomputed",
    "recomputed_loop",
)
FEED = ("--feed", "x=[0.5, 1.2]")


@pytest.fixture
def model(fixtures: Path) -> Path:
    return fixtures / "saved_model_custom_gradients"


@pytest.fixture
def recorded(model: Path) -> Any:
    """Values of the program that wrote the model, by signature."""
    return json.loads((model / "values.json").read_text())


@pytest.mark.parametrize("signature", SIGNATURES)
def test_gradients_of_a_saved_model_are_those_of_the_program(
    signature: str, command: Any, model: Path, recorded: Any, tmp_path: Path
) -> None:
    names = ("--signature", signature, "--ys", "output_0", "--xs", "x,w")
    made = command("grad", model, *names, "-o", f"{tmp_path / 'out'}/")
    assert made.code == 0, made.err
    want = recorded[signature]
    expected = [f"output_0={want['y']}", f"gradients/x={want['dx']}"]
    if want["dw"] is not None:
        expected.append(f"gradients/w={want['dw']}")
    options = [option for text in expected for option in ("--expect", text)]
    done = command("run", tmp_path / "out", "--signature", signature, *FEED, *options)
    assert done.code == 0, done.err


def test_the_second_order_uses_custom_gradients_again(
    command: Any, model: Path, recorded: Any, tmp_path: Path
) -> None:
    out = f"{tmp_path / 'out'}/"
    names = ("--signature", "straight", "--ys", "output_0")
    assert command("grad", model, *names, "--order", "2", "-o", out).code == 0
    want = f"gradients_1/x={recorded['straight']['d2x']}"
    done = command("run", out, "--signature", "straight", *FEED, "--expect", want)
    assert done.code == 0, done.err


def test_a_graph_with_gradients_can_be_differentiated_again(
    command: Any, model: Path, recorded: Any, tmp_path: Path
) -> None:
    first, second = tmp_path / "first.pb", tmp_path / "second.pb"
    names = ("--signature", "straight", "--ys", "output_0")
    assert command("grad", model, *names, "-o", first).code == 0
    (x,) = [node.name for node in cfgraph.load(first) if node.name == "straight_x"]
    assert command("grad", first, "--ys", f"gradients/{x}", "--xs", x, "-o", second).code == 0
    want = f"gradients_1/{x}={recorded['straight']['d2x']}"
    done = command("run", second, "--feed", f"{x}=[0.5, 1.2]", "--expect", want)
    assert done.code == 0, done.err


def test_custom_gradients_may_be_ignored(command: Any, model: Path, tmp_path: Path) -> None:
    out = f"{tmp_path / 'out'}/"
    names = ("--signature", "straight", "--ys", "output_0", "--xs", "x")
    done = command("grad", model, *names, "--ignore-custom", "--check", "-o", out)
    assert (done.code, "custom gradients of 1 node ignored" in done.err) == (0, True), done.err
    slope = 2 * np.log(1 + np.exp(2 * X)) * 2 / (1 + np.exp(-2 * X))
    want = f"gradients/x={slope.tolist()}"
    assert command("run", out, "--signature", "straight", *FEED, "--expect", want).code == 0


def test_a_lowered_model_has_lost_what_its_custom_gradients_read(
    command: Any, model: Path, tmp_path: Path
) -> None:
    lowered = tmp_path / "lowered.pb"
    assert command("lower", model, "-o", lowered).code == 0
    (y,) = [n.name for n in cfgraph.load(lowered) if n.name.endswith("straight")] or [
        "PartitionedCall"
    ]
    done = command("grad", lowered, "--ys", y)
    assert (done.code, "tensors which the file does not name" in done.err) == (4, True), done.err
    assert "add gradients to the SavedModel itself" in done.err


def test_recomputed_gradients_have_no_second_order(command: Any, model: Path) -> None:
    names = ("--signature", "recomputed", "--ys", "output_0", "--order", "2")
    done = command("grad", model, *names)
    assert (done.code, "CFG507" in done.err, "--ignore-custom" in done.err) == (4, True, True)


def test_the_library_differentiates_a_saved_model(model: Path, recorded: Any) -> None:
    graph = cfgraph.load(model)
    (y,) = [node for node in graph if node.inputs and node.inputs[0].node.name == "loop_x"]
    (dx,) = cfgraph.gradients(graph, [f"{y.name}:0"], ["loop_x:0"])
    (value,) = cfgraph.Session(graph).run([dx], {"loop_x:0": X})
    np.testing.assert_allclose(value, recorded["loop"]["dx"], rtol=1e-5)
