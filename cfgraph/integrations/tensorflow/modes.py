"""The modes in which TensorFlow runs a graph, the text that selects one, and converters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from cfgraph.errors import UsageError

ENGINE: Final = "tensorflow"
ONNX_OPSET: Final = 18


@dataclass(frozen=True, slots=True)
class Mode:
    """One way of TensorFlow to run a graph; `flags` are those of XLA, `rewrites` Grappler's.

    Another `program` than TensorFlow converts the graph.

    An executor returns an empty array for a dead tensor (`has_dead_values`). A process is replaced
    after `max_requests`: it keeps the functions of all of them.
    """

    name: str
    description: str
    flags: str = ""
    rewrites: bool = False
    has_dead_values: bool = True
    max_requests: int = 200
    program: str = ""

    @property
    def title(self) -> str:
        """The mode as messages name it."""
        return self.program or f"TensorFlow ({self.name})"

    @property
    def text(self) -> str:
        """The mode as an option names it."""
        return f"{ENGINE}:{self.name}"


MODES: Final = {
    mode.name: mode
    for mode in (
        Mode("graph", "the executor, without rewrites"),
        Mode("grappler", "the executor, after the rewrites of Grappler", rewrites=True),
        Mode(
            "autojit",
            "Grappler, then clusters that XLA forms and compiles",
            "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit",
            rewrites=True,
        ),
        Mode("jit", "the whole function compiled by XLA (jit_compile)", has_dead_values=False),
        Mode(
            "lite",
            "converted, and run by the interpreter of TensorFlow Lite",
            has_dead_values=False,
            max_requests=1,  # the converter adds functions under the same names
        ),
    )
}
_ONNX: Final = Mode(
    "onnx",
    "converted by tf2onnx, and run by onnxruntime",
    has_dead_values=False,
    max_requests=1,
    program="tf2onnx with onnxruntime",
)
# that tf2onnx inlines before TensorFlow's optimizer sees it, other than a graph file
SAVED_MODEL_ONNX: Final = replace(_ONNX, name="saved_model_onnx")
# the modes that run the model of a converter, by its format
CONVERTER_MODES: Final = {mode.name: mode for mode in (MODES["lite"], _ONNX, SAVED_MODEL_ONNX)}


def parse_modes(text: str, option: str) -> tuple[Mode, ...]:
    """Return the modes of `tensorflow:MODE`, all of them for `tensorflow`.

    Raises UsageError for another text.
    """
    engine, colon, name = text.partition(":")
    if engine != ENGINE or (colon and name not in MODES):
        message = f"invalid {option} {text!r}"
        hint = f"write {ENGINE} or {ENGINE}:MODE, with a MODE of {', '.join(MODES)}"
        raise UsageError(message, hint=hint)
    return (MODES[name],) if colon else tuple(MODES.values())
