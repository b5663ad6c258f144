"""The recorded TensorFlow sessions: how to read them, run them and compare."""

from __future__ import annotations

import base64
import functools
import io
import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cfgraph.errors import CfgraphError, Unsupported
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Graph
from cfgraph.ir.serde import graph_def
from cfgraph.runtime.engine.step import State
from cfgraph.runtime.session import Session

_FOLDER = Path(__file__).parents[2] / "fixtures" / "conformance"
ARCHIVE = _FOLDER / "tensorflow.zip"
KERNELS = _FOLDER / "kernels.zip"
# programs of the operations of XLA, which `xla_programs` records
XLA_OPERATIONS = _FOLDER / "xla_operations.zip"
# random programs that once differed, which `make agree` adds
FOUND = _FOLDER / "agree.zip"

# rtol and atol by element type; what is not here must be equal
TOLERANCES = {
    "float64": (1e-9, 1e-12),
    "complex128": (1e-9, 1e-12),
    "float32": (2e-5, 1e-6),
    "complex64": (2e-5, 1e-6),
    "float16": (1e-2, 1e-3),
    "bfloat16": (1e-2, 1e-3),
}


@functools.cache
def archive(path: Path = ARCHIVE) -> zipfile.ZipFile:
    """The zip of recorded cases."""
    return zipfile.ZipFile(path)


@functools.cache
def cases(path: Path = ARCHIVE) -> tuple[dict[str, Any], ...]:
    """All cases, in the order of the archive."""
    lines = archive(path).read("cases.jsonl").decode().splitlines()
    return tuple(json.loads(line) for line in lines)


def parameters(
    kind: str, is_chosen: Callable[[dict[str, Any]], bool] = lambda case: True
) -> list[Any]:
    """The chosen cases of a kind as parameters of tests, without those tagged `host`.

    Those of large graphs, which take as long as dozens of others, are slow.
    """
    return [
        pytest.param(case, id=case["id"], marks=[pytest.mark.slow] if _is_large(case) else [])
        for case in cases()
        if case["kind"] == kind and "host" not in case["tags"] and is_chosen(case)
    ]


def _is_large(case: dict[str, Any]) -> bool:
    entries = [f"graphs/{run['graph']}.pb" for run in case.get("runs", [case])]
    return any(_holder(entry).getinfo(entry).file_size > 100 << 10 for entry in entries)


def run_arguments(run: dict[str, Any]) -> tuple[list[str], dict[str, Any], list[str]]:
    """The tensors, feeds, and targets of a recorded run, as `Session.run` takes them."""
    feeds = {name: array(key) for name, key in run["feeds"].items()}
    tensors = [name for name in run["fetches"] if ":" in name]
    return tensors, feeds, [name for name in run["fetches"] if ":" not in name]


def graph(name: str) -> Graph:
    """A new copy of a recorded graph."""
    return graph_def.graph_from_bytes(_holder(f"graphs/{name}.pb").read(f"graphs/{name}.pb"))


def array(name: str, path: Path | None = None) -> Any:
    """A recorded array; strings as an object array of bytes."""
    numbers = f"arrays/{name}.npy"
    holder = _holder(numbers, f"arrays/{name}.json") if path is None else archive(path)
    if numbers in holder.NameToInfo:
        return np.load(io.BytesIO(holder.read(numbers)), allow_pickle=False)
    stored = json.loads(holder.read(f"arrays/{name}.json"))
    flat = np.empty(len(stored["strings"]), object)
    flat[:] = [base64.b64decode(item) for item in stored["strings"]]
    return flat.reshape(stored["shape"])


def _holder(*entries: str) -> zipfile.ZipFile:
    """The archive that has one of these entries: their names are those of their content."""
    archives = (archive(path) for path in (ARCHIVE, KERNELS, XLA_OPERATIONS))
    return next(item for item in archives if not item.NameToInfo.keys().isdisjoint(entries))


def is_functional(case: dict[str, Any]) -> bool:
    """True if a graph of the case holds a function call or a functional conditional or loop."""
    from cfgraph.ops.opdef.op import function_calls, lookup

    return any(function_calls(op).kind or lookup(op) is None for op in case["ops"])


def disagreement(
    case: dict[str, Any], prepare: Callable[[Graph], Graph] = lambda g: g, **options: Any
) -> str:
    """Run a session case, its graphs prepared and its sessions with options.

    Returns what differs from the record, or ``.
    """
    options = {"state": State(), "soft_placement": True, **options}
    for place, run in enumerate(case["runs"]):
        failure = _run(run, prepare, options, random="random" in case["tags"])
        if failure:
            return f"run {place}: {failure}"
    return ""


def _run(
    run: dict[str, Any],
    prepare: Callable[[Graph], Graph],
    options: dict[str, Any],
    *,
    random: bool,
) -> str:
    tensors, feeds, targets = run_arguments(run)
    expected = run.get("expected") or {}
    try:
        with Session(prepare(graph(run["graph"])), **options) as session:
            values = session.run(tensors, feeds, targets, timeout=60)
            options["state"] = (
                session.state if options.get("workers") is None else session.state.copy()
            )
    except Unsupported as error:
        return f"Unsupported: {error.message}"
    except CfgraphError as error:
        return "" if run.get("error") else f"{type(error).__name__}: {error}"
    if run.get("error"):
        return f"no error, where TensorFlow has {run['error']['message'][:200]}"
    have = dict(zip(tensors, values, strict=True))
    return next(filter(None, _compare_all(have, expected, random=random)), "")


def _compare_all(have: dict[str, Any], expected: dict[str, str], *, random: bool) -> Iterator[str]:
    for name, key in expected.items():
        failure = compare(have[name], array(key), shapes_only=random)
        if failure:
            yield f"{name}: {failure}"


def compare(have: Any, want: Any, *, shapes_only: bool = False, loosen: float = 1) -> str:
    """The difference between two arrays beyond the tolerance of their type, or ``."""
    have = np.asarray(have)
    if have.shape != want.shape:
        return f"shape {have.shape}, recorded {want.shape}"
    if want.dtype.kind == "V":
        want = want.view(have.dtype)
    if have.dtype.isbuiltin != 1 and want.dtype == np.float32:
        want = want.astype(have.dtype)  # .npy holds no bfloat16, nor narrower numbers
    if DType.from_numpy(have.dtype) is not DType.from_numpy(want.dtype):
        return f"dtype {have.dtype}, recorded {want.dtype}"
    if shapes_only:
        return ""
    if have.dtype == object or have.dtype.name not in TOLERANCES:
        return "" if np.array_equal(have, want) else f"{_show(have)}, recorded {_show(want)}"
    rtol, atol = TOLERANCES[have.dtype.name]
    wide = np.complex128 if have.dtype.kind == "c" else np.float64
    close = np.allclose(
        have.astype(wide), want.astype(wide), rtol * loosen, atol * loosen, equal_nan=True
    )
    return "" if close else f"{_show(have)}, recorded {_show(want)}"


def _show(value: Any) -> str:
    return np.array2string(np.asarray(value), threshold=8, edgeitems=3).replace("\n", "")
