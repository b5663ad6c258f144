"""Layering: no module imports from a higher layer."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

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
    "limits": "errors",
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
    *("IPython", "anyio", "cupy", "jax", "jaxlib", "jsonschema", "mcp", "ray", "tensorflow"),
}
# the standard library inside a function: only where the module says that start-up needs it
LIGHT_INSIDE = {
    "cfgraph/analysis/findings.py": {"importlib", "tomllib"},
    "cfgraph/cli/command_line.py": {"traceback"},
    "cfgraph/ir/nested_text.py": {"tomllib"},
}

# the passes inside a function: a run loads those that it needs, and begins a quarter sooner
PASSES_INSIDE = {
    f"cfgraph/runtime/preparation/{name}.py" for name in ("prepare", "run_names", "run_passes")
}

# lowering, which loads the gradients, inside functions: few graphs on several devices need it
LOWERING_INSIDE = {f"cfgraph/passes/{name}.py" for name in ("place/place", "partition/partition")}

# the engine inside a function: a run on the token executor starts without it
COMPILED_INSIDE = {f"cfgraph/runtime/preparation/{name}.py" for name in ("prepare", "executors")}
# workers inside functions: most runs are in one process
REMOTE_INSIDE = {"cfgraph/runtime/preparation/executors.py"}
# child processes inside a function: few graphs call a StableHLO module
MODULES_INSIDE: set[str] = set()
# what groups of options make, inside methods: a help page loads none of it
OBJECTS_INSIDE = {"cfgraph/cli/run_options.py"}
# the exact analysis of deadness inside a function: few runs need it, and it loads in 20 ms; trip
# counts, for the explanation of a deadlock
ANALYSES_INSIDE = {
    "cfgraph/runtime/compiled/engine.py",
    "cfgraph/runtime/compiled/plan_liveness.py",
    "cfgraph/runtime/engine/quiescent_state.py",
}

# lists and optionals inside a function: few graphs have constants of variants
VARIANTS_INSIDE = {"cfgraph/ops/families/constants.py"}

# comparisons by running, inside functions: a command without --verify does not load the runtime
COMPARISONS_INSIDE = {"cfgraph/console/verify.py"}

# files that name each other's types: a tensor's operators add nodes by its builder, a memory that
# is full lets its swapper make room in it, and an engine receives the options of its session
TYPE_CYCLES = {"cfgraph.build", "cfgraph.runtime", "cfgraph.runtime.memory"}

# arrows from the core to backends and integrations: (importer, imported)
REMAINING: set[tuple[str, str]] = {}

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


def faults(found: Iterable[Import], module: str, file: str) -> Iterator[str]:
    layer = module_layer(module)
    for name, line, inside in found:
        target = module_layer(name)
        if name.startswith("."):
            yield f"{file}:{line}: relative import {name}"
        elif target is not None:
            if (module, name) in REMAINING:
                continue
            if LAYERS.index(target) > LAYERS.index(layer or "commands"):
                yield f"{file}:{line}: {layer} imports {name} from above"
            elif target == "commands" and layer != "commands":
                yield f"{file}:{line}: nothing imports a command"
            elif (
                inside
                and layer != "commands"
                and not (target == "passes" and file in PASSES_INSIDE)
                and not (name == "cfgraph.passes.lower.lower" and file in LOWERING_INSIDE)
                and not (name.startswith("cfgraph.runtime.compiled.") and file in COMPILED_INSIDE)
                and not (name.startswith("cfgraph.backends.workers.") and file in REMOTE_INSIDE)
                and not (".stablehlo." in name and file in MODULES_INSIDE)
                and not (target == "analysis" and file in ANALYSES_INSIDE)
                and file not in COMPARISONS_INSIDE | VARIANTS_INSIDE | OBJECTS_INSIDE
            ):
                yield f"{file}:{line}: {name} is imported inside a function"
        elif inside and name.split(".")[0] not in HEAVY | LIGHT_INSIDE.get(file, set()):
            yield f"{file}:{line}: {name} is imported inside a function"


def test_no_module_imports_from_above() -> None:
    found = [
        fault
        for file in sources()
        for fault in faults(imports_of(file), file_module(file), str(file.relative_to(ROOT)))
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


def is_remaining(importer: str, imported: str) -> bool:
    """True if a module imports another one, or a name of it, from above."""
    return (importer, imported) in REMAINING or (importer, imported.rpartition(".")[0]) in REMAINING


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
    edges = {edge for edge in module_edges(types=types) if not is_remaining(*edge)}
    folders = {".".join(file.relative_to(ROOT).parts[:-1]) for file in sources()}
    folders -= TYPE_CYCLES if types else set()
    cycles = [folder_cycle(edges, folder) for folder in sorted(folders)]
    assert [" -> ".join(cycle) for cycle in cycles if cycle] == []


def test_a_cycle_between_folders_is_found() -> None:
    edges = [("p.a.x", "p.b.y"), ("p.b.z", "p.c"), ("p.c", "p.a.w")]
    assert folder_cycle(edges, "p")
    assert not folder_cycle(edges[:2], "p")
    assert not folder_cycle([("p.a.x", "p.a.y"), ("q.a", "q.b")], "p")


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
