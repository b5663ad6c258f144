"""The generated index of op families, and loading on demand."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections import defaultdict
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import cfgraph.ops
from cfgraph.ir import registry
from cfgraph.ops import families
from cfgraph.ops.opdef.op import lookup

INDEX = Path(cfgraph.ops.__file__).parent / "index.py"
HEADER = '''\
"""Ops of each family, by module; `pytest --update` regenerates this file."""

from typing import Final

FAMILIES: Final = {
'''
# loads a graph and runs it; prints the families that were loaded
RUN = """
import sys, cfgraph
graph = cfgraph.load(sys.argv[1])
cfgraph.Session(graph).run(["count:0"], {"n:0": 3})
print([name.rpartition(".")[2] for name in sys.modules if name.startswith("cfgraph.ops.families.")])
"""
# imports every family; prints the libraries that only few kernels need
IMPORT = """
import sys
from importlib import import_module
from pkgutil import iter_modules
from cfgraph.ops import families
for module in iter_modules(families.__path__):
    import_module(f"{families.__name__}.{module.name}")
print([name for name in ("jax", "ml_dtypes", "scipy") if name in sys.modules])
"""


def generated_index() -> str:
    """Return the text of the index, from all families that there are."""
    ops: dict[str, list[str]] = defaultdict(list)
    for module in iter_modules(families.__path__):
        import_module(f"{families.__name__}.{module.name}")
    for name in registry.op_names():
        op = lookup(name)
        assert op is not None, name
        package, _, family = op.__module__.rpartition(".")
        if package == families.__name__:
            ops[family].append(name)
    return HEADER + "".join(map(_entry, sorted(ops), map(ops.__getitem__, sorted(ops)))) + "}\n"


def _entry(family: str, names: list[str]) -> str:
    # wider lines than these are ruff's, which joins what fits
    text = " ".join(names)
    lines = [text] if len(text) <= 90 else textwrap.wrap(text, 88, break_long_words=False)
    if len(lines) == 1 and len(line := f'    "{family}": "{lines[0]}",\n') <= 101:
        return line
    texts = [f'        "{line} "\n' for line in lines[:-1]] + [f'        "{lines[-1]}"\n']
    return f'    "{family}": (\n{"".join(texts)}    ),\n'


def test_the_index_lists_every_op_with_its_family(update: bool) -> None:
    text = generated_index()
    if update:
        INDEX.write_text(text, encoding="utf-8")
    assert INDEX.read_text(encoding="utf-8") == text


def test_no_family_loads_a_library_for_a_few_kernels() -> None:
    command = [sys.executable, "-c", IMPORT]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_run_loads_only_the_families_that_it_needs(fixtures: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(fixtures / "graphs" / "counter.pb")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "control_flow" in done.stdout
    assert not [name for name in ("convolution", "fourier", "sparse") if name in done.stdout]


def test_an_unknown_op_has_no_definition() -> None:
    assert lookup("NoSuchOp") is None
    assert "NoSuchOp" not in registry.op_names()
