"""`cfgraph grad --jacobian`, `--hessian`, `--jvp`, and `--hvp`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph


@pytest.fixture
def folder(fixtures: Path) -> Path:
    return fixtures / "jacobians"


@pytest.fixture
def recorded(folder: Path) -> Any:
    with np.load(folder / "values.npz") as values:
        return dict(values)


@pytest.fixture
def feeds(recorded: Any) -> list[str]:
    pairs = [("x", recorded["x"]), ("w", recorded["w"])]
    return [text for name, value in pairs for text in ("--feed", f"{name}={value.tolist()}")]


def expected(name: str, value: Any) -> tuple[str, str]:
    return "--expect", f"{name}={value.tolist()}"


def test_jacobians_are_added_under_the_names_of_y_and_x(
    command: Any, folder: Path, feeds: Any, recorded: Any
) -> None:
    made = command("grad", folder / "recurrent.pb", "--jacobian", "--ys", "Identity", "--xs", "x,w")
    assert made.code == 0, made.err
    assert "jacobian of Identity:0" in made.err
    assert "float32[?,3,3,3]" in made.err
    options = (
        *expected("jacobian/Identity/x", recorded["recurrent.jx"]),
        *expected("jacobian/Identity/w", recorded["recurrent.jw"]),
    )
    done = command("run", "-", *feeds, *options, stdin=made.data)
    assert done.code == 0, done.err


def test_hessians_are_added_for_each_pair_of_xs(
    command: Any,
    folder: Path,
    feeds: Any,
    recorded: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    line = ("grad", folder / "softmax.pb", "--hessian", "--ys", "Identity")
    made = command(*line, "--json", "-o", "h.pb")
    pairs = [(row["y"], row["x"]) for row in made.json["result"]["gradients"]]
    assert pairs == [("x:0", "x:0"), ("x:0", "w:0"), ("w:0", "x:0"), ("w:0", "w:0")]
    made = command(*line)
    done = command(
        "run", "-", *feeds, *expected("hessian/x/w", recorded["softmax.hw"]), stdin=made.data
    )
    assert done.code == 0, done.err


def test_products_take_tensors_and_values(
    command: Any, folder: Path, feeds: Any, recorded: Any
) -> None:
    names = ("--ys", "Identity", "--xs", "x")
    made = command("grad", folder / "branches.pb", "--jvp", f"{recorded['v'].tolist()}", *names)
    want = expected("jvp/Identity", recorded["branches.jvp"])
    assert command("run", "-", *feeds, *want, stdin=made.data).code == 0
    made = command("grad", folder / "branches.pb", "--hvp", "x", *names)
    hvp = np.einsum("ab,abcd->cd", recorded["x"], recorded["branches.hx"])
    done = command("run", "-", *feeds, *expected("hvp/x", hvp), stdin=made.data)
    assert done.code == 0, done.err


def test_examples_apart_have_the_shape_of_a_block(
    command: Any, folder: Path, feeds: Any, recorded: Any
) -> None:
    made = command(
        "grad",
        folder / "softmax.pb",
        "--jacobian",
        "--per-example",
        "--ys",
        "Identity",
        "--xs",
        "x",
    )
    blocks = np.einsum("abac->abc", recorded["softmax.jx"])
    done = command("run", "-", *feeds, *expected("jacobian/Identity/x", blocks), stdin=made.data)
    assert done.code == 0, done.err


def test_a_saved_model_gets_the_jacobian_as_an_output(
    command: Any, fixtures: Path, tmp_path: Path
) -> None:
    model, out = fixtures / "saved_model_custom_gradients", f"{tmp_path / 'out'}/"
    names = ("--signature", "loop", "--ys", "output_0", "--xs", "x")
    assert command("grad", model, *names, "--jacobian", "-o", out).code == 0
    want = ("--expect", "jacobian/output_0/x=[5.374973, 7.556806]")
    done = command("run", out, "--signature", "loop", "--feed", "x=[0.5, 1.2]", *want)
    assert done.code == 0, done.err


def test_a_pipeline_adds_jacobians(command: Any, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.pb"
    passes = "grad{ys=Identity xs=x jacobian=true}"
    done = command("pipeline", folder / "softmax.pb", "-p", passes, "-o", path)
    assert done.code == 0, done.err
    assert "jacobian/Identity/x" in cfgraph.load(path)


def test_the_map_has_the_names(command: Any, folder: Path, tmp_path: Path) -> None:
    out, names = tmp_path / "out.pb", tmp_path / "names.json"
    line = ("grad", folder / "softmax.pb", "--jacobian", "--ys", "Identity")
    assert command(*line, "-o", out, "--map-out", names).code == 0
    assert json.loads(names.read_text()) == {
        "x:0": ["jacobian/Identity/x:0"],
        "w:0": ["jacobian/Identity/w:0"],
    }


@pytest.mark.parametrize(
    ("args", "reported"),
    [
        (("--jacobian", "--check"), "--check does not apply to --jacobian"),
        (("--jacobian", "--order", "2"), "--order does not apply to --jacobian"),
        (("--jacobian", "--hessian"), "--hessian does not apply to --jacobian"),
        (("--hessian", "--per-example"), "--per-example does not apply to --hessian"),
        (("--mode", "forward"), "--mode does not apply to gradients"),
        (("--jacobian", "--mode", "both"), "invalid --mode 'both'"),
        (("--jvp", "[[1,2,3]]"), "1 values of --jvp for 2 xs"),
        (("--jvp", "x,nothing"), "nothing"),
    ],
)
def test_options_that_disagree_are_2(
    args: tuple[str, ...], reported: str, command: Any, folder: Path
) -> None:
    done = command("grad", folder / "softmax.pb", "--ys", "Identity", *args)
    assert (done.code, reported in done.err) == (2, True), done.err
