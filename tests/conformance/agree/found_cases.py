"""Programs that once differed, in the format of the recorded cases, with the way of each.

A session case has the run of the initializer first; a gradient case has the gradients of all
orders, and is run in the feeds of the first run.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

import cfgraph
from tests.conformance import recorded
from tests.conformance.agree.ways import Run, Subject, Way


class CaseWriter:
    """Adds cases to an archive; what it has already stays as it is."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.members: dict[str, bytes] = {}
        if path.exists():
            with zipfile.ZipFile(path) as archive:
                self.members = {name: archive.read(name) for name in archive.namelist()}

    def add(self, name: str, subject: Subject, way: Way) -> None:
        """Add a case, or replace the one of its name."""
        lines = self.members.get("cases.jsonl", b"").decode().splitlines()
        lines = [line for line in lines if json.loads(line)["id"] != name]
        lines.append(json.dumps(self._case(name, subject, way), sort_keys=True))
        self.members["cases.jsonl"] = ("\n".join(lines) + "\n").encode()

    def write(self) -> None:
        """Write the archive; the same cases are the same bytes."""
        with zipfile.ZipFile(self.path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in sorted(self.members.items()):
                archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)

    def _case(self, name: str, subject: Subject, way: Way) -> dict[str, Any]:
        graph = self._key("graphs", ".pb", subject.graph)
        init = [{"graph": graph, "fetches": [subject.init], "feeds": {}}] if subject.init else []
        nodes = cfgraph.loads(subject.graph)
        case = {"id": name, "way": str(way), "ops": sorted(nodes.ops), "tags": []}
        first = subject.runs[0]
        if way.order:
            expected = [[self._array(value) for value in row] for row in subject.gradients]
            case |= {"graph": graph, "init": init, "unconnected": "zero", "grad_ys": []}
            case |= {"ys": [*subject.ys], "xs": [*subject.xs], "expected": expected}
            feeds = {name: self._array(value) for name, value in first.feeds.items()}
            return case | {"kind": "gradient", "feeds": feeds, "stop_gradients": []}
        runs = [self._run(run, graph) for run in subject.runs]
        return case | {"kind": "session", "runs": [*init, *runs]}

    def _run(self, run: Run, graph: str) -> dict[str, Any]:
        feeds = {name: self._array(value) for name, value in run.feeds.items()}
        record = {"graph": graph, "fetches": run.fetches, "feeds": feeds}
        if run.error:
            return record | {"error": {"message": run.error}}
        values = zip(run.fetches, run.values, strict=True)
        return record | {"expected": {name: self._array(value) for name, value in values}}

    def _array(self, value: Any) -> str:
        value, file = np.asarray(value), io.BytesIO()
        if value.dtype.name == "bfloat16":
            value = value.astype(np.float32)  # .npy holds no bfloat16
        np.save(file, value, allow_pickle=False)
        return self._key("arrays", ".npy", file.getvalue())

    def _key(self, folder: str, suffix: str, data: bytes) -> str:
        key = hashlib.sha256(data).hexdigest()[:16]
        self.members[f"{folder}/{key}{suffix}"] = data
        return key


def subject_of(case: dict[str, Any], path: Path) -> Subject:
    """The subject of a case in an archive."""
    data = recorded.archive(path).read(f"graphs/{_graph(case)}.pb")
    array = _arrays(cfgraph.loads(data), path)
    if case["kind"] == "gradient":
        feeds = {name: array(name, key) for name, key in case["feeds"].items()}
        expected = [
            [array(name, key) for name, key in zip(case["xs"], row, strict=True)]
            for row in case["expected"]
        ]
        init = case["init"][0]["fetches"][0] if case["init"] else ""
        return Subject(data, init, [Run([], feeds)], case["ys"], case["xs"], expected)
    runs, init = case["runs"], ""
    if ":" not in runs[0]["fetches"][0]:
        init, runs = runs[0]["fetches"][0], runs[1:]
    return Subject(data, init, [_run_of(run, array) for run in runs])


def keep(name: str, path: Path) -> None:
    """Copy a case from an archive to the one that the tests replay."""
    (case,) = (case for case in recorded.cases(path) if case["id"] == name)
    writer = CaseWriter(recorded.FOUND)
    writer.add(name, subject_of(case, path), Way.parse(case["way"]))
    writer.write()


def _graph(case: dict[str, Any]) -> str:
    return str(case["graph"] if case["kind"] == "gradient" else case["runs"][0]["graph"])


def _arrays(graph: Any, path: Path) -> Any:
    """A reader of arrays, as the type of the tensor that they are for."""

    def read(name: str, key: str) -> Any:
        value = recorded.array(key, path)
        return value.astype(graph.tensor(name).dtype.numpy)

    return read


def _run_of(run: dict[str, Any], array: Any) -> Run:
    expected = run.get("expected") or {}
    return Run(
        run["fetches"],
        {name: array(name, key) for name, key in run["feeds"].items()},
        [array(name, expected[name]) for name in run["fetches"] if name in expected],
        run.get("error", {}).get("message", ""),
    )
