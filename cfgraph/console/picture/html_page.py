"""A self-contained HTML page about a graph, which needs no network.

The assets next to this module are a template, a style sheet, scripts, and Viz.js (see `VIZ.md`).
"""

from __future__ import annotations

import base64
import gzip
import html
import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, Final

from cfgraph.console.json_output import json_value

SCRIPTS: Final = (
    "model",
    "dot",
    "view",
    "colour",
    "details",
    "search",
    "legend",
    "run",
    "timeline",
    "main",
)
VIZ: Final = "viz-global.js"


def page_bytes(model: Mapping[str, Any]) -> bytes:
    """Render a model of `cfgraph.console.picture.model` as a page."""
    parts = {
        "title": html.escape(str(model["title"])),
        "style": _asset("page.css"),
        "scripts": "\n".join(_asset(f"{name}.js") for name in SCRIPTS),
        "viz": _viz_base64(),
        "model": script_json(model),
    }
    pieces = []
    for piece in _asset("page.html").split("{{"):
        name, end, rest = piece.partition("}}")
        pieces.append(parts[name] + rest if end else piece)
    return "".join(pieces).encode(errors="replace")


def script_json(value: Any) -> str:
    """Return JSON that cannot end its script element: strict, and ASCII whatever the names are."""
    text = json.dumps(json_value(value), allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def _asset(name: str) -> str:
    return _asset_bytes(name).decode()


@cache
def _asset_bytes(name: str) -> bytes:
    return resources.files("cfgraph.console.picture").joinpath("assets", name).read_bytes()


@cache
def _viz_base64() -> str:
    return base64.b64encode(gzip.compress(_asset_bytes(VIZ), 9, mtime=0)).decode()
