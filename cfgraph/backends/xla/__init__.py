"""Compilation of clusters by XLA, through jax."""

from typing import Final

PROVIDES: Final = {
    ("compiler", "xla"): "compiled_cluster:XlaCompiler",
    ("tier", "xla"): "tier:XlaTier",
}
