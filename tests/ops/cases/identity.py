"""Constants, and ops that forward a value."""

import numpy as np

from cfgraph.ir.shapes import Shape
from tests.ops.harness import case

WITHOUT_CASE = {
    "Placeholder": "it has no value of its own: the runtime's tests feed it",
    "PlaceholderV2": "as Placeholder",
    "RefSelect": "a reference comes from a variable",
    "XlaCallModule": "it needs a module of jax: tests/integrations/stablehlo runs it",
    "XlaLaunch": "it needs a library that holds its function: the tests of clusters run it",
}
CASES = [
    case("Const", attrs={"value": np.array([1, 2], np.int64), "dtype": np.int64}),
    case("Const", attrs={"value": np.array(2.5, np.float32), "dtype": np.float32}),
    *(case("Identity", [x]) for x in (np.float32(3), np.zeros((0, 2), np.int8), ["a", b"\xff"])),
    case("PlaceholderWithDefault", [np.ones((2, 3))], {"shape": Shape((2, None))}),
    case("NoOp"),
]
