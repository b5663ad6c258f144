"""Rules that say where nodes go: texts `GLOB=device`, and files of them in TOML.

    schema = "cfgraph.placement/1"
    default = "cpu:0"               # of nodes that no rule matches and that ask for nothing

    [[rule]]
    node = "while/*"                # GLOB or list of them; also op, frame; all that is named counts
    device = "gpu:0"
    hard = true                     # an error where it cannot be met, soft placement or not

    [[colocate]]
    nodes = ["w", "w/*"]            # all of these on one device

The last rule that matches a node decides; it outweighs what the node itself asks for.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cfgraph.analysis.node_filter import split_filter
from cfgraph.errors import InvalidInput, UsageError
from cfgraph.ir.device_name import DeviceName
from cfgraph.ir.names import did_you_mean

SCHEMA: Final = "cfgraph.placement/1"
_FILTERS: Final = {"node": "", "op": "op", "frame": "frame"}
_RULE_KEYS: Final = (*_FILTERS, "device", "hard", "by")
_FILE_KEYS: Final = ("schema", "default", "rule", "colocate")


@dataclass(frozen=True, slots=True)
class Rule:
    """Nodes that pass each filter, by one of its patterns, go to a device.

    A filter is its kind (`` for names, `op`, `frame`, `device`) and its patterns. `label` is how
    reports call the rule.
    """

    device: str
    filters: tuple[tuple[str, tuple[str, ...]], ...]
    hard: bool = False
    label: str = ""


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules, the last one first in rank; the device of what they leave; what goes together."""

    rules: tuple[Rule, ...] = ()
    default: str = ""
    together: tuple[tuple[str, ...], ...] = ()

    def __add__(self, other: Rules) -> Rules:
        """Both, those of `other` last."""
        default = other.default or self.default
        return Rules(self.rules + other.rules, default, self.together + other.together)

    @classmethod
    def of(cls, given: GivenRules | None) -> Rules:
        """Rules as the caller wrote them. Raises UsageError for a text that is none."""
        if given is None or isinstance(given, Rules):
            return given or Rules()
        if isinstance(given, Mapping):
            return cls(tuple(_rule(pattern, device) for pattern, device in given.items()))
        if isinstance(given, str):
            given = [given]
        return cls(tuple(parse_rule(item) if isinstance(item, str) else item for item in given))


# as a caller writes them: the device of each pattern, or texts
GivenRules = Rules | Mapping[str, str] | Iterable[str | Rule]


def all_rules(path: str | Path | None, texts: Iterable[str]) -> Rules:
    """The rules of a file, if there is one, then those written as texts. Raises like both."""
    return (read_rules(path) if path else Rules()) + Rules.of(texts)


def parse_rule(text: str) -> Rule:
    """A rule written `GLOB=device`, `op:X=device` or `frame:X=device`. Raises UsageError."""
    pattern, equals, device = text.rpartition("=")
    if not equals or not pattern:
        raise UsageError(f"{text!r} is no rule", hint="write it as 'while/*=gpu:0'")
    return _rule(pattern, device)


def read_rules(path: str | Path) -> Rules:
    """The rules of a TOML file. Raises InvalidInput where it cannot be read, or is none."""
    try:
        told = tomllib.loads(Path(path).read_text("utf-8"))
        return _read_file(told)
    except OSError as error:
        raise InvalidInput(f"cannot read it: {error.strerror}", path=path, code="CFG001") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"no TOML: {error}", path=path, code="CFG406") from None
    except UsageError as error:
        raise InvalidInput(error.message, path=path, hint=error.hint, code="CFG406") from None


def _rule(pattern: str, device: str) -> Rule:
    _require_device(device)
    kind, glob = split_filter(pattern)
    return Rule(device, ((kind, (glob,)),), label=f"{pattern}={device}")


def _require_device(text: str) -> None:
    if not text or DeviceName.parse(text) is None:
        raise UsageError(f"{text!r} is no device", hint="write it as cpu:0 or /job:worker/gpu:1")


def _read_file(told: dict[str, Any]) -> Rules:
    _require_keys(told, _FILE_KEYS, "the file")
    if told.get("schema", SCHEMA) != SCHEMA:
        raise UsageError(f"the schema is {told['schema']!r}", hint=f"this reads {SCHEMA!r}")
    rules = tuple(
        _read_rule(entry, place) for place, entry in enumerate(_entries(told, "rule"), start=1)
    )
    default = told.get("default", "")
    if default:
        _require_device(_text(default, "default"))
    together = []
    for entry in _entries(told, "colocate"):
        _require_keys(entry, ("nodes",), "an entry of 'colocate'")
        together.append(_patterns(entry.get("nodes", ()), "nodes"))
    return Rules(rules, default, tuple(together))


def _read_rule(entry: dict[str, Any], place: int) -> Rule:
    where = f"rule {place}"
    _require_keys(entry, _RULE_KEYS, where)
    filters = tuple(
        (kind, _patterns(entry[key], key)) for key, kind in _FILTERS.items() if key in entry
    )
    if not filters:
        raise UsageError(f"{where} matches nothing", hint="name nodes with node, op or frame")
    device = _text(entry.get("device", ""), "device")
    _require_device(device)
    hard = entry.get("hard", False)
    if not isinstance(hard, bool):
        raise UsageError(f"'hard' of {where} is {hard!r}, not true or false")
    shown = ", ".join(pattern for _, patterns in filters for pattern in patterns[:2])
    return Rule(device, filters, hard, f"{where}: {shown}")


def _require_keys(entry: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for key in entry:
        if key not in known:
            message = f"{where} has a key {key!r} that means nothing"
            raise UsageError(message, hint=did_you_mean(key, known) or f"known: {', '.join(known)}")


def _entries(told: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    found = told.get(key, [])
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise UsageError(f"{key!r} is no list of tables", hint=f"write [[{key}]] above each")
    return found


def _patterns(value: Any, key: str) -> tuple[str, ...]:
    return tuple(_text(item, key) for item in (value if isinstance(value, list) else [value]))


def _text(value: Any, key: str) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{key!r} is {value!r}, not a text")
    return value
