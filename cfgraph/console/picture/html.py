"""A page about a graph, in one file that opens without a network.

Its parts are beside this module: `page.html` with a place for each, a style sheet, small scripts,
and Viz.js, which draws; see `VIZ.md` there.
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

from cfgraph.document import plain

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
    """The page that shows a model of `cfgraph.console.picture.model`."""
    parts = {
        "title": html.escape(str(model["title"])),
        "style": _asset("page.css"),
        "scripts": "\n".join(_asset(f"{name}.js") for name in SCRIPTS),
        "viz": _viz(),
        "model": script_json(model),
    }
    pieces = []
    for piece in _asset("page.html").split("{{"):
        name, end, rest = piece.partition("}}")
        pieces.append(parts[name] + rest if end else piece)
    return "".join(pieces).encode(errors="replace")


def script_json(value: Any) -> str:
    """JSON that cannot end the script that it stands in; strict, and ASCII whatever the names."""
    text = json.dumps(plain(value), allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def _asset(name: str) -> str:
    return _bytes(name).decode()


@cache
def _bytes(name: str) -> bytes:
    return resources.files("cfgraph.console.picture").joinpath("assets", name).read_bytes()


@cache
def _viz() -> str:
    return base64.b64encode(gzip.compress(_bytes(VIZ), 9, mtime=0)).decode()
