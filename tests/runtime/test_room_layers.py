"""Layering inside the runtime: no module imports from a later entry of ORDER, types included."""

from __future__ import annotations

import ast
from pathlib import Path

ROOM = Path(__file__).parents[2] / "cfgraph" / "runtime"
ORDER = (
    "code_cache",
    "io_policy",
    "fetches",
    "trace",
    "feeds",
    "engine",
    "program",
    "blas_threads",
    "straight_line",
    "cluster_runner",
    "memory",
    "cost_model",
    "run_executor",
    "token_driver",
    "compiled",
    "preparation",
    "session",
    "restore",
)


def imported_entries(file: Path) -> set[str]:
    """Return the entries of the room that a file imports."""
    nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    modules = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.split(".")[2] for name in modules if name.startswith("cfgraph.runtime.")}


def test_no_module_imports_from_a_later_entry() -> None:
    upward = []
    for file in sorted(ROOM.rglob("*.py")):
        entry = file.relative_to(ROOM).parts[0].removesuffix(".py")
        if entry != "__init__":
            later = ORDER[ORDER.index(entry) + 1 :]
            upward += [f"{file.name}: {name}" for name in imported_entries(file) & set(later)]
    assert upward == []
