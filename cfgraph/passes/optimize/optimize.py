"""Optimize a graph by rewrites that preserve every value and every liveness.

    x ──▶ Mul ◀── Const(1)       becomes       x
    Const(2), Const(3) ──▶ Add   becomes       Const(5)

The rules run in turn until none applies. Each is a module that describes its rewrite and the proof
that it requires: `A*0` is not replaced by 0, which would be live where A is dead. Nodes with
effects, random nodes, and control edges between the remaining nodes stay. Bodies of functions are
optimized like graphs whose outputs are fetched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Final

from cfgraph.analysis.verify.verify import require_valid, require_valid_result
from cfgraph.errors import Unsupported, UsageError
from cfgraph.ir.colocation import (
    COLOCATION_ATTR,
    colocated_name,
    colocation_group,
    colocation_groups,
)
from cfgraph.ir.gc_pause import paused_gc
from cfgraph.ir.graph import Graph, Node, require_graph
from cfgraph.ir.library import called_functions, remove_uncalled_functions
from cfgraph.ir.names import did_you_mean, name_list
from cfgraph.ir.node import node_name, split_tensor_name
from cfgraph.ir.traversal import ancestors, is_partitioned
from cfgraph.limits import check_deadline
from cfgraph.passes.optimize.function_bodies import optimize_functions
from cfgraph.passes.optimize.rewriting import (
    FixedNodes,
    KeptLoop,
    Rewrite,
    RewriteContext,
)
from cfgraph.passes.outcome import Report, op_counts, unchanged_on_error
from cfgraph.stack_position import LOCATORS, pass_position

PRUNE: Final = "prune"
UNROLL: Final = "unroll"
# rules with a module of the same name, in the order in which they run
_REPEATED: Final = ("fold", "arithmetic", "branches", "cse", "licm")
# modules of the rule that unrolls, for lowered and for functional loops
_UNROLLERS: Final = (UNROLL, "unroll_calls")
RULE_NAMES: Final = (PRUNE, *_REPEATED)
_MAX_ROUNDS: Final = 10
_NO_FETCHES: Final = "prune removes what no fetch needs, and no fetch is named (--fetch NAME)"


@dataclass(frozen=True, slots=True)
class Optimization(Report):
    """Report of an optimization: every rewrite, in order, and the loops that are not unrolled."""

    applied: tuple[Rewrite, ...] = ()
    rules: Mapping[str, int] = field(default_factory=dict)
    kept_loops: tuple[KeptLoop, ...] = ()


def optimize(
    graph: Graph,
    *,
    only: Collection[str] = (),
    skip: Collection[str] = (),
    fetches: str | Iterable[str] | None = None,
    feeds: Iterable[str] = (),
    keep: Iterable[str] = (),
    unroll: int | None = None,
) -> Optimization:
    """Rewrite a graph so that it runs faster, in place; all values and their liveness stay.

    Args:
        only: names of the rules to use: prune, fold, arithmetic, branches, cse, licm. Default: all.
        skip: names of the rules not to use.
        fetches: tensors that runs fetch, or nodes that they run; what none of them needs is
            removed. Without it, nodes without readers remain.
        feeds: tensors that runs may feed; they and their nodes stay.
        keep: more nodes that stay, under their names.
        unroll: replace loops of at most this many iterations by straight lines, where the number
            is static and the graph does not grow beyond the limit of nodes.

    Returns a report that lists the rewrites. Raises InvalidInput for an invalid graph, UsageError
    for an unknown name or rule, Unsupported for a partitioned graph; the graph is unchanged then.
    """
    require_graph(graph)
    require_valid(graph)
    rules = selected_rules(only, skip)
    if is_partitioned(graph):
        message = "a partitioned graph is not optimized"
        raise Unsupported(message, hint="optimize the graph before it is partitioned")
    before, size = op_counts(graph), len(graph)
    fetched = [] if fetches is None else name_list(fetches)
    wanted = {graph[node_name(name)] for name in fetched}
    fed = frozenset(graph.tensor(name) for name in feeds)
    kept = {*(tensor.node for tensor in fed), *(graph[node_name(n)] for n in keep)}
    named = frozenset(wanted | kept)
    later = {graph[node_name(name)] for name in fetched if split_tensor_name(name)[1]}
    first = named - kept - later
    with paused_gc(nodes=size), unchanged_on_error(graph):
        called = called_functions(graph)
        applied: list[Rewrite] = []
        if fetches is not None and PRUNE in rules:
            applied += prune(graph, named)
        unread = frozenset(node for node in graph if not node.uses)
        fixed = FixedNodes(named | unread, fed, named, first)
        context = RewriteContext(graph, fixed)
        apply = partial(_apply_rules, rules=rules, limit=unroll)
        apply(context)
        applied += context.rewrites
        kept_loops = [*context.kept_loops]
        if unroll is not None:
            remove_uncalled_functions(graph, graph.functions.keys() - called)
        applied += optimize_functions(graph, apply, kept_loops)
        remove_uncalled_functions(graph, graph.functions.keys() - called)
        if applied:
            require_valid_result(graph, "optimize")
    counts = Counter(rewrite.rule for rewrite in applied)
    return Optimization(
        rewrites=len(applied),
        names=remaining_names(graph, context.names),
        warnings=(_NO_FETCHES,) if rules == (PRUNE,) and fetches is None else (),
        before=before,
        after=op_counts(graph),
        applied=tuple(applied),
        rules={rule: counts[rule] for rule in (*rules, *([UNROLL] if counts[UNROLL] else []))},
        kept_loops=tuple(kept_loops),
    )


LOCATORS[optimize.__code__] = pass_position


def selected_rules(only: Collection[str], skip: Collection[str]) -> tuple[str, ...]:
    """The rules to use, in their order. Raises UsageError for an unknown one, and for none."""
    for name in (*only, *skip):
        if name not in RULE_NAMES:
            hint = did_you_mean(name, RULE_NAMES) or f"use {', '.join(RULE_NAMES)}"
            raise UsageError(f"unknown rule {name!r}", hint=hint)
    chosen = tuple(name for name in RULE_NAMES if name in (only or RULE_NAMES))
    rules = tuple(name for name in chosen if name not in skip)
    if not rules:
        raise UsageError("no rule remains", hint=f"the rules are {', '.join(RULE_NAMES)}")
    return rules


def remaining_names(
    graph: Graph, names: Mapping[str, tuple[str, ...]]
) -> dict[str, tuple[str, ...]]:
    """The tensors that remain, in place of tensors whose replacement was replaced, too."""
    remaining: dict[str, tuple[str, ...]] = {}
    for name in names:
        (last,), steps = names[name], len(names)
        while last in names and node_name(last) not in graph.nodes and steps:
            (last,), steps = names[last], steps - 1
        if node_name(last) in graph.nodes:
            remaining[name] = (last,)
    return remaining


def prune(graph: Graph, needed: Iterable[Node]) -> list[Rewrite]:
    """Remove the nodes that no needed node depends on; the others stay in their groups."""
    kept = set(ancestors(graph, needed))
    unneeded = {node.name: node for node in graph if node not in kept}
    graph.remove(*unneeded.values())
    _rename_groups(graph, unneeded)
    return [Rewrite(PRUNE, node.name, node.op, "") for node in unneeded.values()]


def _rename_groups(graph: Graph, removed: Mapping[str, Node]) -> None:
    """Name a group of colocated nodes by the first that remains, where its node was removed."""
    heads: dict[bytes, bytes] = {}
    for node in graph:
        groups = colocation_groups(node.attrs)
        for group in groups:
            head = removed.get(colocated_name(group) or "")
            if head is not None:
                heads.setdefault(group, colocation_group(node.name))
                if head.device and not node.device:
                    graph.set_device(node, head.device)
        renamed = tuple(dict.fromkeys(heads.get(group, group) for group in groups))
        if renamed != groups:
            graph.set_attr(node, COLOCATION_ATTR, renamed)


def _apply_rules(context: RewriteContext, rules: Collection[str], limit: int | None = None) -> None:
    """Unroll loops up to a limit, and apply the rules in turn, until nothing changes the graph."""
    active = [_rule(name) for name in _REPEATED if name in rules]
    for _ in range(_MAX_ROUNDS if active or limit is not None else 0):
        context.new_round()
        done = len(context.rewrites)
        if limit is not None:
            _unroll(context, limit)
        for rule in active:
            check_deadline()
            rule(context)
        if len(context.rewrites) == done:
            return


def _unroll(context: RewriteContext, limit: int) -> None:
    """Unroll lowered and functional loops; the other rules of the round analyze the result."""
    context.kept_loops.clear()
    for name in _UNROLLERS:
        _rule(name)(context, limit)
    context.new_round()


def _rule(name: str) -> Callable[..., None]:
    """The function of a rule, whose module has its name."""
    rule: Callable[..., None] = getattr(import_module(f"{__package__}.{name}"), name)
    return rule
