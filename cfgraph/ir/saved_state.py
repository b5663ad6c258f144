"""Sources of the initial state of a SavedModel: its checkpoint, initializer, and assets."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cfgraph.ir.file_io import decompress
from cfgraph.ir.serde.saved_model import Asset, SavedModelContents, Saver, saved_model_contents

_UTF8_BOM: Final = b"\xef\xbb\xbf"
VARIABLES_PREFIX: Final = Path("variables", "variables")


@dataclass(frozen=True, slots=True)
class SavedState:
    """Sources of a SavedModel's initial state.

    `saver` restores the variables from the checkpoint `prefix`; then `initializer` runs, with the
    paths of the assets fed. Each is None if there is none.
    """

    path: str
    folder: str
    prefix: str
    saver: Saver | None
    initializer: str | None
    assets: tuple[Asset, ...] = ()


def read_contents(data: bytes) -> SavedModelContents | None:
    """Signatures and set-up nodes of a SavedModel, or None for data of another format."""
    return saved_model_contents(decompress(data).removeprefix(_UTF8_BOM))


def saved_state(
    path: str | os.PathLike[str], contents: SavedModelContents | None
) -> SavedState | None:
    """Sources of the state of the SavedModel at `path`, or None if it has none.

    That includes a SavedModel whose variables are missing.
    """
    if contents is None:
        return None
    folder = Path(path) if os.path.isdir(path) else Path(path).parent
    prefix = folder / VARIABLES_PREFIX
    saver, initializer = contents.saver, contents.initializer
    lacks_variables = saver is not None and not prefix.with_suffix(".index").exists()
    if lacks_variables or (saver is None and initializer is None):
        return None
    return SavedState(str(path), str(folder), str(prefix), saver, initializer, contents.assets)
