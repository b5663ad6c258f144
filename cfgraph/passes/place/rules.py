"""Placement rules: `GLOB=device` texts and TOML files, and the nodes that each rule matches.

    schema = "cfgraph.placement/1"
    default = "cpu:0"               # for nodes without a matching rule and without a request

    [[rule]]
    node = "while/*"                # GLOB or a list of them; also op and frame; all must match
    device = "gpu:0"
    hard = true                     # an error if it cannot be satisfied, even with soft placement

    [[colocate]]
    nodes = ["w", "w/*"]            # all of these on one device

The last rule that matches a node decides and overrides the request of the node itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cfgraph.analysis.loops.frame import Frames
from cfgraph.analysis.loops.frames import frames
from cfgraph.analysis.node_filter import matches_filter, split_filter
from cfgraph.errors import InvalidInput, UsageError
from cfgraph.ir.devices import DeviceName
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.names import did_you_mean
from cfgraph.ir.nested_text import parse_toml
from cfgraph.limits import check_deadline

PLACEMENT_SCHEMA: Final = "cfgraph.placement/1"
_FILTERS: Final = {"node": "", "op": "op", "frame": "frame"}
_RULE_KEYS: Final = (*_FILTERS, "device", "hard", "by")
_FILE_KEYS: Final = ("schema", "default", "rule", "colocate")


@dataclass(frozen=True, slots=True)
class PlacementRule:
    """A device for the nodes that match every filter.

    A filter is a kind (`` for names, `op`, `frame`, `device`) and patterns, one of which must
    match. `label` names the rule in reports.
    """

    device: str
    filters: tuple[tuple[str, tuple[str, ...]], ...]
    hard: bool = False
    label: str = ""


@dataclass(frozen=True, slots=True)
class PlacementRules:
    """Rules by increasing precedence, the device of other nodes, and patterns to colocate."""

    rules: tuple[PlacementRule, ...] = ()
    default: str = ""
    colocated: tuple[tuple[str, ...], ...] = ()

    def __add__(self, other: PlacementRules) -> PlacementRules:
        """Concatenate two rule lists; rules of `other` take precedence."""
        default = other.default or self.default
        return PlacementRules(self.rules + other.rules, default, self.colocated + other.colocated)

    @classmethod
    def parse(cls, rules: PlacementRulesLike | None) -> PlacementRules:
        """Parse placement rules. Raises UsageError for malformed text."""
        if rules is None or isinstance(rules, PlacementRules):
            return rules or PlacementRules()
        if isinstance(rules, Mapping):
            return cls(
                tuple(_rule_for_pattern(pattern, device) for pattern, device in rules.items())
            )
        texts: Any = [rules] if isinstance(rules, str) else rules
        if not isinstance(texts, Iterable):
            hint = "write 'GLOB=DEVICE' texts, or a mapping from globs to devices"
            raise UsageError(f"rules is {rules!r}, expected placement rules", hint=hint)
        return cls(tuple(parse_rule(rule) if isinstance(rule, str) else rule for rule in texts))


# forms in which a caller may write rules: a device per pattern, or `PATTERN=DEVICE` texts
PlacementRulesLike = PlacementRules | Mapping[str, str] | Iterable[str | PlacementRule]


def combined_rules(path: str | Path | None, texts: Iterable[str]) -> PlacementRules:
    """Return the rules of a file, if any, then those written as texts."""
    return (read_rules(path) if path else PlacementRules()) + PlacementRules.parse(texts)


def parse_rule(text: str) -> PlacementRule:
    """Parse `GLOB=device`, `op:X=device`, or `frame:X=device`. Raises UsageError."""
    pattern, equals, device = text.rpartition("=")
    if not equals or not pattern:
        raise UsageError(f"{text!r} is not a rule", hint="write GLOB=DEVICE, as in 'while/*=gpu:0'")
    return _rule_for_pattern(pattern, device)


def read_rules(path: str | Path) -> PlacementRules:
    """Read rules from a TOML file. Raises InvalidInput for an unreadable or malformed file."""
    try:
        return _rules_from_toml(parse_toml(Path(path).read_text("utf-8")))
    except OSError as error:
        raise InvalidInput(
            f"cannot read the file: {error.strerror}", path=path, code="CFG001"
        ) from None
    except ValueError as error:  # invalid TOML or UTF-8, or a NUL in the path
        if "\0" in str(path):
            raise InvalidInput("the path contains NUL", path=path, code="CFG001") from None
        raise InvalidInput(f"invalid TOML: {error}", path=path, code="CFG406") from None
    except UsageError as error:
        raise InvalidInput(error.message, path=path, hint=error.hint, code="CFG406") from None


def _rule_for_pattern(pattern: str, device: str) -> PlacementRule:
    _require_device_name(device)
    kind, glob = split_filter(pattern)
    return PlacementRule(device, ((kind, (glob,)),), label=f"{pattern}={device}")


def _require_device_name(text: str) -> None:
    if not (text and isinstance(text, str)) or DeviceName.parse(text) is None:
        raise UsageError(f"{text!r} is not a device", hint="write it as cpu:0 or /job:worker/gpu:1")


def _rules_from_toml(document: dict[str, Any]) -> PlacementRules:
    _require_known_keys(document, _FILE_KEYS, "the file")
    if document.get("schema", PLACEMENT_SCHEMA) != PLACEMENT_SCHEMA:
        raise UsageError(
            f"unknown schema {document['schema']!r}", hint=f"expected {PLACEMENT_SCHEMA!r}"
        )
    rules = tuple(
        _rule_from_toml(entry, number)
        for number, entry in enumerate(_table_entries(document, "rule"), start=1)
    )
    default = document.get("default", "")
    if default:
        _require_device_name(_require_string(default, "default"))
    colocated = []
    for entry in _table_entries(document, "colocate"):
        _require_known_keys(entry, ("nodes",), "an entry of 'colocate'")
        colocated.append(_pattern_tuple(entry.get("nodes", ()), "nodes"))
    return PlacementRules(rules, default, tuple(colocated))


def _rule_from_toml(entry: dict[str, Any], number: int) -> PlacementRule:
    where = f"rule {number}"
    _require_known_keys(entry, _RULE_KEYS, where)
    filters = tuple(
        (kind, _pattern_tuple(entry[key], key)) for key, kind in _FILTERS.items() if key in entry
    )
    if not filters:
        raise UsageError(f"{where} matches nothing", hint="select nodes with node, op, or frame")
    device = _require_string(entry.get("device", ""), "device")
    _require_device_name(device)
    hard = entry.get("hard", False)
    if not isinstance(hard, bool):
        raise UsageError(f"'hard' of {where} is {hard!r}, expected true or false")
    shown = ", ".join(pattern for _, patterns in filters for pattern in patterns[:2])
    return PlacementRule(device, filters, hard, f"{where}: {shown}")


def _require_known_keys(entry: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for key in entry:
        if key not in known:
            message = f"{where} has an unknown key {key!r}"
            raise UsageError(message, hint=did_you_mean(key, known) or f"known: {', '.join(known)}")


def _table_entries(document: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    entries = document.get(key, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise UsageError(f"{key!r} is not a list of tables", hint=f"write [[{key}]] above each")
    return entries


def _pattern_tuple(value: Any, key: str) -> tuple[str, ...]:
    return tuple(
        _require_string(item, key) for item in (value if isinstance(value, list) else [value])
    )


def _require_string(value: Any, key: str) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{key!r} is {value!r}, expected a string")
    return value


_GLOB_CHARACTERS: Final = frozenset("*?[")
_MAX_WARNINGS: Final = 3


class RuleMatches:
    """The rule that applies to each matched node, the nodes to colocate, and warnings."""

    def __init__(self, graph: Graph, rules: PlacementRules) -> None:
        self.rule_of: dict[Node, PlacementRule] = {}
        self.graph = graph
        self._frames = _frames_if_needed(graph, rules)
        used = self._match(rules.rules)
        self.colocated = [self._matching_nodes(patterns) for patterns in rules.colocated]
        self.warnings = tuple(self._unmatched_rules(rules.rules, used))

    def _match(self, rules: tuple[PlacementRule, ...]) -> set[int]:
        """Find the last rule of each node; return the indices of all rules that apply.

        Exact names are looked up, so that a file with a rule per node takes linear time.
        """
        exact: dict[str, int] = {}
        wide: list[tuple[int, PlacementRule]] = []
        for index, rule in enumerate(rules):
            names = _exact_names(rule)
            exact.update((name, index) for name in names)
            if not names:
                wide.append((index, rule))
        used: set[int] = set()
        wide.reverse()
        for node in self.graph if rules else ():
            check_deadline()
            best = exact.get(node.name, -1)
            for index, rule in wide:
                if index < best:
                    break
                if self._matches(node, rule):
                    best = index
                    break
            if best >= 0:
                self.rule_of[node] = rules[best]
                used.add(best)
        return used

    def _matches(self, node: Node, rule: PlacementRule) -> bool:
        return all(
            any(matches_filter(node, self._frames, kind, pattern) for pattern in patterns)
            for kind, patterns in rule.filters
        )

    def _matching_nodes(self, patterns: Iterable[str]) -> list[Node]:
        return [
            node
            for node in self.graph
            if any(matches_filter(node, None, "", pattern) for pattern in patterns)
        ]

    def _unmatched_rules(self, rules: tuple[PlacementRule, ...], used: set[int]) -> Iterator[str]:
        """Warn about rules that match no node, which may contain a wrong name."""
        unmatched = [rule for index, rule in enumerate(rules) if index not in used]
        unmatched = [rule for rule in unmatched if not self._matches_any(rule)]
        for rule in unmatched[:_MAX_WARNINGS]:
            guess = did_you_mean(rule.filters[0][1][0], self._candidates(rule.filters[0][0]))
            yield f"no node matches {rule.label}" + (f"; {guess}" if guess else "")
        if len(unmatched) > _MAX_WARNINGS:
            yield f"{len(unmatched) - _MAX_WARNINGS} more rules match no node"

    def _matches_any(self, rule: PlacementRule) -> bool:
        names = _exact_names(rule)
        if names:
            return any(name in self.graph.nodes for name in names)
        return any(self._matches(node, rule) for node in self.graph)

    def _candidates(self, kind: str) -> Iterable[str]:
        if kind == "op":
            return dict.fromkeys(node.op for node in self.graph)
        return self.graph.nodes if not kind else ()


def _exact_names(rule: PlacementRule) -> tuple[str, ...]:
    """Return the node names of a rule without wildcards and other filters, else nothing."""
    if len(rule.filters) != 1 or rule.filters[0][0]:
        return ()
    patterns = rule.filters[0][1]
    return () if any(_GLOB_CHARACTERS & set(pattern) for pattern in patterns) else patterns


def _frames_if_needed(graph: Graph, rules: PlacementRules) -> Frames | None:
    by_frame = any(kind == "frame" for rule in rules.rules for kind, _ in rule.filters)
    return frames(graph) if by_frame else None
