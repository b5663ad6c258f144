"""Displays of graphs and reports in notebooks, through IPython."""

from typing import Final

PROVIDES: Final = {
    ("renderer", "to_html"): "display:to_html",
    ("renderer", "to_text"): "display:to_text",
    ("renderer", "show"): "display:show",
}
