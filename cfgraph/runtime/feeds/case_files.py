"""Archives of one case of compared runs, which `--feeds` reads back.

x:0                         an array to feed, by the name of its tensor
@seed                       the seed of random ops, and of inputs without a value
@variable:CONTAINER:NAME    the value of a variable that has no other one
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import IO, Any, Final

import numpy as np

from cfgraph.errors import InvalidInput, UsageError
from cfgraph.runtime.feeds.parse_feeds import CASE_PREFIX, FeedArchive, read_npz

_SEED: Final = f"{CASE_PREFIX}seed"
_VARIABLE: Final = f"{CASE_PREFIX}variable:"

VariableKey = tuple[str, str]


@dataclass(slots=True)
class SavedCase:
    """The seed of a case, and values of variables by container and name."""

    seed: int | None = None
    variables: dict[VariableKey, Any] = field(default_factory=dict)


def read_case(archives: Iterable[FeedArchive]) -> SavedCase:
    """Read what archives have besides feeds. Raises InvalidInput for an unknown entry."""
    case = SavedCase()
    for path in archives:
        if isinstance(path, Mapping) or not path.endswith(".npz"):
            continue
        for name, value in read_npz(path, lambda key: key.startswith(CASE_PREFIX)):
            if name == _SEED and value.ndim == 0 and value.dtype.kind in "iu":
                case.seed = int(value)
            elif name.startswith(_VARIABLE) and name.count(":") > 1:
                container, _, shared = name.removeprefix(_VARIABLE).partition(":")
                case.variables[container, shared] = value
            else:
                message = f"{name!r} is neither a tensor nor part of a case"
                hint = f"a case has {_SEED} and {_VARIABLE}CONTAINER:NAME"
                raise InvalidInput(message, path=path, hint=hint, code="CFG030")
    return case


def case_arrays(
    feeds: Mapping[str, Any], variables: Mapping[VariableKey, Any], seed: int
) -> dict[str, Any]:
    """Return the entries of the archive of a case."""
    named = {f"{_VARIABLE}{container}:{name}": v for (container, name), v in variables.items()}
    return {**feeds, _SEED: np.int64(seed), **named}


def write_array(file: IO[bytes], name: str, value: Any) -> None:
    """Write an array as .npy, strings as bytes. Raises UsageError for resources and variants."""
    array = np.asarray(value)
    if array.dtype == object:
        if not all(isinstance(entry, bytes) for entry in array.flat):
            raise UsageError(f"{name} cannot be stored in a file")
        array = _bytes_array(array)
    elif array.dtype.kind == "V" or array.dtype.name.startswith("float8"):
        # the .npy format has no name for these types
        array = array.view(f"V{array.dtype.itemsize}")
    np.save(file, array, allow_pickle=False)


def _bytes_array(array: Any) -> Any:
    """Convert strings to fixed length; rejects trailing zero bytes, which NumPy drops."""
    fixed = array.astype(np.bytes_) if array.size else np.zeros(array.shape, "S1")
    if any(have != want for have, want in zip(fixed.flat, array.flat, strict=True)):
        message = "a string that ends in zero bytes cannot be stored in .npy"
        raise UsageError(message, hint="print it with --json")
    return fixed
