"""A SavedModel besides its graph: where the values of its variables are, and who brings them in."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cfgraph.ir.file_bytes import unpack
from cfgraph.ir.files import BOM
from cfgraph.ir.serde_formats import Saver, saver_of

PREFIX: Final = Path("variables", "variables")


@dataclass(frozen=True, slots=True)
class SavedVariables:
    """Where a graph and the values of its variables are, and what of the graph restores them."""

    path: str
    prefix: str
    saver: Saver


def saved_variables(path: str | os.PathLike[str], data: bytes) -> SavedVariables | None:
    """The variables beside the graph of a SavedModel, whose bytes are `data`; None without any."""
    folder = Path(path) if os.path.isdir(path) else Path(path).parent
    if not (folder / PREFIX).with_suffix(".index").exists():
        return None
    saver = saver_of(unpack(data).removeprefix(BOM))
    return None if saver is None else SavedVariables(str(path), str(folder / PREFIX), saver)
