"""Mutation test: `python -m tests.mutation [PATH ...] --seed S --count N --log FILE`.

Draws lines of the product at random, changes one of each (an inverted comparison, a number plus
one, a call removed, ...), and runs tests until one fails. `--tests` names a stage of tests as
arguments of pytest; a mutant that passes a stage goes on to the next, and survives if it passes
all. The file is changed in place and restored; a later call with the same seed and log continues.
The first call runs the stages without a mutant first, as tests that fail anyway catch nothing.
Tests that run for longer than `--timeout` or need more memory than a test may have fail.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import re
import shlex
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_INVERSE: dict[type[ast.AST], type[ast.AST]] = {
    **{ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is},
    **{ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And},
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt},
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult},
    **{ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd},
}
# of the tests of a mutant, which may allocate in an endless loop
_ADDRESS_SPACE = 12 << 30
# pytest as `-m pytest` runs it, with its first import path; with the limit set by the child: a
# process with threads must not run code between fork and exec
_PYTEST = f"""
import os, resource, sys
sys.path[0] = os.getcwd()
resource.setrlimit(resource.RLIMIT_AS, ({_ADDRESS_SPACE}, {_ADDRESS_SPACE}))
import pytest
sys.exit(pytest.main())
"""
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", flags=re.MULTILINE)


@dataclass(frozen=True)
class Mutant:
    """One change of a file: bytes `start` to `end` become `replacement`."""

    path: Path
    line: int
    start: int
    end: int
    replacement: str

    def apply(self, source: bytes) -> bytes:
        """Return the changed source."""
        return source[: self.start] + self.replacement.encode() + source[self.end :]

    def describe(self, source: bytes) -> str:
        """Return place, original text, and replacement on one line."""
        before = " ".join(source[self.start : self.end].decode().split())
        return f"{self.path}:{self.line} {before[:100]} -> {self.replacement[:100]}"


def mutants_of_file(path: Path) -> Iterator[Mutant]:
    """Yield every mutant of a file; annotations and assertions are not changed."""
    source = path.read_bytes()
    offsets = [0]
    for line in source.splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    for node in _executed(ast.parse(source)):
        for target, replacement in _replacements(node):
            start = offsets[target.lineno - 1] + target.col_offset
            end = offsets[target.end_lineno - 1] + target.end_col_offset
            yield Mutant(path, target.lineno, start, end, replacement)


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.Assert | ast.JoinedStr):
                yield from _executed(child)


def _replacements(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in _INVERSE:
            yield node, _unparse(ast.Compare(node.left, [_inverse(operator)], node.comparators))
        case ast.BoolOp():
            yield node, _unparse(ast.BoolOp(_inverse(node.op), node.values))
        case ast.BinOp() if type(node.op) in _INVERSE:
            yield node, _unparse(ast.BinOp(node.left, _inverse(node.op), node.right))
        case ast.UnaryOp(op=ast.Not()):
            yield node, _unparse(node.operand)
        case ast.Constant(value=bool()):
            yield node, str(not node.value)
        case ast.Constant(value=int()):
            yield node, str(node.value + 1)
        case ast.If() | ast.IfExp():
            yield node.test, f"(not {_unparse(node.test)})"
        case ast.Return(value=ast.expr()) if not _is_none(node.value):
            yield node, "return None"
        case ast.Expr(value=ast.Call()):
            yield node, "pass"
        case ast.Continue():
            yield node, "break"


def _inverse(operator: ast.AST) -> ast.AST:
    return _INVERSE[type(operator)]()


def _unparse(node: ast.AST) -> str:
    return f"({ast.unparse(ast.fix_missing_locations(node))})"


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def draw(paths: list[Path], seed: int, count: int) -> list[Mutant]:
    """Draw mutants of distinct lines; every line with a mutant is as likely as any other."""
    files = sorted(file for path in paths for file in ([path] if path.is_file() else _files(path)))
    by_line = defaultdict[tuple[Path, int], list[Mutant]](list)
    for file in files:
        for mutant in mutants_of_file(file):
            by_line[file, mutant.line].append(mutant)
    generator = random.Random(seed)
    lines = generator.sample(sorted(by_line), min(count, len(by_line)))
    return [generator.choice(by_line[line]) for line in lines]


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*.py") if not path.name.endswith("_pb2.py"))


def first_failure(mutant: Mutant, stages: list[str], timeout: float) -> str | None:
    """Return the first test that fails, `timeout`, or None if the mutant survives all stages."""
    source = mutant.path.read_bytes()
    mutant.path.write_bytes(mutant.apply(source))
    try:
        return failure_of(stages, timeout)
    finally:
        mutant.path.write_bytes(source)


def failure_of(stages: list[str], timeout: float) -> str | None:
    """Return the first test that fails, `timeout`, or None if all stages pass."""
    for stage in stages:
        arguments = ["-x", "-q", "-p", "no:cacheprovider", *shlex.split(stage)]
        try:
            run = subprocess.run(
                [sys.executable, "-c", _PYTEST, *arguments],
                capture_output=True, text=True, timeout=timeout, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return "timeout"
        if run.returncode:
            failed = _FAILED.search(run.stdout)
            return failed[1] if failed else f"pytest exits with status {run.returncode}"
    return None


def main() -> None:
    """Run the mutants that a log does not have yet, and print the share that tests catch."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", type=Path, default=[Path("cfgraph"), Path("commands")])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--tests", action="append", help="stage of tests (default: all of them)")
    parser.add_argument("--timeout", type=float, default=900, help="seconds per stage")
    parser.add_argument("--log", type=Path, default=Path("build/mutation.jsonl"))
    options = parser.parse_args()
    # a terminated run restores the file as well
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    stages = options.tests or ["-n 2"]
    if not options.log.exists() and (failure := failure_of(stages, options.timeout)):
        sys.exit(f"the tests fail without a mutant: {failure}")
    options.log.parent.mkdir(parents=True, exist_ok=True)
    logged = options.log.read_text().splitlines() if options.log.exists() else []
    results = {row["mutant"]: row["failure"] for row in map(json.loads, logged)}
    mutants = draw(options.paths, options.seed, options.count)
    descriptions = [mutant.describe(mutant.path.read_bytes()) for mutant in mutants]
    for mutant, description in zip(mutants, descriptions, strict=True):
        if description not in results:
            failure = first_failure(mutant, stages, options.timeout)
            results[description] = failure
            with options.log.open("a") as log:
                log.write(json.dumps({"mutant": description, "failure": failure}) + "\n")
        print(f"{results[description] or 'SURVIVED':60} {description}", flush=True)
    caught = sum(results[description] is not None for description in descriptions)
    print(f"{caught} of {len(descriptions)} mutants caught (seed {options.seed})")


if __name__ == "__main__":
    main()
