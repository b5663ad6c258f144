"""Texts that follow from distribution/address.toml: commands for a clone, or for a release."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from cfgraph.errors import DISTRIBUTION
from cfgraph.version import __version__

ADDRESS: Final = "distribution/address.toml"
_INSTALL: Final = "docs/install.md"
_PACKAGE_PAGES: Final = (
    "README.md",
    "docs/README.md",
    "docs/devices.md",
    _INSTALL,
    "docs/mcp.md",
    "docs/scale-out.md",
)
_CI: Final = "docs/ci.md"
_RECIPE: Final = "distribution/conda/recipe.yaml"
_COMPONENT: Final = "distribution/gitlab/templates/cfgraph.yml"
_NO_RELEASE: Final = "There is no release yet: in a clone, these commands work as they are. "
_ACTION: Final = "Until there is a release, `./cfgraph` is a clone of it in the repository.\n"
_HOOKS: Final = "Until there is a release, `../cfgraph` is a clone of it:\n"
# the last text of a pattern, for one that may be without the text before it
_REST: Final = r"\1"


@dataclass(frozen=True, slots=True)
class Address:
    """Host and owner of the repository, and whether there is a release."""

    host: str
    owner: str
    released: bool

    @property
    def repository(self) -> str:
        """The address of the repository, or nothing without an owner."""
        return f"{self.host}/{self.owner}/cfgraph" if self.owner else ""

    def choose(self, clone: str, release: str) -> str:
        """The text for a clone, or the one for a release."""
        return release if self.owner and self.released else clone

    def named(self, text: str) -> str:
        """A line that names the repository, or nothing without an owner."""
        return f"{text.format(self.repository)}\n" if self.owner else ""


class Rule(NamedTuple):
    """A pattern of all texts that a place in a file may have, and the current one."""

    file: str
    pattern: str
    text: str


def read_address(root: Path) -> Address:
    """Read the file."""
    return Address(**tomllib.loads((root / ADDRESS).read_text(encoding="utf-8")))


def rules(address: Address) -> tuple[Rule, ...]:
    """The places in files."""
    choose, named, tag = address.choose, address.named, f"v{__version__}"
    package = rf"((?:uvx --from|pipx? install) '?)(?:\.|{DISTRIBUTION})(?=[\[ `'\n])"
    version = "${{ version }}"
    archive = f"releases/download/v{version}/cfgraph_tools-{version}.tar.gz"
    source = f"  url: {address.repository}/{archive}\n  sha256: ${{{{ sha256 }}}}\n"
    action = choose("./cfgraph", f"{address.owner}/cfgraph@{tag}")
    hooks = choose("../cfgraph", address.repository)
    local = choose("./cfgraph", DISTRIBUTION)
    homepage, code = named("  homepage: {}"), named("repository-code: {}")
    urls = named('[project.urls]\nRepository = "{}"\n')
    maintainers = f"\n    - {address.owner}" if address.owner else " []"
    packages = [Rule(page, package, rf"\1{choose('.', DISTRIBUTION)}") for page in _PACKAGE_PAGES]
    remarks = [
        Rule(page, f"(?:{text})?({anchor})", choose(text, "") + _REST)
        for page, text, anchor in (
            ("README.md", _NO_RELEASE, "`cfgraph examples DIR`"),
            ("docs/README.md", _NO_RELEASE, "Each picture of"),
            (_INSTALL, _NO_RELEASE, "The distribution is called"),
            (_INSTALL, _HOOKS, "\n```yaml\nrepos"),
            (_CI, _ACTION, "\n```yaml\n# .github"),
        )
    ]
    return (
        *packages,
        *remarks,
        Rule(_CI, r"(?<=- uses: )\S+cfgraph(?:@v\S+)?", action),
        Rule(_INSTALL, r"(?<=- repo: )\S+cfgraph", hooks),
        Rule(_INSTALL, r"(?<=    rev: )\S+", choose("HEAD", tag)),
        Rule("fixtures/ci/graphs.yml", r"(?<=run: pip install )\S+", local),
        Rule(_COMPONENT, r"(?<=What pip installs\.\n      default: )\S+", local),
        Rule(_RECIPE, r"(?<=^source:\n)(?:  .*\n)+", choose("  path: ../..\n", source)),
        Rule(_RECIPE, r"(?:  homepage: .*\n)?(  summary: )", homepage + _REST),
        Rule(_RECIPE, r"(?<=  recipe-maintainers:)(?: \[\]|\n    - .*)", maintainers),
        Rule("CITATION.cff", r"(?:repository-code: .*\n)?(authors:)", code + _REST),
        Rule(
            "pyproject.toml",
            r"(?:\[project\.urls\]\n(?:.+\n)+\n)?(\[project\.scripts\])",
            urls + _REST,
        ),
    )


def written(root: Path, address: Address) -> dict[str, str]:
    """The text of each file. Raises AssertionError for a place that a file lacks."""
    texts = dict[str, str]()
    for file, pattern, text in rules(address):
        current = texts.get(file) or (root / file).read_text(encoding="utf-8")
        texts[file], count = re.subn(pattern, text, current, flags=re.MULTILINE)
        assert count, f"{file} lacks {pattern}"
    return texts
