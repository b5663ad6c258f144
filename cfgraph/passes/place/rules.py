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

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cfgraph.analysis.loops.frames import Frames, frames
from cfgraph.analysis.node_filter import matches_filter, split_filter
from cfgraph.errors import InvalidInput, UsageError
from cfgraph.ir.devices import DeviceName
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.names import did_you_mean

PLACEMENT_SCHEMA: Final = "cfgraph.placement/1"
_FILTERS: Final = {"node": "", "op": "op", "frame": "frame"}
_RULE_KEYS: Final = (*_FILTERS, "device", "hard", "by")
_FILE_KEYS: Final = ("schema", "default", "rule", "colocate")


@dataclass(frozen=True, slots=True)
class PlacementRule:
    """Nodes that pass each filter, by one of its patterns, go to a device.

    A filter is its kind (`` for names, `op`, `frame`, `device`) and its patterns. `label` is how
    reports call the rule.
    """

    device: str
    filters: tuple[tuple[str, tuple[str, ...]], ...]
    hard: bool = False
    label: str = ""


@dataclass(frozen=True, slots=True)
class PlacementRules:
    """Rules, the last one first in rank; the device of what they leave; what goes together."""

    rules: tuple[PlacementRule, ...] = ()
    default: str = ""
    together: tuple[tuple[str, ...], ...] = ()

    def __add__(self, other: PlacementRules) -> PlacementRules:
        """Both, those of `other` last."""
        default = other.default or self.default
        return PlacementRules(self.rules + other.rules, default, self.together + other.together)

    @classmethod
    def of(cls, given: PlacementRulesLike | None) -> PlacementRules:
        """Rules as the caller wrote them. Raises UsageError for a text that is none."""
        if given is None or isinstance(given, PlacementRules):
            return given or PlacementRules()
        if isinstance(given, Mapping):
            return cls(
                tuple(_rule_for_pattern(pattern, device) for pattern, device in given.items())
            )
        if isinstance(given, str):
            given = [given]
        return cls(tuple(parse_rule(item) if isinstance(item, str) else item for item in given))


# as a caller writes them: the device of each pattern, or texts
PlacementRulesLike = PlacementRules | Mapping[str, str] | Iterable[str | PlacementRule]


def combined_rules(path: str | Path | None, texts: Iterable[str]) -> PlacementRules:
    """The rules of a file, if there is one, then those written as texts. Raises like both."""
    return (read_rules(path) if path else PlacementRules()) + PlacementRules.of(texts)


def parse_rule(text: str) -> PlacementRule:
    """A rule written `GLOB=device`, `op:X=device` or `frame:X=device`. Raises UsageError."""
    pattern, equals, device = text.rpartition("=")
    if not equals or not pattern:
        raise UsageError(f"{text!r} is no rule", hint="write it as 'while/*=gpu:0'")
    return _rule_for_pattern(pattern, device)


def read_rules(path: str | Path) -> PlacementRules:
    """The rules of a TOML file. Raises InvalidInput where it cannot be read, or is none."""
    try:
        told = tomllib.loads(Path(path).read_text("utf-8"))
        return _rules_from_toml(told)
    except OSError as error:
        raise InvalidInput(f"cannot read it: {error.strerror}", path=path, code="CFG001") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"no TOML: {error}", path=path, code="CFG406") from None
    except UsageError as error:
        raise InvalidInput(error.message, path=path, hint=error.hint, code="CFG406") from None


def _rule_for_pattern(pattern: str, device: str) -> PlacementRule:
    _require_device_name(device)
    kind, glob = split_filter(pattern)
    return PlacementRule(device, ((kind, (glob,)),), label=f"{pattern}={device}")


def _require_device_name(text: str) -> None:
    if not text or DeviceName.parse(text) is None:
        raise UsageError(f"{text!r} is no device", hint="write it as cpu:0 or /job:worker/gpu:1")


def _rules_from_toml(told: dict[str, Any]) -> PlacementRules:
    _require_known_keys(told, _FILE_KEYS, "the file")
    if told.get("schema", PLACEMENT_SCHEMA) != PLACEMENT_SCHEMA:
        raise UsageError(
            f"the schema is {told['schema']!r}", hint=f"this reads {PLACEMENT_SCHEMA!r}"
        )
    rules = tuple(
        _rule_from_toml(entry, place)
        for place, entry in enumerate(_table_entries(told, "rule"), start=1)
    )
    default = told.get("default", "")
    if default:
        _require_device_name(_require_string(default, "default"))
    together = []
    for entry in _table_entries(told, "colocate"):
        _require_known_keys(entry, ("nodes",), "an entry of 'colocate'")
        together.append(_pattern_tuple(entry.get("nodes", ()), "nodes"))
    return PlacementRules(rules, default, tuple(together))


def _rule_from_toml(entry: dict[str, Any], place: int) -> PlacementRule:
    where = f"rule {place}"
    _require_known_keys(entry, _RULE_KEYS, where)
    filters = tuple(
        (kind, _pattern_tuple(entry[key], key)) for key, kind in _FILTERS.items() if key in entry
    )
    if not filters:
        raise UsageError(f"{where} matches nothing", hint="name nodes with node, op or frame")
    device = _require_string(entry.get("device", ""), "device")
    _require_device_name(device)
    hard = entry.get("hard", False)
    if not isinstance(hard, bool):
        raise UsageError(f"'hard' of {where} is {hard!r}, not true or false")
    shown = ", ".join(pattern for _, patterns in filters for pattern in patterns[:2])
    return PlacementRule(device, filters, hard, f"{where}: {shown}")


def _require_known_keys(entry: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for key in entry:
        if key not in known:
            message = f"{where} has a key {key!r} that means nothing"
            raise UsageError(message, hint=did_you_mean(key, known) or f"known: {', '.join(known)}")


def _table_entries(told: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    found = told.get(key, [])
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise UsageError(f"{key!r} is no list of tables", hint=f"write [[{key}]] above each")
    return found


def _pattern_tuple(value: Any, key: str) -> tuple[str, ...]:
    return tuple(
        _require_string(item, key) for item in (value if isinstance(value, list) else [value])
    )


def _require_string(value: Any, key: str) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{key!r} is {value!r}, not a text")
    return value


_GLOB_CHARACTERS: Final = frozenset("*?[")
_MAX_WARNINGS: Final = 3


class RuleMatches:
    """The rule of each node that one matches, the nodes to put together, and warnings."""

    def __init__(self, graph: Graph, rules: PlacementRules) -> None:
        self.by: dict[Node, PlacementRule] = {}
        self.graph = graph
        self._frames = _frames_if_needed(graph, rules)
        used = self._match(rules.rules)
        self.together = [self._chosen(patterns) for patterns in rules.together]
        self.warnings = tuple(self._unmatched_rules(rules.rules, used))

    def _match(self, rules: tuple[PlacementRule, ...]) -> set[int]:
        """Find the last rule of each node, so that a file of many exact names takes no longer."""
        exact: dict[str, int] = {}
        wide: list[tuple[int, PlacementRule]] = []
        for place, rule in enumerate(rules):
            names = _exact_names(rule)
            exact.update((name, place) for name in names)
            if not names:
                wide.append((place, rule))
        used: set[int] = set()
        wide.reverse()
        for node in self.graph if rules else ():
            best = exact.get(node.name, -1)
            for place, rule in wide:
                if place < best:
                    break
                if self._matches(node, rule):
                    best = place
                    break
            if best >= 0:
                self.by[node] = rules[best]
                used.add(best)
        return used

    def _matches(self, node: Node, rule: PlacementRule) -> bool:
        return all(
            any(matches_filter(node, self._frames, kind, pattern) for pattern in patterns)
            for kind, patterns in rule.filters
        )

    def _chosen(self, patterns: Iterable[str]) -> list[Node]:
        return [
            node
            for node in self.graph
            if any(matches_filter(node, None, "", pattern) for pattern in patterns)
        ]

    def _unmatched_rules(self, rules: tuple[PlacementRule, ...], used: set[int]) -> Iterator[str]:
        """Tell of rules that match no node, for a name in them may be wrong."""
        silent = [rule for place, rule in enumerate(rules) if place not in used]
        silent = [rule for rule in silent if not self._matches_any(rule)]
        for rule in silent[:_MAX_WARNINGS]:
            guess = did_you_mean(rule.filters[0][1][0], self._known(rule.filters[0][0]))
            yield f"no node matches {rule.label}" + (f"; {guess}" if guess else "")
        if len(silent) > _MAX_WARNINGS:
            yield f"{len(silent) - _MAX_WARNINGS} more rules match no node"

    def _matches_any(self, rule: PlacementRule) -> bool:
        names = _exact_names(rule)
        if names:
            return any(name in self.graph.nodes for name in names)
        return any(self._matches(node, rule) for node in self.graph)

    def _known(self, kind: str) -> Iterable[str]:
        if kind == "op":
            return dict.fromkeys(node.op for node in self.graph)
        return self.graph.nodes if not kind else ()


def _exact_names(rule: PlacementRule) -> tuple[str, ...]:
    """The names of a rule that goes by whole names alone, else none."""
    if len(rule.filters) != 1 or rule.filters[0][0]:
        return ()
    patterns = rule.filters[0][1]
    return () if any(_GLOB_CHARACTERS & set(pattern) for pattern in patterns) else patterns


def _frames_if_needed(graph: Graph, rules: PlacementRules) -> Frames | None:
    by_frame = any(kind == "frame" for rule in rules.rules for kind, _ in rule.filters)
    return frames(graph) if by_frame else None
