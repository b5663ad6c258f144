"""Calls of StableHLO modules, which jax2tf writes in place of ops."""

from __future__ import annotations

from typing import Any

from cfgraph.ir.graph import Node
from cfgraph.ops.opdef.facts import CompilerSupport, SideEffects
from cfgraph.ops.opdef.op import Op
from cfgraph.ops.opdef.resources import Step
from cfgraph.ops.opdef.stablehlo_modules import module_call


class XlaCallModule(Op):
    """A StableHLO module, compiled by XLA; functions of jax arrive in this form."""

    signature = "args: Tin -> output: Tout"
    attrs = (
        "version: int, module: string, Sout: list(shape) >= 0, Tout: list(type) >= 0, "
        "Tin: list(type) >= 0, dim_args_spec: list(string) = [], platforms: list(string) = [], "
        "function_list: list(func) = [], has_token_input_output: bool = false, "
        "disabled_checks: list(string) = [], use_shardy_partitioner: bool = false"
    )
    effects = SideEffects(stateful=True, reads_only=True, only_checks=True)
    compilation = CompilerSupport(traceable=False, compiled=False)

    @classmethod
    def run(cls, step: Step, node: Node, *inputs: Any) -> Any:
        results = step.run_module(module_call(node), inputs)
        return results[0] if len(results) == 1 else results or None

    shape = staticmethod(lambda context: list(context.attr("Sout")))
