"""The ops, one class each, in families that are loaded when one of their ops is looked up."""

from cfgraph.ir import registry
from cfgraph.ops.index import FAMILIES

registry.install_index(
    {op: f"cfgraph.ops.families.{family}" for family, ops in FAMILIES.items() for op in ops.split()}
)
registry.install_declarations("cfgraph.ops.declared")
