"""Calls of StableHLO modules by nodes of a graph.

jax2tf writes a function of jax as one `XlaCallModule`, whose attribute `module` is a portable
artifact. The step of a run has the module run in a process of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from cfgraph.errors import Unsupported
from cfgraph.ir.graph import Node
from cfgraph.ops.opdef.op import OpError

# the versions of the calling convention that TensorFlow supports
VERSIONS: Final = range(5, 11)
_PLATFORM: Final = "CPU"


@dataclass(frozen=True, slots=True)
class ModuleCall:
    """A StableHLO module, and the attributes of the op that calls it."""

    data: bytes
    version: int
    platforms: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    has_tokens: bool = False
    disabled_checks: tuple[str, ...] = ()
    output_types: tuple[Any, ...] = ()

    @property
    def platform_index(self) -> int:
        """The index of the CPU among the platforms of the module.

        Raises OpError if it excludes the CPU, unless that check is disabled.
        """
        if not self.platforms or "platform" in self.disabled_checks:
            return self.platforms.index(_PLATFORM) if _PLATFORM in self.platforms else 0
        if _PLATFORM not in self.platforms:
            names = ", ".join(self.platforms)
            hint = f'export it with platforms=["cpu", …]; the module is for {names}'
            message = f"the platform {_PLATFORM} is not among those of the module: {names}"
            raise OpError(message, hint=hint)
        return self.platforms.index(_PLATFORM)

    def require_supported(self) -> None:
        """Raise Unsupported, which names what cfgraph lacks."""
        if self.version not in VERSIONS:
            message = f"version {self.version} of XlaCallModule is not supported"
            hint = f"versions {VERSIONS.start} to {VERSIONS.stop - 1} are; export it again"
            raise Unsupported(message, hint=hint, code="CFG701")
        if self.functions:
            names = ", ".join(repr(name) for name in self.functions)
            message = f"the module of XlaCallModule calls functions of the graph: {names}"
            hint = "export it without call_tf, or with call_tf_graph=False"
            raise Unsupported(message, hint=hint, code="CFG701")
        if self.has_tokens:
            message = "XlaCallModule with has_token_input_output is not supported"
            raise Unsupported(message, hint="export it with a newer jax", code="CFG701")


def module_call(node: Node) -> ModuleCall:
    """The call of a node of XlaCallModule."""

    def texts(name: str) -> tuple[str, ...]:
        return tuple(text.decode("utf-8", "replace") for text in node.attr(name) or ())

    return ModuleCall(
        node.attr("module"),
        node.attr("version"),
        texts("platforms"),
        tuple(function.name for function in node.attr("function_list") or ()),
        bool(node.attr("has_token_input_output")),
        texts("disabled_checks"),
        tuple(dtype.numpy for dtype in node.attr("Tout")),
    )
