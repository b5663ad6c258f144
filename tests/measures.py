"""Measure the structure of the code: `python tests/measures.py [ROOT]`, of any checkout.

Counts are over `cfgraph/` without what is generated, and `commands/`. The two measures of a run
start a Python of their own, with the checkout on its path; all others only read the sources.
`--lines` prints the lines of each room next to its budget, the last tag, and the last commit;
`--check` exits with status 1 if a room is above its budget of `tests/budgets.toml`, and `--lower`
writes the lines of the rooms that are below theirs.
"""

from __future__ import annotations

import ast
import gc
import json
import os
import re
import statistics
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

# of a module; 100 to 400 are usual, and a longer file that is one concept is better than two halves
MAX_LINES = 600
# modules whose only importer is in the same folder
MAX_SINGLE_IMPORTERS = 70
BUDGETS = "tests/budgets.toml"
# written by `make generate`: in no room, as the bindings of protobuf
INDEXES = ("cfgraph/extension_index.py", "cfgraph/ops/index.py")
# folders of rooms
BANDS = ("backends", "integrations")
BANNED = {
    *("tell", "tells", "telling", "told", "teller"),
    *("give", "gives", "giving", "gave", "given"),
    *("ask", "asks", "asking", "asked", "asker"),
    *("wish", "wishes", "wishing", "wished"),
    *("hand", "hands", "handing", "handed"),
    *("settle", "settles", "settling", "settled"),
    *("beside", "besides", "around"),
    *("hear", "hears", "hearing", "heard", "hearer"),
}
QUESTION_WORDS = {
    *("what", "who", "whom", "whose", "whether", "where", "when", "which", "why", "how"),
    *("whatever", "whoever", "wherever", "whenever", "whichever"),
}
ROLES = {
    *("switch", "merge", "enter", "exit", "next_iteration", "loop_cond"),
    *("send", "recv", "arg", "retval", "trigger"),
}
# enters the files of one call after a warm import; prints what it entered
TRACED = """
import json, os, sys
import cfgraph
graph = cfgraph.load(sys.argv[2])
what = sys.argv[1]
if what == "run":
    session = cfgraph.Session(graph)
    call = lambda: session.run(["count:0"], {"n:0": 3})
else:
    call = lambda: cfgraph.gradients(graph, ["loss:0"], ["W:0"])
entered = set()
def enter(frame, event, argument):
    if event == "call":
        entered.add(frame.f_code)
import threading
threading.setprofile(enter)
sys.setprofile(enter)
call()
sys.setprofile(None)
threading.setprofile(None)
top = os.path.dirname(os.path.abspath(cfgraph.__file__)) + os.sep
# the body of a module or a class that is loaded is not a function
codes = [code for code in entered if code.co_filename.startswith(top) and code.co_flags & 2]
files = {code.co_filename for code in codes}
print(json.dumps([len(files), len(codes)]))
"""


def sources(root: Path) -> dict[str, str]:
    """Map each measured file, by its path below the root, to its text."""
    files = [*root.glob("cfgraph/**/*.py"), *root.glob("commands/**/*.py")]
    paths = sorted(file.relative_to(root).as_posix() for file in files)
    return {
        path: (root / path).read_text(encoding="utf-8")
        for path in paths
        if not path.startswith("cfgraph/proto/") and path not in INDEXES
    }


@cache
def syntax_tree(file: Path) -> ast.Module:
    """The syntax tree of a file; to build all takes seconds.

    All are millions of objects: the garbage collector does not go over them, now or later.
    """
    gc.disable()
    try:
        return ast.parse(file.read_text(encoding="utf-8"))
    finally:
        gc.freeze()
        gc.enable()


def syntax_trees(root: Path) -> dict[str, ast.Module]:
    """Map each measured file to its syntax tree."""
    return {path: syntax_tree(root / path) for path in sources(root)}


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements in a node, without a pass over their expressions."""
    for child in direct_statements(node):
        yield child
        yield from statements(child)


def direct_statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements in the blocks of a node, not those in the blocks of these."""
    for block in ("body", "handlers", "orelse", "finalbody", "cases"):
        children = getattr(node, block, None)
        if isinstance(children, list):
            yield from children


def module_name(path: str) -> str:
    """Return the dotted name of a file's module."""
    name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return f"cfgraph.{name}" if name.split(".")[0] == "commands" else name


def importers(trees: dict[str, ast.Module]) -> dict[str, set[str]]:
    """Map each file to the files that import its module, in a function or for types too."""
    modules = {module_name(path): path for path in trees}
    found: dict[str, set[str]] = {path: set() for path in trees}
    for path, tree in trees.items():
        for name in _imported(tree):
            target = modules.get(name)
            if target and target != path:
                found[target].add(path)
    return found


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in statements(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def single_importers(trees: dict[str, ast.Module]) -> list[str]:
    """List the modules whose only importer is in the same folder.

    Op families are left out: a folder of ops is loaded by name, whoever else reads a family.
    A package's `__init__.py` is an importer like any other.
    """
    return sorted(
        path
        for path, users in importers(trees).items()
        if len(users) == 1
        and not path.endswith("__init__.py")
        and not path.startswith("cfgraph/ops/")
        and Path(path).parent == Path(next(iter(users))).parent
    )


def duplicate_classes(trees: dict[str, ast.Module]) -> dict[str, list[str]]:
    """Map each class name that several files define to these; a leading underscore is ignored."""
    files = defaultdict[str, set[str]](set)
    for path, tree in trees.items():
        for node in statements(tree):
            if isinstance(node, ast.ClassDef):
                files[node.name.lstrip("_")].add(path)
    return {name: sorted(paths) for name, paths in sorted(files.items()) if len(paths) > 1}


def questioning_docstrings(trees: dict[str, ast.Module]) -> list[str]:
    """List the docstrings that begin with a question word."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = []
    for path, tree in trees.items():
        for node in ast.walk(tree):
            text = ast.get_docstring(node) if isinstance(node, kinds) else None
            words = re.findall(r"\w+", text or "")
            if words and words[0].lower() in QUESTION_WORDS:
                found.append(f"{path}:{getattr(node, 'lineno', 1)}: {(text or '').splitlines()[0]}")
    return found


def words_of(identifier: str) -> list[str]:
    """Split an identifier at underscores and capitals, in lower case."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", identifier)]


def banned_words(path: str, tree: ast.Module) -> list[str]:
    """List `name (word)` for the names that a file makes up, and its own, with a banned word."""
    names = {Path(path).stem, *_defined(tree)}
    return sorted(f"{name} ({word})" for name in names for word in words_of(name) if word in BANNED)


def _defined(tree: ast.AST) -> Iterator[str]:
    """Yield the names that a file makes up: what it only reads belongs to its definition."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.alias) and node.asname:
            yield node.asname
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            yield node.name


def compares_roles(tree: ast.Module) -> bool:
    """True if the file compares something with the bare string of a role, or a set of them."""
    return any(
        any(_is_role(part) for part in [node.left, *node.comparators])
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
    ) or any(isinstance(node, ast.MatchValue) and _is_role(node.value) for node in ast.walk(tree))


def _is_role(node: ast.expr) -> bool:
    if isinstance(node, ast.Tuple | ast.Set | ast.List):
        return bool(node.elts) and all(_is_role(item) for item in node.elts)
    return isinstance(node, ast.Constant) and node.value in ROLES


def entered(root: Path, what: str, graph: str) -> tuple[int, int]:
    """Return the files and functions that the first run, or the gradients, of a graph enter."""
    done = subprocess.run(
        [sys.executable, "-c", TRACED, what, str(root / "fixtures" / "graphs" / graph)],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    files, functions = json.loads(done.stdout)
    return files, functions


def budgets(root: Path) -> dict[str, int]:
    """The lines of Python that each room may have, by the name of its folder."""
    found = tomllib.loads((root / BUDGETS).read_text(encoding="utf-8"))
    return dict[str, int](found["lines"])


def room_of(path: str) -> str | None:
    """The room of a file: a folder of `cfgraph/`, its own modules, `commands`, or `tests`.

    Each backend and each integration is a room.
    """
    folder, name, *inner = (*path.split("/"), "")
    if folder != "cfgraph":
        return folder if folder in {"commands", "tests"} else None
    if name == "proto" or path in INDEXES:
        return None
    if name in BANDS and len(inner) > 2:
        return f"{name}/{inner[0]}"
    return name if any(inner) else "cfgraph"


def lines_of_rooms(root: Path, revision: str = "") -> Counter[str]:
    """Count the lines of Python of each room: of a revision, or of the working tree."""
    where = ["-e", "", revision] if revision else ["--untracked", "-e", ""]
    command = ["git", "grep", "-c", *where, "--", "*.py"]
    found = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    rooms = Counter[str]()
    for row in found.stdout.splitlines():
        path, count = row.removeprefix(f"{revision}:").rsplit(":", 1)
        if room := room_of(path):
            rooms[room] += int(count)
    return rooms


def above_budget(root: Path) -> list[str]:
    """List the rooms with more lines than their budget, and those that have none."""
    allowed = budgets(root)
    return [
        f"{room} has {lines:,} lines, its budget in {BUDGETS} is {allowed.get(room, 0):,}"
        for room, lines in sorted(lines_of_rooms(root).items())
        if lines > allowed.get(room, 0)
    ]


def lower_budgets(root: Path) -> None:
    """Write the lines of each room that is below its budget into the file of budgets."""
    text = (root / BUDGETS).read_text(encoding="utf-8")
    for room, budget in budgets(root).items():
        lines = min(budget, lines_of_rooms(root)[room])
        text = re.sub(rf'(?m)^("?){room}\1 = [\d_]+$', rf"\g<1>{room}\1 = {lines:_}", text)
    (root / BUDGETS).write_text(text, encoding="utf-8")


def line_table(root: Path) -> list[str]:
    """Return a row per room: its lines, its budget, and the change since a tag and a commit."""
    revisions = list(_earlier_revisions(root))
    counts = [lines_of_rooms(root, revision) for revision in ("", *revisions)]
    for rooms in counts:
        rooms["product"] = rooms.total() - rooms["tests"]
    allowed = budgets(root)
    allowed["product"] = sum(allowed.values()) - allowed["tests"]
    width = max(map(len, allowed))
    rows = [f"{'room':{width}}    lines   budget" + "".join(f"{name:>10}" for name in revisions)]
    now, *before = counts
    for room, budget in allowed.items():
        changes = "".join(f"{now[room] - then[room]:>+10,}" for then in before)
        rows.append(f"{room:{width}} {now[room]:8,} {budget:8,}{changes}")
    return rows


def _earlier_revisions(root: Path) -> Iterator[str]:
    """Yield the last tag and the commit before the last one, if the checkout has them."""
    for command in ("describe --tags --abbrev=0", "rev-parse --quiet --verify --short HEAD~1"):
        done = subprocess.run(
            ["git", *command.split()], cwd=root, capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            yield done.stdout.strip()


def measures(root: Path) -> dict[str, Any]:
    """Return all measures of a checkout by name; lists and maps are what a count is of."""
    texts, trees = sources(root), syntax_trees(root)
    lines = [text.count("\n") for text in texts.values()]
    functions = [
        (node.end_lineno or node.lineno) - node.lineno + 1
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    banned = {path: words for path, tree in trees.items() if (words := banned_words(path, tree))}
    return {
        "files": len(texts),
        "lines": sum(lines),
        "median lines of a file": int(statistics.median(lines)),
        "median lines of a function": int(statistics.median(functions)),
        "modules whose only importer is in the same folder": single_importers(trees),
        "class names in several files": duplicate_classes(trees),
        "docstrings that begin with a question word": questioning_docstrings(trees),
        "banned words in identifiers": [name for names in banned.values() for name in names],
        "files with banned words in identifiers": banned,
        "files that compare role strings": sorted(
            path for path, tree in trees.items() if compares_roles(tree)
        ),
        "files, functions of the first run of counter.pb": entered(root, "run", "counter.pb"),
        "files, functions of the gradients of lstm.pb": entered(root, "gradients", "lstm.pb"),
    }


def main(arguments: list[str]) -> None:
    """Print a line for each measure, or what an option of the module's docstring says."""
    roots = [argument for argument in arguments if not argument.startswith("--")]
    root = Path(roots[0] if roots else Path(__file__).parent.parent).resolve()
    if "--lower" in arguments:
        lower_budgets(root)
    if "--lines" in arguments or "--lower" in arguments:
        print(*line_table(root), sep="\n")
        return
    if "--check" in arguments:
        found = above_budget(root)
        sys.exit("\n".join(found) or None)
    for name, value in measures(root).items():
        if isinstance(value, tuple):
            print(f"{name}: {', '.join(map(str, value))}")
        else:
            print(f"{name}: {value if isinstance(value, int) else len(value)}")
        if "--list" in arguments and isinstance(value, list):
            print(*(f"  {item} x{count}" for item, count in Counter(value).items()), sep="\n")
        elif "--list" in arguments and isinstance(value, dict):
            print(*(f"  {key}: {', '.join(items)}" for key, items in value.items()), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
