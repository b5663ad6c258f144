"""Findings about a graph, and the catalog of codes (`codes.toml`)."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from cfgraph.errors import (
    DOCUMENTATION,
    CfgraphError,
    FindingReport,
    InvalidInput,
    Level,
    Location,
    UsageError,
)
from cfgraph.ir.names import did_you_mean

# late imports: only an explained code reads the table of codes


@dataclass(frozen=True, slots=True)
class Code:
    """One kind of finding: title, level, explanation, and fix."""

    code: str
    title: str
    level: Level
    explanation: str
    fix: str

    @property
    def page(self) -> str:
        """The address of the page about the code."""
        return f"{documentation_address()}errors/{self.code}/"


def documentation_address() -> str:
    """The address of the documentation, which ends with a slash."""
    return f"{(os.environ.get('CFGRAPH_DOCS') or DOCUMENTATION).rstrip('/')}/"


@cache
def catalog() -> dict[str, Code]:
    """All codes in ascending order."""
    import tomllib
    from importlib import resources

    text = resources.files("cfgraph.analysis").joinpath("codes.toml").read_text("utf-8")
    return {code: Code(code, **entry) for code, entry in sorted(tomllib.loads(text).items())}


def find_code(code: str) -> Code:
    """The entry of a code, ignoring case. Raises UsageError for an unknown code."""
    known = catalog()
    entry = known.get(code.upper())
    if entry is None:
        all_codes = f"{documentation_address()}errors/"
        raise UsageError(
            f"unknown code {code!r}",
            hint=similar_code_hint(code) or f"a code looks like CFG201; {all_codes} lists all",
        )
    return entry


def codes_about(words: str) -> list[Code]:
    """The codes whose titles contain all words, or else those whose explanations do."""
    starts = [re.compile(rf"\b{re.escape(word)}", re.IGNORECASE) for word in words.split()]
    for part in ("title", "explanation"):
        texts = {entry: getattr(entry, part) for entry in catalog().values()}
        found = [entry for entry, text in texts.items() if all(x.search(text) for x in starts)]
        if found and starts:
            return found
    return []


def similar_code_hint(code: str) -> str | None:
    """A hint that names the closest code with the same first digit, or None."""
    kind = code.upper()[: len("CFG0")]
    return did_you_mean(code.upper(), [known for known in catalog() if known.startswith(kind)])


LEVELS = ("error", "warning", "note")
# for a fault in a graph with _Sends, whose author may be `partition`
PARTITION_HINT: Final = (
    "partition the original graph again; if `cfgraph partition` wrote this one, that is a bug: "
    "please report it"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One error, warning, or note; `code` is in the catalog (`cfgraph.analysis.findings`)."""

    code: str
    level: str
    message: str
    node: str | None = None
    hint: str | None = None
    related: tuple[str, ...] = ()
    frame: str | None = None

    @classmethod
    def of_error(cls, error: CfgraphError) -> Finding:
        """The finding of an error that was raised."""
        return cls(
            error.code or "", "error", error.message, error.node, error.hint, (), error.frame
        )

    def __str__(self) -> str:
        where = f" at node '{self.node}'" if self.node else ""
        return f"{self.level}[{self.code}]: {self.message}{where}"

    def report(self, path: str | None = None) -> FindingReport:
        """The finding as a member of a document, in the graph at a path."""
        return FindingReport.from_attributes(self, where=Location(path, self.node, self.frame))

    def to_json(self) -> dict[str, Any]:
        """The finding as a JSON object."""
        return self.report().to_json()


def require_no_findings(faults: Sequence[Finding]) -> None:
    """Raise InvalidInput for the first finding, carrying all of them, if there are any."""
    if faults:
        raise InvalidInput.of_faults(faults)
