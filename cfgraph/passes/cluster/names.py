"""Names of arguments, as the library of functions allows them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from cfgraph.ir.graph import Output

_NO_NAME: Final = re.compile(r"[^a-z0-9_]+")


class ArgumentNames:
    """New names, apart from those that are taken."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)

    def new(self, item: Output, suffix: str = "") -> str:
        """A name after that of the node."""
        base = _NO_NAME.sub("_", item.node.name.rpartition("/")[2].lower()).strip("_")
        base = base if base[:1].isalpha() else f"arg_{base}".rstrip("_")
        base = f"{base}_{suffix}" if suffix else base
        name, number = base, 0
        while name in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._taken.add(name)
        return name
