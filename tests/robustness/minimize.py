"""Minimize the input of a finding: `python -m tests.robustness.minimize FOLDER [--keep NAME]`.

FOLDER is one that the fuzzer stored. Delta debugging drops nodes, functions, attributes, and
inputs of a graph, or else lines and bytes of a file, and options of the command line, as long as
the finding stays the same. `--keep NAME` adds the result to `fixtures/robustness/fuzzed`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from cfgraph.proto import graph_pb2
from tests.robustness.cases import Case
from tests.robustness.fuzz import import_everything
from tests.robustness.seed_graphs import FIXTURES
from tests.robustness.trial import run_line, write_files

FUZZED = FIXTURES / "robustness" / "fuzzed"
LINES = FUZZED / "lines.json"
# limits that the fuzzer itself adds
_LIMITS = ("--timeout", "--max-memory", "--max-iterations")


def main() -> int:
    """Minimize a stored finding; return 1 if it does not repeat."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--keep", metavar="NAME")
    options = parser.parse_args()
    import_everything()
    key, line, *_ = (options.folder / "finding.txt").read_text(encoding="utf-8").splitlines()
    case = Case(options.folder.name, "", _files(options.folder), [_without_limits(line.split(" "))])
    small = minimized(case, key)
    if small is None:
        print(f"does not repeat: {key}", file=sys.stderr)
        return 1
    print(json.dumps(small.lines[0]), {name: len(data) for name, data in small.files.items()})
    for name, data in small.files.items():
        with contextlib.suppress(DecodeError):
            print(name, graph_pb2.GraphDef.FromString(data))
    if options.keep:
        keep(small, options.keep)
    return 0


def _files(folder: Path) -> dict[str, bytes]:
    files = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    del files["finding.txt"]
    return files


def _without_limits(line: list[str]) -> list[str]:
    words = list(line)
    for option in _LIMITS:
        if option in words:
            at = words.index(option)
            del words[at : at + 2]
    return words


def minimized(case: Case, key: str) -> Case | None:
    """Return a small case with the same finding, or None if this one has another or none."""
    with tempfile.TemporaryDirectory(prefix="cfgraph-minimize-") as folder:

        def is_same(files: dict[str, bytes], line: list[str]) -> bool:
            write_files(Case("", "", files), Path(folder))
            with contextlib.chdir(folder):
                size = max(map(len, files.values()), default=0)
                finding = run_line(line, size)[1]
            return finding is not None and finding.key == key

        files, line = dict(case.files), list(case.lines[0])
        if not is_same(files, line):
            return None
        for name in sorted(files):
            rest = {other: data for other, data in files.items() if other != name}
            if is_same(rest, line):
                files = rest
        for start in range(len(line) - 1, 0, -1):
            for end in (start + 2, start + 1):
                if is_same(files, line[:start] + line[end:]):
                    del line[start:end]
                    break
        for name, data in files.items():

            def is_same_with(data: bytes, name: str = name) -> bool:
                return is_same(files | {name: data}, line)

            files[name] = _small_file(data, is_same_with)
    return Case(case.name, case.kind, files, [line])


def _small_file(data: bytes, test: Callable[[bytes], bool]) -> bytes:
    with contextlib.suppress(DecodeError):
        graph = graph_pb2.GraphDef.FromString(data)
        if graph.node and test(serialized(graph)):
            return _small_graph(graph, test)
    for split in (True, False):
        units = data.splitlines(keepends=True) if split else [bytes([byte]) for byte in data]
        data = b"".join(smallest(units, lambda parts: test(b"".join(parts))))
    return data


def serialized(graph: graph_pb2.GraphDef) -> bytes:
    """The bytes of a graph, the same for equal graphs."""
    return graph.SerializeToString(deterministic=True)


def _small_graph(graph: graph_pb2.GraphDef, test: Callable[[bytes], bool]) -> bytes:
    """Drop nodes and functions, then parts of those that remain, until nothing changes."""
    before = b""
    while serialized(graph) != before:
        before = serialized(graph)
        _shrink(graph.library.function, lambda: test(serialized(graph)))
        _shrink(graph.node, lambda: test(serialized(graph)))
        for function in graph.library.function:
            _shrink(function.node_def, lambda: test(serialized(graph)))
        bodies = [graph.node, *(function.node_def for function in graph.library.function)]
        for node in (node for body in bodies for node in body):
            _shrink(node.input, lambda: test(serialized(graph)))
            _shrink_map(node.attr, lambda: test(serialized(graph)))
            if node.device:
                device, node.device = node.device, ""
                if not test(serialized(graph)):
                    node.device = device
        for name in ("versions", "library", "debug_info"):
            spare = graph_pb2.GraphDef()
            spare.CopyFrom(graph)
            graph.ClearField(name)
            if not test(serialized(graph)):
                graph.CopyFrom(spare)
    return before


def _shrink(items: Any, test: Callable[[], bool]) -> None:
    """Reduce a repeated field in place."""
    everything = list(items)

    def is_same(chosen: Sequence[Any]) -> bool:
        del items[:]
        items.extend(chosen)
        return test()

    is_same(smallest(everything, is_same))


def _shrink_map(attrs: Any, test: Callable[[], bool]) -> None:
    for key in sorted(attrs):
        spare = type(attrs[key])()
        spare.CopyFrom(attrs[key])
        del attrs[key]
        if not test():
            attrs[key].CopyFrom(spare)


def smallest(items: Sequence[Any], test: Callable[[Sequence[Any]], bool]) -> list[Any]:
    """Drop as many items as possible, in chunks of falling size, so that `test` stays true."""
    current, size = list(items), max(1, len(items) // 2)
    while current:
        start, changed = 0, False
        while start < len(current):
            rest = current[:start] + current[start + size :]
            if test(rest):
                current, changed = rest, True
            else:
                start += size
        if size == 1 and not changed:
            break
        size = max(1, size // 2)
    return current


def keep(case: Case, name: str) -> None:
    """Add a case to the fixtures that a test replays."""
    FUZZED.mkdir(exist_ok=True)
    lines = json.loads(LINES.read_text(encoding="utf-8")) if LINES.exists() else {}
    (FUZZED / name).mkdir(exist_ok=True)
    write_files(case, FUZZED / name)
    lines[name] = case.lines[0]
    text = json.dumps(dict(sorted(lines.items())), indent=2, ensure_ascii=True)
    LINES.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
