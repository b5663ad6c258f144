"""The part of CuPy's interface that NumPy has: names, parameters, and types of ufuncs.

`python -m tests.backends.gpu.surface` writes it again where CuPy is installed; no GPU is needed.
"""

from __future__ import annotations

import inspect
import json
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

FILE = Path(__file__).with_name("cupy.json")
# in CuPy and in NumPy, or SciPy
MODULES = {
    "": ("cupy", "numpy"),
    "linalg": ("cupy.linalg", "numpy.linalg"),
    "fft": ("cupy.fft", "numpy.fft"),
    "special": ("cupyx.scipy.special", "scipy.special"),
}


def surface(cupy: ModuleType) -> dict[str, Any]:
    """The part of CuPy that has NumPy's names."""
    libraries = (cupy, *map(import_module, ("numpy", "scipy")))
    # names in both depend on all of these modules
    found: dict[str, Any] = {"version": {item.__name__: item.__version__ for item in libraries}}
    for module, pair in MODULES.items():
        theirs, ours = map(import_module, pair)
        names = [name for name in dir(theirs) if hasattr(ours, name) and name[0] != "_"]
        found[module] = {name: _what(getattr(theirs, name), cupy.ufunc) for name in names}
    found["ndarray"] = [name for name in dir(cupy.ndarray) if name not in dir(object)]
    return found


def _what(item: Any, ufunc: type) -> Any:
    """The types of a ufunc, the parameters of a function, None for anything else."""
    if isinstance(item, ufunc):
        # `E` is bfloat16, as other libraries have it
        return {"types": item.types}
    if isinstance(item, type) or not callable(item):
        return None
    try:
        parameters = inspect.signature(item).parameters.values()
    except ValueError:
        return None
    return {
        "parameters": [one.name for one in parameters],
        "open": any(one.kind is one.VAR_KEYWORD for one in parameters),
        "many": any(one.kind is one.VAR_POSITIONAL for one in parameters),
    }


def recorded() -> dict[str, Any]:
    """The recorded interface."""
    return dict(json.loads(FILE.read_text(encoding="utf-8")))


def text(found: dict[str, Any]) -> str:
    """One line per name, so that a new version shows the differences."""
    parts = [f'"version": {json.dumps(found["version"])}']
    for module in MODULES:
        rows = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in found[module].items())
        parts.append(f"{json.dumps(module)}: {{\n{rows}\n}}")
    parts.append(f'"ndarray": {json.dumps(found["ndarray"])}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    import cupy

    FILE.write_text(text(surface(cupy)), encoding="utf-8")
