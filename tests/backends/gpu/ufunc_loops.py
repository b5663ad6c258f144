"""The loops of ufuncs as CuPy selects one: the first that the types can be cast to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.backends.gpu.cupy_differences import BFLOAT16


def in_loop(name: str, ours: Callable[..., Any], loops: Any, args: Any) -> Any:
    """The result of the first loop that accepts the types; bfloat16 is computed as float32.

    Without a bfloat16 loop the float32 one runs, and its result stays float32.
    """
    count = len(loops[0].partition("->")[0])
    inputs = args[:count]
    types = [getattr(item, "dtype", None) for item in inputs]

    def fits(loop: str) -> bool:
        input_types = dtypes(loop.partition("->")[0])
        return all(
            have is None or np.can_cast(have, want)
            for have, want in zip(types, input_types, strict=True)
        )

    input_types, output_types = map(dtypes, next(filter(fits, loops)).split("->"))
    if name == "nextafter":
        return ours(*inputs)
    inputs = [
        item if have is None else item.astype(np.float32 if want == BFLOAT16 else want)
        for item, have, want in zip(inputs, types, input_types, strict=True)
    ]
    made = ours(*inputs)
    made = made if isinstance(made, tuple) else (made,)
    found = tuple(item.astype(want) for item, want in zip(made, output_types, strict=True))
    return found if len(found) > 1 else found[0]


def dtypes(letters: str) -> list[np.dtype[Any]]:
    """The types of a loop, from its letters."""
    return [BFLOAT16 if letter == "E" else np.dtype(letter) for letter in letters]
