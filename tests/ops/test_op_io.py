"""No op touches the machine: files, processes, the network, or the environment."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

import cfgraph
from cfgraph.errors import CfgraphError
from cfgraph.ir import registry
from cfgraph.ops.opdef.blocking import Blocked
from cfgraph.ops.opdef.op import KERNEL_FAILURES, lookup
from cfgraph.runtime.io_policy import IoPolicy
from tests.conformance import recorded
from tests.ops import harness
from tests.ops.scenario import Kernels, Sketch, scenarios

OPS: Final = Path(__file__).parents[2] / "cfgraph" / "ops"
# audit events of the interpreter: https://docs.python.org/3/library/audit_events.html
MACHINE: Final = (
    *("open", "os.", "shutil.", "tempfile.", "glob.", "subprocess.", "pty.", "socket.", "urllib."),
    *("http.", "ftplib.", "smtplib.", "ctypes.", "mmap.", "fcntl.", "signal.", "syslog."),
)
# modules that reach the machine; `time` and `hashlib` do not
REACHING: Final = {
    *("asyncio", "ctypes", "glob", "http", "io", "mmap", "multiprocessing", "os", "pathlib"),
    *("shutil", "signal", "socket", "subprocess", "sys", "tempfile", "threading", "urllib"),
}
# bytes in memory, and a lock, which starts no thread
HARMLESS: Final = {"io.BytesIO", "threading.Lock"}
BUILTINS: Final = {"open", "exec", "eval", "__import__", "input", "breakpoint"}
# the only ways of an op to a file; all of them consult the policy
STEP_METHODS: Final = {"append_to_file", "require_readable"}

GRAPHS: Final = Path(__file__).parents[2] / "fixtures" / "graphs"
RUN_AS_GRAPHS: Final = ("counter",)
# deprecated ops, whose cases are in other tests
WITHOUT_RUN: Final = {
    *("MaxPoolGradGradWithArgmax", "NonDeterministicInts", "RefSelect"),
    "ResourceStridedSliceAssign",
    *("StridedSliceAssign", "TileGrad", "TopK"),
    # runs where the extra xla is installed: tests/integrations/stablehlo/test_saved_models.py
    "XlaCallModule",
    # some need the extra image: tests/ops/test_images.py
    *("DecodeAndCropJpeg", "DecodeBmp", "DecodeGif", "DecodeImage", "DecodeJpeg", "DecodePng"),
    *("EncodeJpeg", "EncodeJpegVariableQuality", "EncodePng", "ExtractJpegShape"),
}

_events: list[str] | None = None


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if _events is not None and event.startswith(MACHINE):
        _events.append(f"{event}{args}")


sys.addaudithook(_audit)


@contextmanager
def watched() -> Iterator[list[str]]:
    """Record what touches the machine."""
    global _events  # noqa: PLW0603 - an audit hook cannot be removed
    _events = events = []
    try:
        yield events
    finally:
        _events = None


class WithoutPermission(harness.LocalStep):
    """A Step whose files the default policy decides on."""

    def require_readable(self, path: str) -> None:
        """Reject the file."""
        IoPolicy().require_readable(path)

    def append_to_file(self, path: str, data: bytes) -> None:
        """Reject the file."""
        IoPolicy().require_writable(path)


def attempt(action: Any, *args: Any) -> None:
    """Run an action that may fail, or wait, as ops do."""
    with suppress(CfgraphError, Blocked, *KERNEL_FAILURES):
        action(*args)


def accesses(action: Any, *args: Any) -> list[str]:
    """What an action touches; again if anything, since the first time may import modules."""
    for _ in range(2):
        with watched() as events:
            attempt(action, *args)
        if not events:
            break
    return events


def test_the_hook_sees_files_and_processes(tmp_path: Path) -> None:
    with watched() as events:
        (tmp_path / "file").write_bytes(b"")
    assert events


@pytest.mark.parametrize("most", [2, pytest.param(sys.maxsize, marks=pytest.mark.slow, id="all")])
def test_no_op_touches_the_machine_without_permission(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "LocalStep", WithoutPermission)
    seen, faults = Counter[str](), list[str]()
    for item in harness.all_cases():
        seen[item.op] += 1
        if seen[item.op] > most:
            continue
        faults += [f"{item.op}: {event}" for event in accesses(harness.run_ours, item)]
    for scene in scenarios().values():
        sketch = Sketch()
        runs = scene(sketch)
        seen.update(node.op for node in sketch.graph)
        for wanted in runs:
            events = accesses(Kernels(sketch.graph).run, wanted)
            faults += [f"{wanted}: {event}" for event in events]
    for program in recorded.cases(recorded.XLA_OPERATIONS):
        if seen.keys() >= {*program["ops"]}:
            continue
        seen.update(program["ops"])
        for run in program["runs"]:
            session = cfgraph.Session(recorded.graph(run["graph"]), jit="numpy")
            events = accesses(session.run, *recorded.run_arguments(run))
            faults += [f"{program['id']}: {event}" for event in events]
    for path in RUN_AS_GRAPHS:
        graph = cfgraph.load(GRAPHS / f"{path}.pb")
        cfgraph.cluster(graph, regions=True)
        seen.update(node.op for node in graph)
        session = cfgraph.Session(graph, jit="numpy")
        events = accesses(session.run, ["n"], {"n": np.int32(3)})
        faults += [f"{path}: {event}" for event in events]
    assert faults == []
    runnable = {name for name in registry.op_names() if is_runnable(name)}
    codes = {code_of(name) for name in runnable & seen.keys()}
    unseen = {name for name in runnable - seen.keys() if code_of(name) not in codes}
    assert unseen == WITHOUT_RUN
    assert not any(lookup(name).effects.does_io for name in unseen)


def is_runnable(name: str) -> bool:
    """True for an op with a kernel, which primitives of control flow do not have."""
    op = lookup(name)
    return op is not None and op.compilation.runnable and not op.role


def code_of(name: str) -> tuple[Any, ...]:
    """The functions that compute an op; ops of the same functions are one to the machine."""
    op = lookup(name)
    methods = [
        getattr(op, method, None) for method in ("function", "kernel", "run", "bind", "prepare")
    ]
    return tuple(getattr(method, "__func__", method) for method in methods)


def test_no_module_of_ops_imports_what_reaches_the_machine() -> None:
    faults = []
    for file in sorted(OPS.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names += [f"{node.module or ''}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                names += [node.func.id]
            reaching = [name for name in names if name.split(".")[0] in REACHING | BUILTINS]
            reaching = [name for name in reaching if name not in HARMLESS]
            faults += [f"{file.name}: {name}" for name in reaching]
    assert faults == []


def uses_files(tree: ast.Module, root: ast.AST) -> bool:
    """True if code, or a function of its module that it names, calls a method for files."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    todo, done = [root], set[str]()
    while todo:
        for node in ast.walk(todo.pop()):
            if isinstance(node, ast.Attribute) and node.attr in STEP_METHODS:
                return True
            if isinstance(node, ast.Name) and node.id in functions and node.id not in done:
                done.add(node.id)
                todo.append(functions[node.id])
    return False


def test_an_op_that_uses_files_declares_it() -> None:
    declaring = set()
    for file in sorted((OPS / "families").glob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and uses_files(tree, node):
                op = lookup(node.name)
                assert op is not None
                assert op.effects.does_io or node.name == "PrintV2"
                declaring.add(node.name)
    assert declaring == {"InitializeTableFromTextFileV2", "PrintV2", "RestoreV2"}


def test_the_fact_decides_what_a_node_accesses() -> None:
    for name in registry.op_names():
        op = lookup(name)
        if op is not None and name != "PrintV2":
            reads = op.effects.reads_only or op.effects.initializes
            wanted = "" if not op.effects.does_io else "read" if reads else "write"
            assert op.file_access(Sketch()("NoOp").node) == wanted, name
