"""Objects that a notebook draws: their renderers load when the first of them is displayed."""

from __future__ import annotations

from cfgraph.extensions import RENDERER, extension


class Displayed:
    """An object with an HTML display, in which all text of a graph is escaped."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        """The HTML that a notebook displays."""
        html: str = extension(RENDERER, "to_html")(self)
        return html


class DisplayedReport(Displayed):
    """A report with a text, as the commands print it."""

    __slots__ = ()

    def __str__(self) -> str:
        text: str = extension(RENDERER, "to_text")(self)
        return text


class Pictured(Displayed):
    """An object with an interactive page."""

    __slots__ = ()

    def show(self, path: str | None = None) -> str | None:
        """Show the interactive page: in a notebook below the cell, elsewhere in the web browser.

        With `path` the page, one file that needs no network, is written there instead. Returns the
        path of the file, or None in a notebook. Without a browser, a note on stderr names the file.
        """
        shown: str | None = extension(RENDERER, "show")(self, path)
        return shown
