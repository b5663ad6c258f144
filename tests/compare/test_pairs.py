"""Pairs of models whose relation is known: no miss, and no false alarm.

`pairs/make_pairs.py` wrote the archive with TensorFlow, which these tests do not need.
"""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from cfgraph.cli.command_line import run

ROOT = Path(__file__).parents[2]
ARCHIVE = ROOT / "fixtures" / "verdicts" / "pairs.zip"
STATUS = {"agrees": 0, "differs": 1, "error": 2}


def listed() -> list[dict[str, Any]]:
    with zipfile.ZipFile(ARCHIVE) as archive:
        return json.loads(archive.read("pairs.json"))


@pytest.fixture
def unpacked(tmp_path: Path) -> Callable[[Iterable[str]], None]:
    """Unpack the models of some names into the temporary folder."""

    def unpack(names: Iterable[str]) -> None:
        prefixes = tuple(f"{name}/" for name in names)
        with zipfile.ZipFile(ARCHIVE) as archive:
            archive.extractall(
                tmp_path, [name for name in archive.namelist() if name.startswith(prefixes)]
            )

    return unpack


def files(folder: Path, pair: dict[str, Any]) -> list[str]:
    """The files of a pair, and the variables of graphs that have a checkpoint."""
    sides, variables = [folder / pair[side] for side in "ab"], []
    for side, option in zip(sides, ("--variables", "--variables-b"), strict=True):
        if (side / "model.index").exists():
            variables += [option, str(side / "model")]
    graphs = [side / "graph.pb" if (side / "graph.pb").exists() else side for side in sides]
    return [*map(str, graphs), *variables]


def compared(folder: Path, pairs: Iterable[dict[str, Any]]) -> tuple[list[str], list[str]]:
    """The false alarms and the misses of a comparison of pairs."""
    alarms, misses = [], []
    for pair in pairs:
        status = run(["diff", "--run", "-q", *files(folder, pair), *pair["options"]])
        expected = STATUS[pair["verdict"]]
        if status != expected:
            found = f"{pair['a']} and {pair['b']}: {status} instead of {expected}"
            (misses if status == 0 else alarms).append(found)
    return alarms, misses


def test_a_pair_of_each_kind_has_the_verdict_of_its_relation(
    unpacked: Callable[[Iterable[str]], None], tmp_path: Path
) -> None:
    pairs = [pair for pair in listed() if "/0/" in pair["a"]]
    relations = [*dict.fromkeys(pair["relation"] for pair in pairs)]
    kinds = [*dict.fromkeys(pair["a"].partition("/")[0] for pair in pairs)]
    chosen = [
        pair
        for number, kind in enumerate(kinds)
        for pair in pairs
        if pair["a"].startswith(f"{kind}/")
        and pair["relation"] == relations[number % len(relations)]
    ]
    unpacked(pair[side] for pair in chosen for side in "ab")
    assert compared(tmp_path, chosen) == ([], [])


@pytest.mark.slow
@pytest.mark.parametrize("relation", dict.fromkeys(pair["relation"] for pair in listed()))
def test_all_pairs_have_the_verdict_of_their_relation(
    relation: str, unpacked: Callable[[Iterable[str]], None], tmp_path: Path
) -> None:
    pairs = [pair for pair in listed() if pair["relation"] == relation]
    assert len(pairs) >= 25
    unpacked(pair[side] for pair in pairs for side in "ab")
    assert compared(tmp_path, pairs) == ([], [])


PASSES = ("lower", "optimize", "functionalize", "cluster")


@pytest.mark.slow
@pytest.mark.parametrize("name", PASSES)
def test_all_models_are_verified(
    name: str, unpacked: Callable[[Iterable[str]], None], tmp_path: Path
) -> None:
    models = {pair["a"]: pair for pair in listed()}
    unpacked(models)
    failed = Counter[str]()
    for model, pair in models.items():
        graph, _, *variables = files(tmp_path, {**pair, "b": model})
        values = variables[: variables.index("--variables-b")] if variables else []
        feeds = [text for text in pair["options"] if text not in {"--fetch", "y"}]
        # else the inputs of all signatures are needed, and strings have no generator
        feeds += ["--signature", "serving_default"] if feeds else []
        line = [name, graph, "--verify", "-q", "-o", str(tmp_path / "o.pb"), *values, *feeds]
        status = run(line)
        failed[f"{model}: {status}"] += status != 0
    assert +failed == {}
