"""Long names of nodes as they are printed: a common scope once, and scopes that repeat folded.

TensorFlow repeats the scopes of a loop in the names of its function, so that a run shows
`call/lstm/while/body/lstm/while/cell/mul`. This is `…/lstm/while/cell/mul`, which commands
understand as the end of the name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from itertools import accumulate
from typing import Final, NamedTuple

ELLIPSIS: Final = "…"
# names in a text, such as a formula; paths of frames begin with a slash
_NAME: Final = re.compile(r"(?<![\w./…-])[A-Za-z0-9_.][\w.-]*(?:/[\w.>-]+)+")
_ITERATION: Final = re.compile(r"\[(\d+)\]")
_FUNCTION_SCOPE: Final = re.compile(r"cond|body|then|else|branch\d+")
# characters that a common scope must save, and that a table without it must have in a name
_LEAST_SAVED: Final = 60
_LEAST_LENGTH: Final = 40
# scopes at the end of a long name, and characters of others that must be left out
_SHOWN_SCOPES: Final = 2
_LEAST_LEFT_OUT: Final = 20
# share of the names that a common scope must have
_LEAST_SHARE: Final = 0.75


class FoldedName(NamedTuple):
    """A name below a scope, which begins with an ellipsis where outer scopes are left out.

    These are the scopes `outer`, up to that of the function that repeats them.
    """

    scope: str
    rest: str
    outer: str = ""

    def __str__(self) -> str:
        """The name as it is printed."""
        return f"{self.scope}{self.rest}"


def folded_name(name: str) -> FoldedName:
    """A name without the scopes that its innermost function repeats."""
    parts = name.split("/")
    for index in range(len(parts) - 2, 0, -1):
        if _FUNCTION_SCOPE.fullmatch(parts[index]):
            outer, inner = parts[:index], parts[index + 1 : -1]
            for length in range(min(len(outer), len(inner)), 0, -1):
                if outer[-length:] == inner[:length]:
                    scope = "/".join([ELLIPSIS, *inner[:length], ""])
                    rest = "/".join(parts[index + 1 + length :])
                    return FoldedName(scope, rest, "/".join([*parts[: index + 1], ""]))
    scope, slash, rest = name.rpartition("/")
    return FoldedName(scope + slash, rest)


class CommonScope(NamedTuple):
    """The scope of most names of a table, which may be empty, and the names as they are printed."""

    scope: str
    shown: Mapping[str, str]

    def text(self, text: str) -> str:
        """A text with its names as they are printed."""
        return _NAME.sub(lambda match: self.shown.get(match[0], match[0]), text)


def common_scope(texts: Iterable[str]) -> CommonScope:
    """The scope that saves most in the names of texts; names are complete if little is saved."""
    names = list(dict.fromkeys(name for text in texts for name in _NAME.findall(text)))
    if len(names) < 2 or max(map(len, names)) < _LEAST_LENGTH:
        return CommonScope("", {})
    candidates = [_below_folded_scope(names), _below_outer_scope(names), ("", {})]
    for scope, rests in sorted(candidates, key=lambda item: -_saved(*item)):
        shown = _distinct({name: rests.get(name) or _abbreviated(name) for name in names}, rests)
        is_clear = len(set(shown.values())) == len(shown)
        is_common = not scope or len(rests) >= _LEAST_SHARE * len(names)
        if is_clear and is_common and _saved(scope, shown) >= _LEAST_SAVED:
            return CommonScope(scope, shown)
    return CommonScope("", {})


def _distinct(shown: Mapping[str, str], below: Container[str]) -> dict[str, str]:
    """Names as they are printed, complete where two that are not below a scope would be equal."""
    counts = Counter(shown.values())
    return {
        name: name if counts[text] > 1 and name not in below else text
        for name, text in shown.items()
    }


def _abbreviated(name: str) -> str:
    """A name with its outermost scope, and without inner ones that a function repeats.

    Of a long name without such a function, only the last two scopes remain.
    """
    folded, outermost = folded_name(name), name.partition("/")[0]
    if folded.outer:
        return f"{outermost}/{folded}"
    end = "/".join(name.rsplit("/", _SHOWN_SCOPES)[1:])
    short = f"{outermost}/{ELLIPSIS}/{end}"
    return short if len(name) - len(short) >= _LEAST_LEFT_OUT else name


class NameHeadings:
    """Labels of values of nodes, one after the other, long names below headings of their scopes."""

    def __init__(
        self, heading: Callable[[str], None], labels: Mapping[str, str] | None = None
    ) -> None:
        self._heading = heading
        self._labels = labels or {}
        self._scope = ""

    def label(self, tensor: str, frame: str) -> str:
        """The name of a tensor and its frame, or below its scope the name and the iterations."""
        complete, label = f"{tensor} {frame}", self._labels.get(tensor)
        if label is None and len(complete) < _LEAST_LENGTH * 2:
            self._scope = ""
            return complete
        scope, rest, outer = folded_name(tensor)
        rest = label or rest
        if outer:
            scope = f"{tensor.partition('/')[0]}/{scope}"
        if scope != self._scope:
            self._heading(f"{scope}:")
            self._scope = scope
        iterations = ",".join(_ITERATION.findall(frame))
        return f"{rest} [{iterations}]" if iterations else rest


def _saved(scope: str, rests: Mapping[str, str]) -> int:
    return sum(len(name) - len(rest) for name, rest in rests.items()) - len(scope)


def _below_folded_scope(names: Iterable[str]) -> tuple[str, dict[str, str]]:
    """The scope of most names with a scope that repeats, and all names below it."""
    scopes = Counter(folded.scope for folded in map(folded_name, names) if folded.outer)
    if not scopes:
        return "", {}
    scope = scopes.most_common(1)[0][0]
    inner = scope.removeprefix(ELLIPSIS)
    return scope, {name: name.rpartition(inner)[2] for name in names if inner in name}


def _below_outer_scope(names: Iterable[str]) -> tuple[str, dict[str, str]]:
    """The outer scope that saves most, and the names below it."""
    counts: Counter[str] = Counter()
    for name in names:
        counts.update(accumulate(f"{part}/" for part in name.split("/")[:-1]))
    scope = max(counts, key=lambda scope: (counts[scope] - 1) * len(scope))
    rests = {}
    for name in names:
        if name.startswith(scope):
            folded = folded_name(name)
            inner = f"{folded.outer}{ELLIPSIS}/{folded.rest}" if folded.outer else name
            rests[name] = (inner if inner.startswith(scope) else name).removeprefix(scope)
    return scope, rests
