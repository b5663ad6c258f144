"""Judgment of Python files that `convert --to py` has written: what their code may consist of."""

from __future__ import annotations

import ast
import re
from pathlib import Path

_IMPORTS = {"numpy", "cfgraph.integrations.python_export.script", "cfgraph.script"}
_ATTRIBUTES = {"np", "script"}
_STATEMENTS = (
    ast.FunctionDef,
    ast.ImportFrom,
    ast.Import,
    ast.Assign,
    ast.Return,
    ast.For,
    ast.While,
    ast.If,
    ast.Expr,
    ast.Break,
    ast.Pass,
)
_PRIVATE = re.compile(r"_(?!(compute_\w+)?region\d+\Z)")
_INITIALIZER = r"( compute_\w+( _compute_\w+_region\d+)*)"
_FUNCTIONS = re.compile(rf"compute( _region\d+)* run{_INITIALIZER}*")


def source_fault(path: Path) -> str:
    """The part of a file that generated code has no use for, or ``; the file is loaded."""
    text = path.read_text()
    if not text.isascii():
        return "the text is not ASCII"
    tree = ast.parse(text)
    functions = " ".join(item.name for item in tree.body if isinstance(item, ast.FunctionDef))
    if not _FUNCTIONS.fullmatch(functions):
        return f"functions {functions}"
    for node in ast.walk(tree):
        if fault := _node_fault(node):
            return fault
    exec(compile(tree, path, "exec"), {"__name__": "converted", "__file__": str(path)})
    return ""


def _node_fault(node: ast.AST) -> str:
    if isinstance(node, ast.stmt) and not isinstance(node, _STATEMENTS):
        return f"a statement {type(node).__name__}"
    modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    if isinstance(node, ast.ImportFrom):
        modules = [node.module or ""]
    if not _IMPORTS.issuperset(modules):
        return f"an import of {modules}"
    if isinstance(node, ast.Attribute) and (
        not isinstance(node.value, ast.Name) or node.value.id not in _ATTRIBUTES
    ):
        return f"an attribute {node.attr}"
    if isinstance(node, ast.Name) and _PRIVATE.match(node.id) and node.id not in _DUNDERS:
        return f"a name {node.id}"
    if isinstance(node, ast.Call) and not isinstance(
        node.func, ast.Name | ast.Attribute | ast.Call
    ):
        return "a call of something without a name"
    return ""


_DUNDERS = ("__file__", "__name__")
