"""Layering: no module imports from a higher layer."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Set
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from cfgraph.extension_index import EXTENSIONS
from tests.measures import direct_statements, statements, syntax_tree

ROOT = Path(__file__).parent.parent
ORDER = (
    "errors < proto < ir < ops < build < analysis < passes < processes < runtime < comparison < cli"
    " < console < backends < integrations < commands"
)
LAYERS = ORDER.split(" < ")
# the modules beside the packages, and the layer that each belongs to
TOP_LEVEL_LAYERS = {
    "__init__": "errors",
    "blas_environment": "errors",
    "extension_index": "errors",
    "extensions": "errors",
    "limits": "errors",
    "reports": "errors",
    "rich_display": "errors",
    "stack_position": "errors",
    "version": "errors",
    "model_explorer": "integrations",
    "schemas": "cli",
    "script": "integrations",
    "__main__": "console",
}
# what a start-up can do without, and what is optional: these may be imported inside functions
HEAVY = {
    *(
        "google",
        "google_crc32c",
        "ml_dtypes",
        "numpy",
        "pysat",
        "re2",
        "rich",
        "scipy",
        "threadpoolctl",
    ),
    *(
        "IPython",
        "PIL",
        "anyio",
        "cupy",
        "jax",
        "jaxlib",
        "jsonschema",
        "mcp",
        "onnxruntime",
        "ray",
    ),
    *("tensorflow", "tf2onnx"),
}
# files that name each other's types: a tensor's operators add nodes by its builder, and a
# memory that is full lets its swapper make room in it
TYPE_CYCLES = {"cfgraph.build", "cfgraph.runtime.memory"}

# begins the comment of a module that imports inside of functions, and says why
LATE = "# late imports: "

Import = tuple[str, int, bool]


def sources() -> list[Path]:
    folders = (ROOT / "cfgraph", ROOT / "commands")
    files = [file for folder in folders for file in folder.rglob("*.py")]
    return sorted(file for file in files if not file.name.endswith("_pb2.py"))


def module_layer(module: str) -> str | None:
    """Return the layer of a dotted module name, None for what is not ours."""
    package, _, rest = module.partition(".")
    if package != "cfgraph":
        return None
    first = rest.split(".")[0] or "__init__"
    return TOP_LEVEL_LAYERS.get(first, first)


def file_module(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    parts = ("cfgraph", *parts) if parts[0] == "commands" else parts
    return ".".join(parts)


def is_for_types(node: ast.AST) -> bool:
    """True for `if TYPE_CHECKING`."""
    test = node.test if isinstance(node, ast.If) else None
    return "TYPE_CHECKING" in (getattr(test, "id", None), getattr(test, "attr", None))


def imports(tree: ast.AST, inside: bool = False) -> Iterator[Import]:
    """Yield (module, line, inside a function) for each import that runs."""
    for node in direct_statements(tree):
        if is_for_types(node):
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno, inside) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((named(node, alias.name), node.lineno, inside) for alias in node.names)
        function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        yield from imports(node, inside or function)


def named(node: ast.ImportFrom, name: str) -> str:
    """Spell `from cfgraph import ir` as cfgraph.ir, and public names as `cfgraph`."""
    module = f"{'.' * node.level}{node.module or ''}"
    if module != "cfgraph" or name.startswith("__") or not (ROOT / "cfgraph" / name).exists():
        return module
    return f"cfgraph.{name}"


@cache
def imports_of(file: Path) -> tuple[Import, ...]:
    """The imports of a file, which several tests look at."""
    return tuple(imports(syntax_tree(file)))


def faults(
    found: Iterable[Import], module: str, file: str, *, is_late: bool = False
) -> Iterator[str]:
    layer = module_layer(module)
    for name, line, inside in found:
        target = module_layer(name)
        if name.startswith("."):
            yield f"{file}:{line}: relative import {name}"
        elif target is not None:
            if LAYERS.index(target) > LAYERS.index(layer or "commands"):
                yield f"{file}:{line}: {layer} imports {name} from above"
            elif target == "commands" and layer != "commands":
                yield f"{file}:{line}: nothing imports a command"
            elif inside and not is_late and layer != "commands":
                yield f"{file}:{line}: {name} is imported inside a function without {LATE!r}"
        elif inside and not is_late and name.split(".")[0] not in HEAVY:
            yield f"{file}:{line}: {name} is imported inside a function without {LATE!r}"


def test_no_module_imports_from_above() -> None:
    found = [
        fault
        for file in sources()
        for fault in faults(
            imports_of(file),
            file_module(file),
            str(file.relative_to(ROOT)),
            is_late=LATE in file.read_text(encoding="utf-8"),
        )
    ]
    assert not found


def folder_cycle(edges: Iterable[tuple[str, str]], folder: str) -> list[str]:
    """Return an import cycle between the files and sub-folders of a folder, empty if none.

    An edge is a pair of dotted module names, importer first. A sub-folder counts as one unit.
    """
    graph: dict[str, set[str]] = defaultdict(set)
    prefix = f"{folder}."
    for importer, imported in edges:
        if importer.startswith(prefix) and imported.startswith(prefix):
            a, b = (name.removeprefix(prefix).split(".")[0] for name in (importer, imported))
            if a != b:
                graph[a].add(b)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [f"{folder}.{name}" for name in error.args[1]]
    return []


def module_edges(*, types: bool = False) -> set[tuple[str, str]]:
    """Return (importer, imported) for all imports that run, or with `types` also for hints."""
    modules = {file_module(file).removesuffix(".__init__"): file for file in sources()}
    edges = set()
    for module, file in modules.items():
        for node in module_statements(file, types=types):
            if isinstance(node, ast.ImportFrom) and node.module:
                names = {f"{node.module}.{alias.name}" for alias in node.names} & modules.keys()
                edges |= {(module, name) for name in names or {node.module}}
            elif isinstance(node, ast.Import):
                edges |= {(module, alias.name) for alias in node.names}
    return edges


def module_statements(file: Path, *, types: bool) -> Iterator[ast.AST]:
    """Yield the statements of a file, without `types` those that are not for hints alone."""
    for node in syntax_tree(file).body:
        if types or not is_for_types(node):
            yield from (node, *statements(node))


@pytest.mark.parametrize("types", [False, True])
def test_no_cycle_between_the_files_and_folders_of_a_folder(types: bool) -> None:
    edges = module_edges(types=types)
    folders = {".".join(file.relative_to(ROOT).parts[:-1]) for file in sources()}
    folders -= TYPE_CYCLES if types else set()
    cycles = [folder_cycle(edges, folder) for folder in sorted(folders)]
    assert [" -> ".join(cycle) for cycle in cycles if cycle] == []


def test_a_cycle_between_folders_is_found() -> None:
    edges = [("p.a.x", "p.b.y"), ("p.b.z", "p.c"), ("p.c", "p.a.w")]
    assert folder_cycle(edges, "p")
    assert not folder_cycle(edges[:2], "p")
    assert not folder_cycle([("p.a.x", "p.a.y"), ("q.a", "q.b")], "p")


def core_files() -> list[Path]:
    """The files of the core, without the index and the list of public names."""
    outside = {"backends", "integrations"}
    listed = {"extension_index.py", "__init__.py"}
    package = ROOT / "cfgraph"
    files = [file for file in sources() if file.is_relative_to(package)]
    return [file for file in files if file.relative_to(package).parts[0] not in outside | listed]


def test_the_core_names_no_backend() -> None:
    engines = {
        name
        for kind in ("compiler", "engine", "session option", "tier")
        for name in EXTENSIONS.get(kind, ())
    }
    named = [
        f"{file.relative_to(ROOT)}:{getattr(node, 'lineno', '')}: {text}"
        for file in core_files()
        for node in ast.walk(syntax_tree(file))
        for text in named_backends(node, engines)
    ]
    assert named == []


def named_backends(node: ast.AST, engines: Set[str]) -> Iterator[str]:
    """The modules of backends that a text names, and the engines in a comparison."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield from re.findall(r"^cfgraph\.(?:backends|integrations)\b[\w.]*$", node.value)
    if isinstance(node, ast.Compare):
        constants = (item for part in (node.left, *node.comparators) for item in ast.walk(part))
        yield from (
            item.value
            for item in constants
            if isinstance(item, ast.Constant) and item.value in engines
        )


def test_the_core_is_searched_for_names() -> None:
    tree = ast.parse("if engine in ('xla', 'auto') or load('cfgraph.backends.gpu.plan'): pass")
    found = [text for node in ast.walk(tree) for text in named_backends(node, {"xla"})]
    assert sorted(found) == ["cfgraph.backends.gpu.plan", "xla"]


def test_every_module_has_a_layer() -> None:
    assert {module_layer(file_module(file)) for file in sources()} <= set(LAYERS)


def test_only_serde_imports_the_bindings() -> None:
    users = {
        str(file.parent.relative_to(ROOT))
        for file in sources()
        for name, *_ in imports_of(file)
        if name.startswith("cfgraph.proto")
    }
    assert users <= {"cfgraph/ir/serde"}


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("cfgraph.ir.graph", "from cfgraph.ops.opdef.op import Op"),
        ("cfgraph.ir.graph", "from cfgraph import passes"),
        ("cfgraph.ir.graph", "def f():\n    import cfgraph.runtime.session"),
        ("cfgraph.ir.graph", "if x:\n    import cfgraph.cli.command_line"),
        ("cfgraph.ir.graph", "from . import names"),
        ("cfgraph.ops.math", "def f():\n    from cfgraph.ir.graph import Graph"),
        ("cfgraph.ops.math", "def f():\n    import json"),
        ("cfgraph.cli.command_line", "import cfgraph.commands.show"),
        ("cfgraph.errors", "from cfgraph.cli.options import Json"),
    ],
)
def test_the_reader_sees_what_is_forbidden(module: str, source: str) -> None:
    assert list(faults(imports(ast.parse(source)), module, "some.py"))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("cfgraph.passes.lower", "from cfgraph.ir.graph import Graph"),
        ("cfgraph.passes.lower", "from cfgraph.passes.outcome import Report"),
        ("cfgraph.ir.files", "def f():\n    import numpy as np"),
        ("cfgraph.ir.graph", "if TYPE_CHECKING:\n    from cfgraph.ops.opdef.op import Op"),
        (
            "cfgraph.commands.show",
            "from cfgraph import load\nfrom cfgraph.cli.options import Graph",
        ),
        # a command imports the library when it runs: its help and its usage errors do without
        ("cfgraph.commands.show", "def main():\n    from cfgraph.console.show import show"),
    ],
)
def test_the_reader_lets_pass_what_is_allowed(module: str, source: str) -> None:
    assert not list(faults(imports(ast.parse(source)), module, "some.py"))
