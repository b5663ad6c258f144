"""Command lines of the programs that measure sections."""

from __future__ import annotations

import argparse
from collections.abc import Collection


def section_parser(prog: str, description: str, names: Collection[str]) -> argparse.ArgumentParser:
    """A parser of section names and `--tiny`; it rejects unknown names."""

    def section(word: str) -> str:
        if word not in names:
            message = f"unknown section {word!r}; choose from {', '.join(names)}"
            raise argparse.ArgumentTypeError(message)
        return word

    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument(
        "sections",
        nargs="*",
        type=section,
        metavar="SECTION",
        help=f"default: all of {', '.join(names)}",
    )
    parser.add_argument("--tiny", action="store_true", help="try the code on small sizes")
    return parser
